"""Means with intervals, and paired differences, over cases (bootstrap; deterministic by seed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000


def estimate(values: Sequence[float], seed: int = 0) -> dict[str, float | int]:
    """Mean over cases, n, and the 95 % percentile bootstrap interval."""
    data = np.asarray(values, dtype=float)
    if not len(data):
        raise ValueError("no cases to estimate from")
    rng = np.random.default_rng(seed)
    means = data[rng.integers(0, len(data), (RESAMPLES, len(data)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"mean": _round(data.mean()), "low": _round(low), "high": _round(high), "n": len(data)}


def paired(first: Mapping[str, float], second: Mapping[str, float], seed: int = 0) -> dict[str, Any]:
    """The mean of first minus second over the cases that both have, with its interval."""
    cases = sorted(first.keys() & second.keys())
    return estimate([first[case] - second[case] for case in cases], seed)


def _round(value: float) -> float:
    return round(float(value), 4)
