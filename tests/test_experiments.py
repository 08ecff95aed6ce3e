"""Seeds times rewards through DVC's queue, as docs/experiments.md has it: nine experiments, one table, one plot."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path

import pytest

from tests.small_run import attempt, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]

SEEDS, REWARDS = (17, 18, 19), ("f1", "recall", "precision")
# so that it takes minutes; with so few demonstrations most rows are long trajectories
FEWER = {"sft.demonstrations.count": 40, "sft.max_untrainable": 0.9, "rl.grpo.updates": 1, "rl.control": "false"}


def wait(folder: Path, limit_s: float) -> str:
    """The queue's last state, once nothing is queued or running any more."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        state = run(folder, "dvc", "queue", "status")
        if not re.search(r"\b(Queued|Running)\b", state.partition("Worker status")[0]):
            return state
        time.sleep(5)
    raise AssertionError(f"the queue is not done after {limit_s:.0f} s:\n{state}")


@pytest.fixture(scope="module")
def queued(small_run, tmp_path_factory) -> Path:
    """A copy in whose queue all nine ran, two at a time. Never ``dvc queue stop``: its message outlives the workers."""
    folder = small_run.copy(tmp_path_factory.mktemp("queued") / "repository")
    grid = ["-S", f"seed={','.join(map(str, SEEDS))}", "-S", f"rl.reward={','.join(REWARDS)}"]
    fewer = [part for key, value in FEWER.items() for part in ("-S", f"{key}={value}")]
    run(folder, "dvc", "exp", "run", "--queue", *grid, *fewer)
    assert run(folder, "dvc", "queue", "status").count("Queued") == len(SEEDS) * len(REWARDS)
    run(folder, "dvc", "queue", "start", "-j", "2")
    state = wait(folder, 4800)
    assert state.count("Success") == len(SEEDS) * len(REWARDS), state + attempt(folder, "dvc", "queue", "logs").stdout
    return folder


def table(folder: Path) -> list[dict[str, str]]:
    """The experiments of ``dvc exp show``."""
    shown = run(folder, "dvc", "exp", "show", "--csv", "--drop", r".*\.py|data/.*|models/.*")
    rows = csv.DictReader(io.StringIO(shown[shown.index("Experiment") :]))
    return [row for row in rows if row.get("Experiment")]


def column(rows: list[dict[str, str]], name: str) -> str:
    return next(key for key in rows[0] if key == name or key.endswith(f":{name}"))


def test_one_table_shows_all_nine_with_their_seed_reward_and_metrics(queued):
    rows = table(queued)
    seed, reward = column(rows, "seed"), column(rows, "rl.reward")
    assert {(int(row[seed]), row[reward]) for row in rows} == {(one, other) for one in SEEDS for other in REWARDS}
    arenas = column(rows, "metrics/merge.json:out")
    assert all(row[arenas] for row in rows)


def test_params_and_metrics_of_two_of_them_can_be_compared(queued):
    rows = table(queued)
    seed, reward = column(rows, "seed"), column(rows, "rl.reward")
    by = {(row[seed], row[reward]): row["Experiment"] for row in rows}
    one, other = by["17", "f1"], by["18", "recall"]
    changed = run(queued, "dvc", "params", "diff", one, other, "--md")
    assert "rl.reward" in changed
    assert "seed" in changed
    assert "metrics/rl.json" in run(queued, "dvc", "metrics", "diff", one, other, "--md")


def test_one_plot_shows_all_nine(queued):
    names = [row["Experiment"] for row in table(queued)]
    run(queued, "dvc", "plots", "diff", *names, "-o", "shown")
    page = (queued / "shown/index.html").read_text()
    assert not [name for name in names if name not in page]
