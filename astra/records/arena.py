"""Questions with verified sub-questions, and the code worlds that answer them (arena line)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from astra.records.base import Record
from astra.records.chat import Message
from astra.records.tool import ToolSpec

Shape = Literal["single_hop", "parallel_single_hop", "multi_hop", "parallel_multi_hop"]
Split = Literal["train", "heldout", "heldout_entities", "heldout_tools"]


class Answer(Record):
    """An expected value with the type that decides how it is compared."""

    kind: Literal["text", "number", "date", "boolean", "list"]
    value: Any
    unit: str | None = None
    decimals: int | None = Field(default=None, ge=0, description="Tolerance stated in the question; None is exact.")


class Step(Record):
    """One sub-question."""

    id: int = Field(ge=1)
    question: str
    answer: Answer
    depends_on: tuple[int, ...] = ()
    needs_tool: bool
    relation: str | None = Field(default=None, description="Relation name where the step reads a table.")
    subject: str | None = Field(default=None, description="Entity that the relation is read for.")


class Decomposition(Record):
    id: str
    domain: str
    language: str
    shape: Shape
    question: str
    answer: Answer
    steps: tuple[Step, ...] = Field(min_length=1)
    checks: dict[str, float] = Field(description="DC, SA, SR, TC of the paper (section 3.3.1), each in [0, 1].")
    quality: float = Field(ge=0, le=1, description="QS, the mean of the four.")
    split: Split


class CodeTool(Record):
    """A tool whose behaviour is Python source, run only in a sandbox."""

    spec: ToolSpec
    code: str = Field(description="Defines one function named like the tool; keyword arguments in, JSON value out.")
    serves: tuple[int, ...] = Field(description="Ids of the steps that need it; empty for a distractor.")


class Probe(Record):
    """A golden call: with these arguments the tool must return the step's answer."""

    step: int
    tool: str
    arguments: dict[str, Any]
    expected: Answer


class Environment(Record):
    """A question, its tools as code and the golden calls (output of ``envsynth``)."""

    id: str
    decomposition_id: str
    domain: str
    shape: Shape
    question: str
    answer: Answer
    steps: tuple[Step, ...]
    tools: tuple[CodeTool, ...]
    probes: tuple[Probe, ...]
    split: Split


class Certificate(Record):
    """What was shown on the arena's final bytes."""

    artifact: str = Field(description="sha256 of the canonical JSON of tools and probes.")
    checks: dict[str, bool]
    backend: str = Field(description="Sandbox that ran it.")


class Arena(Environment):
    """An environment with merged tools and its certificate (output of ``merge``)."""

    certificate: Certificate


class Rollout(Record):
    """One episode of a policy in an arena."""

    arena_id: str
    update: int = Field(ge=0, description="Optimiser step that it was sampled for.")
    sample: int = Field(ge=0, description="Index within its group.")
    messages: tuple[Message, ...]
    solved: int = Field(ge=0)
    n_required: int = Field(ge=1)
    n_calls: int = Field(ge=0)
    reward: float = Field(ge=0, le=1)
    recall: float = Field(ge=0, le=1)
    precision: float = Field(ge=0, le=1)
    answer_correct: bool
    stop: Literal["answered", "max_turns", "truncated"]


class Sample(Record):
    """One evaluated case."""

    model: str
    benchmark: str
    case: str
    trial: int = Field(ge=0)
    mode: Literal["greedy", "sampled"]
    scores: dict[str, float]
    messages: tuple[Message, ...]
    error: str | None = Field(default=None, description="Infrastructure failure; such a case is never a zero.")


class Reject(Record):
    """What did not work out, with a short stable reason."""

    id: str
    reason: str = Field(pattern=r"^[a-z0-9_]+$")
    detail: str
