"""Why a question gets no environment."""

from __future__ import annotations

from astra.records import Refused


class Lost(Refused):
    """A question whose tools did not work out, with the reason that goes into rejects."""
