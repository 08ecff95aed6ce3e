"""Means, intervals and paired differences."""

from __future__ import annotations

import pytest

from astra.training.estimates import estimate, paired


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
