"""A walk as a candidate chain: where each argument comes from, what must come first, and which orders are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from astra.records import Binding, Server, ToolSpec, content_id
from astra.toolgraph.values import types
from astra.toolgraph.walks import Network, Walk

UNKNOWABLE = frozenset(("cursor", "token", "session", "handle", "etag", "checkpoint"))


@dataclass(frozen=True)
class Candidate:
    """A walk with its servers, where its arguments come from, and what must come before what."""

    servers: tuple[Server, ...]
    walk: Walk
    bindings: tuple[Binding, ...]
    after: frozenset[tuple[int, int]]  # (step, earlier step that it rests on)

    @cached_property
    def id(self) -> str:
        return chain_id(self.walk)

    @property
    def tools(self) -> list[ToolSpec]:
        """All tools of its servers; of two with one name the chain's, else the first."""
        own = {node.tool: node.server_id for node in self.walk.nodes}
        found: dict[str, ToolSpec] = {}
        for server in self.servers:
            for tool in server.tools:
                if own.get(tool.name, server.id) == server.id:
                    found.setdefault(tool.name, tool)
        return list(found.values())


class Refusal(NamedTuple):
    """Why a candidate is no chain."""

    reason: str
    detail: str


def chain_id(walk: Walk) -> str:
    one_server = len(walk.server_ids) == 1
    return content_id("chain", walk.server_ids[0] if one_server else walk.server_ids, walk.tools)


def bound(walk: Walk, servers: Mapping[str, Server], net: Network) -> Candidate | Refusal:
    """The walk with a source for each required argument, nearest earlier step first; else why it makes no chain."""
    tools = [_tool(servers[node.server_id], node.tool) for node in walk.nodes]
    bindings = tuple(
        _binding(step, parameter, walk, net)
        for step, tool in enumerate(tools)
        for parameter in tool.parameters.get("required", ())
    )
    for one in bindings:
        if one.origin == "user" and not statable(one.parameter, tools[one.step]):
            return Refusal("unknowable_argument", f"no user can state {tools[one.step].name}.{one.parameter}")
    after = {(one.step, one.from_step) for one in bindings if one.from_step is not None}
    using = {step for step, _ in after}
    for step in range(1, len(tools)):
        if step in using:
            continue
        proposed = net.edges[walk.nodes[step - 1]][walk.nodes[step]]
        if not proposed.votes_for or tools[step - 1].returns is not None:
            return Refusal("independent_step", f"{tools[step].name} uses no earlier result")
        after.add((step, step - 1))  # what an undocumented result gives is the model's word alone
    return Candidate(tuple(servers[one] for one in walk.server_ids), walk, bindings, frozenset(after))


def _tool(server: Server, name: str) -> ToolSpec:
    return next(tool for tool in server.tools if tool.name == name)


def _binding(step: int, parameter: str, walk: Walk, net: Network) -> Binding:
    for earlier in range(step - 1, -1, -1):
        edge = net.edge(walk.nodes[earlier], walk.nodes[step])
        for link in edge.via if edge else ():
            if link.parameter == parameter:
                return Binding(step=step, parameter=parameter, origin="result", from_step=earlier, output=link.output)
    return Binding(step=step, parameter=parameter, origin="user")


def statable(parameter: str, tool: ToolSpec) -> bool:
    """Whether a user can say a value for it: no cursors and tokens, no objects without documented fields."""
    schema = tool.parameters.get("properties", {}).get(parameter, {})
    last = parameter.lower().replace("-", "_").split("_")[-1]
    return last not in UNKNOWABLE and not (types(schema) == {"object"} and not schema.get("properties"))


def same_chain(one: Candidate, rebuilt: Sequence[Any]) -> bool:
    """Whether a rebuilt chain is the same tools in an order that respects every dependency (a linear extension)."""
    if Counter(map(str, rebuilt)) != Counter(one.walk.tools):
        return False
    place = {name: n for n, name in enumerate(rebuilt)}
    tools = one.walk.tools
    return all(place[tools[earlier]] < place[tools[step]] for step, earlier in one.after)
