"""The OpenAI transport against a scripted server: hard cases HC-015, 020, 023, 024, 026, 027, 029, 030."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import json
from typing import Any

import pytest

from astra.llm.completions import retry_after
from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.openai import IN_A_ROW, Address, OpenAITransport
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, Message, ToolCall, ToolSpec

MODEL = ModelParams(transport="openai", name="m", temperature=0, max_tokens=64)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NOTE = ToolSpec(
    name="send_note", description="Send a note.",
    parameters={"type": "object", "properties": {"format": {"type": "string", "pattern": "^(?=.{3,80}$)x", "format": "email"}}},
)  # fmt: skip


def request(text: str = "Hello", **more: Any) -> Request:
    return Request(model=MODEL, messages=(Message(role="user", content=text),), **more)


def good(content: str | None = "fine", finish: str = "stop", prompt_tokens: int = 5, **message: Any) -> dict[str, Any]:
    choice = {"finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return {"choices": [choice], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 2}}


class Reply:
    """A response as aiohttp gives it."""

    def __init__(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        self.body = body if isinstance(body, str) else json.dumps(body)

    async def read(self) -> bytes:
        return self.body.encode()

    async def __aenter__(self) -> Reply:
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class Server:
    """Stands where aiohttp's session does: answers with what a rule says of the body, and keeps what it was sent."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.bodies: list[dict[str, Any]] = []
        self.urls: list[str] = []

    def post(self, url: str, data: bytes, allow_redirects: bool) -> Reply:
        assert not allow_redirects
        self.urls.append(url)
        self.bodies.append(json.loads(data))
        return Reply(*self.rule(self.bodies[-1]))


def send(server: Server, *requests: Request, transport: OpenAITransport | None = None) -> list[Completion | Exception]:
    async def all_of_them() -> list[Completion | Exception]:
        opened = transport or OpenAITransport(Address("http://judge.test/v1", "key-of-the-test-1"))
        opened.session = server
        outcomes: list[Completion | Exception] = []
        for one in requests:
            try:
                outcomes.append(await opened.send(one))
            except (RequestRefused, EndpointUnavailable, Transient) as error:
                outcomes.append(error)
        return outcomes

    return asyncio.run(all_of_them())


def outcome(status: int, body: Any, asked: Request | None = None) -> Completion | Exception:
    return send(Server(lambda _: (status, body)), asked or request())[0]


def test_both_names_of_the_reasoning_field_are_read_and_calls_come_typed():
    call = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": {"port": "Lyme"}}}
    first = outcome(200, good(None, "tool_calls", reasoning="look", tool_calls=[call]))
    second = outcome(200, good("4 m", reasoning_content="short"))
    assert isinstance(first, Completion)
    assert isinstance(second, Completion)
    assert (first.reasoning, second.reasoning, second.content) == ("look", "short", "4 m")
    assert first.tool_calls == (ToolCall(id="c1", function=FunctionCall(name="tide", arguments='{"port": "Lyme"}')),)


@pytest.mark.parametrize(
    ("body", "becomes"),
    [
        ({"error": {"code": 429, "message": "daily limit reached"}, "choices": None}, None),
        ({"choices": []}, "empty_response"),
        ("", "empty_response"),
        ({"choices": [{"finish_reason": "stop", "message": None}]}, "empty_response"),
    ],
)
def test_a_success_status_without_a_reply_may_be_asked_again(body, becomes):
    failure = outcome(200, body)
    assert isinstance(failure, Transient)
    assert failure.becomes == becomes
    assert becomes or "daily limit reached" in str(failure)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, {"error": {"code": "content_filter", "message": "prompt blocked by the content policy"}}, "filtered"),
        (400, {"error": {"message": "This model's maximum context length is 4096 tokens"}}, "overlong"),
    ],
)
def test_a_filtered_refused_or_overlong_request_is_not_the_endpoints_failure(status, body, reason):
    refused = outcome(status, body)
    assert isinstance(refused, RequestRefused)
    assert refused.reason == reason


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_key_credit_and_address_stop_at_once_with_the_servers_words(status):
    stopped = outcome(status, {"error": {"message": "no credit left"}})
    assert isinstance(stopped, EndpointUnavailable)
    assert f"status {status}" in str(stopped)
    assert "no credit left" in str(stopped)
    assert "judge.test" in str(stopped)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_busy_server_may_be_asked_again_even_if_it_answers_in_html(status):
    assert isinstance(outcome(status, "<html>Bad gateway</html>"), Transient)


