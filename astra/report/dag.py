"""The picture of the pipeline: its stages, and which reads what another writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx

Spot = tuple[float, float]


class Picture(NamedTuple):
    """Where the stages stand, in boxes of one column and row, and the lines between them."""

    spots: Mapping[str, Spot]
    lines: Sequence[tuple[str, str]]
    columns: int
    rows: int


def lines(pipeline: Mapping[str, Any], leave_out: str) -> list[tuple[str, str]]:
    """Which stage feeds which, by the paths in dvc.yaml; metrics do not count, and a stage may be left out."""
    stages = {name: one for name, one in pipeline.get("stages", {}).items() if name != leave_out}
    writer = {path: name for name, one in stages.items() for path in _paths(one.get("outs", []))}
    found = [(writer[path], name) for name, one in stages.items() for path in _paths(one.get("deps", []))
             if path in writer and writer[path] != name]  # fmt: skip
    return list(dict.fromkeys(found))


def _paths(entries: Sequence[Any]) -> list[str]:
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


def picture(ends: Sequence[tuple[str, str]]) -> Picture:
    """Stages in columns by how many steps lie before them, each in its line's row; raises where they run in a ring."""
    tree = nx.DiGraph(ends)
    spots: dict[str, Spot] = {}
    columns = list(nx.topological_generations(tree))
    rows: dict[str, int] = {}
    for column, names in enumerate(columns):
        for name in sorted(names, key=lambda one: min((rows[a] for a in tree.predecessors(one)), default=len(rows))):
            taken = {rows[other] for other in names if other in rows}
            wish = min((rows[a] for a in tree.predecessors(name)), default=0)
            rows[name] = next(row for row in range(wish, wish + len(rows) + 2) if row not in taken)
            spots[name] = (column, rows[name])
    return Picture(spots, _direct(tree), len(columns), 1 + max(rows.values(), default=0))


def _direct(tree: nx.DiGraph[str]) -> list[tuple[str, str]]:
    """The lines that say something: one that a longer way says too is left out."""
    return list(nx.transitive_reduction(tree).edges)
