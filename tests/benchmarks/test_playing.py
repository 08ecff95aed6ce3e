"""Cases played over an endpoint that is slow, half down, down, too small, or killed in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from astra.benchmarks.models import Endpoint
from astra.benchmarks.playing import Failure, Outcome, Transcript, sliced
from astra.benchmarks.types import Ask, CallText, CaseInfo, Reply
from astra.llm.errors import BudgetSpent
from tests.benchmarks import endpoints
from tests.benchmarks.chat_server import ChatServer, completion, too_long
from tests.benchmarks.endpoints import played, settings
from tests.benchmarks.sums import TURNS, Sum, Sums, adding

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_EVAL_API_KEY", "secret-key-42")


def open_at(monkeypatch, server: ChatServer) -> None:
    monkeypatch.setenv("ASTRA_EVAL_BASE_URL", server.url)


def right(body):
    return completion(adding(body))


def test_every_trial_of_every_case_is_played_in_order_and_asked_once(monkeypatch):
    with ChatServer(right) as server:
        open_at(monkeypatch, server)
        found = played(Sums(5), settings(), trials=2)
    assert [(one.case, one.trial) for one in found] == [(f"sum-{n}", trial) for n in range(5) for trial in range(2)]
    assert all(isinstance(one, Outcome) and one.scores == {"accuracy": 1.0} for one in found)
    assert len(server.bodies) == 5 * 2 * TURNS
    assert len({body["seed"] for body in server.bodies}) == 5 * 2  # trials are drawn apart


def test_a_body_is_what_the_benchmark_wrote_and_what_params_say(monkeypatch):
    with ChatServer(right) as server:
        open_at(monkeypatch, server)
        played(Sums(1), settings(), model=Endpoint(
            transport="openai", name="m", temperature=0.6, max_tokens=64, top_p=0.95, extra={"min_p": 0.1}))  # fmt: skip
    last = server.bodies[-1]
    assert last["tools"][0]["function"]["response"] == {"type": "object"}
    assert last["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a": 0, "b": 0}'
    assert (last["tool_choice"], last["temperature"], last["top_p"], last["min_p"]) == ("required", 0.6, 0.95, 0.1)


class Insisting(Sums):
    """Asks the same again after an empty reply, as some packages do."""

    def start(self, case: str, trial: int) -> Sum:
        playing = super().start(case, trial)
        take = playing.take
        playing.take = lambda reply: take(reply) if reply.tool_calls else None  # type: ignore[method-assign]
        return playing


def test_what_is_asked_again_is_drawn_again(monkeypatch):
    first_seed: list[int] = []

    def empty_at_first(body):
        first_seed.append(body["seed"])
        return (
            completion(Reply(content=""))
            if body["seed"] < first_seed[0] + 2 and len(server.bodies) < 3
            else right(body)
        )

    with ChatServer(empty_at_first) as server:
        open_at(monkeypatch, server)
        (only,) = played(Insisting(1), settings())
    assert only.scores == {"accuracy": 1.0}
    assert [body["seed"] - first_seed[0] for body in server.bodies] == [0, 1, 2, 0, 0]


def test_the_conversation_of_a_case_is_kept_whole(monkeypatch):
    with ChatServer(right) as server:
        open_at(monkeypatch, server)
        (only,) = played(Sums(1), settings())
    assert [one.role for one in only.messages] == ["user", "assistant"] * TURNS
    assert [one.tool_calls[0].function.arguments for one in only.messages[1::2]] == [
        json.dumps({"a": 0, "b": b}) for b in range(TURNS)
    ]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(content="No."),
        Reply(tool_calls=[CallText(id="c", name="add", arguments='{"a": 0')], stop="tool_calls"),
        Reply(tool_calls=[CallText(id="c", name="subtract", arguments="{}")], stop="tool_calls"),
    ],
)
def test_what_a_model_does_badly_is_a_zero_with_a_note(monkeypatch, reply):
    with ChatServer(lambda body: completion(reply)) as server:
        open_at(monkeypatch, server)
        found = played(Sums(2), settings())
    assert [(one.scores, one.note) for one in found] == [({"accuracy": 0.0}, "wrong_sum")] * 2


def test_prompts_that_a_model_cannot_take_are_its_failures_however_many_there_are(monkeypatch):
    with ChatServer(too_long) as server:
        open_at(monkeypatch, server)
        found = played(Sums(20), settings())
    assert [one.scores for one in found] == [{"accuracy": 0.0}] * 20
    assert len(server.bodies) == 20


def test_an_endpoint_that_is_down_gives_errors_and_no_score_and_is_not_asked_for_ever(monkeypatch):
    with ChatServer(lambda body: (503, {"error": "busy"})) as server:
        open_at(monkeypatch, server)
        found = played(Sums(40), settings())
    assert {(type(one), one.reason) for one in found} == {(Failure, "endpoint_down")}
    assert len(found) == 40
    assert len(server.bodies) < 20  # the first ones find out, the rest believe them


def test_half_an_endpoint_loses_only_the_cases_that_it_lost(monkeypatch):
    # the others are answered while these are tried again: what a request's failure means hangs on that order
    tries: Counter[int] = Counter()
    twice, answered = threading.Event(), threading.Event()

    def half(body):
        a = int(body["messages"][0]["content"].split()[0])
        if a % 2 == 0:
            twice.wait(30)
            answered.set()
            return right(body)
        tries[a] += 1
        if len(tries) == 5 and min(tries.values()) >= 2:
            twice.set()
        if tries[a] == 3:
            answered.wait(30)
            time.sleep(0.5)  # until the answer has been read
        return 500, {"error": {"message": "out of memory"}}

    with ChatServer(half) as server:
        open_at(monkeypatch, server)
        found = played(Sums(10), settings(concurrency=10, attempts=3))
        assert {one.case for one in found if isinstance(one, Outcome)} == {f"sum-{n}" for n in (0, 2, 4, 6, 8)}
        lost = [one for one in found if isinstance(one, Failure)]
        assert {one.case for one in lost} == {f"sum-{n}" for n in (1, 3, 5, 7, 9)}
        assert {one.reason for one in lost} <= {"server_error", "endpoint_down"}


def test_errors_are_not_remembered_and_what_was_played_is_not_asked_again(monkeypatch):
    broken = {1, 3}

    def mended_later(body):
        a = int(body["messages"][0]["content"].split()[0])
        return (400, {"error": {"message": "no such tool parser"}}) if a in broken else right(body)

    with ChatServer(mended_later) as server:
        open_at(monkeypatch, server)
        first = played(Sums(5), settings())
        assert {one.case for one in first if isinstance(one, Failure)} == {"sum-1", "sum-3"}
        broken.clear()
        n_first = len(server.bodies)
        second = played(Sums(5), settings())
    assert all(isinstance(one, Outcome) and one.scores["accuracy"] == 1.0 for one in second)
    assert {int(one["messages"][0]["content"].split()[0]) for one in server.bodies[n_first:]} == {1, 3}


def test_a_harness_that_raises_and_an_environment_that_is_away_are_errors_of_their_cases(monkeypatch):
    with ChatServer(right) as server:
        open_at(monkeypatch, server)
        found = played(Sums(4, broken=frozenset({"sum-1"}), away=frozenset({"sum-2"})), settings())
    assert [getattr(one, "reason", "") for one in found] == ["", "harness_error", "environment_unavailable", ""]
    assert "KeyError" in found[1].detail


def run_sums(env, count: int, trials: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.benchmarks.endpoints", str(count), str(trials)]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)


def test_killed_in_the_middle_and_continued_no_reply_is_paid_twice_and_the_result_is_the_same(tmp_path, monkeypatch):
    count, trials = 12, 2
    reached = threading.Event()

    def slowly(body):
        if len(server.bodies) >= 20:
            reached.set()
        time.sleep(0.05)
        return right(body)

    with ChatServer(slowly) as server:
        env = {**os.environ, "ASTRA_EVAL_BASE_URL": server.url, "ASTRA_CACHE": str(tmp_path / "killed")}
        victim = run_sums(env, count, trials)
        assert reached.wait(120)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        assert victim.returncode == -signal.SIGKILL
        in_flight = settings().concurrency
        again = run_sums(env, count, trials)
        continued = again.communicate(timeout=120)[0]
        assert again.returncode == 0
        asked = server.counts()
        assert len(asked) == count * trials * TURNS  # every turn of every trial is another body
        assert sum(one - 1 for one in asked.values()) <= in_flight  # only what no reply had come to may be asked again
        assert len(server.bodies) < count * trials * TURNS + 20
        whole = run_sums({**env, "ASTRA_CACHE": str(tmp_path / "whole")}, count, trials)
        assert whole.communicate(timeout=120)[0] == continued


def test_a_case_from_the_journal_counts_what_it_cost(monkeypatch):
    with ChatServer(right) as server:
        open_at(monkeypatch, server)
        played(Sums(3), settings())
        first = {name: value for name, value in endpoints.usage.items() if name != "cached"}
        played(Sums(3), settings())
        again = {name: value for name, value in endpoints.usage.items() if name != "cached"}
    assert first == again
    assert first["calls"] == 3 * TURNS
    assert first["cost_usd"] == pytest.approx(3 * TURNS * 40 * 1000 / 1e6)


def test_a_spent_budget_stops_with_everything_kept_and_stops_there_again(monkeypatch):
    with ChatServer(right) as server:
        open_at(monkeypatch, server)
        for _ in range(2):
            with pytest.raises(BudgetSpent, match="stage_usd"):
                played(Sums(10), settings(concurrency=1, stage_usd=0.4))
        paid = len(server.bodies)
        found = played(Sums(10), settings())
    assert paid <= 12  # 0.04 USD each, one that was in flight apart
    assert len(found) == 10
    assert len(server.bodies) == 10 * TURNS


def test_a_history_that_differs_from_what_was_replied_is_not_written_twice():
    said = Transcript()
    said.add(Ask(messages=[{"role": "user", "content": "one"}]), Reply(content="mine"))
    gold = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "gold"},
        {"role": "user", "content": "two"},
    ]
    said.add(Ask(messages=gold), Reply(content="mine too"))
    assert [one.content for one in said.messages] == ["one", "mine", "two", "mine too"]


def test_a_prompt_that_was_too_long_leaves_no_reply():
    said = Transcript()
    said.add(Ask(messages=[{"role": "user", "content": "one"}]), Reply(stop="context"))
    assert [one.role for one in said.messages] == ["user"]


def test_a_slice_is_spread_over_the_benchmark_s_order_and_does_not_grow_out_of_it():
    cases = [CaseInfo(id=f"c{n}", category="ab"[n % 2]) for n in range(20)]
    assert sliced(cases, "a", 3) == ["c0", "c6", "c12"]
    assert sliced(cases, "b", 1) == ["c1"]
    assert sliced(cases, None, None) == sliced(cases, None, 20) == sliced(cases, None, 99) == [one.id for one in cases]
    assert len(set(sliced(cases, None, 19))) == 19
    assert sliced(cases, "c", 3) == []
