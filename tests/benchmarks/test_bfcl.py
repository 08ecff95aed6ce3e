"""BFCL's multi-turn categories through worker and checker: right models pass, broken ones fail, hostile ones reach nobody."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from astra.benchmarks.process import Limits, Worker, open_worker
from astra.benchmarks.registry import BENCHMARKS, BFCL_CATEGORIES
from astra.benchmarks.types import BenchmarkUnavailable, CallText, Reply, RunLost, Verdict
from astra.benchmarks.worker.bfcl import Call, Unreadable, decoded, refusal
from tests.benchmarks import bfcl_models as models
from tests.benchmarks.wheels import environments

N_THREADS = 4
VERSIONS = ("v4", "v3")
LIMITS = Limits(timeout_s=60, memory_mib=2048)
Make = Callable[[list[list[str]]], models.Model]


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def worker(version: str) -> Iterator[Worker]:
    folder = environments(models.ENVIRONMENT[version])
    with open_worker(BENCHMARKS[f"bfcl_{version}_multi_turn_base"], folder, LIMITS) as one:
        yield one


def cases(version: str, n_cases: int = 200) -> dict[str, list[list[str]]]:
    """So many cases of each category, spread evenly, with their answers."""
    found = {}
    for category in BFCL_CATEGORIES:
        answers = models.answers(environments(models.ENVIRONMENT[version]), version, category)
        found |= dict(list(answers.items())[:: len(answers) // n_cases][:n_cases])
    return found


def verdicts(worker: Worker, played: dict[str, list[list[str]]], make: Make) -> dict[str, Verdict]:
    """Every case played by a model of its own."""

    def one(case: str) -> Verdict:
        with worker.start(case) as run:
            return models.played(run, make(played[case])).verdict()

    with ThreadPoolExecutor(N_THREADS) as pool:
        return dict(zip(played, pool.map(one, played), strict=True))


def accuracies(found: dict[str, Verdict]) -> dict[str, float]:
    """Of each category."""
    by_category: dict[str, list[float]] = {category: [] for category in BFCL_CATEGORIES}
    for case, verdict in found.items():
        by_category[case.rsplit("_", 1)[0]].append(verdict.scores["accuracy"])
    return {category: sum(scores) / len(scores) for category, scores in by_category.items()}


# ---------------------------------------------------------------- right and broken models


def test_there_are_two_hundred_cases_in_each_of_four_categories(worker, version):
    categories = [one.category for one in worker.cases()]
    assert {one: categories.count(one) for one in categories} == dict.fromkeys(BFCL_CATEGORIES, 200)
    assert worker.version == {"v4": "bfcl-eval 2026.3.23", "v3": "nvidia-bfcl 26.3"}[version]


def test_the_answers_pass_in_every_case(worker, version):
    found = verdicts(worker, cases(version), models.oracle)
    assert len(found) == 800
    assert {case: one.note for case, one in found.items() if one.scores != {"accuracy": 1.0}} == {}


def test_the_answers_pass_one_call_at_a_time(worker, version):
    found = verdicts(worker, cases(version, 10), models.one_by_one)
    assert accuracies(found) == dict.fromkeys(BFCL_CATEGORIES, 1.0)


EMPTY = {"multi_turn:empty_turn_model_response"}
MISMATCH = {"multi_turn:instance_state_mismatch", "multi_turn:execution_response_mismatch"}
BROKEN: dict[str, tuple[models.Model, set[str]]] = {
    "unknown_tool": (models.UNKNOWN_TOOL, MISMATCH),
    "bad_json": (models.BAD_JSON, EMPTY),
    "text_only": (models.text_only, EMPTY),
    "silent": (models.silent, EMPTY),
}


def mistake(verdict: Verdict) -> str:
    """The package's word for what was wrong."""
    return ":".join(verdict.note.split(":")[:2])


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_passes_nothing(worker, version, name):
    model, mistakes = BROKEN[name]
    found = verdicts(worker, cases(version, 4), lambda turns: model)
    assert accuracies(found) == dict.fromkeys(BFCL_CATEGORIES, 0.0)
    assert {mistake(one) for one in found.values()} <= mistakes


def test_wrong_arguments_pass_next_to_nothing(worker, version):
    found = verdicts(worker, cases(version, 20), lambda turns: models.oracle(turns, models.wrong_arguments))
    assert max(accuracies(found).values()) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_passes_nothing_of_the_whole_set(worker, version, name):
    assert accuracies(verdicts(worker, cases(version), lambda turns: BROKEN[name][0])) == dict.fromkeys(
        BFCL_CATEGORIES, 0.0
    )


@pytest.mark.slow
def test_wrong_arguments_pass_at_most_one_case_in_a_hundred_of_the_whole_set(worker, version):
    found = verdicts(worker, cases(version), lambda turns: models.oracle(turns, models.wrong_arguments))
    assert max(accuracies(found).values()) <= 0.01


