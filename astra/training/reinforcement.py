"""GRPO with TRL's trainer as it is, over episodes of our own (paper section 3.4).

TRL does advantages, loss, optimiser and distribution; ``rollout_func`` hands it finished episodes: ids as sampled, a
mask that is 0 on tool results, and the reward. No KL term, no reference model, no entropy bonus; the token losses are
averaged over all tokens of the batch (loss_type dapo). Cases, groups and filling are ours: TRL's own prompts are
placeholders. Rollouts are made on rank 0 and broadcast.

Left out of the loss and its denominator, by a mask of zeros: episodes in which the machinery failed (they have no
reward either, and are no part of their group's mean and spread), episodes that were cut (their reward counts in the
group), and all of a group whose rewards do not differ. Their advantage is 0 anyway, but for float noise. An update with
nothing to train on moves no weight.

Where the engine's log-probabilities may differ from the trainer's (vLLM), TRL's truncated importance sampling weighs
the tokens, and the difference is watched: a large one means that the engine samples with other weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is marked experimental; TRL is pinned exactly

import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from astra.chat import Chat
from astra.records import Section, Unavailable
from astra.training.checkpoints import OURS, drop_cut_short, newest, read_pickle, write_pickle
from astra.training.filling import Fill, Filler, FillingExhausted, Play, Scored
from astra.training.lm_head import score_labelled_positions
from astra.training.progress import Bar
from astra.training.rollouts import Engine, EngineMissing
from astra.training.weights import trainable_policy


class Reinforcing(Section):
    """One GRPO run."""

    updates: int = Field(ge=1, description="Optimiser steps.")
    groups: int = Field(ge=1, description="Groups (arenas) an update.")
    group: int = Field(ge=2, description="Rollouts of one arena.")
    micro_batch: int = Field(ge=1, description="Rollouts a forward pass, per process; divides groups times group.")
    lr: float = Field(gt=0, description="Learning rate of AdamW (paper: 2e-6 for 14B and 32B).")
    warmup_steps: int = Field(ge=0, description="Updates of linear warm-up.")
    decay_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of updates, the last ones, in which the rate falls to 0, the warm-up apart (paper: 0).",
    )
    temperature: float = Field(gt=0, description="Sampling temperature of rollouts.")
    clip_low: float = Field(gt=0, lt=1, description="Lower clip of the probability ratio.")
    clip_high: float = Field(gt=0, lt=1, description="Upper clip of the probability ratio.")
    scale: Literal["group", "batch", "none"] = Field(description="What rewards' deviations are divided by.")
    checkpoint_every: int = Field(ge=0, description="Updates between checkpoints; 0 makes none.")


GAP = "sampling/sampling_logp_difference/mean"  # TRL's name for it


@dataclass
class Practice:
    """What a run did: one entry an update."""

    fills: list[Fill] = field(default_factory=list)  # without their episodes: ``note`` has seen them
    rows: list[dict[str, float]] = field(default_factory=list)
    log: list[dict[str, float]] = field(default_factory=list)
    updated_tokens: int = 0  # processed by forward and backward passes
    rows_trained: int = 0  # of this rank, since it was started
    rows_drifted: int = 0  # of them, with ids that no rollout had
    skipping: bool = False  # whether nothing of the update under way is trained on

    @property
    def rounds(self) -> int:
        """Samplings so far; what the next one's seed depends on."""
        return sum(fill.rounds for fill in self.fills)

    def state(self) -> dict[str, Any]:
        return {"fills": self.fills, "rows": self.rows, "updated_tokens": self.updated_tokens}

    def restore(self, state: dict[str, Any]) -> None:
        self.fills, self.rows, self.updated_tokens = state["fills"], state["rows"], state["updated_tokens"]


