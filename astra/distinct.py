"""Servers with a name each, and tools that no earlier server has: what comes twice is noted or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from astra.formats.copies import fingerprint
from astra.records import Reject, Server, ToolSpec, content_id


class Outcome(NamedTuple):
    servers: tuple[Server, ...]
    rejects: tuple[Reject, ...]


def distinct(servers: Iterable[Server]) -> Outcome:
    """Servers with a name each: a copy of an earlier server is rejected, a namesake gets its id's digits."""
    servers = list(servers)
    kept: dict[str, Server] = {}
    rejects: list[Reject] = []
    names: set[str] = set()
    taken = {server.name for server in servers}
    for server in servers:
        if server.id in kept:
            detail = f"same name and tools as {kept[server.id].source.uri}: remove one of the two"
            rejects += [
                Reject(id=f"{server.source.uri}/{tool.name}", reason="duplicate_server", detail=detail)
                for tool in server.tools
            ]
            continue
        name = server.name
        if name in names:
            name = f"{server.name[:51]}_{server.id[-12:]}"
            while name in names | taken:
                name = f"{name[:-1]}{'x' if name[-1] != 'x' else 'y'}"
        names.add(name)
        kept[server.id] = server.model_copy(update={"name": name})
    return Outcome(tuple(kept.values()), tuple(rejects))


def without_copies(
    servers: Iterable[Server], duplicates: Literal["report", "drop"], min_tools: int, least: Mapping[str, int]
) -> Outcome:
    """The servers with copies of earlier servers' tools noted, or dropped; ``least`` is min_tools by server id.

    Only a tool that is kept is an original, and within one server nothing is a copy.
    """
    kept: list[Server] = []
    rejects: list[Reject] = []
    originals: dict[bytes, str] = {}
    for server in servers:
        keys = {tool.name: fingerprint(tool) for tool in server.tools}
        same = {name: originals[key] for name, key in keys.items() if key in originals}
        outcome = Outcome((server,), ())
        if same and duplicates == "report":
            outcome = Outcome((_noted(server, same),), ())
        elif same:
            outcome = _dropped(server, same, least.get(server.id, min_tools))
        for one in outcome.servers:
            for tool in one.tools:
                key = keys[tool.name]
                if key is not None:
                    originals.setdefault(key, f"{one.name}/{tool.name}")
        kept += outcome.servers
        rejects += outcome.rejects
    return Outcome(tuple(kept), tuple(rejects))


def _noted(server: Server, same: Mapping[str, str]) -> Server:
    tools = (
        tool.model_copy(update={"notes": (*tool.notes, f"copy_of {same[tool.name]}")}) if tool.name in same else tool
        for tool in server.tools
    )
    return server.model_copy(update={"tools": tuple(tools)})


def _dropped(server: Server, same: Mapping[str, str], wanted: int) -> Outcome:
    """The server without the tools that others have, or rejects for all where too few are left."""
    uri = server.source.uri
    rejects = [
        Reject(id=f"{uri}/{name}", reason="duplicate_tool", detail=f"the same tool as {original}, under any name")
        for name, original in same.items()
    ]
    tools = tuple(tool for tool in server.tools if tool.name not in same)
    if len(tools) < wanted:
        rejects += too_few(server.name, uri, [tool.name for tool in tools], wanted, empty=False)
        return Outcome((), tuple(rejects))
    changed = {"tools": tools, "id": server_id(server.source.format, server.name, tools)}
    return Outcome((server.model_copy(update=changed),), tuple(rejects))


def too_few(name: str, uri: str, tools: list[str], wanted: int, empty: bool) -> Iterator[Reject]:
    """One reject for each tool; one for the server where it is ``empty``, having not even bad ones."""
    detail = f"server {name} has {len(tools)} of at least {wanted} tools: give its notes min_tools and a reason"
    ids = [f"{uri}/{tool}" for tool in tools] or ([uri] if empty else [])
    return (Reject(id=one, reason="too_few_tools", detail=detail) for one in ids)


def server_id(source_format: str, name: str, tools: Iterable[ToolSpec]) -> str:
    return content_id("server", source_format, name, [tool.model_dump(mode="json") for tool in tools])
