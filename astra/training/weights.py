"""Weights on their way through training: loaded to be trained, adapted, gathered from all ranks, written in 16 bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import Field
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from astra.records import Section
from astra.stage import StageError
from astra.training.launch import under_deepspeed

ADAPTER = "adapter_model.safetensors"


class Lora(Section):
    """Low-rank adapters on all linear layers, merged into the weights that are saved."""

    rank: int = Field(ge=0, description="Rank of the adapters; 0 trains all weights.")
    alpha: int = Field(gt=0, description="Scale: an adapter's output is multiplied by alpha / rank.")


def trainable_policy(name: Path | str) -> PreTrainedModel:
    """Weights to train: float32, for which the trainer computes in bfloat16 where it can.

    A step of 5e-6 is lost between two bfloat16 numbers of a weight's size, so an optimiser needs float32 weights.
    DeepSpeed keeps such copies itself, sharded, and wants bfloat16 on a GPU.
    """
    sharded = under_deepspeed() and torch.cuda.is_available()
    dtype = torch.bfloat16 if sharded else torch.float32
    return cast("PreTrainedModel", AutoModelForCausalLM.from_pretrained(str(name), dtype=dtype))


def with_adapters(model: PreTrainedModel, lora: Lora) -> PreTrainedModel:
    """The model with low-rank adapters on all its linear layers but the head; only they are trained."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    # ZeRO-3 gathers parameters of one number format only
    return cast("PreTrainedModel", get_peft_model(model, config, autocast_adapter_dtype=not under_deepspeed()))


def save_trained(trainer: Any, folder: Path, base: Path | str) -> None:
    """Write what was trained, whole, in the number format of ``base``; adapters alone where there are some.

    Every rank calls this: sharded weights are gathered. Rank 0 writes.
    """
    whole = trainer.accelerator.get_state_dict(trainer.model_wrapped)  # collective
    if not trainer.accelerator.is_main_process:
        return
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    if hasattr(model, "peft_config"):
        model.save_pretrained(str(folder), state_dict=whole)
        return
    dtype = number_format(base)
    # ZeRO-2 hands over a tied head as a tensor of its own
    tied = set(model._tied_weights_keys or ()) if model.config.get_text_config().tie_word_embeddings else set()
    weights = {name: value.to("cpu", dtype) for name, value in whole.items() if name not in tied}
    model.save_pretrained(str(folder), state_dict=weights)
    written = folder / "config.json"
    config = json.loads(written.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    written.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def number_format(name: Path | str) -> torch.dtype:
    """What the weights of a folder or hub model are stored as."""
    found = AutoConfig.from_pretrained(str(name)).dtype
    return found if isinstance(found, torch.dtype) else torch.float32


def merge_adapters(base: Path | str, adapters: Path, folder: Path) -> None:
    """Write the base model with adapters added into its weights, so that it loads everywhere."""
    from peft import PeftModel

    dtype = number_format(base)
    model = AutoModelForCausalLM.from_pretrained(str(base), dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, str(adapters)).merge_and_unload()
    merged.to(dtype).save_pretrained(str(folder))


def refuse_mixed_packs(model: PreTrainedModel) -> None:
    """Raises StageError for a model in which conversations laid end to end see one another.

    Whether they do depends on the attention kernels that are installed and on the architecture, so it is tried: a
    conversation's outputs must not change with what lies before it.
    """
    device = next(model.parameters()).device
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.arange(16, device=device) % vocabulary
    other = (ids + 7) % vocabulary
    places = torch.arange(8, device=device).repeat(2)[None]
    bounds = torch.tensor([0, 8, 16], dtype=torch.int32, device=device)
    marks = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": 8, "max_length_k": 8}
    was_training = model.training
    model.eval()
    with torch.no_grad():
        seconds = []
        for first in (ids[:8], other[:8]):
            packed = torch.cat([first, ids[8:]])[None]
            out = model(input_ids=packed, position_ids=places, use_cache=False, **marks).logits
            seconds.append(out[0, 8:].float())
    model.train(was_training)
    apart = float((seconds[0] - seconds[1]).abs().max())
    if apart > 1e-3 * float(seconds[0].abs().max()):
        raise StageError(
            f"params.yaml: sft.packing: with this model's attention ({model.config._attn_implementation}) packed "
            f"conversations see each other (outputs differ by {apart:.3g}); install flash-attn or set packing: false"
        )
