"""All records, metrics and curves of a run -> reports/index.html, one page to look at everything.

The page needs no network and no server: open it from disk. What is too much for one page (50,000 conversations) lies
in ``reports/data/`` and is read as it is looked at. ``plots/yield.csv``, ``flow.csv`` and ``bands.csv`` are for ``dvc
plots``: what every gate let through, the same as a picture, and the likeness of distractors.

The built-in default takes some seconds. ``python -m astra.report`` writes the page of a run that is half done.

    python -m stages.report
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from astra.report.reading import CURVES, METRICS, RECORDS, REJECTS
from astra.report.writing import PLOTS, REPORT, write_all
from astra.stage import Contract, Run, StageError

CONTRACT = Contract(
    name="report",
    reads={
        **RECORDS,
        **{f"metrics_{stage}": path for stage, path in METRICS.items()},
        **{f"rejects_{stage}": path for stage, path in REJECTS.items()},
        **{f"curves_{name}": path for name, path in CURVES.items()},
    },
    writes={"pages": REPORT},
    params={},
    plots=PLOTS,
)


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run:
        missing = [path for path in CONTRACT.reads.values() if not Path(path).exists()]
        if missing:
            raise StageError(f"{missing[0]}: no such file. Run the stage that writes it: dvc repro {missing[0]}")
        run.n_in = run.n_out = write_all(lambda kinds: run.progress(kinds, unit="kind"))


if __name__ == "__main__":
    main(sys.argv[1:])
