"""Episodes, token in and token out: sampled ids are kept as sampled, tool results are forced tokens between them.

An ``Engine`` turns prompts into episodes: it samples a turn, hands its ids to ``respond`` and feeds back what that
returns until ``respond`` says stop. ``HFEngine`` plays a whole batch in step with one key-value cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel

Stop = Literal["answered", "max_turns", "truncated"]


class Turn(NamedTuple):
    """One finished reply: the episode's index in the batch and its ids (end token included, if it was reached)."""

    episode: int
    ids: list[int]


# What follows each turn: ids to append (tool results and the opening of the next turn), or why the episode is over.
Respond = Callable[[Sequence[Turn]], Sequence["Sequence[int] | Stop"]]


@dataclass(frozen=True)
class Sampling:
    """How replies are drawn. ``temperature`` 0 is greedy."""

    temperature: float
    max_new_tokens: int  # of one reply
    max_response_tokens: int  # of all replies and results of an episode
    seed: int


@dataclass
class Played:
    """One episode behind its prompt: ids, 1 where sampled and 0 where forced, log-probabilities of sampled ids."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: Stop = "truncated"

    def append(self, token: int, sampled: bool, logprob: float) -> None:
        self.ids.append(token)
        self.mask.append(int(sampled))
        self.logprobs.append(logprob)


class Engine(Protocol):
    """Plays episodes with the current weights."""

    def play(self, prompts: Sequence[Sequence[int]], respond: Respond, sampling: Sampling) -> list[Played]:
        """One episode per prompt, in order."""
        ...


class HFEngine:
    """Plays on a transformers model in this process, all episodes of a batch in step."""

    def __init__(self, model: PreTrainedModel, end: int, pad: int) -> None:
        self.model = model
        self.end = end
        self.pad = pad

    @torch.no_grad()
    def play(self, prompts: Sequence[Sequence[int]], respond: Respond, sampling: Sampling) -> list[Played]:
        generator = torch.Generator().manual_seed(sampling.seed)
        episodes = [Played() for _ in prompts]
        ids, attention = self._left_padded(prompts)
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache()
        logits = self._forward(ids, attention, positions, cache)
        positions = positions[:, -1]
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
                rows = torch.tensor(keep)
                cache.batch_select_indices(rows)
                attention, positions = attention[rows], positions[rows]
                tokens = [tokens[row] for row in keep]
                live = [live[row] for row in keep]
            attention = torch.cat([attention, attention.new_ones(len(live), 1)], 1)
            positions = positions + 1
            logits = self._forward(torch.tensor(tokens)[:, None], attention, positions[:, None], cache)
        return episodes

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
        ids = torch.tensor([[self.pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
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
        draws = torch.rand(len(logits), 1, generator=generator) * heights[:, -1:]
        tokens = torch.searchsorted(heights, draws).clamp(max=logits.size(-1) - 1)
    else:
        tokens = logprobs.argmax(-1, keepdim=True)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()
