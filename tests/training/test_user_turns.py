"""Conversations with several user turns in training: only what the assistant wrote is trained on."""

from __future__ import annotations

import json

import pytest

from astra.chat import BUILTIN_PHRASES, Chat, build_tokenizer
from astra.records import FunctionCall, Message, ToolCall
from tests.training.tiny import CAPITAL, CURRENCY, trained_spans


def call(number: int, tool: str, country: str) -> ToolCall:
    return ToolCall(id=f"call{number}", function=FunctionCall(name=tool, arguments=json.dumps({"country": country})))


def result(number: int, tool: str, value: str) -> Message:
    content = json.dumps({"result": value})
    return Message(role="tool", tool_call_id=f"call{number}", name=tool, content=content, executed_by="live")


BROUGHT = f"It is there now.\n\nFrom now on these tools are there, too:\n{json.dumps(CURRENCY.spec.openai())}"
TALK = (
    Message(role="system", content="Answer with the tools."),
    Message(role="user", content="For country Peru, find the capital. Also for country Spain, find the capital."),
    Message(
        role="assistant", content="Next: both.", tool_calls=(call(1, "country_capital", "Peru"), call(2, "country_capital", "Spain"))
    ),
    result(1, "country_capital", "Lima"),
    result(2, "country_capital", "Madrid"),
    Message(role="assistant", content="The answer is Lima and Madrid."),
    Message(role="user", content="And what is the currency of that country?"),
    Message(role="assistant", content="I cannot answer: no tool gives the currency."),
    Message(role="user", content=BROUGHT),
    Message(role="assistant", content="Next: currency of Spain.", tool_calls=(call(3, "country_currency", "Spain"),)),
    result(3, "country_currency", "EUR"),
    Message(role="assistant", content="The answer is EUR."),
)  # fmt: skip


@pytest.fixture(scope="module")
def chat() -> Chat:
    texts = [message.content or "" for message in TALK]
    names = {"country_capital", "country_currency", "Peru", "Spain", "Lima", "Madrid"}
    return Chat(build_tokenizer(texts, names, BUILTIN_PHRASES, 400))


def trained(chat: Chat) -> list[str]:
    """The texts of the trained stretches, in order."""
    encoded = chat.encode([TALK], [[CAPITAL.spec]])[0]
    return [chat.text(ids) for ids in trained_spans(encoded.ids, encoded.mask)]


def test_each_assistant_turn_is_trained_on_and_ends_with_its_end_token(chat: Chat) -> None:
    turns = [message for message in TALK if message.role == "assistant"]
    texts = trained(chat)
    assert len(texts) == len(turns)
    for text, turn in zip(texts, turns, strict=True):
        assert text.startswith(turn.content or "")
        assert text.endswith("<|im_end|>")
        assert text.count("<|im_end|>") == 1


def test_nothing_that_a_user_or_a_tool_said_is_trained_on(chat: Chat) -> None:
    texts = "\n".join(trained(chat))
    assert "And what is" not in texts
    assert "From now on" not in texts
    assert '"result"' not in texts
    assert "tool_response" not in texts


def test_calls_in_one_turn_are_all_trained_on(chat: Chat) -> None:
    assert trained(chat)[0].count("<tool_call>") == 2


def test_a_tool_that_comes_later_stands_in_the_text_before_its_first_call(chat: Chat) -> None:
    text = chat.text(chat.encode([TALK], [[CAPITAL.spec]])[0].ids)
    refusal, document = (
        text.index("no tool gives the currency"),
        text.index('"name": "country_currency", "description"'),
    )
    assert refusal < document < text.rindex("<tool_call>")