@dataclass
class Player:
    """What happens on rank 0 for one update: cases are drawn, played and noted.

    ``play(update, rounds)`` plays cases with the engine's weights, ``rounds`` samplings having been made before;
    ``note`` sees all episodes of an update once, in order, and gives its row of the curve.
    """

    filler: Filler
    play: Callable[[int, int], Play]
    note: Callable[[Fill], dict[str, float]]
    practice: Practice

    def batch(self) -> list[dict[str, Any]]:
        """The next update's episodes, as TRL takes them."""
        update = len(self.practice.fills)
        chosen, fill = self.filler.fill(update, self.play(update, self.practice.rounds))
        self.practice.rows.append(self.note(fill))
        fill.episodes = []
        self.practice.fills.append(fill)
        return [_row(one, group.counts) for group in chosen for one in group.group]


def reinforce(
    model: PreTrainedModel | Path,
    engine: Engine,
    chat: Chat,
    player: Player,
    how: Reinforcing,
    max_response_tokens: int,
    folder: Path,
    seed: int,
    max_gap: float = 1.0,
) -> GRPOTrainer:
    """Train a model, or the one in a folder, going on from the newest checkpoint in ``folder``.

    What was done is the player's practice. The trainer knows how to gather weights that ranks share (``save_trained``).
    Raises FillingExhausted, and Unavailable where the machinery failed, on every rank alike.
    """
    practice = player.practice

    def rollout_func(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        accelerator = trainer.accelerator
        engine.sync(trainer)
        box: list[Any] = [None]
        if accelerator.is_main_process:
            try:
                box = [player.batch()]
            except (FillingExhausted, Unavailable) as error:
                box = [error]  # the other ranks wait for it
        broadcast_object_list(box, from_process=0)
        if isinstance(box[0], Exception):
            raise box[0]
        start = accelerator.process_index * len(prompts)
        mine = box[0][start : start + len(prompts)]
        sampled.clear()
        sampled.update((*row["prompt_ids"], *row["completion_ids"]) for row in mine)
        practice.skipping = not any(any(row["env_mask"]) for row in box[0])
        practice.updated_tokens += sum(len(row["prompt_ids"]) + len(row["completion_ids"]) for row in box[0])
        return {key: [row[key] for row in mine] for key in mine[0]}

    batch = how.groups * how.group
    config = _config(how, max_response_tokens, folder, seed, engine.settings())
    # after the config, which tells DeepSpeed that weights are to be sharded as they are loaded
    trainer = GRPOTrainer(
        trainable_policy(model) if isinstance(model, Path) else model,
        reward_funcs=_given_reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "."}]}] * batch),
        processing_class=chat.tokenizer,
        rollout_func=rollout_func,
        callbacks=[_Watch(player, max_gap), Bar("rl", "loss", "reward")],
    )
    trainer.remove_callback(PrinterCallback)  # the stage says how it went, in one line
    if engine.corrects and not trainer.use_vllm:
        _correct(trainer)
    sampled: set[tuple[int, ...]] = set()
    _compare_ids(trainer, practice, sampled)
    score_labelled_positions(trainer.model, how.temperature)
    trainer.train(resume_from_checkpoint=_go_on(folder, player, trainer.accelerator))
    practice.log = [dict(one) for one in trainer.state.log_history if "loss" in one]
    return trainer


def _config(how: Reinforcing, max_response_tokens: int, folder: Path, seed: int, engine: dict[str, Any]) -> GRPOConfig:
    """TRL's settings for this run."""
    batch = how.groups * how.group
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    micro = min(how.micro_batch, batch // n_processes)
    gpu = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=how.updates,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=batch // (micro * n_processes),
        num_generations=how.group,
        max_completion_length=max_response_tokens,
        temperature=how.temperature,
        learning_rate=how.lr,
        **_rate(how),
        warmup_steps=how.warmup_steps,
        beta=0.0,
        loss_type="dapo",
        scale_rewards=how.scale,
        epsilon=how.clip_low,
        epsilon_high=how.clip_high,
        mask_truncated_completions=False,  # by our own mask, which knows why an episode ended
        weight_decay=0.0,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        logging_steps=1,
        save_strategy="steps" if how.checkpoint_every else "no",
        save_steps=how.checkpoint_every or 1,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=not gpu,
        bf16=gpu,
        gradient_checkpointing=gpu,
        seed=seed,
        ddp_timeout=7200,
        **engine,
    )


