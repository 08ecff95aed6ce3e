"""The bar of a training: on a terminal only, on the first rank only, and it goes on where the run goes on."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from astra.training.progress import Bar
from tests.terminal import Terminal


def trained(bar: Bar, start: int, end: int, first_rank: bool = True) -> None:
    state = SimpleNamespace(max_steps=end, global_step=start, is_world_process_zero=first_rank)
    bar.on_train_begin(None, state, None)
    for step in range(start + 1, end + 1):
        state.global_step = step
        bar.on_step_end(None, state, None)
        bar.on_log(None, state, None, {"loss": 1 / step, "grad_norm": 2.0})
    bar.bar.refresh()
    bar.on_train_end(None, state, None)


def test_a_terminal_sees_updates_rate_and_the_latest_figures(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    trained(Bar("rl", "loss", "reward"), 4, 8)
    *_, last = [one for one in sys.stderr.getvalue().split("\r") if "8/8" in one]
    assert last.startswith("rl: 100%")
    assert "loss=0.125" in last
    assert "update" in last
    assert "grad_norm" not in last


@pytest.mark.parametrize(("stderr", "first_rank"), [(io.StringIO, True), (Terminal, False)])
def test_a_log_file_and_other_ranks_see_nothing(monkeypatch, stderr, first_rank):
    monkeypatch.setattr(sys, "stderr", stderr())
    trained(Bar("sft", "loss"), 0, 3, first_rank)
    assert sys.stderr.getvalue() == ""
