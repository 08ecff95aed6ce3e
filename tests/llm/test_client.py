"""The client: order, bounded concurrency, bounded retries, kept replies, budgets, and which failure stops what."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from typing import Any

import pytest

from astra.llm.errors import BudgetSpent, EndpointUnavailable, RequestRefused, Transient
from astra.llm.loop import Loop
from astra.llm.store import ReplyStore
from astra.llm.types import Budget, Completion, ModelParams, Price, Request
from astra.records import FunctionCall, Message, ToolCall, ToolSpec, Unavailable, Usage
from tests.llm.clients import client_of

MODEL = ModelParams(transport="builtin", name="m", temperature=0, max_tokens=64)
PORT = ToolSpec(name="tide", description="Tide.", parameters={"type": "object", "properties": {}})


def request(text: str, **more: Any) -> Request:
    return Request(model=MODEL, messages=(Message(role="user", content=text),), **more)


def reply(text: str, **more: Any) -> Completion:
    return Completion(text, more.pop("finish", "stop"), Usage(calls=1, prompt_tokens=3, completion_tokens=2), **more)


class Echo:
    """Answers late for early requests; counts how many are in flight."""

    def __init__(self) -> None:
        self.in_flight = self.most = 0
        self.asked: list[str] = []

    async def send(self, request: Request) -> Completion:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        text = request.messages[0].content or ""
        self.asked.append(text)
        await asyncio.sleep(0.02 if text in ("0", "1") else 0)
        self.in_flight -= 1
        return reply(text)


class Script:
    """Raises or returns what stands next in the script; an asyncio.Event in it is never set: a hang."""

    def __init__(self, *steps: Exception | Completion | str | asyncio.Event) -> None:
        self.steps = list(steps)
        self.sent = 0

    async def send(self, request: Request) -> Completion:
        self.sent += 1
        step = self.steps.pop(0)
        if isinstance(step, asyncio.Event):
            await asyncio.sleep(3600)
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, Completion | str)
        return reply(step) if isinstance(step, str) else step


class Rule:
    """Answers with what a function says of the request's text and of how often it was asked before."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.asked: dict[str, int] = {}

    async def send(self, request: Request) -> Completion:
        text = request.messages[0].content or ""
        before = self.asked.get(text, 0)
        self.asked[text] = before + 1
        await asyncio.sleep(0.001)
        said = self.rule(text, before)
        if isinstance(said, Exception):
            raise said
        return reply(said)


def ask(transport: Script, attempts: int, **changes: Any) -> Completion:
    client = client_of(transport, attempts=attempts, **changes)
    return client.loop.run(client.ask(request("x")))


def test_replies_come_in_the_order_of_the_requests_and_never_too_many_at_once():
    transport = Echo()
    client = client_of(transport, concurrency=3)
    texts = [str(n) for n in range(20)]
    replies = client.ask_all(map(request, texts))
    assert [one.content for one in replies if isinstance(one, Completion)] == texts
    assert transport.most == 3
    assert client.metrics()["calls"] == 20
    assert (client.metrics()["prompt_tokens"], client.metrics()["completion_tokens"]) == (60, 40)


def test_requests_are_taken_from_their_source_only_as_there_is_room():
    taken = 0

    def source():
        nonlocal taken
        for n in range(5000):
            taken += 1
            yield request(str(n + 2))

    client = client_of(Echo(), concurrency=4)
    for place, _ in enumerate(client.stream(source())):
        assert taken - place <= 8 * 2 * 4
    assert taken == 5000


def test_a_slow_reply_at_the_front_does_not_stop_the_others():
    done: list[str] = []

    class Slow:
        async def send(self, request: Request) -> Completion:
            text = request.messages[0].content or ""
            await asyncio.sleep(0.2 if text == "first" else 0.001)
            done.append(text)
            return reply(text)

    client_of(Slow(), concurrency=2).ask_all(map(request, ["first", *map(str, range(20))]))
    assert done.index("first") > 10


def test_a_passing_failure_is_repeated_until_it_works():
    transport = Script(Transient(429, "slow down", 0.0), Transient(503, "busy", 0.0), "fine")
    client = client_of(transport, attempts=3)
    assert client.loop.run(client.ask(request("x"))).content == "fine"
    assert client.metrics()["retries"] == 2


