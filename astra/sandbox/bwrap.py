"""The fork server in bubblewrap: namespaces of its own and an empty root beside what the embedded backend has.

Started as root, all of it runs as a user of its own in a new user namespace: bubblewrap as root makes none. The server
is PID 1 there, so ending it ends whatever runs in the namespace. Its file comes in as bytes, since that user may not be
able to read it where it lies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from astra.sandbox.landlock import FIRST_UID, MEMORY_MIB, PYTHON_OPTIONS, RUNNER, interpreter
from astra.sandbox.link import Link, ProcessLink
from astra.sandbox.types import SandboxUnavailable
from astra.sandbox.worker import Conditions, Worker

ISOLATED = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1",
    "--cap-drop", "ALL", "--clearenv",
)  # fmt: skip
SYSTEM_FOLDERS = ("/lib", "/lib64")  # links into /usr on most systems


def bwrap_worker(conditions: Conditions, slot: int = 0) -> Worker:
    """A worker of this backend. ``slot`` gives each worker a user of its own where that is possible."""
    user = FIRST_UID + slot if os.getuid() == 0 else None
    own = {"R_LANDLOCK": "if_there", "R_MEMORY_MIB": str(MEMORY_MIB)}

    def start(environment: Mapping[str, str]) -> Link:
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxUnavailable("sandbox bwrap: there is no bwrap on PATH (Debian: apt-get install bubblewrap)")
        runner = _readable_once(RUNNER)
        try:
            command = [program, *ISOLATED, *_variables({**environment, **own}), *_folders(runner)]
            return ProcessLink([*command, interpreter(), *PYTHON_OPTIONS, "/runner.py"], {}, user, (runner,))
        finally:
            os.close(runner)

    return Worker("bwrap", start, conditions)


def _readable_once(path: Path) -> int:
    """A descriptor that gives the bytes of a file to whoever inherits it."""
    there = os.memfd_create("runner")
    os.write(there, path.read_bytes())
    os.lseek(there, 0, os.SEEK_SET)
    return there


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        yield from ("--setenv", name, value)


def _folders(runner: int) -> Iterator[str]:
    """The file system: the system's programs and libraries, the interpreter, the runner; nothing can be written."""
    yield from ("--ro-bind", "/usr", "/usr")
    for folder in map(Path, SYSTEM_FOLDERS):
        if folder.is_symlink():
            yield from ("--symlink", os.readlink(folder), str(folder))
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    prefix = str(Path(interpreter()).parent.parent)
    if not Path(prefix).is_relative_to("/usr"):
        yield from ("--ro-bind", prefix, prefix)
    yield from ("--ro-bind-data", str(runner), "/runner.py")
    yield from ("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/")
