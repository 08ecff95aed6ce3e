"""What a benchmark's worker and whoever plays its cases say to each other, and what can go wrong between them.

Both sides import this file, so it needs pydantic and the standard library only.

    BenchmarkUnavailable   nothing of this benchmark can be run: its package is missing, its worker does not start
    RunError               one run of one case has no result, the others go on: an infrastructure error, never a score
    ├── HarnessError       the benchmark's own code raised
    └── RunLost            the run's process hung or died
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import Field

from astra.records.base import Record, Unavailable


class CaseInfo(Record):
    """One case of a benchmark; ``id`` is unique within its worker."""

    id: str
    category: str


class Ask(Record):
    """What to ask now: the whole conversation and all tools, in the form of OpenAI's chat completions.

    ``options`` are further fields of such a request (``tool_choice``, ``max_tokens``, ``temperature``) that the
    benchmark's protocol sets. ``role`` "user" is for the model that plays the user.
    """

    role: Literal["agent", "user"] = "agent"
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)


class CallText(Record):
    """A tool call as the model wrote it; ``arguments`` may be no JSON at all."""

    id: str
    name: str
    arguments: str


class Reply(Record):
    """What a model replied. ``context``: it could not take the prompt, so there is no reply and the case is over."""

    content: str | None = None
    tool_calls: list[CallText] = Field(default_factory=list)
    stop: Literal["stop", "tool_calls", "length", "context"] = "stop"


class Verdict(Record):
    """What a run is worth: measures in their benchmark's words, the main one first, and what the benchmark noted."""

    scores: dict[str, float]
    note: str = ""
    n_steps: int = 0
    n_calls: int = 0


class Playing(Protocol):
    """One run of one case, in a process of its own: nothing is shared with other runs."""

    def turn(self) -> Ask | None:
        """What to ask now; None when the case is over. Asked again without a reply between, it says the same."""

    def take(self, reply: Reply) -> None:
        """The reply to the last Ask."""

    def verdict(self) -> Verdict:
        """After the end, or when the run is stopped before it."""


class Bench(Protocol):
    """A benchmark, loaded once in a worker; ``start`` is called in a process forked for that run."""

    version: str
    """Package and version, such as ``bfcl-eval 2026.3.23``."""

    def cases(self) -> list[CaseInfo]:
        """All of them, in an order that stays."""

    def start(self, case: str, trial: int) -> Playing:
        """The case anew. Raises KeyError for an id that is not in ``cases``."""


class BenchmarkUnavailable(Unavailable):
    """Nothing of this benchmark can be run here; the message says what is missing and the remedy."""


class RunError(Exception):
    """One run has no result, by no fault of the model: an infrastructure error, never a score.

    ``reason`` is short, stable and counted; ``detail`` says what was met.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class HarnessError(RunError):
    """The benchmark's own code raised; reason ``harness_error``."""


class RunLost(RunError):
    """The run's process hung (``run_hung``) or died, twice in the same place (``run_died``)."""
