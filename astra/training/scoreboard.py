"""The table of an evaluation: model -> benchmark -> mode -> measure -> mean, interval, n; and paired differences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from astra.records import Sample
from astra.training.estimates import mcnemar, over_trials, paired, pass_hats

Values = dict[str, list[float]]  # of one measure: case -> its trials


class Place(NamedTuple):
    """Where a number stands."""

    model: str
    benchmark: str
    mode: str
    measure: str


@dataclass(frozen=True)
class Kind:
    """How a benchmark's measures are read."""

    compared: tuple[str, ...]  # of these, pairs of models have differences
    binary: frozenset[str]  # 0 or 1 in every trial
    passed: str | None = None  # the measure of which repeated trials give pass^k


def collected(samples: Iterable[Sample]) -> dict[Place, Values]:
    """The values of every measure by case; trials in order."""
    found: dict[Place, Values] = defaultdict(lambda: defaultdict(list))
    for one in samples:
        for measure, value in one.scores.items():
            found[Place(one.model, one.benchmark, one.mode, measure)][one.case].append(value)
    return found


def table(values: Mapping[Place, Values], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Every number with n and its interval; n counts cases, and ``trials`` stands beside it where there are several."""
    found: dict[str, Any] = {}
    for place, by_case in values.items():
        kind = kinds[place.benchmark]
        numbers = found.setdefault(place.model, {}).setdefault(place.benchmark, {}).setdefault(place.mode, {})
        numbers[place.measure] = over_trials(by_case, place.measure in kind.binary)
        trials = max(map(len, by_case.values()))
        if trials > 1:
            numbers[place.measure]["trials"] = trials
            if place.measure == kind.passed:
                numbers |= {f"pass^{k}": value for k, value in pass_hats(by_case).items()}
    return found


def differences(
    values: Mapping[Place, Values], kinds: Mapping[str, Kind], pairs: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """First minus second, over the cases that both have: mean, interval, n, and McNemar's p of a yes or no."""
    found: dict[str, Any] = {}
    for first, second in pairs:
        for benchmark, kind in kinds.items():
            for one, by_case in list(values.items()):
                if (one.model, one.benchmark) != (first, benchmark) or one.measure not in kind.compared:
                    continue
                other = values.get(one._replace(model=second), {})
                mine, theirs = _means(by_case), _means(other)
                if not mine.keys() & theirs.keys():
                    continue
                number = paired(mine, theirs)
                trials = {len(some) for some in (*by_case.values(), *other.values())}
                if one.measure in kind.binary and trials == {1}:
                    number["p"] = mcnemar(mine, theirs)
                where = found.setdefault(f"{first}-{second}", {}).setdefault(benchmark, {}).setdefault(one.mode, {})
                where[one.measure] = number
    return found


def _means(by_case: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {case: float(np.mean(trials)) for case, trials in by_case.items()}


def bars(models: Mapping[str, Any], errors: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """One row a model, benchmark, mode and measure, with the cases that broke beside it, for dvc plots."""
    rows = [
        {"model": model, "benchmark": benchmark, "mode": mode, "measure": measure,
         **{name: value[name] for name in ("mean", "low", "high", "n")}, "errors": errors.get((model, benchmark), 0)}
        for model, sets in models.items()
        for benchmark, modes in sets.items()
        for mode, measured in modes.items()
        for measure, value in measured.items()
    ]  # fmt: skip
    columns = ["model", "benchmark", "mode", "measure", "mean", "low", "high", "n", "errors"]
    return pd.DataFrame(rows, columns=columns)


def chart(everything: pd.DataFrame, main: Mapping[str, str]) -> pd.DataFrame:
    """The main measure of each benchmark, as rows for bars with their intervals."""
    chosen = everything[everything["measure"] == everything["benchmark"].map(main)]
    chosen = chosen.assign(bar=chosen["benchmark"] + ", " + chosen["mode"] + ", " + chosen["model"])
    return chosen[["bar", "measure", "mean", "low", "high", "n"]]


def counted(broken: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Model -> benchmark -> reason -> how many cases have no result."""
    found: dict[str, Any] = {}
    for (model, benchmark, reason), count in sorted(Counter(broken).items()):
        found.setdefault(model, {}).setdefault(benchmark, {})[reason] = count
    return found
