"""Rollouts on a vLLM server: token ids in and out over /v1/completions, every episode on its own.

    VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model models/sft
        --logprobs-mode processed_logprobs    (one command)

Weights reach the server in one of two ways. ``nccl`` is TRL's own (``vllm_mode="server"``): its trainer broadcasts them
before each update; the server runs on other GPUs than the trainer. ``folder`` writes them where both can read them and
has the server load them in place (``reload_weights``): slower, but it works where two processes share one GPU, on which
NCCL refuses to build a group. vLLM's CPU build answers a reload as if it had worked and samples with wrong weights
(seen with 0.32), so it is refused, and on every machine the log-probabilities are compared after each update
(``rl.vllm.max_gap``).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import urllib3

from astra.training.rollouts import EngineLost, EngineMissing, Played, Respond, Sampling, Turn

ADDRESS, KEY = "ASTRA_ROLLOUT_BASE_URL", "ASTRA_ROLLOUT_API_KEY"
PAUSE_S = 0.5  # before the second try, twice as long before each further one
REMEDY = (
    "Start one: VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model models/sft "
    f"--logprobs-mode processed_logprobs, and export {ADDRESS}=http://HOST:PORT/v1; or set rl.engine: hf"
)


class Reply(NamedTuple):
    """A turn's ids, as sampled, and their log-probabilities."""

    ids: list[int]
    logprobs: list[float]


