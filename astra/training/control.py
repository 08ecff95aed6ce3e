"""The control that RL is compared with: SFT continued on its own rows for the compute that RL used."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd

from astra.chat import Encoded
from astra.training.imitation import Checkpoints, Schedule
from astra.training.launch import Launcher
from astra.training.lesson import Lesson, teach

FORWARD, UPDATE = 2, 6  # floating point operations a parameter and token: a forward pass, a forward and a backward
SAVING = Checkpoints(every=50, keep=2, heldout=0.0)  # for a killed stage


def compute_in_rows(n_sampled: float, n_updated: float) -> float:
    """RL's compute as tokens of SFT: sampling is a forward pass, an update is a forward and a backward pass."""
    return (FORWARD * n_sampled + UPDATE * n_updated) / UPDATE


def control_rows(rows: pd.DataFrame, n_tokens: float, seed: int) -> list[Encoded]:
    """Shuffled SFT rows up to that many tokens, going round as often as needed."""
    found: list[Encoded] = []
    total = 0
    rng = random.Random(f"{seed}:control")
    while total < n_tokens:
        for place in rng.sample(range(len(rows)), len(rows)):
            row = rows.iloc[place]
            found.append(Encoded([int(token) for token in row["input_ids"]], [int(flag) for flag in row["mask"]]))
            total += len(found[-1].ids)
            if total >= n_tokens:
                break
    return found


def train_control(
    start: Path,
    rows: pd.DataFrame,
    schedule: Schedule,
    n_tokens: float,
    seed: int,
    launcher: Launcher,
    target: Path,
    threads: int,
) -> int:
    """SFT of the model in ``start`` continued for that many tokens, into ``target``; the number of rows.

    Raises LossInvalid and LaunchFailed.
    """
    chosen = control_rows(rows, n_tokens, seed)
    once = schedule.model_copy(update={"epochs": 1.0, "short_first": 0.0})
    lesson = Lesson(base=str(start), schedule=once, seed=seed + 1, checkpoints=SAVING)
    teach(lesson, chosen, [], launcher, target, threads)
    return len(chosen)
