"""On a CPU: score only the positions that are trained on.

TRL 1.16 gives a model a fused LM head (``add_fused_lm_head``) that, on devices with Triton kernels, projects only the
positions whose label is not -100, and elsewhere every position. For a tiny policy the vocabulary projection is most of
the work, so on a CPU this function replaces that forward by one that projects the labelled positions, with the same
outputs. ``tests/training/test_lm_head.py`` holds it against TRL's own, values and gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel
from trl.trainer.utils import FusedCausalLMOutput

IGNORED = -100


def score_labelled_positions(model: PreTrainedModel, temperature: float = 1.0) -> None:
    """Replace the fused forward of a model that a TRL trainer has prepared. Does nothing on other devices than CPU."""
    if next(model.parameters()).device.type != "cpu":
        return
    fused: Any = model.forward

    def forward(*args: Any, fused_lm_head: bool = False, labels: Any = None, **kwargs: Any) -> Any:
        if not fused_lm_head or labels is None or kwargs.get("shift_labels") is not None:
            if labels is not None:
                kwargs["labels"] = labels
            return fused(*args, fused_lm_head=fused_lm_head, **kwargs)
        n_tokens = kwargs.pop("num_items_in_batch", None)
        kwargs["use_cache"] = False
        hidden = model.base_model(*args, **kwargs).last_hidden_state[:, :-1]  # (B, T-1, D)
        return _score(hidden, labels[:, 1:], model.get_output_embeddings(), temperature, n_tokens)

    model.forward = forward


def _score(
    hidden: torch.Tensor, labels: torch.Tensor, head: Any, temperature: float, n_tokens: Any
) -> FusedCausalLMOutput:
    mask = labels != IGNORED  # (B, T-1)
    logits = head(hidden[mask]).float() / temperature  # (N, V)
    spread = torch.log_softmax(logits, -1)
    chosen = labels[mask]
    log_probs = spread.gather(1, chosen[:, None])[:, 0]
    with torch.no_grad():
        entropy = -(spread.exp() * spread).sum(-1)
        is_top1 = spread.argmax(-1) == chosen

    def back(values: torch.Tensor) -> torch.Tensor:
        # masked_scatter keeps the graph connected when nothing in the batch is labelled
        return values.new_zeros(mask.shape).masked_scatter(mask, values)

    full = back(log_probs)
    count = mask.sum().clamp(min=1) if n_tokens is None else n_tokens
    return FusedCausalLMOutput(
        loss=-full.sum() / count, log_probs=full, entropy=back(entropy), is_top1=back(is_top1), label_mask=mask
    )
