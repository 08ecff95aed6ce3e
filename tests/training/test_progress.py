"""The bar of a training run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tqdm import tqdm

from astra.training import progress


class Heard(tqdm):
    """A bar that is shown though nothing is a terminal, and remembers what it was."""

    made: list[Heard] = []  # noqa: RUF012 - of the test that is running

    def __init__(self, **settings):
        super().__init__(**{**settings, "disable": False})
        self.made.append(self)


@pytest.fixture
def heard(monkeypatch):
    Heard.made.clear()
    monkeypatch.setattr(progress, "tqdm", Heard)
    return Heard.made


def state(step: int, main: bool = True) -> SimpleNamespace:
    return SimpleNamespace(max_steps=10, global_step=step, is_world_process_zero=main)


def test_a_run_that_goes_on_starts_where_it_was_and_ends_at_its_last_update(heard):
    bar = progress.Bar("rl")
    bar.on_train_begin(None, state(4), None)
    bar.on_log(None, state(5), None, {"reward": 0.5, "epoch": 1.0})
    bar.on_step_end(None, state(5), None)
    assert (heard[0].initial, heard[0].n, heard[0].total) == (4, 5, 10)
    assert heard[0].postfix == "reward=0.500"
    bar.on_train_end(None, state(10), None)
    assert bar.bar is None


def test_other_ranks_show_nothing(heard):
    bar = progress.Bar("sft")
    bar.on_train_begin(None, state(0, main=False), None)
    bar.on_log(None, state(1, main=False), None, {"loss": 1})
    bar.on_step_end(None, state(1, main=False), None)
    assert heard == []


def test_nothing_is_printed_where_there_is_no_terminal(capsys):
    bar = progress.Bar("sft")
    bar.on_train_begin(None, state(0), None)
    bar.on_step_end(None, state(1), None)
    bar.on_train_end(None, state(1), None)
    assert capsys.readouterr() == ("", "")
