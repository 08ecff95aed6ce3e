"""data/normalize/servers.jsonl -> data/graph/: which tool can feed which (paper section 3.1).

Two kinds of evidence make an edge a -> b, and both are kept on it: a model proposed a chain in which b follows a
(``votes_for`` of ``votes``), and a value that a returns can fill a required parameter of b (``via``), told from name,
format, enumeration, type and the similarity of what is said about the two, each with what it counted. A type alone is
no evidence: most values are strings. With ``graph.cross_server`` a tool may also feed tools of other servers.
``graphs.graphml`` holds all graphs for other programs, ``pictures/`` a drawing of each.

Departures: the paper has proposals only. A proposal with a tool that the server lacks is dropped whole; the authors'
code skips the tool and joins its neighbours. A server without edges is a reject here (its single tools still get
server-only tasks). Edges across servers rest on schemas alone; whether a chain over them makes sense is asked in
``chains``.

    python -m stages.graph
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import networkx as nx
from pydantic import Field

from astra.encoder import open_encoder
from astra.llm import Completion, ModelParams, Models, Request, RequestRefused, Settings
from astra.llm.reply import ReplyInvalid, parse_json, validate
from astra.llm.structured import TEXT, TEXTS, object_schema
from astra.prompts import render
from astra.records import Edge, Link, Message, Record, Section, Server, ToolGraph, content_id
from astra.stage import Contract, Run
from astra.toolgraph.across import Crossing, crossings
from astra.toolgraph.drawing import graphml, svg
from astra.toolgraph.evidence import Encodes, Prior, Remembering, Signature, Takers, signature, texts


class Params(Section):
    samples: int = Field(ge=1, le=20, description="Times that the model is asked for proposals, per server.")
    reasks: int = Field(ge=0, le=5, description="Further tries for a reply that cannot be used.")
    max_proposals: int = Field(ge=1, le=100, description="Chains asked for in one reply.")
    max_length: int = Field(ge=2, le=8, description="Longest chain to propose.")
    prior: Prior = Field(description="When schemas say that one tool's result can fill another's parameter.")
    max_fed: int = Field(ge=1, description="Tools of its server that a tool may feed by schema, the best ones.")
    cross_server: int = Field(ge=0, le=50, description="Tools of other servers that a tool may feed; 0: none.")


CONTRACT = Contract(
    name="graph",
    reads={"servers": "data/normalize/servers.jsonl"},
    writes={
        "graphs": "data/graph/graphs.jsonl",
        "graphml": "data/graph/graphs.graphml",
        "pictures": "data/graph/pictures",
    },
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


def questions(server: Server, params: Params, model: ModelParams, seed: int) -> Iterator[Request]:
    """The times that the model is asked about a server."""
    messages = (Message(role="user", content=prompt(server, params)),)
    for sample in range(params.samples):
        yield Request(model=model, messages=messages, seed=seed, sample=sample, json_schema=REPLY)


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


def gathered(replies: Iterable[Proposals | RequestRefused]) -> Proposals:
    """All that was proposed for one server."""
    accepted: list[Proposal] = []
    dropped: Counter[str] = Counter()
    for reply in replies:
        if isinstance(reply, RequestRefused):
            dropped[reply.reason] += 1
        else:
            accepted += reply.accepted
            dropped += reply.dropped
    return Proposals(tuple(accepted), dropped)


# ---------------------------------------------------------------- the graph


Links = Mapping[tuple[str, str], tuple[Link, ...]]


class Structure(NamedTuple):
    """How the tools of one server feed each other by their schemas, and how many weaker ways were left out."""

    links: Links
    n_cut: int


def structure(tools: Sequence[Signature], prior: Prior, encoder: Encodes, most: int) -> Structure:
    """What schemas say, by the names of source and target; a tool feeds at most ``most`` others."""
    takers = Takers(tools, prior, encoder)
    links = {
        (source.tool.name, tools[place].tool.name): via
        for source in tools
        for place, via in takers.fed_by(source, most).items()
    }
    return Structure(links, takers.n_cut)


def build(
    server: Server, proposals: Sequence[Proposal], linked: Links, crossing: Iterable[Edge] = ()
) -> ToolGraph | None:
    """The graph of one server; None where nothing connects its tools to any."""
    votes = Counter(pair for one in proposals for pair in set(pairwise(one.chain)) if pair[0] != pair[1])
    place = {tool.name: n for n, tool in enumerate(server.tools)}
    pairs = sorted({*linked, *votes}, key=lambda pair: (place[pair[0]], place[pair[1]]))
    edges = [
        Edge(source=a, target=b, via=linked.get((a, b), ()), votes_for=votes[a, b], votes=len(proposals))
        for a, b in pairs
    ]
    edges += crossing
    if not edges:
        return None
    return ToolGraph(id=content_id("graph", server.id, [e.model_dump() for e in edges]), server_id=server.id,
                     edges=tuple(edges))  # fmt: skip


def edges_across(found: Iterable[Crossing], servers: Sequence[Server]) -> dict[int, list[Edge]]:
    """The edges that lead from each server to others, by its place."""
    edges: dict[int, list[Edge]] = {}
    for one in found:
        target = one.target
        edge = Edge(
            source=one.source.signature.tool.name, target=target.signature.tool.name, via=one.via, votes_for=0, votes=0,
            target_server_id=servers[target.server].id,
        )  # fmt: skip
        edges.setdefault(one.source.server, []).append(edge)
    return edges


def shape(graphs: Iterable[ToolGraph]) -> dict[str, Any]:
    """Numbers of the graphs for the metrics."""
    counts: Counter[str] = Counter(
        edges=0, proposed_edges=0, structural_edges=0, agreed_edges=0, cross_server_edges=0, components=0
    )
    kinds: Counter[str] = Counter()
    for graph in graphs:
        net = nx.Graph((edge.source, (edge.target_server_id, edge.target)) for edge in graph.edges)
        net.add_edges_from((edge.source, (None, edge.source)) for edge in graph.edges)
        counts["edges"] += len(graph.edges)
        counts["proposed_edges"] += sum(edge.votes_for > 0 for edge in graph.edges)
        counts["structural_edges"] += sum(bool(edge.via) for edge in graph.edges)
        counts["agreed_edges"] += sum(bool(edge.via) and edge.votes_for > 0 for edge in graph.edges)
        counts["cross_server_edges"] += sum(edge.target_server_id is not None for edge in graph.edges)
        counts["components"] += nx.number_connected_components(net)
        kinds.update(kind for edge in graph.edges for link in edge.via for kind in link.evidence)
    return {**counts, "link_evidence": dict(sorted(kinds.items()))}


# ---------------------------------------------------------------- for other programs and for eyes


def write_text(path: Path, lines: Iterable[str]) -> None:
    """Write a text, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as out:
        out.writelines(lines)
    os.replace(partial, path)


