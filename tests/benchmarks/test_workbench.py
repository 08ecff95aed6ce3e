"""WorkBench over a look-alike of its repository: actions, the check by tables, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest

from astra.benchmarks.process import open_worker
from astra.benchmarks.registry import BENCHMARKS
from astra.benchmarks.types import BenchmarkUnavailable
from astra.benchmarks.worker.workbench import MAX_ROUNDS
from tests.benchmarks.lookalikes import workbench
from tests.benchmarks.scripted import BROKEN, Script, calls, played, text

BENCHMARK = BENCHMARKS["workbench"]
DONE = text("Done.")


def at(path):
    return dataclasses.replace(BENCHMARK, options={"path": str(path)})


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workbench")
    with open_worker(at(workbench(folder)), folder) as opened:
        yield opened


def sent(recipient: str, body: str = "hello"):
    return "email_send_email", {"recipient": recipient, "body": body}


@pytest.mark.parametrize(
    ("number", "replies", "accuracy"),
    [
        (0, [calls(sent("ann"))], 1.0),
        (0, [calls(sent("bob"))], 0.0),
        (0, [], 0.0),
        (0, [calls(sent("ann"), sent("ann"))], 0.0),
        (1, [calls(sent("ann"), sent("bob"))], 1.0),
        (1, [calls(sent("ann")), calls(("email_count_emails", {"sender": "ann"})), calls(sent("bob"))], 1.0),
        (2, [], 1.0),
        (2, [calls(("email_count_emails", {"sender": "eve"}))], 1.0),
        (2, [calls(sent("eve"))], 0.0),
    ],
)
def test_a_request_is_judged_by_the_tables_after_the_actions(worker, number, replies, accuracy):
    with worker.start(f"email/{number}") as run:
        assert played(run, Script([*replies, DONE])).scores == {"accuracy": accuracy}


def test_a_text_with_quotes_and_code_is_an_argument_and_nothing_else(worker):
    hostile = "x') or __import__('os').system('true') or str('"
    with worker.start("email/2") as run:
        run.reply(calls(sent("ann", hostile)))
        assert run.ask.messages[-1]["content"] == "Email sent successfully."
        assert played(run, Script([DONE])).note == "1 actions, 0 in the answer"


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_model_is_wrong_and_no_error(worker, broken):
    with worker.start("email/1") as run:
        assert played(run, BROKEN[broken]).scores == {"accuracy": 0.0}


def test_tools_are_offered_by_their_own_documents_and_say_what_they_return(worker):
    with worker.start("email/0") as run:
        assert [one["role"] for one in run.ask.messages] == ["system", "user"]
        assert "Thursday, 2023-11-30" in run.ask.messages[0]["content"]
        named = [one["function"] for one in run.ask.tools]
        assert [one["name"] for one in named] == ["email_send_email", "email_count_emails"]
        assert '{"sent": True}' in named[0]["description"]
        assert list(named[0]["parameters"]["properties"]) == ["recipient", "body"]
        run.reply(
            calls(
                ("email_count_emails", {"sender": "me"}),
                ("email_count_emails", {"a b": 1}),
                ("nope", {}),
                ("email_send_email", "{'"),
            )
        )
        said = [one["content"] for one in run.ask.messages[-4:]]
        assert said[0] == "1"
        assert "no name of an argument" in said[1]
        assert "not a valid tool" in said[2]
        assert said[3] == "The arguments are not a JSON object."
        assert all(json.loads(one["function"]["arguments"]) is not None for one in run.ask.messages[2]["tool_calls"])


def test_a_run_at_its_limit_of_rounds_is_wrong_even_with_the_right_tables(worker):
    with worker.start("email/2") as run:
        verdict = played(run, lambda ask: calls(("email_count_emails", {"sender": "me"})))
    assert (verdict.scores, verdict.note, verdict.n_steps) == ({"accuracy": 0.0}, "round limit", MAX_ROUNDS)


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "give its folder as path"), ({"path": "/nowhere"}, "lacks data/processed"), ({"root": "/"}, "option path")],
)
def test_without_a_checkout_it_says_what_is_missing(tmp_path, options, said):
    with pytest.raises(BenchmarkUnavailable, match=said):
        open_worker(dataclasses.replace(BENCHMARK, options=options), tmp_path)
