"""GRPO through TRL's trainer over our own episodes."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import signal
from types import SimpleNamespace

import pytest
import torch

from astra.rewards import Tally
from astra.training.engines import HFEngine
from astra.training.episodes import Case, Episode
from astra.training.filling import Filler, Filling, FillingExhausted, Scored
from astra.training.reinforcement import GAP, Player, Practice, Reinforcing, _row, reinforce
from astra.training.rollouts import EngineMissing, Sampling
from tests.training.tiny import CAPITAL, arena, new_chat, new_tiny

HOW = Reinforcing(
    updates=4, groups=2, group=8, micro_batch=16, lr=0.02, warmup_steps=0, temperature=1.0, clip_low=0.2, clip_high=0.28,
    scale="group", checkpoint_every=0,
)  # fmt: skip
FILLING = Filling(enabled=True, delta=0.0, max_rounds=6, on_exhausted="error", max_age=1, max_waiting=8, max_failed=0.0)
CASE = Case(arena("Spain"), (CAPITAL,))
PROMPT = [5, 6, 7]


class Same:
    """The same case for ever, counted."""

    def __init__(self) -> None:
        self.drawn = 0

    def __next__(self):
        self.drawn += 1
        return CASE

    def state(self):
        return self.drawn

    def restore(self, state):
        self.drawn = state


class Game:
    """Three tokens behind one prompt and a forced end; a reply is worth its share of tokens below 100."""

    def __init__(self, replica, chat, reward=None) -> None:
        self.engine = HFEngine(replica, chat.end, chat.pad)
        self.reward = reward or (lambda ids: sum(token < 100 for token in ids[:3]) / 3)
        self.weights: list[torch.Tensor] = []
        self.draws = 0
        self.fills = []

    def note(self, fill):
        self.fills.append(dataclasses.replace(fill))
        return {"update": fill.update}

    def play(self, update: int, rounds: int):
        self.weights.append(self.engine.model.get_input_embeddings().weight.detach().clone())

        def plays(cases):
            self.draws += 1
            sampling = Sampling(1.0, 3, 12, self.draws)
            played = self.engine.play([PROMPT] * len(cases), lambda turns: ["answered" for _ in turns], sampling)
            for one in played:
                if one.ids[-1] != self.engine.end:
                    one.append(self.engine.end, False, 0.0)
                one.stop = "answered"
            return [
                Scored(Episode(case, PROMPT, one, (), Tally(0, 1, 0, False), 0, False), self.reward(one.ids))
                for case, one in zip(cases, played, strict=True)
            ]

        return plays


def player_of(game, how, filling=FILLING, note=None) -> Player:
    return Player(Filler(Same(), how.groups, how.group, filling), game.play, note or game.note, Practice())


def train(tmp_path, reward=None, **changes):
    chat = new_chat()
    model, replica = new_tiny(chat), new_tiny(chat).eval()
    game = Game(replica, chat, reward)
    how = HOW.model_copy(update=changes)
    player = player_of(game, how)
    reinforce(model, game.engine, chat, player, how, 12, tmp_path, 0)
    return model, game, player.practice


def test_the_reward_rises(tmp_path):
    _, game, _ = train(tmp_path, updates=12)
    means = [sum(one.reward for one in fill.episodes) / len(fill.episodes) for fill in game.fills]
    assert means[-1] > means[0] + 0.2


def test_every_update_is_played_with_the_weights_before_it(tmp_path):
    model, game, practice = train(tmp_path)
    assert len(game.weights) == len(practice.fills) == len(practice.log) == HOW.updates
    assert all(not torch.equal(one, other) for one, other in zip(game.weights, game.weights[1:], strict=False))
    assert not torch.equal(game.weights[-1], model.get_input_embeddings().weight)


def test_the_rate_falls_to_nothing_over_the_last_share_of_updates(tmp_path):
    chat = new_chat()

    def rates(share: float) -> list[float]:
        how = HOW.model_copy(update={"updates": 6, "warmup_steps": 1, "decay_share": share})
        game = Game(new_tiny(chat), chat)
        player = player_of(game, how)
        reinforce(new_tiny(chat), game.engine, chat, player, how, 12, tmp_path / str(share), 0)
        return [one["learning_rate"] / how.lr for one in player.practice.log]

    assert rates(0.5) == pytest.approx([0, 1, 1, 1, 2 / 3, 1 / 3])
    assert rates(0.0) == pytest.approx([0, 1, 1, 1, 1, 1])


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


UPDATES = 12
KILLED = random.Random("rl").sample(range(1, UPDATES), 5)


def run_to_the_end(folder, kill_at=None):
    """The model and its player; the process is gone in the middle of an update where ``kill_at`` says so."""
    chat = new_chat()
    model, replica = new_tiny(chat), new_tiny(chat).eval()
    game = Game(replica, chat)
    # as training has it: the draw depends on the samplings so far alone

    def play(update, rounds):
        game.draws = rounds
        return Game.play(game, update, rounds)

    def note(fill):
        if fill.update == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"update": fill.update, "reward": sum(one.reward for one in fill.episodes)}

    how = HOW.model_copy(update={"updates": UPDATES, "checkpoint_every": 2, "lr": 0.002})
    filling = FILLING.model_copy(update={"delta": 0.27, "on_exhausted": "pad", "max_age": 3})
    player = player_of(game, how, filling, note)
    player.play = play
    reinforce(model, game.engine, chat, player, how, 12, folder, 0)
    return model, player


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return run_to_the_end(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("update", KILLED)
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(uninterrupted, tmp_path, update):
    child = os.fork()
    if not child:
        run_to_the_end(tmp_path, kill_at=update)
        os._exit(1)  # never reached
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    model, player = run_to_the_end(tmp_path)
    expected, whole = uninterrupted
    for mine, its in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, its)
    assert pickle.dumps(player.filler.state()) == pickle.dumps(whole.filler.state())
    assert player.practice.state() == whole.practice.state()
    timing = ("step_time", "train_runtime")
    kept = [{key: value for key, value in one.items() if key not in timing} for one in player.practice.log]
    assert kept == [{key: value for key, value in one.items() if key not in timing} for one in whole.practice.log]


def test_left_over_groups_are_part_of_what_is_put_back(uninterrupted):
    _, player = uninterrupted
    assert any(fill.waiting for fill in player.practice.fills), "the runs above never had anything waiting"
    assert any(age for fill in player.practice.fills for age in fill.ages)


def test_a_checkpoint_that_was_cut_short_is_not_used(uninterrupted, tmp_path):
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "checkpoint-8" / "model.safetensors").write_bytes(b"half")
    model, _ = run_to_the_end(tmp_path)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), uninterrupted[0].parameters(), strict=True))


def test_an_update_with_nothing_to_train_on_moves_no_weight(tmp_path):
    def reward_of(update):
        return lambda ids: 0.5 if update else sum(token < 100 for token in ids[:3]) / 3

    chat = new_chat()
    model, replica = new_tiny(chat), new_tiny(chat).eval()
    game = Game(replica, chat)

    def play(update, rounds):
        game.reward = reward_of(update)
        return Game.play(game, update, rounds)

    how = HOW.model_copy(update={"updates": 3})
    filling = FILLING.model_copy(update={"on_exhausted": "pad", "max_age": 0, "max_rounds": 2})
    player = player_of(game, how, filling)
    player.play = play
    reinforce(model, game.engine, chat, player, how, 12, tmp_path, 0)
    assert [fill.skipped for fill in player.practice.fills] == [0, 1, 1]
    start, after_one, after_two = game.weights
    assert not torch.equal(start, after_one)
    assert torch.equal(after_one, after_two)
    assert torch.equal(after_two, model.get_input_embeddings().weight)
    assert all(value == value for one in player.practice.log for value in one.values())  # no nan


def test_what_the_machinery_lost_and_what_was_cut_is_trained_on_by_nobody():
    game = SimpleNamespace(ids=[7, 8], mask=[1, 1], logprobs=[-1.0, -1.0], stop="answered")
    row = _row(Scored(SimpleNamespace(prompt=[1], played=game), 0.5), True)
    assert (row["env_mask"], row["reward"]) == ([1, 1], 0.5)
    assert _row(Scored(SimpleNamespace(prompt=[1], played=game), 0.5), False)["env_mask"] == [0, 0]
    game.stop = "truncated"
    assert _row(Scored(SimpleNamespace(prompt=[1], played=game), 0.5), True)["env_mask"] == [0, 0]
    game.stop, game.ids, game.mask, game.logprobs = "failed", [], [], []
    lost = _row(Scored(SimpleNamespace(prompt=[1], played=game), None), True)
    assert (lost["env_mask"], lost["reward"], len(lost["completion_ids"])) == ([0], None, 1)


def test_an_engine_whose_log_probabilities_may_differ_is_weighed_and_watched(tmp_path):
    chat = new_chat()
    model, replica = new_tiny(chat), new_tiny(chat).eval()
    game = Game(replica, chat)
    game.engine.corrects = True
    how = HOW.model_copy(update={"updates": 2})
    player = player_of(game, how)
    reinforce(model, game.engine, chat, player, how, 12, tmp_path / "1", 0, max_gap=1e-3)
    assert all(0 <= one[GAP] < 1e-4 for one in player.practice.log)

    class Stale(HFEngine):
        def sync(self, trainer):
            """Forgets to take the weights over."""

    stale = Game(new_tiny(chat).eval(), chat)
    stale.engine = Stale(stale.engine.model, chat.end, chat.pad)
    stale.engine.corrects = True
    how = HOW.model_copy(update={"updates": 6})
    with pytest.raises(EngineMissing, match=r"rl\.vllm\.max_gap.*other weights"):
        reinforce(new_tiny(chat), stale.engine, chat, player_of(stale, how), how, 12, tmp_path / "2", 0, max_gap=1e-3)
