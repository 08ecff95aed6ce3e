"""Which records a text on the command line means: an id, an address, or the name of a server, tool, row or document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from astra.lineage.addresses import edge_address, rollout_address, sample_address
from astra.lineage.ancestors import Ancestors
from astra.lineage.files import FILES, STAGES, Files, Found, RowPlace, quoted
from astra.lineage.nodes import Node
from astra.lineage.walked import Walked, walked_chains
from astra.records import (
    Arena,
    Chain,
    Decomposition,
    Environment,
    Record,
    Reject,
    Rollout,
    Sample,
    Scorecard,
    Server,
    Task,
    ToolGraph,
    Trajectory,
)
from astra.stage import StageError

KINDS: dict[str, tuple[type[Record], ...]] = {  # by the first word of the id; the last made first
    "server": (Server,),
    "graph": (ToolGraph,),
    "chain": (Chain,),
    "task": (Task,),
    "trajectory": (Trajectory,),
    "scorecard": (Scorecard,),
    "decomposition": (Decomposition,),
    "environment": (Arena, Environment),
}
NEAREST = 5
TOOL_DOCUMENTS = "data/raw/tools/"
TO_FORWARD = "use --forward to see what became of it"


class Unknown(StageError):
    """No record of the run has that id or name. The message says which are nearest."""


@dataclass(frozen=True)
class Fact:
    """A row of a table, or of all tables where no relation is said, or all rows of a relation."""

    relation: str | None
    subject: str | None

    def matches(self, relation: str | None, subject: str | None) -> bool:
        return self.relation in (None, relation) and self.subject in (None, subject)

    @property
    def address(self) -> str:
        return ":".join(part for part in (self.relation, self.subject) if part is not None)


@dataclass
class Start:
    """All that a text means."""

    text: str
    records: list[Found[Any]] = field(default_factory=list)
    rows: list[RowPlace] = field(default_factory=list)
    edges: list[Found[ToolGraph]] = field(default_factory=list)
    tools: list[tuple[Found[Server], str]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    tool_documents: list[str] = field(default_factory=list)
    papers: list[str] = field(default_factory=list)  # documents that answers are quoted from
    rejects: list[tuple[str, Found[Reject]]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        named = self.tool_documents or self.papers
        return not (self.records or self.rows or self.edges or self.tools or self.facts or named or self.rejects)


def start(text: str, ancestors: Ancestors) -> Start:
    """What the text means. Raises Unknown, with the nearest ids, where that is nothing."""
    files = ancestors.files
    found = Start(text, rejects=ancestors.rejects_of(text))
    word = text.partition("-")[0].partition(":")[0]
    whole = text.partition(":")[0]
    if word in KINDS:
        found.records = list(_with_id(files, text, word))
        if word == "trajectory" or (word == "environment" and whole != text):
            found.rows = [row for row in files.rows if row.id == text or row.parent == text]
    if word == "graph" and ">" in text:
        found.edges = [one for one in files.find(ToolGraph, quoted(whole)) if _edges(one, text)]
    elif word in ("rollout", "sample"):
        found.records = list(_with_address(files, text, word))
    if found.is_empty:
        _by_name(files, ancestors, text, found)
    if found.is_empty:
        raise Unknown(_unknown(files, text))
    return found


def _edges(graph: Found[ToolGraph], text: str) -> list[Any]:
    return [edge for edge in graph.record.edges if edge_address(graph.record, edge) == text]


def _with_id(files: Files, text: str, word: str) -> Iterator[Found[Any]]:
    for kind in KINDS[word]:
        record = files.get(kind, text)
        if record is not None:
            yield record
            return


def _with_address(files: Files, text: str, word: str) -> Iterator[Found[Any]]:
    parts = text.split(":")
    if word == "rollout" and len(parts) > 1:
        yield from files.find(Rollout, quoted(parts[1]), lambda one: rollout_address(one) == text)
    elif len(parts) > 3:
        yield from files.find(Sample, quoted(parts[3])[:-1], lambda one: sample_address(one) == text)


def _by_name(files: Files, ancestors: Ancestors, text: str, found: Start) -> None:
    """Servers by name or document, tools, and rows of knowledge."""
    server, _, tool = text.rpartition("/")
    for one in files.find(Server, b"{"):
        record = one.record
        document = record.source.uri
        if text in (record.name, document, document.partition("#")[0]):
            found.records.append(one)
        found.tools += [
            (one, spec.name)
            for spec in record.tools
            if spec.name == (tool or text) and server in ("", record.id, record.name)
        ]
    if text.startswith(TOOL_DOCUMENTS) and (files.root / text.partition("#")[0]).is_file():
        found.tool_documents.append(text)
    relation, colon, subject = text.partition(":")
    if ancestors.sources.relation_of(relation):
        found.facts.append(Fact(relation, subject if colon else None))
    elif not found.records and not found.tools:
        steps = [step for one in files.find(Decomposition, quoted(text)) for step in one.record.steps]
        if any(step.subject == text for step in steps):
            found.facts.append(Fact(None, text))
        if any(quote.document == text for step in steps for quote in step.evidence):
            found.papers.append(text)


def nodes(found: Start, ancestors: Ancestors) -> list[Node]:
    """The lineage of each record that was meant, the rejects on top of what they are about."""
    if found.rejects:
        about = [ancestors.of(one) for one in found.records] or list(_rejected_parents(found, ancestors))
        return [ancestors.reject(stage, one, about) for stage, one in found.rejects]
    if found.rows:
        return [ancestors.row(row) for row in found.rows]
    edges = [ancestors.edge(one, edge) for one in found.edges for edge in _edges(one, found.text)]
    tools = [ancestors.tool(one, name) for one, name in found.tools]
    facts = [_fact(fact, ancestors) for fact in found.facts]
    papers = [Node("document", one, "data/raw/knowledge", TO_FORWARD) for one in found.papers]
    made = [*(ancestors.of(one) for one in found.records), *edges, *tools, *facts, *papers]
    documents = (Node("document", one, one, "no server of the run is from it") for one in found.tool_documents)
    return made or list(documents)


def _fact(fact: Fact, ancestors: Ancestors) -> Node:
    if fact.relation is None or fact.subject is None:
        return Node("facts", fact.address, "data/raw/knowledge", TO_FORWARD)
    return ancestors.sources.fact(fact.relation, fact.subject, fact.address)


def _rejected_parents(found: Start, ancestors: Ancestors) -> Iterator[Node]:
    """What a reject that was never a record came from, as far as its id says."""
    whole, _, _ = found.text.partition(":")
    if whole != found.text and whole.partition("-")[0] in KINDS:
        yield from (ancestors.of(one) for one in _with_id(ancestors.files, whole, whole.partition("-")[0]))
    for one in walked_chains(ancestors.files, {found.text}):
        yield walked_node(one, ancestors)
    path = found.text.partition("#")[0]
    if "/" in path and (ancestors.files.root / path).is_file():
        yield Node("document", path, path)


def walked_node(one: Walked, ancestors: Ancestors) -> Node:
    """A chain that was walked and refused."""
    servers = tuple(ancestors.of(found) for server in one.server_ids if (found := ancestors.files.get(Server, server)))
    return Node("walk", one.id, "", f"{' -> '.join(one.tools)}, walked and refused", parents=servers)


def _unknown(files: Files, text: str) -> str:
    word = text.partition("-")[0].partition(":")[0]
    known = list(dict.fromkeys(_known(files, word)))
    near = get_close_matches(text, known, NEAREST, cutoff=0.5)
    where = "the records and rejects of data/{" + ",".join(STAGES) + "}"
    if not known:
        return f"no record {text!r}: no run is here; dvc repro makes one, dvc pull gets one. Looked in {where}"
    return f"no record {text!r}. Nearest: {', '.join(near) or 'none'}. Looked in {where}"


def _known(files: Files, word: str) -> Iterator[str]:
    """Ids of that kind; where it is no kind, the names that servers and tools have, and all ids."""
    if word in KINDS:
        for kind in KINDS[word]:
            yield from files.ids(FILES[kind][1])
    else:
        for server in files.find(Server, b"{"):
            yield server.record.name
            yield from (tool.name for tool in server.record.tools)
        yield from (one for kind in FILES for one in files.ids(FILES[kind][1]))
    for stage in STAGES:
        yield from files.ids(f"data/{stage}/rejects.jsonl")
