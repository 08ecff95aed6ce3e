"""Real MCP servers of other people, listed by the stages in one run and called live; one of them is killed in the middle.

Two are Python packages that the project installs anyway; the Node ones are installed from the npm registry into
``.cache/npm`` of the repository, once. Without node, or where the registry cannot be reached, the test says so and skips.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
import yaml

from astra.llm.builtin.phrases import step_text
from astra.records import Reject, Server, Task, Trajectory
from astra.stage import read_records, write_records
from stages import normalize, trajectories

ROOT = Path(__file__).resolve().parents[1]
NPM_VERSION = "2026.8.31"
CACHE = ROOT / ".cache" / "npm" / NPM_VERSION
NAMES = ("everything", "filesystem", "memory")
INSTALL_S, START_S, CALL_S = 120, 60, 20
MODEL = {"transport": "builtin", "name": "rules", "temperature": 0.0, "max_tokens": 512}


@pytest.fixture(scope="module")
def node_servers() -> dict[str, dict]:
    """How each Node server is started."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    scripts = {name: CACHE / f"node_modules/@modelcontextprotocol/server-{name}/dist/index.js" for name in NAMES}
    if not all(script.is_file() for script in scripts.values()):
        CACHE.mkdir(parents=True, exist_ok=True)
        packages = [f"@modelcontextprotocol/server-{name}@{NPM_VERSION}" for name in NAMES]
        command = ["npm", "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", "--loglevel=error", *packages]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm install took more than {INSTALL_S} s")
        if done.returncode:
            pytest.skip(f"npm install failed: {done.stderr.strip()[-300:]}")
    return {name: {"command": shutil.which("node"), "args": [str(script)]} for name, script in scripts.items()}


def with_arguments(entry: dict, *more: str) -> dict:
    return {**entry, "args": [*entry["args"], *more]}


class AtAnAddress:
    """A server over streamable HTTP on a free port of the loopback interface."""

    def __init__(self, entry: dict) -> None:
        self.argv = [entry["command"], *entry["args"], "streamableHttp"]

    def __enter__(self) -> AtAnAddress:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.process = subprocess.Popen(
            self.argv, env={**os.environ, "PORT": str(port)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + START_S
        while not self._listens(port):
            assert self.process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
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


def params(folder: Path, **changes: object) -> None:
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())
    limits = {"start_timeout_s": START_S, "call_timeout_s": CALL_S}
    tree["normalize"] |= {**limits, "min_tools": 2}
    tree["trajectories"] |= {
        **limits,
        "attempts": 1,
        "withhold_rate": 0.0,
        "fault_rate": 0.0,
        "live": "live",
        **changes,
    }
    tree["models"] |= dict.fromkeys(("policy", "emulator", "user"), MODEL)
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))


def asks(server: Server, name: str, n: int, **values: object) -> Task:
    """A task that one call of one tool does."""
    tool = next(one for one in server.tools if one.wire_name == name or one.name == name)
    return Task(
        id=f"task-{server.name}-{n}", server_ids=(server.id,), chain_id=None, origin="server", augmentation="none", quality={},
        question=f"Please {step_text(tool.model_dump(), values)}.", target_tools=(tool.name,),
    )  # fmt: skip


class KilledWhenSeen:
    """Kills a server as soon as a file is there, which a task of another server writes."""

    def __init__(self, file: Path, server: AtAnAddress) -> None:
        self.file, self.server = file, server
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self.over.wait(0.01):
            if self.file.is_file():
                self.server.kill()
                return

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join(15)


