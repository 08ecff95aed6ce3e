"""Where the project's cache lies, which outlives a stage's outputs, and the hashes of contents that name things in it.

Kept checkpoints, journals and unpacked wheels are found by these hashes: another value loses them all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_root() -> Path:
    """``$ASTRA_CACHE``, else ``.cache`` of the project; one for all workspaces of DVC's queue, which name DVC_ROOT."""
    named = os.environ.get("ASTRA_CACHE")
    return Path(named) if named else Path(os.environ.get("DVC_ROOT") or ".") / ".cache"


def files_of(path: Path) -> list[Path]:
    """The file, or all files of a folder, sorted."""
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


def sha256_of(file: Path) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def digest_of(*paths: Path) -> str:
    """A hash over the names and contents of files; a folder counts with all its files but caches."""
    digest = hashlib.sha256()
    for path in paths:
        for file in files_of(path):
            if "__pycache__" in file.parts or ".git" in file.parts:
                continue
            digest.update(f"{file.relative_to(path.parent)}\n".encode() + sha256_of(file))
    return digest.hexdigest()[:20]


def digest_of_named(files: Iterable[tuple[str, Path]]) -> str:
    """A hash over the contents of files under these names, in this order: that of a list as ``sha256sum`` makes one."""
    return hashlib.sha256("".join(f"{name} {sha256_of(file).hex()}\n" for name, file in files).encode()).hexdigest()
