"""chains: weighted walks, and three gates that decide."""

from __future__ import annotations

import json
import time
from itertools import permutations

import pytest

import stages.chains as stage
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Binding, Chain, Edge, ToolGraph, Usage
from astra.stage import read_records, write_records
from astra.toolgraph.candidates import Candidate, Refusal, bound, same_chain
from astra.toolgraph.walks import Network, Node, Walk
from stages import graph
from tests.llm.clients import client_of
from tests.stages.imitation import FERRY, LONELY, PARAMS, TABLES, TEXT, tool
from tests.stages.test_graph import CLUB, POST, linked

MODEL = ModelParams(transport="builtin", name="r", temperature=0.7, max_tokens=512)
SETTINGS = stage.Params(
    min_length=2, max_length=4, coverage=0.5, budget=6, budget_of={}, tries=10, reasks=0, votes=3, back_translations=2
)


def net(server=FERRY, proposals=()):
    built = graph.build(server, proposals, linked(server))
    assert built is not None
    return Network([built], [server])


def walk(*names, server=FERRY):
    return Walk(tuple(Node(server.id, name) for name in names), 1.0)


def outcome(*names, server=FERRY, proposals=()):
    return bound(walk(*names, server=server), {server.id: server}, net(server, proposals))


def candidate(*names, server=FERRY):
    found = outcome(*names, server=server)
    assert isinstance(found, Candidate)
    return found


class Says:
    """A model that replies with what a rule makes of the prompt and the sample."""

    def __init__(self, rule):
        self.rule = rule

    async def send(self, request: Request) -> Completion:
        text = self.rule(request.messages[0].content or "", request.sample)
        return Completion(text, "stop", Usage(calls=1, prompt_tokens=1, completion_tokens=1))


def teacher(rule):
    return stage.Teacher(client_of(Says(rule)), MODEL, 1, 0)


def test_a_dense_server_costs_what_its_budget_says():
    names = [f"t{n}" for n in range(50)]
    edges = [Edge(source=a, target=b, via=(), votes_for=1, votes=1) for a in names for b in names if a != b]
    server = FERRY.model_copy(update={"tools": tuple(tool(name, "X.", {}, None) for name in names)})
    dense = ToolGraph(id="g", server_id=server.id, edges=tuple(edges))
    started = time.monotonic()
    params = SETTINGS.model_copy(update={"budget": 50})
    assert len(list(stage.walked(Network([dense], [server]), [dense], {server.id: server}, params, 1))) == 50
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
    refused = outcome("find_routes", "get_weather", proposals=proposed)
    assert isinstance(refused, Refusal)
    assert refused.reason == "independent_step"


def test_an_argument_that_no_user_can_state_is_refused():
    page = tool("next_page", "Next.", {"route_id": TEXT, "page_token": TEXT}, None)
    server = FERRY.model_copy(update={"tools": (*FERRY.tools, page)})
    refused = outcome("find_routes", "next_page", server=server)
    assert isinstance(refused, Refusal)
    assert refused.reason == "unknowable_argument"


@pytest.mark.parametrize(
    ("votes", "decision"),
    [
        (["true", "true", "oops"], "2 of 2"),
        (["true", "false", "true"], "2 of 3"),
        (["true", "false", "false"], "voted_down"),
        (["true", "oops", "oops"], "1 of 1"),
        (["true", "false", "oops"], "voted_down"),
        (['"false"', '"no"', "1"], "unjudged_vote"),
    ],
)
def test_a_strict_majority_of_readable_votes_decides(votes, decision):
    found = stage.vote_gate(
        [candidate("find_routes", "list_sailings")], teacher(lambda _, n: f'{{"coherent": {votes[n]}}}'), SETTINGS
    )[0]
    assert (found.reason if isinstance(found, Refusal) else found) == decision


def test_no_more_votes_are_asked_for_than_it_takes():
    asked = []

    def rule(prompt, sample):
        asked.append(sample)
        return json.dumps({"coherent": "book_sailing" not in prompt or sample == 0})

    chains = [candidate("find_routes", "list_sailings"), candidate("list_sailings", "book_sailing")]
    found = stage.vote_gate(chains, teacher(rule), SETTINGS)
    assert found[0] == "2 of 2"
    assert isinstance(found[1], Refusal)
    assert sorted(asked) == [0, 0, 1, 1, 2]


TWO_ENDS = Candidate(
    (FERRY,), walk("find_routes", "get_weather", "book_sailing"),
    (Binding(step=2, parameter="sailing_id", origin="result", from_step=0, output="x"),), frozenset({(2, 0)}),
)  # fmt: skip


def test_another_order_is_the_same_chain_where_its_dependencies_allow_it():
    same = {order for order in permutations(TWO_ENDS.walk.tools) if same_chain(TWO_ENDS, order)}
    assert same == {
        ("find_routes", "get_weather", "book_sailing"),
        ("get_weather", "find_routes", "book_sailing"),
        ("find_routes", "book_sailing", "get_weather"),
    }


@pytest.mark.parametrize(
    "chain",
    [
        ["find_routes", "book_sailing"],
        ["find_routes", "get_weather", "get_weather", "book_sailing"],
        ["find_routes", "get_weather", "cancel_booking"],
        [1, None, {}],
    ],
)
def test_other_tools_are_another_chain(chain):
    assert not same_chain(TWO_ENDS, chain)


