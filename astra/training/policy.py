"""The policy: a tiny Qwen3 that is made here from a shape, or any causal model by name; and where its weights lie."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from pydantic import Field
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from astra.chat import Chat
from astra.records import Section

logging.disable_progress_bar()  # of loading and writing weights


class Shape(Section):
    """A tiny Qwen3 with tied embeddings, trained from random weights."""

    width: int = Field(ge=16, description="Hidden width.")
    layers: int = Field(ge=1, description="Decoder layers.")
    heads: int = Field(ge=1, description="Attention heads.")
    kv_heads: int = Field(ge=1, description="Key-value heads; divides heads.")
    head_dim: int = Field(ge=8, description="Width of a head; vLLM's CPU kernels need at least 32.")
    feed_forward: int = Field(ge=16, description="Inner width of the feed-forward layers.")
    pieces: int = Field(ge=260, description="Vocabulary that the run's texts are split into, names and marks apart.")
    positions: int = Field(ge=128, description="Longest conversation in tokens.")
    embedding_std: float = Field(gt=0, description="Spread of the (tied) token embeddings at the start.")


BUILTIN = "builtin"


class Policy(Section):
    """What is trained."""

    model: str = Field(description="builtin, or a causal language model: a hub id or a folder.")
    threads: int = Field(ge=1, description="CPU threads of torch: fixed, since the order of sums depends on it.")
    shape: Shape = Field(description="Of the built-in policy; not read for another model.")

    @property
    def is_pretrained(self) -> bool:
        return self.model != BUILTIN


def new_policy(shape: Shape, chat: Chat, seed: int) -> PreTrainedModel:
    """A policy with random weights for this chat's vocabulary.

    Tied embeddings start far wider than usual (std 0.1, not 0.02): a name is copied by its embedding, and a rare one
    would need many updates only to grow a logit that can win.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=-(-len(chat.tokenizer) // 64) * 64,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        pad_token_id=chat.pad,
        bos_token_id=None,
        eos_token_id=chat.end,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(shape.embedding_std / config.initializer_range)
    return cast("PreTrainedModel", model)


def load_policy(name: Path | str) -> PreTrainedModel:
    """The weights of a folder or a hub model, in float32 on a CPU and bfloat16 on a GPU."""
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return cast("PreTrainedModel", AutoModelForCausalLM.from_pretrained(str(name), dtype=dtype))


def copy_policy(name: str, chat: Chat, folder: Path) -> None:
    """A pretrained policy as it is, in its own number format, with the tokenizer and template that we train it with."""
    model = AutoModelForCausalLM.from_pretrained(name, dtype="auto")
    save_policy(cast("PreTrainedModel", model), chat, folder)


def save_policy(model: PreTrainedModel, chat: Chat, folder: Path) -> None:
    """Weights, tokenizer and template in one folder that transformers and vLLM can load."""
    model.save_pretrained(str(folder))
    chat.save(folder)
