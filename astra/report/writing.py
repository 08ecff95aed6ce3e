"""The files of a report: its pages, and what ``dvc plots`` draws of it."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from astra.report import yields
from astra.report.pages import Progress, bands, write_report
from astra.report.reading import numbers

REPORT = "reports"
YIELD, FLOW, BANDS = PLOTS = ("plots/yield.csv", "plots/flow.csv", "plots/bands.csv")


def write_all(progress: Progress) -> int:
    """Write the report of the run in the working folder, as far as the run got; the number of records in it."""
    found = numbers()
    gates = yields.gates(found.metrics, found.of_trajectories)
    flow = yields.flow(gates)
    _write_rows(YIELD, yields.table(gates), tuple(yields.HEAD))
    _write_rows(FLOW, flow, tuple(yields.POINT))
    of_bands = [{"band": band, "tools": count} for band, count in bands(found.metrics).items()]
    _write_rows(BANDS, of_bands, ("band", "tools"))
    return write_report(Path(REPORT), found, flow, progress)


def _write_rows(path: str, rows: Sequence[Mapping[str, Any]], head: Sequence[str]) -> None:
    partial = Path(path + ".partial")
    partial.parent.mkdir(exist_ok=True)
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, head, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(partial, path)
