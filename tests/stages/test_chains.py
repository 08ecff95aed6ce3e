"""chains: weighted walks, and three gates that decide."""

from __future__ import annotations

import json
import random
import time

import pytest

import stages.chains as stage
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Binding, Chain, Edge, Link, ToolGraph, Usage
from astra.stage import read_records, write_records
from stages import graph
from tests.llm.clients import client_of
from tests.stages.imitation import FERRY, LONELY, PARAMS, TABLES, TEXT, tool

MODEL = ModelParams(transport="builtin", name="r", temperature=0.7, max_tokens=512)
SETTINGS = stage.Params(
    min_length=2, max_length=4, budget=6, budget_of={}, tries=10, reasks=0, votes=3, back_translations=2
)


def net(server=FERRY, proposals=()):
    built = graph.build(server, proposals)
    assert built is not None
    return stage.network(built)


def candidate(*names, server=FERRY):
    walk = stage.Walk(names, 1.0)
    bindings = stage.bound(server, walk, net(server))
    assert not isinstance(bindings, stage.Refusal)
    return stage.Candidate(server, walk, bindings)


class Says:
    """A model that replies with what a rule makes of the prompt and the sample."""

    def __init__(self, rule):
        self.rule = rule

    async def send(self, request: Request) -> Completion:
        text = self.rule(request.messages[0].content or "", request.sample)
        return Completion(text, "stop", Usage(calls=1, prompt_tokens=1, completion_tokens=1))


def teacher(rule):
    return stage.Teacher(client_of(Says(rule)), MODEL, 1, 0)


def test_walks_follow_edges_never_return_to_a_tool_and_differ():
    edges = net(TABLES)
    walks = stage.walks(edges, SETTINGS, 20, random.Random(1))
    assert len({walk.tools for walk in walks}) == len(walks) > 3
    for walk in walks:
        assert 2 <= len(walk.tools) <= 4
        assert len(set(walk.tools)) == len(walk.tools)
        assert all(edges.has_edge(a, b) for a, b in zip(walk.tools, walk.tools[1:], strict=False))
        assert 0 < walk.support <= 1


def test_a_heavier_edge_is_walked_more_often():
    link = (Link(output="x", parameter="y", why="name"),)
    edges = [
        Edge(source="a", target=target, via=link, votes_for=votes, votes=9) for target, votes in (("b", 8), ("c", 0))
    ]
    heavy = stage.network(ToolGraph(id="g", server_id="s", edges=tuple(edges)))
    walked = [stage._walk(heavy, "a", 2, random.Random(n))[1] for n in range(300)]
    assert 0.83 < walked.count("b") / 300 < 0.97


def test_a_dense_graph_of_fifty_tools_is_sampled_in_no_time():
    names = [f"t{n}" for n in range(50)]
    edges = [Edge(source=a, target=b, via=(), votes_for=1, votes=1) for a in names for b in names if a != b]
    dense = stage.network(ToolGraph(id="g", server_id="s", edges=tuple(edges)))
    started = time.monotonic()
    assert len(stage.walks(dense, SETTINGS, 50, random.Random(1))) == 50
    assert time.monotonic() - started < 2


def test_every_argument_gets_its_source_the_nearest_result_first():
    assert candidate("find_routes", "list_sailings", "book_sailing").bindings == (
        Binding(step=0, parameter="from_port", origin="user"),
        Binding(step=0, parameter="to_port", origin="user"),
        Binding(step=1, parameter="route_id", origin="result", from_step=0, output="routes[].route_id"),
        Binding(step=2, parameter="sailing_id", origin="result", from_step=1, output="sailings[].sailing_id"),
        Binding(step=2, parameter="traveller", origin="user"),
    )


def test_a_step_that_uses_no_earlier_result_is_refused():
    proposed = [graph.Proposal(task="t", chain=("find_routes", "get_weather"), plausible="yes")]
    refused = stage.bound(FERRY, stage.Walk(("find_routes", "get_weather"), 1.0), net(FERRY, proposed))
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "independent_step"


