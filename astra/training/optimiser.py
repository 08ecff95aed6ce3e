"""The optimisers of sft and rl: AdamW, or Muon for weight matrices with AdamW for the rest, as one torch optimizer.

Muon (Jordan et al. 2024) replaces a matrix's momentum by the nearest semi-orthogonal matrix, found by a few
Newton-Schulz iterations. torch.optim.Muon iterates in bfloat16: on a CPU without bfloat16 arithmetic a step of it took
0.6 s, twice the forward pass; in float32 it is lost in the noise. And two optimizers cannot be handed to one Trainer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

Params = list[tuple[nn.Parameter, Tensor]]  # with their gradients
_NS = (3.4445, -4.7750, 2.0315)  # quintic coefficients that converge fastest near zero
_NS_STEPS = 5


class MuonAdamW(torch.optim.Optimizer):
    """Muon on groups of kind ``muon``, decoupled AdamW on groups of kind ``adamw``.

    A group holds ``params``, ``kind`` and ``lr``. A scheduler scales every group's ``lr``, as with any optimizer.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        weight_decay: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
    ) -> None:
        defaults = {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum, "betas": betas, "eps": eps}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            params = [(param, param.grad) for param in group["params"] if param.grad is not None]
            if group["kind"] == "muon":
                self._muon(params, group)
            else:
                self._adamw(params, group)
        return loss

    def _muon(self, params: Params, group: dict[str, Any]) -> None:
        by_shape: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        updates: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for param, grad in params:
            buffer: Tensor = self.state[param].setdefault("momentum", torch.zeros_like(param))
            buffer.lerp_(grad, 1 - group["momentum"])
            by_shape[tuple(param.shape)].append(param)
            updates[tuple(param.shape)].append(grad.lerp(buffer, group["momentum"]))  # Nesterov
        for shape, same in by_shape.items():
            for param, update in zip(same, orthogonal(torch.stack(updates[shape])), strict=True):
                param.mul_(1 - group["lr"] * group["weight_decay"])
                param.add_(update, alpha=-group["lr"])

    def _adamw(self, params: Params, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for param, grad in params:
            state = self.state[param]
            if not state:
                state.update(step=0, mean=torch.zeros_like(param), square=torch.zeros_like(param))
            state["step"] += 1
            state["mean"].lerp_(grad, 1 - beta1)
            state["square"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            scale = (state["square"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
            param.mul_(1 - group["lr"] * group["weight_decay"])
            param.addcdiv_(state["mean"], scale, value=-group["lr"] / (1 - beta1 ** state["step"]))


def orthogonal(matrices: Tensor) -> Tensor:
    """Nearly orthogonal matrices with the same row and column spaces; (N, R, C) in and out."""
    a, b, c = _NS
    flat = matrices.size(-2) > matrices.size(-1)
    x: Tensor = matrices.mT if flat else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_NS_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if flat else x


def build_muon(model: nn.Module, lr: float, muon_lr: float, weight_decay: float) -> MuonAdamW:
    """Muon at ``muon_lr`` for the hidden matrices of a policy, AdamW at ``lr`` for its embeddings and norms."""
    named = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
    hidden = [param for name, param in named if param.ndim == 2 and "embed" not in name and "lm_head" not in name]
    chosen = {id(param) for param in hidden}
    rest = [param for _, param in named if id(param) not in chosen]
    groups = [{"params": hidden, "kind": "muon", "lr": muon_lr}, {"params": rest, "kind": "adamw", "lr": lr}]
    return MuonAdamW(groups, weight_decay)
