"""The whole pipeline on a small copy: what runs, what runs again after a change, and that the data are reproducible.

One module-scoped copy of the repository with small numbers; the tests go on from each other's runs, in file order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from astra.records import Arena, Rollout, Trajectory
from astra.splits import Heldout, of_messages, of_steps
from astra.stage import read_records
from tests.import_closure import ROOT
from tests.test_pipeline import DATA_STAGES, STAGES, contract

pytestmark = pytest.mark.timeout(900)

SMALL = {
    "chains": {"budget": 4, "budget_of": {"knowledge": 20}},
    "tasks": {"per_server": 2, "per_server_of": {"knowledge": 20}},
    "trajectories": {"attempts": 1},
    "decompose": {"questions": {"train": 60, "heldout": 24, "heldout_entities": 8, "heldout_tools": 8}},
    "sft": {"demonstrations": {"count": 160}, "max_length": 400},
    "rl": {
        "grpo": {"updates": 2, "groups": 2, "group": 4, "micro_batch": 8},
        "filling": {"max_rounds": 2, "on_exhausted": "pad"},
        "rollouts_every": 1,
    },
    "eval": {"batch": 64},
}


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "DVC_", "GIT_"))}
    identity = {f"GIT_{role}_{what}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {**kept, **identity, "PATH": path, "PYTHONPATH": ""}


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def merged(tree: dict, change: dict) -> dict:
    return {key: merged(value, change[key]) if isinstance(change.get(key), dict) else change.get(key, value)
            for key, value in tree.items()}  # fmt: skip


def copy_repository(target: Path) -> None:
    """What git would track, as it is in the working tree, with small params; a repository of its own."""
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in tracked.stdout.splitlines():
        if (ROOT / name).is_file() and name != "dvc.lock" and not name.startswith(("metrics/", "plots/")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    params = merged(yaml.safe_load((ROOT / "params.yaml").read_text()), SMALL)
    (target / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    run(target, "git", "init", "-q")
    run(target, "git", "add", "-A")
    run(target, "git", "commit", "-q", "-m", "small copy")


def ran(output: str) -> list[str]:
    """Stages that a ``dvc repro`` said it runs."""
    return re.findall(r"Running stage '(\w+)'", output)


def change(folder: Path, key: str, value: object) -> None:
    """Set one dotted key of params.yaml, and nothing else."""
    tree = yaml.safe_load((folder / "params.yaml").read_text())
    *parents, last = key.split(".")
    place = tree
    for parent in parents:
        place = place[parent]
    assert last in place
    place[last] = value
    (folder / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    copy_repository(folder)
    return folder


def test_one_command_runs_all_twelve_stages_and_every_record_is_accounted_for(small):
    output = run(small, "dvc", "repro")
    assert sorted(ran(output)) == sorted(STAGES)
    for stage in STAGES:
        metrics = json.loads((small / f"metrics/{stage}.json").read_text())
        assert metrics["in"] == metrics["out"] + metrics["rejected"]
        rejects = (small / f"data/{stage}/rejects.jsonl").read_text().splitlines()
        assert len(rejects) == metrics["rejected"]
    run(small, "git", "add", "-A")
    run(small, "git", "commit", "-q", "-m", "first run")


def test_again_runs_nothing(small):
    assert ran(run(small, "dvc", "repro")) == []


@pytest.mark.parametrize(
    ("key", "value", "again"),
    [
        ("sft.min_score", 0.99, STAGES[9:]),
        ("chains.max_length", 2, [*STAGES[2:6], *STAGES[9:]]),
    ],
)
def test_a_changed_parameter_reruns_its_stage_and_what_follows_only(small, key, value, again):
    change(small, key, value)
    assert sorted(ran(run(small, "dvc", "repro"))) == sorted(again)
    run(small, "git", "commit", "-q", "-a", "-m", f"{key} {value}")


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_stale_after_any_of_its_own_parameters_changed(small, stage):
    section = yaml.safe_load((small / "params.yaml").read_text())[stage]
    before = (small / "params.yaml").read_text()
    tree = yaml.safe_load(before)
    first = next(iter(section))
    tree[stage][first] = f"not {section[first]}"
    (small / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    try:
        status = run(small, "dvc", "status", stage)
        assert "params.yaml" in status
    finally:
        (small / "params.yaml").write_text(before)


def test_an_experiment_reruns_two_stages_and_can_be_compared(small):
    # fewer updates too: at this size a policy may earn nothing under either reward, and equal bytes stop the ripple
    output = run(small, "dvc", "exp", "run", "-n", "recall", "-S", "rl.reward=recall", "-S", "rl.grpo.updates=1")
    assert sorted(ran(output)) == ["eval", "rl"]
    assert "recall" in run(small, "dvc", "exp", "show", "--md", "--only-changed", "--drop", ".*\\.py|data/.*")
    assert "rl.reward" in run(small, "dvc", "params", "diff")
    assert "metrics/rl.json" in run(small, "dvc", "metrics", "diff", "--md")
    run(small, "dvc", "plots", "show", "-o", "shown")
    page = (small / "shown" / "index.html").read_text()
    for curve in ("plots/sft.csv", "plots/rl.csv", "plots/f1.csv"):
        assert curve in page or "vega" in page
    assert "reward" in page
    assert "zero_variance" in page


def contents(path: Path) -> dict[str, bytes]:
    """A file's bytes, or those of every file in a folder, but for what DVC puts there."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(one.relative_to(path)): one.read_bytes() for one in files if one.is_file() and one.name != ".gitignore"}


