"""Rollouts on a transformers model in this process: the engine of the CPU and of the tests.

All episodes of a batch go in step with one key-value cache; a row leaves when its episode is over. Under several ranks
it is a replica on rank 0, filled from the trainer's weights before each update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from astra.training.engines.decoding import decode_without_copies, roomy_cache
from astra.training.rollouts import Played, Respond, Sampling, Turn


class HFEngine:
    """Plays on a transformers model in this process, all episodes of a batch in step."""

    def __init__(self, model: PreTrainedModel, end: int, pad: int) -> None:
        self.model = model
        self.end = end
        self.pad = pad
        self.device = next(model.parameters()).device
        # in float32 the replica's log-probabilities are the trainer's; in bfloat16 they are those of rounded weights
        self.corrects = next(model.parameters()).dtype != torch.float32
        self.open_cache = roomy_cache if decode_without_copies(model) else DynamicCache

    def settings(self) -> dict[str, Any]:
        return {}

    def sync(self, trainer: Any) -> None:
        weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)  # collective
        if trainer.accelerator.is_main_process:
            self.model.load_state_dict(weights, strict=False)  # tied weights come once

    @torch.no_grad()
    def play(self, prompts: Sequence[Sequence[int]], respond: Respond, sampling: Sampling) -> list[Played]:
        generator = torch.Generator(self.device).manual_seed(sampling.seed)
        episodes = [Played() for _ in prompts]
        logits, attention, positions, cache = self._opened(prompts)
        live = list(range(len(prompts)))
        replies: list[list[int]] = [[] for _ in prompts]
        forced: list[list[int]] = [[] for _ in prompts]
        while live:
            tokens, logprobs = _draw(logits, sampling.temperature, generator)
            ended: list[int] = []
            for row, one in enumerate(live):
                if forced[one]:
                    tokens[row] = forced[one].pop(0)
                    episodes[one].append(tokens[row], False, 0.0)
                    continue
                episodes[one].append(tokens[row], True, logprobs[row])
                replies[one].append(tokens[row])
                if tokens[row] == self.end or len(replies[one]) >= sampling.max_new_tokens:
                    ended.append(one)
            over = self._respond(ended, replies, forced, episodes, respond)
            over |= {one for one in live if len(episodes[one].ids) + len(forced[one]) >= sampling.max_response_tokens}
            keep = [row for row, one in enumerate(live) if one not in over]
            if len(keep) < len(live):
                if not keep:
                    break
                rows = torch.tensor(keep, device=self.device)
                cache.batch_select_indices(rows)
                attention, positions = attention[rows], positions[rows]
                tokens = [tokens[row] for row in keep]
                live = [live[row] for row in keep]
            attention = torch.cat([attention, attention.new_ones(len(live), 1)], 1)
            positions = positions + 1
            fed = torch.tensor(tokens, device=self.device)[:, None]
            logits = self._forward(fed, attention, positions[:, None], cache)
        return episodes

    def _opened(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
        """Logits (B, V), mask (B, T), last positions (B) and cache behind the prompts; equal ones are read once."""
        places: dict[tuple[int, ...], int] = {}
        rows = [places.setdefault(tuple(prompt), len(places)) for prompt in prompts]
        ids, attention = self._left_padded(list(places))
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        cache = self.open_cache()
        logits = self._forward(ids, attention, positions, cache)
        spread = torch.tensor(rows, device=self.device)
        cache.batch_select_indices(spread)
        return logits[spread], attention[spread], positions[spread, -1], cache

    def _respond(
        self,
        ended: list[int],
        replies: list[list[int]],
        forced: list[list[int]],
        episodes: list[Played],
        respond: Respond,
    ) -> set[int]:
        """Hand finished replies over; the episodes that end with them."""
        over = {one for one in ended if replies[one][-1] != self.end}  # a cut reply is not parsed
        asked = [one for one in ended if one not in over]
        answers = respond([Turn(one, replies[one]) for one in asked]) if asked else []
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                episodes[one].stop = answer
                over.add(one)
            else:
                forced[one] = list(answer)
                replies[one] = []
        return over

    def _left_padded(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and attention mask, both (B, T)."""
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor(
            [[self.pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=self.device
        )
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=self.device)
        return ids, mask

    def _forward(self, ids: torch.Tensor, attention: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        out = self.model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = out.logits[:, -1].float()  # (B, V)
        return logits


def _draw(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> tuple[list[int], list[float]]:
    """One token a row and its log-probability under the drawing distribution's temperature (greedy: temperature 1)."""
    logprobs = torch.log_softmax(logits / temperature if temperature > 0 else logits, -1)
    if temperature > 0:
        # by the inverse distribution function: one uniform a row is five times faster than torch.multinomial
        heights = logprobs.exp().cumsum(-1)
        draws = torch.rand(len(logits), 1, generator=generator, device=logits.device) * heights[:, -1:]
        tokens = torch.searchsorted(heights, draws).clamp(max=logits.size(-1) - 1)
    else:
        tokens = logprobs.argmax(-1, keepdim=True)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()
