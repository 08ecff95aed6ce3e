"""What further servers send: other words, other forms, other encodings of what the hard cases show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from astra.llm.completions import retry_after
from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.openai import Address, OpenAITransport, _is_same
from astra.llm.types import Completion, ModelParams
from tests.llm.test_openai import NOTE, SCHEMA, Server, good, outcome, request, send

KEY = "key-of-the-test-1"


def completion(body: Any) -> Completion:
    found = outcome(200, body)
    assert isinstance(found, Completion), found
    return found


def uncounted(finish: str | None, **message: Any) -> dict[str, Any]:
    """A body without usage."""
    return {"choices": [{"finish_reason": finish, "message": {"role": "assistant", "content": "half", **message}}]}


@pytest.mark.parametrize("finish", ["max_tokens", "MAX_TOKENS", "model_length", "max_length", "length"])
def test_a_cut_reply_is_known_under_every_name_of_its_finish_reason(finish):
    assert completion(uncounted(finish)).finish_reason == "length"


@pytest.mark.parametrize("finish", ["content-filter", "SAFETY", "sensitive", "RECITATION"])
def test_a_filtered_reply_is_known_under_every_name_of_its_finish_reason(finish):
    assert completion(uncounted(finish)).finish_reason == "content_filter"


@pytest.mark.parametrize("finish", ["error", "abort", "insufficient_system_resource"])
def test_a_reply_that_broke_off_at_the_server_is_no_data(finish):
    assert isinstance(outcome(200, uncounted(finish)), Transient)


@pytest.mark.parametrize("finish", ["eos", "tool_call", "end_turn", None])
def test_other_finish_reasons_are_those_of_complete_replies(finish):
    assert completion(uncounted(finish)).content == "half"


def test_text_in_parts_is_text_and_thoughts_among_the_parts_are_reasoning():
    parts = [{"type": "text", "text": "fi"}, {"type": "text", "text": "ne"}]
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    assert completion(good(parts)).content == "fine"  # type: ignore[arg-type]
    found = completion(good([thinking, *parts]))  # type: ignore[arg-type]
    assert (found.content, found.reasoning) == ("fine", "hm")


def test_reasoning_that_is_no_text_takes_nothing_from_the_reply():
    found = completion(good("fine", reasoning={"effort": "low"}))
    assert (found.content, found.reasoning) == ("fine", None)


def test_a_call_in_the_older_field_is_a_call():
    found = completion(good(None, function_call={"name": "tide", "arguments": '{"a": 1}'}))
    assert [call.function.name for call in found.tool_calls] == ["tide"]


@pytest.mark.parametrize("arguments", [[], 0, False, ""])
def test_arguments_that_are_no_object_stay_what_they_are(arguments):
    call = {"function": {"name": "tide", "arguments": arguments}}
    kept = completion(good(None, tool_calls=[call])).tool_calls[0].function.arguments
    assert kept == (arguments if isinstance(arguments, str) else json.dumps(arguments))


def test_a_call_without_a_name_is_no_call_of_a_tool_named_none():
    failure = outcome(200, good(None, tool_calls=[{"function": {"name": None, "arguments": "{}"}}]))
    assert isinstance(failure, Transient)
    assert failure.becomes == "bad_response"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"object": "error", "message": "engine is dead", "code": 500}, "engine is dead"),
        ({"detail": "warming up"}, "warming up"),
        ({"errors": [{"message": "no capacity"}]}, "no capacity"),
        ({"code": 1302, "msg": "too many at once"}, "too many at once"),
        ([{"error": {"code": 503, "message": "overloaded"}}], "overloaded"),
        ({"error": [{"code": 503, "message": "overloaded"}]}, "overloaded"),
        ({"choices": [{**good()["choices"][0], "error": {"code": 502, "message": "upstream"}}]}, "upstream"),
    ],
)
def test_an_error_in_a_success_is_quoted_wherever_it_stands(body, said):
    failure = outcome(200, body)
    assert isinstance(failure, Transient)
    assert failure.becomes is None
    assert said in str(failure)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "invalid_request_error", "code": "invalid_api_key", "message": "m"}, EndpointUnavailable),
        ({"code": "model_not_found", "message": "m"}, EndpointUnavailable),
        ({"status": "RESOURCE_EXHAUSTED", "message": "m"}, Transient),
        ({"type": "overloaded_error", "message": "m"}, Transient),
    ],
)
def test_the_words_of_an_error_body_say_what_a_status_would(error, kind):
    failure = outcome(200, {"error": error})
    assert isinstance(failure, kind)
    assert "judge.test" in str(failure)
    assert getattr(failure, "status", 503) in (429, 503)


def test_an_error_field_that_states_none_takes_nothing_from_the_reply():
    assert completion({**good(), "error": {"code": 0, "message": ""}}).content == "fine"


@pytest.mark.parametrize(
    ("body", "hint"),
    [("<!DOCTYPE html><html>Welcome</html>", "/v1"), ('data: {"choices": []}\n\ndata: [DONE]\n\n', "stream: false")],
)
def test_a_page_or_a_stream_is_the_endpoints_failure_and_the_message_says_why(body, hint):
    failure = outcome(200, body)
    assert isinstance(failure, Transient)
    assert failure.becomes is None
    assert hint in str(failure)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": "9", "completion_tokens": "64"}, {"prompt_tokens": 9.0, "completion_tokens": 64.0},
        {"input_tokens": 9, "output_tokens": 64},
    ],
)  # fmt: skip
def test_tokens_are_counted_in_every_form_that_servers_write_them(usage):
    found = completion({**good(), "usage": usage})
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.finish_reason) == (9, 64, "length")


def test_no_tokens_for_a_reply_that_has_some_cannot_be():
    found = completion({**good("four score and more"), "usage": {"prompt_tokens": 9, "completion_tokens": 0}})
    assert found.usage.completion_tokens == 4


def test_a_number_with_thousands_of_digits_is_no_crash():
    assert isinstance(outcome(200, '{"choices": [], "created": ' + "9" * 5000 + "}"), Transient)


@pytest.mark.parametrize(
    "said",
    [
        "the request exceeds the available context size, try increasing it", "prompt is too long: 210000 tokens > 200000",
        "The decoder prompt (length 9000) is longer than the maximum model length of 4096", "Input is too long for it",
        "`inputs` tokens + `max_new_tokens` must be <= 4096", "Please reduce the length of the messages",
        "Your input exceeds the context window of this model", "Range of input length should be [1, 30720]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_prompt_that_is_too_long_is_known_in_the_words_of_each_server(status, said):
    refused = outcome(status, {"error": {"message": said, "type": "invalid_request_error"}})
    assert isinstance(refused, RequestRefused)
    assert refused.reason == "overlong"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "Content Exists Risk"), (400, "data_inspection_failed"), (403, "your input was flagged for violence"),
        (400, "content_policy_violation"), (400, "ResponsibleAIPolicyViolation"),
    ],
)  # fmt: skip
def test_a_filtered_prompt_is_known_in_the_words_of_each_server(status, said):
    refused = outcome(status, {"error": {"message": said}})
    assert isinstance(refused, RequestRefused)
    assert refused.reason == "filtered"


def test_a_filter_that_is_down_is_an_outage_and_no_reject():
    assert isinstance(outcome(503, {"error": {"message": "content_filter service unavailable"}}), Transient)


@pytest.mark.parametrize("status", [400, 429])
def test_no_credit_stops_at_once_under_other_numbers_too(status):
    said = "billing_hard_limit_reached" if status == 429 else "Your credit balance is too low"
    assert isinstance(outcome(status, {"error": {"message": said}}), EndpointUnavailable)


@pytest.mark.parametrize("status", [500, 501])
def test_a_form_of_output_that_a_server_fails_over_is_left_for_a_plainer_one(status):
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        said = {"error": {"message": "JSON schema conversion failed"}}
        return (status, said) if body.get("response_format", {}).get("type") == "json_schema" else (200, good())

    server = Server(rule)
    assert isinstance(send(server, request(json_schema=SCHEMA))[0], Completion)
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("status", "said"),
    [(400, "Unsupported parameter"), (400, "格式错误"), (422, "extra fields not permitted"), (415, "this output mode"),
     (404, "No endpoints found that support the requested parameters")],
)  # fmt: skip
def test_in_whatever_words_a_form_is_refused_the_plainer_one_is_found_and_kept(status, said):
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        return (status, {"error": {"message": said}}) if "response_format" in body else (200, good())

    server = Server(rule)
    outcomes = send(server, request(json_schema=SCHEMA), request("again", json_schema=SCHEMA))
    assert all(isinstance(one, Completion) for one in outcomes)
    assert len(server.bodies) == 4


@pytest.mark.parametrize("said", ["unsupported lookahead", "Unable to generate parser", "invalid function declaration"])
def test_in_whatever_words_a_tool_is_refused_it_is_sent_plainly_once(said):
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": {"message": said}}) if "(?=" in json.dumps(body) else (200, good())

    server = Server(rule)
    assert isinstance(send(server, request(tools=(NOTE,)))[0], Completion)
    assert len(server.bodies) == 2


def test_a_form_that_is_known_to_work_is_not_given_up_for_a_request_that_is_bad():
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        return (400, "odd request") if "odd" in json.dumps(body) else (200, good())

    server = Server(rule)
    outcomes = send(server, *(request(text, json_schema=SCHEMA) for text in ("a", "odd", "b")))
    assert isinstance(outcomes[1], RequestRefused)
    assert [body["response_format"]["type"] for body in server.bodies] == ["json_schema"] * 3


def test_a_limit_that_is_too_large_is_not_asked_for_under_another_name():
    server = Server(lambda _: (400, {"error": {"message": "max_tokens is too large: 64"}}))
    assert isinstance(send(server, request())[0], RequestRefused)
    assert all("max_tokens" in body for body in server.bodies)


@pytest.mark.parametrize("status", [405, 407, 410])
def test_an_address_that_takes_no_requests_stops_at_once(status):
    assert isinstance(outcome(status, "Method Not Allowed"), EndpointUnavailable)


def test_every_success_status_brings_a_reply():
    assert isinstance(outcome(201, good()), Completion)


def test_a_date_without_a_zone_is_utc():
    with_zone = retry_after({"retry-after": "Wed, 01 Jan 2031 00:00:00 +0000"})
    without = retry_after({"retry-after": "Wed, 01 Jan 2031 00:00:00 -0000"})
    assert with_zone == pytest.approx(without, abs=1)


@pytest.mark.parametrize("text", ["120s", "1, 2", "Wed, 01 Jan 99999 00:00:00 GMT", "Wed, 01 Jan 2031 00:00:00 +9999"])
def test_a_pause_in_no_known_form_says_nothing(text):
    assert retry_after({"retry-after": text}) is None


# ---------------------------------------------------------------- bytes, over a socket


@asynccontextmanager
async def served(raw: bytes, **headers: str) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=raw, headers=headers)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1?sig=part-of-the-secret"
    finally:
        await runner.cleanup()


def sent(raw: bytes, **headers: str) -> Completion | Exception:
    async def one() -> Completion | Exception:
        async with served(raw, **headers) as url:
            transport = OpenAITransport(Address(url, KEY))
            try:
                return await transport.send(request())
            except Transient as failure:
                return failure
            finally:
                await transport.aclose()

    return asyncio.run(one())


BODY = json.dumps(good("Zürich"), ensure_ascii=False)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (BODY.encode(), "application/json"), (b"\xef\xbb\xbf" + BODY.encode(), "application/json"),
        (BODY.encode("latin-1"), "application/json; charset=ISO-8859-1"), (BODY.encode(), "text/plain; charset=nonsense"),
    ],
)  # fmt: skip
def test_a_body_is_read_in_the_encoding_that_it_is_in(raw, kind):
    found = sent(raw, **{"Content-Type": kind})
    assert isinstance(found, Completion)
    assert found.content == "Zürich"


def test_a_body_in_no_known_encoding_is_no_data():
    found = sent(BODY.encode("latin-1"), **{"Content-Type": "application/json"})
    assert isinstance(found, Transient)
    assert found.becomes == "bad_response"
    assert "not UTF-8" in str(found)


@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip"}, {"X-Long": "y" * 20_000}])
def test_a_response_that_breaks_http_may_be_asked_again_and_shows_no_query(headers):
    found = sent(b"not gzip", **headers)
    assert isinstance(found, Transient)
    assert "part-of-the-secret" not in str(found)


# ---------------------------------------------------------------- addresses, keys, names


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://host:99999/v1", "http://::1:80/v1", "https://name:word@judge.test/v1"]
)
def test_an_address_that_cannot_be_asked_is_told_before_anything_is_sent(monkeypatch, url):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(EndpointUnavailable, match=r"models\.judge") as told:
        Address.from_environment("judge")
    assert "word" not in str(told.value).replace("password", "")


@pytest.mark.parametrize(
    "url", ["http://[::1]:8000/v1", " http://[::1]:8000/v1/ ", "http://[::1]:8000/v1/chat/completions"]
)
def test_an_address_may_end_in_a_slash_in_blanks_or_in_the_call_itself(monkeypatch, url):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    address = Address.from_environment("judge")
    assert (address.chat_url, address.key) == ("http://[::1]:8000/v1/chat/completions", KEY)


def test_a_key_that_no_header_can_hold_is_told_without_it(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://judge.test/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "two\nlines")
    with pytest.raises(EndpointUnavailable, match="control character") as told:
        Address.from_environment("judge")
    assert "lines" not in str(told.value)


def test_a_model_is_known_with_the_tag_that_the_server_adds_to_its_name():
    assert _is_same("llama3", "llama3:latest")
    assert _is_same("maker/m:host", "maker/m")
    assert not _is_same("llama3:8b", "llama3:70b")
    assert not _is_same("llama3", "llama4:latest")


@pytest.mark.parametrize("extra", [{"stream": True}, {"max_tokens": 9}, {"messages": []}, {"n": 2}])
def test_what_the_client_sets_itself_cannot_be_set_beside_it(extra):
    with pytest.raises(ValueError, match="set by the client"):
        ModelParams(transport="openai", name="m", temperature=0, max_tokens=64, extra=extra)
    ModelParams(transport="openai", name="m", temperature=0, max_tokens=64, extra={"stream": False, "top_k": 4})
