"""The dependency graph of sub-questions: its faults, its hop levels, and the shape that it has.

The shape is read from the graph over the steps that need a tool, never taken from who wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from astra.answers import folded
from astra.decomposition.draft import StepReply, Unsound
from astra.records import Shape, Step

MAX_STEPS = 20  # paths through a graph grow exponentially; the paper's questions have 4.4 steps on average


def renumbered(steps: Sequence[StepReply]) -> list[StepReply]:
    """The steps with their places as ids, and dependencies by place, after the checks of the graph. Raises Unsound."""
    check_graph([(one.id, one.question, one.depends_on) for one in steps])
    place = {one.id: number for number, one in enumerate(steps, 1)}
    return [
        one.model_copy(update={"id": place[one.id], "depends_on": [place[before] for before in one.depends_on]})
        for one in steps
    ]


def check_graph(steps: Sequence[tuple[int, str, Sequence[int]]]) -> None:
    """The faults of a graph of (id, question, dependencies), worst first. Raises Unsound.

    Too many steps, two steps of one id or one question, one dependency twice, a dependency that no step has, a cycle,
    and a step that stands before what it depends on.
    """
    if len(steps) > MAX_STEPS:
        raise Unsound("too_many_steps", f"{len(steps)} steps, at most {MAX_STEPS}")
    places: dict[int, int] = {}
    asked: dict[str, int] = {}
    for place, (number, question, before) in enumerate(steps):
        if number in places:
            raise Unsound("duplicate_step", f"two steps have id {number}")
        if folded(question) in asked:
            raise Unsound("duplicate_step", f"steps {asked[folded(question)]} and {number} both ask: {question}")
        if len(set(before)) < len(before):
            raise Unsound("duplicate_dependency", f"step {number} depends on {list(before)}")
        places[number], asked[folded(question)] = place, number
    edges = {number: tuple(before) for number, _, before in steps}
    for number, before in edges.items():
        dangling = sorted(set(before) - edges.keys())
        if dangling:
            raise Unsound("dangling_dependency", f"step {number} depends on {dangling}; steps are {sorted(edges)}")
    cycle = _cycle(edges)
    if cycle:
        raise Unsound("cyclic_dependency", f"steps {cycle} wait for each other")
    for number, before in edges.items():
        later = [one for one in before if places[one] > places[number]]
        if later:
            raise Unsound("forward_dependency", f"step {number} stands before {later}, which it depends on")


def _cycle(edges: Mapping[int, Sequence[int]]) -> list[int]:
    """The steps that can never begin, since each waits for another of them; empty without a cycle."""
    left = dict(edges)
    while True:
        free = [number for number, before in left.items() if not set(before) & left.keys()]
        if not free:
            return sorted(left)
        for number in free:
            del left[number]


def levels(steps: Sequence[Step]) -> dict[int, int]:
    """The hop level of every step: 1 without dependencies, else one more than the highest of those."""
    found: dict[int, int] = {}
    for step in steps:
        found[step.id] = 1 + max((found[before] for before in step.depends_on), default=0)
    return found


def check_hops(steps: Sequence[Step], stated: Sequence[tuple[int, int]], most: int) -> None:
    """Stated hop levels are those of the graph, and no chain of tool steps is longer than ``most``. Raises Unsound."""
    found = levels(steps)
    wrong = [f"step {number}: {hop}, the graph gives {found[number]}" for number, hop in stated if found[number] != hop]
    if wrong:
        raise Unsound("wrong_hop_level", "; ".join(wrong))
    if depth(steps) > most:
        raise Unsound("too_many_hops", f"{depth(steps)} hops, decompose.max_hops is {most}")


def depth(steps: Sequence[Step]) -> int:
    """The longest chain of steps that need a tool."""
    tools = _tool_steps(steps)
    return max(levels(tools).values(), default=0)


def shape_of(steps: Sequence[Step]) -> Shape:
    """The shape of the graph over the steps that need a tool. Raises Unsound where no step needs one."""
    tools = _tool_steps(steps)
    if not tools:
        raise Unsound("no_tool_step", "no step needs a tool")
    longest = depth(steps)
    if len(tools) == 1:
        return "single_hop"
    if longest == 1:
        return "parallel_single_hop"
    return "multi_hop" if longest == len(tools) else "parallel_multi_hop"


def _tool_steps(steps: Sequence[Step]) -> list[Step]:
    """Those that need a tool, with the dependencies among them."""
    needed = {step.id for step in steps if step.needs_tool}
    return [
        step.model_copy(update={"depends_on": tuple(one for one in step.depends_on if one in needed)})
        for step in steps
        if step.id in needed
    ]
