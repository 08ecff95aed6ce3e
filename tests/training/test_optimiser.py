"""One optimizer for the tiny policy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from astra.training.optimiser import MuonAdamW, build_muon, orthogonal


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(7, 6)
        self.hidden = nn.Linear(6, 4, bias=True)

    def forward(self, ids):
        return self.hidden(self.embed(ids)).square().mean()


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 4, 9), (2, 9, 4)])
def test_newton_schulz_brings_all_singular_values_near_one(shape):
    torch.manual_seed(1)
    values = torch.linalg.svdvals(orthogonal(torch.randn(*shape)))
    assert values.min() > 0.3
    assert values.max() < 1.3


def test_its_adamw_half_is_torch_adamw():
    ours, theirs = Net(), Net()
    params = list(ours.parameters())
    one = MuonAdamW([{"params": params, "kind": "adamw", "lr": 0.01}], weight_decay=0.1)
    other = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(5):
        for net, optimiser in ((ours, one), (theirs, other)):
            optimiser.zero_grad()
            net(torch.tensor([1, 2, 5])).backward()
            optimiser.step()
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its)


def test_hidden_matrices_get_muon_and_everything_else_adamw():
    net = Net()
    optimiser = build_muon(net, 0.004, 0.02, 0.0)
    muon, adamw = optimiser.param_groups
    assert [param is net.hidden.weight for param in muon["params"]] == [True]
    assert {id(param) for param in adamw["params"]} == {id(net.embed.weight), id(net.hidden.bias)}
    assert (muon["lr"], adamw["lr"]) == (0.02, 0.004)


def test_a_muon_step_has_the_learning_rate_as_its_length():
    net = Net()
    before = net.hidden.weight.detach().clone()
    optimiser = build_muon(net, 0.0, 0.02, 0.0)
    net(torch.tensor([1, 2, 5])).backward()
    optimiser.step()
    assert torch.linalg.matrix_norm(net.hidden.weight.detach() - before, 2) == pytest.approx(0.02, rel=0.35)


def test_a_scheduler_moves_every_group():
    optimiser = build_muon(Net(), 0.004, 0.02, 0.0)
    torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 0.5)
    assert [group["lr"] for group in optimiser.param_groups] == [0.01, 0.002]
