"""Training on two processes: whatever shards weights or conversations gives what one process gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from astra.training.imitation import Schedule
from astra.training.launch import CONFIGS, Launcher
from astra.training.lesson import Lesson, teach
from astra.training.policy import save_policy
from tests.import_closure import ROOT
from tests.training.tiny import conversations, new_chat, new_tiny

SCHEDULE = Schedule(
    epochs=1, batch=4, micro_batch=2, optimiser="adamw", lr=0.003, muon_lr=0.02, weight_decay=0.01, warmup_steps=1,
    decay="cosine", decay_share=1.0, short_first=0.0,
)  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first time, DeepSpeed's operator is compiled
ALONE = Launcher(kind="none", processes=1, nodes=1, config=None)


def two(kind: str, config: str | None = None) -> Launcher:
    return Launcher(kind=kind, processes=2, nodes=1, config=config)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a base model, the accelerate files, and the project's compiled operators."""
    folder = tmp_path_factory.mktemp("launched")
    chat = new_chat()
    save_policy(new_tiny(chat), chat, folder / "base")
    (folder / CONFIGS).symlink_to(ROOT / CONFIGS)
    (folder / ".cache").mkdir()
    (ROOT / ".cache/torch_extensions").mkdir(parents=True, exist_ok=True)
    (folder / ".cache/torch_extensions").symlink_to(ROOT / ".cache/torch_extensions")
    before, path = Path.cwd(), os.environ.get("PYTHONPATH")
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(ROOT)
    yield chat
    os.chdir(before)
    os.environ.pop("PYTHONPATH") if path is None else os.environ.update(PYTHONPATH=path)


def taught(chat, launcher: Launcher, out: str, **changes):
    lesson = Lesson(**{"base": "base", "schedule": SCHEDULE, "seed": 1, **changes})
    done = teach(lesson, conversations(chat, 24), conversations(chat, 4) if changes else [], launcher, Path(out), 1)
    return done, load_file(Path(out) / "model.safetensors")


@pytest.fixture(scope="module")
def alone(place):
    return taught(place, ALONE, "alone")


@pytest.mark.parametrize(
    "launcher",
    [two("torchrun"), two("accelerate", "zero2"), two("accelerate", "zero3"), two("accelerate", "zero3-sp2")],
)
def test_two_ranks_learn_what_one_process_learns(place, alone, launcher):
    done, weights = taught(place, launcher, "two")
    losses = [one["loss"] for one in alone[0].losses]
    assert [one["loss"] for one in done.losses] == pytest.approx(losses, rel=1e-4)
    assert weights.keys() == alone[1].keys()
    for name, value in weights.items():
        assert torch.allclose(value, alone[1][name], atol=2e-4), name
