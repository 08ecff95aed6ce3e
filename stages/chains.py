"""Servers and graphs -> data/chains/chains.jsonl: walked, then verified (paper section 3.1).

Walks go on by edge weight, without returning to a tool, and a share of their choices (``chains.coverage``) goes to
tools and edges that no walk has covered; a server costs what its budget says, however dense its graph is. Each
candidate passes three gates, the cheap one first, and each gate decides: by schema, every required argument has a
source and every step uses an earlier result; by vote, a strict majority of model replies finds the chain coherent; by
back-translation, a strict majority of requests written for the chain gives the chain back, in this order or another
that its dependencies allow. A gate sees only what the one before it let through, and asks no more than it takes for a
majority.

Departures: the authors' code lists every walk depth-first, writes verdicts that nothing reads, and wants the exact
order back. A vote that could not be read is no vote; a chain without a readable vote is a reject of its own kind.
Where ``graph.cross_server`` lets edges lead to other servers, a walk may follow them.

    python -m stages.chains
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from astra.llm import Client, Completion, ModelParams, Models, Request, RequestRefused, Settings
from astra.llm.reply import ReplyInvalid, parse_json
from astra.llm.structured import TEXT, TEXTS, YES_NO, object_schema
from astra.prompts import render
from astra.records import Chain, Message, Section, Server, ToolGraph, ToolSpec
from astra.servers import check_names
from astra.stage import Contract, Run, StageError
from astra.toolgraph.candidates import Candidate, Refusal, bound, chain_id, same_chain
from astra.toolgraph.walks import Network, Reach, Walk


class Params(Section):
    min_length: int = Field(ge=2, le=8, description="Tools in the shortest chain.")
    max_length: int = Field(ge=2, le=8, description="Tools in the longest chain (authors' code: 5).")
    coverage: float = Field(ge=0, le=1, description="How often what is not covered yet comes before weight; paper: 0.")
    budget: int = Field(ge=1, description="Different walks per server.")
    budget_of: dict[str, int] = Field(description="Budgets of single servers, by name, where they differ.")
    tries: int = Field(ge=1, description="Walks tried per place in the budget, before a server counts as exhausted.")
    reasks: int = Field(ge=0, le=5, description="Further tries for a reply that cannot be used.")
    votes: int = Field(ge=1, description="Model replies that vote on a chain, at most.")
    back_translations: int = Field(ge=1, description="Requests written for a chain and translated back, at most.")

    @model_validator(mode="after")
    def _lengths_are_in_order(self) -> Params:
        if self.min_length > self.max_length:
            raise ValueError("min_length is more than max_length; lower it or raise max_length")
        return self

    @property
    def reach(self) -> Reach:
        return Reach(self.min_length, self.max_length, self.tries, self.coverage)


CONTRACT = Contract(
    name="chains",
    reads={"servers": "data/normalize/servers.jsonl", "graphs": "data/graph/graphs.jsonl"},
    writes={"chains": "data/chains/chains.jsonl"},
    params={"seed": int, "chains": Params, "models.teacher": ModelParams},
    settings={"llm": Settings},
)

# ---------------------------------------------------------------- gates: models


def shown(one: Candidate, tools: Iterable[ToolSpec], *fields: str, **extra: Any) -> str:
    """A candidate's servers and some tools of theirs as the prompts show them."""
    value = {
        "servers": [{"title": server.title, "description": server.description} for server in one.servers],
        "tools": [tool.model_dump(include={"name", "description", "parameters", *fields}) for tool in tools],
        **extra,
    }
    return json.dumps(value, ensure_ascii=False)


def _shown_chain(one: Candidate, tools: Iterable[ToolSpec]) -> str:
    bindings = [binding.model_dump() for binding in one.bindings]
    return shown(one, tools, "returns", chain=one.walk.tools, bindings=bindings)


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


@dataclass(frozen=True)
class Teacher:
    """The model that verifies."""

    client: Client
    model: ModelParams
    seed: int
    reasks: int

    def ask(self, prompts: Iterable[str], samples: Sequence[int], form: Form) -> Iterator[list[dict[str, Any]]]:
        """For each prompt the usable ones of these replies, as objects; prompts are taken as there is room."""
        asked = ((self._request(text, sample, form), form.read) for text in prompts for sample in samples)
        replies = self.client.read_all(asked, self.reasks)
        for first in replies:
            row = [first, *islice(replies, len(samples) - 1)]
            yield [one for one in row if not isinstance(one, RequestRefused)]

    def _request(self, text: str, sample: int, form: Form) -> Request:
        messages = (Message(role="user", content=text),)
        return Request(model=self.model, messages=messages, seed=self.seed, sample=sample, json_schema=form.schema)


