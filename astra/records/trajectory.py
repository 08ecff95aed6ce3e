"""A conversation that solves (or honestly fails) a task, and its scores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.records.base import Record
from astra.records.chat import Message, Usage, Verdict
from astra.records.tool import ToolSpec

Stop = Literal["answered", "max_turns", "truncated", "loop", "empty_answer"]


class Trajectory(Record):
    """Self-contained: the tools are copied in, so that training data stands alone."""

    id: str
    task_id: str
    server_ids: tuple[str, ...]
    attempt: int = Field(ge=0)
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    stop: Stop
    model: str
    usage: Usage


class Scorecard(Record):
    """The paper's seven dimensions over one trajectory (section 3.2.4)."""

    id: str
    trajectory_id: str
    dimensions: dict[str, Verdict] = Field(description="Only those that apply; single-turn runs have no TCU, TCP.")
    overall: float = Field(ge=0, le=1, description="Mean over the dimensions that apply.")
