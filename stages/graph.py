"""data/normalize/servers.jsonl -> data/graph/graphs.jsonl: which tool can feed which (paper section 3.1).

Two kinds of evidence make an edge a -> b, and both are kept on it: a model proposed a chain in which b follows a
(``votes_for`` of ``votes``), and a value that a returns can fill a required parameter of b (``via``), told from names,
titles, formats and enumerations. A type alone is no evidence: most values are strings.

Departures: the paper has proposals only. A proposal with a tool that the server lacks is dropped whole; the authors'
code skips the tool and joins its neighbours. A server without edges is a reject here (its single tools still get
server-only tasks).

    python -m stages.graph
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import networkx as nx
from pydantic import Field

from astra.llm import Completion, ModelParams, Models, Request, RequestRefused, Settings
from astra.llm.reply import ReplyInvalid, parse_json, validate
from astra.llm.structured import TEXT, TEXTS, object_schema
from astra.prompts import render
from astra.records import Edge, Link, Message, Record, Section, Server, ToolGraph, ToolSpec, content_id
from astra.stage import Contract, Run


class Params(Section):
    samples: int = Field(ge=1, le=20, description="Times that the model is asked for proposals, per server.")
    reasks: int = Field(ge=0, le=5, description="Further tries for a reply that cannot be used.")
    max_proposals: int = Field(ge=1, le=100, description="Chains asked for in one reply.")
    max_length: int = Field(ge=2, le=8, description="Longest chain to propose.")


CONTRACT = Contract(
    name="graph",
    reads={"servers": "data/normalize/servers.jsonl"},
    writes={"graphs": "data/graph/graphs.jsonl"},
    params={"seed": int, "graph": Params, "models.teacher": ModelParams},
    settings={"llm": Settings},
)


class Proposal(Record):
    """One proposed task and its chain."""

    task: str
    chain: tuple[str, ...]
    plausible: Literal["yes", "no", "unsure"]


# ---------------------------------------------------------------- proposals


REPLY = object_schema(
    proposals={
        "type": "array",
        "items": object_schema(task=TEXT, chain=TEXTS, plausible={"enum": ["yes", "no", "unsure"]}),
    }
)


def question(server: Server, params: Params, model: ModelParams, seed: int, sample: int) -> Request:
    """One of the times that the model is asked about a server."""
    messages = (Message(role="user", content=prompt(server, params)),)
    return Request(model=model, messages=messages, seed=seed, sample=sample, json_schema=REPLY)


def prompt(server: Server, params: Params) -> str:
    shown = {
        "server": {"title": server.title, "description": server.description},
        "tools": [tool.model_dump(include={"name", "description", "parameters", "returns"}) for tool in server.tools],
        "max_length": params.max_length,
        "max_proposals": params.max_proposals,
    }
    return render("graph/propose", input=json.dumps(shown, ensure_ascii=False))


class Proposals(NamedTuple):
    """What a model proposed for one server, and what of it could not be used, by reason."""

    accepted: tuple[Proposal, ...]
    dropped: Counter[str]


def read_proposals(text: str, server: Server, max_length: int) -> Proposals:
    """The usable proposals of a reply. Raises ReplyInvalid where the reply as a whole is none."""
    value = parse_json(text)
    if not isinstance(value, dict) or not isinstance(value.get("proposals"), list):
        raise ReplyInvalid('expected {"proposals": [...]}')
    known = {tool.name for tool in server.tools}
    accepted: list[Proposal] = []
    dropped: Counter[str] = Counter()
    for one in value["proposals"]:
        try:
            proposal = validate(Proposal, one)
        except ReplyInvalid:
            dropped["malformed"] += 1
            continue
        reason = _unusable(proposal, known, max_length)
        if reason is None:
            accepted.append(proposal)
        else:
            dropped[reason] += 1
    return Proposals(tuple(accepted), dropped)


def reader(server: Server, max_length: int) -> Callable[[Completion], Proposals]:
    """What reads a reply about this server."""
    return lambda reply: read_proposals(reply.content or "", server, max_length)


def _unusable(proposal: Proposal, known: set[str], max_length: int) -> str | None:
    if proposal.plausible != "yes":
        return "not_plausible"
    if not set(proposal.chain) <= known:
        return "unknown_tool"
    if not 2 <= len(proposal.chain) <= max_length:
        return "wrong_length"
    return None


# ---------------------------------------------------------------- structure


class Output(NamedTuple):
    """A scalar that a tool returns."""

    path: str
    names: frozenset[str]  # what it may be called, as words: its name, its noun and name, its title
    schema: dict[str, Any]


GENERIC = frozenset((
    "id", "name", "title", "type", "status", "state", "result", "value", "text", "message", "description",
    "content", "data", "date", "time", "code", "count", "total", "limit", "page", "offset", "size", "order",
    "sort", "query", "filter", "format", "language", "lang", "unit", "units", "url", "uri", "key", "label",
    "note", "notes", "created", "at", "updated", "created_at", "updated_at", "success", "ok", "error",
    "category", "tags", "role", "amount", "number", "index",
))  # fmt: skip
LOOSE_FORMATS = frozenset(("date", "date-time", "time", "uri", "int32", "int64", "float", "double"))
MAX_DEPTH, MAX_OUTPUTS = 5, 80


def words(name: str) -> str:
    """``createdAt`` -> ``created at``."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)).lower()


