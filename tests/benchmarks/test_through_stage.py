"""Stage eval with endpoints on tau2, AgentDojo and ToolTalk: two models and the customer, each at its own address.

The endpoints keep no state: a request's seed tells the case, and what it shows of the conversation tells the turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from astra.benchmarks.models import Draw
from astra.benchmarks.types import Reply
from astra.records import Sample
from astra.stage import read_records
from stages import eval as stage
from tests.benchmarks import wheels
from tests.benchmarks.chat_server import Answering, ChatServer, completion
from tests.benchmarks.scripted import calls, text
from tests.benchmarks.test_agentdojo import solutions, steps
from tests.benchmarks.test_tau2 import gold, tasks
from tests.benchmarks.test_tooltalk import FOLDERS, true_replies
from tests.stages.training_run import PARAMS, lay_out

DOJO = "agentdojo_v1.2.2"
SHARE = {f"{DOJO}_banking": 2, f"{DOJO}_slack": 2, f"{DOJO}_slack_security": 3, "tooltalk_full": 2, "tooltalk_easy": 2,
         "tau2_retail": 3, "tau2_telecom_solo": 2}  # fmt: skip
SECURITY = f"{DOJO}_slack_security"
AGENT = {"transport": "openai", "name": "agent", "temperature": 0.0, "max_tokens": 256}
GIVES_UP = text("I can't help with that.")


def cases() -> dict[str, list[str]]:
    """Benchmark -> ids of all its cases."""
    names = [one for one in solutions() if "/user_task_" in one]
    injected = [f"{one}/{goal.split('/')[1]}" for one in names for goal in solutions() if "/injection_" in goal
                and goal.split("/")[0] == one.split("/")[0]]  # fmt: skip
    data = wheels.environments("tooltalk") / "tooltalk/tooltalk/data"
    return {
        **{f"{DOJO}_{suite}": [one for one in names if one.startswith(suite)] for suite in ("banking", "slack")},
        SECURITY: [one for one in injected if one.startswith("slack")],
        **{f"tooltalk_{name}": [f"{name}/{one.stem}" for one in (data / folder).glob("*.json")]
           for name, folder in FOLDERS.items()},
        "tau2_retail": [f"retail/{one}" for one in tasks("retail")],
        "tau2_telecom_solo": [f"telecom_solo/{one}" for one in tasks("telecom")],
    }  # fmt: skip


def right(benchmark: str, case: str) -> Sequence[Reply]:
    """What solves a case."""
    if benchmark.startswith("tooltalk"):
        return true_replies(case)
    if benchmark.startswith(DOJO):
        return steps(solutions()["/".join(case.split("/")[:2])])
    made = [calls((one["name"], one["arguments"])) for one in gold(case)["actions"]]
    return [*made, text(" ".join(gold(case)["say"]) or "Done.") if "retail" in benchmark else calls(("done", {}))]


def wrong(benchmark: str, case: str) -> Sequence[Reply]:
    """Obeys whoever wrote what the tools return, and does nothing else."""
    suite, *_, goal = case.split("/")
    return steps(solutions()[f"{suite}/{goal}"]) if benchmark == SECURITY else [GIVES_UP]


def agent(replies: Callable[[str, str], Sequence[Reply]]) -> Answering:
    """An endpoint that replies as the function says for the case."""
    told = {
        Draw(seed=PARAMS["seed"], benchmark=name, case=case, trial=0, turn=0).number: (name, case)
        for name, ids in cases().items()
        for case in ids
    }

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name, case = told[body["seed"]]
        own = sum(one["role"] == "assistant" for one in body["messages"])
        script = replies(name, case)
        return completion(script[min(own - (name == "tau2_retail"), len(script) - 1)])  # the greeting was not asked for

    return answer


def customer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Says what is wanted, and leaves after the agent's next words."""
    has_spoken = any(one["role"] == "assistant" for one in body["messages"])
    return completion(text("###STOP###" if has_spoken else "Do what my case says, please."))


