"""Means and intervals over cases and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t

from astra.ablations.plan import Side

MEASURES = ("f1", "recall", "precision", "calls", "answer")
DRAWN = ("recall", "precision", "calls", "zero_variance")
RESAMPLES, WINDOW = 2000, 5
RL = "rl"  # the only model that has a curve


def of_side(cases: pd.DataFrame, side: Side) -> pd.DataFrame:
    """The rows of a study's curve."""
    return cases[(cases["arm"] == side.arm) & (cases["model"] == side.model)]


def figures_of(mine: pd.DataFrame, first: pd.DataFrame | None) -> dict[str, Any]:
    """Benchmark -> measure -> mean, low, high, n, seeds; with ``less_first``: the same of the paired difference."""
    found: dict[str, Any] = {}
    for benchmark, rows in mine.groupby("benchmark", sort=True):
        for measure in MEASURES:
            entry = estimate(rows.set_index(["seed", "case"])[measure])
            if first is not None:
                others = first[first["benchmark"] == benchmark].set_index(["seed", "case"])[measure]
                both = (rows.set_index(["seed", "case"])[measure] - others).dropna()
                if len(both):
                    entry["less_first"] = estimate(both)
            found.setdefault(str(benchmark), {})[measure] = entry
    return found


def estimate(values: pd.Series) -> dict[str, Any]:
    """Mean over seeds of the mean over cases, with the 95 % percentile bootstrap over cases within each seed."""
    rng = np.random.default_rng(0)
    means: list[NDArray[np.float64]] = []
    seeds: dict[str, float] = {}
    for seed, some in values.groupby(level="seed"):
        data = some.to_numpy(dtype=float)
        means.append(data[rng.integers(0, len(data), (RESAMPLES, len(data)))].mean(axis=1))
        seeds[str(seed)] = round(float(data.mean()), 4)
    low, high = np.percentile(np.mean(means, axis=0), [2.5, 97.5])
    mean = float(np.mean(list(seeds.values())))
    return {"mean": round(mean, 4), "low": round(low, 4), "high": round(high, 4), "n": len(values), "seeds": seeds}


def curve_bands(curves: pd.DataFrame, sides: Mapping[str, Side]) -> pd.DataFrame:
    """Rows curve, measure, update, mean, low, high, seeds: the mean over seeds of what was sampled, as a moving mean.

    The band is the 95 % t-interval over seeds, and empty for one seed.
    """
    parts = []
    for name, side in sides.items():
        mine = curves[curves["arm"] == side.arm]
        if side.model != RL or mine.empty:
            continue
        for measure in DRAWN:
            wide = mine.pivot(index="update", columns="seed", values=measure)
            smooth = wide.rolling(WINDOW, min_periods=1, center=True).mean()
            n = smooth.count(axis=1)
            half = t.ppf(0.975, (n - 1).clip(lower=1)) * smooth.std(axis=1) / np.sqrt(n)
            mean = smooth.mean(axis=1)
            band = pd.DataFrame(
                {"update": smooth.index, "mean": mean, "low": mean - half, "high": mean + half, "seeds": n}
            )
            parts.append(band.assign(curve=name, measure=measure))
    columns = ["curve", "measure", "update", "mean", "low", "high", "seeds"]
    return pd.concat(parts)[columns].round(4) if parts else pd.DataFrame(columns=columns)
