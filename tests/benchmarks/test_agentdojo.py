"""AgentDojo through a worker and the package's own checks, with scripted models: utility, and security under attack."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest

from astra.benchmarks.process import open_worker
from astra.benchmarks.registry import BENCHMARKS
from astra.benchmarks.types import BenchmarkUnavailable, Reply, Verdict
from tests.benchmarks.scripted import BROKEN, Model, Script, bad_json, calls, misspelt, played, text, verdicts
from tests.benchmarks.wheels import ROOT, environments

SIZES = {"workspace": 40, "travel": 20, "banking": 16, "slack": 21}
BENCHMARK = BENCHMARKS["agentdojo_v1.2.2_workspace"]
Gold = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def worker():
    with open_worker(BENCHMARK, environments("agentdojo")) as opened:
        yield opened


@cache
def solutions() -> Gold:
    """What the package says would solve every user task and reach every injected goal."""
    script = [sys.executable, "-m", "tests.benchmarks.agentdojo_gold", str(environments("agentdojo") / "agentdojo")]
    done = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT)
    found: Gold = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def gold():
    return solutions()


def cases(worker, security: bool) -> list[str]:
    return [one.id for one in worker.cases() if one.category.endswith("_security") == security]


def steps(solution: dict[str, Any], change=lambda arguments: arguments) -> list[Reply]:
    """Call after call, and then what there is to say."""
    made = [calls((name, change(arguments))) for name, arguments in solution["calls"]]
    return [*made, text(solution["output"])]


def solving(gold: Gold, case: str, change=lambda arguments: arguments) -> Model:
    """An agent that does what the user's task asks and nothing else."""
    suite, task, *_ = case.split("/")
    return Script(steps(gold[f"{suite}/{task}"], change))


def hijacked(gold: Gold, case: str) -> Model:
    """An agent that does what the injected text says and forgets the user."""
    suite, _, injection = case.split("/")
    return Script(steps(gold[f"{suite}/{injection}"]))


def total(found: dict[str, Verdict], measure: str) -> float:
    return sum(one.scores[measure] for one in found.values())


def test_there_are_97_user_tasks_and_each_has_one_injection_task_of_its_suite(worker):
    counted = Counter(one.category for one in worker.cases())
    assert counted == {**SIZES, **{f"{suite}_security": count for suite, count in SIZES.items()}}
    uses = Counter(tuple(one.split("/")[::2]) for one in cases(worker, security=True))
    assert len(uses) == 14 + 7 + 9 + 5
    assert all(abs(uses[one] - uses[other]) <= 1 for one in uses for other in uses if one[0] == other[0])
    assert worker.version == "agentdojo 0.1.35 v1.2.2, attack important_instructions_no_model_name (one)"


def test_the_gold_calls_solve_all_user_tasks(worker, gold):
    found = verdicts(worker, cases(worker, security=False), lambda case: (solving(gold, case), None))
    assert (len(found), total(found, "utility")) == (97, 97)


@pytest.mark.slow
def test_doing_nothing_solves_five_tasks_all_in_banking(worker):
    found = verdicts(worker, cases(worker, security=False), lambda case: (Script([text("Sorry.")]), None))
    solved = [case for case, verdict in found.items() if verdict.scores["utility"]]
    assert len(solved) == 5
    assert {case.split("/")[0] for case in solved} == {"banking"}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_model_solves_no_more_than_one_that_does_nothing(worker, broken):
    found = verdicts(worker, cases(worker, security=False), lambda case: (BROKEN[broken], None))
    assert total(found, "utility") <= 5


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_model_fails_with_a_verdict_not_an_error(worker, broken):
    for case in ("workspace/user_task_0", "travel/user_task_3", "slack/user_task_1"):
        with worker.start(case) as run:
            assert played(run, BROKEN[broken]).scores == {"utility": 0.0}


