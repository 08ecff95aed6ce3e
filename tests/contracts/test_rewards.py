"""Every reward: in [0, 1], pure, golden beats empty, no pay per call (HC-059, HC-060)."""

from __future__ import annotations

from itertools import product

import pytest

from astra.rewards import REWARDS, f1, f1_answer, precision, recall

EPISODES = [
    (solved, n_required, n_calls, answer)
    for n_required, solved, n_calls, answer in product(range(1, 6), range(6), range(12), (False, True))
    if solved <= min(n_required, n_calls)
]
every_reward = pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)


@every_reward
def test_a_reward_is_between_0_and_1(reward):
    assert all(0 <= reward(*episode) <= 1 for episode in EPISODES)


@every_reward
def test_a_reward_is_a_function_of_its_arguments_alone(reward):
    assert [reward(*episode) for episode in EPISODES] == [reward(*episode) for episode in EPISODES]


@every_reward
@pytest.mark.parametrize("n_required", range(1, 6))
def test_a_golden_episode_earns_1_and_an_empty_one_0(reward, n_required):
    assert reward(n_required, n_required, n_required, True) == 1
    assert reward(0, n_required, 0, False) == 0


@every_reward
def test_nothing_solved_is_worth_nothing_whatever_is_answered(reward):
    assert all(reward(0, n, calls, True) == 0 for n in range(1, 5) for calls in range(9))


@every_reward
def test_repeated_and_failing_calls_never_raise_a_reward(reward):
    assert all(reward(s, n, c + 1, a) <= reward(s, n, c, a) for s, n, c, a in EPISODES)


@every_reward
def test_a_call_that_solves_never_lowers_a_reward(reward):
    assert all(reward(s + 1, n, c + 1, a) >= reward(s, n, c, a) for s, n, c, a in EPISODES if s < n)


@pytest.mark.parametrize(
    ("solved", "n_required", "n_calls", "expected"), [(4, 4, 4, 1.0), (4, 4, 6, 0.8), (3, 4, 4, 0.75), (0, 4, 4, 0.0)]
)
def test_the_figures_of_the_paper(solved, n_required, n_calls, expected):
    assert f1(solved, n_required, n_calls, False) == pytest.approx(expected, abs=1e-12)


def test_recall_ignores_calls_and_precision_ignores_what_is_left_undone():
    assert recall(2, 4, 90, False) == 0.5
    assert precision(2, 4, 2, False) == 1.0


def test_one_call_that_solves_two_sub_tasks_is_not_worth_more_than_all():
    assert precision(2, 2, 1, True) == f1(2, 2, 1, True) == 1.0


def test_spamming_calls_loses_against_one_good_call():
    good, wrong_spam, right_spam = f1_answer(1, 1, 1, True), f1_answer(1, 1, 9, False), f1_answer(1, 1, 9, True)
    assert good > right_spam > wrong_spam
    assert good > f1_answer(0, 1, 1, False)


def test_an_answer_without_evidence_earns_nothing_for_the_answer():
    assert f1_answer(0, 1, 0, True) == 0
    assert f1_answer(1, 2, 1, True) == f1_answer(1, 2, 1, False)
    assert f1_answer(2, 2, 2, True) > f1_answer(2, 2, 2, False)
