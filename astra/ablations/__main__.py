"""Run the paper's ablations as DVC experiments, and keep what came of them.

    python -m astra.ablations run reward --seeds 17 18 19    # queues each arm and seed, runs the queue, collects
    python -m astra.ablations run reward --dry               # only says which dvc commands that is
    python -m astra.ablations collect                        # from experiments that have been run here
    python -m astra.ablations collect FOLDER...              # from workspaces, e.g. clones on other machines

Studies: reward, distractors, filling, training; none named means all (ablations/plan.yaml). ``dvc repro ablations``
then draws the curves.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from astra.ablations.collecting import collect, experiments, keep, workspaces
from astra.ablations.plan import Plan, Trial, flags, read_plan, trials
from astra.stage import StageError


def commands(plan: Plan, wanted: Sequence[Trial], jobs: int) -> list[list[str]]:
    """What ``run`` runs."""
    dvc = [sys.executable, "-m", "dvc", "exp", "run"]
    queued = [[*dvc, "--queue", "--name", one.name, *flags(plan, one)] for one in wanted]
    return [*queued, [*dvc, "--run-all", "--jobs", str(jobs)]]


def run(plan: Plan, wanted: Sequence[Trial], jobs: int, dry: bool) -> None:
    """Queue and run what has not been run. Raises StageError where dvc says no."""
    done = experiments(plan, wanted)
    missing = [one for one in wanted if one not in done]
    for command in commands(plan, missing, jobs) if missing else []:
        print(shlex.join(["dvc", *command[3:]]), flush=True)
        if not dry and subprocess.run(command, check=False, env=os.environ | {"PYTHONHASHSEED": "0"}).returncode:
            raise StageError(f"{shlex.join(command[3:])}: failed, see above; what has run is kept")
    if not dry:
        keep(*collect(experiments(plan, wanted)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m astra.ablations", description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run", help="queue and run the arms of these studies, then collect")
    running.add_argument("studies", nargs="*")
    running.add_argument("--seeds", type=int, nargs="+")
    running.add_argument("--jobs", type=int, default=1, help="experiments side by side; each takes about two cores")
    running.add_argument("--dry", action="store_true", help="only print the commands")
    collecting = verbs.add_parser("collect", help="keep curves and cases of what has been run")
    collecting.add_argument("folders", nargs="*", type=Path)
    given = parser.parse_args(arguments)
    try:
        plan = read_plan()
        if given.verb == "run":
            run(plan, trials(plan, given.studies, given.seeds or plan.seeds), given.jobs, given.dry)
        elif given.folders:
            keep(*collect(workspaces(plan, given.folders)))
        else:
            keep(*collect(experiments(plan, trials(plan, [], plan.seeds))))
    except StageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
