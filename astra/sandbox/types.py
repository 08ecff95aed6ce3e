"""What a sandbox takes and gives, whatever the backend.

Unavailable
└── SandboxUnavailable   no backend works, or a worker was lost twice over one call: never a result of a tool
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from astra.records import Unavailable

Status = Literal[
    "ok",
    "tool_error",  # the tool, or its code when loaded, raised
    "timeout",
    "crash",  # the process ended without an answer: os._exit, a signal, out of memory
    "output_limit",  # more than 64 KiB printed
    "result_limit",  # a result of more than 1 MiB, or one that fits into memory only once
    "bad_result",  # no JSON, or a frame that the tool made up
    "leaked_process",  # left a thread running, or tried to start a process, which no sandbox lets it
]
TIMEOUT_S = 2.0
MAX_DEPTH = 110  # of a frame; the runner takes results of 100 levels


class SandboxUnavailable(Unavailable):
    """Untrusted code cannot be run here and now; the message says what was tried and what it needs."""


@dataclass(frozen=True)
class Result:
    """What one call gave. Every status but ok is the tool's own fault.

    ``error`` is the tool's message, or says what went wrong. ``notes`` holds non_finite where NaN or infinity became
    null. ``cpu_ms`` is of the whole process, code and all its calls.
    """

    status: Status
    value: Any = None
    error: str = ""
    error_type: str = ""
    notes: tuple[str, ...] = ()
    printed: str = ""
    cpu_ms: float = 0.0
    backend: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class Job:
    """Calls of one function, made in order in one fresh process that runs the code first."""

    code: str
    function: str
    arguments: tuple[Mapping[str, Any], ...]
    timeout_s: float = TIMEOUT_S


class Session(Protocol):
    """Code that is loaded once; every call is still a process of its own."""

    def call(self, function: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Result: ...


class Sandbox(Protocol):
    """Runs untrusted functions. One caller at a time."""

    backend: str

    def call(self, code: str, function: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Result:
        """One call in a fresh process. Raises SandboxUnavailable, never for what the tool does."""
        ...

    def run(self, job: Job) -> list[Result]:
        """All calls of a job, one result each. Raises SandboxUnavailable."""
        ...

    def session(self, code: str) -> AbstractContextManager[Session]:
        """Fast repeated calls of one code."""
        ...

    def close(self) -> None: ...


class NotJson(Exception):
    """Bytes from the sandbox that are not strict JSON."""


def strict_json(text: str) -> Any:
    """The value, refusing what plain ``json.loads`` lets pass: NaN, 1e999, a key twice, lone surrogates, any depth.

    A thousand levels can be decoded, and would then break whoever walks the value: MAX_DEPTH is far below.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)[:200]) from None
    if _deeper_than(value, MAX_DEPTH):
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [one for each in level if isinstance(each, list | dict) for one in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is beyond a float")
    return number


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice in one object")
    return found