def test_the_last_attempt_names_model_status_and_how_to_go_on():
    transport = Script(*(Transient(503, "busy", 0.0) for _ in range(9)))
    with pytest.raises(EndpointUnavailable, match=r"model m .*3 attempts.*status 503: busy.*dvc repro"):
        ask(transport, attempts=3)
    assert transport.sent == 3


def test_a_server_that_hangs_is_given_up_after_the_time_limit_of_each_attempt():
    with pytest.raises(EndpointUnavailable, match="no reply within 0 s"):
        ask(Script(asyncio.Event(), asyncio.Event()), attempts=2, timeout_s=0.02)


def test_no_request_lives_longer_than_its_deadline():
    transport = Script(*(Transient(429, "busy", 0.02) for _ in range(500)))
    with pytest.raises(EndpointUnavailable, match="status 429"):
        ask(transport, attempts=400, deadline_s=0.2, max_wait_s=0.02)
    assert 3 < transport.sent < 20


def test_waiting_for_a_busy_server_that_answers_others_costs_no_attempt():
    busy = Rule(lambda text, before: Transient(429, "slots", 0.005) if text == "late" and before < 12 else text)
    client = client_of(busy, concurrency=2, attempts=2)
    replies = client.ask_all(map(request, ["late", *map(str, range(200))]))
    assert isinstance(replies[0], Completion)


def test_a_server_that_asks_for_no_pause_is_not_asked_without_end():
    class Hasty:
        sent = 0

        async def send(self, request: Request) -> Completion:
            if request.messages[0].content == "busy":
                self.sent += 1
                raise Transient(429, "busy", retry_after_s=0.0)
            await asyncio.sleep(0.01)
            return reply("fine")

    transport = Hasty()
    requests = [request("busy"), *(request(str(n)) for n in range(100))]
    with pytest.raises(EndpointUnavailable):
        client_of(transport, attempts=3, deadline_s=1, max_wait_s=1).ask_all(requests)
    assert 3 <= transport.sent < 15


def test_a_request_that_always_crashes_the_server_is_refused_where_others_are_answered():
    crash = Rule(lambda text, before: Transient(500, "boom", fault="server_error") if text == "poison" else text)
    replies = client_of(crash, attempts=3).ask_all(map(request, ["poison", *map(str, range(400))]))
    assert isinstance(replies[0], RequestRefused)
    assert replies[0].reason == "server_error"
    assert all(isinstance(one, Completion) for one in replies[1:])


def test_a_server_that_stops_answering_stops_the_stage_and_nothing_becomes_a_reject():
    left = 30

    def dies(text: str, before: int) -> Any:
        nonlocal left
        left -= 1
        return text if left > 0 else Transient(502, "gone", fault="server_error")

    client = client_of(Rule(dies), attempts=3)
    with pytest.raises(EndpointUnavailable, match="status 502"):
        client.ask_all(map(request, map(str, range(200))))
    assert client.meter.refused.total() == 0


def test_after_the_machinery_failed_nothing_new_is_sent_and_what_is_in_flight_is_kept(tmp_path):
    class Dies:
        sent = 0

        async def send(self, request: Request) -> Completion:
            self.sent += 1
            if request.messages[0].content == "3":
                raise EndpointUnavailable("gone")
            await asyncio.sleep(0.05)
            return reply("paid")

    transport, store = Dies(), ReplyStore(tmp_path)
    client = client_of(transport, store)
    with pytest.raises(EndpointUnavailable, match="gone"):
        client.ask_all(map(request, map(str, range(100))))
    assert transport.sent == 4
    again = client_of(Echo(), store)
    replies = again.ask_all(map(request, ["0", "1", "2", "3"]))
    assert [one.content for one in replies if isinstance(one, Completion)] == ["paid", "paid", "paid", "3"]
    store.close()


def test_a_reply_that_stays_empty_refuses_the_request_and_not_the_endpoint():
    with pytest.raises(RequestRefused) as refused:
        ask(Script(*(Transient(200, "nothing", 0.0, becomes="empty_response") for _ in range(2))), attempts=2)
    assert refused.value.reason == "empty_response"


