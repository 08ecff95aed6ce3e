"""A repository that is in no package registry: the folder of the user's that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from astra.benchmarks.worker.packages import PackageMissing


def checkout(options: Mapping[str, Any], *parts: str) -> Path:
    """The folder that the user names. Raises PackageMissing where it lacks one of these parts."""
    if not options.get("path"):
        raise PackageMissing("no checkout of the benchmark's repository is named: give its folder as path")
    root = Path(options["path"]).resolve()
    if missing := [part for part in parts if not (root / part).exists()]:
        raise PackageMissing(f"{root} is no checkout of the benchmark's repository: it lacks {', '.join(missing)}")
    return root
