"""Endpoints as models that are measured: where they are found, what identifies them, whose failure is whose."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from astra.benchmarks.models import (
    Draw,
    Endpoint,
    EndpointModel,
    Endpoints,
    Local,
    Named,
    message_of,
    purse_of,
    reply_of,
)
from astra.benchmarks.types import Ask, Reply, RunError
from astra.llm.errors import EndpointUnavailable
from astra.llm.loop import Loop
from astra.llm.types import Completion
from astra.records import FunctionCall, ToolCall, Usage
from tests.benchmarks.chat_server import ChatServer, completion, too_long
from tests.benchmarks.endpoints import MODEL, settings

ASK = Ask(messages=[{"role": "user", "content": "How are you?"}])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_EVAL_API_KEY", "secret-key-42")


def draw(**more) -> Draw:
    return Draw(**{"seed": 1, "benchmark": "b", "case": "c", "trial": 0, "turn": 0} | more)


def replied(
    model: Endpoint, ask: Ask, how: Draw, label: str = "mine", is_user: bool = False
) -> tuple[Reply, EndpointModel]:
    with Loop() as loop:
        endpoints = Endpoints(settings(attempts=1), loop, purse_of(settings()))
        try:
            opened = endpoints.open(label, model, is_user)
            return loop.run(opened.ask(ask, how)).reply, opened
        finally:
            endpoints.close()


def saying(text: str):
    return lambda body: completion(Reply(content=text))


def test_a_model_is_found_by_its_own_name_else_by_eval_s(monkeypatch):
    with ChatServer(saying("mine")) as own, ChatServer(saying("all")) as shared:
        monkeypatch.setenv("ASTRA_EVAL_BASE_URL", shared.url)
        monkeypatch.setenv("ASTRA_EVAL_QWEN3_14B_BASE_URL", own.url)
        monkeypatch.setenv("ASTRA_EVAL_QWEN3_14B_API_KEY", "other-key-43")
        assert replied(MODEL, ASK, draw(), "qwen3-14b")[0].content == "mine"
        assert replied(MODEL, ASK, draw(case="d"), "another")[0].content == "all"


def test_a_model_without_an_address_is_named_with_the_remedy(monkeypatch):
    for name in ("ASTRA_EVAL_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EndpointUnavailable, match="ASTRA_EVAL_BASE_URL"):
        replied(MODEL, ASK, draw())


def test_what_identifies_a_model_holds_neither_address_nor_key(monkeypatch):
    with ChatServer(saying("hi")) as server:
        monkeypatch.setenv("ASTRA_EVAL_BASE_URL", server.url)
        _, model = replied(MODEL, ASK, draw())
    said = str(model.identity) + str(model.usage())
    assert "secret" not in said
    assert "127.0.0.1" not in said
    assert model.identity["name"] == "m"
    assert model.identity["temperature"] == 0.6


def test_a_benchmark_s_temperature_replaces_the_model_s_and_its_limit_lowers_it(monkeypatch):
    with ChatServer(saying("hi")) as server:
        monkeypatch.setenv("ASTRA_EVAL_BASE_URL", server.url)
        replied(
            MODEL,
            ASK.model_copy(update={"options": {"max_tokens": 32, "temperature": 9}}),
            draw(temperature=0.0, top_p=1.0),
        )
        replied(MODEL, ASK.model_copy(update={"options": {"max_tokens": 3200}}), draw(case="d"))
        replied(MODEL, ASK, draw(case="e", temperature=0.0), is_user=True)  # whose sampling is its own
    assert [(one["temperature"], one["top_p"], one["max_tokens"]) for one in server.bodies] == [
        (0.0, 1.0, 32), (0.6, 0.95, 64), (0.6, 0.95, 64)]  # fmt: skip


def refusing(body):
    return 200, {
        "choices": [{"message": {"role": "assistant", "content": None, "refusal": "I won't."}, "finish_reason": "stop"}]
    }


def filtered(body):
    return 400, {"error": {"message": "content_filter: blocked", "code": 400}}


def senseless(body):
    return 400, {"error": {"message": "what is this"}}


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (too_long, Reply(stop="context")),
        (refusing, Reply(content="I won't.")),
        (filtered, Reply()),
    ],
)
def test_what_the_measured_model_does_is_its_reply(monkeypatch, answer, reply):
    with ChatServer(answer) as server:
        monkeypatch.setenv("ASTRA_EVAL_BASE_URL", server.url)
        assert replied(MODEL, ASK, draw())[0] == reply


@pytest.mark.parametrize("answer", [too_long, refusing, filtered])
def test_what_the_simulated_user_does_is_no_failure_of_the_measured_model(monkeypatch, answer):
    with ChatServer(answer) as server:
        monkeypatch.setenv("ASTRA_EVAL_BASE_URL", server.url)
        with pytest.raises(RunError, match="user_"):
            replied(MODEL, ASK, draw(), "user", is_user=True)


def test_a_request_that_the_server_does_not_understand_is_no_score(monkeypatch):
    with ChatServer(senseless) as server:
        monkeypatch.setenv("ASTRA_EVAL_BASE_URL", server.url)
        with pytest.raises(RunError, match="bad_request"):
            replied(MODEL, ASK, draw())


def test_calls_keep_the_text_that_the_model_wrote():
    call = ToolCall(id="7", function=FunctionCall(name="f", arguments='{"a": 1'))
    usage = Usage(calls=1, prompt_tokens=1, completion_tokens=1)
    reply = reply_of(Completion(content="x", finish_reason="stop", usage=usage, tool_calls=(call,)))
    assert (reply.stop, reply.content) == ("tool_calls", "x")
    assert (reply.tool_calls[0].id, reply.tool_calls[0].arguments) == ("7", '{"a": 1')


def test_a_cut_reply_says_so():
    usage = Usage(calls=1, prompt_tokens=1, completion_tokens=1)
    assert reply_of(Completion(content="x", finish_reason="length", usage=usage)).stop == "length"


def test_a_message_in_parts_is_read_as_its_text():
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert message_of({"role": "user", "content": parts}).content == "ab"
    assert message_of({"role": "assistant", "content": None, "tool_calls": None}).tool_calls == ()


def test_each_run_draws_from_a_seed_of_its_own_that_servers_take():
    numbers = {draw(case=case, trial=trial).number for case in "abc" for trial in range(4)}
    assert len(numbers) == 12
    assert all(0 <= one < 2**31 for one in numbers)


@pytest.mark.parametrize(
    "wrong",
    [
        {"transport": "builtin", "name": "m"},
        {"name": "m"},
        "models/sft",
        {"transport": "openai", "name": "m"},
        {"transport": "openai", "name": "m", "temperature": 0, "max_tokens": 64, "context": 9},
        {"transport": "openai", "name": "m", "temperature": 0, "max_tokens": 64, "extra": {"seed": 1}},
        {"transport": "local", "name": "m", "max_tokens": 64},
        {"transport": "local", "name": "", "max_tokens": 64, "context": 512},
    ],
)
def test_a_model_that_params_name_wrongly_is_refused(wrong):
    with pytest.raises(ValidationError):
        TypeAdapter(Named).validate_python(wrong)


def test_a_model_that_params_name_is_told_by_its_transport():
    local = TypeAdapter(Named).validate_python({"transport": "local", "name": "m", "max_tokens": 8, "context": 512})
    assert isinstance(local, Local)
    assert isinstance(TypeAdapter(Named).validate_python(MODEL.model_dump()), Endpoint)
