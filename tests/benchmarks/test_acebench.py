"""ACEBench's agent split over a look-alike of its repository: both loops, the check, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from astra.benchmarks.process import open_worker
from astra.benchmarks.registry import BENCHMARKS
from astra.benchmarks.types import BenchmarkUnavailable
from astra.benchmarks.worker.acebench import is_plain
from tests.benchmarks.lookalikes import acebench
from tests.benchmarks.scripted import BROKEN, Script, played, text

BENCHMARK = BENCHMARKS["acebench_agent_multi_step_en"]
DONE = text("finish conversation")


def at(path) -> dataclasses.dataclass:
    return dataclasses.replace(BENCHMARK, options={"path": str(path), "language": "en"})


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acebench")
    with open_worker(at(acebench(folder)), folder) as opened:
        yield opened


def note(number: int) -> str:
    return f"write(text='note {number}')"


def wishing() -> Script:
    return Script([text("Please write notes."), DONE])


def test_cases_are_of_two_kinds_in_the_language_asked_for(worker):
    assert [one.category for one in worker.cases()] == ["multi_step_en"] * 3 + ["multi_turn_en"] * 3
    assert worker.version == "ACEBench agent split, 6 cases, en"


@pytest.mark.parametrize(
    ("number", "replies", "accuracy"),
    [
        (0, [f"[{note(0)}]"], 1.0),
        (0, [f"[{note(1)}]"], 0.0),
        (0, [], 0.0),
        (1, [f"[{note(0)}, {note(1)}]"], 1.0),
        (1, [f"[{note(0)}]", f"[{note(1)}]"], 1.0),
        (1, [f"[{note(0)}]"], 0.0),
        (2, ["[write(text='anything')]"], 1.0),  # the answer's class is misspelt, so nothing is compared
    ],
)
def test_a_step_case_is_judged_by_the_state_of_its_classes(worker, number, replies, accuracy):
    with worker.start(f"agent_multi_step_{number}") as run:
        assert played(run, Script([*map(text, replies), DONE])).scores == {"accuracy": accuracy}


@pytest.mark.parametrize(("replies", "accuracy"), [([f"[{note(0)}]"], 1.0), ([f"[{note(0)}, {note(1)}]"], 0.0)])
def test_in_a_turn_case_a_second_model_plays_the_user(worker, replies, accuracy):
    with worker.start("agent_multi_turn_0") as run:
        assert run.ask.role == "user"
        agent = Script([*map(text, replies), text("It is written.")])
        assert played(run, agent, wishing()).scores == {"accuracy": accuracy}


def test_a_request_is_the_repositorys_prompt_with_its_settings(worker):
    with worker.start("agent_multi_step_0") as run:
        assert [one["role"] for one in run.ask.messages] == ["system", "user"]
        assert run.ask.messages[0]["content"] == "zh"  # as in the repository, in every language
        assert run.ask.options == {"temperature": 0.001, "max_tokens": 1000}
        run.reply(text(f"[{note(0)}]"))
        assert "execution:" in run.ask.messages[1]["content"]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_model_is_wrong_and_no_error(worker, broken):
    for case in ("agent_multi_step_1", "agent_multi_turn_1"):
        with worker.start(case) as run:
            verdict = played(run, BROKEN[broken], Script([text("Please go on.")]))
        assert verdict.scores == {"accuracy": 0.0}
        assert verdict.n_steps <= 40


@pytest.mark.parametrize("call", ["[nothing_of_this_name(a=1)]", "[write()]", "[write(wrong='x')]"])
def test_a_call_that_fails_is_told_and_is_no_error(worker, call):
    for case in ("agent_multi_step_0", "agent_multi_turn_0"):
        with worker.start(case) as run:
            agent = Script([text(call), text(f"[{note(0)}]"), text("finish conversation")])
            assert played(run, agent, wishing()).scores == {"accuracy": 1.0}


HOSTILE = [
    "[write(text=__import__('os').system('true'))]",
    "[write(text='a' + 'b')]",
    "[write(text=(lambda: 1)())]",
    "[__import__('os').system(command='true')]",
    "[write(text={'__import__(\"os\").system': {'command': 'true'}})]",
    "[write(**{'text': 'x'})]",
    "[write(*['x'])]",
    "[write(text=[x for x in 'ab'])]",
    "[write(text=f'{1}')]",
    "[write(text=a[0])]",
    "[write.__self__(text='x')]",
    "[(write)(text='x').y]",
    "[" + "(" * 300 + ")" * 300 + "]",
    "[write(text=not 1)]",
]


@pytest.mark.parametrize("message", HOSTILE)
def test_a_message_that_computes_something_is_not_executed(worker, message):
    assert not is_plain(message)
    with worker.start("agent_multi_step_2") as run:
        assert played(run, Script([text(message), DONE])).scores == {"accuracy": 0.0}


@pytest.mark.parametrize(
    "message",
    [
        "[write(text='x')]",
        " [write(text=-1.5, tags=['a', {'b': (1, None)}])]",
        "write(a=name), write()",
        "[f(), g(a=True)]",
    ],
)
def test_calls_of_names_with_literals_are_plain(message):
    assert is_plain(message)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give its folder as path"),
        ({"path": "/nowhere"}, "lacks data_all"),
        ({"path": "/", "language": "fr"}, "one of en, zh"),
        ({"root": "/"}, "options path and language"),
    ],
)
def test_without_a_checkout_it_says_what_is_missing(tmp_path, options, said):
    with pytest.raises(BenchmarkUnavailable, match=said):
        open_worker(dataclasses.replace(BENCHMARK, options=options), tmp_path)
