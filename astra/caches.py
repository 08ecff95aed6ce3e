"""Where the project's cache lies: what outlives a stage's outputs, which DVC deletes before a stage reruns."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """``$ASTRA_CACHE``, else ``.cache`` of the project; one for all workspaces of DVC's queue, which name DVC_ROOT."""
    named = os.environ.get("ASTRA_CACHE")
    return Path(named) if named else Path(os.environ.get("DVC_ROOT") or ".") / ".cache"
