"""Memory and time of training by size: a model of both, its table for 14B and 32B, and measurements to hold it against.

    python -m bench.scaling                                      # the table of docs/scaling.md
    python -m bench.scaling measure --base FOLDER --tokens 4096   # one training run here, measured beside predicted
    python -m bench.scaling policy --shape 0.6B --out FOLDER     # random weights, the tokenizer of models/base

``measure`` trains for real with ``astra.training.imitation.train``; under ``accelerate launch`` it does so sharded.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

GIB = 2**30
BF16, FP32 = 2, 4


@dataclass(frozen=True)
class Shape:
    """A Qwen3 dense model."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    tied: bool = False

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        attention = self.width * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.width * self.feed_forward + 2 * self.width + 2 * self.head_dim

    @property
    def parameters(self) -> int:
        return self.layers * self.layer + (1 if self.tied else 2) * self.vocabulary * self.width + self.width


SHAPES = {
    "tiny": Shape(3, 128, 4, 2, 32, 256, 1024, tied=True),
    "0.6B": Shape(28, 1024, 16, 8, 128, 3072, 151_936, tied=True),
    "1.7B": Shape(28, 2048, 16, 8, 128, 6144, 151_936, tied=True),
    "8B": Shape(36, 4096, 32, 8, 128, 12_288, 151_936),
    "14B": Shape(40, 5120, 40, 8, 128, 17_408, 151_936),
    "32B": Shape(64, 5120, 64, 8, 128, 25_600, 151_936),
}


@dataclass(frozen=True)
class Setting:
    """One way to train: how often weights and conversations are cut, and what is recomputed or moved away."""

    gpus: int = 1
    sharded: bool = False  # ZeRO-3; else float32 weights with bfloat16 arithmetic
    sequence_parallel: int = 1
    checkpointing: bool = True
    offload_optimiser: bool = False
    half: bool = True  # bfloat16 arithmetic


def states(shape: Shape, how: Setting) -> float:
    """Bytes a GPU of weights, gradients and AdamW's two moments."""
    if not how.sharded:
        return shape.parameters * 4 * FP32
    share = shape.parameters / how.gpus
    optimiser = 0 if how.offload_optimiser else 3 * FP32  # a float32 copy and two moments
    gathered = 2 * shape.layer * BF16 + shape.vocabulary * shape.width * BF16  # a layer, the next one, the head
    return share * ((BF16 if how.half else FP32) * 2 + optimiser) + gathered


def activations(shape: Shape, tokens: int, how: Setting) -> float:
    """Bytes a GPU of one conversation of that many tokens (padding included), without the vocabulary's logits.

    With checkpointing each layer keeps its input, and one layer at a time is computed again with all that it keeps.
    """
    here = tokens / how.sequence_parallel
    number = BF16 if how.half else FP32
    kept = layer_activations(shape, number) * here
    if not how.checkpointing:
        return shape.layers * kept
    return shape.layers * here * shape.width * number + kept


def layer_activations(shape: Shape, number: int) -> float:
    """Bytes a token that one layer keeps for its backward pass, attention without its score matrix."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    norms = 2 * 2 * shape.width * FP32 + 2 * (queries + keys) * FP32  # computed in float32: input and result
    attention = (2 * shape.width + 4 * queries + 4 * keys) * number
    gate = (shape.width + 4 * shape.feed_forward) * number
    return norms + attention + gate


def head(shape: Shape, tokens: int, how: Setting, chunk: int = 256) -> float:
    """Bytes of the vocabulary's logits: TRL projects a chunk of positions at a time, in float32."""
    return 3 * min(chunk, tokens / how.sequence_parallel) * shape.vocabulary * FP32


def memory(shape: Shape, tokens: int, how: Setting) -> float:
    """Peak bytes of a GPU."""
    return states(shape, how) + activations(shape, tokens, how) + head(shape, tokens, how)


def flops(shape: Shape, tokens: int, checkpointing: bool) -> float:
    """Arithmetic of one conversation, forward and backward; a third of the forward's again with checkpointing."""
    passes = 4 if checkpointing else 3
    matrices = 2 * (shape.layers * shape.layer + shape.vocabulary * shape.width) * tokens
    attention = 2 * shape.layers * shape.heads * shape.head_dim * tokens * tokens  # causal: half of 4 T^2 d
    return passes * (matrices + attention)


def seconds(shape: Shape, tokens: int, conversations: int, how: Setting, tflops: float) -> float:
    """One update over that many conversations, at ``tflops`` that a GPU really reaches."""
    return conversations * flops(shape, tokens, how.checkpointing) / (how.gpus * tflops * 1e12)


ROWS = [
    ("14B", "sft", 20_480, 32, Setting(8, sharded=True)),
    ("14B", "sft", 20_480, 32, Setting(8, sharded=True, sequence_parallel=2)),
    ("14B", "sft", 75_776, 32, Setting(8, sharded=True)),
    ("14B", "sft", 75_776, 32, Setting(8, sharded=True, sequence_parallel=4)),
    ("14B", "rl", 75_776, 256, Setting(16, sharded=True)),
    ("14B", "rl", 75_776, 256, Setting(32, sharded=True)),
    ("32B", "sft", 20_480, 32, Setting(8, sharded=True)),
    ("32B", "sft", 20_480, 32, Setting(16, sharded=True, sequence_parallel=4)),
    ("32B", "sft", 75_776, 32, Setting(16, sharded=True, sequence_parallel=8)),
    ("32B", "rl", 75_776, 256, Setting(32, sharded=True)),
    ("32B", "rl", 75_776, 256, Setting(64, sharded=True)),
    ("32B", "rl", 32_768, 256, Setting(32, sharded=True)),
]