class Ballot(NamedTuple):
    """One reply's judgement of a candidate."""

    yes: bool
    said: str


@dataclass
class Tally:
    """The ballots on one candidate out of at most ``most``."""

    most: int
    ballots: list[Ballot] = field(default_factory=list)

    @property
    def yes(self) -> int:
        return sum(ballot.yes for ballot in self.ballots)

    @property
    def is_settled(self) -> bool:
        """Whether no further ballot could change the outcome."""
        no = len(self.ballots) - self.yes
        return 2 * self.yes > self.most or 2 * no >= self.most

    def outcome(self, gate: str, reason: str) -> str | Refusal:
        """What a strict majority of the readable ballots decides."""
        text = f"{self.yes} of {len(self.ballots)}"
        if not self.ballots:
            return Refusal(f"unjudged_{gate}", f"none of {self.most} replies could be read")
        if 2 * self.yes > len(self.ballots):
            return text
        return Refusal(reason, f"{text}: {next(ballot.said for ballot in self.ballots if not ballot.yes)}")


Poll = Callable[[Sequence[Candidate], Sequence[int]], Iterator[list[Ballot]]]


def tallied(candidates: Sequence[Candidate], most: int, poll: Poll) -> list[Tally]:
    """Ballots on each candidate: as many as a majority takes, and the rest only where that settled nothing."""
    tallies = [Tally(most) for _ in candidates]
    for samples in (range(most // 2 + 1), range(most // 2 + 1, most)):
        still_open = [n for n, tally in enumerate(tallies) if not tally.is_settled]
        if samples and still_open:
            found = poll([candidates[n] for n in still_open], samples)
            for n, ballots in zip(still_open, found, strict=True):
                tallies[n].ballots += ballots
    return tallies


def vote_gate(candidates: Sequence[Candidate], teacher: Teacher, params: Params) -> list[str | Refusal]:
    """For each candidate what the vote found, or why it is refused."""

    def poll(some: Sequence[Candidate], samples: Sequence[int]) -> Iterator[list[Ballot]]:
        prompts = (
            render("chains/vote", input=_shown_chain(one, [t for t in one.tools if t.name in one.walk.tools]))
            for one in some
        )
        for replies in teacher.ask(prompts, samples, VOTE):
            yield [Ballot(reply["coherent"], str(reply.get("reason") or "no reason")) for reply in replies]

    return [tally.outcome("vote", "voted_down") for tally in tallied(candidates, params.votes, poll)]


def back_gate(candidates: Sequence[Candidate], teacher: Teacher, params: Params) -> list[str | Refusal]:
    """For each candidate how many requests gave it back, or why it is refused."""

    def poll(some: Sequence[Candidate], samples: Sequence[int]) -> Iterator[list[Ballot]]:
        prompts = (render("chains/describe", input=_shown_chain(one, one.tools)) for one in some)
        written = [
            [reply["request"] for reply in replies if reply["request"].strip()]
            for replies in teacher.ask(prompts, samples, DESCRIBED)
        ]
        again = (
            render("chains/rebuild", input=shown(one, one.tools, request=request))
            for one, requests in zip(some, written, strict=True)
            for request in requests
        )
        rebuilt = teacher.ask(again, (0,), REBUILT)
        for one, requests in zip(some, written, strict=True):
            chains = [reply["chain"] for replies in islice(rebuilt, len(requests)) for reply in replies]
            yield [Ballot(same_chain(one, chain), f"{list(one.walk.tools)} came back as {chain}") for chain in chains]
        list(rebuilt)  # ends the check of refusals

    tallies = tallied(candidates, params.back_translations, poll)
    return [tally.outcome("back_translation", "not_given_back") for tally in tallies]


# ---------------------------------------------------------------- the stage


def walked(net: Network, graphs: Iterable[ToolGraph], servers: Mapping[str, Server], params: Params, seed: int
           ) -> Iterator[Walk]:  # fmt: skip
    """The walks of all graphs, each graph by its own budget and random numbers."""
    for graph in graphs:
        budget = params.budget_of.get(servers[graph.server_id].name, params.budget)
        rng = random.Random(f"{seed}:{graph.server_id}")
        yield from net.walks(graph.server_id, budget, params.reach, rng)


Gate = Callable[[Sequence[Candidate]], Sequence[str | Refusal]]


class Passage(NamedTuple):
    """How many candidates came to a gate, and how many went through."""

    came: int
    passed: int

    @property
    def metrics(self) -> dict[str, float]:
        share = round(self.passed / self.came, 4) if self.came else 0.0
        return {"in": self.came, "passed": self.passed, "yield": share}


@dataclass
class Gated:
    """What gates in a row made of candidates; each gate sees only what the one before it let through."""

    kept: list[Candidate]
    found: dict[str, dict[str, str]] = field(default_factory=dict)  # candidate -> gate -> what it found
    refused: list[tuple[str, Refusal]] = field(default_factory=list)
    passages: dict[str, Passage] = field(default_factory=dict)

    def put_through(self, name: str, gate: Gate) -> None:
        came, self.kept = self.kept, []
        for one, decision in zip(came, gate(came), strict=True):
            if isinstance(decision, Refusal):
                self.refused.append((one.id, decision))
            else:
                self.found.setdefault(one.id, {})[name] = decision
                self.kept.append(one)
        self.passages[name] = Passage(len(came), len(self.kept))


def through_schemas(walks: Sequence[Walk], servers: Mapping[str, Server], net: Network) -> Gated:
    """The first gate: walks become candidates."""
    gated = Gated([])
    for walk in walks:
        outcome = bound(walk, servers, net)
        if isinstance(outcome, Refusal):
            gated.refused.append((chain_id(walk), outcome))
        else:
            gated.kept.append(outcome)
            gated.found[outcome.id] = {"schemas": "every argument has a source"}
    gated.passages["schemas"] = Passage(len(walks), len(gated.kept))
    return gated


def to_chain(one: Candidate, checks: dict[str, str]) -> Chain:
    return Chain(
        id=one.id, server_ids=one.walk.server_ids, tools=one.walk.tools, bindings=one.bindings,
        support=one.walk.support, checks=checks,
    )  # fmt: skip


def figures(gated: Gated, walks: Sequence[Walk], net: Network) -> dict[str, Any]:
    """What each gate let through, what walks and chains cover, and what the chains are like."""
    kept = [one.walk for one in gated.kept]
    lengths = Counter(len(walk.nodes) for walk in kept)
    return {
        "gates": {name: passage.metrics for name, passage in gated.passages.items()},
        "coverage": {
            "walked": net.coverage(walk.nodes for walk in walks),
            "kept": net.coverage(walk.nodes for walk in kept),
        },
        "lengths": {str(length): lengths[length] for length in sorted(lengths)},
        "servers": len({server_id for walk in kept for server_id in walk.server_ids}),
        "cross_server": sum(len(walk.server_ids) > 1 for walk in kept),
    }


def checked_ends(graphs: Iterable[ToolGraph], servers: Mapping[str, Server]) -> list[ToolGraph]:
    """The graphs. Raises StageError where one leads to a server or tool that is not there."""
    names = {server.id: {tool.name for tool in server.tools} for server in servers.values()}
    kept = []
    for graph in graphs:
        for edge in graph.edges:
            ends = ((graph.server_id, edge.source), (edge.target_server_id or graph.server_id, edge.target))
            for server_id, tool in ends:
                if tool not in names.get(server_id, ()):
                    raise StageError(
                        f"{CONTRACT.reads['graphs']}: {graph.id}: no tool {tool!r} on server {server_id} in "
                        f"{CONTRACT.reads['servers']}. Run: dvc repro graph"
                    )
        kept.append(graph)
    return kept


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["chains"]
        servers = {server.id: server for server in run.read("servers", Server)}
        check_names("chains.budget_of", params.budget_of, servers.values())
        graphs = checked_ends(run.read("graphs", ToolGraph), servers)
        teacher = Teacher(models.client("teacher"), run.params["models.teacher"], run.params["seed"], params.reasks)
        net = Network(graphs, servers.values())
        walks = list(walked(net, run.progress(graphs, unit="server"), servers, params, run.params["seed"]))
        gated = through_schemas(walks, servers, net)
        gated.put_through("vote", lambda some: vote_gate(some, teacher, params))
        gated.put_through("back_translation", lambda some: back_gate(some, teacher, params))
        for candidate_id, refusal in gated.refused:
            run.reject(candidate_id, *refusal)
        run.n_in = len(walks)
        run.n_out = run.write("chains", (to_chain(one, gated.found[one.id]) for one in gated.kept))
        run.metrics |= figures(gated, walks, net)


if __name__ == "__main__":
    main(sys.argv[1:])
