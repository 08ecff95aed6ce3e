"""A prompt stream that prefers arenas which the policy passes sometimes: only there do the rewards of a group differ.

An arena that is passed with rate p comes up with a frequency in proportion to 4p(1 - p), at least FLOOR, so that none
is lost for good: what was never solved may be by now. Like a scheduler with shares, each arena is due every 1 / weight
units of time; where in its first period is drawn at random. One that was never or always passed waits a whole period
more, so that every arena with something to learn from comes up before it. There is no drawing with replacement: an
arena comes up again when its share says so, and not by luck.

The paper has no curriculum; this is ours, and off by default.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from astra.records import Arena, Section
from astra.training.distractors import Distractors
from astra.training.filling import Passed
from astra.training.stream import Stream

FLOOR = 0.1  # share of an arena that teaches nothing now, of one that is passed half the time
UNKNOWN = 0.5  # pass rate of an arena that was never played


class Curriculum(Section):
    """Which arenas come up how often."""

    mode: Literal["none", "difficulty"] = Field(
        description="none takes arenas in shuffled rounds; difficulty prefers those that are passed sometimes."
    )
    file: str | None = Field(
        description="Pass rates of models/sft, only read with mode difficulty: python -m astra.training.difficulty. "
        "Keep it under data/ and in git or DVC: its bytes decide what is learned, and dvc repro sees only its name."
    )


def weight(rate: float) -> float:
    """An arena's share, in [FLOOR, 1]."""
    return max(FLOOR, 4 * rate * (1 - rate))


class ByDifficulty(Stream):
    """Arenas in proportion to how much their groups tell, by pass rates that follow the policy."""

    def __init__(
        self, arenas: Sequence[Arena], distractors: Distractors, seed: int, rates: Mapping[str, float]
    ) -> None:
        super().__init__(arenas, distractors, seed)
        self.by_id = {arena.id: arena for arena in arenas}
        self.rates = {one: rates[one] for one in self.by_id if one in rates}
        self.turns: Counter[str] = Counter()
        self.now = 0.0
        self.due = {one: self._first(one) for one in self.by_id}

    def rate(self, arena_id: str) -> float:
        return self.rates.get(arena_id, UNKNOWN)

    def _first(self, arena_id: str) -> float:
        place = random.Random(f"{self.seed}:curriculum:{arena_id}").random()
        return (place + (self.rate(arena_id) in (0, 1))) / weight(self.rate(arena_id))

    def _next(self) -> tuple[Arena, int]:
        chosen = min(self.due, key=lambda one: (self.due[one], one))
        turn = self.turns[chosen]
        self.now = self.due[chosen]
        self.due[chosen] += 1 / weight(self.rate(chosen))
        self.turns[chosen] += 1
        return self.by_id[chosen], turn

    def learn(self, passed: Iterable[Passed]) -> None:
        """Move each arena's rate half way to what its group says; the first group of an unknown one is its rate.

        What is left of its waiting time grows or shrinks with its share.
        """
        for one in passed:
            before = weight(self.rate(one.arena_id))
            seen = one.n_passed / one.n
            self.rates[one.arena_id] = (self.rates.get(one.arena_id, seen) + seen) / 2
            left = self.due[one.arena_id] - self.now
            self.due[one.arena_id] = self.now + left * before / weight(self.rate(one.arena_id))

    def state(self) -> dict[str, Any]:
        ours = {"turns": dict(self.turns), "rates": dict(self.rates), "due": dict(self.due), "now": self.now}
        return {**super().state(), **ours}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.turns, self.now = Counter(state["turns"]), state["now"]
        self.rates, self.due = dict(state["rates"]), dict(state["due"])
