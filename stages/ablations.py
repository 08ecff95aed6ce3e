"""Ablations: the paper's, at the default's scale, with intervals over held-out cases and over seeds.

ablations/{curves,cases}.csv, which ``python -m astra.ablations`` keeps -> metrics/ablations.json, plots/ablation_*.csv

Every figure of a curve of a study is a mean over seeds of the mean over held-out arenas, played greedily; its interval
resamples arenas within each seed. Differences to the study's first curve are paired by seed and arena. Each seed's own
mean stands beside them: with few seeds that is how far training itself scatters.

    python -m stages.ablations
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from astra.ablations.figures import curve_bands, figures_of, of_side
from astra.ablations.plan import Plan, read_plan
from astra.stage import Contract, Run, StageError

STUDIES = ("reward", "distractors", "filling", "training")
CONTRACT = Contract(
    name="ablations",
    reads={"plan": "ablations/plan.yaml", "curves": "ablations/curves.csv", "cases": "ablations/cases.csv"},
    writes={},
    params={},
    plots=tuple(f"plots/ablation_{study}.csv" for study in STUDIES),
)


def study_figures(plan: Plan, study: str, cases: pd.DataFrame) -> dict[str, Any]:
    """Curve -> benchmark -> measure -> mean, interval, n, each seed's mean; and the difference to the first curve."""
    found: dict[str, Any] = {}
    first: pd.DataFrame | None = None
    for name, side in plan.sides(study).items():
        mine = of_side(cases, side)
        if mine.empty:
            found[name] = {"status": f"not run: arm {side.arm}"}
            continue
        found[name] = figures_of(mine, first)
        first = mine if first is None else first
    return found


def main() -> None:
    with Run(CONTRACT) as run:
        plan = read_plan(run.path("plan"))
        if set(plan.studies) != set(STUDIES):
            raise StageError(f"{run.path('plan')}: studies are {', '.join(plan.studies)}; drawn are {STUDIES}")
        curves, cases = (pd.read_csv(run.path(word)) for word in ("curves", "cases"))
        run.n_in = run.n_out = len(cases[["arm", "seed"]].drop_duplicates())
        for study, plot in zip(STUDIES, CONTRACT.plots, strict=True):
            run.metrics[study] = study_figures(plan, study, cases)
            Path(plot).parent.mkdir(exist_ok=True)
            curve_bands(curves, plan.sides(study)).replace({np.nan: None}).to_csv(plot, index=False)


if __name__ == "__main__":
    main()