def test_an_argument_that_no_user_can_state_is_refused():
    page = tool("next_page", "Next.", {"route_id": TEXT, "page_token": TEXT}, None)
    server = FERRY.model_copy(update={"tools": (*FERRY.tools, page)})
    refused = stage.bound(server, stage.Walk(("find_routes", "next_page"), 1.0), net(server))
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "unknowable_argument"


@pytest.mark.parametrize(
    ("votes", "outcome"),
    [
        (["true", "true", "false"], "2 of 3"),
        (["true", "false", "false"], "voted_down"),
        (["true", "oops", "oops"], "1 of 1"),
        (["true", "false", "oops"], "voted_down"),
        (['"false"', '"no"', "1"], "unjudged_vote"),
    ],
)
def test_a_strict_majority_of_readable_votes_decides(votes, outcome):
    found = stage.vote_gate(
        [candidate("find_routes", "list_sailings")], teacher(lambda _, n: f'{{"coherent": {votes[n]}}}'), SETTINGS
    )[0]
    assert (found.reason if isinstance(found, stage.Refusal) else found) == outcome


def test_another_order_is_the_same_chain_where_the_bindings_allow_it():
    two_ends = stage.Candidate(
        FERRY, stage.Walk(("find_routes", "get_weather", "book_sailing"), 1.0),
        (Binding(step=2, parameter="sailing_id", origin="result", from_step=0, output="x"),),
    )  # fmt: skip
    assert stage.same_chain(two_ends, ["get_weather", "find_routes", "book_sailing"])
    assert not stage.same_chain(two_ends, ["book_sailing", "find_routes", "get_weather"])
    assert not stage.same_chain(two_ends, ["find_routes", "book_sailing"])


@pytest.mark.parametrize(
    ("chains", "outcome"),
    [
        ([["find_routes", "list_sailings"]] * 2, "2 of 2"),
        ([["find_routes", "list_sailings"], ["find_routes"]], "not_given_back"),
        ([None, None], "unjudged_back_translation"),
    ],
)
def test_a_chain_has_to_come_back_in_most_translations(chains, outcome):
    def rule(prompt, sample):
        if prompt.startswith("# Chains: describe"):
            return json.dumps({"request": f"request {sample}"})
        return json.dumps({"chain": chains[0 if "request 0" in prompt else 1]})

    found = stage.back_gate([candidate("find_routes", "list_sailings")], teacher(rule), SETTINGS)[0]
    assert (found.reason if isinstance(found, stage.Refusal) else found) == outcome


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    write_records("data/normalize/servers.jsonl", [FERRY, TABLES, LONELY])
    graph.main()
    return tmp_path


def test_the_stage_keeps_only_what_every_gate_passed_and_repeats_byte_for_byte(workspace):
    stage.main()
    chains = list(read_records("data/chains/chains.jsonl", Chain))
    assert {chain.server_ids[0] for chain in chains} == {FERRY.id, TABLES.id}
    assert all(chain.checks.keys() == {"schemas", "vote", "back_translation"} for chain in chains)
    metrics = json.loads((workspace / "metrics/chains.json").read_text())
    assert metrics["passed"]["back_translation"] == metrics["out"] == len(chains) > 5
    first = (workspace / "data/chains/chains.jsonl").read_bytes()
    stage.main()
    assert (workspace / "data/chains/chains.jsonl").read_bytes() == first


def test_a_budget_for_a_server_that_is_not_there_names_those_that_are(workspace, capsys):
    (workspace / "params.yaml").write_text(PARAMS.replace("budget_of: {}", "budget_of: {fery: 3}"))
    with pytest.raises(SystemExit):
        stage.main()
    assert "no server ['fery']; servers are: ['ferry', 'lonely', 'tables']" in capsys.readouterr().err
