"""Supervised fine-tuning on token arrays, with TRL's SFTTrainer as it is (paper section 3.2)."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset
from pydantic import Field
from transformers import PreTrainedModel, PrinterCallback
from trl import SFTConfig, SFTTrainer

from astra.chat import Chat, Encoded
from astra.records import Section
from astra.training.lm_head import IGNORED, score_labelled_positions
from astra.training.optimiser import build_optimiser


class LossInvalid(Exception):
    """The loss is zero or no number: nothing is trained, or it has blown up. The message says what to look at."""


class Schedule(Section):
    """How long, how fast, and in which order a model imitates."""

    epochs: float = Field(gt=0, description="Passes over the training rows (paper: 2).")
    batch: int = Field(ge=1, description="Conversations an update (paper: 32).")
    micro_batch: int = Field(ge=1, description="Conversations a forward pass, per process; gradients are accumulated.")
    optimiser: Literal["muon", "adamw"] = Field(description="muon for the tiny policy, adamw for pretrained models.")
    lr: float = Field(gt=0, description="Peak AdamW learning rate (paper: 5e-6 for 14B).")
    muon_lr: float = Field(gt=0, description="Peak Muon learning rate; only read with optimiser muon.")
    weight_decay: float = Field(ge=0, description="Decoupled weight decay.")
    warmup_steps: int = Field(ge=0, description="Updates of linear warm-up.")
    decay: Literal["cosine", "linear"] = Field(description="Shape of the learning rate's fall (paper: cosine).")
    decay_share: float = Field(gt=0, le=1, description="Last share of updates in which the learning rate falls.")
    short_first: float = Field(ge=0, lt=1, description="First share of updates that see only the shortest third.")


def order(lengths: Sequence[int], schedule: Schedule, rng: random.Random) -> list[int]:
    """Row numbers in training order: whole batches of like lengths, shuffled; the shortest third comes first.

    The order is fixed here and the trainer reads it in sequence, so that one process and two see the same batches.
    """
    n_updates = max(1, round(len(lengths) * schedule.epochs / schedule.batch))
    n_short = int(n_updates * schedule.short_first)
    by_length = sorted(range(len(lengths)), key=lambda row: lengths[row])
    short = by_length[: max(schedule.batch, len(lengths) // 3)]
    rows: list[int] = []
    while len(rows) < n_short * schedule.batch:
        rows += _batches(short, lengths, schedule.batch, rng)
    del rows[n_short * schedule.batch :]
    while len(rows) < n_updates * schedule.batch:
        rows += _batches(by_length, lengths, schedule.batch, rng)
    return rows[: n_updates * schedule.batch]


def _batches(rows: Sequence[int], lengths: Sequence[int], batch: int, rng: random.Random) -> list[int]:
    """All rows once, in batches of like length: sorted within windows of 16 batches, batches shuffled."""
    shuffled = list(rows)
    rng.shuffle(shuffled)
    window = 16 * batch
    batches: list[list[int]] = []
    for start in range(0, len(shuffled), window):
        alike = sorted(shuffled[start : start + window], key=lambda row: lengths[row])
        batches += [alike[cut : cut + batch] for cut in range(0, len(alike), batch)]
    rng.shuffle(batches)
    return [row for one in batches for row in one]


def imitate(
    model: PreTrainedModel, chat: Chat, rows: Sequence[Encoded], schedule: Schedule, scratch: Path, seed: int
) -> list[dict[str, float]]:
    """Train ``model`` in place; the logged losses as ``{"step", "loss"}``. Raises LossInvalid."""
    sequence = order([len(row.ids) for row in rows], schedule, random.Random(f"{seed}:sft"))
    dataset = Dataset.from_dict(
        {
            "input_ids": [rows[place].ids for place in sequence],
            "labels": [_labels(rows[place]) for place in sequence],
        }
    )
    n_updates = len(sequence) // schedule.batch
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    micro = min(schedule.micro_batch, schedule.batch // n_processes)
    accumulate = schedule.batch // (micro * n_processes)
    config = SFTConfig(
        output_dir=str(scratch),
        max_steps=n_updates,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulate,
        train_sampling_strategy="sequential",
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={
            "num_decay_steps": max(1, math.ceil(n_updates * schedule.decay_share)),
            "decay_type": schedule.decay,
            "min_lr_ratio": 0.02,
        },
        warmup_steps=min(schedule.warmup_steps, n_updates // 4),
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_steps=max(1, min(10, n_updates // 20)),
        **_common(seed),
    )
    trainer = SFTTrainer(
        model,
        args=config,
        train_dataset=dataset,
        processing_class=chat.tokenizer,
        optimizers=(
            build_optimiser(model, schedule.optimiser, schedule.lr, schedule.muon_lr, schedule.weight_decay),
            None,
        ),
    )
    trainer.remove_callback(PrinterCallback)  # the stage says how it went, in one line
    score_labelled_positions(trainer.model)
    trainer.train()
    logged = [one for one in trainer.state.log_history if "loss" in one]
    losses = [{"step": int(one["step"]), "loss": float(one["loss"])} for one in logged]
    for one in losses:
        if not math.isfinite(one["loss"]) or one["loss"] == 0.0:
            raise LossInvalid(
                f"the loss at update {one['step']:.0f} of {n_updates} is {one['loss']}: at 0 no token of the batch is "
                "trained (masks, max_length), at nan or inf lower schedule.lr and schedule.muon_lr"
            )
    return losses


def _labels(row: Encoded) -> list[int]:
    return [token if trained else IGNORED for token, trained in zip(row.ids, row.mask, strict=True)]


def _common(seed: int) -> dict[str, Any]:
    import torch

    gpu = torch.cuda.is_available()
    return {
        "use_cpu": not gpu,
        "bf16": gpu,
        "gradient_checkpointing": gpu,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "seed": seed,
        "remove_unused_columns": True,
        "average_tokens_across_devices": True,
    }
