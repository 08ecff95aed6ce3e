"""Adaptive batch filling (paper section 3.4.2): an update gets only groups whose rewards differ.

Rollouts of one case form a group. A group counts if the population standard deviation of its rewards exceeds ``delta``
(and float noise). Sampling goes on until the update's groups are there; what is left over waits, first in first out,
for the next update.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import pstdev
from typing import Literal

from pydantic import Field

from astra.records import Section
from astra.training.episodes import Case, Episode

NOISE = 1e-9  # below this a spread of rewards is rounding


class Filling(Section):
    """When a group counts, and when filling ends."""

    enabled: bool = Field(description="Off takes groups as they come, as the ablation does.")
    delta: float = Field(ge=0, lt=1, description="Spread (population standard deviation) that a group must exceed.")
    max_rounds: int = Field(ge=1, description="Samplings for one update before on_exhausted applies.")
    on_exhausted: Literal["error", "pad"] = Field(description="pad completes the batch with groups of no spread.")
    max_age: int = Field(ge=0, description="Updates that a left-over group may wait.")


class FillingExhausted(Exception):
    """No batch after ``max_rounds``: rewards hardly differ. The message says what was seen."""


@dataclass(frozen=True)
class Scored:
    """An episode with its reward."""

    episode: Episode
    reward: float


@dataclass
class Fill:
    """What it took to fill one batch."""

    update: int
    rounds: int = 0
    sampled: int = 0
    without_spread: int = 0
    padded: int = 0
    expired: int = 0
    waiting: int = 0
    ages: list[int] = field(default_factory=list)
    episodes: list[Scored] = field(default_factory=list)  # all that were sampled, used or not


Play = Callable[[Sequence[Case]], list[Scored]]


def has_spread(rewards: Sequence[float], delta: float) -> bool:
    """Whether a group of rewards tells the policy anything."""
    return pstdev(rewards) > max(delta, NOISE)


class Filler:
    """Fills batches of ``n_groups`` groups of ``group`` episodes from an endless stream of cases."""

    def __init__(self, stream: Iterator[Case], n_groups: int, group: int, filling: Filling) -> None:
        self.stream = stream
        self.n_groups = n_groups
        self.group = group
        self.filling = filling
        self.waiting: deque[tuple[int, list[Scored]]] = deque()  # with the update that it was sampled for

    def fill(self, update: int, play: Play) -> tuple[list[list[Scored]], Fill]:
        """The update's groups, oldest first. Raises FillingExhausted."""
        report = Fill(update)
        flat: list[tuple[int, list[Scored]]] = []
        fresh = [(born, one) for born, one in self.waiting if update - born <= self.filling.max_age]
        report.expired = len(self.waiting) - len(fresh)
        self.waiting = deque(fresh)
        while len(self.waiting) < self.n_groups and report.rounds < self.filling.max_rounds:
            report.rounds += 1
            for group in self._sample(play, report):
                if not self.filling.enabled or has_spread([one.reward for one in group], self.filling.delta):
                    self.waiting.append((update, group))
                else:
                    flat.append((update, group))
        report.without_spread = len(flat)
        missing = self.n_groups - len(self.waiting)
        if missing > 0:
            if self.filling.on_exhausted == "error" or missing > len(flat):
                raise FillingExhausted(self._exhausted(report))
            report.padded = missing
            self.waiting.extend(flat[:missing])
        chosen = [self.waiting.popleft() for _ in range(self.n_groups)]
        report.ages = [update - born for born, _ in chosen]
        report.waiting = len(self.waiting)
        return [group for _, group in chosen], report

    def _sample(self, play: Play, report: Fill) -> list[list[Scored]]:
        cases = [next(self.stream) for _ in range(self.n_groups)]
        scored = play([case for case in cases for _ in range(self.group)])
        report.sampled += len(cases)
        report.episodes += scored
        return [scored[start : start + self.group] for start in range(0, len(scored), self.group)]

    def _exhausted(self, report: Fill) -> str:
        rewards = [one.reward for one in report.episodes]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        return (
            f"update {report.update}: {len(self.waiting)} of {self.n_groups} groups with a spread over "
            f"{self.filling.delta} after {report.rounds} rounds ({report.sampled} groups, mean reward {mean:.3f}). "
            "At a mean near 0 the policy cannot do the task yet: train sft longer. Near 1 there is nothing left to "
            "learn: fewer rl.updates. Else lower rl.filling.delta, or set rl.filling.on_exhausted to pad."
        )
