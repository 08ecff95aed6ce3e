"""Eval as a script on tiny fixtures: local models, endpoints, what breaks, what is skipped, and a stage that goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from astra.benchmarks.models import Draw
from astra.benchmarks.types import Reply
from astra.records import Reject, Sample
from astra.stage import read_records, write_records
from astra.training.arena_cases import SPLITS, benchmarks
from astra.training.distractors import Mixing
from astra.training.episodes import Case
from astra.training.measuring import Note
from astra.training.policy import save_policy
from stages import eval as stage
from tests.benchmarks import wheels
from tests.benchmarks.bfcl_oracle import CATEGORIES, oracle
from tests.benchmarks.chat_server import ChatServer, completion, too_long
from tests.stages.training_run import MIXING, PARAMS, arenas, lay_out
from tests.training.tiny import new_chat, new_tiny

MODELS = ("base", "sft", "rl", "control")
ENDPOINT = {"transport": "openai", "name": "m", "temperature": 0.0, "max_tokens": 64}
Metrics = dict[str, Any]


def params(**changes: Any) -> dict[str, Any]:
    return {**PARAMS, "eval": PARAMS["eval"] | changes}


def settle(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Make a folder the stage's, with a cache of its own."""
    (folder / "params.yaml").write_text(yaml.safe_dump(params(**changes)), encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ASTRA_CACHE", str(folder / "cache"))
    monkeypatch.setenv("ASTRA_EVAL_API_KEY", "secret-key-42")
    monkeypatch.setattr("astra.training.measuring.code_digest", lambda: "code")  # which may be edited while this runs


def evaluated(folder: Path) -> Metrics:
    stage.main()
    found: Metrics = json.loads((folder / "metrics/eval.json").read_text(encoding="utf-8"))
    return found


def samples_in(folder: Path) -> list[Sample]:
    return list(read_records(folder / "data/eval/samples.jsonl", Sample))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    lay_out(folder)
    chat = new_chat()
    for seed, name in enumerate(MODELS):
        save_policy(new_tiny(chat, seed), chat, folder / "models" / name)
    (folder / "data/sft").mkdir()
    pd.DataFrame({"id": ["arena-spain:0"], "parent": [""]}).to_parquet(folder / "data/sft/train.parquet")
    pd.DataFrame({"id": [], "parent": []}, dtype=str).to_parquet(folder / "data/sft/heldout.parquet")
    write_records(folder / "data/sft/rejects.jsonl", [Reject(id="trajectory-1", reason="heldout_fact", detail="d")])
    with pytest.MonkeyPatch.context() as monkeypatch:
        settle(folder, monkeypatch, benchmarks={"arenas": {}, "imitation": {}})
        return folder, evaluated(folder)


def test_every_model_meets_every_case_in_both_modes(done):
    folder, metrics = done
    samples = samples_in(folder)
    arena_samples = [one for one in samples if one.benchmark != "imitation"]
    assert len(arena_samples) == 4 * 2 * 4  # models, modes, cases: three splits and one refusal
    assert len(samples) == metrics["in"] == metrics["out"] == 4 * 2 * 4 + 4
    assert {(one.model, one.benchmark, one.mode) for one in arena_samples} == {
        (model, benchmark, mode)
        for model in MODELS
        for benchmark in (*SPLITS, "refusal")
        for mode in ("greedy", "sampled")
    }


def test_every_number_has_n_and_an_interval(done):
    _, metrics = done
    for sets in metrics["models"].values():
        for modes in sets.values():
            for measures in modes.values():
                assert all({"mean", "low", "high", "n"} == set(value) for value in measures.values())
    assert set(metrics["paired"]) == {"sft-base", "rl-sft", "rl-control"}
    expected = {"f1", "recall", "precision", "calls", "answer", "refused"}
    assert set(metrics["models"]["rl"]["heldout"]["greedy"]) == expected
    assert set(metrics["models"]["rl"]["imitation"]["greedy"]) == {"same_calls", "same_tools", "same_kind"}


def test_every_benchmark_says_what_ran(done):
    _, metrics = done
    assert {one["status"] for one in metrics["benchmarks"].values()} == {"ran"}
    assert set(metrics["benchmarks"]) == {*SPLITS, "refusal", "imitation"}
    assert len(metrics["benchmarks"]["imitation"]["data"]) == 20
    assert metrics["used"]["sft"]["calls"] == 2  # turns of the one conversation
    assert metrics["used"]["sft"]["content"] != metrics["used"]["base"]["content"]


def test_the_plots_have_a_row_a_number(done):
    folder, _ = done
    columns = {"model", "benchmark", "mode", "measure", "mean", "low", "high", "n", "errors"}
    assert set(pd.read_csv(folder / "plots/eval.csv").columns) == columns
    assert set(pd.read_csv(folder / "plots/f1.csv")["measure"]) == {"f1"}
    assert set(pd.read_csv(folder / "plots/benchmarks.csv")["measure"]) == {"refused", "same_calls"}


def test_a_stage_without_its_memory_gives_the_same_bytes(done, tmp_path, monkeypatch):
    folder, _ = done
    again = tmp_path / "again"
    shutil.copytree(folder, again, ignore=shutil.ignore_patterns("cache"))
    settle(again, monkeypatch, benchmarks={"arenas": {}, "imitation": {}})
    stage.main()
    for name in ("data/eval/samples.jsonl", "data/eval/notes.jsonl", "metrics/eval.json", "plots/eval.csv"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_a_stage_that_goes_on_plays_nothing_again_and_gives_the_same_bytes(done, tmp_path, monkeypatch):
    folder, _ = done
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    settle(again, monkeypatch, benchmarks={"arenas": {}, "imitation": {}})
    monkeypatch.setattr("astra.training.measuring.play_cases", None)  # whoever plays an arena now fails
    monkeypatch.setattr("astra.training.local_model.LocalModel._replied", None)
    stage.main()
    for name in ("data/eval/samples.jsonl", "data/eval/notes.jsonl", "metrics/eval.json", "plots/eval.csv"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.slow  # two more interpreters that import torch
def test_two_processes_give_the_bytes_of_one(done, tmp_path, monkeypatch):
    folder, _ = done
    two = tmp_path / "two"
    shutil.copytree(folder, two, ignore=shutil.ignore_patterns("cache"))
    settle(two, monkeypatch, benchmarks={"arenas": {}, "imitation": {}}, workers=2)
    stage.main()
    for name in ("data/eval/samples.jsonl", "metrics/eval.json"):
        assert (two / name).read_bytes() == (folder / name).read_bytes()


def stopped_with(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        stage.main()
    return int(str(stopped.value.code)), capsys.readouterr().err


def test_a_split_without_arenas_is_named(tmp_path, monkeypatch, capsys):
    some = [one for one in arenas() if one.split != "heldout_tools"]
    lay_out(tmp_path, {"data/merge/arenas.jsonl": list(some)})
    settle(tmp_path, monkeypatch, models={"m": ENDPOINT}, pairs=[])
    code, said = stopped_with(capsys)
    assert code == 2
    assert "no arenas for heldout_tools" in said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"benchmarks": {"bfcl_v5_*": {}}}, ("'bfcl_v5_*' fits no benchmark", "bfcl_v4_multi_turn_base")),
        ({"benchmarks": {"arenas": {"models": ["mine"]}}}, ("no ['mine']", "eval.models has: m")),
        ({"benchmarks": {"arenas": {"models": []}}}, ("arenas.models", "at least 1 item")),
        ({"models": {"old": ENDPOINT, "new": ENDPOINT}}, ("new and old have the same params", "--served-model-name")),
        ({"models": {"m": {"transport": "local", "name": "models/typo", "max_tokens": 8, "context": 512}}},
         ("models/typo: no such folder",)),
        ({"models": {"m": {"transport": "anthropic", "name": "m"}}}, ("eval.models.m", "local or openai")),
        ({"benchmarks": {"arenas": {"trial": 2}}}, ("trial",)),
        ({"max_errors": 1.0}, ("max_errors",)),
    ],
)  # fmt: skip
def test_params_that_mean_nothing_are_named(tmp_path, monkeypatch, capsys, changes, words):
    lay_out(tmp_path)
    settle(tmp_path, monkeypatch, **({"models": {"m": ENDPOINT}} | changes))
    code, said = stopped_with(capsys)
    assert code == 2
    assert all(word in said for word in words), said


