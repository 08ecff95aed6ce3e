"""Which package lies in an unpacked folder."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path


class PackageMissing(Exception):
    """The folder does not hold the package that this benchmark is written for."""


def require(folder: Path, name: str, version: str) -> str:
    """The package and its version as reported, ``bfcl-eval 2026.3.23``. Raises PackageMissing."""
    found = {_plain(one.metadata["Name"]): one.version for one in metadata.distributions(path=[str(folder)])}
    if found.get(_plain(name)) != version:
        there = ", ".join(f"{one} {number}" for one, number in sorted(found.items())) or "no package"
        raise PackageMissing(f"{folder} holds {there}; needed is {name} {version}. To fetch it: dvc repro bench_env")
    return f"{name} {version}"


def _plain(name: str) -> str:
    """A package's name as all spellings of it compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def take_from(folder: Path) -> None:
    """Import from this folder before anything else of that name."""
    sys.path.insert(0, str(folder))
