"""The embedded backend: the fork server confined by Landlock, seccomp and limits; no package, no root, no engine.

Started as root, tools run as a user of their own. Only the existence of paths stays visible to them (Landlock does not
cover ``stat``); no file but the interpreter's own can be read, none written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from astra.sandbox.link import Link, ProcessLink
from astra.sandbox.worker import Conditions, Worker

RUNNER = Path(__file__).with_name("runner.py")
PYTHON_OPTIONS = ("-s", "-P", "-S", "-B")  # not -I: it would ignore PYTHONHASHSEED
FIRST_UID = 64001
MEMORY_MIB = 512


def landlock_worker(conditions: Conditions, slot: int = 0) -> Worker:
    """A worker of this backend. ``slot`` gives each worker's tools a user of their own where that is possible."""
    command = [interpreter(), *PYTHON_OPTIONS, str(RUNNER)]
    own = {"R_LANDLOCK": "yes", "R_MEMORY_MIB": str(MEMORY_MIB)}
    if os.getuid() == 0:
        own["R_UID"] = str(FIRST_UID + slot)

    def start(environment: Mapping[str, str]) -> Link:
        return ProcessLink(command, {**environment, **own})

    return Worker("landlock", start, conditions)


def interpreter() -> str:
    """A Python whose library other users can read, where tools run as another user; else this one.

    With this one's library out of reach a tool can still import what the runner loaded before.
    """
    own = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [path.resolve() for path in (own, Path("/usr/bin/python3")) if path.is_file()]
    if os.getuid() == 0:
        candidates.sort(key=lambda path: not _open_to_all(path))
    return str(candidates[0]) if candidates else sys.executable


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))
