"""The test server speaks chat completions, answers each body always the same, and its faults are what their names say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.openai_server import FAULTS, ROOT, Plan, Serving

PROMPT = '# Score: TCS\n\n## Input\n```json\n{"a": 1}\n```\n'
TOOL = {
    "type": "function",
    "function": {
        "name": "river_mouth",
        "description": "Mouth of a river.",
        "parameters": {"type": "object", "properties": {"river": {"type": "string"}}, "required": ["river"]},
    },
}


def body(text: str = "What is the mouth of river Axe?", seed: int = 1, **more: Any) -> dict[str, Any]:
    plain = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 64}
    return {**plain, "seed": seed, "tools": [TOOL], **more}


def post(server: Serving, asked: dict[str, Any], key: str = "k", timeout: float = 5) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.post(f"{server.url}/chat/completions", json=asked, headers=headers, timeout=timeout)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("server") / "log.jsonl") as running:
        yield running


@pytest.fixture
def faulty(tmp_path):
    opened: list[Serving] = []

    def start(*faults: str, **more: Any) -> Serving:
        plan = {"seed": 1, "rate": 1.0, "faults": list(faults), "hang_s": 0.3, **more.pop("plan", {})}
        opened.append(Serving(tmp_path / f"log{len(opened)}.jsonl", plan, **more).__enter__())
        return opened[-1]

    yield start
    for one in opened:
        one.__exit__(None, None, None)


def test_a_turn_with_tools_comes_back_in_openai_form(server):
    reply = post(server, body()).json()
    call = reply["choices"][0]["message"]["tool_calls"][0]
    assert reply["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == {"river": "Axe"}
    assert reply["usage"]["prompt_tokens"] > 0


def test_the_whole_conversation_is_read(server):
    call = {"id": "c1", "type": "function", "function": {"name": "river_mouth", "arguments": '{"river": "Axe"}'}}
    said = [
        {"role": "user", "content": "What is the mouth of river Axe?"},
        {"role": "assistant", "content": "", "reasoning_content": "Look it up.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "river_mouth", "content": '{"result": "Seaton"}'},
    ]
    message = post(server, {**body(), "messages": said}).json()["choices"][0]["message"]
    assert "Seaton" in message["content"]
    assert not message.get("tool_calls")


def test_the_same_body_has_the_same_reply_and_one_line_each_in_the_log(server):
    before = len(server.entries())
    assert post(server, body(seed=5)).content == post(server, body(seed=5)).content
    first, second = server.entries()[before:]
    assert first.digest == second.digest
    assert first.answered
    assert first.arrived <= first.written <= second.arrived


def test_a_body_that_is_no_request_is_a_400_that_says_why(server):
    assert post(server, {"model": "m"}).status_code == 400
    assert "messages" in post(server, {"model": "m"}).json()["error"]["message"]
    assert "no rule" in post(server, {**body(PROMPT.replace("TCS", "nothing")), "tools": []}).json()["error"]["message"]


def test_models_are_listed_and_other_paths_are_not_there(server):
    assert httpx2.get(f"{server.url}/models").json()["data"]
    assert httpx2.get(f"{server.url}/other").status_code == 404


@pytest.mark.parametrize(
    ("name", "status"),
    [("429_seconds", 429), ("429_date", 429), ("500", 500), ("502_html", 502), ("503_no_header", 503),
     ("200_error_body", 200), ("empty_choices", 200), ("usage_missing", 200), ("usage_nonsense", 200)],
)  # fmt: skip
def test_a_fault_comes_once_and_then_the_right_reply(faulty, server, name, status):
    running = faulty(name)
    first, second = post(running, body()), post(running, body())
    right = post(server, body()).json()
    assert first.status_code == status
    assert first.content != second.content
    assert second.json() == right
    assert [one.fault for one in running.entries()] == [name, None]
    if name.startswith("usage"):
        assert first.json()["choices"] == right["choices"]
        assert running.answered().total() == 2


@pytest.mark.parametrize("name", ["reset", "cut_body", "hang"])
def test_a_broken_connection_is_an_error_of_the_client_and_no_answer(faulty, name):
    running = faulty(name)
    with pytest.raises(httpx2.TransportError):
        post(running, body())
    assert post(running, body()).status_code == 200
    assert [one.answered for one in running.entries()] == [False, True]


def test_a_client_that_does_not_wait_gets_no_answer(faulty):
    running = faulty("hang", plan={"hang_s": 30})
    with pytest.raises(httpx2.TimeoutException):
        post(running, body(), timeout=0.2)
    deadline = time.monotonic() + 5
    while not running.entries() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running.entries()[0].written - running.entries()[0].arrived < 5


def test_a_cut_prompt_is_a_wrong_reply_with_few_tokens_and_only_of_a_long_prompt(faulty):
    running = faulty("prompt_truncated")
    assert post(running, body()).json()["usage"]["prompt_tokens"] != 64
    long = body("What is the mouth of river Axe? " + "Take your time. " * 400)
    first, second = post(running, long).json(), post(running, long).json()
    assert first["usage"]["prompt_tokens"] == 64
    assert second["usage"]["prompt_tokens"] > 1000
    assert first["choices"] != second["choices"]


def test_only_the_listed_response_formats_are_taken(faulty):
    running = faulty(plan={"response_formats": ["json_object"]})
    schema = {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}}}
    assert "response_format" in post(running, body(response_format=schema)).json()["error"]["message"]
    assert post(running, body(response_format={"type": "json_object"})).status_code == 200


def test_several_faults_of_one_body_come_one_after_the_other():
    plan = Plan(seed=3, rate=1.0, faults=("500", "reset", "hang", "429_date"), most=3)
    drawn = [[plan.fault(f"{n}", attempt) for attempt in range(4)] for n in range(40)]
    assert {sum(one is not None for one in faults) for faults in drawn} == {1, 2, 3}
    assert drawn == [[plan.fault(f"{n}", attempt) for attempt in range(4)] for n in range(40)]
    assert 5 < sum(Plan(seed=3, rate=0.3, faults=("500",)).fault(f"{n}", 0) is not None for n in range(40)) < 20


def test_an_unknown_fault_is_refused_by_name(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text('{"faults": ["gremlins"]}')
    with pytest.raises(SystemExit, match="gremlins.*there are: 429_seconds"):
        Plan.read(file)
    assert len(FAULTS) == 14


def test_more_than_the_slots_are_pushed_back(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with Serving(tmp_path / "log.jsonl", slots=2, latency_ms=300) as running, ThreadPoolExecutor(5) as threads:
        replies = list(threads.map(lambda seed: post(running, body(seed=seed)), range(5)))
    assert sorted(one.status_code for one in replies) == [200, 200, 429, 429, 429]
    assert {one.headers.get("retry-after") for one in replies} == {None, "1"}
    assert {one.fault for one in running.entries()} == {None, "slots"}


def test_a_wrong_key_is_a_401(tmp_path):
    with Serving(tmp_path / "log.jsonl", {"echo_key": True}, key="sk-right-1") as running:
        assert post(running, body(), key="sk-wrong-1").status_code == 401
        assert "sk-wrong-1" in post(running, body(), key="sk-wrong-1").text
        assert "sk-right-1" in post(running, body(), key="sk-right-1").json()["choices"][0]["message"]["content"]


def test_it_dies_after_so_many_answers(tmp_path):
    with Serving(tmp_path / "log.jsonl", die_after=2) as running:
        assert [post(running, body(seed=seed)).status_code for seed in range(2)] == [200, 200]
        assert running.process is not None
        assert running.process.wait(5) == 1


@pytest.mark.parametrize("how", ["stdin", "lifetime"])
def test_it_ends_with_its_parent_or_its_lifetime(tmp_path, how):
    command = [sys.executable, "-m", "tests.openai_server", "--log", str(tmp_path / "log")]
    command += ["--lifetime-s", "0.3" if how == "lifetime" else "60"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        if how == "stdin":
            assert process.stdin is not None
            process.stdin.close()
        assert process.wait(10) == 0


def test_echo_mode_gives_a_fixed_reply_after_the_latency(tmp_path):
    with Serving(tmp_path / "log.jsonl", echo=True, latency_ms=100) as running:
        begun = time.monotonic()
        assert post(running, body()).content == post(running, body(seed=2)).content
        assert time.monotonic() - begun >= 0.2
