"""The held-out arenas as benchmarks of our own: which cases, with which tools, and what is measured of one episode.

Local policies play them in batches (``episodes.play_cases``); whoever is asked over an endpoint plays the same cases
one conversation at a time, through ``ArenaBench``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from astra.benchmarks.models import reply_message
from astra.benchmarks.types import Ask, CaseInfo, Reply, Verdict
from astra.environments.arena import ArenaWorld
from astra.records import Arena, Message
from astra.rewards import f1, precision, recall
from astra.sandbox import Sandbox
from astra.training.distractors import Distractors, Mixing
from astra.training.episodes import Case, Episode, Limits, _episode, _Going, absent_of
from astra.training.rollouts import Played, Stop
from astra.training.scoreboard import Kind

SPLITS = ("heldout", "heldout_entities", "heldout_tools")
REFUSAL = "refusal"
VARIANTS = ("missing_tool", "missing_value")  # arenas that cannot be done: refusing, or asking, is the paid end
BINARY = frozenset({"answer", "refused", "honest"})
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(SPLITS, Kind(("f1", "answer"), BINARY)),
    REFUSAL: Kind(("refused",), BINARY),
    **{f"variant_{kind}": Kind(("honest",), BINARY) for kind in VARIANTS},
}


class Benchmark(NamedTuple):
    name: str
    cases: tuple[Case, ...]


def benchmarks(arenas: Sequence[Arena], mixing: Mixing, seed: int, count: int | None = None) -> list[Benchmark]:
    """The held-out splits and the refusal set; each case's tools are fixed here, once for all models.

    ``count``: the first cases of each only.
    """
    train = [tool for arena in arenas if arena.split == "train" for tool in arena.tools]
    own = [tool for arena in arenas if arena.split != "train" for tool in arena.tools]
    distractors = Distractors([*train, *own], mixing, seed)
    found = []
    for split in SPLITS:
        chosen = [arena for arena in arenas if arena.split == split and arena.variant is None]
        found.append(Benchmark(split, tuple(set_up(arena, distractors, None, seed) for arena in chosen[:count])))
    refusals = []
    for arena in [one for one in arenas if one.split == "heldout" and one.variant is None][:count]:
        missing = random.Random(f"{seed}:missing:{arena.id}").choice(arena.probes).tool
        refusals.append(set_up(arena, distractors, missing, seed))
    variants = [arena for arena in arenas if arena.split != "train" and arena.variant is not None]
    honest = [
        Benchmark(f"variant_{kind}", tuple(set_up(arena, distractors, None, seed) for arena in some[:count]))
        for kind in VARIANTS
        if (some := [one for one in variants if one.variant is not None and one.variant.kind == kind])
    ]
    return [*found, Benchmark(REFUSAL, tuple(refusals)), *honest]


def set_up(arena: Arena, distractors: Distractors, missing: str | None, seed: int) -> Case:
    """The arena's tools, but a missing one, among its distractors, in a seeded order."""
    tools = [tool for tool in arena.tools if tool.spec.name != missing]
    tools += distractors.draw(arena.tools, f"eval:{arena.id}", absent_of(arena))
    random.Random(f"{seed}:order:{arena.id}").shuffle(tools)
    return Case(arena, tuple(tools), missing)


def measures(episode: Episode) -> dict[str, float]:
    """What is measured of one episode; a refusal case is about refusing only, a variant about its honest end."""
    if episode.case.arena.variant is not None:
        return {"honest": float(episode.honest), "f1": f1(*episode.tally), "calls": float(episode.n_calls)}
    if episode.case.missing is not None:
        return {"refused": float(episode.refused), "calls": float(episode.n_calls)}
    tally = episode.tally
    return {
        "f1": f1(*tally),
        "recall": recall(*tally),
        "precision": precision(*tally),
        "calls": float(episode.n_calls),
        "answer": float(tally.answer_correct),
        "refused": float(episode.refused),
    }


class ArenaBench:
    """One set of arenas for a model that is asked turn by turn; a sandbox that several threads may use at once."""

    version = "1"

    def __init__(self, benchmark: Benchmark, sandbox: Sandbox, limits: Limits) -> None:
        self._cases = {one.arena.id: one for one in benchmark.cases}
        self._name = benchmark.name
        self._sandbox = sandbox
        self._limits = limits

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=one, category=self._name) for one in self._cases]

    def start(self, case: str, trial: int) -> _ArenaPlaying:
        chosen = self._cases[case]
        world = ArenaWorld.of(chosen.arena, chosen.tools, self._sandbox)
        return _ArenaPlaying(chosen, world, self._limits.max_calls)


@dataclass
class _ArenaPlaying:
    case: Case
    world: ArenaWorld
    max_calls: int
    going: _Going = field(init=False)
    stop: Stop | None = None
    note: str = ""

    def __post_init__(self) -> None:
        self.going = _Going(self.world)

    def turn(self) -> Ask | None:
        if self.stop is not None:
            return None
        opening = Message(role="user", content=self.case.arena.question)
        tools: list[dict[str, Any]] = [tool.spec.openai() for tool in self.case.tools]
        return Ask(messages=[one.openai() for one in (opening, *self.going.messages)], tools=tools)

    def take(self, reply: Reply) -> None:
        """Raises EnvironmentUnavailable."""
        if reply.stop in ("context", "length"):
            self.stop, self.note = "truncated", reply.stop
            return
        message = reply_message(reply)
        self.going.messages.append(message)
        if not message.tool_calls:
            self.going.final, self.stop = message.content or "", "answered"
            return
        for call, result in zip(message.tool_calls, self.world.turn(message.tool_calls), strict=True):
            self.going.messages.append(
                Message(role="tool", tool_call_id=call.id, name=call.function.name or None, content=result.content,
                        executed_by=result.executed_by, is_error=result.is_error)
            )  # fmt: skip
        if self.world.n_calls >= self.max_calls:
            self.stop, self.note = "max_turns", "max_calls"

    def verdict(self) -> Verdict:
        episode = _episode(self.case, [], Played(stop=self.stop or "truncated"), self.going)
        steps = sum(one.role == "assistant" for one in self.going.messages)
        return Verdict(scores=measures(episode), note=self.note, n_steps=steps, n_calls=episode.n_calls)
