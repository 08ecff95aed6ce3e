"""A user's request for one or more tools (output of ``tasks``), and what the user says after it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.records.base import Record
from astra.records.chat import Verdict

Voice = Literal["brief", "polite", "casual"]
Kind = Literal["plain", "missing_tool", "missing_value", "later_tool", "several_turns"]


class Stated(Record):
    """A value that a request states for a required parameter, as it stands there."""

    tool: str
    parameter: str
    value: str


class UserTurn(Record):
    """What the user says later in the conversation."""

    says: str = Field(min_length=1)
    target_tools: tuple[str, ...] = Field(default=(), description="Tools that this turn's own request needs.")
    brings: tuple[str, ...] = Field(default=(), description="Tools that are offered from this turn on.")
    gives: str | None = Field(default=None, description="The value that the first request left out.")


class Task(Record):
    id: str
    server_ids: tuple[str, ...]
    chain_id: str | None = Field(description="The chain it was written for; None for a server-only task.")
    question: str = Field(min_length=1)
    target_tools: tuple[str, ...] = Field(description="Tools the writer had in mind, in order, over all user turns.")
    origin: Literal["chain", "server"]
    augmentation: Literal["none", "diversity", "complexity", "persona"]
    kind: Kind = Field(default="plain", description="What is unusual, and so what the right end is; see ``missing``.")
    missing: tuple[str, ...] = Field(
        default=(),
        description="missing_tool, later_tool: target tools that are not offered at first. missing_value: the required "
        "parameter that the request leaves out, as tool.parameter.",
    )
    turns: tuple[UserTurn, ...] = Field(default=(), description="What the user says after the request, in order.")
    values: tuple[Stated, ...] = Field(default=(), description="What is stated for required parameters.")
    parent: str | None = Field(default=None, description="Task that this one was made from.")
    persona: str | None = None
    voice: Voice | None = Field(default=None, description="How the persona writes and wants to be answered.")
    quality: dict[str, Verdict]