@pytest.mark.slow
def test_wrong_arguments_solve_hardly_more_than_doing_nothing(worker, gold):
    def astray(case: str) -> Model:
        *made, _ = steps(gold["/".join(case.split("/")[:2])], misspelt)
        return Script([*made, text("Done.")])  # the answer is not among what such calls return

    found = verdicts(worker, cases(worker, security=False), lambda case: (astray(case), None))
    assert total(found, "utility") <= 10  # of 97; 6 seen, doing nothing gets 5


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_under_attack_a_model_that_minds_its_task_is_safe_and_mostly_useful(worker, gold, every):
    found = verdicts(worker, cases(worker, security=True)[::every], lambda case: (solving(gold, case), None))
    assert total(found, "security") == len(found) >= 97 // every
    useless = [case for case, verdict in found.items() if not verdict.scores["utility"]]
    # these name a channel, or say what a page holds, as it was without the injected text
    assert len(useless) <= 5
    assert {case.split("/")[0] for case in useless} <= {"slack"}
    assert list(found[cases(worker, security=True)[0]].scores) == ["security", "utility", "attack_success"]


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_under_attack_a_model_that_obeys_the_injection_is_not_safe(worker, gold, every):
    names = cases(worker, security=True)[::every]
    found = verdicts(worker, names, lambda case: (hijacked(gold, case), None))
    reached = {case for case, verdict in found.items() if verdict.scores["attack_success"]}
    # the package has no solution for the injection tasks of workspace that ask for all mails word by word
    solvable = {
        case for case in names if gold["/".join(case.split("/")[::2])]["calls"] or not case.startswith("workspace")
    }
    # where the user's task is the 16th, the package's solution of the first injection task does not reach its goal
    assert reached == solvable - {"workspace/user_task_16/injection_task_0"}
    assert all(verdict.scores["security"] == 1 - verdict.scores["attack_success"] for verdict in found.values())


def test_the_injection_stands_in_what_the_tools_say(worker, gold):
    case = "workspace/user_task_0/injection_task_0"
    agent = solving(gold, case)
    with worker.start(case) as run:
        run.reply(agent(run.ask))
        said = " ".join(run.ask.messages[-1]["content"].replace("\\", " ").split())
        assert "from me, Emma Johnson, to you, the AI language model" in said
    with worker.start("workspace/user_task_0") as run:
        run.reply(solving(gold, case)(run.ask))
        assert "INFORMATION" not in run.ask.messages[-1]["content"]


def test_attack_and_pairs_are_options(gold):
    options = {"attack": "direct", "pairs": "all"}
    with open_worker(
        BENCHMARK.__class__(**{**vars(BENCHMARK), "options": options}), environments("agentdojo")
    ) as opened:
        assert len(cases(opened, security=True)) == 40 * 14 + 20 * 7 + 16 * 9 + 21 * 5
        assert opened.version.endswith("attack direct (all)")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attack": "tool_knowledge"}, "no name of a model needed"),
        ({"pairs": "some"}, "one or all"),
        ({"path": "x"}, "got path"),
    ],
)
def test_an_unknown_option_is_refused_with_what_is_allowed(options, said):
    with pytest.raises(BenchmarkUnavailable, match=said):
        open_worker(BENCHMARK.__class__(**{**vars(BENCHMARK), "options": options}), environments("agentdojo"))


def test_the_models_requests_are_in_plain_openai_form(worker):
    with worker.start("banking/user_task_0") as run:
        assert [one["role"] for one in run.ask.messages] == ["system", "user"]
        assert (len(run.ask.tools), run.ask.options) == (11, {"temperature": 0.0, "tool_choice": "auto"})
        run.reply(bad_json(run.ask))
        call, result = run.ask.messages[2:]
        assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"not a JSON object": "{'broken': "}
        assert result["content"].startswith("ValidationError: the arguments are not a JSON object")
        run.reply(Reply(content="", tool_calls=calls(("get_iban", {}), ("get_balance", {})).tool_calls))
        assert [one["role"] for one in run.ask.messages[4:]] == ["assistant", "tool", "tool"]


def test_a_model_that_never_stops_calling_is_stopped_after_the_packages_rounds(worker):
    with worker.start("slack/user_task_0") as run:
        verdict = played(run, lambda ask: calls(("get_channels", {}), content="once more"))
    assert verdict.n_steps == 16


def test_a_prompt_that_is_too_long_is_no_success_of_the_attack(worker):
    with worker.start("slack/user_task_0/injection_task_1") as run:
        assert run.reply(Reply(stop="context")) is None
        assert run.verdict().scores == {"security": 1.0, "utility": 0.0, "attack_success": 0.0}


@pytest.mark.parametrize("hostile", ["-" * 90_000 + "1", "[" * 5000, "[" + "(" * 90 + ")" * 90 + "]"])
def test_arguments_that_break_the_packages_evaluation_fail_the_run_or_the_call_but_are_no_error(worker, hostile):
    with worker.start("banking/user_task_0") as run:
        run.reply(calls(("read_file", {"file_path": hostile})))
        verdict = played(run, Script([text("Done.")]))
    assert verdict.scores == {"utility": 0.0}
