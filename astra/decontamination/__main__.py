"""Look for benchmark cases in training data, or keep fingerprints in a file for a machine without the benchmarks.

    python -m astra.decontamination --report OUT.json [--trajectories FILE] [--arenas FILE]
    python -m astra.decontamination --fingerprints OUT.npz

What is compared, and how strictly, is ``sft.decontamination`` in params.yaml. The first form exits with 1 where a row
is too like a case, and both with 2 where a wanted benchmark is neither here nor waived.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from astra.decontamination.check import TrainingRow, decontaminate, gather
from astra.decontamination.report import as_json, clearance
from astra.decontamination.settings import Decontaminating
from astra.records import Arena, Trajectory
from astra.stage import StageError, load_params, read_records, write_json
from astra.wheels import unpacked

KEY = "sft.decontamination"
WHEELS = Path("data/bench_env/packages")


def rows_of(trajectories: Path | None, arenas: Path | None) -> list[TrainingRow]:
    """Trajectories and training arenas as rows."""
    rows = [TrainingRow.of(one) for one in read_records(trajectories, Trajectory)] if trajectories else []
    for arena in read_records(arenas, Arena) if arenas else ():
        if arena.split == "train":
            rows.append(TrainingRow(arena.id, (arena.question,), tuple(tool.spec for tool in arena.tools)))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m astra.decontamination", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--report", type=Path, help="write a report on the given rows here")
    parser.add_argument("--fingerprints", type=Path, help="write fingerprints of the benchmarks that are here")
    parser.add_argument("--trajectories", type=Path)
    parser.add_argument("--arenas", type=Path)
    given = parser.parse_args(arguments)
    if (given.report is None) == (given.fingerprints is None):
        parser.error("give --report or --fingerprints")
    if given.report and not (given.trajectories or given.arenas):
        parser.error("--report needs --trajectories or --arenas: the rows that it is about")
    try:
        how: Decontaminating = load_params({KEY: Decontaminating})[KEY]
        if how.environments is None and WHEELS.is_dir():
            how = how.model_copy(update={"environments": str(unpacked(WHEELS))})
        if given.fingerprints:
            how = how.model_copy(update={"fingerprints": None})
        gathered = gather(how)
        rows = rows_of(given.trajectories, given.arenas)
        report = decontaminate(rows, how, gathered)
        clearance(report, how, report.rows_digest)
        if given.fingerprints:
            gathered.fingerprints.save(given.fingerprints)
        else:
            write_json(given.report, as_json(report))
    except StageError as error:
        print(f"decontamination: {error}", file=sys.stderr)
        return 2
    for known in report.fingerprinted:
        print(
            f"{known.benchmark}: {known.version}, {known.n_tools} tools, {known.n_questions} questions", file=sys.stderr
        )
    for absent in report.not_available:
        print(f"{absent.benchmark}: not available, waived. {absent.remedy}", file=sys.stderr)
    result = (
        f"{report.n_rows_hit} too like a case {report.hits_by_kind}"
        if report.fingerprinted
        else "compared with nothing"
    )
    print(f"decontamination: {report.n_rows} rows, {result}", file=sys.stderr)
    return 1 if report.hits else 0


if __name__ == "__main__":
    raise SystemExit(main())