def write_pictures(folder: Path, graphs: Iterable[ToolGraph], servers: Mapping[str, Server]) -> None:
    """Draw each graph into a file that is called as its server, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    taken: set[str] = set()
    for graph in graphs:
        name = re.sub(r"[^\w.-]+", "-", servers[graph.server_id].name)[:80] or graph.server_id
        if name.casefold() in taken:
            name = graph.server_id
        taken.add(name.casefold())
        write_text(folder / f"{name}.svg", [svg(graph, servers)])


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["graph"]
        model: ModelParams = run.params["models.teacher"]
        servers = run.read("servers", Server)
        asked = (
            (request, reader(server, params.max_length))
            for server in servers
            for request in questions(server, params, model, run.params["seed"])
        )
        replies = models.client("teacher").read_all(asked, params.reasks)
        tools = [[signature(tool) for tool in server.tools] for server in servers]
        encoder = Remembering(open_encoder(params.prior.encoder, chain.from_iterable(map(texts, tools))))
        far = crossings(servers, tools, params.prior, encoder, params.cross_server) if params.cross_server else ()
        across = edges_across(far, servers)
        dropped: Counter[str] = Counter()
        n_cut = 0
        graphs = []
        for n, server in enumerate(run.progress(servers, unit="server")):
            proposals = gathered(islice(replies, params.samples))
            dropped += proposals.dropped
            found = structure(tools[n], params.prior, encoder, params.max_fed)
            n_cut += found.n_cut
            graph = build(server, proposals.accepted, found.links, across.get(n, ()))
            if graph is None:
                run.reject(server.id, "no_edges", f"{server.name}: {len(server.tools)} tools, none feeds another")
            else:
                graphs.append(graph)
        list(replies)  # ends the check of refusals
        run.n_in, run.n_out = len(servers), run.write("graphs", graphs)
        if not run.estimating:
            by_id = {server.id: server for server in servers}
            write_text(run.path("graphml"), graphml(graphs, by_id))
            write_pictures(run.path("pictures"), graphs, by_id)
        run.metrics |= {**shape(graphs), "cut_edges": n_cut, "proposals_dropped": dict(sorted(dropped.items()))}


if __name__ == "__main__":
    main(sys.argv[1:])
