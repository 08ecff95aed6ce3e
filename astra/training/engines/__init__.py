"""The engines that play rollouts, behind one interface (``astra/training/rollouts.py``).

- ``hf``: a replica of the policy in this process; CPU, one GPU, tests.
- ``vllm``, in a server of its own: over HTTP, weights by TRL's NCCL broadcast or through a folder that both can read.
- ``vllm``, colocated: in the training process, on the training GPU.

Only params choose: the trainer, the loop, the filling and the masks are the same code for all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from pydantic import Field

from astra.chat import Chat
from astra.records import Section
from astra.training.engines.colocated import ColocatedEngine
from astra.training.engines.hf import HFEngine
from astra.training.engines.vllm import Server, VLLMEngine
from astra.training.policy import load_policy
from astra.training.rollouts import Engine

EngineName = Literal["hf", "vllm"]


class Serving(Section):
    """How vLLM is used; not read with engine hf. The server's address: ASTRA_ROLLOUT_BASE_URL in the environment."""

    place: Literal["server", "colocate"] = Field(
        description="A server of its own, or vLLM in the training process (one rank, one GPU)."
    )
    sync: Literal["folder", "nccl"] = Field(
        description="How a server gets weights: by a folder that both see (one GPU, CPU-only trainers), or TRL's NCCL."
    )
    exchange: str = Field(description="That folder, e.g. in /dev/shm; only read with sync folder.")
    concurrency: int = Field(ge=1, description="Episodes in flight, each on the next free sandbox.")
    timeout_s: float = Field(gt=0, description="One request, all its tokens included.")
    attempts: int = Field(ge=1, description="Tries at one request before its episode is taken out.")
    memory_share: float = Field(gt=0, lt=1, description="Share of the GPU that colocated vLLM takes.")
    max_length: int = Field(ge=64, description="Longest prompt and response in tokens, of colocated vLLM.")
    max_gap: float = Field(
        gt=0,
        description="Mean difference of vLLM's and the trainer's log-probabilities over which the stage stops: "
        "then vLLM samples with other weights than are trained.",
    )


def open_engine(name: EngineName, serving: Serving, policy: Path, chat: Chat) -> Engine:
    """The engine that params ask for. Raises EngineMissing where vLLM or its server is not there.

    Call it before GRPOConfig is made: afterwards transformers would build a replica as an empty ZeRO-3 shard.
    """
    if name == "hf":
        replica = load_policy(policy).eval()
        return HFEngine(replica.cuda() if torch.cuda.is_available() else replica, chat.end, chat.pad)
    if serving.place == "colocate":
        return ColocatedEngine(chat.end, serving.memory_share, serving.max_length)
    server = Server.from_environment(serving.timeout_s, serving.attempts)
    return VLLMEngine(server, chat.end, serving.concurrency, serving.sync, Path(serving.exchange))


__all__ = ["ColocatedEngine", "EngineName", "HFEngine", "Serving", "VLLMEngine", "open_engine"]
