"""What the trials came to, as two small tables kept in git: curves of RL and the figures of every held-out case.

A trial is a DVC experiment of its name, or a folder (a clone, another machine's workspace) whose params.yaml says
which arm and seed it is.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from astra.ablations.figures import MEASURES
from astra.ablations.plan import Plan, Trial, trials
from astra.nested import leaves
from astra.stage import StageError
from astra.yaml_files import read_yaml

CURVES, CASES = Path("ablations/curves.csv"), Path("ablations/cases.csv")
CURVE, SAMPLES, PARAMS = "plots/rl.csv", "data/eval/samples.jsonl", "params.yaml"
KEYS = ["arm", "seed"]


class Source(Protocol):
    """Where the files of one trial are."""

    def read(self, path: str) -> str:
        """The text of a file. Raises StageError."""


class Folder:
    """A workspace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, path: str) -> str:
        file = self.folder / path
        if not file.is_file():
            raise StageError(f"{file}: no such file. Is {self.folder} a workspace in which dvc repro has run?")
        return file.read_text(encoding="utf-8")


class Experiment:
    """A DVC experiment of this repository; what DVC keeps outside git comes from its cache."""

    def __init__(self, name: str, revision: str) -> None:
        self.name, self.revision = name, revision

    def read(self, path: str) -> str:
        done = subprocess.run(["git", "show", f"{self.revision}:{path}"], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else self._from_cache(path)

    def _from_cache(self, path: str) -> str:
        import dvc.api  # 0.4 s, and only here
        from dvc.exceptions import DvcException

        try:
            text = dvc.api.read(path, rev=self.revision)
        except (DvcException, FileNotFoundError) as error:
            raise StageError(
                f"experiment {self.name}: {path}: {error}. Its cache is elsewhere? dvc exp pull, or run it again"
            ) from None
        return str(text)


def experiments(plan: Plan, wanted: Sequence[Trial]) -> dict[Trial, Source]:
    """The wanted trials that are experiments here, the newest of a name. Raises StageError where git says no."""
    done = subprocess.run(
        ["git", "for-each-ref", "--sort=creatordate", "--format=%(objectname) %(refname)", "refs/exps"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise StageError(f"git for-each-ref refs/exps: {done.stderr.strip()}. Run from the repository root")
    revisions = {line.rpartition("/")[2]: line.split()[0] for line in done.stdout.splitlines()}
    return {one: Experiment(one.name, revisions[one.name]) for one in wanted if one.name in revisions}


def workspaces(plan: Plan, folders: Iterable[Path]) -> dict[Trial, Source]:
    """The trials that lie in these folders. Raises StageError for params that are no arm's."""
    return {_trial_of(plan, folder): Folder(folder) for folder in folders}


def _trial_of(plan: Plan, folder: Path) -> Trial:
    Folder(folder).read(PARAMS)
    params = read_yaml(folder / PARAMS)
    own = dict(leaves(params))
    base = dict(leaves(read_yaml(Path(PARAMS))))
    keys = {key for arm in plan.arms.values() for key, _ in leaves(arm)}
    for trial in trials(plan, [], [params["seed"]]):
        asked = dict(leaves(plan.arms[trial.arm]))
        if all(own.get(key) == asked.get(key, base.get(key)) for key in keys):
            return trial
    differing = {key: own.get(key) for key in keys if own.get(key) != base.get(key)}
    raise StageError(f"{folder / PARAMS}: {differing} are the params of no arm of the plan")


def curve_rows(trial: Trial, source: Source) -> pd.DataFrame:
    """The trial's curve, one row an update."""
    found = pd.read_csv(io.StringIO(source.read(CURVE)))
    return found.assign(arm=trial.arm, seed=trial.seed)[[*KEYS, *found.columns]]


def case_rows(trial: Trial, source: Source) -> pd.DataFrame:
    """What each model of the trial did, greedily, at each held-out arena, one row a model and case."""
    rows: list[Mapping[str, Any]] = []
    for line in source.read(SAMPLES).splitlines():
        one = json.loads(line)
        if one["mode"] == "greedy" and "f1" in one["scores"] and one["benchmark"].startswith("heldout"):
            figures = {measure: one["scores"][measure] for measure in MEASURES}
            place = {"model": one["model"], "benchmark": one["benchmark"], "case": one["case"]}
            rows.append({"arm": trial.arm, "seed": trial.seed, **place, **figures})
    if not rows:
        raise StageError(f"{trial.name}: {SAMPLES} holds no held-out arenas; was eval.benchmarks.arenas left out?")
    return pd.DataFrame(rows)


def collect(found: Mapping[Trial, Source]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curves and cases of all trials, in their order. Raises StageError."""
    if not found:
        raise StageError("none of the plan's trials has been run here: python -m astra.ablations run")
    curves = pd.concat([curve_rows(*one) for one in found.items()], ignore_index=True)
    return curves, pd.concat([case_rows(*one) for one in found.items()], ignore_index=True)


def keep(curves: pd.DataFrame, cases: pd.DataFrame) -> None:
    """Put the trials' rows into the tables in place of earlier rows of the same trials."""
    for file, new in ((CURVES, curves), (CASES, cases.round(4))):
        old = pd.read_csv(file) if file.is_file() else new.iloc[:0]
        fresh = set(new[KEYS].itertuples(index=False, name=None))
        stays = [one not in fresh for one in old[KEYS].itertuples(index=False, name=None)]
        order = [*KEYS, *(["update"] if "update" in new.columns else ["model", "benchmark", "case"])]
        whole = pd.concat([old[stays], new], ignore_index=True).sort_values(order, ignore_index=True)
        file.parent.mkdir(exist_ok=True)
        whole.to_csv(file, index=False)