def test_a_step_that_rests_on_an_undocumented_result_comes_after_it():
    silent = tool("open_till", "Open the till.", {}, None)
    server = FERRY.model_copy(update={"tools": (silent, tool("count_cash", "Count the cash.", {}, {"cash": TEXT}))})
    proposed = [graph.Proposal(task="t", chain=("open_till", "count_cash"), plausible="yes")]
    found = outcome("open_till", "count_cash", server=server, proposals=proposed)
    assert isinstance(found, Candidate)
    assert same_chain(found, ["open_till", "count_cash"])
    assert not same_chain(found, ["count_cash", "open_till"])


@pytest.mark.parametrize(
    ("chains", "decision"),
    [
        ([["find_routes", "list_sailings"]] * 2, "2 of 2"),
        ([["find_routes", "list_sailings"], ["find_routes"]], "not_given_back"),
        ([None, None], "unjudged_back_translation"),
    ],
)
def test_a_chain_has_to_come_back_in_most_translations(chains, decision):
    def rule(prompt, sample):
        if prompt.startswith("# Chains: describe"):
            return json.dumps({"request": f"request {sample}"})
        return json.dumps({"chain": chains[0 if "request 0" in prompt else 1]})

    found = stage.back_gate([candidate("find_routes", "list_sailings")], teacher(rule), SETTINGS)[0]
    assert (found.reason if isinstance(found, Refusal) else found) == decision


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    write_records("data/normalize/servers.jsonl", [FERRY, TABLES, LONELY])
    graph.main()
    return tmp_path


def metrics_of(folder):
    return json.loads((folder / "metrics/chains.json").read_text())


def test_the_stage_keeps_only_what_every_gate_passed_and_repeats_byte_for_byte(workspace):
    stage.main()
    chains = list(read_records("data/chains/chains.jsonl", Chain))
    assert {chain.server_ids for chain in chains} == {(FERRY.id,), (TABLES.id,)}
    assert all(chain.checks.keys() == {"schemas", "vote", "back_translation"} for chain in chains)
    gates = metrics_of(workspace)["gates"]
    assert gates["back_translation"]["passed"] == metrics_of(workspace)["out"] == len(chains) > 5
    first = (workspace / "data/chains/chains.jsonl").read_bytes()
    stage.main()
    assert (workspace / "data/chains/chains.jsonl").read_bytes() == first


def test_the_metrics_say_what_each_gate_let_through_and_what_the_walks_cover(workspace):
    stage.main()
    found = metrics_of(workspace)
    gates = found["gates"]
    assert list(gates) == ["schemas", "vote", "back_translation"]
    assert gates["schemas"]["in"] == found["in"]
    assert gates["vote"]["in"] == gates["schemas"]["passed"]
    assert gates["back_translation"]["in"] == gates["vote"]["passed"]
    assert all(gate["yield"] == round(gate["passed"] / gate["in"], 4) for gate in gates.values())
    for part in ("tools", "edges"):
        assert 0 < found["coverage"]["kept"][part] <= found["coverage"]["walked"][part] <= 1


def test_a_chain_that_fails_a_gate_is_not_seen_by_the_next():
    first, second = candidate("find_routes", "list_sailings"), candidate("list_sailings", "book_sailing")
    seen = []

    def only_the_first(candidates):
        return [one.id if one is first else Refusal("voted_down", "no") for one in candidates]

    def all_of_them(candidates):
        seen.extend(candidates)
        return ["yes" for _ in candidates]

    gated = stage.Gated([first, second])
    gated.put_through("vote", only_the_first)
    gated.put_through("back_translation", all_of_them)
    assert seen == gated.kept == [first]
    assert gated.refused == [(second.id, Refusal("voted_down", "no"))]
    assert gated.passages == {"vote": (2, 1), "back_translation": (1, 1)}


def test_a_chain_across_servers_names_them_and_each_tool_belongs_to_one(workspace):
    write_records("data/normalize/servers.jsonl", [CLUB, POST])
    (workspace / "params.yaml").write_text(PARAMS.replace("cross_server: 0", "cross_server: 2"))
    graph.main()
    stage.main()
    crossing = [chain for chain in read_records("data/chains/chains.jsonl", Chain) if len(chain.server_ids) > 1]
    assert [(chain.server_ids, chain.tools) for chain in crossing] == [
        ((CLUB.id, POST.id), ("find_member", "book_courier"))
    ]
    assert crossing[0].bindings[1] == Binding(
        step=1, parameter="contact_email", origin="result", from_step=0, output="contact_email"
    )
    assert metrics_of(workspace)["cross_server"] == 1


def test_a_budget_for_a_server_that_is_not_there_names_those_that_are(workspace, capsys):
    (workspace / "params.yaml").write_text(PARAMS.replace("budget_of: {}", "budget_of: {fery: 3}"))
    with pytest.raises(SystemExit):
        stage.main()
    assert "chains.budget_of: no server ['fery']; servers are: ['ferry', 'lonely', 'tables']" in capsys.readouterr().err


def test_a_graph_of_other_servers_says_which_stage_to_run(workspace, capsys):
    write_records("data/normalize/servers.jsonl", [TABLES, LONELY])
    with pytest.raises(SystemExit):
        stage.main()
    assert f"no tool 'find_routes' on server {FERRY.id}" in capsys.readouterr().err


def test_a_shortest_chain_longer_than_the_longest_is_refused_at_once(workspace, capsys):
    (workspace / "params.yaml").write_text(
        PARAMS.replace("min_length: 2, max_length: 4", "min_length: 5, max_length: 4")
    )
    with pytest.raises(SystemExit):
        stage.main()
    assert "chains: Value error, min_length is more than max_length" in capsys.readouterr().err
