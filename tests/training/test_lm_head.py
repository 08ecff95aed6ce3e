"""Our scoring of labelled positions is TRL's, value for value and gradient for gradient."""

from __future__ import annotations

import copy

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from astra.training.lm_head import score_labelled_positions
from tests.training.tiny import new_chat, new_tiny

OUTPUTS = ("log_probs", "entropy", "is_top1")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_equal_those_of_trl(temperature):
    theirs = new_tiny(new_chat())
    ours = copy.deepcopy(theirs)
    for model in (theirs, ours):
        add_fused_lm_head(model, temperature=temperature, outputs=OUTPUTS)
    score_labelled_positions(ours, temperature)
    ids = torch.randint(0, 200, (3, 20), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[:, :9] = -100
    labels[1, 12:15] = -100
    one, other = (model(input_ids=ids, labels=labels, fused_lm_head=True) for model in (theirs, ours))
    for name in (*OUTPUTS, "label_mask", "loss"):
        torch.testing.assert_close(getattr(other, name), getattr(one, name), check_dtype=name != "is_top1")
    for out in (one, other):
        (-out.log_probs.sum() / 7).backward()
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-4, atol=1e-6)


def test_a_batch_without_a_label_still_has_a_gradient_of_zero():
    model = new_tiny(new_chat())
    add_fused_lm_head(model, outputs=OUTPUTS)
    score_labelled_positions(model)
    ids = torch.ones(1, 5, dtype=torch.long)
    model(input_ids=ids, labels=torch.full_like(ids, -100), fused_lm_head=True).log_probs.sum().backward()
    assert all(param.grad is None or not param.grad.any() for param in model.parameters())


def test_generation_is_unchanged():
    model = new_tiny(new_chat()).eval()
    ids = torch.tensor([[5, 6, 7]])
    before = model(input_ids=ids).logits
    add_fused_lm_head(model)
    score_labelled_positions(model)
    torch.testing.assert_close(model(input_ids=ids).logits, before)
