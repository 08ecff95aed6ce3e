"""What several test files share: one whole run of the pipeline on a small copy of the repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.small_run import commit, copy_repository, run


class SmallRun(NamedTuple):
    """A finished run, to be read only, and what ``dvc repro`` said of it."""

    folder: Path
    output: str

    def copy(self, target: Path) -> Path:
        """A copy that may be changed."""
        return shutil.copytree(self.folder, target, symlinks=True, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    """All stages on small numbers, committed; made once for the whole session."""
    folder = tmp_path_factory.mktemp("small_run") / "repository"
    folder.mkdir()
    copy_repository(folder)
    output = run(folder, "dvc", "repro")
    commit(folder, "first run")
    return SmallRun(folder, output)
