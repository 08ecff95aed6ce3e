"""A lineage as a tree that a person reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from astra.lineage.nodes import Item, Level, Made, Node

MARKS = {"passed": "+", "failed": "x", "noted": "-"}


def tree(node: Node, told: set[str] | None = None, indent: str = "") -> Iterator[str]:
    """The lines of a node and of all above it; what was told once is only named the second time."""
    told = set() if told is None else told
    missing = "   ** not found **" if node.missing else ""
    yield (
        f"{indent}{node.kind} {node.id}   [{node.where}]{missing}"
        if node.where
        else f"{indent}{node.kind} {node.id}{missing}"
    )
    key = f"{node.kind} {node.id}"
    if key in told:
        yield f"{indent}    (as above)"
        return
    told.add(key)
    if node.says:
        yield f"{indent}    {node.says}"
    if node.made is not None:
        yield f"{indent}    made by {made_text(node.made)}"
    for (outcome, reason), gates in groupby(node.gates, key=lambda gate: (gate.outcome, gate.reason)):
        yield f"{indent}    {MARKS[outcome]} {', '.join(gate.name for gate in gates)}: {reason}"
    for parent in node.parents:
        yield from tree(parent, told, indent + "  ")


def made_text(made: Made) -> str:
    """E.g. ``tasks: seed 17; teacher astra-rules-1 (builtin, temperature 0.7); prompts 1f2e3d4c5b6a``."""
    parts = [] if made.seed is None else [f"seed {made.seed}"]
    parts += [f"{role} {model}" for role, model in made.models.items()]
    parts += [f"prompts {made.prompts[:12]}"] if made.prompts else []
    parts += [f"code {made.code[:12]}"] if made.code else []
    parts += [f"replies to requests {', '.join(key[:12] for key in made.replies)}"] if made.replies else []
    if made.code is None:
        parts.append("not in dvc.lock: its seed and models are not on record")
    elif not made.current:
        parts.append("NOT the file of dvc.lock: what is said here is of the run before")
    return f"{made.stage}: {'; '.join(parts)}"


def levels_text(levels: Sequence[Level], most: int | None) -> Iterator[str]:
    """What became of something, level by level; ``most`` items of each, all for None."""
    for level in levels:
        yield f"{level.stage}: {len(level.items)} x {level.kind}{_reasons(level.rejects)}"
        yield from _items(level.items, most, "  ")
        yield from _items(level.rejects, most, "  x ")
        if level.note:
            yield f"  ({level.note})"


def _reasons(rejects: Sequence[Item]) -> str:
    if not rejects:
        return ""
    counted = Counter(item.reason for item in rejects).most_common()
    return f", {len(rejects)} rejected ({', '.join(f'{reason} {count}' for reason, count in counted)})"


def _items(items: Sequence[Item], most: int | None, indent: str) -> Iterator[str]:
    for item in items[:most]:
        came = f"   <- {', '.join(item.parents)}" if item.parents and item.parents != (item.id,) else ""
        why = f"{item.reason}: " if item.reason else ""
        yield f"{indent}{item.id}   {why}{item.says[:160]}{came}"
    if most is not None and len(items) > most:
        yield f"{indent}... and {len(items) - most} more (--all)"
