"""A benchmark whose cases misbehave, each in the way that its id names; ``polite`` does not."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from astra.benchmarks.types import Ask, CaseInfo, Reply, Verdict

print("a banner on stdout at load")
LOADED_BY = os.getpid()
MARKS: list[str] = []
"""Something of the module's that a run could leave behind for others."""


def nothing() -> str:
    return ""


def raise_error() -> str:
    raise RuntimeError("the package is broken")


def exit_interpreter() -> str:
    sys.exit(3)


def exit_at_once() -> str:
    os._exit(7)


def hang() -> str:
    time.sleep(600)
    return ""


def spin() -> str:
    while True:
        pass


def crash() -> str:
    ctypes.string_at(0)
    return ""


def print_much() -> str:
    for _ in range(1000):
        print("noise" * 100)
        sys.stderr.write("more noise\n")
    os.write(1, b'{"id": 1, "over": true}\n')
    return ""


def write_to_all_descriptors() -> str:
    for fd in range(64):
        try:
            os.write(fd, b"garbage\n")
        except OSError:
            continue
    return ""


def take_memory() -> str:
    return str(len(bytearray(8 << 30)))


def leave_mark() -> str:
    MARKS.append("here")
    return f"{len(MARKS)}"


def half_a_pair() -> str:
    return "\ud800"


def tried(*acts: Callable[[], object]) -> str:
    """Which of the acts went through."""
    found = []
    for act in acts:
        try:
            act()
            found.append("done")
        except OSError:
            found.append("denied")
    return " ".join(found)


def reach_out() -> str:
    """Everything that a run has no business with."""
    here = Path(__file__)
    return tried(
        lambda: Path("file").write_text("x"),
        lambda: Path("/tmp/astra-rogue").write_text("x"),
        lambda: here.write_text("x"),
        lambda: here.read_text(),
        lambda: Path("/etc/passwd").read_text(),
        lambda: os.listdir("/"),
        lambda: os.mkdir("folder"),
        lambda: os.rename("/tmp", "/tmp2"),
        lambda: os.chmod(here, 0o777),
        lambda: os.kill(os.getppid(), signal.SIGTERM),
        lambda: os.fork(),
        lambda: os.execv("/bin/sh", ["sh"]),
        lambda: socket.socket(),
    )


N_REACHED = 13
ACTS: dict[str, Callable[[], str]] = {
    "polite": nothing, "raise_error": raise_error, "exit_interpreter": exit_interpreter, "exit_at_once": exit_at_once,
    "hang": hang, "spin": spin, "crash": crash, "print_much": print_much, "take_memory": take_memory,
    "write_to_all_descriptors": write_to_all_descriptors, "leave_mark": leave_mark, "half_a_pair": half_a_pair,
    "reach_out": reach_out, "environment": lambda: " ".join(sorted(os.environ)), "folder": os.getcwd,
    "random": lambda: os.urandom(8).hex(),
}  # fmt: skip


class RoguePlaying:
    """Asks three times; after the first reply it does what its case names, and tells it in what it asks next."""

    def __init__(self, case: str, trial: int) -> None:
        self.case = case
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": f"{case} {trial}"}]
        self.n_taken = 0

    def turn(self) -> Ask | None:
        return Ask(messages=self.messages) if self.n_taken < 3 else None

    def take(self, reply: Reply) -> None:
        self.n_taken += 1
        self.messages.append({"role": "assistant", "content": reply.content})
        if self.n_taken == 1 and self.case in ACTS:
            self.messages.append({"role": "user", "content": ACTS[self.case]()})

    def verdict(self) -> Verdict:
        if self.case == "no_verdict":
            raise RuntimeError("no verdict")
        if self.case == "not_a_number":
            return Verdict(scores={"accuracy": float("nan")})
        said = "".join(str(one["content"]) for one in self.messages if one["role"] == "assistant")
        return Verdict(scores={"accuracy": 1.0}, note=said)


class Rogue:
    version = "rogue 1"

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=one, category="rogue") for one in (*ACTS, "no_start", "no_verdict", "not_a_number")]

    def start(self, case: str, trial: int) -> RoguePlaying:
        if case == "no_start":
            raise LookupError("it cannot be started")
        return RoguePlaying(case, trial)


def bench(folder: Path, options: Mapping[str, Any]) -> Rogue:
    print("a print while it is loaded")
    if options.get("broken"):
        raise ImportError("No module named 'what_it_needs'")
    if options.get("ends"):
        os._exit(9)
    if options.get("writes_garbage"):
        write_to_all_descriptors()
    return Rogue()
