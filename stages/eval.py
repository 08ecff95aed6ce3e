"""Eval: any models on arenas and conversations they have never seen and on public benchmarks, with 95 % intervals.

models/*, data/merge, data/trajectories, data/sft, data/bench_env -> data/eval/samples.jsonl, metrics/eval.json

Models are local weights (the pipeline's own, a folder, a hub id) or endpoints; ``eval.models`` names them. Our own
benchmarks are the held-out arenas (unseen facts and compositions, entities, tools), the refusal set and the variants
that cannot be done, and held-out conversations of the imitation line; those of others run their own data and checkers
(``astra/benchmarks``). All models meet the same cases; differences are paired by case. A model's own failure is a zero
with a note; a case that the machinery broke is no score but a reject, and too many of them stop the stage. What was
played is kept in the cache, case by case, so that a stage that was stopped goes on where it was.

Departures: the paper's arenas are not published; its numbers stand beside ours in the README.

    python -m stages.eval
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from astra.benchmarks.imitation import held_out
from astra.benchmarks.models import Endpoint, Local, Named, purse_of
from astra.benchmarks.registry import BENCHMARKS
from astra.benchmarks.registry import Benchmark as Package
from astra.caches import digest_of
from astra.chat import ChatError
from astra.llm.types import Settings
from astra.records import Arena, Reject, Section, Trajectory, Unavailable
from astra.stage import Contract, Run, StageError, read_records, write_records
from astra.training.arena_cases import KINDS, Benchmark, benchmarks
from astra.training.distractors import Mixing
from astra.training.episodes import Limits
from astra.training.measuring import Broken, Chosen, Job, Measured, hash_of, measure, with_options
from astra.training.scoreboard import Kind, bars, chart, collected, counted, differences, table
from astra.wheels import unpacked

ARENAS, IMITATION = "arenas", "imitation"  # beside the names of astra.benchmarks.registry
IMITATED = Kind(("same_calls",), frozenset())


class Slice(Section):
    """How much of a benchmark is played."""

    cases: int | None = Field(
        default=None, ge=1, description="Evenly spread over its own order; of arenas the first. Null: all."
    )
    trials: int = Field(default=1, ge=1, description="Times each case is played; arenas of local models once a mode.")
    temperature: float | None = Field(default=None, ge=0, le=2, description="Null: what the model has.")
    top_p: float | None = Field(default=None, gt=0, le=1)
    options: dict[str, Any] = Field(default={}, description="Of its worker, e.g. attack or path.")
    models: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="Which of eval.models play it; null: all."
    )


class Params(Section):
    workers: int = Field(ge=1, description="Processes, each with one local model; results do not depend on it.")
    batch: int = Field(ge=1, description="Arena episodes of a local model played side by side.")
    temperature: float = Field(gt=0, description="Of the sampled mode of arenas; greedy is always measured too.")
    limits: Limits
    distractors: Mixing = Field(description="Tools mixed into every arena case, the same for all models.")
    models: dict[str, Named] = Field(min_length=1, description="What is measured, by its name in the tables.")
    user: Endpoint | None = Field(description="The model that plays the user, where a benchmark needs one.")
    pairs: tuple[tuple[str, str], ...] = Field(description="Differences to report, where both are measured.")
    benchmarks: dict[str, Slice] = Field(min_length=1, description="arenas, imitation, names or patterns of others.")
    max_errors: float = Field(ge=0, lt=1, description="Share of a model's cases at a benchmark that may break.")


CONTRACT = Contract(
    name="eval",
    reads={
        **{name: f"models/{name}" for name in ("base", "sft", "rl", "control")},
        "arenas": "data/merge/arenas.jsonl",
        "trajectories": "data/trajectories/trajectories.jsonl",
        "rows": "data/sft/train.parquet",
        "apart": "data/sft/heldout.parquet",
        "rejects": "data/sft/rejects.jsonl",
        "packages": "data/bench_env/packages",
        "extras": "data/bench_env/extras",
        "worker": "astra/benchmarks/worker/__main__.py",
    },
    writes={"samples": "data/eval/samples.jsonl", "notes": "data/eval/notes.jsonl"},
    params={"seed": int, "eval": Params, "policy.threads": int},
    plots=("plots/eval.csv", "plots/f1.csv", "plots/benchmarks.csv"),
    settings={"llm": Settings},
)


def arena_sets(run: Run, params: Params, seed: int) -> list[Benchmark]:
    """The arenas, where they are asked for. Raises StageError for a split without any."""
    if ARENAS not in params.benchmarks:
        return []
    sets = benchmarks(run.read("arenas", Arena), params.distractors, seed, params.benchmarks[ARENAS].cases)
    empty = [one.name for one in sets if not one.cases]
    if empty:
        raise StageError(f"data/merge/arenas.jsonl holds no arenas for {', '.join(empty)}; see decompose.questions")
    return sets


def recorded(run: Run, params: Params) -> list[Trajectory]:
    """The conversations that sft was kept from, where they are asked for."""
    if IMITATION not in params.benchmarks:
        return []
    rows = pd.read_parquet(run.path("rows"), columns=["id", "parent"])
    apart = pd.read_parquet(run.path("apart"), columns=["id", "parent"])
    ids, ids_apart = ({*one["id"], *one["parent"]} for one in (rows, apart))
    return held_out(run.read("trajectories", Trajectory), ids, ids_apart, read_records(run.path("rejects"), Reject))


def check_names(params: Params) -> None:
    """Raises StageError for a benchmark of a model that is not measured, and two endpoints that replies mix up."""
    labels: dict[str, str] = {}
    for label, model in params.models.items():
        if isinstance(model, Endpoint) and (other := labels.setdefault(model.model_dump_json(), label)) != label:
            raise StageError(
                f"params.yaml: eval.models: {other} and {label} have the same params, and kept replies go by them, not "
                f"by the address: one would get the other's. Serve them under names of their own (vllm: "
                f"--served-model-name), not both as {model.name!r}"
            )
    for name, how in params.benchmarks.items():
        if unknown := sorted(set(how.models or ()) - params.models.keys()):
            known = ", ".join(params.models)
            raise StageError(f"params.yaml: eval.benchmarks.{name}.models: no {unknown}; eval.models has: {known}")


def packages(run: Run, params: Params) -> list[Chosen]:
    """The benchmarks of others that params name, each once. Raises StageError for a name that fits none."""
    found: dict[str, Chosen] = {}
    for pattern, how in params.benchmarks.items():
        if pattern in (ARENAS, IMITATION):
            continue
        names = [name for name in BENCHMARKS if fnmatchcase(name, pattern)]
        if not names:
            known = ", ".join([ARENAS, IMITATION, *BENCHMARKS])
            raise StageError(f"params.yaml: eval.benchmarks: {pattern!r} fits no benchmark; there are: {known}")
        for name in names:
            package = with_options(BENCHMARKS[name], how.options)
            paths = [run.path(word) / package.environment for word in ("packages", "extras") if package.environment]
            paths += [Path(how.options["path"])] if how.options.get("path") else []
            data = digest_of(*(one for one in paths if one.exists()))
            found[name] = _chosen(name, package, how, data)
    return list(found.values())


def _chosen(name: str, package: Package | None, how: Slice, data: str) -> Chosen:
    return Chosen(name, package, how.cases, how.trials, how.temperature, how.top_p, how.models, data)


def plan(run: Run, params: Params, seed: int) -> Job:
    """Everything that each of the models meets."""
    talks = recorded(run, params)
    chosen = packages(run, params)
    if IMITATION in params.benchmarks:
        data = hash_of([one.model_dump_json() for one in talks])
        chosen.insert(0, _chosen(IMITATION, None, params.benchmarks[IMITATION], data))
    arenas = run.path("arenas")
    return Job(
        sets=tuple(arena_sets(run, params, seed)),
        trials=params.benchmarks[ARENAS].trials if ARENAS in params.benchmarks else 1,
        players=params.benchmarks[ARENAS].models if ARENAS in params.benchmarks else None,
        chosen=tuple(chosen), recorded=tuple(talks),
        environments=unpacked(run.path("packages"), run.path("extras")),
        user=params.user, settings=run.settings["llm"], limits=params.limits, batch=params.batch,
        temperature=params.temperature, threads=run.params["policy.threads"], seed=seed,
        arenas=hash_of([digest_of(arenas), params.distractors.model_dump_json()]) if arenas.is_file() else "",
    )  # fmt: skip


def present(models: Mapping[str, Local | Endpoint]) -> tuple[dict[str, Local | Endpoint], dict[str, str]]:
    """The models that can be measured, and why others are not. Raises StageError for a folder that is not there."""
    found, skipped = {}, {}
    for label, how in models.items():
        folder = Path(how.name)
        if isinstance(how, Local) and (how.name.startswith(("models/", ".", "/")) or folder.is_dir()):
            if not folder.is_dir():  # a loader would take its path for a hub id
                raise StageError(f"eval.models.{label}: {folder}: no such folder; dvc repro {folder}, or mend the name")
            if not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
                skipped[label] = f"skipped: {folder} holds no weights"
                continue
        found[label] = how
    if not found:
        raise StageError(f"params.yaml: eval.models: none can be measured: {skipped}")
    return found, skipped


def play_all(run: Run, models: Mapping[str, Local | Endpoint], job: Job, workers: int) -> dict[str, Measured]:
    """What came of every model; local ones in processes of their own. Raises Unavailable, StageError."""
    purse = purse_of(job.settings)
    apart = [one for one, how in models.items() if isinstance(how, Local) and workers > 1 and job.user is None]
    played: dict[str, Measured] = {}
    try:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:  # starts no process that has nothing to do
            waiting = pool.map(partial(_alone, models=dict(models), job=job), apart)
            here = (one for one in models if one not in apart)
            played |= {label: measure(label, models[label], job, purse) for label in here}
            played |= dict(zip(apart, run.progress(waiting, total=len(apart), unit="model"), strict=True))
    except ChatError as error:
        raise StageError(f"eval.models: {error}") from None
    return {label: played[label] for label in models}


def _alone(label: str, models: Mapping[str, Local | Endpoint], job: Job) -> Measured:
    return measure(label, models[label], job)


def too_many(played: Mapping[str, Measured], limit: float) -> list[str]:
    """What to say of each model and benchmark of whose cases more than this share broke."""
    said = []
    for label, one in played.items():
        broken = Counter(each.benchmark for each in one.broken)
        whole = broken + Counter(each.benchmark for each in one.samples)
        for benchmark, count in broken.items():
            if count > limit * whole[benchmark]:
                first = next(each for each in one.broken if each.benchmark == benchmark)
                why = f"{first.reason}: {first.detail[:300]}"
                said.append(f"{label} at {benchmark}: {count} of {whole[benchmark]} cases broke, the first by {why}")
    return said


def kinds_of(job: Job) -> dict[str, Kind]:
    """How each benchmark's measures are read."""
    kinds = {one.name: KINDS[one.name] for one in job.sets}
    for one in job.chosen:
        package = one.package
        if package is None:
            kinds[one.name] = IMITATED
        else:
            binary = frozenset({package.measure}) if package.binary else frozenset()
            kinds[one.name] = Kind((package.measure,), binary, package.measure if package.binary else None)
    return kinds