@pytest.mark.slow
def test_the_answers_pass_one_call_at_a_time_in_every_case_but_those_of_34_calls_a_turn(worker, version):
    found = verdicts(worker, cases(version), models.one_by_one)
    lost = {case for case, one in found.items() if one.scores != {"accuracy": 1.0}}
    assert lost == {"multi_turn_long_context_38", "multi_turn_long_context_46"}  # a turn ends after its 21st step


# ---------------------------------------------------------------- the protocol


def test_a_turn_ends_the_case_after_its_twenty_first_step(worker):
    with worker.start("multi_turn_base_0") as run:
        verdict = models.played(run, models.for_ever).verdict()
    assert (verdict.n_steps, verdict.n_calls) == (21, 21)
    assert verdict.scores == {"accuracy": 0.0}
    assert mistake(verdict) == "multi_turn:force_terminated"


def test_too_many_steps_in_the_last_turn_are_judged_like_any_others(worker, version):
    case = "multi_turn_base_0"
    turns = cases(version)[case]
    with worker.start(case) as run:
        right = models.one_by_one(turns)
        for _ in range(200):
            if run.ask is None:
                break
            reply = right(run.ask)
            in_last_turn = sum(one["role"] == "user" for one in run.ask.messages) == len(turns)
            run.reply(models.for_ever(run.ask) if in_last_turn and not reply.tool_calls else reply)
        verdict = run.verdict()
    assert verdict.n_steps > 21
    assert verdict.scores == {"accuracy": 1.0}


def test_a_prompt_that_the_model_can_not_take_ends_the_case_as_failed(worker):
    with worker.start("multi_turn_base_0") as run:
        assert run.reply(Reply(stop="context")) is None
        verdict = run.verdict()
    assert verdict.scores == {"accuracy": 0.0}
    assert mistake(verdict) == "multi_turn:inference_error"


def test_a_case_stopped_before_its_end_is_failed(worker):
    with worker.start("multi_turn_base_0") as run:
        run.reply(models.SAY)
        assert mistake(run.verdict()) == "multi_turn:force_terminated"


def test_tools_held_back_are_offered_in_their_turn(worker):
    with worker.start("multi_turn_miss_func_0") as run:
        n_tools = []
        while run.ask is not None:
            n_tools.append((len(run.ask.tools), run.ask.messages[-1]["content"]))
            run.reply(models.SAY)
    (turn,) = [number for number in range(1, len(n_tools)) if n_tools[number][0] > n_tools[number - 1][0]]
    assert n_tools[turn][1] == models.MORE_TOOLS
    assert {one for one, _ in n_tools[:turn]} == {n_tools[0][0]}


def test_a_case_played_twice_starts_from_the_same_state(worker, version):
    case = "multi_turn_base_1"
    for _ in range(2):
        with worker.start(case) as run:
            assert models.played(run, models.oracle(cases(version)[case])).verdict().scores == {"accuracy": 1.0}


def test_one_versions_package_is_not_taken_for_the_other(version):
    other = {"v4": "v3", "v3": "v4"}[version]
    folder = environments(models.ENVIRONMENT[version])
    wrong = BENCHMARKS[f"bfcl_{other}_multi_turn_base"]
    with tempfile.TemporaryDirectory() as environment:
        (Path(environment) / models.ENVIRONMENT[other]).symlink_to(folder / models.ENVIRONMENT[version])
        with pytest.raises(BenchmarkUnavailable, match="needed is"):
            open_worker(wrong, Path(environment))


# ---------------------------------------------------------------- models that mean harm

CANARY = "/tmp/astra-canary"
METHODS = frozenset(("ls", "touch"))
SOME_JSON = '{"file_name": "x"}'
HOSTILE_NAMES = [
    f"open('{CANARY}', 'w').write",
    "open",
    "print",
    "eval",
    "exec",
    "exit",
    "__import__",
    "__import__('os').system",
    "importlib.import_module",
    "json.dumps",
    "copy.deepcopy",
    "ls.__globals__",
    "ls.__self__.__init__",
    "__init__",
    "_load_scenario",
    "_get_item",
    "class_instance.ls",
    "involved_instances.clear",
    "execute_multi_turn_func_call",
    "ls() or open",
    "ls(), open",
    "ls\n",
    "lambda x: ",
    "(ls)",
    "[f for f in ()].append",
    "ls#",
    "play_multi_turn_base_0_GorillaFileSystem_instance.ls",
    "",
    " ",
    "\x00",
    "\u202els",
    "l" * 100_000,
    "(" * 100_000,
]
HOSTILE_KEYS = [
    f"a=open('{CANARY}','w'), file_name",
    f"a=open('{CANARY}','w') #",
    f"**open('{CANARY}','w')",
    f"*open('{CANARY}','w'), a",
    "file_name:=1, a",
    "a)(",
    "a\n",
    "(lambda: 1)(), a",
    "",
    "a b",
    "1",
    "a.b",
    "x" * 100_000 + " ",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_a_tool_name_that_is_no_public_method_is_never_evaluated(name):
    (call,) = decoded([CallText(id="a", name=name, arguments=SOME_JSON)])
    assert str(refusal(call, METHODS)).startswith("Error during execution: ")


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=range(len(HOSTILE_KEYS)))
def test_an_argument_whose_name_is_no_name_is_never_evaluated(key):
    (call,) = decoded([CallText(id="a", name="ls", arguments=json.dumps({key: "v"}))])
    assert str(refusal(call, METHODS)).startswith("Error during execution: ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("{}", "ls()"),
        ('{"a": true, "b": null, "c": [1, 2.5, {"d": "e"}]}', "ls(a=True,b=None,c=[1, 2.5, {'d': 'e'}])"),
        ('{"a": "\\"); import os; (\\""}', "ls(a='\"); import os; (\"')"),
        ('{"a": "\'"}', 'ls(a="\'")'),
        ('{"a": 1, "a": 2}', "ls(a=2)"),
        ('{"a": NaN}', "ls(a=nan)"),
        ('{"a": -Infinity}', "ls(a=-inf)"),
        (' {"\u00e4": "\ud800"} ', "ls(ä='\\ud800')"),
    ],
)
def test_arguments_become_literals_whatever_is_in_them(arguments, text):
    (call,) = decoded([CallText(id="a", name="ls", arguments=arguments)])
    assert call == Call(text, "ls", call.keys)
    assert refusal(call, METHODS) is None


