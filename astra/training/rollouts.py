"""Episodes, token in and token out: sampled ids are kept as sampled, tool results are forced tokens between them.

An ``Engine`` turns prompts into episodes: it samples a turn, hands its ids to ``respond`` and feeds back what that
returns until ``respond`` says stop. What an engine gave is never tokenised again. The engines themselves are in
``astra/training/engines``.

Unavailable
├── EngineMissing   the engine or its server is not there, or is not set up as it must be: nothing was sampled
└── EngineLost      one request failed for good: its episode is taken out, and is no reward
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from astra.records import Unavailable

Stop = Literal["answered", "max_turns", "truncated", "failed"]


class EngineMissing(Unavailable):
    """Nothing can be sampled here and now; the message says what is missing and how to get it."""


class EngineLost(Unavailable):
    """A request that was tried several times; the message says what came back."""


class Turn(NamedTuple):
    """One finished reply: the episode's index in the batch and its ids (end token included, if it was reached)."""

    episode: int
    ids: list[int]


# What follows each turn: ids to append (tool results and the opening of the next turn), or why the episode is over.
# An engine may ask for several episodes from several threads at once, for one episode never twice at a time.
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
    failure: str = ""  # what the machinery said, where stop is failed

    def append(self, token: int, sampled: bool, logprob: float) -> None:
        self.ids.append(token)
        self.mask.append(int(sampled))
        self.logprobs.append(logprob)

    def take(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Append a reply."""
        self.ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += logprobs

    def force(self, ids: Sequence[int]) -> None:
        """Append what the world says."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)


class Engine(Protocol):
    """Plays episodes with the weights that it was given last."""

    corrects: bool  # whether sampled log-probabilities may differ from the trainer's, so that TRL weighs them

    def settings(self) -> dict[str, Any]:
        """What TRL's GRPOConfig must be told for this engine."""
        ...

    def sync(self, trainer: Any) -> None:
        """Take over the trainer's weights. Collective: every rank calls it. Raises EngineLost."""
        ...

    def play(self, prompts: Sequence[Sequence[int]], respond: Respond, sampling: Sampling) -> list[Played]:
        """One episode per prompt, in order. Raises EngineMissing; an episode that was lost has stop ``failed``."""
        ...
