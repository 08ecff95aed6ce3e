"""graph: which tool feeds which, from proposals and from schemas."""

from __future__ import annotations

import json

import networkx as nx
import pytest

import stages.graph as stage
from astra.encoder import open_encoder
from astra.llm.reply import ReplyInvalid
from astra.records import ToolGraph
from astra.stage import read_records, write_records
from astra.toolgraph.evidence import Prior, Weights, signature, texts
from tests.stages.imitation import FERRY, LONELY, PARAMS, TABLES, TEXT, tool

WEIGHTS = Weights(name=0.6, format=0.5, enum=0.5, type=0.1, similarity=0.5)


def proposals(*chains, plausible="yes"):
    return json.dumps({"proposals": [{"task": "t", "chain": chain, "plausible": plausible} for chain in chains]})


def test_a_proposal_with_an_unknown_tool_is_dropped_whole():
    read = stage.read_proposals(
        proposals(["find_routes", "teleport", "book_sailing"], ["find_routes", "list_sailings"]), FERRY, 4
    )
    assert [one.chain for one in read.accepted] == [("find_routes", "list_sailings")]
    assert read.dropped == {"unknown_tool": 1}


def test_unsure_lone_and_overlong_proposals_are_dropped_and_counted():
    assert stage.read_proposals(proposals(["find_routes", "list_sailings"], plausible="unsure"), FERRY, 4).dropped == {
        "not_plausible": 1
    }
    assert stage.read_proposals(proposals(["find_routes"]), FERRY, 4).dropped == {"wrong_length": 1}
    assert stage.read_proposals('{"proposals": [7]}', FERRY, 4).dropped == {"malformed": 1}
    with pytest.raises(ReplyInvalid):
        stage.read_proposals("I propose to sail.", FERRY, 4)


def linked(server):
    signatures = [signature(one) for one in server.tools]
    prior = Prior(weights=WEIGHTS, min_score=0.5, encoder="builtin")
    return stage.structure(signatures, prior, open_encoder("builtin", texts(signatures)), 64).links


def test_an_edge_keeps_both_kinds_of_evidence_and_how_much_each_says():
    votes = [stage.Proposal(task="t", chain=("find_routes", "list_sailings", "get_weather"), plausible="yes")]
    graph = stage.build(FERRY, votes, linked(FERRY))
    assert graph is not None
    found = {(edge.source, edge.target): edge for edge in graph.edges}
    both = found["find_routes", "list_sailings"]
    assert (both.votes_for, both.votes) == (1, 1)
    assert both.via[0].evidence == {"name": 0.6, "type": 0.1, "similarity": 0.5}
    assert both.weight == 2.0  # the prior counts one at most
    assert (found["list_sailings", "get_weather"].via, found["list_sailings", "get_weather"].weight) == ((), 1.0)
    assert found["list_sailings", "book_sailing"].votes_for == 0
    assert ("find_routes", "find_routes") not in found


def test_a_proposal_that_calls_a_tool_twice_in_a_row_makes_no_edge_to_itself():
    votes = [stage.Proposal(task="t", chain=("get_weather", "get_weather"), plausible="yes")]
    assert stage.build(LONELY, [], {}) is None
    assert stage.build(FERRY, votes, {}) is None


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    write_records("data/normalize/servers.jsonl", [FERRY, TABLES, LONELY])
    return tmp_path


def written(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted((folder / "data/graph").rglob("*.*"))}


def test_the_stage_rejects_a_server_without_edges_and_repeats_byte_for_byte(workspace, capsys):
    stage.main()
    first = written(workspace)
    assert capsys.readouterr().err.startswith("graph: 3 in, 2 out, 1 rejected (no_edges 1)")
    stage.main()
    assert written(workspace) == first
    assert [graph.server_id for graph in read_records("data/graph/graphs.jsonl", ToolGraph)] == [FERRY.id, TABLES.id]


def test_the_stage_writes_graphs_that_other_programs_read_and_a_picture_of_each(workspace):
    (workspace / "data/graph/pictures").mkdir(parents=True)
    (workspace / "data/graph/pictures/gone.svg").write_text("of a server that is no longer there")
    stage.main()
    graphs = list(read_records("data/graph/graphs.jsonl", ToolGraph))
    net = nx.read_graphml("data/graph/graphs.graphml")
    assert net.number_of_edges() == sum(len(graph.edges) for graph in graphs)
    assert sorted(file.name for file in (workspace / "data/graph/pictures").iterdir()) == ["ferry.svg", "tables.svg"]


def test_two_servers_of_one_name_get_a_picture_each(workspace):
    write_records("data/normalize/servers.jsonl", [FERRY, FERRY.model_copy(update={"id": "server-2", "name": "FERRY"})])
    stage.main()
    names = sorted(file.name for file in (workspace / "data/graph/pictures").iterdir())
    assert names == ["ferry.svg", "server-2.svg"]


def test_an_estimate_writes_nothing(workspace):
    stage.main(["--estimate"])
    assert not (workspace / "data/graph").exists()


MAIL = {"type": "string", "format": "email"}
CLUB = FERRY.model_copy(
    update={
        "id": "server-club", "name": "club",
        "tools": (
            tool("find_member", "Find a member of the club.", {"nickname": TEXT}, {"contact_email": MAIL}),
            tool("send_letter", "Write to somebody.", {"contact_email": MAIL, "letter": TEXT}, None),
        ),
    }
)  # fmt: skip
POST = CLUB.model_copy(
    update={
        "id": "server-post", "name": "post",
        "tools": (tool("book_courier", "Send a courier.", {"contact_email": MAIL}, {"courier_day": TEXT}),),
    }
)  # fmt: skip


def test_edges_lead_to_other_servers_only_where_the_params_say_so(workspace):
    write_records("data/normalize/servers.jsonl", [CLUB, POST, LONELY])
    stage.main()
    graphs = list(read_records("data/graph/graphs.jsonl", ToolGraph))
    assert all(edge.target_server_id is None for graph in graphs for edge in graph.edges)
    (workspace / "params.yaml").write_text(PARAMS.replace("cross_server: 0", "cross_server: 2"))
    stage.main()
    edges = {
        (edge.source, edge.target): edge
        for graph in read_records("data/graph/graphs.jsonl", ToolGraph)
        for edge in graph.edges
    }
    assert edges["find_member", "book_courier"].target_server_id == POST.id
    assert {"name", "format"} <= edges["find_member", "book_courier"].via[0].evidence.keys()
    assert edges["find_member", "send_letter"].target_server_id is None
    metrics = json.loads((workspace / "metrics/graph.json").read_text())
    assert metrics["cross_server_edges"] == 1