def test_the_pause_is_read_in_both_forms_and_nonsense_is_no_wish():
    future = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=90)
    assert 80 < (retry_after({"retry-after": email.utils.format_datetime(future, usegmt=True)}) or 0) < 91
    assert retry_after({"retry-after": "Mon, 02 Mar 2020 09:00:00 GMT"}) == 0
    assert retry_after({"retry-after": "-1"}) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after-ms": "", "retry-after": "0.5"}) == 0.5
    assert retry_after({}) is None


def formats(server: Server) -> list[str | None]:
    return [body.get("response_format", {}).get("type") for body in server.bodies]


@pytest.mark.parametrize(
    ("refused", "settled"),
    [({"json_schema"}, "json_object"), ({"json_schema", "json_object"}, None), (set(), "json_schema")],
)
def test_the_form_of_structured_output_that_works_is_found_and_remembered(refused, settled):
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        kind = body.get("response_format", {}).get("type")
        return (
            (400, {"error": {"message": f"response_format {kind} is not available"}})
            if kind in refused
            else (200, good())
        )

    server = Server(rule)
    send(server, request(json_schema=SCHEMA), request("again", json_schema=SCHEMA))
    assert formats(server)[-2:].count(settled) >= 1
    assert formats(server)[-1] == settled
    assert len(server.bodies) == 2 + len(refused)


def test_a_fallback_does_not_hide_the_real_error():
    rule = (400, {"error": {"message": "model 'm' not found (response_format ok)"}})
    failure = send(Server(lambda _: rule), request(json_schema=SCHEMA))[0]
    assert isinstance(failure, RequestRefused)
    assert "model 'm' not found" in failure.detail


def test_bad_requests_in_a_row_stop_the_stage():
    rule = (400, {"error": {"message": "unknown parameter: seed"}})
    outcomes = send(Server(lambda _: rule), *[request(str(n)) for n in range(IN_A_ROW)])
    assert all(isinstance(one, RequestRefused) for one in outcomes[:-1])
    assert isinstance(outcomes[-1], EndpointUnavailable)
    assert "unknown parameter: seed" in str(outcomes[-1])


def test_a_schema_that_breaks_the_grammar_is_sent_without_patterns_and_kept_with_them():
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        broken = "(?=" in json.dumps(body["tools"])
        return (
            (400, {"error": {"message": "Failed to initialize samplers: failed to parse grammar"}})
            if broken
            else (200, good())
        )

    server = Server(rule)
    assert isinstance(send(server, request(tools=(NOTE,)))[0], Completion)
    sent = server.bodies[-1]["tools"][0]["function"]["parameters"]
    assert sent == {"type": "object", "properties": {"format": {"type": "string"}}}
    assert "pattern" in NOTE.parameters["properties"]["format"]


def test_a_prompt_that_the_server_cut_is_told_by_its_token_count_and_stops_after_a_few():
    server = Server(lambda _: (200, good(prompt_tokens=205)))
    outcomes = send(server, *[request("word " * 4000)] * IN_A_ROW)
    assert isinstance(outcomes[0], Transient)
    assert (outcomes[0].becomes, outcomes[0].attempts) == ("prompt_truncated", 2)
    assert isinstance(outcomes[-1], EndpointUnavailable)
    assert "context size" in str(outcomes[-1])


@pytest.mark.parametrize("counted", [None, {"prompt_tokens": 0, "completion_tokens": 2}, "x"])
def test_a_server_that_does_not_count_has_not_cut_a_prompt_of_many_tools(counted):
    """The tools are most of what it was sent; our own count stands in for its missing one, so both must count them."""
    tools = tuple(NOTE.model_copy(update={"name": f"send_note_{n}", "description": "word " * 400}) for n in range(12))
    found = outcome(200, {**good(), "usage": counted}, request("hi", tools=tools))
    assert found.usage.prompt_tokens > 6000


