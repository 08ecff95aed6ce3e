"""GRPO on two ranks under ZeRO-3 does what one process does. Needs deepspeed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from astra.training.engines import HFEngine
from astra.training.launch import Launcher, is_main, launched
from astra.training.policy import load_policy, save_policy
from astra.training.reinforcement import reinforce
from astra.training.weights import save_trained
from tests.import_closure import ROOT
from tests.training.test_reinforcement import HOW, Game, player_of
from tests.training.tiny import new_chat, new_tiny

LAUNCHERS = {
    "one": Launcher(kind="none", processes=1, nodes=1, config=None),
    "zero3": Launcher(kind="accelerate", processes=2, nodes=1, config="zero3"),
}


def practise(folder: Path) -> None:
    chat = new_chat()
    game = Game(load_policy(folder / "base").eval(), chat)
    assert isinstance(game.engine, HFEngine)
    how = HOW.model_copy(update={"updates": 3, "lr": 0.002, "micro_batch": 8})
    player = player_of(game, how)
    trainer = reinforce(folder / "base", game.engine, chat, player, how, 12, folder / "run", 0)
    save_trained(trainer, folder / "trained", folder / "base")
    assert bool(player.practice.fills) is is_main(), "rank 0 plays, and only rank 0"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_two_ranks_under_zero3_end_with_the_weights_of_one_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "launch").symlink_to(ROOT / "launch")
    chat = new_chat()
    weights = {}
    for name, launcher in LAUNCHERS.items():
        folder = tmp_path / name
        save_policy(new_tiny(chat), chat, folder / "base")
        launched(launcher, "tests.training.test_rl_ranks:practise", folder)
        weights[name] = load_file(folder / "trained" / "model.safetensors")
    start = load_file(tmp_path / "one" / "base" / "model.safetensors")
    moved = max((weights["one"][name] - start[name]).abs().max().item() for name in start)
    assert moved > 1e-3
    for name, one in weights["one"].items():
        torch.testing.assert_close(weights["zero3"][name], one, rtol=1e-3, atol=2e-4)
