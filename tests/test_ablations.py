"""Ablations: the plan's arms become DVC commands, what ran is found again, and the figures are right by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from astra.ablations.__main__ import main
from astra.ablations.collecting import CASES, CURVES, Experiment, collect, experiments, keep, workspaces
from astra.ablations.figures import curve_bands, estimate, figures_of
from astra.ablations.plan import Plan, Side, Trial, flags, read_plan, trials
from astra.nested import leaves
from astra.stage import StageError
from stages import ablations
from tests.import_closure import ROOT

PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())
PLAN = {
    "seeds": [1, 2],
    "arms": {"default": {}, "recall": {"rl": {"reward": "recall"}}},
    "without": {"rl": {"control": False}},
    "studies": {"reward": {"f1": "default/rl", "recall": "recall/rl"}},
}


def workspace(folder: Path, params: dict, f1: float, cases: int = 4) -> Path:
    """What a run leaves that is collected."""
    (folder / "plots").mkdir(parents=True)
    (folder / "data/eval").mkdir(parents=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    measures = {"reward": f1, "recall": f1, "precision": f1, "calls": 2, "zero_variance": 0}
    pd.DataFrame([{"update": n, **measures} for n in range(3)]).to_csv(folder / "plots/rl.csv", index=False)
    scores = {"f1": f1, "recall": f1, "precision": f1, "calls": 2.0, "answer": 1.0}
    samples = [
        {"model": "rl", "benchmark": "heldout", "case": f"c{n}", "mode": mode, "scores": scores}
        for n in range(cases)
        for mode in ("greedy", "sampled")
    ]
    (folder / "data/eval/samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    return folder


def changed(**values: object) -> dict:
    """Params with some of rl's changed."""
    return {"seed": 1, "rl": {"reward": "f1", "control": True, **values}}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    (tmp_path / "ablations").mkdir()
    (tmp_path / "ablations/plan.yaml").write_text(yaml.safe_dump(PLAN))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(changed()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(*words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout.strip()


def test_every_key_of_the_committed_plan_is_a_key_of_params():
    plan = read_plan(ROOT / "ablations/plan.yaml")
    known = dict(leaves(PARAMS))
    for arm in [*plan.arms.values(), plan.without]:
        assert {key for key, _ in leaves(arm)} <= set(known)


def test_the_committed_arms_differ_from_the_default_and_from_each_other():
    plan = read_plan(ROOT / "ablations/plan.yaml")
    known = dict(leaves(PARAMS))
    states = [tuple(sorted({**known, **dict(leaves(arm))}.items(), key=str)) for arm in plan.arms.values()]
    assert len({str(one) for one in states}) == len(plan.arms)


def test_the_stage_draws_the_studies_of_the_committed_plan():
    assert tuple(read_plan(ROOT / "ablations/plan.yaml").studies) == ablations.STUDIES


def test_a_trial_is_one_dvc_experiment_with_its_params():
    plan = Plan.model_validate(PLAN)
    assert flags(plan, Trial("recall", 2)) == ["-S", "seed=2", "-S", "rl.control=false", "-S", "rl.reward=recall"]
    assert flags(plan, Trial("default", 1)) == ["-S", "seed=1"]


def test_trials_come_seed_by_seed():
    plan = Plan.model_validate(PLAN)
    assert [one.name for one in trials(plan, [], [1, 2])] == ["default-s1", "recall-s1", "default-s2", "recall-s2"]


def test_an_unknown_study_is_named_with_those_there_are(repository, capsys):
    assert main(["run", "rewards", "--dry"]) == 2
    assert "rewards" in capsys.readouterr().err


def test_a_study_of_an_unknown_arm_is_an_error_with_its_key(repository):
    (repository / "ablations/plan.yaml").write_text(yaml.safe_dump({**PLAN, "studies": {"reward": {"f1": "other/rl"}}}))
    with pytest.raises(StageError, match="other/rl"):
        read_plan()


def test_a_workspace_is_known_by_its_params(repository):
    plan = read_plan()
    found = workspaces(plan, [workspace(repository / "a", changed(reward="recall", control=False), 0.5)])
    assert list(found) == [Trial("recall", 1)]


def test_a_workspace_of_no_arm_is_refused(repository):
    folder = workspace(repository / "a", changed(reward="cost"), 0.5)
    with pytest.raises(StageError, match="no arm"):
        workspaces(read_plan(), [folder])


def test_a_workspace_without_a_run_is_refused(repository):
    with pytest.raises(StageError, match="no such file"):
        workspaces(read_plan(), [repository / "nowhere"])


def test_an_experiment_is_found_by_its_name_and_read_at_its_revision(repository):
    git("init", "-q")
    workspace(repository / "run", changed(reward="recall"), 0.5)
    for name in ("plots", "data"):
        shutil.move(repository / "run" / name, repository / name)
    git("add", "-A", "-f")
    git("commit", "-qm", "a run")
    git("update-ref", "refs/exps/ab/cdef/recall-s1", "HEAD")
    found = experiments(read_plan(), [Trial("default", 1), Trial("recall", 1)])
    assert list(found) == [Trial("recall", 1)]
    curves, cases = collect(found)
    assert len(curves) == 3
    assert set(cases["f1"]) == {0.5}


def test_a_file_that_no_cache_has_is_an_error_that_names_the_experiment(repository):
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "nothing")
    with pytest.raises(StageError, match="recall-s1: plots/rl.csv"):
        Experiment("recall-s1", git("rev-parse", "HEAD")).read("plots/rl.csv")


def test_nothing_run_is_no_table(repository):
    with pytest.raises(StageError, match="has been run"):
        collect({})


def test_a_trial_that_ran_again_takes_the_place_of_its_old_rows(repository):
    plan = read_plan()
    keep(*collect(workspaces(plan, [workspace(repository / "a", changed(), 0.5)])))
    keep(*collect(workspaces(plan, [workspace(repository / "b", changed(reward="recall"), 0.25)])))
    keep(*collect(workspaces(plan, [workspace(repository / "c", changed(), 0.75)])))
    cases = pd.read_csv(CASES)
    assert cases.groupby("arm")["f1"].mean().to_dict() == {"default": 0.75, "recall": 0.25}
    assert len(pd.read_csv(CURVES)) == 6


def test_the_stage_says_what_was_not_run_and_measures_the_rest(repository):
    (repository / "ablations/plan.yaml").write_text((ROOT / "ablations/plan.yaml").read_text())
    base = {"seed": 1, "rl": PARAMS["rl"]}
    (repository / "params.yaml").write_text(yaml.safe_dump(base))
    recall = {"seed": 1, "rl": {**PARAMS["rl"], "reward": "recall", "control": False}}
    folders = [workspace(repository / "a", base, 0.75), workspace(repository / "b", recall, 0.25)]
    assert main(["collect", *map(str, folders)]) == 0
    ablations.main()
    found = json.loads((repository / "metrics/ablations.json").read_text())
    assert found["reward"]["recall"]["heldout"]["f1"]["less_first"]["mean"] == -0.5
    assert found["reward"]["precision"] == {"status": "not run: arm precision"}
    assert set(pd.read_csv("plots/ablation_reward.csv")["curve"]) == {"f1", "recall"}


def test_an_estimate_is_the_mean_of_the_seeds_means_with_n_of_all_cases():
    index = pd.MultiIndex.from_tuples([(1, "a"), (1, "b"), (2, "a")], names=["seed", "case"])
    found = estimate(pd.Series([0.0, 1.0, 1.0], index=index))
    assert found["mean"] == 0.75
    assert found["n"] == 3
    assert found["seeds"] == {"1": 0.5, "2": 1.0}
    assert found["low"] <= 0.75 <= found["high"]


def test_a_difference_is_paired_by_seed_and_case():
    def rows(f1: list[float]) -> pd.DataFrame:
        place = {"benchmark": "heldout", "seed": 1, "recall": 0.0, "precision": 0.0, "calls": 0.0, "answer": 0.0}
        return pd.DataFrame([{**place, "case": str(n), "f1": value} for n, value in enumerate(f1)])

    found = figures_of(rows([0.5, 0.0]), rows([0.25, 0.25, 1.0]))["heldout"]["f1"]["less_first"]
    assert (found["mean"], found["n"]) == (0.0, 2)


def test_the_band_of_a_curve_is_the_t_interval_over_seeds():
    rows = [
        {"arm": "default", "seed": seed, "update": 0, "recall": value, "precision": 0, "calls": 0, "zero_variance": 0}
        for seed, value in ((1, 0.2), (2, 0.4), (3, 0.6))
    ]
    found = curve_bands(pd.DataFrame(rows), {"f1": Side("default", "rl"), "sft": Side("default", "sft")})
    band = found[found["measure"] == "recall"].iloc[0]
    assert band["mean"] == pytest.approx(0.4)
    assert band["high"] - band["mean"] == pytest.approx(4.3027 * 0.2 / np.sqrt(3), abs=1e-3)
    assert set(found["curve"]) == {"f1"}