def test_a_newer_server_gets_the_newer_name_of_the_token_limit():
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        said = "max_tokens is not supported, use max_completion_tokens"
        return (400, {"error": {"message": said}}) if "max_tokens" in body else (200, good())

    server = Server(rule)
    assert isinstance(send(server, request())[0], Completion)
    assert server.bodies[-1]["max_completion_tokens"] == 64


def test_without_an_address_in_the_environment_the_message_says_what_to_export(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(EndpointUnavailable, match="OPENAI_BASE_URL"):
        Address.from_environment("judge")


@pytest.mark.parametrize(
    "body",
    [
        {"choices": ["x"]},
        {"choices": {"a": 1}},
        good(tool_calls=["x"]),
        good(content=[{"type": "image_url", "image_url": {}}]),  # type: ignore[arg-type]
    ],
)
def test_a_body_that_is_no_chat_completion_may_be_asked_again_and_then_is_a_reject(body):
    failure = outcome(200, body)
    assert isinstance(failure, Transient)
    assert failure.becomes == "bad_response"


def test_a_filtered_and_a_declined_reply_are_replies_that_the_client_refuses():
    filtered, declined = outcome(200, good(None, "content_filter")), outcome(200, good(None, refusal="I can't."))
    assert isinstance(filtered, Completion)
    assert isinstance(declined, Completion)
    assert (filtered.finish_reason, declined.refusal) == ("content_filter", "I can't.")


def usage(value: Any) -> Completion:
    found = outcome(200, {**good("four score"), "usage": value}, request("a question of 36 characters, exactly."))
    assert isinstance(found, Completion)
    return found


@pytest.mark.parametrize(
    "value",
    [None, "x", {}, {"prompt_tokens": "many", "completion_tokens": None}, {"prompt_tokens": -1, "completion_tokens": -1},
     {"prompt_tokens": 0, "completion_tokens": 999_999}, {"prompt_tokens": True, "completion_tokens": 1.5},
     {"prompt_tokens": "many", "completion_tokens": "12"},
     {"prompt_tokens": 10**18, "completion_tokens": 10**18}],
)  # fmt: skip
def test_numbers_of_tokens_that_cannot_be_are_replaced_by_our_estimate(value):
    found = usage(value)
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (9, 2)
    assert found.finish_reason == "stop"


def test_a_reply_that_used_up_its_tokens_was_cut_whatever_its_finish_reason_says():
    assert usage({"prompt_tokens": 9, "completion_tokens": 64}).finish_reason == "length"


def test_lone_surrogates_and_nul_never_leave_the_transport():
    call = {"id": "c", "function": {"name": "t\ud83c", "arguments": '{"a": "x\ud83c"}'}}
    body = json.dumps(good("half \ud83c", reasoning="\udf0a\0", tool_calls=[call]))
    found = outcome(200, body, request("cut within a character: \udf0a"))
    assert isinstance(found, Completion)
    text = (
        f"{found.content}{found.reasoning}{found.tool_calls[0].function.name}{found.tool_calls[0].function.arguments}"
    )
    assert text.encode("utf-8").count(b"\xef\xbf\xbd") == 4
    assert "\0" not in text


@pytest.mark.parametrize(
    "error",
    [{"code": "429", "message": "m"}, {"type": "rate_limit_exceeded", "message": "m"}, {"status": 429, "message": "m"}],
)
def test_an_error_body_names_its_status_in_many_ways(error):
    failure = outcome(200, {"error": error})
    assert isinstance(failure, Transient)
    assert failure.status == 429


def test_no_credit_left_stops_at_once_although_its_status_is_429():
    assert isinstance(
        outcome(429, {"error": {"code": "insufficient_quota", "message": "no credit"}}), EndpointUnavailable
    )


def test_many_requests_at_once_find_the_form_once_and_skip_none():
    server = Server(lambda body: (400, {"error": {"message": "response_format json_schema is not available"}})
                    if body.get("response_format", {}).get("type") == "json_schema" else (200, good()))  # fmt: skip

    async def at_once() -> OpenAITransport:
        transport = OpenAITransport(Address("http://judge.test/v1", "key-of-the-test-1"), session=server)
        await asyncio.gather(*(transport.send(request(str(n), json_schema=SCHEMA)) for n in range(16)))
        return transport

    transport = asyncio.run(at_once())
    assert transport.dialect.form == "json_object"
    assert formats(server).count("json_schema") == 1
    assert len(server.bodies) == 17


def test_one_tool_that_breaks_the_grammar_takes_nothing_from_other_tool_sets():
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": {"message": "failed to parse grammar"}}) if "(?=" in json.dumps(body) else (200, good())

    fine = ToolSpec(name="fine", description="f", parameters={"type": "object", "properties": {
        "digits": {"type": "string", "pattern": "^[0-9]{4}$"}}})  # fmt: skip
    server = Server(rule)
    send(server, request(tools=(NOTE,)), request(tools=(fine,)), request("again", tools=(NOTE,)))
    assert [("pattern" in json.dumps(body["tools"])) for body in server.bodies] == [True, False, True, False]


def test_a_tool_set_that_no_form_saves_is_refused_with_the_suspect_by_name():
    failure = send(Server(lambda _: (400, {"error": {"message": "failed to parse grammar"}})), request(tools=(NOTE,)))[
        0
    ]
    assert isinstance(failure, RequestRefused)
    assert "send_note" in failure.detail


@pytest.mark.parametrize("kind", ["error", "reply"])
def test_a_server_that_repeats_the_key_does_not_bring_it_in(kind):
    key = "key-of-the-test-1"
    said = (401, {"error": {"message": f"bad key {key}"}}) if kind == "error" else (200, good(f"your key is {key}"))
    found = outcome(*said)
    assert key not in f"{found!r}{found}"
    assert "[key]" in str(found)


def test_a_name_and_password_in_the_address_are_never_shown():
    address = Address("http://user:secret@judge.test/v1?api-version=3&sig=abc", "key-of-the-test-1")
    assert address.shown == "http://judge.test/v1"
    assert "key-of" not in repr(address)


def test_each_role_may_have_an_endpoint_of_its_own(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://all.test/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "a")
    monkeypatch.setenv("ASTRA_JUDGE_BASE_URL", "http://judge.test/v1")
    assert Address.from_environment("judge") == Address("http://judge.test/v1", "a")
    assert Address.from_environment("teacher") == Address("http://all.test/v1", "a")


@pytest.mark.parametrize("url", ["judge.test/v1", "ftp://x", "http://"])
def test_an_address_that_is_none_is_told_at_once(monkeypatch, url):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "a")
    with pytest.raises(EndpointUnavailable, match="no http or https address"):
        Address.from_environment("teacher")


def test_a_query_in_the_address_goes_with_every_request_as_gateways_want():
    server = Server(lambda _: (200, good()))
    address = Address("http://gate.test/openai/?api-version=2026-01", "key-of-the-test-1")
    send(server, request(), transport=OpenAITransport(address))
    assert server.urls == ["http://gate.test/openai/chat/completions?api-version=2026-01"]
    assert address.headers["api-key"] == "key-of-the-test-1"
    assert "api-key" not in Address("http://judge.test/v1", "key-of-the-test-1").headers


def test_a_redirect_is_told_and_never_followed_with_the_key():
    found = send(Server(lambda _: (307, "", {"location": "http://other.test/v1"})), request())[0]
    assert isinstance(found, EndpointUnavailable)
    assert "http://other.test/v1" in str(found)


def test_a_proxy_of_the_environment_is_used_unless_it_is_bypassed(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert Address("https://far.test/v1", "k").proxy is None
    monkeypatch.setenv("https_proxy", "http://proxy.test:8080")
    monkeypatch.setenv("no_proxy", "127.0.0.1,near.test")
    assert Address("https://far.test/v1", "k").proxy == "http://proxy.test:8080"
    assert Address("https://near.test/v1", "k").proxy is None
