"""A lesson as a job: continued after a kill to the same bytes, the best state kept, adapters merged, packs apart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from astra.chat import Chat
from astra.stage import StageError
from astra.training import lesson as lessons
from astra.training.imitation import WHOLE, Checkpoints, Schedule, last_whole
from astra.training.launch import Launcher
from astra.training.lesson import Lesson, name_of, teach
from astra.training.policy import load_policy, save_policy
from astra.training.weights import Lora, refuse_mixed_packs
from tests.import_closure import ROOT
from tests.training.tiny import CAPITALS, conversations, new_chat, new_tiny

ALONE = Launcher(kind="none", processes=1, nodes=1, config=None)
SCHEDULE = Schedule(
    epochs=2, batch=4, micro_batch=4, optimiser="muon", lr=0.004, muon_lr=0.02, weight_decay=0.01, warmup_steps=1,
    decay="linear", decay_share=0.4, short_first=0.0,
)  # fmt: skip
OFTEN = Checkpoints(every=4, keep=2, heldout=0.0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    chat = new_chat()
    save_policy(new_tiny(chat), chat, tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASTRA_CACHE", raising=False)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def lesson(**changes) -> Lesson:
    return Lesson(**{"base": "base", "schedule": SCHEDULE, "seed": 1, "checkpoints": OFTEN, **changes})


def taught(out: str, heldout=(), **changes):
    chat = Chat.load("base")
    done = teach(lesson(**changes), conversations(chat, 24), list(heldout), ALONE, Path(out), 1)
    return done, load_file(Path(out) / "model.safetensors")


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bytes(place):
    done, whole = taught("whole")
    script = "import torch; torch.set_num_threads(1); from tests.training.test_lesson import taught; taught('again')"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    stage = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], cwd=place, env=environment)
    end = time.monotonic() + 240
    while not list(place.glob(f".cache/training/*/checkpoints/checkpoint-*/{WHOLE}")):
        assert stage.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.005)
    stage.kill()
    stage.wait()
    assert not (place / "again").exists()
    again, weights = taught("again")
    assert same(whole, weights)
    assert again == done
    assert not list(place.glob(".cache/training/*/rows"))  # nothing is left of a job that is done


def test_a_checkpoint_that_was_cut_short_is_not_gone_on_from(tmp_path):
    for step, is_whole in ((4, True), (8, True), (12, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if is_whole:
            (tmp_path / f"checkpoint-{step}" / WHOLE).touch()
    assert last_whole(tmp_path) == str(tmp_path / "checkpoint-8")
    assert not (tmp_path / "checkpoint-12").exists()


def test_another_row_seed_setting_or_base_is_another_job(place):
    chat = Chat.load("base")
    rows = conversations(chat, 8)
    names = {
        name_of(lesson(), ALONE, rows, []),
        name_of(lesson(seed=2), ALONE, rows, []),
        name_of(lesson(), ALONE, rows[:-1], []),
        name_of(lesson(), ALONE, rows[:-1], rows[-1:]),
        name_of(lesson(), ALONE.model_copy(update={"kind": "torchrun", "processes": 2}), rows, []),
        name_of(lesson(lora=Lora(rank=4, alpha=8)), ALONE, rows, []),
    }
    save_policy(new_tiny(chat, 1), chat, place / "base")
    names.add(name_of(lesson(), ALONE, rows, []))
    assert len(names) == 7


def test_the_state_of_least_heldout_loss_is_kept(place):
    """Where the held-out answers are others than the trained ones, learning by heart is worse than learning the form."""
    contrary = conversations(
        Chat.load("base"), 4, answers=dict(zip(CAPITALS, ["Lima", "Madrid", "Accra", "Tokyo"], strict=True))
    )
    long = SCHEDULE.model_copy(update={"epochs": 5})
    done, weights = taught("best", contrary, schedule=long, checkpoints=Checkpoints(every=2, keep=2, heldout=0.1))
    by_step = {one["step"]: one["loss"] for one in done.heldout}
    assert done.kept == min(by_step, key=by_step.get) < 30
    report = lessons.report(done)["heldout_loss"]
    assert report["kept"] < report["last"]
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_the_last_update_is_measured_too(place):
    done, _ = taught("last", conversations(Chat.load("base"), 4), checkpoints=Checkpoints(every=8, keep=2, heldout=0.1))
    assert [one["step"] for one in done.heldout] == [8, 12]


def test_adapters_are_merged_into_weights_that_load_anywhere(place):
    adam = SCHEDULE.model_copy(update={"optimiser": "adamw", "lr": 0.01})
    done, weights = taught("lora", schedule=adam, lora=Lora(rank=4, alpha=8))
    base = load_file(Path("base") / "model.safetensors")
    assert weights.keys() == base.keys()
    changed = {name for name in weights if not torch.equal(weights[name], base[name])}
    assert changed == {name for name in base if "proj" in name}
    assert done.losses[-1]["loss"] < done.losses[0]["loss"]
    load_policy("lora")


def test_packed_conversations_teach_what_padded_ones_teach(place):
    adam = SCHEDULE.model_copy(update={"optimiser": "adamw"})
    padded, apart = taught("padded", schedule=adam)
    packed, together = taught("packed", schedule=adam, packing=True)
    assert [one["loss"] for one in packed.losses] == pytest.approx([one["loss"] for one in padded.losses], rel=1e-4)
    assert all(torch.allclose(apart[name], together[name], atol=1e-4) for name in apart)


def test_packing_is_refused_where_conversations_see_each_other():
    model = new_tiny(new_chat())
    refuse_mixed_packs(model)
    inner = model.model.forward
    model.model.forward = lambda *args, position_ids=None, **kwargs: inner(*args, **kwargs)  # loses where one begins
    with pytest.raises(StageError, match=r"sft.packing.*flash-attn"):
        refuse_mixed_packs(model)


def test_a_batch_that_cannot_be_dealt_out_is_refused(place, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(StageError, match=r"schedule.batch: 4 .* 3 ranks"):
        lessons.imitation._shares(SCHEDULE)


def test_muon_is_refused_where_matrices_are_cut_up(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(StageError, match="take adamw"):
        lessons.imitation._shares(SCHEDULE)
