"""The prompt stream of rl: arenas without end, each time with other distractors and another order of tools."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from astra.records import Arena
from astra.training.distractors import Distractors
from astra.training.episodes import Case, absent_of
from astra.training.filling import Passed


def deal(arena: Arena, turn: int, distractors: Distractors, seed: int) -> Case:
    """The arena as it is shown the ``turn``-th time that it comes up."""
    tools = [*arena.tools, *distractors.draw(arena.tools, f"{arena.id}:{turn}", absent_of(arena))]
    random.Random(f"{seed}:tools:{arena.id}:{turn}").shuffle(tools)
    return Case(arena, tuple(tools))


class Stream:
    """Arenas in shuffled rounds."""

    def __init__(self, arenas: Sequence[Arena], distractors: Distractors, seed: int) -> None:
        self.arenas = list(arenas)
        self.distractors = distractors
        self.seed = seed
        self.drawn = 0

    def __next__(self) -> Case:
        arena, turn = self._next()
        self.drawn += 1
        return deal(arena, turn, self.distractors, self.seed)

    def _next(self) -> tuple[Arena, int]:
        """The arena whose turn it is, and how often it came up before."""
        turn, place = divmod(self.drawn, len(self.arenas))
        if place == 0 or not hasattr(self, "_order"):
            rng = random.Random(f"{self.seed}:stream:{turn}")
            self._order = rng.sample(self.arenas, len(self.arenas))
        return self._order[place], turn

    def learn(self, passed: Iterable[Passed]) -> None:
        """What became of an update's groups, once each; rounds take no notice."""

    def state(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "distractors": dict(self.distractors.drawn)}

    def restore(self, state: Any) -> None:
        self.drawn = state["drawn"]
        self.distractors.drawn.clear()
        self.distractors.drawn.update(state["distractors"])
        self.__dict__.pop("_order", None)
