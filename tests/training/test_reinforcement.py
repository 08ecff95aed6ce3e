"""GRPO through TRL's trainer over our own episodes."""

from __future__ import annotations

from itertools import repeat

import pytest
import torch

from astra.training.episodes import Case, Episode
from astra.training.filling import Filler, Filling, FillingExhausted, Scored
from astra.training.reinforcement import Reinforcing, reinforce
from astra.training.rollouts import HFEngine, Sampling
from tests.training.tiny import CAPITAL, arena, new_chat, new_tiny

HOW = Reinforcing(
    updates=4, groups=2, group=8, micro_batch=16, lr=0.02, warmup_steps=0, temperature=1.0, clip_low=0.2, clip_high=0.28,
    scale="group",
)  # fmt: skip
FILLING = Filling(enabled=True, delta=0.0, max_rounds=6, on_exhausted="error", max_age=1)
CASE = Case(arena("Spain"), (CAPITAL,))
PROMPT = [5, 6, 7]


class Game:
    """Three tokens behind one prompt and a forced end; a reply is worth its share of tokens below 100."""

    def __init__(self, replica, chat, reward=None) -> None:
        self.engine = HFEngine(replica, chat.end, chat.pad)
        self.reward = reward or (lambda ids: sum(token < 100 for token in ids[:3]) / 3)
        self.weights: list[torch.Tensor] = []
        self.draws = 0

    def play(self, update: int):
        self.weights.append(self.engine.model.get_input_embeddings().weight.detach().clone())

        def plays(cases):
            self.draws += 1
            sampling = Sampling(1.0, 3, 12, self.draws)
            played = self.engine.play([PROMPT] * len(cases), lambda turns: ["answered" for _ in turns], sampling)
            for one in played:
                if one.ids[-1] != self.engine.end:
                    one.append(self.engine.end, False, 0.0)
            return [
                Scored(Episode(case, PROMPT, one, (), 0, 1, 0, False, False), self.reward(one.ids))
                for case, one in zip(cases, played, strict=True)
            ]

        return plays


def train(tmp_path, reward=None, **changes):
    chat = new_chat()
    model, replica = new_tiny(chat), new_tiny(chat).eval()
    game = Game(replica, chat, reward)
    how = HOW.model_copy(update=changes)
    filler = Filler(repeat(CASE), how.groups, how.group, FILLING)
    return model, game, reinforce(model, replica, chat, filler, game.play, how, 12, tmp_path, 0)


def test_the_reward_rises(tmp_path):
    _, _, practice = train(tmp_path, updates=12)
    means = [sum(one.reward for one in fill.episodes) / len(fill.episodes) for fill in practice.fills]
    assert means[-1] > means[0] + 0.2


def test_every_update_is_played_with_the_weights_before_it(tmp_path):
    model, game, practice = train(tmp_path)
    assert len(game.weights) == len(practice.fills) == len(practice.log) == HOW.updates
    assert all(not torch.equal(one, other) for one, other in zip(game.weights, game.weights[1:], strict=False))
    assert not torch.equal(game.weights[-1], model.get_input_embeddings().weight)


def test_two_runs_give_the_same_weights(tmp_path):
    one, _, _ = train(tmp_path / "1", updates=3)
    other, _, _ = train(tmp_path / "2", updates=3)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)


def test_micro_batches_do_not_change_the_update(tmp_path):
    one, _, _ = train(tmp_path / "1", updates=1)
    other, _, _ = train(tmp_path / "2", updates=1, micro_batch=8)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=2e-4)


def test_rewards_that_never_differ_stop_the_run_loudly(tmp_path):
    with pytest.raises(FillingExhausted, match="lower rl.filling.delta"):
        train(tmp_path, reward=lambda ids: 0.5)


def test_tokens_of_every_update_are_counted(tmp_path):
    _, _, practice = train(tmp_path, updates=2)
    assert practice.updated_tokens >= 2 * 16 * (len(PROMPT) + 1)
