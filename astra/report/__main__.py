"""The report of the run in this folder, and its summary.

``python -m astra.report`` writes reports/index.html of whatever stages have run; ``--summary`` prints what every stage
took in, gave out and cost, and what was measured. ``--since SECONDS`` (of the clock, as ``date +%s`` says) adds how
long each stage took that ran since then: stages run one after another, each ends when its metrics appear.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from astra.report.reading import METRICS, numbers
from astra.report.summary import durations, summary
from astra.report.writing import REPORT, write_all
from astra.stage import StageError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m astra.report", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--summary", action="store_true", help="print a table of the stages instead")
    parser.add_argument("--since", type=float, metavar="SECONDS", help="when the run began, for the times")
    given = parser.parse_args(arguments)
    try:
        if given.summary:
            ends = {stage: Path(path).stat().st_mtime for stage, path in METRICS.items() if Path(path).is_file()}
            took = durations(ends, given.since) if given.since is not None else {}
            print(summary(numbers(), took, Path(REPORT)))
        else:
            print(f"report: {write_all(iter):,} records, {REPORT}/index.html", file=sys.stderr)
    except StageError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
