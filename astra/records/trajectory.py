"""A conversation that solves (or honestly fails) a task, and its scores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.records.base import Record
from astra.records.chat import Message, Usage, Verdict
from astra.records.task import Kind
from astra.records.tool import ToolSpec

Stop = Literal["answered", "max_turns", "max_tokens", "truncated", "loop", "empty_answer"]


class LateTools(Record):
    """Tools that are offered from a user's later message on, which shows their documents."""

    message: int = Field(ge=1, description="Place of that message in the conversation.")
    tools: tuple[ToolSpec, ...]


class Trajectory(Record):
    """Self-contained: the tools are copied in, so that training data stands alone."""

    id: str
    task_id: str
    kind: Kind = Field(default="plain", description="The task's kind.")
    server_ids: tuple[str, ...]
    attempt: int = Field(ge=0)
    tools: tuple[ToolSpec, ...] = Field(description="What is offered from the beginning.")
    late: tuple[LateTools, ...] = Field(default=(), description="What is offered later, by the message that brings it.")
    withheld: tuple[str, ...] = Field(default=(), description="Target tools that are never offered.")
    messages: tuple[Message, ...]
    stop: Stop
    model: str
    usage: Usage


class Evidence(Record):
    """What a rule found at a message, or at one of its calls, without a judge; see ``astra.evidence``."""

    kind: Literal[
        "invented", "guessed", "unsourced", "repeated", "asked_again", "failed_before", "unsupported", "unheeded",
        "unfinished",
    ]  # fmt: skip
    message: int = Field(ge=0, description="Place in the trajectory's messages.")
    call: int | None = Field(default=None, ge=0, description="Which of the message's calls; none for what it says.")
    detail: str


class Scorecard(Record):
    """The paper's seven dimensions over one trajectory (section 3.2.4)."""

    id: str
    trajectory_id: str
    dimensions: dict[str, Verdict] = Field(description="Only those that apply; single-turn runs have no TCU, TCP.")
    not_applicable: dict[str, str] = Field(default={}, description="The dimensions that do not apply, and why.")
    evidence: tuple[Evidence, ...] = Field(default=(), description="What rules found; some of it caps a dimension.")
    overall: float = Field(ge=0, le=1, description="Mean over the dimensions that apply.")