def test_a_refusal_is_not_repeated_and_leaves_the_others():
    transport = Script("one", RequestRefused("filtered", "policy"), "three")
    client = client_of(transport, concurrency=1, attempts=6)
    first, second, third = client.ask_all([request("x")] * 3)
    assert isinstance(second, RequestRefused)
    assert isinstance(first, Completion)
    assert isinstance(third, Completion)
    assert transport.sent == 3
    assert client.metrics()["refused"] == {"filtered": 1}


def test_a_filter_and_a_model_that_declines_are_refusals_and_what_they_cost_is_kept(tmp_path):
    store = ReplyStore(tmp_path)
    transport = Script(reply("", finish="content_filter"), reply("", refusal="I cannot help with that."))
    reasons = []
    for _ in range(2):
        client = client_of(transport, store)
        replies = client.ask_all([request("a"), request("b")])
        reasons += [one.reason for one in replies if isinstance(one, RequestRefused)]
        assert client.metrics()["prompt_tokens"] == 6
    assert reasons == ["filtered", "refused"] * 2
    assert transport.sent == 2
    store.close()


def test_when_most_requests_are_refused_the_stage_stops_with_the_reason():
    client = client_of(Script(*[RequestRefused("filtered", "policy")] * 6, *["x"] * 4), concurrency=1)
    with pytest.raises(EndpointUnavailable, match="6 of 10 requests refused .filtered 6."):
        client.ask_all([request("x")] * 10)


def test_a_kept_reply_is_the_same_reply_and_asks_nobody(tmp_path):
    store = ReplyStore(tmp_path)
    call = ToolCall(id="c", function=FunctionCall(name="tide", arguments="{}"))
    transport = Script(reply("fine", reasoning="short", tool_calls=(call,)), "other")
    first, second = (client_of(transport, store).ask_all([request("x")])[0] for _ in range(2))
    other = client_of(transport, store).ask_all([request("x", sample=1)])[0]
    assert isinstance(first, Completion)
    assert isinstance(second, Completion)
    assert isinstance(other, Completion)
    assert transport.sent == 2
    assert (first.content, first.usage, first.tool_calls) == (second.content, second.usage, second.tool_calls)
    assert [first.cached, second.cached, other.cached] == [False, True, False]
    store.close()


def test_the_same_question_twice_at_once_is_paid_once(tmp_path):
    store, transport = ReplyStore(tmp_path), Echo()
    replies = client_of(transport, store).ask_all([request("same")] * 5)
    assert [one.content for one in replies if isinstance(one, Completion)] == ["same"] * 5
    assert transport.asked == ["same"]
    store.close()


def test_two_roles_that_ask_the_same_at_once_pay_once(tmp_path):
    store, transport, loop = ReplyStore(tmp_path), Echo(), Loop()
    teacher, judge = (client_of(transport, store) for _ in range(2))

    async def both() -> list[Completion]:
        return await asyncio.gather(teacher.ask(request("same")), judge.ask(request("same")))

    assert [one.content for one in loop.run(both())] == ["same", "same"]
    assert transport.asked == ["same"]
    assert teacher.used == judge.used != set()
    store.close()


def test_ctrl_c_sends_nothing_new_and_keeps_what_is_in_flight(tmp_path, capsys):
    store = ReplyStore(tmp_path)

    class Interrupted:
        sent = 0

        async def send(self, request: Request) -> Completion:
            self.sent += 1
            if self.sent == 6:
                signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0.05)
            return reply("paid")

    transport = Interrupted()
    client = client_of(transport, store)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            client.ask_all(map(request, map(str, range(100))))
    finally:
        signal.signal(signal.SIGINT, before)
    assert store._sql.execute("SELECT count(*) FROM replies").fetchone()[0] == transport.sent < 12
    assert "Ctrl-C again" in capsys.readouterr().err
    store.close()


def test_a_kept_reply_is_asked_for_again_on_demand(tmp_path):
    store = ReplyStore(tmp_path)
    transport = Script("bad", "good")
    client = client_of(transport, store)
    assert client.loop.run(client.ask(request("x"))).content == "bad"
    assert client.loop.run(client.ask(request("x", renew=True))).content == "good"
    assert client.loop.run(client.ask(request("x"))).content == "good"
    store.close()


MILLION = Price(prompt=100_000, completion=0)  # three prompt tokens: 0.3 USD