def test_six_servers_of_others_are_listed_and_called_in_one_run_and_one_that_is_killed_in_it_harms_no_other(
    tmp_path, monkeypatch, node_servers
):
    files = tmp_path / "files"
    files.mkdir()
    (files / "tide.txt").write_text("high at nine")
    subprocess.run(["git", "init", "-q", str(files)], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_TEST_KEY", "a-key-for-nobody")
    params(tmp_path)
    folder = tmp_path / "data/raw/tools"
    folder.mkdir(parents=True)
    entries = {
        "git": {"command": "python", "args": ["-m", "mcp_server_git"]},
        "time": {"command": "python", "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
        "everything": node_servers["everything"],
        "filesystem": with_arguments(node_servers["filesystem"], str(files)),
        "memory": {**node_servers["memory"], "env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}},
        "killed": {
            "command": "timeout",
            "args": ["-s", "KILL", "0.05", node_servers["everything"]["command"], *node_servers["everything"]["args"]],
        },
    }
    (folder / "live.notes.yaml").write_text(
        yaml.safe_dump({name: {"deterministic_tools": "all"} for name in (*entries, "remote")})
    )
    with AtAnAddress(node_servers["everything"]) as remote:
        entries["remote"] = {"url": remote.url, "headers": {"Authorization": "Bearer ${ASTRA_TEST_KEY}"}}
        (folder / "live.mcp.json").write_text(json.dumps({"mcpServers": entries}))
        normalize.main()
        servers = {one.name: one for one in read_records(normalize.CONTRACT.writes["servers"], Server)}
        assert {name: len(one.tools) for name, one in servers.items()} == {
            "git": 12, "time": 2, "everything": 13, "filesystem": 14, "memory": 9, "remote": 13,
        }  # fmt: skip
        (reject,) = read_records(normalize.CONTRACT.rejects, Reject)
        assert (reject.id.partition("#")[2], reject.reason) == ("killed", "live_server_failed")
        assert "MCP server killed died with exit code" in reject.detail
        assert "a-key-for-nobody" not in Path(normalize.CONTRACT.writes["servers"]).read_text()
        signal_file = files / "now.txt"
        tasks = [
            asks(servers["remote"], "echo", 0, message="ahoy"),
            asks(servers["git"], "git_status", 0, repo_path=str(files)),
            asks(servers["time"], "convert_time", 0, source_timezone="UTC", time="09:00", target_timezone="Asia/Tokyo"),
            asks(servers["memory"], "search_nodes", 0, query="tide"),
            asks(servers["filesystem"], "write_file", 0, path=str(signal_file), content="now"),
            asks(servers["everything"], "trigger-long-running-operation", 0, duration=1, steps=1),  # until it is killed
            asks(servers["remote"], "echo", 1, message="ahoy again"),
            asks(servers["remote"], "get-sum", 2, a=1, b=2),
            asks(servers["everything"], "echo", 1, message="ahoy"),
            asks(servers["filesystem"], "read_text_file", 1, path=str(files / "tide.txt")),
            asks(servers["memory"], "search_nodes", 1, query="ebb"),
            asks(servers["time"], "convert_time", 1, source_timezone="UTC", time="10:00", target_timezone="Asia/Tokyo"),
            asks(servers["git"], "git_log", 1, repo_path=str(files)),
        ]  # fmt: skip
        write_records(trajectories.CONTRACT.reads["tasks"], tasks)
        params(tmp_path, concurrency=1)
        with KilledWhenSeen(signal_file, remote):
            trajectories.main()
    made = {one.task_id: one for one in read_records(trajectories.CONTRACT.writes["trajectories"], Trajectory)}
    lost = list(read_records(trajectories.CONTRACT.rejects, Reject))
    assert [(one.id, one.reason) for one in lost] == [
        ("task-remote-1:0", "tool_infra_error"), ("task-remote-2:0", "tool_infra_error"),
    ]  # fmt: skip
    assert all("MCP server remote at http://127.0.0.1:" in one.detail for one in lost)
    assert set(made) == {one.id for one in tasks} - {"task-remote-1", "task-remote-2"}
    said = {name: [one for one in trajectory.messages if one.role == "tool"] for name, trajectory in made.items()}
    assert {one.executed_by for answers in said.values() for one in answers} == {"live"}
    for name, text in {
        "remote-0": "ahoy",
        "time-1": "19:00",
        "filesystem-1": "high at nine",
        "everything-1": "ahoy",
    }.items():
        assert text in (said[f"task-{name}"][0].content or "")
    assert "a-key-for-nobody" not in Path(trajectories.CONTRACT.writes["trajectories"]).read_text()
