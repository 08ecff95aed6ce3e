"""Training samples: whole conversations, or one for each turn of the assistant; shortened where that is safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from astra.chat import Chat, Encoded, NotTrainable
from astra.records import Message, ToolSpec
from astra.training.shortening import Shortened, shorten

Split = Literal["never", "auto", "always"]


class Sample(NamedTuple):
    """A conversation as tokens, or its beginning up to one turn, which alone is trained."""

    turn: int | None  # the assistant's turn that is trained, from 1; None: all of them
    messages: tuple[Message, ...]
    encoded: Encoded

    @property
    def turns(self) -> list[Message]:
        """The messages that are trained."""
        return [one for one in self.messages if one.role == "assistant"][-1 if self.turn else 0 :]

    def n_trained(self, max_length: int) -> int:
        """Trained tokens among the first ``max_length``, which is what a trainer that cuts would be left with."""
        return sum(self.encoded.mask[:max_length])


def is_split(chat: Chat, messages: Sequence[Message], how: Split) -> bool:
    """Whether a conversation becomes one sample a turn: ``auto`` where the template drops something in a whole one."""
    return how == "always" or (how == "auto" and (not chat.is_marked or chat.lost_reasoning(messages)[0] > 0))


def drafts(chat: Chat, messages: Sequence[Message], how: Split) -> list[tuple[int | None, tuple[Message, ...]]]:
    """The turn (None: all) and messages of each sample that a conversation makes."""
    if not is_split(chat, messages, how):
        return [(None, tuple(messages))]
    ends = [place for place, message in enumerate(messages, 1) if message.role == "assistant"]
    return [(number, tuple(messages[:end])) for number, end in enumerate(ends, 1)]


def make(chat: Chat, turn: int | None, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Sample:
    """One sample's ids and mask. Raises NotTrainable."""
    encoded = chat.encode_last_turn(messages, tools) if turn else chat.encode([messages], [tools])[0]
    return Sample(turn, tuple(messages), encoded)


class Fitted(NamedTuple):
    """A sample that is short enough, and what was cut for it."""

    sample: Sample
    cut: Shortened


def fit(chat: Chat, sample: Sample, tools: Sequence[ToolSpec], max_length: int, floor: int) -> Fitted | None:
    """The sample with its longest tool results shortened as little as makes it fit, each to ``floor`` at the least.

    None where that is not enough, or would take away what a later turn rests on.
    """
    lengths = [len(one.content or "") for one in sample.messages if one.role == "tool"]
    spare = sum(len((one.content or "").encode()) for one in sample.messages if one.role == "tool")
    if not floor or max(lengths, default=0) <= floor or spare < len(sample.encoded.ids) - max_length:
        return None  # a token is at least a byte
    low, high = floor, max(lengths)
    best = _cut_to(chat, sample, tools, max_length, low)
    while best and high - low > max(16, low // 16):
        middle = (low + high) // 2
        tried = _cut_to(chat, sample, tools, max_length, middle)
        best, low, high = (tried, middle, high) if tried else (best, low, middle)
    return best


def _cut_to(chat: Chat, sample: Sample, tools: Sequence[ToolSpec], max_length: int, limit: int) -> Fitted | None:
    cut = shorten(sample.messages, limit)
    if not cut or not cut.n_results:
        return None
    try:
        shorter = make(chat, sample.turn, cut.messages, tools)
    except NotTrainable:
        return None
    return Fitted(shorter, cut) if len(shorter.encoded.ids) <= max_length else None


@dataclass
class Making:
    """What became of conversations on their way to samples, for the metrics."""

    how: Split
    max_length: int
    n_split: int = 0
    n_thoughts: int = 0
    n_dropped: int = 0
    n_samples: int = 0
    n_zero: int = 0
    n_overlong: int = 0
    cuts: list[Shortened] = field(default_factory=list)

    def see(self, chat: Chat, messages: Sequence[Message]) -> None:
        """Count a conversation, and the thoughts that the template would drop if it were rendered as a whole."""
        self.n_split += is_split(chat, messages, self.how)
        dropped, thoughts = chat.lost_reasoning(messages)
        self.n_thoughts += thoughts
        self.n_dropped += dropped

    def measure(self, sample: Sample) -> None:
        """Count a sample as it is before anything is cut or refused."""
        self.n_samples += 1
        self.n_zero += not sample.n_trained(self.max_length)
        self.n_overlong += len(sample.encoded.ids) > self.max_length

    def metrics(self) -> dict[str, Any]:
        n = max(1, self.n_samples)
        return {
            "split_conversations": self.n_split,
            "reasoning": {"turns": self.n_thoughts, "dropped_if_whole": self.n_dropped},
            "zero_share": round(self.n_zero / n, 4),  # nothing is trained within max_length
            "overlong_share": round(self.n_overlong / n, 4),
            "shortened": {
                "rows": len(self.cuts),
                "results": sum(cut.n_results for cut in self.cuts),
                "characters": sum(cut.n_characters for cut in self.cuts),
            },
        }
