"""What goes to a model and what comes back: the seam between stages and any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from astra.records import Message, Section, ToolCall, ToolSpec, Usage


class ModelParams(Section):
    """One role's model in params.yaml. The address and the key come from the environment, never from here."""

    transport: Literal["builtin", "openai"] = Field(description="Key of TRANSPORTS.")
    name: str = Field(min_length=1, description="Model id sent to the endpoint; identifies the replies.")
    temperature: float = Field(ge=0, le=2)
    max_tokens: int = Field(ge=16)


@dataclass(frozen=True)
class Request:
    """One question. ``sample`` numbers repeated questions, so that each has its own reply."""

    model: ModelParams
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    seed: int = 0
    sample: int = 0
    json_schema: dict[str, Any] | None = None


@dataclass(frozen=True)
class Completion:
    """One reply, as the model gave it; nothing parsed yet."""

    content: str | None
    finish_reason: str
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    cached: bool = False


class Transport(Protocol):
    """The one-method seam that the built-in teacher and every endpoint share."""

    async def send(self, request: Request) -> Completion:
        """One reply. Raises EndpointUnavailable (the machinery) or RequestRefused (this request)."""
        ...
