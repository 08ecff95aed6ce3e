"""Replies on disk, by the content of the request: what a stopped stage resumes from. Outside every DVC output."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import diskcache

from astra.llm.types import Completion, Request, Transport
from astra.records import ToolCall, Usage, canonical

FOLDER = Path(".cache/llm")


class Cached:
    """A transport whose replies are kept, with the usage that they had; a kept one says ``cached``."""

    def __init__(self, inner: Transport, address: str, folder: Path = FOLDER) -> None:
        self.inner = inner
        self.address = address
        self.replies = diskcache.Cache(str(folder))

    async def send(self, request: Request) -> Completion:
        """The kept reply, else one from the inner transport."""
        key = request_key(request, self.address)
        kept = self.replies.get(key)
        if kept is not None:
            return _read(kept)
        completion = await self.inner.send(request)
        self.replies.set(key, _written(completion))
        return completion


def request_key(request: Request, address: str) -> str:
    """The sha256 of everything that makes the reply what it is."""
    asked = [
        address,
        request.model.model_dump(),
        [message.openai() for message in request.messages],
        [tool.openai() for tool in request.tools],
        request.seed,
        request.sample,
        request.json_schema,
    ]
    return hashlib.sha256(canonical(asked).encode()).hexdigest()


def _written(completion: Completion) -> str:
    plain = dataclasses.asdict(completion) | {
        "usage": completion.usage.model_dump(),
        "tool_calls": [call.model_dump() for call in completion.tool_calls],
    }
    return json.dumps(plain)


def _read(text: str) -> Completion:
    plain = json.loads(text)
    calls = tuple(ToolCall.model_validate(call) for call in plain["tool_calls"])
    return Completion(**(plain | {"usage": Usage.model_validate(plain["usage"]), "tool_calls": calls, "cached": True}))
