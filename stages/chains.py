"""Servers and graphs -> data/chains/chains.jsonl: walked, then verified (paper section 3.1).

Walks start at each tool in turn and go on by edge weight, without returning to a tool. Each candidate passes three
gates, the cheap one first, and each gate decides: by schema, every required argument has a source and every step uses
an earlier result; by vote, a strict majority of model replies finds the chain coherent; by back-translation, a strict
majority of requests written for the chain gives the chain back, in this order or another that the bindings allow.

Departures: the authors' code lists every walk depth-first, writes verdicts that nothing reads, and wants the exact
order back. A vote that could not be read is no vote; a chain without a readable vote is a reject of its own kind.

    python -m stages.chains
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx
from pydantic import Field

from astra.llm import Client, Completion, ModelParams, Models, Request, RequestRefused, Settings
from astra.llm.reply import ReplyInvalid, parse_json
from astra.llm.structured import TEXT, TEXTS, YES_NO, object_schema
from astra.prompts import render
from astra.records import Binding, Chain, Edge, Message, Section, Server, ToolGraph, ToolSpec, content_id
from astra.stage import Contract, Run, StageError


class Params(Section):
    min_length: int = Field(ge=2, le=8, description="Tools in the shortest chain.")
    max_length: int = Field(ge=2, le=8, description="Tools in the longest chain (authors' code: 5).")
    budget: int = Field(ge=1, description="Different walks per server.")
    budget_of: dict[str, int] = Field(description="Budgets of single servers, by name, where they differ.")
    tries: int = Field(ge=1, description="Walks tried per place in the budget, before a server counts as exhausted.")
    reasks: int = Field(ge=0, le=5, description="Further tries for a reply that cannot be used.")
    votes: int = Field(ge=1, description="Model replies that vote on a chain.")
    back_translations: int = Field(ge=1, description="Requests written for a chain and translated back.")


CONTRACT = Contract(
    name="chains",
    reads={"servers": "data/normalize/servers.jsonl", "graphs": "data/graph/graphs.jsonl"},
    writes={"chains": "data/chains/chains.jsonl"},
    params={"seed": int, "chains": Params, "models.teacher": ModelParams},
    settings={"llm": Settings},
)

UNKNOWABLE = frozenset(("cursor", "token", "session", "handle", "etag", "checkpoint"))


class Walk(NamedTuple):
    """A candidate: tool names, and how much of the walked tools' weight went this way."""

    tools: tuple[str, ...]
    support: float


class Candidate(NamedTuple):
    """A walk of a server with its bindings."""

    server: Server
    walk: Walk
    bindings: tuple[Binding, ...]

    @property
    def id(self) -> str:
        return content_id("chain", self.server.id, self.walk.tools)


class Refusal(NamedTuple):
    """Why a candidate is no chain."""

    reason: str
    detail: str


# ---------------------------------------------------------------- walking


def network(graph: ToolGraph) -> nx.DiGraph[str]:
    """The graph with ``weight`` on its edges and the record as ``edge``."""
    net: nx.DiGraph[str] = nx.DiGraph()
    for edge in graph.edges:
        net.add_edge(edge.source, edge.target, weight=edge.weight, edge=edge)
    return net


def walks(net: nx.DiGraph[str], params: Params, budget: int, rng: random.Random) -> list[Walk]:
    """At most ``budget`` different walks, starting at each tool in turn; in the order in which they were found."""
    starts = sorted(node for node in net if net.out_degree(node))
    rng.shuffle(starts)
    found: dict[tuple[str, ...], Walk] = {}
    for attempt in range(params.tries * budget):
        if len(found) == budget or not starts:
            break
        walk = _walk(net, starts[attempt % len(starts)], rng.randint(params.min_length, params.max_length), rng)
        if len(walk) >= params.min_length:
            found.setdefault(walk, Walk(walk, _support(net, walk)))
    return list(found.values())


def _walk(net: nx.DiGraph[str], start: str, length: int, rng: random.Random) -> tuple[str, ...]:
    walk = [start]
    while len(walk) < length:
        options = {node: data["weight"] for node, data in net[walk[-1]].items() if node not in walk}
        if not options:
            break
        walk += rng.choices(list(options), weights=list(options.values()))
    return tuple(walk)


def _support(net: nx.DiGraph[str], walk: Sequence[str]) -> float:
    shares = [net[a][b]["weight"] / net.out_degree(a, weight="weight") for a, b in pairwise(walk)]
    return round(float(math.prod(shares)), 6)


# ---------------------------------------------------------------- gate 1: schemas