def test_a_model_folder_without_weights_is_skipped_with_the_reason(done, tmp_path, monkeypatch, capsys):
    folder, before = done
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    (again / "models/control/model.safetensors").unlink()
    settle(again, monkeypatch)
    metrics = evaluated(again)
    assert set(metrics["models"]) == {"base", "sft", "rl"}
    assert set(metrics["paired"]) == {"sft-base", "rl-sft"}
    assert metrics["models"]["rl"]["heldout"] == before["models"]["rl"]["heldout"]
    assert metrics["benchmarks"]["model control"]["status"] == "skipped: models/control holds no weights"
    assert "model control: skipped" in capsys.readouterr().err


# ---------------------------------------------------------------- endpoints


def giving_up(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return completion(Reply(content="I cannot answer that."))


def cases_of(name: str) -> tuple[Case, ...]:
    return next(one.cases for one in benchmarks(arenas(), Mixing(**MIXING), 3) if one.name == name)


def at_arenas(folder: Path, monkeypatch: pytest.MonkeyPatch, server: ChatServer, **changes: Any) -> None:
    lay_out(folder)
    settle(folder, monkeypatch, **({"models": {"mine": ENDPOINT}, "pairs": []} | changes))
    monkeypatch.setenv("ASTRA_EVAL_BASE_URL", server.url)


def test_an_endpoint_meets_the_arenas_that_local_models_meet(done, tmp_path, monkeypatch):
    folder, _ = done
    with ChatServer(giving_up) as server:
        at_arenas(tmp_path, monkeypatch, server, benchmarks={"arenas": {"trials": 2}})
        metrics = evaluated(tmp_path)
    mine = metrics["models"]["mine"]
    assert mine["refusal"]["greedy"]["refused"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 1, "trials": 2}
    assert mine["heldout"]["greedy"]["f1"]["mean"] == 0.0
    own = {(one.benchmark, one.case) for one in samples_in(folder) if one.benchmark != "imitation"}
    assert {(one.benchmark, one.case) for one in samples_in(tmp_path)} == own
    shown = {case.arena.question: [tool.spec.name for tool in case.tools] for case in cases_of("heldout_entities")}
    sent = [body for body in server.bodies if body["messages"][0]["content"] in shown]
    assert sent
    for body in sent:
        assert [one["function"]["name"] for one in body["tools"]] == shown[body["messages"][0]["content"]]
    assert metrics["used"]["mine"]["calls"] == len(server.bodies) == 2 * 4
    assert "secret" not in (tmp_path / "metrics/eval.json").read_text()


def test_an_endpoint_that_knows_the_way_through_an_arena_gets_all_of_it(tmp_path, monkeypatch):
    def knowing(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        question = body["messages"][0]["content"]
        arena = next(one for one in arenas() if one.question == question)
        done_so_far = sum(one["role"] == "tool" for one in body["messages"])
        if done_so_far == len(arena.probes):
            return completion(Reply(content=f"It is {arena.answer.value}."))
        probe = arena.probes[done_so_far]
        call = {"id": f"c{done_so_far}", "name": probe.tool, "arguments": json.dumps(probe.arguments)}
        return completion(Reply.model_validate({"tool_calls": [call], "stop": "tool_calls"}))

    with ChatServer(knowing) as server:
        at_arenas(tmp_path, monkeypatch, server)
        mine = evaluated(tmp_path)["models"]["mine"]
    for split in SPLITS:
        assert mine[split]["greedy"]["f1"]["mean"] == mine[split]["greedy"]["answer"]["mean"] == 1.0


def test_prompts_that_are_too_long_are_zeros_with_a_note(tmp_path, monkeypatch):
    with ChatServer(too_long) as server:
        at_arenas(tmp_path, monkeypatch, server)
        metrics = evaluated(tmp_path)
    assert metrics["models"]["mine"]["heldout"]["greedy"]["f1"]["mean"] == 0.0
    assert metrics["rejected"] == 0
    assert {one.note for one in read_records(tmp_path / "data/eval/notes.jsonl", Note)} == {"context"}


def down(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 500, {"error": {"message": "out of memory"}}


def test_too_many_errors_stop_the_stage_without_a_number(tmp_path, monkeypatch, capsys):
    with ChatServer(down) as server:
        at_arenas(tmp_path, monkeypatch, server)
        code, said = stopped_with(capsys)
    assert code == 3
    assert "mine at heldout: 1 of 1 cases broke, the first by endpoint_down" in said
    assert "dvc repro eval" in said
    assert not (tmp_path / "metrics/eval.json").exists()
    assert not (tmp_path / "data/eval/samples.jsonl").exists()
    assert len(list(read_records(tmp_path / "data/eval/rejects.jsonl", Reject))) == 4


def test_errors_within_the_limit_are_rejects_in_no_mean(tmp_path, monkeypatch):
    trials = 4

    def shaky(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        is_last = body["seed"] == Draw(seed=3, benchmark="refusal", case="arena-japan", trial=trials - 1, turn=0).number
        return (400, {"error": {"message": "no such parser"}}) if is_last else giving_up(body)

    with ChatServer(shaky) as server:
        at_arenas(tmp_path, monkeypatch, server, max_errors=0.25, benchmarks={"arenas": {"trials": trials}})
        metrics = evaluated(tmp_path)
    assert metrics["errors"] == {"mine": {"refusal": {"bad_request": 1}}}
    assert metrics["rejects"] == {"bad_request": 1}
    assert metrics["models"]["mine"]["refusal"]["greedy"]["refused"] == {
        "mean": 1.0, "low": 1.0, "high": 1.0, "n": 1, "trials": trials - 1}  # fmt: skip
    errors = pd.read_csv(tmp_path / "plots/eval.csv").groupby("benchmark")["errors"].max()
    assert errors["refusal"] == 1
    assert errors["heldout"] == 0


# ---------------------------------------------------------------- public benchmarks


def with_wheels(folder: Path) -> None:
    """What stage bench_env leaves."""
    made = wheels._wheels("packages", "bfcl", wheels.REQUIREMENTS / "bfcl.txt")
    shutil.copytree(made, folder / "data/bench_env/packages")
    (folder / "data/bench_env/extras").mkdir()


def test_an_oracle_behind_an_address_gets_all_of_bfcl_and_a_silent_model_none_of_it(tmp_path, monkeypatch):
    with_wheels(tmp_path)
    with ChatServer(oracle(wheels.environments("bfcl"), 3)) as knowing, ChatServer(giving_up) as silent:
        at_arenas(
            tmp_path, monkeypatch, silent, benchmarks={"bfcl_v4_*": {"cases": 2}},
            models={"oracle": ENDPOINT, "silent": ENDPOINT | {"name": "n"}}, pairs=[["oracle", "silent"]],
        )  # fmt: skip
        monkeypatch.setenv("ASTRA_EVAL_ORACLE_BASE_URL", knowing.url)
        monkeypatch.setenv("ASTRA_EVAL_ORACLE_API_KEY", "secret-key-43")
        metrics = evaluated(tmp_path)
    assert len(CATEGORIES) == 4
    for name in CATEGORIES:
        scores = {model: metrics["models"][model][name]["greedy"]["accuracy"]["mean"] for model in ("oracle", "silent")}
        assert scores == {"oracle": 1.0, "silent": 0.0}, name
        assert metrics["paired"]["oracle-silent"][name]["greedy"]["accuracy"]["p"] == 0.5
        status = metrics["benchmarks"][name]
        assert (status["status"], status["version"], status["cases"]) == ("ran", "bfcl-eval 2026.3.23", 2)
    kept = [one for one in samples_in(tmp_path) if one.model == "oracle"]
    assert all({"user", "assistant", "tool"} == {message.role for message in one.messages} for one in kept)


def test_a_benchmark_that_cannot_be_run_here_is_skipped_with_the_reason(tmp_path, monkeypatch, capsys):
    with ChatServer(giving_up) as server:
        at_arenas(tmp_path, monkeypatch, server, benchmarks={"arenas": {}, "bfcl_v4_*": {"cases": 1}})
        metrics = evaluated(tmp_path)
    for name in CATEGORIES:
        assert metrics["benchmarks"][name]["status"].startswith(f"skipped: {name}: ")
        assert name not in metrics["models"]["mine"]
    assert "dvc repro bench_env" in capsys.readouterr().err


def test_a_refusal_case_lacks_one_tool_that_it_needs():
    sets = {one.name: one.cases for one in benchmarks(arenas(), Mixing(**MIXING), 3)}
    for case in sets["refusal"]:
        names = {tool.spec.name for tool in case.tools}
        assert case.missing in {probe.tool for probe in case.arena.probes}
        assert case.missing not in names
    for split in SPLITS:
        for case in sets[split]:
            assert {probe.tool for probe in case.arena.probes} <= {tool.spec.name for tool in case.tools}
