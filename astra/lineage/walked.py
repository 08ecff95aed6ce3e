"""Chains that were refused keep their id only; the walks of a graph are few enough to find out which one it names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from astra.lineage.files import Files
from astra.records import ToolGraph, content_id

MOST = 200_000  # walks that are looked at
LONGEST = 6


class Walked(NamedTuple):
    """A walk and the id that its chain has or would have."""

    id: str
    server_ids: tuple[str, ...]
    tools: tuple[str, ...]


Place = tuple[str, str]  # server, tool


def walked_chains(files: Files, ids: set[str]) -> list[Walked]:
    """The walks whose chains have these ids, as far as they are among the first ones of the graphs."""
    wanted = {one for one in ids if one.startswith("chain-")}
    if not wanted:
        return []
    found: dict[str, Walked] = {}
    for one in islice(_walks(_edges(files)), MOST):
        if one.id in wanted:
            found[one.id] = one
            if len(found) == len(wanted):
                break
    return list(found.values())


def _edges(files: Files) -> dict[Place, list[Place]]:
    after: dict[Place, list[Place]] = {}
    for found in files.find(ToolGraph, b"{"):
        graph = found.record
        for edge in graph.edges:
            target = (edge.target_server_id or graph.server_id, edge.target)
            after.setdefault((graph.server_id, edge.source), []).append(target)
    return after


def _walks(after: dict[Place, list[Place]]) -> Iterator[Walked]:
    """All walks that meet no tool twice, short ones first."""
    longer: list[tuple[Place, ...]] = [(place,) for place in after]
    for _ in range(LONGEST - 1):
        longer = [(*walk, place) for walk in longer for place in after.get(walk[-1], ()) if place not in walk]
        if len(longer) > MOST:
            longer = longer[:MOST]
        yield from map(_chain, longer)


def _chain(walk: tuple[Place, ...]) -> Walked:
    servers = tuple(dict.fromkeys(server for server, _ in walk))
    tools = tuple(tool for _, tool in walk)
    return Walked(content_id("chain", servers[0] if len(servers) == 1 else servers, tools), servers, tools)