def table(card_gib: float, tflops: float, reserve: float = 0.1) -> str:
    """What fits a card of that size, a share of it kept for fragments and communication."""
    lines = [
        "| model | stage | tokens | GPUs | sequence parallel | weights and optimiser | activations | head | all | "
        f"fits {card_gib:.0f} GiB | update |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, stage, tokens, conversations, how in ROWS:
        shape = SHAPES[name]
        parts = (states(shape, how), activations(shape, tokens, how), head(shape, tokens, how))
        need = sum(parts) / GIB
        fits = "yes" if need <= card_gib * (1 - reserve) else "**no**"
        took = seconds(shape, tokens, conversations, how, tflops)
        cells = [name, stage, f"{tokens:,}", how.gpus, how.sequence_parallel, *(f"{part / GIB:.1f}" for part in parts)]
        lines.append(f"| {' | '.join(map(str, cells))} | {need:.1f} | {fits} | {took:,.0f} s |")
    return "\n".join(lines)


def policy(name: str, like: str, out: Path) -> None:
    """A policy of that shape with random weights, with the tokenizer and template of another folder."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    shape = SHAPES[name]
    tokenizer = AutoTokenizer.from_pretrained(like)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64, hidden_size=shape.width, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
        intermediate_size=shape.feed_forward, max_position_embeddings=131_072, tie_word_embeddings=shape.tied,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None, eos_token_id=tokenizer.eos_token_id, dtype="bfloat16",
    ))  # fmt: skip
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def measure(base: str, tokens: int, updates: int) -> dict[str, float | int | str]:
    """Train for a few updates of one conversation; peak bytes and seconds beside what the model says."""
    import torch
    from transformers import AutoConfig, TrainerCallback

    from astra.chat import Chat, Encoded
    from astra.training import imitation
    from astra.training.launch import sequence_parallel, under_deepspeed, world_size

    chat = Chat.load(base)
    config = AutoConfig.from_pretrained(base)
    shape = Shape(
        config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.num_key_value_heads,
        config.head_dim, config.intermediate_size, config.vocab_size, tied=config.tie_word_embeddings,
    )  # fmt: skip
    gpu = torch.cuda.is_available()
    ranks = world_size() // sequence_parallel()
    # never the padding token: its embedding is zero, and at the first position a norm of zero in every layer multiplies
    # the gradient a thousandfold each, to infinity
    words = [one for one in range(len(chat.tokenizer)) if one != chat.tokenizer.pad_token_id]
    ids = [words[(place * 7919) % len(words)] for place in range(tokens)]
    rows = [Encoded(ids, [place % 4 == 1 for place in range(tokens)])] * (ranks * updates)  # type: ignore[list-item]
    schedule = imitation.Schedule(
        epochs=1, batch=ranks, micro_batch=1, optimiser="adamw", lr=1e-5, muon_lr=0.02, weight_decay=0.0,
        warmup_steps=0, decay="cosine", decay_share=1.0, short_first=0.0,
    )  # fmt: skip
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            if gpu:
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    if gpu:
        torch.cuda.reset_peak_memory_stats()
    regime = imitation.Regime(watchers=(Clock(),))
    with tempfile.TemporaryDirectory() as scratch:
        imitation.train(Path(base), chat, imitation.as_dataset(rows), schedule, Path(scratch), 0, regime)
    how = Setting(
        gpus=world_size(), sharded=under_deepspeed(), sequence_parallel=sequence_parallel(), checkpointing=gpu, half=gpu
    )
    steps = [after - before for before, after in pairwise(ends)]
    took = sorted(steps)[len(steps) // 2]
    work = ranks * flops(shape, tokens, how.checkpointing)
    return {
        "parameters": shape.parameters,
        "tokens": tokens,
        "ranks": world_size(),
        "sharded": str(how.sharded),
        "peak_gib": round(torch.cuda.max_memory_allocated() / GIB, 3) if gpu else 0.0,
        "predicted_gib": round(memory(shape, tokens, how) / GIB, 3),
        "predicted_states_gib": round(states(shape, how) / GIB, 3),
        "predicted_activations_gib": round(activations(shape, tokens, how) / GIB, 3),
        "step_s": round(took, 4),
        "tokens_a_second": round(ranks * tokens / took),
        "tflops_a_gpu": round(work / took / how.gpus / 1e12, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("table", "measure", "policy"), default="table")
    parser.add_argument("--shape", choices=SHAPES, default="0.6B")
    parser.add_argument("--base", help="measure: a folder that policy made")
    parser.add_argument("--like", default="models/base")
    parser.add_argument("--out", type=Path, default=Path("models/made-up"))
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096])
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--card-gib", type=float, default=80)
    parser.add_argument("--tflops", type=float, default=350)
    given = parser.parse_args()
    if given.what == "policy":
        policy(given.shape, given.like, given.out)
    elif given.what == "measure":
        for tokens in given.tokens:
            found = measure(given.base or str(given.out), tokens, given.updates)
            if os.environ.get("RANK", "0") == "0":
                print(json.dumps(found), flush=True)
    else:
        print(table(given.card_gib, given.tflops))


if __name__ == "__main__":
    main()
