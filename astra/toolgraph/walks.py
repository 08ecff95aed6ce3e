"""Seeded walks over tool graphs, by weight and steered towards what no walk has covered yet."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from astra.records import Edge, Server, ToolGraph


class Node(NamedTuple):
    """One tool of one server."""

    server_id: str
    tool: str


class Walk(NamedTuple):
    """Tools in order, and how much of the walked tools' weight went this way."""

    nodes: tuple[Node, ...]
    support: float

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(node.tool for node in self.nodes)

    @property
    def server_ids(self) -> tuple[str, ...]:
        """Its servers, in the order of first use."""
        return tuple(dict.fromkeys(node.server_id for node in self.nodes))


class Reach(NamedTuple):
    """How long walks are, how hard new ones are looked for, and how often coverage comes before weight."""

    min_length: int
    max_length: int
    tries: int
    coverage: float


class Network:
    """The edges of some servers' graphs, and how often each tool and edge was walked."""

    def __init__(self, graphs: Iterable[ToolGraph], servers: Iterable[Server]) -> None:
        """``servers`` say which names could be mistaken for each other where a walk crosses over."""
        self.edges: dict[Node, dict[Node, Edge]] = {}
        self.starts: dict[str, list[Node]] = {}
        self.n_edges = 0
        self.nodes: set[Node] = set()
        self.names: Mapping[str, frozenset[str]] = {
            server.id: frozenset(tool.name for tool in server.tools) for server in servers
        }
        self.walked_edges: Counter[tuple[Node, Node]] = Counter()
        self.walked_tools: Counter[Node] = Counter()
        self._fruitless: Counter[Node] = Counter()
        for graph in graphs:
            for edge in graph.edges:
                self._add(graph.server_id, edge)
        for source in self.edges:
            self.starts.setdefault(source.server_id, []).append(source)
        self._totals = {node: sum(edge.weight for edge in ways.values()) for node, ways in self.edges.items()}
        self._fresh = {node: len(ways) for node, ways in self.edges.items()}

    def _add(self, server_id: str, edge: Edge) -> None:
        source = Node(server_id, edge.source)
        target = Node(edge.target_server_id or server_id, edge.target)
        self.nodes |= {source, target}
        self.edges.setdefault(source, {})[target] = edge
        self.n_edges += 1

    def edge(self, source: Node, target: Node) -> Edge | None:
        return self.edges.get(source, {}).get(target)

    def walks(self, server_id: str, budget: int, reach: Reach, rng: random.Random) -> list[Walk]:
        """At most ``budget`` different walks from a server's tools; in the order in which they were found.

        Costs at most ``budget * reach.tries`` steps through at most ``reach.max_length`` tools, whatever the graph.
        """
        starts = sorted(self.starts.get(server_id, ()))
        rng.shuffle(starts)
        found: dict[tuple[Node, ...], Walk] = {}
        for attempt in range(reach.tries * budget):
            if len(found) == budget or not starts:
                break
            start = starts[attempt % len(starts)]
            if rng.random() < reach.coverage:
                start = min(starts, key=self._known)
            nodes = self.walk(start, rng.randint(reach.min_length, reach.max_length), reach.coverage, rng)
            if len(nodes) >= reach.min_length and nodes not in found:
                found[nodes] = Walk(nodes, self.support(nodes))
                self._mark(nodes)
            else:
                self._fruitless[start] += 1
        return list(found.values())

    def _known(self, node: Node) -> tuple[bool, int]:
        """How little there is left to find from a tool: all its edges walked; itself walked, or tried for nothing."""
        return self._fresh[node] == 0, self.walked_tools[node] + self._fruitless[node]

    def _mark(self, nodes: Sequence[Node]) -> None:
        self.walked_tools.update(nodes)
        for pair in pairwise(nodes):
            self._fresh[pair[0]] -= not self.walked_edges[pair]
            self.walked_edges[pair] += 1

    def walk(self, start: Node, length: int, coverage: float, rng: random.Random) -> tuple[Node, ...]:
        """One walk of at most ``length`` tools that never returns to one."""
        nodes = [start]
        while len(nodes) < length:
            here = nodes[-1]
            options = [node for node in self.edges.get(here, ()) if self._may_follow(node, nodes)]
            if not options:
                break
            if rng.random() < coverage:
                options = [node for node in options if not self.walked_edges[here, node]] or options
            weights = [self.edges[here][node].weight for node in options]
            nodes += rng.choices(options, weights=weights)
        return tuple(nodes)

    def _may_follow(self, node: Node, nodes: Sequence[Node]) -> bool:
        """Whether a tool is new to a walk, and every name in the walk still means one tool of its servers."""
        if node in nodes:
            return False
        others = {one.server_id for one in nodes} - {node.server_id}
        if not others:
            return True
        own = self.names[node.server_id]
        return not any(node.tool in self.names[other] for other in others) and not any(
            one.server_id != node.server_id and one.tool in own for one in nodes
        )

    def support(self, nodes: Sequence[Node]) -> float:
        shares = (self.edges[a][b].weight / self._totals[a] for a, b in pairwise(nodes))
        return round(float(math.prod(shares)), 6)

    def coverage(self, walks: Iterable[Sequence[Node]]) -> dict[str, float]:
        """The share of the tools that have an edge, and of the edges, that some walks hold."""
        tools: set[Node] = set()
        pairs: set[tuple[Node, Node]] = set()
        for nodes in walks:
            tools.update(nodes)
            pairs.update(pairwise(nodes))
        return {
            "tools": round(len(tools) / max(1, len(self.nodes)), 4),
            "edges": round(len(pairs) / max(1, self.n_edges), 4),
        }