def bound(server: Server, walk: Walk, net: nx.DiGraph[str]) -> tuple[Binding, ...] | Refusal:
    """Where each required argument comes from, nearest earlier step first; a Refusal where that makes no chain."""
    tools = {tool.name: tool for tool in server.tools}
    bindings: list[Binding] = []
    for step, name in enumerate(walk.tools):
        for parameter in tools[name].parameters.get("required", []):
            bindings.append(_binding(step, parameter, walk.tools, net))
    from_user = [one for one in bindings if one.origin == "user"]
    for one in from_user:
        if not statable(one.parameter, tools[walk.tools[one.step]]):
            return Refusal("unknowable_argument", f"no user can state {walk.tools[one.step]}.{one.parameter}")
    using = {one.step for one in bindings if one.origin == "result"}
    for step in range(1, len(walk.tools)):
        before = walk.tools[step - 1]
        proposed: Edge = net[before][walk.tools[step]]["edge"]
        if step not in using and not (proposed.votes_for and tools[before].returns is None):
            return Refusal("independent_step", f"{walk.tools[step]} uses no earlier result")
    return tuple(bindings)


def _binding(step: int, parameter: str, walk: Sequence[str], net: nx.DiGraph[str]) -> Binding:
    for earlier in range(step - 1, -1, -1):
        if net.has_edge(walk[earlier], walk[step]):
            for link in net[walk[earlier]][walk[step]]["edge"].via:
                if link.parameter == parameter:
                    return Binding(
                        step=step, parameter=parameter, origin="result", from_step=earlier, output=link.output
                    )
    return Binding(step=step, parameter=parameter, origin="user")


def statable(parameter: str, tool: ToolSpec) -> bool:
    """Whether a user can say a value for it: no cursors and tokens, no objects without documented fields."""
    schema = tool.parameters.get("properties", {}).get(parameter, {})
    last = parameter.lower().replace("-", "_").split("_")[-1]
    return last not in UNKNOWABLE and not (schema.get("type") == "object" and not schema.get("properties"))


# ---------------------------------------------------------------- gates 2 and 3: models


def shown(one: Candidate, whole_server: bool = True, **extra: Any) -> str:
    """A candidate as the prompts show it."""
    tools = [tool for tool in one.server.tools if whole_server or tool.name in one.walk.tools]
    value = {
        "server": {"title": one.server.title, "description": one.server.description},
        "tools": [tool.model_dump(include={"name", "description", "parameters", "returns"}) for tool in tools],
        "chain": one.walk.tools,
        "bindings": [binding.model_dump() for binding in one.bindings],
        **extra,
    }
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Teacher:
    """The model that verifies."""

    client: Client
    model: ModelParams
    seed: int
    reasks: int

    def ask(self, prompts: Sequence[str], samples: int, form: Form) -> list[list[dict[str, Any]]]:
        """The usable ones of ``samples`` replies to each prompt, as objects."""
        asked = (
            (
                Request(
                    model=self.model, messages=(Message(role="user", content=text),), seed=self.seed, sample=sample,
                    json_schema=form.schema,
                ),
                form.read,
            )
            for text in prompts
            for sample in range(samples)
        )  # fmt: skip
        replies = list(self.client.read_all(asked, self.reasks))
        rows = [replies[n * samples : (n + 1) * samples] for n in range(len(prompts))]
        return [[one for one in row if not isinstance(one, RequestRefused)] for row in rows]


class Form(NamedTuple):
    """The one field that a reply must have."""

    name: str
    kind: type
    schema: dict[str, Any]

    def read(self, reply: Completion) -> dict[str, Any]:
        """The object in a reply. Raises ReplyInvalid."""
        value = parse_json(reply.content or "")
        if not isinstance(value, dict) or not isinstance(value.get(self.name), self.kind):
            raise ReplyInvalid(f"no {self.name}")
        return value


VOTE = Form("coherent", bool, object_schema(coherent=YES_NO, reason=TEXT))
DESCRIBED = Form("request", str, object_schema(request=TEXT))
REBUILT = Form("chain", list, object_schema(chain=TEXTS))


def vote_gate(candidates: Sequence[Candidate], teacher: Teacher, params: Params) -> list[str | Refusal]:
    """For each candidate what the vote found, or why it is refused."""
    prompts = [render("chains/vote", input=shown(one, whole_server=False)) for one in candidates]
    outcomes: list[str | Refusal] = []
    for replies in teacher.ask(prompts, params.votes, VOTE):
        votes = [reply["coherent"] for reply in replies]
        tally = f"{sum(votes)} of {len(votes)}"
        if not votes:
            outcomes.append(Refusal("unjudged_vote", f"none of {params.votes} votes could be read"))
        elif 2 * sum(votes) <= len(votes):
            reasons = [str(reply["reason"]) for reply in replies if reply.get("reason")]
            outcomes.append(Refusal("voted_down", f"{tally}: {reasons[0] if reasons else 'no reason'}"))
        else:
            outcomes.append(tally)
    return outcomes