def status_of(job: Job, played: Iterable[Measured]) -> dict[str, Any]:
    """Benchmark -> ran or skipped and why, with version, data, form and sampling."""
    found: dict[str, Any] = {
        one.name: {"status": "ran", "version": "1", "data": job.arenas, "cases": len(one.cases)} for one in job.sets
    }
    for measured in played:
        for name, status in measured.status.items():
            found[name] = found.get(name, {}) | status
    return found


def write_tables(run: Run, played: Mapping[str, Measured], job: Job, params: Params) -> None:
    """Metrics and plots."""
    kinds = kinds_of(job)
    values = collected(sample for one in played.values() for sample in one.samples)
    broken = [each for one in played.values() for each in one.broken]
    run.metrics |= {
        "models": table(values, kinds),
        "paired": differences(values, kinds, params.pairs),
        "benchmarks": status_of(job, played.values()),
        "used": {label: one.used for label, one in played.items()},
    }
    if job.user is not None:
        run.metrics["user"] = {label: one.user for label, one in played.items()}
    if broken:
        run.metrics["errors"] = counted((one.model, one.benchmark, one.reason) for one in broken)
    everything = bars(run.metrics["models"], Counter((one.model, one.benchmark) for one in broken))
    for label, one in played.items():  # where the budget of a run looks for what its stages cost
        cost = sum(part.get("cost_usd", 0.0) for part in (one.used, one.user))
        if cost:
            run.metrics["models"].setdefault(label, {})["cost_usd"] = round(cost, 6)
    main = {name: kind.compared[0] for name, kind in kinds.items()}
    arenas = everything["benchmark"].isin([one.name for one in job.sets])
    Path(CONTRACT.plots[0]).parent.mkdir(exist_ok=True)
    everything.to_csv(CONTRACT.plots[0], index=False)
    chart(everything[arenas], dict.fromkeys(main, "f1")).to_csv(CONTRACT.plots[1], index=False)
    chart(everything, {name: one for name, one in main.items() if one != "f1"}).to_csv(CONTRACT.plots[2], index=False)


