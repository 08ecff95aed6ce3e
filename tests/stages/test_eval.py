"""Eval as a script on tiny fixtures, and its tables on literals."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import yaml

from astra.records import Sample
from astra.stage import read_records, write_records
from astra.training.distractors import Mixing
from astra.training.policy import save_policy
from stages import eval as stage
from tests.stages.training_run import MIXING, PARAMS, arenas, lay_out
from tests.training.tiny import new_chat, new_tiny


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    lay_out(folder)
    chat = new_chat()
    for seed, name in enumerate(stage.MODELS):
        save_policy(new_tiny(chat, seed), chat, folder / "models" / name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        stage.main()
    return folder, json.loads((folder / "metrics/eval.json").read_text(encoding="utf-8"))


def test_every_model_meets_every_case_in_both_modes(done):
    folder, metrics = done
    samples = list(read_records(folder / "data/eval/samples.jsonl", Sample))
    assert len(samples) == metrics["in"] == 4 * 2 * 4  # models, modes, cases: three splits and one refusal
    assert {(one.model, one.benchmark, one.mode) for one in samples} == {
        (model, benchmark, mode)
        for model in stage.MODELS
        for benchmark in (*stage.SPLITS, "refusal")
        for mode in ("greedy", "sampled")
    }


def test_every_number_has_n_and_an_interval(done):
    _, metrics = done
    for sets in metrics["models"].values():
        for modes in sets.values():
            for measures in modes.values():
                assert all({"mean", "low", "high", "n"} == set(value) for value in measures.values())
    assert set(metrics["paired"]) == {"sft-base", "rl-sft", "rl-control"}
    assert set(metrics["models"]["rl"]["heldout"]["greedy"]) == {
        "f1",
        "recall",
        "precision",
        "calls",
        "answer",
        "refused",
    }


def test_the_plot_has_a_row_a_number(done):
    folder, _ = done
    assert {"model", "benchmark", "mode", "measure", "mean", "low", "high", "n"} == set(
        pd.read_csv(folder / "plots/eval.csv").columns
    )


def test_a_second_run_gives_the_same_bytes(done, tmp_path, monkeypatch):
    folder, _ = done
    shutil.copytree(folder, tmp_path / "again")
    monkeypatch.chdir(tmp_path / "again")
    stage.main()
    for name in ("data/eval/samples.jsonl", "metrics/eval.json", "plots/eval.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.slow  # two more interpreters that import torch
def test_two_processes_give_the_bytes_of_one(done, tmp_path, monkeypatch):
    folder, _ = done
    shutil.copytree(folder, tmp_path / "two")
    params = {**PARAMS, "eval": PARAMS["eval"] | {"workers": 2}}
    (tmp_path / "two/params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "two")
    stage.main()
    assert (tmp_path / "two/data/eval/samples.jsonl").read_bytes() == (folder / "data/eval/samples.jsonl").read_bytes()


def test_a_split_without_arenas_is_named(done, tmp_path, monkeypatch, capsys):
    folder, _ = done
    shutil.copytree(folder, tmp_path / "less")
    write_records(tmp_path / "less/data/merge/arenas.jsonl", [one for one in arenas() if one.split != "heldout_tools"])
    monkeypatch.chdir(tmp_path / "less")
    with pytest.raises(SystemExit) as stopped:
        stage.main()
    assert stopped.value.code == 2
    assert "no arenas for heldout_tools" in capsys.readouterr().err


def test_a_refusal_case_lacks_one_tool_that_it_needs():
    sets = {one.name: one.cases for one in stage.benchmarks(arenas(), Mixing(**MIXING), 3)}
    for case in sets["refusal"]:
        names = {tool.spec.name for tool in case.tools}
        assert case.missing in {probe.tool for probe in case.arena.probes}
        assert case.missing not in names
    for split in stage.SPLITS:
        for case in sets[split]:
            assert {probe.tool for probe in case.arena.probes} <= {tool.spec.name for tool in case.tools}


def sample(model: str, case: str, f1: float) -> Sample:
    return Sample(
        model=model,
        benchmark="heldout",
        case=case,
        trial=0,
        mode="greedy",
        scores={"f1": f1, "answer": 0.0},
        messages=(),
    )


def test_differences_are_paired_by_case():
    scores = {"base": (0.0, 0.0), "sft": (0.2, 0.6), "rl": (0.5, 0.9), "control": (0.9, 0.5)}
    samples = [
        sample(model, f"c{case}", value) for model, values in scores.items() for case, value in enumerate(values)
    ]
    found = stage.table(samples)
    gain = found["paired"]["rl-sft"]["heldout"]["greedy"]["f1"]
    assert gain == {"mean": 0.3, "low": 0.3, "high": 0.3, "n": 2}
    assert found["paired"]["rl-control"]["heldout"]["greedy"]["f1"]["mean"] == 0.0
    assert found["models"]["sft"]["heldout"]["greedy"]["f1"]["mean"] == 0.4
