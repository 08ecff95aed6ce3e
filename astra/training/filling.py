"""Adaptive batch filling (paper section 3.4.2): an update gets only groups whose rewards differ.

Rollouts of one case form a group. An episode in which the machinery failed has no reward: it is left out of its group,
and counted. A group counts if the population standard deviation of the rewards that are left exceeds ``delta`` (and
float noise), and if something in it can be trained on. Sampling goes on until the update's groups are there; what is
left over waits, first in first out, for the next update.

A group that does not count has advantage 0, and its tokens are masked: it is no part of the loss's denominator, whether
it pads a batch or filling is off. A batch in which no group counts is skipped, and counted: the weights stay as they
are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Literal, NamedTuple, Protocol

from pydantic import Field

from astra.records import Section, Unavailable
from astra.rewards import Reward
from astra.training.episodes import Case, Episode

NOISE = 1e-9  # below this a spread of rewards is rounding


class Filling(Section):
    """When a group counts, and when filling ends."""

    enabled: bool = Field(description="Off takes groups as they come, as the ablation does.")
    delta: float = Field(ge=0, lt=1, description="Spread (population standard deviation) that a group must exceed.")
    max_rounds: int = Field(ge=1, description="Samplings for one update before on_exhausted applies.")
    on_exhausted: Literal["error", "pad"] = Field(description="pad completes the batch with groups of no spread.")
    max_age: int = Field(ge=0, description="Updates that a left-over group may wait.")
    max_waiting: int = Field(ge=0, description="Left-over groups kept, the newest; older ones are dropped and counted.")
    max_failed: float = Field(
        ge=0, lt=1, description="Share of an update's episodes that the machinery may lose; above it the stage stops."
    )


class FillingExhausted(Exception):
    """No batch after ``max_rounds``: rewards hardly differ. The message says what was seen."""


class RolloutsLost(Unavailable):
    """The machinery lost more episodes than ``max_failed`` allows. The message holds what it said."""


@dataclass(frozen=True)
class Scored:
    """An episode with its reward; None where the machinery failed: it stands for nothing."""

    episode: Episode
    reward: float | None


class Passed(NamedTuple):
    """What became of one group of rollouts that have a reward."""

    arena_id: str
    n: int
    n_passed: int  # did all that was required, or ended honestly
    reward: float  # mean


@dataclass
class Fill:
    """What it took to fill one batch."""

    update: int
    rounds: int = 0
    sampled: int = 0
    without_spread: int = 0
    padded: int = 0
    expired: int = 0
    dropped: int = 0  # waiting groups over max_waiting
    skipped: int = 0  # 1 where no group counts: such an update moves nothing
    failed: int = 0  # episodes
    waiting: int = 0
    sampled_tokens: int = 0  # a prompt once a group
    passed: list[Passed] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    episodes: list[Scored] = field(default_factory=list)  # all that were sampled, used or not


class Cases(Protocol):
    """An endless stream of cases that can be put back where it was."""

    def __next__(self) -> Case: ...

    def state(self) -> object:
        """Where the stream is; can be pickled."""
        ...

    def restore(self, state: object) -> None: ...


Unfinished = Literal["zero", "scored"]
Play = Callable[[Sequence[Case]], list[Scored]]
Group = list[Scored]


@dataclass(frozen=True)
class Chosen:
    """A group of an update; ``counts`` where its rewards differ."""

    group: Group
    counts: bool


def score(episode: Episode, reward: Reward, unfinished: Unfinished = "scored") -> Scored:
    """The episode with its reward; none where the machinery failed."""
    if episode.failed:
        return Scored(episode, None)
    if episode.stop == "truncated" and unfinished == "zero":
        return Scored(episode, 0.0)
    return Scored(episode, reward(*episode.tally))


def passed(group: Sequence[Scored]) -> Passed | None:
    """What became of a group; None where the machinery lost all of it."""
    scored = [one for one in group if one.reward is not None]
    if not scored:
        return None
    done = sum(one.episode.tally.solved == one.episode.tally.n_required for one in scored)
    return Passed(scored[0].episode.case.arena.id, len(scored), done, fmean(rewards_of(scored)))


def rewards_of(group: Sequence[Scored]) -> list[float]:
    """The rewards that there are."""
    return [one.reward for one in group if one.reward is not None]


def has_spread(rewards: Sequence[float], delta: float) -> bool:
    """Whether a group of rewards tells the policy anything."""
    return len(rewards) > 1 and pstdev(rewards) > max(delta, NOISE)


def counts(group: Sequence[Scored], delta: float) -> bool:
    """Whether a group's rewards differ and one of its episodes can be trained on."""
    return has_spread(rewards_of(group), delta) and any(
        one.reward is not None and one.episode.stop != "truncated" for one in group
    )


