"""Supervised fine-tuning on token arrays, with TRL's SFTTrainer as it is (paper section 3.2)."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from datasets import Dataset, Features, List, Value
from pydantic import Field, model_validator
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from astra.chat import Chat, Encoded
from astra.records import Section
from astra.stage import StageError
from astra.training.launch import is_main, sequence_parallel, under_deepspeed, world_size
from astra.training.lm_head import IGNORED, score_labelled_positions
from astra.training.optimiser import build_muon
from astra.training.progress import Bar
from astra.training.weights import Lora, refuse_mixed_packs, trainable_policy, with_adapters

WHOLE = "whole"  # a file in a checkpoint that was written to its end


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


class Checkpoints(Section):
    """What a killed run goes on from, and which state of the weights is kept in the end."""

    every: int = Field(ge=0, description="Updates between checkpoints; 0 makes none, and a killed run begins anew.")
    keep: int = Field(ge=2, description="Newest checkpoints that are kept; the best one is kept beside them.")
    heldout: float = Field(
        ge=0,
        lt=0.5,
        description="Share of questions kept from training; the checkpoint of the lowest loss on them wins.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> Checkpoints:
        if self.heldout and not self.every:
            raise ValueError("heldout needs checkpoints to choose from: set every, or heldout: 0")
        return self


class Regime(NamedTuple):
    """How imitation is kept safe and made cheap. The defaults are plain training to the last update."""

    checkpoints: Checkpoints | None = None
    lora: Lora | None = None
    packing: bool = False
    folder: Path | None = None  # of checkpoints; a scratch folder without
    watchers: tuple[TrainerCallback, ...] = ()


class Imitated(NamedTuple):
    """What a run did: logged losses, losses on held-out rows, and the update whose weights were kept."""

    losses: list[dict[str, float]]
    heldout: list[dict[str, float]]
    kept: int
    trainer: SFTTrainer


def as_dataset(rows: Iterable[Encoded]) -> Dataset:
    """Rows as TRL's collator wants them: ids and labels."""

    def made() -> Iterator[dict[str, list[int]]]:
        for row in rows:
            yield {"input_ids": row.ids, "labels": _labels(row)}

    kinds = Features({"input_ids": List(Value("int32")), "labels": List(Value("int32"))})
    return Dataset.from_list(list(made()), features=kinds)


def imitate(
    model: PreTrainedModel, chat: Chat, rows: Sequence[Encoded], schedule: Schedule, scratch: Path, seed: int
) -> list[dict[str, float]]:
    """Train ``model`` in place; the logged losses as ``{"step", "loss"}``. Raises LossInvalid."""
    return train(model, chat, as_dataset(rows), schedule, scratch, seed).losses


def train(
    model: PreTrainedModel | Path,
    chat: Chat,
    rows: Dataset,
    schedule: Schedule,
    scratch: Path,
    seed: int,
    regime: Regime = Regime(),  # noqa: B008 - immutable
    heldout: Dataset | None = None,
) -> Imitated:
    """Train a model in place, or one loaded from a folder; every rank of a launch calls this.

    Goes on from the last whole checkpoint in the regime's folder. Raises LossInvalid, StageError.
    """
    sequence = order([len(ids) for ids in rows["input_ids"]], schedule, random.Random(f"{seed}:sft"))
    n_updates = len(sequence) // schedule.batch
    folder = regime.folder or scratch
    config = _config(schedule, n_updates, folder, seed, regime, heldout is not None)
    # after the config, which tells DeepSpeed that weights are to be sharded as they are loaded
    policy = trainable_policy(model) if isinstance(model, Path) else model
    if regime.packing:
        refuse_mixed_packs(policy)
    adapted = with_adapters(policy, regime.lora) if regime.lora and regime.lora.rank else policy
    # the trainer's own AdamW otherwise: under DeepSpeed it drops an optimizer that it is given, without a word
    own = (
        build_muon(adapted, schedule.lr, schedule.muon_lr, schedule.weight_decay)
        if schedule.optimiser == "muon"
        else None
    )
    trainer = SFTTrainer(
        adapted,
        args=config,
        train_dataset=rows.select(sequence),
        eval_dataset=heldout,
        processing_class=chat.tokenizer,
        optimizers=(own, None),
        callbacks=[_Watch(n_updates, heldout is not None), Bar("sft", "loss"), *regime.watchers],
    )
    trainer.remove_callback(PrinterCallback)  # the stage says how it went, in one line
    score_labelled_positions(trainer.model.get_base_model() if hasattr(trainer.model, "peft_config") else trainer.model)
    trainer.train(resume_from_checkpoint=last_whole(folder))
    logged = [one for one in trainer.state.log_history if "loss" in one]
    evaluated = [one for one in trainer.state.log_history if "eval_loss" in one]
    return Imitated(
        losses=[{"step": int(one["step"]), "loss": float(one["loss"])} for one in logged],
        heldout=[{"step": int(one["step"]), "loss": float(one["eval_loss"])} for one in evaluated],
        kept=int(trainer.state.best_global_step or n_updates) if evaluated else n_updates,
        trainer=trainer,
    )