def rejected(broken: Sequence[Broken]) -> list[Reject]:
    return [
        Reject(id=f"{one.model}:{one.benchmark}:{one.case}:{one.trial}", reason=one.reason, detail=one.detail)
        for one in broken
    ]


def main() -> None:
    with Run(CONTRACT) as run:
        params: Params = run.params["eval"]
        check_names(params)
        models, skipped = present(params.models)
        job = plan(run, params, run.params["seed"])
        played = play_all(run, models, job, params.workers)
        rejects = rejected([each for one in played.values() for each in one.broken])
        failed = too_many(played, params.max_errors)
        if failed:
            write_records(CONTRACT.rejects, rejects)
            raise Unavailable(
                "\n".join(failed) + f"\nNo score stands for them ({CONTRACT.rejects}); eval.max_errors is "
                f"{params.max_errors}. What was played is kept; when it works again: dvc repro eval"
            )
        for one in rejects:
            run.reject(one.id, one.reason, one.detail)
        run.n_in = sum(one.n_planned for one in played.values())
        run.n_out = run.write("samples", [sample for one in played.values() for sample in one.samples])
        run.write("notes", [note for one in played.values() for note in one.notes])
        write_tables(run, played, job, params)
        run.metrics["benchmarks"] |= {f"model {label}": {"status": why} for label, why in skipped.items()}
        for name, status in run.metrics["benchmarks"].items():
            if status["status"] != "ran":
                print(f"eval: {name}: {status['status']}", file=sys.stderr)


if __name__ == "__main__":
    main()