def test_the_nine_data_stages_give_the_same_bytes_from_nothing(small, tmp_path):
    copy_repository(tmp_path)
    shutil.copy2(small / "params.yaml", tmp_path / "params.yaml")
    for stage in DATA_STAGES:
        run(tmp_path, sys.executable, "-m", f"stages.{stage}")
    for stage in DATA_STAGES:
        one = contract(stage)
        for name in [*one.writes.values(), one.rejects, one.metrics]:
            again, first = contents(tmp_path / name), contents(small / name)
            assert again == first, name


def test_every_arena_passes_its_acceptance_when_replayed_from_the_written_file(small):
    output = run(small, sys.executable, "-m", "stages.merge", "--verify", "data/merge/arenas.jsonl")
    assert re.search(r"\b0 (certificates )?wrong", output), output


def test_nothing_that_was_trained_on_or_practised_in_touches_held_out_content(small):
    arenas = list(read_records(small / "data/merge/arenas.jsonl", Arena))
    heldout = Heldout.of(arenas)
    assert min(map(len, heldout)) > 0
    for arena in arenas:
        if arena.split == "train":
            assert heldout.conflict(arena.question, of_steps(arena.steps)) is None
    rows = set(pd.read_parquet(small / "data/sft/train.parquet")["id"])
    imitated = [
        one for one in read_records(small / "data/trajectories/trajectories.jsonl", Trajectory) if one.id in rows
    ]
    assert imitated
    for one in imitated:
        question = next(message.content or "" for message in one.messages if message.role == "user")
        assert heldout.conflict(question, of_messages(one.messages)) is None
    for rollout in read_records(small / "data/rl/rollouts.jsonl", Rollout):
        read = of_messages(rollout.messages)
        assert not read.facts & heldout.facts
        assert not read.relations & heldout.relations
        assert not read.entities & heldout.entities


def test_a_trajectory_and_an_arena_can_be_read(small):
    talk = run(small, sys.executable, "-m", "astra.show", "trajectory")
    assert "user:" in talk
    assert "overall" in talk
    arena = run(small, sys.executable, "-m", "astra.show", "arena")
    assert "golden call for step 1" in arena
    assert "def " in arena
    assert "certificate" in arena
    missing = subprocess.run(
        [sys.executable, "-m", "astra.show", "arena-none"], cwd=small, capture_output=True, text=True
    )
    assert missing.returncode == 2
    assert "no record 'arena-none'" in missing.stderr
