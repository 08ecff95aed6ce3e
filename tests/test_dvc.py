"""The whole pipeline on a small copy: what runs, what runs again after a change, and that the data are reproducible.

The run is that of ``small_run``, which other files share; while it is made, a second copy makes the data from nothing on
the other core. The stand-ins of test_hard_cases_dvc.py prove what goes stale by which parameter or module.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from astra.records import Arena, Rollout, Trajectory
from astra.splits import Heldout, of_messages, of_steps
from astra.stage import read_records
from tests.conftest import SmallRun
from tests.small_run import change, copy_repository, ran, run
from tests.test_pipeline import DATA_STAGES, STAGES, contract

pytestmark = pytest.mark.timeout(900)

MADE_AGAIN = [stage for stage in DATA_STAGES if stage != "bench_env"]  # whose wheels are pinned by hash


def make_data(folder: Path) -> Path:
    """The nine data stages without DVC."""
    copy_repository(folder)
    for stage in MADE_AGAIN:
        run(folder, sys.executable, "-m", f"stages.{stage}")
    return folder


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Path]]:
    """The data once more, in another folder; made while the tests before wait for the run."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(make_data, tmp_path_factory.mktemp("again"))


@pytest.fixture(scope="module")
def small(again: Future[Path], small_run: SmallRun) -> Path:
    """The folder of the run, read only."""
    return small_run.folder


@pytest.fixture(scope="module")
def changed(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run that may be changed."""
    return small_run.copy(tmp_path_factory.mktemp("changed") / "repository")


def test_one_command_runs_all_stages_and_every_record_is_accounted_for(small, small_run):
    assert sorted(ran(small_run.output)) == sorted(STAGES)
    for stage in STAGES:
        metrics = json.loads((small / f"metrics/{stage}.json").read_text())
        assert metrics["in"] == metrics["out"] + metrics["rejected"]
        rejects = (small / f"data/{stage}/rejects.jsonl").read_text().splitlines()
        assert len(rejects) == metrics["rejected"]


def test_again_runs_nothing(changed):
    assert ran(run(changed, "dvc", "repro")) == []


@pytest.mark.parametrize(
    ("key", "value", "again", "never"),
    [
        ("sft.min_score", 0.99, ["sft", "rl", "eval"], ["score", "merge"]),
        ("rl.reward", "recall", ["rl", "eval"], ["sft", "merge"]),
        ("chains.max_length", 2, ["chains", "tasks", "trajectories", "score", "sft", "rl", "eval"], ["graph", "merge"]),
        ("envsynth.decoys", 5, ["envsynth", "merge", "sft", "rl", "eval"], ["decompose", "normalize", "score"]),
    ],
)
def test_a_changed_parameter_would_rerun_its_stage_and_what_follows_and_nothing_else(changed, key, value, again, never):
    before = (changed / "params.yaml").read_text()
    change(changed, key, value)
    try:
        stale = ran(run(changed, "dvc", "repro", "--dry"))
        ripple = ran(run(changed, "dvc", "repro", "--dry", "--force-downstream"))
    finally:
        (changed / "params.yaml").write_text(before)
    assert stale == again[:1]
    assert set(again) <= set(ripple)
    assert not set(ripple) & set(never)


def test_an_experiment_reruns_two_stages_and_can_be_compared(changed):
    # fewer updates too: at this size a policy may earn nothing under either reward, and equal bytes stop the ripple
    output = run(changed, "dvc", "exp", "run", "-n", "recall", "-S", "rl.reward=recall", "-S", "rl.grpo.updates=1")
    assert sorted(ran(output)) == ["eval", "report", "rl"]
    assert "recall" in run(changed, "dvc", "exp", "show", "--md", "--only-changed", "--drop", ".*\\.py|data/.*")
    assert "rl.reward" in run(changed, "dvc", "params", "diff")
    assert "metrics/rl.json" in run(changed, "dvc", "metrics", "diff", "--md")
    run(changed, "dvc", "plots", "diff", "-o", "compared")
    assert "workspace" in (changed / "compared" / "index.html").read_text()
    run(changed, "dvc", "plots", "show", "-o", "shown")
    page = (changed / "shown" / "index.html").read_text()
    for curve in ("plots/sft.csv", "plots/rl.csv", "plots/f1.csv"):
        assert curve in page or "vega" in page
    assert "reward" in page
    assert "zero_variance" in page


def contents(path: Path) -> dict[str, bytes]:
    """A file's bytes, or those of every file in a folder, but for what DVC puts there."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(one.relative_to(path)): one.read_bytes() for one in files if one.is_file() and one.name != ".gitignore"}


def test_the_nine_data_stages_give_the_same_bytes_from_nothing(small, again):
    folder = again.result()
    for stage in MADE_AGAIN:
        one = contract(stage)
        for name in [*one.writes.values(), one.rejects, one.metrics]:
            made, first = contents(folder / name), contents(small / name)
            assert made == first, name


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
