"""Decoding without copies: what makes token after token cheap for a small model, where memory traffic is the cost.

Per token ``transformers`` copies the whole key-value cache (it is concatenated) and, where several query heads share a
key head, repeats it for each. Here a cache has room at its end, and the query heads of one key head stand in a row, as
queries of one head do. The arithmetic is the same but for the order of sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "sdpa_grouped_decoding"
ROOM = 64  # tokens that a cache grows by


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values, (B, heads, T, width), as the beginning of buffers that are longer."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        known = self.get_seq_length()
        length = known + key_states.shape[-2]
        buffers = self._buffers
        if buffers is None or length > buffers[0].shape[-2]:
            shape = (*key_states.shape[:2], length + ROOM)
            buffers = (
                key_states.new_empty((*shape, key_states.shape[-1])),
                value_states.new_empty((*shape, value_states.shape[-1])),
            )
            if known:
                buffers[0][:, :, :known], buffers[1][:, :, :known] = self.keys, self.values
        buffers[0][:, :, known:length], buffers[1][:, :, known:length] = key_states, value_states
        self._buffers = buffers
        self._show(length)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows, in this order; a row may come twice."""
        if self._buffers is not None:
            length = self.get_seq_length()
            self._buffers = (self._buffers[0].index_select(0, indices), self._buffers[1].index_select(0, indices))
            self._show(length)

    def _show(self, length: int) -> None:
        assert self._buffers is not None
        self.keys, self.values = (buffer[:, :, :length] for buffer in self._buffers)


def roomy_cache() -> Cache:
    """An empty key-value cache for a model whose layers all attend to everything before."""
    return Cache(layer_class_to_replicate=RoomyLayer)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of transformers' interface: query (B, heads, T, width) on key and value (B, key heads, S, width)."""
    batch, heads, length, width = query.shape
    if length > 1 or heads == key.shape[1]:
        out, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more
        )
        return out, None
    rows = query.reshape(batch, key.shape[1], heads // key.shape[1], width)
    out = scaled_dot_product_attention(rows, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling)
    return out.reshape(batch, heads, 1, width).transpose(1, 2).contiguous(), None


def decode_without_copies(policy: PreTrainedModel) -> bool:
    """Set a policy up for ``roomy_cache``; False where its layers are of a kind that needs the cache of its own."""
    config = policy.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or config._attn_implementation not in ("sdpa", GROUPED):
        return False
    AttentionInterface.register(GROUPED, grouped_attention)
    AttentionMaskInterface.register(GROUPED, sdpa_mask)
    policy.set_attn_implementation(GROUPED)
    return True
