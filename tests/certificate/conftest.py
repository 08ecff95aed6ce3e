from __future__ import annotations

import pytest

from astra.sandbox import open_pool


@pytest.fixture(scope="package")
def pool():
    with open_pool() as open_:
        yield open_
