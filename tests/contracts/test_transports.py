"""What every model provider must do: one reply per request, typed failures, nothing but the request as input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from astra.llm import TRANSPORTS
from astra.llm.builtin import BuiltinTransport
from astra.llm.errors import EndpointUnavailable, RequestRefused
from astra.llm.openai import Address, OpenAITransport
from astra.llm.types import Completion, ModelParams, Request, Transport
from astra.prompts import render
from astra.records import Message
from tests.llm.test_openai import Server

MODEL = ModelParams(transport="builtin", name="m", temperature=0.7, max_tokens=512)
SHOWN = {
    "request": "Please find a port.",
    "server": {},
    "tools": [{"name": "f", "description": "Find a port.", "parameters": {}}],
}


def served(body: dict[str, Any]) -> tuple[int, Any]:
    """An endpoint that refuses what has no title line, as the built-in teacher does."""
    text = body["messages"][0]["content"]
    if not text.startswith("# "):
        return 400, {"error": {"message": "maximum context length exceeded"}}
    message = {"role": "assistant", "content": '{"chain": ["f"]}'}
    usage = {"prompt_tokens": len(text) // 4, "completion_tokens": 4}
    return 200, {"choices": [{"finish_reason": "stop", "message": message}], "usage": usage}


def endpoint() -> Transport:
    return OpenAITransport(Address("http://model.test/v1", "k"), session=Server(served))


MEMBERS: dict[str, Callable[[], Transport]] = {"builtin": BuiltinTransport, "openai": endpoint}


@pytest.fixture(params=sorted(TRANSPORTS))
def transport(request: Any) -> Callable[[], Transport]:
    return MEMBERS[request.param]


def ask(text: str, sample: int = 0) -> Request:
    return Request(model=MODEL, messages=(Message(role="user", content=text),), seed=3, sample=sample)


def rebuild() -> str:
    return render("chains/rebuild", input=json.dumps(SHOWN))


def test_a_reply_is_text_with_its_usage(transport):
    reply = asyncio.run(transport().send(ask(rebuild())))
    assert isinstance(reply, Completion)
    assert json.loads(reply.content or "") == {"chain": ["f"]}
    assert reply.finish_reason == "stop"
    assert (reply.usage.calls, reply.usage.prompt_tokens > 0) == (1, True)


def test_the_same_request_has_the_same_reply(transport):
    first, second = (asyncio.run(transport().send(ask(rebuild()))) for _ in range(2))
    assert first == second


def test_a_request_that_it_cannot_serve_is_refused_and_not_unavailable(transport):
    with pytest.raises(RequestRefused) as refused:
        asyncio.run(transport().send(ask("no title")))
    assert not isinstance(refused.value, EndpointUnavailable)
    assert refused.value.reason in {"bad_request", "overlong"}
