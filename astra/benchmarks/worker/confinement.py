"""What holds a benchmark's run in: the rules of the tools' sandbox, for a process that runs only a package's own code.

A model's words reach that code as arguments. Where a package evaluates them, its adapter refuses what is no call of a
documented tool; should one slip through, it meets Landlock (nothing can be written, only code and the benchmark's
data read), seccomp (no socket, no program, no process) and limits of memory and processor time.
"""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

import astra
from astra.sandbox import runner

CODE = Path(astra.__file__).parent
PYTHON = [f"{sys.prefix}/lib", f"{sys.base_prefix}/lib", "/usr/lib", "/lib", "/usr/share/zoneinfo", "/dev/urandom"]


class Confinement:
    """Made once in the server, put on each run's process after the fork."""

    def __init__(self, readable: Iterable[str], memory_mib: int, cpu_s: int) -> None:
        self.memory_bytes = _at_most(resource.RLIMIT_AS, memory_mib << 20)
        self.cpu_s = _at_most(resource.RLIMIT_CPU, cpu_s)
        self.kind = available()
        self.rules: int | None = None
        if self.kind == "landlock":
            self.rules = runner.landlock_rules([*PYTHON, str(CODE), *readable])
        self._filter = runner.Filter(holder=False) if self.kind != "none" else None

    def apply(self, parent: int) -> None:
        """Irrevocable. ``parent`` is the server's process, with which this one ends."""
        if self._filter is not None:
            runner.limit(self.memory_bytes, self.cpu_s)
            runner.confine(self._filter, self.rules, 0, parent)


def _at_most(what: int, value: int) -> int:
    """The value, or what this machine allows where that is less."""
    hard = resource.getrlimit(what)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def available() -> str:
    """``landlock`` (with seccomp and limits), ``seccomp`` where the kernel has no Landlock, ``none`` elsewhere."""
    if sys.platform != "linux" or platform.machine() not in runner.MACHINES:
        return "none"
    return "landlock" if runner.landlock_version() >= 1 else "seccomp"
