"""Means, intervals and paired differences."""

from __future__ import annotations

from itertools import combinations

import pytest

from astra.training.estimates import estimate, mcnemar, over_trials, paired, pass_hat, pass_hats, share


def test_an_estimate_carries_its_n_and_an_interval_around_the_mean():
    found = estimate([0.0, 1.0] * 50)
    assert found["mean"] == 0.5
    assert found["n"] == 100
    assert 0.37 < found["low"] < 0.43 < 0.57 < found["high"] < 0.63


def test_equal_values_have_no_width():
    assert estimate([1.0] * 9) == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 9}


def test_the_same_values_give_the_same_interval():
    assert estimate([0.1, 0.9, 0.4] * 9) == estimate([0.1, 0.9, 0.4] * 9)


def test_pairing_takes_out_what_differs_between_cases():
    hard = {f"c{number}": number / 100 for number in range(100)}
    better = {case: value + 0.05 for case, value in hard.items()}
    found = paired(better, hard)
    assert found["low"] == pytest.approx(0.05)
    assert found["high"] == pytest.approx(0.05)


def test_only_cases_that_both_have_are_compared():
    assert paired({"a": 1.0, "b": 0.0}, {"b": 0.0, "c": 1.0})["n"] == 1


def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="no cases"):
        estimate([])


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),  # Wilson (1927), as tables have it
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (1, 2, 0.0945, 0.9055), (81, 263, 0.2553, 0.3662)],
)
def test_a_share_has_wilson_s_interval(right, n, low, high):
    found = share([1.0] * right + [0.0] * (n - right))
    assert found == {"mean": round(right / n, 4), "low": low, "high": high, "n": n}


@pytest.mark.parametrize("wrong", [[], [0.5], [1.0, 2.0]])
def test_a_share_is_of_yes_and_no(wrong):
    with pytest.raises(ValueError, match="a share is of cases"):
        share(wrong)


def test_trials_make_no_cases():
    one = over_trials({f"c{n}": [float(n % 2)] * 8 for n in range(20)}, binary=True)
    assert one["n"] == 20
    assert one["high"] - one["low"] > 0.3  # 160 independent cases would give 0.15
    assert over_trials({"a": [1.0], "b": [0.0]}, binary=True) == share([1.0, 0.0])


@pytest.mark.parametrize(
    ("n", "right", "k", "expected"),
    [(4, 4, 4, 1), (4, 3, 4, 0), (4, 3, 1, 0.75), (4, 2, 2, 1 / 6), (5, 3, 2, 0.3), (8, 4, 3, 4 / 56), (1, 1, 1, 1)],
)
def test_pass_hat_k_is_the_share_of_k_trials_that_are_all_right(n, right, k, expected):
    trials = [1] * right + [0] * (n - right)
    chosen = list(combinations(trials, k))
    assert pass_hat(n, right, k) == pytest.approx(expected) == pytest.approx(sum(map(all, chosen)) / len(chosen))


@pytest.mark.parametrize(("n", "right", "k"), [(4, 5, 1), (4, 2, 5), (4, 2, 0), (0, 0, 1)])
def test_pass_hat_k_of_fewer_trials_is_refused(n, right, k):
    with pytest.raises(ValueError, match=r"pass\^"):
        pass_hat(n, right, k)


def test_a_case_with_too_few_trials_is_left_out_of_pass_hat_k():
    found = pass_hats({"a": [1.0, 1.0, 1.0], "b": [1.0]})
    assert {k: (one["mean"], one["n"]) for k, one in found.items()} == {2: (1.0, 1), 3: (1.0, 1)}


def test_mcnemar_counts_only_the_cases_on_which_two_models_differ():
    agree = {f"same{n}": 1.0 for n in range(50)}
    first = agree | {f"c{n}": 1.0 for n in range(6)}
    second = agree | {f"c{n}": 0.0 for n in range(6)}
    assert mcnemar(first, second) == mcnemar(second, first) == 0.03125  # 2 / 2^6
    assert mcnemar(first | {"d": 0.0}, second | {"d": 1.0}) == 0.125  # 2 (1 + 7) / 2^7
    assert mcnemar(agree, agree) == 1.0
    assert mcnemar({"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}) == 1.0
