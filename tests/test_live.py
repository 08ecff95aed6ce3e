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
    LiveServerLost,
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


class Served:
    """The fake server at an address, as a context manager that gives a session's settings."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __enter__(self) -> Served:
        self.process = subprocess.Popen(
            [sys.executable, FAKE, self.mode, "http"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}/mcp"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)

    def session(self, query: str = "", call: float = 10, **more) -> LiveServer:
        return LiveServer(LiveConfig(name=self.mode, url=self.url + query, **more), 20, call)


@pytest.mark.slow
def test_a_server_that_takes_25_s_to_start_is_waited_for_and_then_called_in_its_own_time():
    with fake("slow25", start=60, call=10) as server:
        started = time.monotonic()
        assert not server.call_tool("pid", {}).is_error
        assert time.monotonic() - started < 10
    with (
        pytest.raises(LiveTimeout, match=r"did not answer initialize in 5 s \(start_timeout_s\)"),
        fake("slow25", start=5),
    ):
        pass


def test_a_server_at_an_address_is_listed_and_called_like_any_other():
    with Served("pages") as at, at.session() as server:
        assert server.version == "fake 1.2.3"
        assert [tool["name"] for tool in server.list_tools()] == ["first", "second", "third"]
        assert server.call_tool("pid", {}).text == str(at.process.pid)
        assert server.call_tool("nope", {}) == ("Unknown tool: nope", True)
        assert [server.call_tool("quote_fare", {"case": case}).is_error for case in (0, 1)] == [True, False]


def test_headers_and_addresses_take_keys_from_our_environment_and_no_message_shows_them(monkeypatch):
    monkeypatch.setenv("HARBOUR_KEY", "open sesame")
    headers = {"Authorization": "Bearer ${HARBOUR_KEY}"}
    with Served("locked") as at:
        with at.session("?api_key=${HARBOUR_KEY}", headers=headers) as server:
            assert len(server.list_tools()) == 3
        monkeypatch.setenv("HARBOUR_KEY", "wrong-key")
        with pytest.raises(LiveServerLost) as error, at.session("?api_key=${HARBOUR_KEY}", headers=headers):
            pass
    assert f"MCP server locked at {at.url}: HTTP 401 Unauthorized: its headers lack the right key" in str(error.value)
    assert "not with ***" in str(error.value)
    assert "wrong-key" not in str(error.value)


def test_a_literal_key_in_a_header_or_an_address_is_in_no_message_either():
    config = LiveConfig(name="x", url="https://me:pw@example.org/mcp?token=abc123", headers={"X-Api-Key": "k-77"})
    assert config.public("abc123 and k-77") == "*** and ***"
    assert config.public_address() == "https://example.org/mcp"


def test_an_address_where_nobody_is_says_so_at_once():
    with Served("plain") as at:
        pass
    with pytest.raises(LiveServerLost, match=r"at http://127.0.0.1:\d+/mcp: ConnectError"), at.session():
        pass


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("dead_on_call", "MCP server dead_on_call at http"),
        ("breaks", "HTTP 502 Bad Gateway; it said: <html>bad gateway"),
    ],
)
def test_an_address_that_fails_during_a_call_is_an_error_of_the_machinery_and_spares_its_neighbour(mode, says):
    with Served("plain") as other, other.session() as neighbour, Served(mode) as at, at.session() as server:
        with pytest.raises(LiveServerLost, match=says):
            server.call_tool("pid", {})
        assert server.broken
        with pytest.raises(LiveServerDied):
            server.call_tool("pid", {})
        assert not neighbour.call_tool("pid", {}).is_error


@pytest.mark.timeout(120)
def test_calls_that_come_while_a_session_ends_are_answered_too():
    for _ in range(10):
        with Served("dead_on_call") as at, at.session() as server, ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(server.call_tool, "pid", {}) for _ in range(40)]
            assert all(isinstance(call.exception(30), LiveServerDied) for call in calls)


def test_an_address_that_answers_a_call_with_a_page_breaks_the_protocol():
    with (
        Served("garbage") as at,
        at.session() as server,
        pytest.raises(LiveProtocolBroken, match="tools/call pid: Failed to parse JSON"),
    ):
        server.call_tool("pid", {})


def test_a_call_to_an_address_that_hangs_ends_within_the_call_timeout_and_closing_does_not_wait():
    with Served("hangs_on_call") as at, at.session(call=0.4) as server:
        with pytest.raises(LiveTimeout, match=r"tools/call pid in 0.4 s \(call_timeout_s\)"):
            server.call_tool("pid", {})
        started = time.monotonic()
    with Served("clings") as at, at.session():
        pass
    assert time.monotonic() - started < 15


def test_a_variable_of_a_header_that_is_not_set_is_named():
    server = LiveServer(LiveConfig(name="x", url="http://127.0.0.1:9/", headers={"A": "${NO_SUCH_NAME}"}), 5, 5)
    with pytest.raises(LiveConfigInvalid, match=r"\$\{NO_SUCH_NAME\} in its headers is not set: export it"), server:
        pass


@pytest.mark.parametrize("host", ["[::1", "host:99999", ""])
def test_a_variable_that_makes_no_address_of_a_url_is_refused_without_being_shown(monkeypatch, host):
    monkeypatch.setenv("OUR_HOST", host)
    server = LiveServer(LiveConfig(name="x", url="http://${OUR_HOST}/mcp"), 5, 5)
    with pytest.raises(LiveConfigInvalid, match="MCP server x: url must be an address") as error, server:
        pass
    assert not host or host not in str(error.value)


@pytest.mark.parametrize("url", ["http://a\nb/mcp", "https://\u200b.x/mcp"])
def test_an_address_that_no_request_can_be_made_for_is_lost_at_once(url):
    with (
        pytest.raises(LiveServerLost, match="MCP server x at .*InvalidURL"),
        LiveServer(LiveConfig(name="x", url=url), 5, 5),
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
        pids = [pid for _ in range(20) for pid in pool.map(session, range(8))]
    assert len(pids) == 160
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
        assert [tool["name"] for tool in server.list_tools()] == ["first", "second", "third"]


def test_a_malformed_tool_is_handed_on_as_it_is_and_costs_no_other():
    with fake("bad_tools") as server:
        assert [tool["name"] if isinstance(tool, dict) else tool for tool in server.list_tools()] == [
            "first", "half", 7, "text", "wrong", "second",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "says"), [("endless", "the cursor 'more' came twice"), ("bad_list", "no list of tools")]
)
def test_a_tool_list_that_is_not_mcp_fails_loudly(mode, says):
    with fake(mode) as server, pytest.raises(LiveProtocolBroken, match=says):
        server.list_tools()


def test_a_server_sees_only_what_its_configuration_names(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not for you")
    monkeypatch.setenv("PORT_OF", "Dover")
    with fake("plain", env={"HARBOUR": "port of ${PORT_OF}", "TOWN": "Calais"}) as server:
        seen = json.loads(server.call_tool("env", {}).text)
        assert json.loads(server.call_tool("letters", {}).text)["HARBOUR"] == len("port of Dover")
    assert seen.pop("TOWN") == "Calais"
    assert seen.pop("HARBOUR") == "***"  # what we filled in is a secret, in answers too
    assert seen.keys() <= {"PATH", "LANG", "LC_CTYPE"}


def test_a_variable_that_is_not_set_is_named():
    with (
        pytest.raises(LiveConfigInvalid, match=r"\$\{NO_SUCH_NAME\} in its env is not set: export it"),
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
        ({"args": []}, "mcpServers.x: Value error, needs either command"),
        ({"command": "python", "url": "https://example.org/mcp"}, "needs either command"),
        ({"url": "https://example.org/mcp", "type": "sse"}, "type must be one of http, streamable-http"),
        ({"command": "python", "type": "http"}, "type must be one of stdio, not http"),
        ({"url": "example.org/mcp"}, "mcpServers.x.url"),
        ({"url": "http://[::1/mcp"}, "url must be an address such as https://example.org/mcp, not 'http://[::1/mcp'"),
        ({"url": "http://me:s3cret@host:99999/mcp?key=s3cret"}, "not 'http://host:99999/mcp'"),
        ({"url": "https:///mcp"}, "url must be an address"),
        ({"url": "https://example.org/mcp", "headers": {"A": 1}}, "mcpServers.x.headers.A"),
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
        ("time: {", r"live.notes.yaml:1:\d+: not valid YAML"),
        ("", "an empty file"),
        ("time: {domain: 2026-13-45}\ntime: {}", "live.notes.yaml:2:1: .*'time' stands twice"),
        ("time: {min_tools: 2026-13-45, min_tools_reason: x}", r"time.min_tools: .*got '2026-13-45'"),
        ("time: !!set {a}", "live.notes.yaml:1:7: .*constructor"),
        ("time: &t {domain: *t}", "an anchor contains itself"),
        ("time:\n\tdomain: x", "live.notes.yaml:2:1: not valid YAML"),
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
        assert [tool["name"] for tool in server.list_tools()] == list(knowledge.relations)
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
