"""What goes to a model and what comes back: the seam between stages and any model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field, field_validator

from astra.records import Message, Section, ToolCall, ToolSpec, Usage

Role = Literal["teacher", "emulator", "judge", "user", "policy"]


OURS = {
    "model", "messages", "tools", "n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens",
    "response_format",
}  # fmt: skip


class ModelParams(Section):
    """One role's model in params.yaml. The address and the key come from the environment, never from here."""

    transport: Literal["builtin", "openai"] = Field(description="Key of TRANSPORTS.")
    name: str = Field(min_length=1, description="Model id sent to the endpoint; identifies the replies.")
    temperature: float = Field(ge=0, le=2)
    max_tokens: int = Field(ge=16)
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus sampling; none: the server's default.")
    extra: dict[str, Any] = Field(
        default={}, description="Further fields of the request body, e.g. chat_template_kwargs or reasoning_effort."
    )
    min_prompt_share: float = Field(
        default=0.4, ge=0, lt=1, description="A server that reports fewer prompt tokens than this share of our own "
        "estimate has dropped the front of the prompt; such a reply is not used."
    )  # fmt: skip

    @field_validator("extra")
    @classmethod
    def _leaves_ours(cls, extra: dict[str, Any]) -> dict[str, Any]:
        """A field that the client sets itself would make the reply another one than what identifies it says."""
        ours = sorted(extra.keys() & OURS | ({"stream"} if extra.get("stream") else set()))
        if ours:
            raise ValueError(f"{', '.join(ours)}: set by the client; name it beside extra, or leave it out")
        try:
            json.dumps(extra, allow_nan=False)
        except TypeError as error:  # YAML has values that JSON has not
            raise ValueError(str(error)) from None
        return extra


class Price(Section):
    """USD per million tokens."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)


class Budget(Section):
    """The most that the replies of a stage, and of all stages together, may have cost; null: no limit."""

    stage_usd: float | None = Field(ge=0)
    run_usd: float | None = Field(ge=0)


class Settings(Section):
    """How endpoints are asked. None of it can change a byte of the data, so DVC does not track it."""

    concurrency: int = Field(ge=1, le=4096, description="Requests in flight per role at most; adapts downwards.")
    attempts: int = Field(ge=1, description="Times that one request is tried; a busy server is waited for.")
    timeout_s: float = Field(gt=0, description="For one attempt.")
    deadline_s: float = Field(gt=0, description="For all attempts at one request, pauses included.")
    max_wait_s: float = Field(ge=0, description="The longest single pause, whatever Retry-After says.")
    budget: Budget
    prices: dict[str, Price] = Field(description="By model name; a budget needs them, the built-in teacher is free.")


@dataclass(frozen=True, slots=True)
class Request:
    """One question. ``sample`` numbers repeated questions, so that each has its own reply.

    ``renew`` asks again although a reply is kept, and is no part of what identifies it.
    """

    model: ModelParams
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    seed: int = 0
    sample: int = 0
    json_schema: dict[str, Any] | None = None
    renew: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply, as the model gave it; nothing parsed yet.

    ``finish_reason`` is ``length`` whenever the reply used up its tokens, whatever the server called it.
    """

    content: str | None
    finish_reason: str
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    refusal: str | None = None
    cached: bool = False


class Transport(Protocol):
    """The one-method seam that the built-in teacher and every endpoint share."""

    async def send(self, request: Request) -> Completion:
        """One reply. Raises EndpointUnavailable (the machinery), RequestRefused (this request), or Transient."""
        ...


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: four characters each."""
    return len(text) // 4