class Filler:
    """Fills batches of ``n_groups`` groups of ``group`` episodes from an endless stream of cases."""

    def __init__(self, stream: Cases, n_groups: int, group: int, filling: Filling) -> None:
        self.stream = stream
        self.n_groups = n_groups
        self.group = group
        self.filling = filling
        self.waiting: deque[tuple[int, Group]] = deque()  # with the update that it was sampled for

    @property
    def delta(self) -> float:
        """The spread that a group must exceed: with filling off only float noise."""
        return self.filling.delta if self.filling.enabled else 0.0

    def state(self) -> dict[str, object]:
        """All that the next fill depends on; can be pickled."""
        return {"stream": self.stream.state(), "waiting": list(self.waiting)}

    def restore(self, state: dict[str, object]) -> None:
        self.stream.restore(state["stream"])
        self.waiting = deque(state["waiting"])  # type: ignore[call-overload]

    def fill(self, update: int, play: Play) -> tuple[list[Chosen], Fill]:
        """The update's groups, oldest first. Raises FillingExhausted, RolloutsLost."""
        report = Fill(update)
        fresh = [(born, one) for born, one in self.waiting if update - born <= self.filling.max_age]
        report.expired = len(self.waiting) - len(fresh)
        self.waiting = deque(fresh)
        found = self._filled(report, play) if self.filling.enabled else self._as_they_come(report, play)
        report.ages = [update - born for born, _ in found]
        report.waiting = len(self.waiting)
        chosen = [Chosen(group, counts(group, self.delta)) for _, group in found]
        report.skipped = int(not any(one.counts for one in chosen))
        return chosen, report

    def _filled(self, report: Fill, play: Play) -> list[tuple[int, Group]]:
        flat: list[tuple[int, Group]] = []
        while len(self.waiting) < self.n_groups and report.rounds < self.filling.max_rounds:
            for group in self._sample(play, report):
                (self.waiting if counts(group, self.delta) else flat).append((report.update, group))
        report.without_spread = len(flat)
        missing = self.n_groups - len(self.waiting)
        if missing > 0:
            if self.filling.on_exhausted == "error" or missing > len(flat):
                raise FillingExhausted(self._exhausted(report))
            report.padded = missing
            self.waiting.extend(flat[:missing])
        chosen = [self.waiting.popleft() for _ in range(self.n_groups)]
        while len(self.waiting) > self.filling.max_waiting:
            self.waiting.popleft()
            report.dropped += 1
        return chosen

    def _as_they_come(self, report: Fill, play: Play) -> list[tuple[int, Group]]:
        """One sampling, whatever it gave."""
        groups = self._sample(play, report)
        report.without_spread = sum(not counts(group, self.delta) for group in groups)
        return [(report.update, group) for group in groups]

    def _sample(self, play: Play, report: Fill) -> list[Group]:
        report.rounds += 1
        cases = [next(self.stream) for _ in range(self.n_groups)]
        scored = play([case for case in cases for _ in range(self.group)])
        report.sampled += len(cases)
        report.episodes += scored
        lost = [one for one in scored if one.reward is None]
        report.failed += len(lost)
        if len(lost) > self.filling.max_failed * len(scored):
            raise RolloutsLost(
                f"update {report.update}: the machinery lost {len(lost)} of {len(scored)} episodes, more than "
                f"rl.filling.max_failed {self.filling.max_failed}; none of them is a reward. It said: "
                f"{lost[0].episode.played.failure}"
            )
        return [scored[start : start + self.group] for start in range(0, len(scored), self.group)]

    def _exhausted(self, report: Fill) -> str:
        rewards = rewards_of(report.episodes)
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        return (
            f"update {report.update}: {len(self.waiting)} of {self.n_groups} groups with a spread over "
            f"{self.delta} after {report.rounds} rounds ({report.sampled} groups, mean reward {mean:.3f}). "
            "At a mean near 0 the policy cannot do the task yet: train sft longer. Near 1 there is nothing left to "
            "learn: fewer rl.updates. Else lower rl.filling.delta, or set rl.filling.on_exhausted to pad."
        )
