"""Questions with verified sub-questions, and the code worlds that answer them (arena line)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from astra.records.base import Record
from astra.records.chat import Message
from astra.records.tool import ToolSpec

Shape = Literal["single_hop", "parallel_single_hop", "multi_hop", "parallel_multi_hop"]
Split = Literal["train", "heldout", "heldout_entities", "heldout_tools"]
Origin = Literal["tables", "texts", "given"]


def _is_absent(value: object) -> bool:
    """Whether a field is left out of the JSON, so that records without it keep their bytes."""
    return not value


def _is_tables(value: object) -> bool:
    return value == "tables"


class Answer(Record):
    """An expected value with the type that decides how it is compared."""

    kind: Literal["text", "number", "date", "boolean", "list"]
    value: Any
    unit: str | None = None
    decimals: int | None = Field(default=None, ge=0, description="Tolerance stated in the question; None is exact.")


class Quote(Record):
    """Words of a document that bear an answer: ``text`` stands verbatim at ``start`` to ``end`` of it."""

    document: str
    start: int = Field(ge=0)
    end: int = Field(ge=1)
    text: str


class Step(Record):
    """One sub-question."""

    id: int = Field(ge=1)
    question: str
    answer: Answer
    depends_on: tuple[int, ...] = ()
    needs_tool: bool
    relation: str | None = Field(default=None, description="Relation name where the step reads a table.")
    subject: str | None = Field(default=None, description="Entity that the relation is read for.")
    evidence: tuple[Quote, ...] = Field(
        default=(), exclude_if=_is_absent, description="Where a document says the answer; left out for tables."
    )
    operation: str | None = Field(
        default=None, exclude_if=_is_absent, description="How the answer is computed from those it depends on."
    )


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
    origin: Origin = Field(
        default="tables",
        exclude_if=_is_tables,
        description="Where it comes from; relation and subject of a step name tables only for ``tables``.",
    )


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


class ToolTry(Record):
    """A reply about a tool that was not taken, and what its writer was told (``envsynth`` and ``merge``)."""

    about: str = Field(description="The relation, or question and step, or the tools that were to become one.")
    part: Literal["document", "scaling", "call", "rows", "code", "merge"]
    number: int = Field(ge=1)
    trouble: str
    reply: str = Field(description="The program, else the whole reply.")


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
    origin: Origin = Field(
        default="tables",
        exclude_if=_is_tables,
        description="Of the question; merge asks a model for others than tables.",
    )


class Variant(Record):
    """What was taken from an arena so that it cannot be done as asked, and what an honest end must name.

    With ``question``, ``tool`` and ``lost`` put back, the arena is the one that it was made from.
    """

    kind: Literal["missing_tool", "missing_value"]
    base: str = Field(description="Id of the arena that it was made from.")
    question: str = Field(description="Question of that arena.")
    tools: tuple[str, ...] = Field(description="Names of that arena's tools, in order.")
    probes: tuple[int, ...] = Field(description="Steps of that arena's golden calls, in order.")
    step: int = Field(description="First step that cannot be done.")
    names: tuple[str, ...] = Field(min_length=1, description="What is not there, in words; the first is the plainest.")
    labels: tuple[str, ...] = Field(description="What the steps ask for, in words: naming these names nothing missing.")
    undone: tuple[str, ...] = Field(description="The labels among them whose values cannot be known any more.")
    tool: CodeTool | None = Field(default=None, description="The tool that was removed.")
    value: str | None = Field(default=None, description="The value that the question no longer says.")
    lost: tuple[Probe, ...] = Field(min_length=1, description="Golden calls that cannot be earned any more.")


class Certificate(Record):
    """What was shown on the arena's final bytes."""

    artifact: str = Field(description="sha256 of the canonical JSON of all of the arena but its certificate.")
    checks: dict[str, bool]
    backend: str = Field(description="Sandbox that ran it.")
    payments: dict[str, float] = Field(default_factory=dict, description="What each agent was paid, by f1.")
    seal: str = Field(default="", description="sha256 of the canonical JSON of the fields above.")


class Arena(Environment):
    """An environment with merged tools and its certificate (output of ``merge``)."""

    certificate: Certificate
    variant: Variant | None = Field(default=None, exclude_if=_is_absent, description="Left out where it can be done.")


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


class Difficulty(Record):
    """How often a policy passed an arena, in the rollouts of one group."""

    arena_id: str
    update: int = Field(ge=0, description="Updates that the policy, models/sft at the start, had practised by then.")
    n: int = Field(ge=1, description="Rollouts that have a reward.")
    n_passed: int = Field(ge=0, description="Those that solved every required sub-task, or ended honestly.")
    pass_rate: float = Field(ge=0, le=1)
    reward: float = Field(ge=0, le=1, description="Mean reward.")


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
