"""What every gate let through, from tool documents to training rows and from knowledge to arenas, and its picture.

A stage counts in things of its own (tools, walks, drafts, conversations), and one of them gives several of the next.
So the picture follows a share: it begins at 1, and every gate takes away the share that it rejects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, Literal, NamedTuple

LINES = {"imitation": "From tool documents to training rows", "arenas": "From knowledge to training arenas"}
STEPS = 8  # of a curve
ROOM = 0.42  # of a row's height, for the band; the rest is bend
LEAST = 0.006  # width of what is hardly anything, so that it is seen

HEAD = ("line", "stage", "unit", "in", "out", "rejected", "kept_apart", "yield", "of_all")  # of plots/yield.csv
POINT = ("line", "mark", "ribbon", "fate", "stage", "what", "count", "y", "x", "x2")  # of plots/flow.csv

Fate = Literal["passed", "rejected", "kept"]


class Gate(NamedTuple):
    """What came to a gate and what became of it; ``kept`` is put aside on purpose, as held-out arenas are."""

    line: str
    stage: str
    unit: str
    n_in: int
    n_out: int
    rejected: Mapping[str, int]
    kept: Mapping[str, int] = {}

    @property
    def share(self) -> float:
        """The share that passed; 1 where nothing came."""
        return self.n_out / self.n_in if self.n_in else 1.0


UNITS = {
    "imitation": {
        "normalize": "tools", "graph": "servers", "chains": "walks", "tasks": "drafts", "trajectories": "attempts",
        "score": "conversations",
    },
    "arenas": {"decompose": "questions", "envsynth": "decompositions", "merge": "environments and variants"},
}  # fmt: skip


def gates(metrics: Mapping[str, Any], of_trajectories: Mapping[str, int]) -> list[Gate]:
    """The gates of both lines, as far as their stages have run.

    ``of_trajectories`` counts, by reason, the trajectories that ``sft`` rejected: its own metrics count the
    demonstrations too.
    """
    found = [
        Gate(line, stage, unit, one["in"], one["out"], one.get("rejects", {}))
        for line, stages in UNITS.items()
        for stage, unit in stages.items()
        if (one := metrics.get(stage))
    ]
    if "score" in metrics and "imitation" in metrics.get("sft", {}):
        taught = metrics["sft"]["imitation"]
        scored = Gate("imitation", "sft", "conversations", metrics["score"]["out"], taught, of_trajectories)
        found.insert(sum(gate.line == "imitation" for gate in found), scored)
    splits = metrics.get("merge", {}).get("splits", {})
    if "train" in splits:
        aside = {split: count for split, count in splits.items() if split != "train"}
        found.append(Gate("arenas", "rl", "arenas", sum(splits.values()), splits["train"], {}, aside))
    return found


def table(found: Sequence[Gate]) -> list[dict[str, Any]]:
    """One row a gate, for plots/yield.csv: counts, the share that passed, and that of all since the line's start."""
    rows = []
    for _, line in groupby(found, lambda gate: gate.line):
        some = list(line)
        for gate, whole in zip(some, accumulate((gate.share for gate in some), lambda a, b: a * b), strict=True):
            rows.append(
                {
                    "line": gate.line, "stage": gate.stage, "unit": gate.unit, "in": gate.n_in, "out": gate.n_out,
                    "rejected": sum(gate.rejected.values()), "kept_apart": sum(gate.kept.values()),
                    "yield": round(gate.share, 4), "of_all": round(whole, 4),
                }
            )  # fmt: skip
    return rows


# ---------------------------------------------------------------- the picture


def flow(found: Sequence[Gate]) -> list[dict[str, Any]]:
    """The picture as rows, for plots/flow.csv: points of ribbons (``mark`` area) and words (``mark`` text).

    A row of the picture is one gate, ``y`` counts from above; ``x`` to ``x2`` is a share, falls lie right of the band.
    """
    rows: list[dict[str, Any]] = []
    for line, group in groupby(found, lambda gate: gate.line):
        width = 1.0
        for place, gate in enumerate(group):
            rows += _gate(LINES[line], place, gate, width)
            width *= gate.share
    return rows


def _gate(line: str, place: int, gate: Gate, width: float) -> Iterator[dict[str, Any]]:
    name = f"{line}, {place} {gate.stage}"
    kept = width * gate.share
    what = f"{gate.n_out:,} of {gate.n_in:,} {gate.unit} passed"
    yield from _ribbon(line, name, "passed", gate.stage, what, gate.n_out, place, (0, width), (0, max(kept, LEAST)))
    yield _word(line, place, 0.012, "gate", f"{gate.stage}: {gate.n_in:,} {gate.unit} → {gate.n_out:,}", gate.n_out)
    left = kept
    fates: tuple[tuple[Fate, Mapping[str, int]], ...] = (("rejected", gate.rejected), ("kept", gate.kept))
    for fate, reasons in fates:
        for reason, count in sorted(reasons.items(), key=lambda one: -one[1]):
            share = width * count / gate.n_in
            start, left = left, left + share
            end = 1.06 + (start - kept)
            to = (end, end + max(share, LEAST))
            told = f"{count:,} of {gate.n_in:,} {gate.unit}: {reason}"
            yield from _ribbon(line, f"{name} {reason}", fate, gate.stage, told, count, place, (start, left), to)
    lost = sum(gate.rejected.values()) + sum(gate.kept.values())
    if lost:
        words = _reasons({**gate.rejected, **gate.kept})
        yield _word(line, place + 0.62, 1.06, "fate", f"−{lost:,} {words}", lost)


def _reasons(counts: Mapping[str, int]) -> str:
    first, *others = sorted(counts, key=lambda reason: -counts[reason])
    return first if not others else f"{first} +{len(others)}"


def _ribbon(
    line: str, name: str, fate: Fate, stage: str, what: str, count: int, place: int,
    start: tuple[float, float], end: tuple[float, float],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A band that leaves at the top of its row and bends to where it goes: on to the next gate, or aside."""
    reach = 1.0 if fate == "passed" else 0.55
    for n in range(STEPS + 1):
        along = n / STEPS
        bent = along * along * (3 - 2 * along)
        x, x2 = (a + (b - a) * bent for a, b in zip(start, end, strict=True))
        y = place + ROOM + along * (reach - ROOM) if fate == "passed" else place + 0.1 + along * (reach - 0.1)
        yield _row(line, "area", name, fate, stage, what, count, y, x, x2)
    if fate == "passed":  # straight above the bend, where its words stand
        yield _row(line, "area", name, fate, stage, what, count, place, *start)


def _word(line: str, y: float, x: float, fate: str, what: str, count: int) -> dict[str, Any]:
    return _row(line, "text", "", fate, "", what, count, y, x, x)


def _row(
    line: str, mark: str, ribbon: str, fate: str, stage: str, what: str, count: int, y: float, x: float, x2: float
) -> dict[str, Any]:
    return {
        "line": line, "mark": mark, "ribbon": ribbon, "fate": fate, "stage": stage, "what": what, "count": count,
        "y": round(y, 4), "x": round(x, 5), "x2": round(x2, 5),
    }  # fmt: skip
