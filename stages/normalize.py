"""Raw tool documents and live MCP servers -> data/normalize/servers.jsonl (paper section 3.1).

Every file under data/raw/tools is a document: an MCP tool list, OpenAI functions, OpenAPI, a RapidAPI hub
(``astra.formats`` tells them apart by content), or a ``mcpServers`` configuration whose servers are started and asked
for their tools. What a document cannot say of itself (domain, licence, a lower minimum of tools with its reason, which
live tools answer the same on any day) stands beside it in ``<name>.notes.yaml``.

One bad tool never removes its server, one bad server never its file: whatever drops out is a reject with a JSON
pointer. The unit that is counted is the tool; a file or server that gives none counts as one.

Departures from the paper: no model judges whether a description is clear. A tool without one stays and carries the note
``no_description``; nothing is dropped silently.

    python -m stages.normalize
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from astra.formats import READERS, FoundServer, UnknownFormat, format_of
from astra.formats.parsing import SUFFIXES, Unreadable, parse
from astra.live import LiveConfigInvalid, LiveError, LiveServer, Notes, notes_file, read_notes, server_config
from astra.records import Reject, Section, Server, Source, content_id
from astra.stage import Contract, Run, StageError


class Params(Section):
    min_tools: int = Field(ge=1, description="Fewer tools reject a server (paper: 3), unless its notes say why.")
    max_ref_depth: int = Field(ge=1, le=4, description="How often a definition is unrolled inside itself.")
    start_timeout_s: float = Field(gt=0, description="What a live server gets until it answers initialize.")
    call_timeout_s: float = Field(gt=0, description="What a live server gets for each page of its tool list.")


CONTRACT = Contract(
    name="normalize",
    reads={
        "tools": "data/raw/tools",
        "knowledge": "data/raw/knowledge/knowledge.yaml",
        "knowledge_server": "astra/knowledge_server.py",
    },
    writes={"servers": "data/normalize/servers.jsonl"},
    params={"normalize": Params},
)
NO_DOMAIN = "unclassified"
NO_LICENCE = "unknown"


class Outcome(NamedTuple):
    servers: tuple[Server, ...]
    rejects: tuple[Reject, ...]


@dataclass(frozen=True)
class Found:
    """A server of some document, before it is decided whether it stays."""

    server: FoundServer
    source: Source
    notes: Notes


# -------------------------------------------------------------------- documents


def documents(folder: Path) -> list[Path]:
    """The files to read, sorted by path. Raises StageError where there are none."""
    files = [path for path in folder.rglob("*") if path.is_file() and not _is_beside(path)]
    if not files:
        raise StageError(f"{folder}: no tool documents. Put at least one there; README names the formats")
    return sorted(files, key=lambda path: path.as_posix())


def _is_beside(path: Path) -> bool:
    """Notes, read-me files and dot files stand beside documents and are none."""
    return path.name.startswith(".") or path.name.endswith(".notes.yaml") or path.suffix == ".md"


def read(path: Path, params: Params) -> tuple[list[Found], list[Reject]]:
    """All servers of one file. Raises StageError for notes that are wrong."""
    uri = path.as_posix()
    if path.suffix not in SUFFIXES:
        return [], [Reject(id=uri, reason="unknown_suffix", detail=f"{uri}: expected {', '.join(SUFFIXES)}: rename it")]
    try:
        document = parse(path)
    except Unreadable as error:
        return [], [Reject(id=uri, reason="unreadable", detail=str(error))]
    try:
        notes = read_notes(path)
    except LiveConfigInvalid as error:
        raise StageError(str(error)) from None
    if isinstance(document, dict) and isinstance(document.get("mcpServers"), dict):
        found, rejects = from_live(document["mcpServers"], uri, notes, params)
        names = set(document["mcpServers"])
    else:
        revision = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        found, rejects = from_document(document, uri, revision, notes, params)
        names = {one.server.name for one in found}
    strangers = sorted(notes.keys() - names)
    if strangers and not rejects:
        raise StageError(
            f"{notes_file(path)}: {strangers[0]}: no such server in {uri}. Its servers: {', '.join(sorted(names))}"
        )
    return found, rejects


def from_document(
    document: Any, uri: str, revision: str, notes: Mapping[str, Notes], params: Params
) -> tuple[list[Found], list[Reject]]:
    """The servers that a parsed document states."""
    try:
        name = format_of(document)
    except UnknownFormat as error:
        return [], [Reject(id=uri, reason="unknown_format", detail=f"{uri}: {error}: mend it or move it away")]
    found = list(READERS[name].servers(document, uri, params.max_ref_depth))
    several = len(found) > 1
    return [
        Found(
            server=server,
            source=Source(
                format=name,
                uri=f"{uri}#{server.name}" if several else uri,
                revision=revision,
                licence=server.licence or NO_LICENCE,
            ),
            notes=notes.get(server.name, Notes()),
        )
        for server in found
    ], []


def from_live(
    entries: Mapping[str, Any], uri: str, notes: Mapping[str, Notes], params: Params
) -> tuple[list[Found], list[Reject]]:
    """The servers that a ``mcpServers`` configuration names, asked one after the other."""
    found: list[Found] = []
    rejects: list[Reject] = []
    for name, entry in entries.items():
        try:
            server, version = ask(name, entry, uri, params)
        except LiveConfigInvalid as error:
            rejects.append(Reject(id=f"{uri}#{name}", reason="live_config_invalid", detail=str(error)))
            continue
        except LiveError as error:
            rejects.append(Reject(id=f"{uri}#{name}", reason="live_server_failed", detail=str(error)))
            continue
        source = Source(format="mcp_live", uri=f"{uri}#{name}", revision=version, licence=NO_LICENCE)
        found.append(Found(server, source, notes.get(name, Notes())))
    return found, rejects


def ask(name: str, entry: Any, uri: str, params: Params) -> tuple[FoundServer, str]:
    """What a live server lists, and its version. Raises LiveError."""
    config = server_config(name, entry, uri)
    with LiveServer(config, params.start_timeout_s, params.call_timeout_s) as session:
        tools = [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
            }
            for tool in session.list_tools()
        ]
        told = {"serverInfo": {"name": name}, "instructions": session.instructions, "tools": tools}
        return next(READERS["mcp"].servers(told, uri, params.max_ref_depth)), session.version


# --------------------------------------------------------------------- decisions


def keep(found: Found, params: Params) -> Outcome:
    """The server's record, or rejects for each of its tools; its bad tools are rejects in any case."""
    server, notes, source = found.server, found.notes, found.source
    rejects = [
        Reject(id=f"{source.uri}{'' if '#' in source.uri else '#'}{one.pointer}", reason=one.reason, detail=one.detail)
        for one in server.problems
    ]
    wanted = notes.min_tools or params.min_tools
    if len(server.tools) < wanted:
        rejects += _too_few(found, wanted)
        return Outcome((), tuple(rejects))
    record = Server(
        id=content_id("server", source.format, server.name, [tool.model_dump(mode="json") for tool in server.tools]),
        name=server.name,
        title=notes.title or server.title,
        description=notes.description or server.description,
        domain=(notes.domain or server.domain or NO_DOMAIN).strip().lower(),
        tools=server.tools,
        source=source.model_copy(update={"licence": notes.licence or source.licence}),
    )
    return Outcome((record,), tuple(rejects))


