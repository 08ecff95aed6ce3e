"""SFT through TRL's trainer: order, masks, a loss that falls, the same bytes twice."""

from __future__ import annotations

import random

import pytest
import torch

from astra.chat import Encoded
from astra.records import Message
from astra.training.imitation import LossInvalid, Schedule, imitate, order
from tests.training.tiny import CAPITAL, new_chat, new_tiny

SCHEDULE = Schedule(
    epochs=1, batch=4, micro_batch=2, optimiser="muon", lr=0.01, muon_lr=0.02, weight_decay=0.0, warmup_steps=2,
    decay="linear", decay_share=0.4, short_first=0.0,
)  # fmt: skip


def test_every_row_is_seen_once_an_epoch():
    lengths = [random.Random(0).randint(5, 60) for _ in range(40)]
    assert sorted(order(lengths, SCHEDULE, random.Random(1))) == list(range(40))


def test_batches_hold_rows_of_like_length():
    lengths = list(range(64))
    rows = order(lengths, SCHEDULE, random.Random(1))
    for start in range(0, 64, 4):
        batch = [lengths[row] for row in rows[start : start + 4]]
        assert max(batch) - min(batch) == 3


def test_the_first_updates_see_the_shortest_third():
    lengths = list(range(90))
    rows = order(lengths, SCHEDULE.model_copy(update={"short_first": 0.5}), random.Random(1))
    assert max(rows[: 11 * 4]) < 30


def test_the_order_is_a_function_of_the_seed():
    lengths = list(range(40))
    assert order(lengths, SCHEDULE, random.Random(1)) == order(lengths, SCHEDULE, random.Random(1))
    assert order(lengths, SCHEDULE, random.Random(1)) != order(lengths, SCHEDULE, random.Random(2))


@pytest.fixture(scope="module")
def chat():
    return new_chat()


def rows(chat, n):
    messages = [
        Message(role="user", content="What is the capital of country Spain?"),
        Message(role="assistant", content="The answer is Madrid."),
    ]
    return chat.encode([messages], [[CAPITAL.spec]]) * n


def train(chat, tmp_path, n=60):
    model = new_tiny(chat)
    return model, imitate(model, chat, rows(chat, n), SCHEDULE, tmp_path, 0)


def test_the_loss_falls_to_what_can_be_learned(chat, tmp_path):
    _, losses = train(chat, tmp_path, 240)
    assert losses[0]["loss"] > 3
    assert losses[-1]["loss"] < 0.5


def test_two_runs_give_the_same_weights(chat, tmp_path):
    one, _ = train(chat, tmp_path / "1", 20)
    other, _ = train(chat, tmp_path / "2", 20)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)


def test_a_batch_in_which_nothing_is_trained_stops_the_run(chat, tmp_path):
    silent = [Encoded(one.ids, [0] * len(one.mask)) for one in rows(chat, 8)]
    with pytest.raises(LossInvalid, match="no token of the batch is trained"):
        imitate(new_tiny(chat), chat, silent, SCHEDULE, tmp_path, 0)


def test_a_loss_that_blows_up_stops_the_run(chat, tmp_path):
    wild = SCHEDULE.model_copy(update={"lr": 1e20, "muon_lr": 1e20})
    with pytest.raises(LossInvalid, match="lower schedule.lr"):
        imitate(new_tiny(chat), chat, rows(chat, 80), wild, tmp_path, 0)


def test_what_is_not_trained_has_no_influence_on_the_loss(chat, tmp_path):
    """Two batches that differ only in a token behind the last trained one give the same weights."""
    plain = rows(chat, 8)
    other = [Encoded([*one.ids[:-1], 40], one.mask) for one in plain]
    assert plain[0].mask[-1] == 0
    models = [new_tiny(chat), new_tiny(chat)]
    for model, some in zip(models, (plain, other), strict=True):
        imitate(model, chat, some, SCHEDULE, tmp_path, 0)
    for mine, its in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(mine, its)
