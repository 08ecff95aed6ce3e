"""A package's own loop as a run: what it asks, what it is told, and how it ends."""

from __future__ import annotations

import pytest

from astra.benchmarks.types import Ask, Reply, Verdict
from astra.benchmarks.worker.blocking import Blocking, Requests, Stopped

FAILED = {"reward": 0.0}


def asks(words: str) -> Ask:
    return Ask(messages=[{"role": "user", "content": words}])


def twice(request: Requests) -> Verdict:
    said = [request(asks("one")).content, request(asks("two")).content]
    return request.verdict({"reward": 1.0}, note=" ".join(map(str, said)))


def test_the_loops_requests_come_one_after_the_other_and_its_verdict_at_the_end():
    run = Blocking(twice, FAILED)
    assert run.turn() == run.turn() == asks("one")
    run.take(Reply(content="a"))
    assert run.turn() == asks("two")
    run.take(Reply(content="b"))
    assert run.turn() is None
    assert run.verdict() == run.verdict() == Verdict(scores={"reward": 1.0}, note="a b", n_steps=2)


@pytest.mark.parametrize("n_replies", [0, 1])
def test_a_run_stopped_before_its_end_has_the_scores_of_a_failed_one(n_replies):
    run = Blocking(twice, FAILED)
    for _ in range(n_replies):
        run.turn()
        run.take(Reply(content="a"))
    verdict = run.verdict()
    assert (verdict.scores, verdict.n_steps) == (FAILED, n_replies)
    assert run.turn() is None


def test_a_stop_passes_through_code_that_catches_every_exception():
    def careless(request: Requests) -> Verdict:
        for _ in range(100):
            try:
                request(asks("again"))
            except Exception:
                continue
        raise AssertionError("it went on")

    run = Blocking(careless, FAILED)
    run.turn()
    run.take(Reply(stop="context"))
    assert run.turn() is None
    assert run.verdict().note == "context: the model could not take the prompt"


@pytest.mark.parametrize("error", [ValueError("of the package"), SystemExit(3), KeyboardInterrupt()])
def test_what_the_loop_raises_is_raised_and_is_no_verdict(error):
    def broken(request: Requests) -> Verdict:
        request(asks("one"))
        raise error

    run = Blocking(broken, FAILED)
    run.turn()
    run.take(Reply(content="a"))
    for ask in (run.turn, run.verdict):
        with pytest.raises(type(error)):
            ask()


def test_a_user_model_that_cannot_take_the_prompt_is_an_error_not_the_agents_failure():
    run = Blocking(
        lambda request: request.verdict(
            {"reward": float(bool(request(asks("x").model_copy(update={"role": "user"}))))}
        ),
        FAILED,
    )
    run.turn()
    run.take(Reply(stop="context"))
    with pytest.raises(RuntimeError, match="plays the user"):
        run.verdict()


def test_only_the_agents_replies_and_calls_are_counted():
    def mixed(request: Requests) -> Verdict:
        request(Ask(role="user", messages=[]))
        request(Ask(messages=[]))
        return request.verdict({"reward": 1.0})

    run = Blocking(mixed, FAILED)
    for reply in ("hello", "yes"):
        run.turn()
        run.take(Reply(content=reply))
    assert (run.verdict().n_steps, run.verdict().n_calls) == (1, 0)


def test_a_model_that_has_failed_for_good_ends_the_run_with_the_reason():
    def given_up(request: Requests) -> Verdict:
        raise Stopped("empty reply")

    assert Blocking(given_up, FAILED).verdict() == Verdict(scores=FAILED, note="empty reply")
