"""graph: which tool feeds which, from proposals and from schemas."""

from __future__ import annotations

import json

import pytest

import stages.graph as stage
from astra.llm.reply import ReplyInvalid
from astra.records import ToolGraph
from astra.stage import read_records, write_records
from tests.stages.imitation import FERRY, LONELY, PARAMS, TABLES, TEXT, listed, tool


def via(source, target):
    return [(link.output, link.parameter, link.why) for link in stage.links(stage.outputs(source), target)]


def named(name):
    return next(one for one in (*FERRY.tools, *TABLES.tools) if one.name == name)


def test_a_value_fills_a_parameter_of_the_same_name_however_deep_it_lies():
    assert via(named("find_routes"), named("list_sailings")) == [("routes[].route_id", "route_id", "name, type")]


def test_a_title_names_what_a_result_is_a_key_of():
    assert via(named("airport_city"), named("city_country")) == [("result", "city", "name, type")]
    assert via(named("city_country"), named("city_airport")) == []


def test_a_type_alone_and_a_generic_name_alone_are_no_evidence():
    writer = tool("write_text", "Write.", {"title": TEXT, "date": TEXT}, {"date": TEXT, "title": TEXT})
    other = tool("open_door", "Open.", {"title": TEXT, "house": TEXT}, None)
    assert via(writer, other) == []


def test_an_id_of_the_same_thing_is_evidence_and_of_another_thing_is_not():
    make = tool("create_issue", "Create.", {"text": TEXT}, {"id": TEXT})
    assert [one[:2] for one in via(make, tool("close_issue", "Close.", {"issue_id": TEXT}, None))] == [
        ("id", "issue_id")
    ]
    assert via(make, tool("close_door", "Close.", {"door_id": TEXT}, None)) == []


def test_types_that_do_not_meet_are_no_evidence():
    gives = tool("get_berth", "Get.", {}, {"berth": {"type": "integer"}})
    assert via(gives, tool("use_berth", "Use.", {"berth": {"type": "boolean"}}, None)) == []
    assert via(gives, tool("use_berth", "Use.", {"berth": {"type": "number"}}, None)) == [
        ("berth", "berth", "name, type")
    ]


def test_a_format_and_an_enumeration_are_evidence():
    mail, kinds = {"type": "string", "format": "email"}, {"type": "string", "enum": ["a", "b"]}
    gives = tool("find_person", "Find.", {}, {"people": listed(contact=mail, sort_of=kinds)})
    takes = tool("invite", "Invite.", {"guest": mail, "variety": kinds}, None)
    assert [one[1:] for one in via(gives, takes)] == [("guest", "format, type"), ("variety", "enum, type")]


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


def test_an_edge_keeps_both_kinds_of_evidence():
    votes = [stage.Proposal(task="t", chain=("find_routes", "list_sailings", "get_weather"), plausible="yes")]
    graph = stage.build(FERRY, votes)
    assert graph is not None
    found = {
        (edge.source, edge.target): (bool(edge.via), edge.votes_for, edge.votes, edge.weight) for edge in graph.edges
    }
    assert found["find_routes", "list_sailings"] == (True, 1, 1, 2.0)
    assert found["list_sailings", "get_weather"] == (False, 1, 1, 1.0)
    assert found["list_sailings", "book_sailing"] == (True, 0, 1, 1.0)
    assert ("find_routes", "find_routes") not in found


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    write_records("data/normalize/servers.jsonl", [FERRY, TABLES, LONELY])
    return tmp_path


def test_the_stage_rejects_a_server_without_edges_and_repeats_byte_for_byte(workspace, capsys):
    stage.main()
    first = (workspace / "data/graph/graphs.jsonl").read_bytes()
    assert capsys.readouterr().err.startswith("graph: 3 in, 2 out, 1 rejected (no_edges 1)")
    stage.main()
    assert (workspace / "data/graph/graphs.jsonl").read_bytes() == first
    assert [graph.server_id for graph in read_records("data/graph/graphs.jsonl", ToolGraph)] == [FERRY.id, TABLES.id]
