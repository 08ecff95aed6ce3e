"""Requests, decoded calls and verdicts of our BFCL adapter are those of the package's own OpenAI handler.

Both play the same cases against one endpoint, each in a process of its own. The handler runs in this environment, with
stand-ins for what it lacks; with everything real where an environment is named that has it:

    python -m venv V && V/bin/pip install openai requests tenacity overrides tqdm python-dotenv mpmath filelock \
        tree_sitter==0.21.3 tree-sitter-java==0.21.0 tree-sitter-javascript==0.21.4
    ASTRA_BFCL_PYTHON=V/bin/python pytest -m slow tests/benchmarks/test_bfcl_conformance.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from astra.benchmarks.registry import BFCL_CATEGORIES
from astra.benchmarks.types import Ask, Reply
from tests.benchmarks import bfcl_models as models
from tests.benchmarks.wheels import environments

PYTHON = os.environ.get("ASTRA_BFCL_PYTHON", sys.executable)
HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# model -> how it is made from a case's answers, and how many cases of a category it plays
MODELS: dict[str, tuple[Callable[[list[list[str]]], models.Model], int]] = {
    "oracle": (models.oracle, 60),
    "one_by_one": (models.one_by_one, 20),
    "wrong_arguments": (lambda turns: models.oracle(turns, models.wrong_arguments), 60),
    "odd_calls": (lambda turns: models.ODD_CALLS, 20),
    "unknown_tool": (lambda turns: models.UNKNOWN_TOOL, 10),
    "bad_json": (lambda turns: models.BAD_JSON, 10),
    "text_only": (lambda turns: models.text_only, 10),
    "silent": (lambda turns: models.silent, 5),
    "for_ever": (lambda turns: models.for_ever, 2),
}


class Endpoint:
    """Chat completions on a loopback socket: answers by ``model`` and keeps what it was sent."""

    def __init__(self) -> None:
        self.model: models.Model = models.text_only
        self.bodies: list[dict[str, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.bodies.append(body)
                reply = endpoint.model(Ask(messages=body["messages"], tools=body["tools"]))
                said = json.dumps(completion(reply)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"


def completion(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in reply.tool_calls
        ]
    choice = {"index": 0, "finish_reason": reply.stop, "message": message}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


@contextmanager
def served() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    thread = threading.Thread(target=endpoint.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.server.shutdown()
        thread.join()
        endpoint.server.server_close()


@contextmanager
def player(python: str, script: str, version: str, endpoint: Endpoint) -> Iterator[Callable[[str], dict[str, Any]]]:
    """A process that plays a case against the endpoint and says what came of it."""
    folder = environments(models.ENVIRONMENT[version]) / models.ENVIRONMENT[version]
    command = [python, "-B", str(HERE / script), str(folder), version, endpoint.url]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT) if python == sys.executable else "", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def play(case: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # of a process that ended, which writes no line either
            process.stdin.write(json.dumps({"case": case}) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"{script} ended over {case}; run it by hand: {' '.join(command)}"
        found: dict[str, Any] = json.loads(line)
        return found

    try:
        yield play
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait(30)


def compared(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: body[key] for key in ("messages", "tools")} for body in bodies]


def compare(version: str, category: str, names: dict[str, int]) -> int:
    """Play so many cases with each model, ours and theirs: how many were the same, which is all of them."""
    folder = environments(models.ENVIRONMENT[version])
    answers = models.answers(folder, version, category)
    n_same = 0
    with (
        served() as endpoint,
        player(sys.executable, "bfcl_ours.py", version, endpoint) as ours,
        player(PYTHON, "bfcl_handler.py", version, endpoint) as theirs,
    ):
        for name, n_cases in names.items():
            for case in list(answers)[:: max(1, len(answers) // n_cases)][:n_cases]:
                outcomes = []
                for play in (ours, theirs):
                    endpoint.model, endpoint.bodies = MODELS[name][0](answers[case]), []
                    outcomes.append((play(case), compared(endpoint.bodies)))
                assert outcomes[0][0] == outcomes[1][0], f"{version} {name} {case}: calls or verdict"
                assert outcomes[0][1] == outcomes[1][1], f"{version} {name} {case}: requests"
                n_same += 1
    return n_same


@pytest.mark.parametrize(("version", "category"), [("v4", "multi_turn_miss_func"), ("v3", "multi_turn_miss_func")])
def test_a_slice_is_played_as_the_packages_own_handler_plays_it(version, category):
    names = {"oracle": 4, "wrong_arguments": 2, "odd_calls": 2, "bad_json": 1, "text_only": 1, "for_ever": 1}
    assert compare(version, category, names) == sum(names.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes where it has a core for itself
@pytest.mark.parametrize("version", ["v4", "v3"])
@pytest.mark.parametrize("category", BFCL_CATEGORIES)
def test_requests_calls_and_verdicts_are_those_of_the_packages_own_handler(version, category):
    names = {name: n_cases for name, (_, n_cases) in MODELS.items()}
    assert compare(version, category, names) == sum(names.values()) >= 60
