"""JSON replies of a known shape: read strictly, asked for again with what was wrong, refused with the raw text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from astra.llm.errors import RequestRefused
from astra.llm.reply import ReplyInvalid, parse_json
from astra.llm.structured import YES_NO, ask_structured, object_schema
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Message, Usage

SCHEMA = object_schema(fine=YES_NO)
MODEL = ModelParams(transport="openai", name="m", temperature=0, max_tokens=64)
ASKED = Request(model=MODEL, messages=(Message(role="user", content="Is it fine?"),), json_schema=SCHEMA)


class Says:
    """A client that gives texts in turn; a text that ends in ``...`` was cut."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.requests: list[Request] = []

    async def ask(self, request: Request) -> Completion:
        self.requests.append(request)
        text = self.texts.pop(0)
        usage = Usage(calls=1, prompt_tokens=1, completion_tokens=1)
        return Completion(text.removesuffix("..."), "length" if text.endswith("...") else "stop", usage)


def fine(reply: Completion) -> bool:
    value = parse_json(reply.content or "")
    if not isinstance(value, dict) or not isinstance(value.get("fine"), bool):
        raise ReplyInvalid("no fine")
    return bool(value["fine"])


def ask(client: Says, reasks: int = 1) -> Any:
    return asyncio.run(ask_structured(client, ASKED, fine, reasks))


def test_a_server_that_ignores_the_schema_is_told_it_in_words_hc_024_c():
    client = Says("It is fine, I think.", '{"fine": true}')
    assert ask(client) is True
    again = client.requests[1].messages
    assert [message.role for message in again] == ["user", "assistant", "user"]
    assert "no JSON value in the reply" in (again[2].content or "")
    assert '"required":["fine"]' in (again[2].content or "")


def test_re_asks_are_bounded_and_a_refusal_keeps_the_raw_text():
    client = Says("one", "two", '{"fine": "yes"}')
    with pytest.raises(RequestRefused, match=r"no fine.*\{\"fine\": \"yes\"\}") as refused:
        ask(client, reasks=2)
    assert refused.value.reason == "reply_invalid"
    assert len(client.requests) == 3
    assert len(client.requests[2].messages) == 3


def test_a_reply_that_was_cut_is_never_read_even_if_it_could_be():
    client = Says('{"fine": true}...', '{"fine": false}')
    assert ask(client) is False
    assert [one.model.max_tokens for one in client.requests] == [64, 128]
    with pytest.raises(RequestRefused) as refused:
        ask(Says('{"fine": true}...', '{"fine": true}...'))
    assert refused.value.reason == "reply_truncated"


def test_every_question_keeps_its_schema():
    client = Says("prose", '{"fine": true}')
    ask(client)
    assert [one.json_schema for one in client.requests] == [SCHEMA, SCHEMA]