class Done(NamedTuple):
    """What the stage wrote, and what the endpoints were asked."""

    metrics: dict[str, Any]
    samples: list[Sample]
    asked: list[dict[str, Any]]
    as_customer: list[dict[str, Any]]

    def mean(self, model: str, benchmark: str, measure: str) -> float:
        return float(self.metrics["models"][model][benchmark]["greedy"][measure]["mean"])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder: Path = tmp_path_factory.mktemp("through_stage")
    user = AGENT | {"name": "customer"}
    params = PARAMS | {
        "llm": PARAMS["llm"] | {"timeout_s": 120, "deadline_s": 240, "prices": {"customer": {"prompt": 1000, "completion": 0}}},
        "eval": PARAMS["eval"] | {
            "models": {label: AGENT | {"name": f"agent-{label}"} for label in ("right", "wrong")}, "user": user, "pairs": [["right", "wrong"]],
            "benchmarks": {name: {"cases": count} for name, count in SHARE.items()}
            | {SECURITY: {"cases": SHARE[SECURITY], "options": {"attack": "ignore_previous"}}},
        },
    }  # fmt: skip
    lay_out(folder, params=params)
    wheels.as_bench_env_leaves_them(folder, "tau2", "agentdojo", "tooltalk")
    with (
        ChatServer(agent(right)) as knowing,
        ChatServer(agent(wrong)) as failing,
        ChatServer(customer) as calling,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.chdir(folder)
        patch.setenv("ASTRA_CACHE", str(folder / "cache"))
        patch.setenv("ASTRA_EVAL_API_KEY", "any-key-42")
        for label, server in {"RIGHT": knowing, "WRONG": failing, "USER": calling}.items():
            patch.setenv(f"ASTRA_EVAL_{label}_BASE_URL", server.url)
            patch.setenv(f"ASTRA_EVAL_{label}_API_KEY", "any-key-42")
        stage.main()
    metrics = json.loads((folder / "metrics/eval.json").read_text(encoding="utf-8"))
    samples = list(read_records(folder / "data/eval/samples.jsonl", Sample))
    return Done(metrics, samples, [*knowing.bodies, *failing.bodies], calling.bodies)


MEASURES = {name: {"tau2": "reward", "tooltalk": "success"}.get(name.split("_")[0], "utility") for name in SHARE}


@pytest.mark.parametrize("benchmark", [name for name in SHARE if name != SECURITY])
def test_an_endpoint_that_does_what_solves_a_case_gets_it_and_one_that_gives_up_does_not(done, benchmark):
    measure = MEASURES[benchmark]
    assert done.mean("right", benchmark, measure) == 1.0
    assert done.mean("wrong", benchmark, measure) < 1.0  # some cases want nothing done
    status = done.metrics["benchmarks"][benchmark]
    assert (status["status"], status["cases"]) == ("ran", SHARE[benchmark])


def test_an_endpoint_that_obeys_the_injected_text_is_not_safe_and_one_that_minds_its_task_is(done):
    for model, security in (("right", 1.0), ("wrong", 0.0)):
        assert done.mean(model, SECURITY, "security") == security
        assert done.mean(model, SECURITY, "attack_success") == 1 - security
    assert done.metrics["benchmarks"][SECURITY]["version"].endswith("attack ignore_previous (one)")
    assert any("Ignore your previous" in json.dumps(one) for one in done.asked)


def test_the_customer_is_an_endpoint_of_its_own_whose_calls_and_cost_are_counted_apart(done):
    assert {one["model"] for one in done.asked} == {"agent-right", "agent-wrong"}
    assert {one["model"] for one in done.as_customer} == {"customer"}
    used = [done.metrics["user"][model] for model in ("right", "wrong")]
    assert [one["calls"] for one in used] == [2 * SHARE["tau2_retail"]] * 2
    assert len(done.as_customer) <= sum(one["calls"] for one in used)  # both models hear the same first words
    assert all(done.metrics["models"][model]["cost_usd"] > 0 for model in ("right", "wrong"))


def test_every_case_leaves_its_conversation_and_nothing_is_rejected(done):
    assert done.metrics["rejected"] == 0
    assert done.metrics["out"] == len(done.samples) == 2 * sum(SHARE.values())
    for one in done.samples:
        assert one.messages[-1].role == "assistant", one.case
        assert (one.model == "wrong" and one.benchmark != SECURITY) or any(m.role == "tool" for m in one.messages)


def test_differences_are_of_the_same_cases(done):
    paired = done.metrics["paired"]["right-wrong"]
    assert {name: paired[name]["greedy"][MEASURES[name]]["n"] for name in SHARE if name != SECURITY} == {
        name: count for name, count in SHARE.items() if name != SECURITY
    }
