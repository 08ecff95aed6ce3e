"""Real MCP servers of other people, listed by the stage in one run and called live. Needs node; npx installs the servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from astra.live import LiveServer, LiveServerLost, server_config
from astra.records import Reject, Server
from astra.stage import read_records
from stages.normalize import CONTRACT, main

ROOT = Path(__file__).resolve().parents[1]
NPM_VERSION = "2026.8.31"
START_S, CALL_S = 180, 30

pytestmark = pytest.mark.network


def npx(name: str, *more: str) -> dict:
    return {"command": "npx", "args": ["-y", f"@modelcontextprotocol/server-{name}@{NPM_VERSION}", *more]}


class EverythingAtAnAddress:
    """The everything server over streamable HTTP, on a free port of the loopback interface."""

    def __enter__(self) -> EverythingAtAnAddress:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        entry = npx("everything", "streamableHttp")
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.process = subprocess.Popen(
            [entry["command"], *entry["args"]], env={**os.environ, "PORT": str(port)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + START_S
        while not self._listens(port):
            assert time.monotonic() < until
            time.sleep(0.2)
        return self

    def _listens(self, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def __exit__(self, *_: object) -> None:
        self.kill()


def test_six_servers_of_others_are_listed_in_one_run_and_answer_calls_and_one_that_is_killed_harms_no_other(
    tmp_path, monkeypatch
):
    files = tmp_path / "files"
    files.mkdir()
    (files / "tide.txt").write_text("high at nine")
    subprocess.run(["git", "init", "-q", str(files)], check=True)
    monkeypatch.chdir(tmp_path)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())["normalize"]
    (tmp_path / "params.yaml").write_text(
        yaml.safe_dump({"normalize": {**params, "min_tools": 2, "start_timeout_s": START_S, "call_timeout_s": CALL_S}})
    )
    folder = tmp_path / "data/raw/tools"
    folder.mkdir(parents=True)
    with EverythingAtAnAddress() as remote:
        entries = {
            "git": {"command": "python", "args": ["-m", "mcp_server_git"]},
            "time": {"command": "python", "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
            "everything": npx("everything"),
            "filesystem": npx("filesystem", str(files)),
            "memory": {**npx("memory"), "env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}},
            "killed": {"command": "timeout", "args": ["-s", "KILL", "0.3", "npx", *npx("everything")["args"]]},
            "remote": {"url": remote.url, "headers": {"Authorization": "Bearer ${ASTRA_TEST_KEY}"}},
        }
        monkeypatch.setenv("ASTRA_TEST_KEY", "a-key-for-nobody")
        (folder / "live.mcp.json").write_text(json.dumps({"mcpServers": entries}))
        main()
        servers = {server.name: server for server in read_records(CONTRACT.writes["servers"], Server)}
        rejects = list(read_records(CONTRACT.rejects, Reject))
        assert {name: len(server.tools) for name, server in servers.items()} == {
            "git": 12, "time": 2, "everything": 13, "filesystem": 14, "memory": 9, "remote": 13,
        }  # fmt: skip
        assert [(reject.id.partition("#")[2], reject.reason) for reject in rejects] == [
            ("killed", "live_server_failed")
        ]
        assert "MCP server killed died with exit code" in rejects[0].detail
        assert (
            sum(any(note.startswith("copy_of everything/") for note in one.notes) for one in servers["remote"].tools)
            == 13
        )
        assert "a-key-for-nobody" not in Path(CONTRACT.writes["servers"]).read_text()

        def open_session(name: str) -> LiveServer:
            return LiveServer(server_config(name, entries[name], "live.mcp.json"), START_S, CALL_S)

        calls = {
            "git": ("git_status", {"repo_path": str(files)}, "tide.txt"),
            "time": ("convert_time", {"source_timezone": "UTC", "time": "09:00", "target_timezone": "Asia/Tokyo"}, "18:00"),
            "everything": ("echo", {"message": "ahoy"}, "ahoy"),
            "filesystem": ("read_text_file", {"path": str(files / "tide.txt")}, "high at nine"),
            "memory": ("create_entities", {"entities": [{"name": "tide", "entityType": "t", "observations": ["high"]}]}, "tide"),
            "remote": ("get-sum", {"a": 1, "b": 2}, "3"),
        }  # fmt: skip
        for name, (tool, arguments, says) in calls.items():
            with open_session(name) as session:
                answer = session.call_tool(tool, arguments)
            assert says in answer.text, (name, answer)
            assert not answer.is_error
        with open_session("remote") as doomed, open_session("time") as neighbour:
            remote.kill()
            with pytest.raises(LiveServerLost, match="MCP server remote at http://127.0.0.1:"):
                doomed.call_tool("echo", {"message": "ahoy"})
            assert not neighbour.call_tool(*calls["time"][:2]).is_error
