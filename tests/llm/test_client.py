"""The client: order, bounded concurrency, bounded retries, and which failure stops what."""

from __future__ import annotations

import asyncio

import pytest

from astra.llm import client as module
from astra.llm.client import Client
from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Message, Usage

MODEL = ModelParams(transport="builtin", name="m", temperature=0, max_tokens=64)


def request(text: str) -> Request:
    return Request(model=MODEL, messages=(Message(role="user", content=text),))


def reply(text: str) -> Completion:
    return Completion(text, "stop", Usage(calls=1, prompt_tokens=3, completion_tokens=2))


class Echo:
    """Answers late for early requests; counts how many are in flight."""

    def __init__(self) -> None:
        self.in_flight = self.most = 0

    async def send(self, request: Request) -> Completion:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        text = request.messages[0].content or ""
        await asyncio.sleep(0.02 if text in ("0", "1") else 0)
        self.in_flight -= 1
        return reply(text)


class Script:
    """Raises or returns what stands next in the script."""

    def __init__(self, *steps: Exception | str) -> None:
        self.steps = list(steps)
        self.sent = 0

    async def send(self, request: Request) -> Completion:
        self.sent += 1
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return reply(step)


def ask(transport: Script, retries: int) -> Completion:
    return asyncio.run(Client(transport, 4, retries).ask(request("x")))


def test_replies_come_in_the_order_of_the_requests_and_never_too_many_at_once():
    transport = Echo()
    client = Client(transport, concurrency=3, retries=0)
    texts = [str(n) for n in range(20)]
    replies = client.ask_all(map(request, texts))
    assert [one.content for one in replies if isinstance(one, Completion)] == texts
    assert transport.most == 3
    assert client.metrics() == {"calls": 20, "prompt_tokens": 60, "completion_tokens": 40}


def test_a_passing_failure_is_repeated_until_it_works():
    transport = Script(Transient(429, "slow down", 0.0), Transient(503, "busy", 0.0), "fine")
    assert ask(transport, retries=2).content == "fine"


def test_the_last_attempt_names_model_status_and_how_to_go_on():
    transport = Script(*(Transient(503, "busy", 0.0) for _ in range(9)))
    with pytest.raises(EndpointUnavailable, match=r"model m .*3 attempts.*status 503: busy.*dvc repro"):
        ask(transport, retries=2)
    assert transport.sent == 3


def test_a_reply_that_stays_empty_refuses_the_request_and_not_the_endpoint():
    with pytest.raises(RequestRefused) as refused:
        ask(Script(*(Transient(200, "nothing", 0.0, becomes="empty_response") for _ in range(2))), retries=1)
    assert refused.value.reason == "empty_response"


def test_a_refusal_is_not_repeated_and_leaves_the_others():
    transport = Script("one", RequestRefused("filtered", "policy"), "three")
    client = Client(transport, 1, retries=5)
    first, second, third = client.ask_all([request("x")] * 3)
    assert isinstance(second, RequestRefused)
    assert isinstance(first, Completion)
    assert isinstance(third, Completion)
    assert transport.sent == 3
    assert client.metrics()["refused_filtered"] == 1


def test_when_most_requests_are_refused_the_stage_stops_with_the_reason():
    client = Client(Script(*[RequestRefused("filtered", "policy")] * 6, *["x"] * 4), 1, retries=0)
    with pytest.raises(EndpointUnavailable, match="6 of 10 requests refused .filtered 6."):
        client.ask_all([request("x")] * 10)


class State:
    """What tenacity hands to a wait function."""

    def __init__(self, failure: Transient) -> None:
        self.outcome = self
        self.failure = failure
        self.attempt_number = 1

    def exception(self) -> Transient:
        return self.failure


@pytest.mark.parametrize(("asked_s", "waited_s"), [(0.0, 0.0), (0.5, 0.5), (1e9, module.MAX_WAIT_S)])
def test_a_server_may_ask_for_a_pause_but_not_for_a_long_one(asked_s, waited_s):
    assert module._pause(State(Transient(429, "", asked_s))) == waited_s


def test_without_a_wish_the_pause_is_a_bounded_backoff():
    assert 0 < module._pause(State(Transient(500, ""))) <= module.MAX_WAIT_S
