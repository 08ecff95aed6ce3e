"""normalize as a script: every tool is written or rejected with a reason and a place, and twice the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from astra.formats import FoundServer
from astra.live import Notes
from astra.records import Reject, Server, Source, ToolSpec
from astra.stage import StageError, read_records
from stages.normalize import CONTRACT, Found, Params, distinct, documents, keep, main
from tests.formats.documents import DOCUMENTS

FAKE = str(Path(__file__).parents[1] / "fake_mcp_server.py")
PARAMS = Params(min_tools=2, max_ref_depth=2, start_timeout_s=20, call_timeout_s=10)


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


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="Do it.", parameters={"type": "object", "properties": {}, "required": []})


def found(*names: str, notes: Notes | None = None, uri: str = "a.json") -> Found:
    server = FoundServer("x", "X", "", "Trade", None, tuple(map(tool, names)), ())
    return Found(server, Source(format="mcp", uri=uri, revision="r", licence="MIT"), notes or Notes())


def test_every_format_comes_out_as_servers_in_the_order_of_the_files(workspace, capsys):
    main()
    servers, rejects, metrics = results()
    assert [server.source.format for server in servers] == ["mcp", "openai", "openapi", "rapidapi"]
    assert [server.domain for server in servers] == ["transport", "tools", "sailing", "logistics"]
    assert servers[0].source.uri == "data/raw/tools/mcp.json"
    assert servers[0].source.revision.startswith("sha256:")
    assert rejects == []
    assert metrics["in"] == metrics["out"] == sum(len(server.tools) for server in servers) == 11
    assert metrics["tools"] == {"mcp": 3, "openai": 3, "openapi": 3, "rapidapi": 2}
    assert capsys.readouterr().err.startswith("normalize: 11 in, 11 out, 0 rejected, ")


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
    assert len(servers) == 4
    assert {reject.reason: reject.id for reject in rejects} == {
        "unreadable": "data/raw/tools/half.json",
        "unknown_format": "data/raw/tools/other.json",
        "unknown_suffix": "data/raw/tools/tools.txt",
    }
    assert "line 1 column 12" in rejects[0].detail
    assert metrics["in"] == 14


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
        "remote": {"url": "https://example.org/mcp"},
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
        ("dead", "live_server_failed"), ("remote", "live_config_invalid"),
    ]  # fmt: skip
    assert "exit code 3" in rejects[0].detail
    assert "HARBOUR_KEY not set" in rejects[0].detail
    assert metrics["live_servers"] == 1


def test_a_server_with_too_few_tools_rejects_each_of_them():
    outcome = keep(found("one"), PARAMS)
    assert outcome.servers == ()
    assert [(reject.id, reject.reason) for reject in outcome.rejects] == [("a.json/one", "too_few_tools")]
    assert "has 1 of at least 2 tools" in outcome.rejects[0].detail


def test_notes_may_lower_the_minimum_and_tell_what_a_document_does_not():
    notes = Notes(min_tools=1, min_tools_reason="a reference server", title="One", domain="Time", licence="BSD")
    (server,) = keep(found("one", notes=notes), PARAMS).servers
    assert (server.title, server.domain, server.source.licence) == ("One", "time", "BSD")


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
