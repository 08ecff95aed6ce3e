"""Rollouts on vLLM inside the training process, on the training GPU (TRL's ``vllm_mode="colocate"``).

TRL builds the engine and loads the trainer's weights into it before each update; this class hands it batches of turns.
For one rank: rollouts are made on rank 0 alone, and vLLM's tensor parallel ranks would have to step together. Several
ranks take a server.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from astra.training.rollouts import EngineMissing, Played, Respond, Sampling, Turn


class ColocatedEngine:
    """Plays on the ``vllm.LLM`` of a TRL trainer, all live episodes turn by turn."""

    corrects = True

    def __init__(self, end: int, memory_share: float, max_length: int) -> None:
        """Raises EngineMissing."""
        if importlib.util.find_spec("vllm") is None:
            raise EngineMissing(
                "rl.vllm.place: colocate needs vLLM in this environment (pip install -e .[vllm], on a machine with a "
                "GPU); or set rl.engine: hf"
            )
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise EngineMissing("rl.vllm.place: colocate is for one rank; several take place: server")
        self.end = end
        self.memory_share = memory_share
        self.max_length = max_length
        self.llm: Any = None

    def settings(self) -> dict[str, Any]:
        return {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": self.memory_share,
            "vllm_max_model_length": self.max_length,
        }

    def sync(self, trainer: Any) -> None:
        """TRL has loaded the weights already."""
        self.llm = trainer.vllm_generation.llm

    def play(self, prompts: Sequence[Sequence[int]], respond: Respond, sampling: Sampling) -> list[Played]:
        from vllm import SamplingParams  # type: ignore[import-not-found, unused-ignore]

        episodes = [Played() for _ in prompts]
        live = list(range(len(prompts)))
        turn = 0
        while live:
            asked = [{"prompt_token_ids": [*prompts[one], *episodes[one].ids]} for one in live]
            hows = [
                SamplingParams(
                    max_tokens=min(sampling.max_new_tokens, sampling.max_response_tokens - len(episodes[one].ids)),
                    temperature=sampling.temperature,
                    seed=(sampling.seed + 1_000_003 * one + turn) % 2**62,
                    logprobs=0,
                    stop_token_ids=[self.end],
                    detokenize=False,
                )
                for one in live
            ]
            replies = [found.outputs[0] for found in self.llm.generate(asked, sampling_params=hows, use_tqdm=False)]
            for one, reply in zip(live, replies, strict=True):
                ids = list(reply.token_ids)
                scores = [place[token].logprob for place, token in zip(reply.logprobs, ids, strict=True)]
                episodes[one].take(ids, scores)
            live = self._going_on(live, [list(reply.token_ids) for reply in replies], episodes, respond, sampling)
            turn += 1
        return episodes

    def _going_on(
        self, live: list[int], replies: list[list[int]], episodes: list[Played], respond: Respond, sampling: Sampling
    ) -> list[int]:
        """Hand finished replies over, all at once; the episodes that go on."""
        whole = [(one, ids) for one, ids in zip(live, replies, strict=True) if ids and ids[-1] == self.end]
        going = []
        for (one, _), answer in zip(whole, respond([Turn(one, ids) for one, ids in whole]), strict=True):
            if isinstance(answer, str):
                episodes[one].stop = answer
            elif len(episodes[one].ids) + len(answer) < sampling.max_response_tokens:
                episodes[one].force(answer)
                going.append(one)
        return going
