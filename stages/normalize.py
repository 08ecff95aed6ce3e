"""Raw tool documents and live MCP servers -> data/normalize/servers.jsonl (paper section 3.1).

Every file under data/raw/tools is a document: an MCP tool list, OpenAI functions (BFCL's too), OpenAPI or Swagger,
RapidAPI hubs as ToolBench has them, the server list of ASTRA's release (``astra.formats`` tells them apart by content),
or a ``mcpServers`` configuration whose servers are started, or asked where they stand, for their tools. What a document
cannot say of itself (domain, licence, a lower minimum of tools with its reason, which live tools answer the same on any
day) stands beside it in ``<name>.notes.yaml``. A server's domain is its notes', else its document's, else what its
words clearly speak for (``astra.formats.domains``).

One bad tool never removes its server, one bad server never its file: whatever drops out is a reject with a JSON
pointer. The unit that is counted is the tool; a file or server that gives none counts as one. A tool that an earlier
server has, under whatever name (``astra.formats.copies``), carries the note ``copy_of``, or is dropped.

Departures from the paper: no model judges whether a description is clear; ``min_description`` asks for a length. A tool
without a description stays by default and carries the note ``no_description``; nothing is dropped silently.

    python -m stages.normalize
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from astra.distinct import Outcome, distinct, server_id, too_few, without_copies
from astra.formats import READERS, FoundServer, UnknownFormat, format_of
from astra.formats.domains import domain_of
from astra.formats.parsing import SUFFIXES, Unreadable, parse
from astra.live import LiveConfigInvalid, LiveError, LiveServer, Notes, notes_file, read_notes, server_config
from astra.records import Reject, Section, Server, Source, ToolSpec
from astra.stage import Contract, Run, StageError


class Params(Section):
    min_tools: int = Field(ge=1, description="Fewer tools reject a server (paper: 3), unless its notes say why.")
    min_description: int = Field(ge=0, description="A tool whose description has fewer characters is rejected.")
    max_description: int = Field(ge=16, description="Longer ones are cut, and noted: endpoints refuse them (1024).")
    duplicates: Literal["report", "drop"] = Field(description="What to do with a tool that an earlier server has.")
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
LIVE_AT_ONCE = 4


@dataclass(frozen=True)
class Found:
    """A server of some document, before it is decided whether it stays."""

    server: FoundServer
    source: Source
    notes: Notes


# -------------------------------------------------------------------- documents


def documents(folder: Path) -> list[Path]:
    """The files to read, sorted by path, with whatever else lies there in place of one. Raises StageError for none."""
    files = list(_below(folder)) if folder.is_dir() else []
    if not files:
        raise StageError(f"{folder}: no tool documents. Put at least one there; README names the formats")
    return sorted(files, key=lambda path: path.as_posix())


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if _is_beside(path):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)
        else:
            yield path


def _is_beside(path: Path) -> bool:
    """Notes, read-me files and dot files stand beside documents and are none."""
    return path.name.startswith(".") or path.name.endswith(".notes.yaml") or path.suffix == ".md"


def read(path: Path, params: Params) -> tuple[list[Found], list[Reject]]:
    """All servers of one file. Raises StageError for notes that are wrong."""
    uri = path.as_posix().encode("utf-8", "backslashreplace").decode()
    if not path.is_file():
        what = "a link that leads nowhere, or to a folder" if path.is_symlink() else "no regular file"
        return [], [Reject(id=uri, reason="unreadable", detail=f"{uri}: {what}: put the document itself there")]
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
    keys = _keys([server.name for server in found])
    return [
        Found(
            server=server,
            source=Source(
                format=name,
                uri=f"{uri}#{key}" if len(found) > 1 else uri,
                revision=revision,
                licence=server.licence or NO_LICENCE,
            ),
            notes=notes.get(server.name, Notes()),
        )
        for key, server in zip(keys, found, strict=True)
    ], []


def _keys(names: list[str]) -> list[str]:
    """The names, with a number where one comes again."""
    met: Counter[str] = Counter()
    keys = []
    for name in names:
        met[name] += 1
        keys.append(name if met[name] == 1 else f"{name}~{met[name]}")
    return keys


def from_live(
    entries: Mapping[str, Any], uri: str, notes: Mapping[str, Notes], params: Params
) -> tuple[list[Found], list[Reject]]:
    """The servers that a ``mcpServers`` configuration names, in its order; a few are asked at once."""
    found: list[Found] = []
    rejects: list[Reject] = []
    with ThreadPoolExecutor(LIVE_AT_ONCE) as pool:
        for name, answer in zip(
            entries, pool.map(lambda name: ask(name, entries[name], uri, params), entries), strict=True
        ):
            if isinstance(answer, LiveError):
                reason = "live_config_invalid" if isinstance(answer, LiveConfigInvalid) else "live_server_failed"
                rejects.append(Reject(id=f"{uri}#{name}", reason=reason, detail=str(answer)))
                continue
            server, version = answer
            source = Source(format="mcp_live", uri=f"{uri}#{name}", revision=version, licence=NO_LICENCE)
            found.append(Found(server, source, notes.get(name, Notes())))
    return found, rejects


def ask(name: str, entry: Any, uri: str, params: Params) -> tuple[FoundServer, str] | LiveError:
    """What a live server lists, and its version; or why it could not be asked."""
    try:
        config = server_config(name, entry, uri)
        with LiveServer(config, params.start_timeout_s, params.call_timeout_s) as session:
            listed = list(session.list_tools())
    except LiveError as error:
        return error
    told = {"serverInfo": {"name": name}, "instructions": session.instructions, "tools": listed}
    return next(READERS["mcp"].servers(told, uri, params.max_ref_depth)), session.version


# --------------------------------------------------------------------- decisions


def keep(found: Found, params: Params) -> Outcome:
    """The server's record, or rejects for each of its tools; its bad tools are rejects in any case."""
    server, notes, source = found.server, found.notes, found.source
    place = source.uri if source.format == "mcp_live" else source.uri.partition("#")[0] + "#"
    rejects = [Reject(id=place + one.pointer, reason=one.reason, detail=one.detail) for one in server.problems]
    tools: list[ToolSpec] = []
    for tool in server.tools:
        n_letters = len(tool.description)
        if n_letters < params.min_description:
            detail = (
                f"its description has {n_letters} of at least {params.min_description} characters: say what it does"
            )
            rejects.append(Reject(id=f"{source.uri}/{tool.name}", reason="poor_description", detail=detail))
        else:
            tools.append(_cut(tool, params.max_description))
    wanted = notes.min_tools or params.min_tools
    if len(tools) < wanted:
        rejects += too_few(server.name, source.uri, [tool.name for tool in tools], wanted, empty=not rejects)
        return Outcome((), tuple(rejects))
    title, description = notes.title or server.title, notes.description or server.description
    stated = notes.domain or server.domain
    guessed = None if stated else domain_of((server.name, title, description), _texts(tools))
    record = Server(
        id=server_id(source.format, server.name, tools),
        name=server.name,
        title=title,
        description=description,
        domain=" ".join((stated or guessed or NO_DOMAIN).lower().split()),
        tools=tuple(tools),
        source=source.model_copy(update={"licence": notes.licence or source.licence}),
    )
    return Outcome((record,), tuple(rejects))


def _texts(tools: Iterable[ToolSpec]) -> Iterator[str]:
    return (f"{tool.name.replace('_', ' ')} {tool.description}" for tool in tools)


def _cut(tool: ToolSpec, most: int) -> ToolSpec:
    """The tool with a description that endpoints take, cut between words."""
    if len(tool.description) <= most:
        return tool
    head = tool.description[: most - 2].rsplit(maxsplit=1)[0]
    return tool.model_copy(update={"description": f"{head} …", "notes": (*tool.notes, "description_cut")})


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
        least: dict[str, int] = {}
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
                    least |= {server.id: one.notes.min_tools for server in outcome.servers}
        named = distinct(servers)
        kept = without_copies(named.servers, params.duplicates, params.min_tools, least)
        for reject in [*rejects, *named.rejects, *kept.rejects]:
            run.reject(reject.id, reject.reason, reject.detail)
        run.write("servers", kept.servers)
        run.n_out = sum(len(server.tools) for server in kept.servers)
        run.metrics |= summary(kept.servers)
        run.metrics |= {"min_tools_overrides": overrides} if overrides else {}


if __name__ == "__main__":
    main()