def singular(noun: str) -> str:
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def noun_of(tool: ToolSpec) -> str:
    """The thing that a tool is about: ``create_invoice`` -> ``invoice``."""
    spoken = words(tool.name).split()
    return singular(spoken[-1]) if spoken else ""


def outputs(tool: ToolSpec) -> list[Output]:
    """The scalars in a tool's documented result; none where it documents none."""
    if tool.returns is None:
        return []
    found = _outputs(tool.returns, tool.returns, "", noun_of(tool), 0)
    return [one for one, _ in zip(found, range(MAX_OUTPUTS), strict=False)]


def _outputs(schema: Any, root: dict[str, Any], path: str, noun: str, depth: int) -> Iterator[Output]:
    schema = resolved(schema, root)
    if depth > MAX_DEPTH:
        return
    for name, one in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        inner = resolved(one, root)
        if "properties" in inner or "items" in inner:
            yield from _outputs(inner, root, here, singular(words(name)) or noun, depth + 1)
        else:
            title = [str(inner["title"]).lower()] if inner.get("title") else []
            yield Output(here, frozenset([words(name), f"{noun} {words(name)}", *title]), inner)
    if "items" in schema:
        items = resolved(schema["items"], root)
        if "properties" in items or "items" in items:
            yield from _outputs(items, root, path + "[]", noun, depth + 1)
        elif path:
            yield Output(path + "[]", frozenset([noun]), items)


def resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """A schema behind its local references and its first alternative that is not null."""
    for _ in range(8):
        if not isinstance(schema, dict):
            return {}
        if str(schema.get("$ref", "")).startswith("#/"):
            target: Any = root
            for part in schema["$ref"][2:].split("/"):
                target = target.get(part, {}) if isinstance(target, dict) else {}
            schema = target
        elif "properties" not in schema and (schema.get("anyOf") or schema.get("oneOf")):
            options = schema.get("anyOf") or schema.get("oneOf") or []
            schema = next((one for one in options if one != {"type": "null"}), {})
        else:
            return schema
    return {}


def types(schema: dict[str, Any]) -> set[str]:
    """The JSON types that a schema names; number covers integer."""
    named = schema.get("type")
    found = {named} if isinstance(named, str) else set(named or [])
    return (found | {"number"} if "integer" in found else found) - {"null"}


def evidence(output: Output, parameter: str, schema: dict[str, Any], noun: str) -> str | None:
    """What says that this output can fill this parameter of a tool about ``noun``; None where nothing does."""
    here, there = types(output.schema), types(schema)
    if (here and there and not here & there) or there & {"object", "boolean"} or "const" in schema:
        return None
    why = []
    spoken = words(parameter)
    names = {spoken, f"{noun} {spoken}"} if spoken in GENERIC else {spoken, singular(spoken)}
    longer = any(" " in name and spoken.endswith(" " + name) for name in output.names)  # slot id -> entry slot id
    if names & (output.names - GENERIC) or longer:
        why.append("name")
    form = schema.get("format")
    if form and form == output.schema.get("format") and form not in LOOSE_FORMATS and spoken not in GENERIC:
        why.append("format")
    if schema.get("enum") and schema["enum"] == output.schema.get("enum"):
        why.append("enum")
    if not why:
        return None
    return ", ".join([*why, *(["type"] if here & there else [])])