@pytest.mark.parametrize(
    "arguments",
    ["", "{", "[]", "[1]", "null", "1", '"text"', "{'a': 1}", '{"a": 1} {"b": 2}', "[" * 100_000, '{"a":' * 100_000,
     '{"a": ' + "9" * 5000 + "}", "NaN", "\x00"],
)  # fmt: skip
def test_arguments_that_are_no_object_end_the_turn_unexecuted(arguments):
    with pytest.raises(Unreadable):
        decoded([CallText(id="a", name="ls", arguments=arguments)])


def test_a_hostile_model_touches_nothing_outside_the_workers_empty_folder(worker):
    """All hostile calls at once: each is refused in words, and nothing was made anywhere that they name."""
    Path(CANARY).unlink(missing_ok=True)
    names = [CallText(id=f"n{n}", name=name, arguments=SOME_JSON) for n, name in enumerate(HOSTILE_NAMES)]
    keys = [CallText(id=f"k{n}", name="ls", arguments=json.dumps({key: 1})) for n, key in enumerate(HOSTILE_KEYS)]
    with worker.start("multi_turn_base_0") as run:
        ask = run.reply(Reply(tool_calls=names + keys, stop="tool_calls"))
        assert ask is not None
        told = [one["content"] for one in ask.messages if one["role"] == "tool"]
        assert len(told) == len(names) + len(keys)
        assert all(one.startswith("Error during execution: ") for one in told)
        assert list(Path(worker.link().folder).iterdir()) == []
        assert models.played(run, models.text_only).verdict().scores == {"accuracy": 0.0}
    assert not Path(CANARY).exists()


def test_a_tools_path_stays_in_the_benchmarks_own_file_system(worker):
    calls = [
        CallText(id=str(n), name=name, arguments=json.dumps(arguments))
        for n, (name, arguments) in enumerate([
            ("touch", {"file_name": CANARY}), ("echo", {"content": "x", "file_name": CANARY}),
            ("cd", {"folder": "/tmp"}), ("cat", {"file_name": "/etc/passwd"}), ("mkdir", {"dir_name": "../../x"}),
        ])
    ]  # fmt: skip
    with worker.start("multi_turn_base_0") as run:
        ask = run.reply(Reply(tool_calls=calls, stop="tool_calls"))
        assert ask is not None
    assert "root:" not in str(ask.messages)
    assert not Path(CANARY).exists()


def test_a_call_that_does_not_end_is_an_error_of_its_case_and_of_no_other(version):
    folder = environments(models.ENVIRONMENT[version])
    benchmark = BENCHMARKS[f"bfcl_{version}_multi_turn_base"]
    arguments = {"base": 7, "exponent": 10**9}
    endless = models.once_a_turn(CallText(id="a", name="power", arguments=json.dumps(arguments)))
    with open_worker(benchmark, folder, Limits(timeout_s=2)) as short:
        with pytest.raises(RunLost, match="no answer within 2 s"), short.start(case_with(version, "MathAPI")) as run:
            models.played(run, endless)
        with short.start("multi_turn_base_0") as other:
            assert models.played(other, models.text_only).verdict().scores == {"accuracy": 0.0}
        assert short.n_starts == 1


def case_with(version: str, class_name: str) -> str:
    """The first case whose tools are of this class."""
    folder = environments(models.ENVIRONMENT[version]) / models.ENVIRONMENT[version] / models.PREFIX[version]
    lines = (folder / f"BFCL_{version}_multi_turn_base.json").read_text().splitlines()
    return next(one["id"] for one in map(json.loads, lines) if class_name in one["involved_classes"])