def test_a_budget_stops_within_one_request_per_slot_and_keeps_what_was_paid(tmp_path):
    store, transport = ReplyStore(tmp_path), Echo()
    client = client_of(transport, store, MILLION, Budget(stage_usd=3.0, run_usd=None), concurrency=4)
    with pytest.raises(BudgetSpent, match=r"llm\.budget\.stage_usd 3 is spent.*dvc repro judge"):
        client.ask_all(map(request, map(str, range(100))))
    assert 10 <= len(transport.asked) <= 10 + 4
    again = client_of(transport, store, MILLION, Budget(stage_usd=None, run_usd=None))
    again.ask_all(map(request, map(str, range(20))))
    assert len(set(transport.asked)) == len(transport.asked) == 20
    store.close()


def test_a_stage_that_is_continued_with_the_same_budget_stops_at_once(tmp_path):
    store, transport = ReplyStore(tmp_path), Echo()
    for _ in range(2):
        client = client_of(transport, store, MILLION, Budget(stage_usd=1.2, run_usd=None), concurrency=1)
        with pytest.raises(BudgetSpent):
            client.ask_all(map(request, map(str, range(10))))
    assert len(transport.asked) == 4
    store.close()


def test_a_call_in_the_text_is_a_call_only_where_tools_were_offered():
    text = '<tool_call>{"name": "tide", "arguments": {"port": "Lyme"}}</tool_call>'
    with_tools = client_of(Script(text)).ask_all([request("x", tools=(PORT,))])[0]
    without = client_of(Script(text)).ask_all([request("x")])[0]
    assert isinstance(with_tools, Completion)
    assert isinstance(without, Completion)
    assert [call.function.name for call in with_tools.tool_calls] == ["tide"]
    assert without.tool_calls == ()


def test_an_exception_that_is_a_bug_passes_through_and_cancels_the_rest():
    class Bug:
        async def send(self, request: Request) -> Completion:
            if request.messages[0].content == "2":
                raise ZeroDivisionError("bug")
            await asyncio.sleep(30)
            raise AssertionError

    with pytest.raises(ZeroDivisionError):
        client_of(Bug()).ask_all(map(request, map(str, range(100))))


class Held:
    """Counts what began and what was cancelled; only the first item comes to an end."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0

    async def __call__(self, item: int) -> int:
        self.begun += 1
        try:
            await asyncio.sleep(3600 if item else 0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return item


def test_work_that_a_traceback_holds_ends_with_its_loop(recwarn):
    work, results = Held(), []
    with pytest.raises(RuntimeError, match="consumer"), Loop() as loop:
        results.append(loop.map(range(5), work, 4))
        for _ in results[0]:
            raise RuntimeError("consumer")
    assert work.cancelled == 4
    results.pop().close()  # nobody holds it any longer
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


def test_what_is_in_flight_when_the_loop_closes_is_waited_for_where_the_machinery_failed():
    kept = []

    async def slow(item: int) -> int:
        await asyncio.sleep(0.02 * item)
        kept.append(item)
        return item

    with pytest.raises(Unavailable), Loop() as loop:
        results = loop.map(range(3), slow, 3)
        for _ in results:
            loop.stopped = Unavailable("sandbox gone")
            raise loop.stopped
    assert kept == [0, 1, 2]


def test_work_that_is_dropped_while_the_loop_works_is_cancelled_by_it(recwarn):
    work = Held()
    with Loop() as loop:
        results = loop.map(range(5), work, 4)
        assert next(results) == 0

        async def drop() -> None:
            results.close()  # as garbage collection may at any moment
            await asyncio.sleep(0.01)
            assert work.cancelled == work.begun - 1 > 0

        loop.run(drop())
        assert list(loop.map(range(1), work, 4)) == [0]
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


def test_memory_stays_bounded_however_many_replies_pass():
    class Large:
        async def send(self, request: Request) -> Completion:
            return reply("y" * 20_000)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = sum(len(one.content or "") for one in client_of(Large()).stream(request(str(n)) for n in range(20_000))
                if isinstance(one, Completion))  # fmt: skip
    assert total == 400_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000


def test_json_that_had_to_be_mended_is_counted_hc_013():
    client = client_of(Script('{"a": 1,}', '{"a": 1}', "prose"), concurrency=1)
    client.ask_all([request("x", json_schema={"type": "object"})] * 3)
    assert client.metrics()["repaired"] == 1