@dataclass
class Server:
    """One vLLM server and what is asked of it. ``root`` is its address without /v1."""

    root: str
    timeout_s: float
    attempts: int
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        # the tries are ours: they are counted, and end with a message
        self._client = urllib3.PoolManager(maxsize=1024, headers=headers, timeout=self.timeout_s, retries=False)
        self.model = ""

    @classmethod
    def from_environment(cls, timeout_s: float, attempts: int) -> Server:
        """The server that the environment names. Raises EngineMissing."""
        address = os.environ.get(ADDRESS, "").strip().rstrip("/")
        if not address.startswith(("http://", "https://")):
            raise EngineMissing(f"rl.engine: vllm needs a vLLM server, and {ADDRESS} is {address!r}. {REMEDY}")
        return cls(address.removesuffix("/v1"), timeout_s, attempts, os.environ.get(KEY, "").strip())

    def check(self, temperature: float) -> None:
        """See that the server is there and scores as it samples. Raises EngineMissing."""
        try:
            self.model = str(self._get("/v1/models")["data"][0]["id"])
        except (urllib3.exceptions.HTTPError, ValueError, LookupError, TypeError) as error:
            raise EngineMissing(f"{self.root}: no vLLM server answers there ({error}). {REMEDY}") from None
        mode = self.setting("model_config", "logprobs_mode")
        if temperature != 1 and mode != "processed_logprobs":
            raise EngineMissing(
                f"{self.root}: log-probabilities would be those of temperature 1, not of rl.grpo.temperature "
                f"{temperature} (logprobs mode: {mode or 'unknown'}); start the server with VLLM_SERVER_DEV_MODE=1 and "
                "--logprobs-mode processed_logprobs"
            )

    def setting(self, section: str, name: str) -> str | None:
        """One of the server's settings, where it tells (VLLM_SERVER_DEV_MODE=1)."""
        try:
            return str(self._get("/server_info?config_format=json")["vllm_config"][section][name])
        except (urllib3.exceptions.HTTPError, ValueError, LookupError, TypeError):
            return None

    def _get(self, path: str) -> Any:
        """Raises ValueError for an answer that is no success or no JSON."""
        answer = self._client.request("GET", self.root + path)
        if answer.status != 200:
            raise ValueError(f"HTTP {answer.status}")
        return answer.json()

    def complete(self, prompt: Sequence[int], max_tokens: int, temperature: float, seed: int, end: int) -> Reply:
        """One reply to these ids. Raises EngineLost, or EngineMissing where the set-up is at fault."""
        body = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": 1.0,
            "top_k": 0,
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
            "stop_token_ids": [end],
            "skip_special_tokens": False,
        }
        choice = self.post("/v1/completions", body)["choices"][0]
        ids, scored = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
        if ids is None or scored is None or len(ids) != len(scored) or None in scored:
            raise EngineMissing(
                f"{self.root}: the reply has no token ids with log-probabilities; replies are never tokenised again, "
                "so this server cannot be used. vLLM gives both from 0.10 on (return_token_ids)"
            )
        return Reply([int(token) for token in ids], [float(one) for one in scored])

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to a request that is tried several times. Raises EngineLost, or EngineMissing for a refusal."""
        last = ""
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                answer = self._client.request("POST", self.root + path, json=body)
            except urllib3.exceptions.HTTPError as error:
                last = f"{type(error).__name__}: {error}"
                continue
            if answer.status < 300:
                return json.loads(answer.data) if answer.data else None
            last = f"HTTP {answer.status}: {answer.data[:300].decode(errors='replace')}"
            if answer.status < 500 and answer.status not in (408, 429):
                raise EngineMissing(f"{self.root}{path}: {last}. {self._remedy(answer.status, path)}")
        raise EngineLost(f"{self.root}{path}: {last}, after {self.attempts} tries")

    @staticmethod
    def _remedy(status: int, path: str) -> str:
        if path == "/v1/completions":
            return "Raise the server's --max-model-len, or lower rl.limits"
        return "Start the server with VLLM_SERVER_DEV_MODE=1" if status == 404 else "See the server's log"


class VLLMEngine:
    """Plays on a vLLM server, ``concurrency`` episodes side by side."""

    corrects = True

    def __init__(
        self, server: Server, end: int, concurrency: int, sync: Literal["folder", "nccl"], exchange: Path
    ) -> None:
        self.server = server
        self.end = end
        self.how = sync
        self.exchange = exchange
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="rollout")

    def settings(self) -> dict[str, Any]:
        if self.how == "folder":
            return {}
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": self.server.root}

    def sync(self, trainer: Any) -> None:
        """With nccl TRL has broadcast the weights already."""
        if self.how == "nccl":
            return
        accelerator = trainer.accelerator
        weights = accelerator.get_state_dict(trainer.model_wrapped)  # collective
        if not accelerator.is_main_process:
            return
        if "cpu" in (accelerator.device.type, self.server.setting("device_config", "device_type")):
            raise EngineMissing(
                "rl.engine: vllm cannot be trained with on a CPU: vLLM's CPU build packs its weights once and samples "
                "wrongly after a reload. Set rl.engine: hf"
            )
        folder = self.exchange / f"step-{trainer.state.global_step}"
        model = accelerator.unwrap_model(trainer.model)
        weights = {name: one.to(torch_dtype(model)) for name, one in weights.items()}
        model.save_pretrained(str(folder), state_dict=weights)
        self.server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        self.server.post("/reset_prefix_cache", {})
        shutil.rmtree(folder)

    def play(self, prompts: Sequence[Sequence[int]], respond: Respond, sampling: Sampling) -> list[Played]:
        if not self.server.model:
            self.server.check(sampling.temperature)
        playing = [
            self._threads.submit(self._one, number, prompt, respond, sampling) for number, prompt in enumerate(prompts)
        ]
        return [one.result() for one in playing]

    def _one(self, number: int, prompt: Sequence[int], respond: Respond, sampling: Sampling) -> Played:
        """One episode, turn after turn."""
        played = Played()
        turn = 0
        while True:
            room = sampling.max_response_tokens - len(played.ids)
            seed = (sampling.seed + 1_000_003 * number + turn) % 2**62
            try:
                reply = self.server.complete(
                    [*prompt, *played.ids], min(room, sampling.max_new_tokens), sampling.temperature, seed, self.end
                )
            except EngineLost as error:
                played.stop, played.failure = "failed", str(error)
                return played
            turn += 1
            played.take(reply.ids, reply.logprobs)
            if go_on(played, number, reply.ids, self.end, respond, sampling):
                continue
            return played


def go_on(played: Played, number: int, ids: list[int], end: int, respond: Respond, sampling: Sampling) -> bool:
    """Hand a reply over and append what it is answered; False where the episode is over."""
    if not ids or ids[-1] != end:  # a cut reply is not parsed
        return False
    (answer,) = respond([Turn(number, ids)])
    if isinstance(answer, str):
        played.stop = answer
        return False
    if len(played.ids) + len(answer) >= sampling.max_response_tokens:
        return False
    played.force(answer)
    return True


def torch_dtype(model: Any) -> Any:
    """The precision that the policy computes in: its weights may be kept in a wider one."""
    import torch

    return torch.bfloat16 if model.device.type == "cuda" else model.dtype