def links(source: Sequence[Output], target: ToolSpec) -> tuple[Link, ...]:
    """How a result can fill the required parameters of a tool: the best output for each."""
    properties = target.parameters.get("properties", {})
    found = []
    for parameter in target.parameters.get("required", []):
        schema = resolved(properties.get(parameter, {}), target.parameters)
        if "array" in types(schema):
            schema = resolved(schema.get("items", {}), target.parameters)
        options = [
            (len(why.split(",")), -output.path.count("."), -n, Link(output=output.path, parameter=parameter, why=why))
            for n, output in enumerate(source)
            if (why := evidence(output, parameter, schema, noun_of(target))) is not None
        ]
        if options:
            found.append(max(options, key=lambda option: option[:3])[3])
    return tuple(found)


# ---------------------------------------------------------------- the graph


def build(server: Server, proposals: Iterable[Proposal]) -> ToolGraph | None:
    """The graph of one server; None where nothing connects its tools."""
    proposals = list(proposals)
    votes = Counter(pair for one in proposals for pair in set(pairwise(one.chain)))
    results = {tool.name: outputs(tool) for tool in server.tools}
    edges = []
    for source in server.tools:
        for target in server.tools:
            via = links(results[source.name], target) if source.name != target.name else ()
            votes_for = votes[source.name, target.name]
            if via or votes_for:
                edge = Edge(source=source.name, target=target.name, via=via, votes_for=votes_for, votes=len(proposals))
                edges.append(edge)
    if not edges:
        return None
    return ToolGraph(id=content_id("graph", server.id, [e.model_dump() for e in edges]), server_id=server.id,
                     edges=tuple(edges))  # fmt: skip


def shape(graphs: Iterable[ToolGraph]) -> dict[str, int]:
    """Numbers of the graphs for the metrics."""
    counts: Counter[str] = Counter(edges=0, proposed_edges=0, structural_edges=0, agreed_edges=0, components=0)
    for graph in graphs:
        net = nx.DiGraph((edge.source, edge.target) for edge in graph.edges)
        counts["edges"] += len(graph.edges)
        counts["proposed_edges"] += sum(edge.votes_for > 0 for edge in graph.edges)
        counts["structural_edges"] += sum(bool(edge.via) for edge in graph.edges)
        counts["agreed_edges"] += sum(bool(edge.via) and edge.votes_for > 0 for edge in graph.edges)
        counts["components"] += nx.number_weakly_connected_components(net)
    return dict(counts)


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["graph"]
        model: ModelParams = run.params["models.teacher"]
        servers = run.read("servers", Server)
        asked = [
            (question(server, params, model, run.params["seed"], sample), reader(server, params.max_length))
            for server in servers
            for sample in range(params.samples)
        ]
        replies = list(models.client("teacher").read_all(asked, params.reasks))
        dropped: Counter[str] = Counter()
        graphs = []
        for n, server in enumerate(run.progress(servers, unit="server")):
            proposals: list[Proposal] = []
            for reply in replies[n * params.samples : (n + 1) * params.samples]:
                if isinstance(reply, RequestRefused):
                    dropped[reply.reason] += 1
                    continue
                proposals += reply.accepted
                dropped += reply.dropped
            graph = build(server, proposals)
            if graph is None:
                run.reject(server.id, "no_edges", f"{server.name}: {len(server.tools)} tools, none feeds another")
            else:
                graphs.append(graph)
        run.n_in, run.n_out = len(servers), run.write("graphs", graphs)
        run.metrics |= {**shape(graphs), "proposals_dropped": dict(sorted(dropped.items()))}


if __name__ == "__main__":
    main(sys.argv[1:])
