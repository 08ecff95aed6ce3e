"""A JSON reply of a known shape: asked for by schema where the server can, read strictly, asked for again with what
was wrong where it cannot be used. What stays unusable is a refusal that holds the raw text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from astra.llm.errors import RequestRefused
from astra.llm.reply import ReplyInvalid
from astra.llm.types import Completion, Request
from astra.records import Message, canonical

T = TypeVar("T")
Reader = Callable[[Completion], T]
RAW = 2000  # characters of an unusable reply that are kept


class Asks(Protocol):
    """What is needed of a client."""

    async def ask(self, request: Request) -> Completion: ...


async def ask_structured(client: Asks, request: Request, read: Reader[T], reasks: int) -> T:
    """What ``read`` makes of the reply; it raises ReplyInvalid, whose message the model is told, or what is no JSON.

    A cut reply is never read: it is asked for once more with twice the tokens. Raises RequestRefused with reply_invalid
    or reply_truncated after ``reasks`` further tries, and what the client raises.
    """
    refusal = RequestRefused("reply_invalid", "never asked")
    asked = request
    for _ in range(reasks + 1):
        reply = await client.ask(asked)
        if reply.finish_reason == "length":
            refusal = RequestRefused("reply_truncated", f"cut after {asked.model.max_tokens} tokens; {_raw(reply)}")
            model = asked.model.model_copy(update={"max_tokens": 2 * asked.model.max_tokens})
            asked = dataclasses.replace(asked, model=model)
            continue
        try:
            return read(reply)
        except ReplyInvalid as error:
            refusal = RequestRefused("reply_invalid", f"{error}; {_raw(reply)}")
            asked = dataclasses.replace(asked, messages=request.messages + _complaint(reply, error, request))
    raise refusal


def _raw(reply: Completion) -> str:
    return f"reply: {(reply.content or '')[:RAW]!r}"


def _complaint(reply: Completion, error: ReplyInvalid, request: Request) -> tuple[Message, Message]:
    schema = f" It must fit this JSON Schema: {canonical(request.json_schema)}" if request.json_schema else ""
    text = f"This cannot be used: {error}. Reply again with the JSON value alone.{schema}"
    return Message(role="assistant", content=reply.content or ""), Message(role="user", content=text)


def object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": {"type": "string"}}
YES_NO = {"type": "boolean"}