def _too_few(found: Found, wanted: int) -> Iterator[Reject]:
    uri, server = found.source.uri, found.server
    n_tools = len(server.tools)
    detail = f"server {server.name} has {n_tools} of at least {wanted} tools: give its notes min_tools and a reason"
    ids = [f"{uri}/{tool.name}" for tool in server.tools] or ([uri] if not server.problems else [])
    return (Reject(id=one, reason="too_few_tools", detail=detail) for one in ids)


def distinct(servers: Iterable[Server]) -> Outcome:
    """Servers with a name each: a copy of an earlier server is rejected, a namesake gets its id's digits."""
    kept: dict[str, Server] = {}
    rejects: list[Reject] = []
    names: set[str] = set()
    for server in servers:
        if server.id in kept:
            detail = f"same name and tools as {kept[server.id].source.uri}: remove one of the two"
            rejects += [
                Reject(id=f"{server.source.uri}/{tool.name}", reason="duplicate_server", detail=detail)
                for tool in server.tools
            ]
            continue
        name = server.name if server.name not in names else f"{server.name[:51]}_{server.id[-12:]}"
        names.add(name)
        kept[server.id] = server.model_copy(update={"name": name})
    return Outcome(tuple(kept.values()), tuple(rejects))


def summary(servers: Iterable[Server]) -> dict[str, Any]:
    """The stage's own metrics."""
    servers = list(servers)
    tools = [tool for server in servers for tool in server.tools]
    per_format = Counter(server.source.format for server in servers for _ in server.tools)
    notes = Counter(note.split(" ")[0] for tool in tools for note in tool.notes)
    return {
        "servers": len(servers),
        "live_servers": sum(server.source.format == "mcp_live" for server in servers),
        "domains": len({server.domain for server in servers}),
        "tools_with_returns": sum(tool.returns is not None for tool in tools),
        "tools": dict(sorted(per_format.items())),
        "notes": dict(sorted(notes.items())),
    }


def main() -> None:
    with Run(CONTRACT) as run:
        params: Params = run.params["normalize"]
        servers: list[Server] = []
        rejects: list[Reject] = []
        overrides: dict[str, int] = {}
        for path in run.progress(documents(run.path("tools")), unit="file"):
            found, bad = read(path, params)
            rejects += bad
            run.n_in += len(bad)
            for one in found:
                run.n_in += max(1, len(one.server.tools) + len(one.server.problems))
                outcome = keep(one, params)
                servers += outcome.servers
                rejects += outcome.rejects
                if one.notes.min_tools is not None:
                    overrides[one.server.name] = one.notes.min_tools
        kept = distinct(servers)
        for reject in [*rejects, *kept.rejects]:
            run.reject(reject.id, reject.reason, reject.detail)
        run.write("servers", kept.servers)
        run.n_out = sum(len(server.tools) for server in kept.servers)
        run.metrics |= summary(kept.servers)
        run.metrics |= {"min_tools_overrides": overrides} if overrides else {}


if __name__ == "__main__":
    main()