def _config(schedule: Schedule, n_updates: int, folder: Path, seed: int, regime: Regime, validates: bool) -> SFTConfig:
    micro, accumulate = _shares(schedule)
    every = regime.checkpoints.every if regime.checkpoints else 0
    warmup = min(schedule.warmup_steps, n_updates // 4)
    saving = {
        "save_strategy": "steps",
        "save_steps": every,
        "save_total_limit": regime.checkpoints.keep if regime.checkpoints else None,
    }
    validating = {
        "eval_strategy": "steps",
        "eval_steps": every,
        "per_device_eval_batch_size": micro,
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        "greater_is_better": False,
    }
    return SFTConfig(
        output_dir=str(folder),
        max_steps=n_updates,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulate,
        train_sampling_strategy="sequential",
        optim="adamw_torch",
        learning_rate=schedule.lr,
        weight_decay=schedule.weight_decay,
        adam_beta1=0.9,
        adam_beta2=0.95,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={
            "num_decay_steps": max(1, min(math.ceil(n_updates * schedule.decay_share), n_updates - warmup)),
            "decay_type": schedule.decay,
            "min_lr_ratio": 0.02,
        },
        warmup_steps=warmup,
        max_length=None,
        packing=False,
        padding_free=regime.packing,
        pad_to_multiple_of=sequence_parallel(),
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_steps=_log_every(n_updates, every),
        **(saving if every else {"save_strategy": "no"}),
        **(validating if validates else {}),
        **_common(seed),
    )


def _shares(schedule: Schedule) -> tuple[int, int]:
    """Conversations a forward pass of one rank, and forward passes an update. Raises StageError."""
    if schedule.optimiser == "muon" and under_deepspeed():
        raise StageError(
            "params.yaml: sft.schedule.optimiser: muon works on whole matrices, and DeepSpeed cuts them up; take "
            "adamw, or launcher.sft.kind torchrun"
        )
    ranks = world_size() // sequence_parallel()
    micro = min(schedule.micro_batch, max(1, schedule.batch // ranks))
    if schedule.batch % (micro * ranks):
        raise StageError(
            f"params.yaml: sft.schedule.batch: {schedule.batch} conversations cannot be dealt out evenly to {ranks} "
            f"ranks by {micro}; choose batch, micro_batch and launcher.sft so that micro_batch times ranks divides it"
        )
    return micro, schedule.batch // (micro * ranks)


def _log_every(n_updates: int, every: int) -> int:
    """At most 10 updates; a divisor of the checkpoints' distance, so that a continued run logs the same means."""
    wanted = max(1, min(10, n_updates // 20))
    return next(step for step in range(wanted, 0, -1) if not every or every % step == 0)


class _Watch(TrainerCallback):  # type: ignore[misc]
    """Stops at a loss that is no loss, measures the last update too, and marks checkpoints that are whole."""

    def __init__(self, n_updates: int, validates: bool) -> None:
        self.n_updates = n_updates
        self.validates = validates

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and (not math.isfinite(loss) or loss == 0.0):
            raise LossInvalid(
                f"the loss at update {state.global_step} of {self.n_updates} is {loss}: at 0 no token of the batch is "
                "trained (masks, max_length), at nan or inf lower schedule.lr and schedule.muon_lr"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.validates and state.global_step >= self.n_updates:
            control.should_evaluate = control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if state.is_world_process_zero:
            (Path(args.output_dir) / f"checkpoint-{state.global_step}" / WHOLE).touch()


def last_whole(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end; what a kill left half written is removed."""
    found = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for step in sorted(found, reverse=True):
        if (found[step] / WHOLE).is_file():
            return str(found[step])
        if is_main():
            shutil.rmtree(found[step])
    return None


def _labels(row: Encoded) -> list[int]:
    return [token if trained else IGNORED for token, trained in zip(row.ids, row.mask, strict=True)]


def _common(seed: int) -> dict[str, Any]:
    gpu = torch.cuda.is_available()
    return {
        "use_cpu": not gpu,
        "bf16": gpu,
        "gradient_checkpointing": gpu,
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "seed": seed,
        "remove_unused_columns": True,
        "average_tokens_across_devices": True,
        "ddp_timeout": 7200,
    }
