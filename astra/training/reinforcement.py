"""GRPO with TRL's trainer as it is, over episodes of our own (paper section 3.4).

TRL does advantages, loss, optimiser and distribution; ``rollout_func`` hands it finished episodes: ids as sampled, a
mask that is 0 on tool results, and the reward. No KL term, no reference model, no entropy bonus; the token losses are
averaged over all tokens of the batch (loss_type dapo). Cases, groups and filling are ours: TRL's own prompts are
placeholders. Rollouts are made on rank 0, on a replica of the weights, and broadcast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is marked experimental; TRL is pinned exactly

import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedModel, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from astra.chat import Chat
from astra.records import Section
from astra.training.filling import Fill, Filler, Play, Scored
from astra.training.lm_head import score_labelled_positions


class Reinforcing(Section):
    """One GRPO run."""

    updates: int = Field(ge=1, description="Optimiser steps.")
    groups: int = Field(ge=1, description="Groups (arenas) an update.")
    group: int = Field(ge=2, description="Rollouts of one arena.")
    micro_batch: int = Field(ge=1, description="Rollouts a forward pass, per process; divides groups times group.")
    lr: float = Field(gt=0, description="Learning rate of AdamW (paper: 2e-6 for 14B and 32B).")
    warmup_steps: int = Field(ge=0, description="Updates of linear warm-up; constant afterwards.")
    temperature: float = Field(gt=0, description="Sampling temperature of rollouts.")
    clip_low: float = Field(gt=0, lt=1, description="Lower clip of the probability ratio.")
    clip_high: float = Field(gt=0, lt=1, description="Upper clip of the probability ratio.")
    scale: Literal["group", "batch", "none"] = Field(description="What rewards' deviations are divided by.")


@dataclass
class Practice:
    """What a run did: one entry an update."""

    fills: list[Fill] = field(default_factory=list)
    log: list[dict[str, float]] = field(default_factory=list)
    updated_tokens: int = 0  # processed by forward and backward passes


def reinforce(
    model: PreTrainedModel,
    replica: PreTrainedModel,
    chat: Chat,
    filler: Filler,
    play: Callable[[int], Play],
    how: Reinforcing,
    max_response_tokens: int,
    scratch: Path,
    seed: int,
) -> Practice:
    """Train ``model`` in place. ``play(update)`` plays cases with ``replica``, given the model's weights first.

    Raises FillingExhausted.
    """
    practice = Practice()
    batch = how.groups * how.group

    def rollout_func(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        accelerator = trainer.accelerator
        weights = accelerator.get_state_dict(trainer.model_wrapped)  # collective
        box: list[Any] = [None]
        if accelerator.is_main_process:
            replica.load_state_dict(weights, strict=False)
            update = len(practice.fills)
            groups, fill = filler.fill(update, play(update))
            practice.fills.append(fill)
            box = [[_row(one) for group in groups for one in group]]
        broadcast_object_list(box, from_process=0)
        start = accelerator.process_index * len(prompts)
        mine = box[0][start : start + len(prompts)]
        practice.updated_tokens += sum(len(row["prompt_ids"]) + len(row["completion_ids"]) for row in box[0])
        return {key: [row[key] for row in mine] for key in mine[0]}

    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    micro = min(how.micro_batch, batch // n_processes)
    gpu = torch.cuda.is_available()
    config = GRPOConfig(
        output_dir=str(scratch),
        max_steps=how.updates,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=batch // (micro * n_processes),
        num_generations=how.group,
        max_completion_length=max_response_tokens,
        temperature=how.temperature,
        learning_rate=how.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=how.warmup_steps,
        beta=0.0,
        loss_type="dapo",
        scale_rewards=how.scale,
        epsilon=how.clip_low,
        epsilon_high=how.clip_high,
        mask_truncated_completions=True,
        weight_decay=0.0,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not gpu,
        bf16=gpu,
        gradient_checkpointing=gpu,
        seed=seed,
        ddp_timeout=7200,
    )
    placeholder = Dataset.from_list([{"prompt": [{"role": "user", "content": "."}]}] * max(batch, 1))
    trainer = GRPOTrainer(
        model,
        reward_funcs=_given_reward,
        args=config,
        train_dataset=placeholder,
        processing_class=chat.tokenizer,
        rollout_func=rollout_func,
    )
    trainer.remove_callback(PrinterCallback)  # the stage says how it went, in one line
    score_labelled_positions(trainer.model, how.temperature)
    trainer.train()
    practice.log = [dict(one) for one in trainer.state.log_history if "loss" in one]
    return practice


def _given_reward(completions: Sequence[Any], reward: Sequence[float], **_: Any) -> list[float]:
    """The reward that came with the episode."""
    return list(reward)


def _row(one: Scored) -> dict[str, Any]:
    played = one.episode.played
    return {
        "prompt_ids": one.episode.prompt,
        "completion_ids": played.ids,
        "logprobs": played.logprobs,
        "env_mask": played.mask,
        "reward": one.reward,
    }
