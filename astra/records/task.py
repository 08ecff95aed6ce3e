"""A user's request for one or more tools (output of ``tasks``)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.records.base import Record
from astra.records.chat import Verdict


class Task(Record):
    id: str
    server_ids: tuple[str, ...]
    chain_id: str | None = Field(description="The chain it was written for; None for a server-only task.")
    question: str = Field(min_length=1)
    target_tools: tuple[str, ...] = Field(description="Tools the writer had in mind, in order.")
    origin: Literal["chain", "server"]
    augmentation: Literal["none", "diversity", "complexity", "persona"]
    parent: str | None = Field(default=None, description="Task that this one was augmented from.")
    persona: str | None = None
    quality: dict[str, Verdict]