def back_gate(candidates: Sequence[Candidate], teacher: Teacher, params: Params) -> list[str | Refusal]:
    """For each candidate how many requests gave it back, or why it is refused."""
    prompts = [render("chains/describe", input=shown(one)) for one in candidates]
    described = teacher.ask(prompts, params.back_translations, DESCRIBED)
    written = [[reply["request"] for reply in replies] for replies in described]
    asked = [(n, request) for n, requests in enumerate(written) for request in requests if request.strip()]
    again = [render("chains/rebuild", input=_rebuild_input(candidates[n], request)) for n, request in asked]
    rebuilt: dict[int, list[list[str]]] = {}
    for (n, _), replies in zip(asked, teacher.ask(again, 1, REBUILT), strict=True):
        rebuilt.setdefault(n, []).extend(reply["chain"] for reply in replies)
    outcomes: list[str | Refusal] = []
    for n, one in enumerate(candidates):
        chains = rebuilt.get(n, [])
        same = sum(same_chain(one, chain) for chain in chains)
        if not chains:
            outcomes.append(Refusal("unjudged_back_translation", "no readable back-translation"))
        elif 2 * same <= len(chains):
            detail = f"{same} of {len(chains)} gave {list(one.walk.tools)} back; one gave {chains[0]}"
            outcomes.append(Refusal("not_given_back", detail))
        else:
            outcomes.append(f"{same} of {len(chains)}")
    return outcomes


def _rebuild_input(one: Candidate, request: str) -> str:
    tools = [tool.model_dump(include={"name", "description", "parameters"}) for tool in one.server.tools]
    server = {"title": one.server.title, "description": one.server.description}
    return json.dumps({"server": server, "tools": tools, "request": request}, ensure_ascii=False)


def same_chain(one: Candidate, rebuilt: Sequence[Any]) -> bool:
    """Whether a rebuilt chain has the same tools in an order that the bindings allow."""
    if Counter(map(str, rebuilt)) != Counter(one.walk.tools):
        return False
    place = {name: n for n, name in enumerate(rebuilt)}
    tools = one.walk.tools
    return all(
        place[tools[binding.from_step]] < place[tools[binding.step]]
        for binding in one.bindings
        if binding.from_step is not None
    )


# ---------------------------------------------------------------- the stage


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["chains"]
        model: ModelParams = run.params["models.teacher"]
        servers = {server.id: server for server in run.read("servers", Server)}
        known = {server.name for server in servers.values()}
        unknown = sorted(params.budget_of.keys() - known)
        if unknown:
            raise StageError(
                f"params.yaml: chains.budget_of: no server {unknown}; servers are: {sorted(known)}. "
                "If it is a live server that did not start, data/normalize/rejects.jsonl says why"
            )
        teacher = Teacher(models.client("teacher"), model, run.params["seed"], params.reasks)
        candidates: list[Candidate] = []
        n_walked = 0
        for graph in run.progress(run.read("graphs", ToolGraph), unit="server"):
            server, net = servers[graph.server_id], network(graph)
            rng = random.Random(f"{run.params['seed']}:{graph.server_id}")
            for walk in walks(net, params, params.budget_of.get(server.name, params.budget), rng):
                n_walked += 1
                bindings = bound(server, walk, net)
                if isinstance(bindings, Refusal):
                    run.reject(content_id("chain", server.id, walk.tools), *bindings)
                else:
                    candidates.append(Candidate(server, walk, bindings))
        run.n_in = n_walked
        gates: Mapping[str, Callable[[Sequence[Candidate], Teacher, Params], list[str | Refusal]]] = {
            "vote": vote_gate,
            "back_translation": back_gate,
        }
        passed = {"walked": n_walked, "schemas": len(candidates)}
        found: dict[str, dict[str, str]] = {one.id: {"schemas": "every argument has a source"} for one in candidates}
        for name, gate in gates.items():
            kept = []
            for one, outcome in zip(candidates, gate(candidates, teacher, params), strict=True):
                if isinstance(outcome, Refusal):
                    run.reject(one.id, *outcome)
                else:
                    found[one.id][name] = outcome
                    kept.append(one)
            candidates = kept
            passed[name] = len(kept)
        chains = [
            Chain(id=one.id, server_ids=(one.server.id,), tools=one.walk.tools, bindings=one.bindings,
                  support=one.walk.support, checks=found[one.id])
            for one in candidates
        ]  # fmt: skip
        run.n_out = run.write("chains", chains)
        lengths = Counter(len(chain.tools) for chain in chains)
        run.metrics |= {
            "passed": passed,
            "lengths": {str(length): lengths[length] for length in sorted(lengths)},
            "servers": len({chain.server_ids for chain in chains}),
        }


if __name__ == "__main__":
    main(sys.argv[1:])
