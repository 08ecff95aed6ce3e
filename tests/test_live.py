"""Live MCP sessions: whatever a server does, the caller hears what happened, in time, and no process stays."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from astra.knowledge import Knowledge
from astra.live import (
    LiveConfig,
    LiveConfigInvalid,
    LiveProtocolBroken,
    LiveServer,
    LiveServerDied,
    LiveTimeout,
    read_config,
    read_notes,
    server_config,
)

FAKE = str(Path(__file__).with_name("fake_mcp_server.py"))
ROOT = Path(__file__).resolve().parents[1]


def fake(mode: str, start: float = 20, call: float = 10, **more) -> LiveServer:
    return LiveServer(LiveConfig(name=mode, command="python", args=(FAKE, mode), **more), start, call)


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: str) -> bool:
    """Whether a process that nobody waits for is gone within two seconds."""
    for _ in range(100):
        if not is_running(pid):
            return True
        time.sleep(0.02)
    return False


def test_a_server_that_dies_at_its_start_is_reported_at_once_with_exit_code_and_last_words():
    started = time.monotonic()
    with pytest.raises(LiveServerDied) as error, fake("dead_on_start"):
        pass
    assert time.monotonic() - started < 10
    assert error.value.exit_code == 3
    assert "MCP server dead_on_start died with exit code 3" in str(error.value)
    assert "HARBOUR_KEY not set" in error.value.stderr


def test_a_secret_of_the_configuration_is_in_no_message(monkeypatch):
    monkeypatch.setenv("OUR_HARBOUR", "s3cret-value")
    with pytest.raises(LiveServerDied) as error, fake("dead_on_start", env={"HARBOUR_TOKEN": "${OUR_HARBOUR}"}):
        pass
    assert "s3cret-value" not in str(error.value)
    assert "token ***" in str(error.value)


def test_a_server_that_dies_during_a_call_is_an_error_of_the_machinery_and_spares_its_neighbour():
    with fake("plain") as neighbour, fake("dead_on_call") as server:
        with pytest.raises(LiveServerDied, match="exit code 9.*harbour master fell asleep"):
            server.call_tool("pid", {})
        assert server.broken
        with pytest.raises(LiveServerDied):
            server.call_tool("pid", {})
        assert neighbour.call_tool("pid", {}).text.isdigit()
        assert not neighbour.broken


def test_a_call_that_hangs_ends_within_the_call_timeout():
    with fake("hangs_on_call", call=0.4) as server:
        with pytest.raises(LiveTimeout, match=r"did not answer tools/call pid in 0.4 s \(call_timeout_s\)"):
            server.call_tool("pid", {})
        assert server.broken


def test_lines_on_stdout_that_are_not_mcp_are_skipped_and_counted():
    with fake("noise") as server:
        assert server.version == "fake 1.2.3"
        assert server.n_noise == 4


def test_a_server_that_prints_only_noise_times_out_and_is_quoted():
    with (
        pytest.raises(LiveTimeout, match="start_timeout_s.*it said: Harbour server v2.1 starting"),
        fake("only_noise", start=0.5),
    ):
        pass


def test_a_slow_first_start_has_its_own_limit():
    with fake("slow1.2", start=20, call=1) as server:
        assert not server.call_tool("pid", {}).is_error
    with (
        pytest.raises(LiveTimeout, match=r"did not answer initialize in 0.3 s \(start_timeout_s\)"),
        fake("slow5", start=0.3, call=1),
    ):
        pass


def test_sessions_may_be_closed_in_the_order_of_opening_even_after_a_timeout():
    first, second = fake("plain"), fake("plain", call=0.3)
    first.__enter__()
    second.__enter__()
    pids = [first.call_tool("pid", {}).text, second.call_tool("pid", {}).text]
    with pytest.raises(LiveTimeout):
        second.call_tool("hang", {})
    first.close()
    second.close()
    second.close()
    assert not any(is_running(pid) for pid in pids)


def test_eight_sessions_in_parallel_leave_no_process_and_no_unheard_exception():
    def session(number: int) -> str:
        with fake("plain") as server:
            return server.call_tool("pid", {}).text

    with ThreadPoolExecutor(8) as pool:
        pids = [pid for _ in range(2) for pid in pool.map(session, range(8))]
    assert len(set(pids)) == 16
    assert not any(is_running(pid) for pid in pids)


def test_what_a_server_started_ends_with_it():
    with fake("plain") as server:
        pid = server.call_tool("spawn", {}).text
        assert is_running(pid)
    assert ends(pid)


def test_a_session_that_is_closed_says_so():
    with fake("plain") as server:
        pass
    with pytest.raises(LiveServerDied, match="is closed"):
        server.call_tool("pid", {})


def test_a_caller_with_an_event_loop_may_await_several_calls():
    async def both(server: LiveServer) -> list[str]:
        results = await asyncio.gather(server.call("pid", {}), server.call("pid", {}))
        return [one.text for one in results]

    with fake("plain") as server:
        assert len(set(asyncio.run(both(server)))) == 1


def test_the_error_flag_decides_and_not_the_wording_nor_the_schema():
    with fake("plain") as server:
        server.list_tools()
        results = [tuple(server.call_tool("quote_fare", {"case": case})) for case in range(5)]
    assert results == [
        ("port closed on Sundays", True),
        ('{"fare": 12.5}', False),
        ("Error: log line found", False),
        ("fare is 12.5", False),
        ('{"fare": "much"}', False),
    ]
    assert server.warnings == {"no_structured_content": 2, "structured_content_mismatch": 1}


def test_a_protocol_error_on_a_call_is_the_servers_answer():
    with fake("plain") as server:
        assert server.call_tool("nope", {}) == ("Unknown tool: nope", True)


def test_all_pages_of_the_tool_list_are_read():
    with fake("pages") as server:
        assert [tool.name for tool in server.list_tools()] == ["first", "second", "third"]


@pytest.mark.parametrize(("mode", "says"), [("endless", "did not end"), ("bad_list", "inputSchema")])
def test_a_tool_list_that_is_not_mcp_fails_loudly(mode, says):
    with fake(mode) as server, pytest.raises(LiveProtocolBroken, match=says):
        server.list_tools()


def test_a_server_sees_only_what_its_configuration_names(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not for you")
    monkeypatch.setenv("PORT_OF", "Dover")
    with fake("plain", env={"HARBOUR": "port of ${PORT_OF}"}) as server:
        seen = json.loads(server.call_tool("env", {}).text)
    assert seen.pop("HARBOUR") == "port of Dover"
    assert seen.keys() <= {"PATH", "LANG", "LC_CTYPE"}


def test_a_variable_that_is_not_set_is_named():
    with (
        pytest.raises(LiveConfigInvalid, match=r"wants \$\{NO_SUCH_NAME\}, which is not set"),
        fake("plain", env={"A": "${NO_SUCH_NAME}"}),
    ):
        pass


def test_a_command_that_is_not_there_is_an_error_of_this_server():
    server = LiveServer(LiveConfig(name="gone", command="no-such-command"), 5, 5)
    with pytest.raises(LiveServerDied, match="could not be started; its last words: no-such-command"), server:
        pass


def test_python_is_the_interpreter_that_runs_us():
    assert LiveConfig(name="x", command="python", args=("-m", "y")).argv == (sys.executable, "-m", "y")
    assert LiveConfig(name="x", command="npx").argv == ("npx",)


def test_a_process_that_forgets_to_close_a_session_still_ends_and_leaves_nothing():
    code = (
        "import sys; from tests.test_live import fake\n"
        "server = fake('plain').__enter__()\n"
        "print(server.call_tool('pid', {}).text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=30, check=True
    )
    assert ends(done.stdout.strip())


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"url": "https://example.org/mcp"}, "only stdio servers"),
        ({"args": []}, "mcpServers.x.command: Field required"),
        ({"command": "python", "args": "-m x"}, "mcpServers.x.args"),
        ({"command": "python", "env": {"A": 1}}, "mcpServers.x.env.A"),
        ("python", "mcpServers.x"),
    ],
)
def test_a_wrong_entry_is_named_by_file_and_key(entry, says):
    with pytest.raises(LiveConfigInvalid, match="a.json: ") as error:
        server_config("x", entry, "a.json")
    assert says in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"servers": {}}'])
def test_a_configuration_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "live.json").write_text(text)
    with pytest.raises(LiveConfigInvalid, match="live.json"):
        read_config(tmp_path / "live.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time: {min_tools: 2}", "min_tools needs min_tools_reason"),
        ("time: {licens: MIT}", "time.licens: Extra inputs.*Known keys: title"),
        ("- time", "expected a mapping"),
        ("time: {", "not YAML"),
    ],
)
def test_wrong_notes_are_named_by_file_and_key(tmp_path, text, says):
    (tmp_path / "live.notes.yaml").write_text(text)
    with pytest.raises(LiveConfigInvalid, match=says):
        read_notes(tmp_path / "live.mcp.json")


def test_the_notes_of_the_committed_configuration_say_which_tools_may_be_called_for_real():
    notes = read_notes(ROOT / "data/raw/tools/live.mcp.json")
    assert notes.keys() == read_config(ROOT / "data/raw/tools/live.mcp.json").keys()
    assert notes["knowledge"].is_deterministic("airport_city")
    assert not notes["git"].is_deterministic("git_status")
    assert not notes["time"].is_deterministic("convert_time")
    assert read_notes(ROOT / "data/raw/tools/ferry_desk.mcp.json") == {}


def test_our_knowledge_server_answers_with_the_tables_and_refuses_in_its_own_words(monkeypatch):
    monkeypatch.chdir(ROOT)
    knowledge = Knowledge.load("data/raw/knowledge/knowledge.yaml")
    with LiveServer(read_config("data/raw/tools/live.mcp.json")["knowledge"], 60, 10) as server:
        assert [tool.name for tool in server.list_tools()] == list(knowledge.relations)
        airport = knowledge.keys("airport")[0]
        answer = server.call_tool("airport_city", {"airport": airport})
        assert (json.loads(answer.text), answer.is_error) == (
            {"result": knowledge.value("airport_city", airport)},
            False,
        )
        assert server.call_tool("airport_city", {"airport": "XYZ"}) == ("unknown airport: XYZ", True)
        assert server.call_tool("airport_city", {}) == ("missing parameter: airport", True)
        assert not server.warnings
    assert os.getcwd() == str(ROOT)
