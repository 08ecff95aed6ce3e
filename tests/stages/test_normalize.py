"""normalize as a script: every tool is written or rejected with a reason and a place, and twice the same bytes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import yaml

from astra.distinct import distinct, without_copies
from astra.formats import FoundServer
from astra.live import Notes
from astra.records import Reject, Server, Source, ToolSpec
from astra.stage import StageError, read_records
from stages.normalize import CONTRACT, Found, Params, documents, keep, main
from tests.formats.documents import DOCUMENTS

FAKE = str(Path(__file__).parents[1] / "fake_mcp_server.py")
PARAMS = Params(
    min_tools=2,
    min_description=0,
    max_description=1024,
    duplicates="report",
    max_ref_depth=2,
    start_timeout_s=20,
    call_timeout_s=10,
)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"normalize": PARAMS.model_dump()}))
    folder = tmp_path / "data/raw/tools"
    folder.mkdir(parents=True)
    for name, document in DOCUMENTS.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


def results():
    servers = list(read_records(CONTRACT.writes["servers"], Server))
    rejects = list(read_records(CONTRACT.rejects, Reject))
    return servers, rejects, json.loads(Path(CONTRACT.metrics).read_text())


def tool(name: str, description: str = "Do it.", **properties) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": []}
    return ToolSpec(name=name, description=description, parameters=parameters)


def found(*names: str, notes: Notes | None = None, uri: str = "a.json") -> Found:
    server = FoundServer("x", "X", "", "Trade", None, tuple(map(tool, names)), ())
    return Found(server, Source(format="mcp", uri=uri, revision="r", licence="MIT"), notes or Notes())


def test_every_format_comes_out_as_servers_in_the_order_of_the_files(workspace, capsys):
    main()
    servers, rejects, metrics = results()
    assert [server.source.format for server in servers] == ["astra", "mcp", "openai", "openapi", "rapidapi"]
    assert [server.domain for server in servers] == ["shipping", "transport", "tools", "sailing", "logistics"]
    assert servers[1].source.uri == "data/raw/tools/mcp.json"
    assert servers[1].source.revision.startswith("sha256:")
    assert "not-for-you" not in Path(CONTRACT.writes["servers"]).read_text()
    assert rejects == []
    assert metrics["in"] == metrics["out"] == sum(len(server.tools) for server in servers) == 13
    assert metrics["tools"] == {"astra": 2, "mcp": 3, "openai": 3, "openapi": 3, "rapidapi": 2}
    assert capsys.readouterr().err.startswith("normalize: 13 in, 13 out, 0 rejected, ")


def test_two_runs_write_the_same_bytes(workspace):
    main()
    first = Path(CONTRACT.writes["servers"]).read_bytes()
    main()
    assert Path(CONTRACT.writes["servers"]).read_bytes() == first


def test_files_that_cannot_be_read_are_rejects_and_spare_the_others(workspace):
    (workspace / "half.json").write_text('{"tools": [')
    (workspace / "other.json").write_text('{"a": 1}')
    (workspace / "tools.txt").write_text("find_port")
    (workspace / "README.md").write_text("about these files")
    main()
    servers, rejects, metrics = results()
    assert len(servers) == 5
    assert {reject.reason: reject.id for reject in rejects} == {
        "unreadable": "data/raw/tools/half.json",
        "unknown_format": "data/raw/tools/other.json",
        "unknown_suffix": "data/raw/tools/tools.txt",
    }
    assert "line 1 column 12" in rejects[0].detail
    assert metrics["in"] == 16


def test_a_link_that_leads_nowhere_and_what_is_no_file_are_rejects(workspace):
    (workspace / "gone.json").symlink_to(workspace / "nowhere.json")
    (workspace / "folder").mkdir()
    (workspace / "again").symlink_to(workspace / "folder")
    os.mkfifo(workspace / "pipe.json")
    (workspace / "linked.json").symlink_to(workspace / "mcp.json")
    main()
    _, rejects, _ = results()
    assert [(reject.id.rpartition("/")[2], reject.reason) for reject in rejects if reject.reason == "unreadable"] == [
        ("again", "unreadable"), ("gone.json", "unreadable"), ("pipe.json", "unreadable"),
    ]  # fmt: skip
    assert {reject.reason for reject in rejects} == {"unreadable", "duplicate_server"}  # what linked.json links to


def test_a_bad_line_and_a_bad_server_of_a_release_cost_only_themselves(workspace):
    lines = [json.dumps(DOCUMENTS["astra"][0]), '{"base_info": ', '{"features": {}}', "[]"]
    (workspace / "astra.json").unlink()
    (workspace / "mcp_servers.jsonl").write_text("\n".join(lines))
    main()
    servers, rejects, _ = results()
    assert [server.source.uri for server in servers if server.source.format == "astra"] == [
        "data/raw/tools/mcp_servers.jsonl#lighthouse_log"
    ]
    assert [(reject.id, reject.reason) for reject in rejects] == [
        (f"data/raw/tools/mcp_servers.jsonl#/{line}", reason)
        for line, reason in ((1, "unreadable"), (2, "bad_tool"), (3, "bad_tool"))
    ]
    assert "line 2 column 15" in rejects[0].detail
    assert "must be an object, not one with the keys features" in rejects[1].detail


def test_a_bad_tool_is_a_reject_with_a_pointer_and_its_server_stays(workspace):
    tools = [{"name": "a"}, {"name": ""}, {"name": "b"}]
    (workspace / "bad.json").write_text(json.dumps({"tools": tools}))
    main()
    servers, rejects, _ = results()
    assert [(reject.id, reject.reason) for reject in rejects] == [("data/raw/tools/bad.json#/tools/1", "empty_name")]
    assert [tool.name for server in servers if server.name == "bad" for tool in server.tools] == ["a", "b"]


def test_live_servers_are_asked_and_one_that_dies_spares_its_neighbours(workspace):
    config = {
        "dead": {"command": "python", "args": [FAKE, "dead_on_start"]},
        "alive": {"command": "python", "args": [FAKE, "noise"]},
        "remote": {"url": "http://127.0.0.1:9/mcp"},
        "odd": {"args": ["x"]},
        "quits": {"command": "python", "args": [FAKE, "dead_on_list"]},
        "half": {"command": "python", "args": [FAKE, "bad_tools"]},
    }
    (workspace / "live.mcp.json").write_text(json.dumps({"mcpServers": config}))
    (workspace / "live.notes.yaml").write_text("alive: {title: Alive, domain: Harbours, licence: MIT}\n")
    main()
    servers, rejects, metrics = results()
    alive = next(server for server in servers if server.name == "alive")
    assert (alive.title, alive.domain, alive.source.licence) == ("Alive", "harbours", "MIT")
    assert (alive.source.format, alive.source.revision) == ("mcp_live", "fake 1.2.3")
    assert alive.source.uri == "data/raw/tools/live.mcp.json#alive"
    assert [(reject.id.partition("#")[2], reject.reason) for reject in rejects] == [
        ("dead", "live_server_failed"), ("remote", "live_server_failed"), ("odd", "live_config_invalid"),
        ("quits", "live_server_failed"),
        ("half/tools/2", "bad_name"), ("half/tools/3", "bad_tool"), ("half/tools/4/inputSchema", "bad_schema"),
    ]  # fmt: skip
    half = next(server for server in servers if server.name == "half")
    assert [tool.name for tool in half.tools] == ["first", "half", "second"]
    assert "exit code 3" in rejects[0].detail
    assert "at http://127.0.0.1:9/mcp: ConnectError" in rejects[1].detail
    assert "MCP server quits died with exit code 9" in rejects[3].detail
    assert "HARBOUR_KEY not set" in rejects[0].detail
    assert metrics["live_servers"] == 2


def test_live_servers_that_are_slow_to_start_are_waited_for_together(workspace):
    slow = {f"slow{n}": {"command": "python", "args": [FAKE, "slow1.5"]} for n in range(4)}
    (workspace / "live.mcp.json").write_text(json.dumps({"mcpServers": slow}))
    started = time.monotonic()
    main()
    assert time.monotonic() - started < 5
    servers, _, _ = results()
    assert [server.name for server in servers if server.source.format == "mcp_live"] == list(slow)


def test_a_server_with_too_few_tools_rejects_each_of_them():
    outcome = keep(found("one"), PARAMS)
    assert outcome.servers == ()
    assert [(reject.id, reject.reason) for reject in outcome.rejects] == [("a.json/one", "too_few_tools")]
    assert "has 1 of at least 2 tools" in outcome.rejects[0].detail


def test_notes_may_lower_the_minimum_and_tell_what_a_document_does_not():
    notes = Notes(min_tools=1, min_tools_reason="a reference server", title="One", domain="Time", licence="BSD")
    (server,) = keep(found("one", notes=notes), PARAMS).servers
    assert (server.title, server.domain, server.source.licence) == ("One", "time", "BSD")


@pytest.mark.parametrize(
    ("stated", "noted", "domain"), [(None, None, "food"), ("Shops", None, "shops"), ("Shops", "A  b", "a b")]
)
def test_a_domain_is_the_notes_else_the_documents_else_what_the_words_clearly_say(stated, noted, domain):
    tools = (tool("find_recipe", "Find a recipe by its ingredients."), tool("plan_meal", "Plan a meal for a menu."))
    server = FoundServer("kitchen", "Kitchen", "", stated, None, tools, ())
    one = Found(server, Source(format="mcp", uri="a", revision="r", licence="MIT"), Notes(domain=noted))
    assert keep(one, PARAMS).servers[0].domain == domain


def test_words_that_do_not_clearly_say_a_domain_say_none():
    assert (
        keep(Found(FoundServer("x", "X", "", None, None, (tool("a"), tool("b")), ()), found().source, Notes()), PARAMS)
        .servers[0]
        .domain
        == "unclassified"
    )


def test_short_descriptions_reject_a_tool_and_long_ones_are_cut_between_words():
    tools = (tool("a", "Do it."), tool("b", "Find all the boats."), tool("c", ""), tool("d", "word " * 40 + "end"))
    server = FoundServer("x", "X", "", "Trade", None, tools, ())
    strict = PARAMS.model_copy(update={"min_description": 10, "max_description": 64})
    outcome = keep(Found(server, found().source, Notes()), strict)
    assert [(reject.id, reject.reason) for reject in outcome.rejects] == [
        ("a.json/a", "poor_description"), ("a.json/c", "poor_description"),
    ]  # fmt: skip
    assert outcome.servers[0].tools[1].description == "word " * 12 + "…"
    assert outcome.servers[0].tools[1].notes == ("description_cut",)


def copied(mode: str, *others: FoundServer):
    one = FoundServer("one", "One", "", "t", None, (
        tool("find_boat", "Find a boat.", id={"type": "string", "description": "Its id."}), tool("ping", ""), tool("c", "See."),
    ), ())  # fmt: skip
    params = PARAMS.model_copy(update={"duplicates": mode})
    places = [
        Found(server, Source(format="mcp", uri=f"{server.name}.json", revision="r", licence="MIT"), Notes())
        for server in (one, *others)
    ]
    servers = [server for place in places for server in keep(place, params).servers]
    return without_copies(servers, params.duplicates, params.min_tools, {})


TWO = FoundServer("two", "Two", "", "t", None, (
    tool("boat.finder".replace(".", "_"), "find a  BOAT", id={"description": "The boat's.", "type": "string"}),
    tool("ping", ""), tool("d", "Other."),
), ())  # fmt: skip


def test_a_tool_that_an_earlier_server_has_under_another_name_is_noted():
    outcome = copied("report", TWO)
    assert outcome.rejects == ()
    assert [tool.notes for tool in outcome.servers[1].tools] == [("copy_of one/find_boat",), (), ()]
    assert not any(tool.notes for tool in outcome.servers[0].tools)


def test_a_copy_may_be_dropped_with_its_reason():
    outcome = copied("drop", TWO)
    assert [(reject.id, reject.reason) for reject in outcome.rejects] == [("two.json/boat_finder", "duplicate_tool")]
    assert "the same tool as one/find_boat" in outcome.rejects[0].detail
    assert [tool.name for tool in outcome.servers[1].tools] == ["ping", "d"]


def test_a_server_with_too_few_tools_left_goes_and_what_only_it_had_stays_elsewhere():
    second = FoundServer(
        "two", "Two", "", "t", None, (tool("b", "Find a boat.", id={"type": "string"}), tool("own", "Mine.")), ()
    )
    third = FoundServer("three", "Three", "", "t", None, (tool("mine", "Mine."), tool("d", "Other.")), ())
    outcome = copied("drop", second, third)
    assert [server.name for server in outcome.servers] == ["one", "three"]
    assert [(reject.id, reject.reason) for reject in outcome.rejects] == [
        ("two.json/b", "duplicate_tool"), ("two.json/own", "too_few_tools"),
    ]  # fmt: skip


def test_rejects_of_one_file_have_an_id_each(workspace):
    hub = {"tool_name": "Hub", "api_list": [{"api_name": "only"}, {"api_name": ""}]}
    (workspace / "hubs.json").write_text(json.dumps([hub, {**hub, "tool_description": "again"}]))
    main()
    _, rejects, _ = results()
    assert sorted((reject.id.partition("#")[2], reject.reason) for reject in rejects) == [
        ("/0/api_list/1", "empty_name"), ("/1/api_list/1", "empty_name"),
        ("hub/only_for_hub", "too_few_tools"), ("hub~2/only_for_hub", "too_few_tools"),
    ]  # fmt: skip


def test_an_empty_server_counts_as_one():
    assert [reject.id for reject in keep(found(), PARAMS).rejects] == ["a.json"]


def test_a_copy_is_rejected_and_a_namesake_renamed():
    first = keep(found("a", "b"), PARAMS).servers[0]
    namesake = keep(found("a", "c"), PARAMS).servers[0]
    outcome = distinct([first, first.model_copy(), namesake])
    assert [server.name for server in outcome.servers] == ["x", f"x_{namesake.id[-12:]}"]
    assert [reject.reason for reject in outcome.rejects] == ["duplicate_server", "duplicate_server"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("harbor: {domain: x}", "harbor: no such server"),
        ("harbour: {min_tools: 1}", "min_tools needs min_tools_reason"),
    ],
)
def test_wrong_notes_stop_the_stage(workspace, capsys, text, says):
    (workspace / "mcp.notes.yaml").write_text(text)
    with pytest.raises(SystemExit):
        main()
    assert says in capsys.readouterr().err


def test_a_folder_without_documents_stops_the_stage(tmp_path):
    with pytest.raises(StageError, match="no tool documents"):
        documents(tmp_path)
