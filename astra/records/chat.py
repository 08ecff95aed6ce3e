"""Messages in OpenAI chat form, verdicts, and what a conversation used."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from astra.records.base import Record


class FunctionCall(Record):
    """What the model asked for; the arguments stay the JSON text it wrote."""

    name: str
    arguments: str


class ToolCall(Record):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Record):
    """One message; a tool message also says who executed the call and how it went."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = Field(default=None, description="Tool name, on tool messages.")
    executed_by: Literal["live", "emulator", "sandbox", "agent"] | None = None
    is_error: bool = False
    fault: str | None = Field(default=None, description="Injected failure, e.g. timeout, rate_limit, unreachable.")
    repairs: tuple[str, ...] = Field(
        default=(), description="On tool messages: what was mended in the call, e.g. ids: read from text."
    )

    def openai(self) -> dict[str, Any]:
        """The message as an endpoint or a chat template takes it, without our own fields."""
        message: dict[str, Any] = {"role": self.role, "content": self.content or ""}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            message["name"] = self.name
        return message


class Usage(Record):
    """Model calls and tokens of one conversation."""

    calls: int = Field(ge=0)
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


class Verdict(Record):
    """A judgement: a score in [0, 1] with its reason, or no verdict (score None) with the reason for that."""

    score: float | None = Field(ge=0, le=1)
    reason: str


class KeptReply(Record):
    """A model's reply by the sha256 of its request: what a run can be rebuilt from without asking anyone."""

    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    content: str | None
    finish_reason: str
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    refusal: str | None = None
