"""What a run left behind, as far as it got."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from astra.records import (
    Arena,
    Chain,
    Record,
    Reject,
    Rollout,
    Sample,
    Scorecard,
    Server,
    Task,
    ToolGraph,
    Trajectory,
)
from astra.report import views
from astra.report.chunks import Entry
from astra.stage import StageError, read_records

R = TypeVar("R", bound=Record)

STAGES = (
    "bench_env", "normalize", "graph", "chains", "tasks", "trajectories", "score", "decompose", "envsynth", "merge",
    "sft", "rl", "eval", "ablations",
)  # fmt: skip
STUDIES = ("reward", "distractors", "filling", "training")
METRICS = {stage: f"metrics/{stage}.json" for stage in STAGES}
REJECTS = {stage: f"data/{stage}/rejects.jsonl" for stage in STAGES}
CURVES = {
    "sft": "plots/sft.csv", "rl": "plots/rl.csv", "eval": "plots/eval.csv",
    **{f"ablation_{study}": f"plots/ablation_{study}.csv" for study in STUDIES},
}  # fmt: skip
RECORDS = {
    "servers": "data/normalize/servers.jsonl",
    "graphs": "data/graph/graphs.jsonl",
    "chains": "data/chains/chains.jsonl",
    "tasks": "data/tasks/tasks.jsonl",
    "trajectories": "data/trajectories/trajectories.jsonl",
    "scorecards": "data/score/scorecards.jsonl",
    "arenas": "data/merge/arenas.jsonl",
    "rollouts": "data/rl/rollouts.jsonl",
    "samples": "data/eval/samples.jsonl",
}


class Numbers(NamedTuple):
    """All of a run that is not records."""

    metrics: dict[str, Any]
    curves: dict[str, list[dict[str, Any]]]
    of_trajectories: Counter[str]  # what sft rejected of the imitation line


def numbers() -> Numbers:
    """The metrics and curves in the working folder. Raises StageError for a file that is not what it should be."""
    metrics = {stage: _json(path) for stage, path in METRICS.items() if Path(path).is_file()}
    curves = {name: rows(path) for name, path in CURVES.items() if Path(path).is_file()}
    if not metrics:
        raise StageError("metrics/: no stage has left metrics here, so there is nothing to report. Run: dvc repro")
    taught = _some(REJECTS["sft"], Reject)
    return Numbers(metrics, curves, Counter(one.reason for one in taught if one.id.startswith("trajectory-")))


def _json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise StageError(f"{path}: not JSON: {error}. Rerun the stage that writes it: dvc repro -f {path}") from None


def rows(path: str | Path) -> list[dict[str, Any]]:
    """A CSV file, its numbers as numbers; what is empty or not finite is none."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        return [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> Any:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return text or None
    return value if abs(value) < float("inf") else None


def entries() -> dict[str, Iterator[Entry]]:
    """All records of the run by kind, read as they are asked for."""
    servers = list(_some(RECORDS["servers"], Server))
    names = {server.id: server.title or server.name for server in servers}
    return {
        "graph": _graphs(servers, names),
        "chain": (views.chain(one, names) for one in _some(RECORDS["chains"], Chain)),
        "task": (views.task(one, names) for one in _some(RECORDS["tasks"], Task)),
        "trajectory": _trajectories(names),
        "arena": (views.arena(one) for one in _some(RECORDS["arenas"], Arena)),
        "rollout": (views.rollout(one) for one in _some(RECORDS["rollouts"], Rollout)),
        "sample": (views.sample(one) for one in _some(RECORDS["samples"], Sample)),
        "reject": _rejects(),
    }


def _some(path: str, kind: type[R]) -> Iterator[R]:
    """The records of a file; none where its stage has not run."""
    return read_records(path, kind) if Path(path).is_file() else iter(())


def _graphs(servers: list[Server], names: dict[str, str]) -> Iterator[Entry]:
    graphs = {one.server_id: one for one in _some(RECORDS["graphs"], ToolGraph)}
    return (views.graph(server, graphs.get(server.id), names) for server in servers)


def _trajectories(names: dict[str, str]) -> Iterator[Entry]:
    """Conversations with their scorecards, which are few bytes each: they are held, conversations are not."""
    cards = {card.trajectory_id: card for card in _some(RECORDS["scorecards"], Scorecard)}
    for one in _some(RECORDS["trajectories"], Trajectory):
        yield views.trajectory(one, cards.pop(one.id, None), names)


def _rejects() -> Iterator[Entry]:
    for stage, path in REJECTS.items():
        for number, one in enumerate(_some(path, Reject)):
            yield views.reject(one, stage, number)
