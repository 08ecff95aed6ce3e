"""Means with intervals, and paired differences, over cases; deterministic by seed.

A share of cases (right or wrong, one trial each) has Wilson's interval, which stays honest at 0 and 1 and for few
cases; everything else the percentile bootstrap over cases. Trials of one case are never counted as cases: they are
averaged within it first, so that the interval is that of the cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, sqrt
from typing import Any

import numpy as np

RESAMPLES = 2000
Z = 1.959963984540054  # of 95 %


def estimate(values: Sequence[float], seed: int = 0) -> dict[str, float | int]:
    """Mean over cases, n, and the 95 % percentile bootstrap interval."""
    data = np.asarray(values, dtype=float)
    if not len(data):
        raise ValueError("no cases to estimate from")
    rng = np.random.default_rng(seed)
    means = data[rng.integers(0, len(data), (RESAMPLES, len(data)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"mean": _round(data.mean()), "low": _round(low), "high": _round(high), "n": len(data)}


def share(values: Sequence[float]) -> dict[str, float | int]:
    """The share of cases that are 1, n, and Wilson's 95 % interval. Raises ValueError for other values than 0 and 1."""
    if not len(values) or set(values) - {0.0, 1.0}:
        raise ValueError(f"a share is of cases that are 0 or 1, got {sorted(set(values))[:5]}")
    n, mean = len(values), sum(values) / len(values)
    middle = (mean + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return {"mean": _round(mean), "low": _round(low), "high": _round(high), "n": n}


def over_trials(by_case: Mapping[str, Sequence[float]], binary: bool, seed: int = 0) -> dict[str, float | int]:
    """The mean over cases of the mean over each case's trials (avg@k), with the interval of the cases."""
    if binary and all(len(trials) == 1 for trials in by_case.values()):
        return share([trials[0] for trials in by_case.values()])
    return estimate([float(np.mean(trials)) for trials in by_case.values()], seed)


def pass_hat(n: int, right: int, k: int) -> float:
    """The probability that k trials of a case are all right, unbiased from n trials (tau-bench's pass^k)."""
    if not 1 <= k <= n or not 0 <= right <= n:
        raise ValueError(f"pass^{k} of {right} right among {n} trials")
    return comb(right, k) / comb(n, k)


def pass_hats(by_case: Mapping[str, Sequence[float]], seed: int = 0) -> dict[int, dict[str, float | int]]:
    """pass^k over cases for k from 2 to the most trials that a case has; a case with fewer than k is left out of it."""
    most = max((len(trials) for trials in by_case.values()), default=0)
    return {
        k: estimate([pass_hat(len(one), round(sum(one)), k) for one in by_case.values() if len(one) >= k], seed)
        for k in range(2, most + 1)
    }


def paired(first: Mapping[str, float], second: Mapping[str, float], seed: int = 0) -> dict[str, Any]:
    """The mean of first minus second over the cases that both have, with its interval."""
    cases = sorted(first.keys() & second.keys())
    return estimate([first[case] - second[case] for case in cases], seed)


def mcnemar(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The exact two-sided p of McNemar's test: that the cases on which two models differ fall to either by chance."""
    cases = first.keys() & second.keys()
    only_first = sum(first[case] > second[case] for case in cases)
    only_second = sum(first[case] < second[case] for case in cases)
    n, fewer = only_first + only_second, min(only_first, only_second)
    return round(min(1.0, 2 * sum(comb(n, k) for k in range(fewer + 1)) / 2**n), 6) if n else 1.0


def _round(value: float) -> float:
    return round(float(value), 4)