def _rate(how: Reinforcing) -> dict[str, Any]:
    """How the learning rate goes on behind the warm-up."""
    n_decay = min(round(how.updates * how.decay_share), how.updates - how.warmup_steps)
    if n_decay <= 0:
        return {"lr_scheduler_type": "constant_with_warmup"}
    return {
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {"num_decay_steps": n_decay, "decay_type": "linear", "min_lr_ratio": 0.0},
    }


class _Watch(TrainerCallback):  # type: ignore[misc]
    """Writes our part of a checkpoint last, and stops where the engine does not sample with the trained weights."""

    def __init__(self, player: Player, max_gap: float) -> None:
        self.player = player
        self.max_gap = max_gap

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            ours = {"filler": self.player.filler.state(), "practice": self.player.practice.state()}
            write_pickle(Path(args.output_dir) / f"checkpoint-{state.global_step}" / OURS, ours)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        if self.player.practice.skipping and optimizer is not None:
            optimizer.zero_grad(
                set_to_none=True
            )  # a gradient of zero would still step, by what is left of earlier ones

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        gap = (logs or {}).get(GAP, 0.0)
        if not gap <= self.max_gap:  # nan too
            raise EngineMissing(
                f"update {state.global_step}: the engine's log-probabilities differ from the trainer's by {gap:.3f} in "
                f"the mean, more than rl.vllm.max_gap {self.max_gap}: it samples with other weights, at another "
                "temperature, or in a precision too coarse. See the server's log for the reload of weights"
            )


def _go_on(folder: Path, player: Player, accelerator: Any) -> str | None:
    """The checkpoint to go on from, our part of it restored; the same on every rank."""
    checkpoint = newest(folder)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        drop_cut_short(folder)
    accelerator.wait_for_everyone()
    if checkpoint is None:
        return None
    ours = read_pickle(checkpoint / OURS)
    player.filler.restore(ours["filler"])
    player.practice.restore(ours["practice"])
    return str(checkpoint)


def _compare_ids(trainer: Any, practice: Practice, sampled: set[tuple[int, ...]]) -> None:
    """Have every row that enters the loss looked up among the ids as sampled, which the log-probabilities belong to."""
    compute = trainer.compute_loss

    @wraps(compute)
    def checked(model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1).bool()
        rows = [tuple(row[mask].tolist()) for row, mask in zip(ids, real, strict=True)]
        practice.rows_trained += len(rows)
        practice.rows_drifted += sum(row not in sampled for row in rows)
        return compute(model, inputs, *rest, **more)

    trainer.compute_loss = checked


def _correct(trainer: Any) -> None:
    """Have TRL weigh tokens as it does with a vLLM of its own; ours has its weights already."""
    trainer.use_vllm = True
    trainer.vllm_mode = "server"
    trainer.vllm_generation = _Synced()
    trainer._last_loaded_step = -1


class _Synced:
    """A generation of TRL's whose weights were brought by our engine."""

    def sync_weights(self) -> None:
        """Done before each update."""


def _given_reward(completions: Sequence[Any], reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward that came with the episode."""
    return list(reward)


def _row(one: Scored, counts: bool) -> dict[str, Any]:
    """An episode for TRL; a mask of zeros where nothing of it is trained on."""
    played = one.episode.played
    trained = counts and one.reward is not None and played.stop != "truncated"
    return {
        "prompt_ids": one.episode.prompt,
        "completion_ids": played.ids or one.episode.prompt[-1:],  # TRL takes no empty completion
        "logprobs": played.logprobs or [0.0],
        "env_mask": (played.mask if trained else [0] * len(played.mask)) or [0],
        "reward": one.reward,
    }
