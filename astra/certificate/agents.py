"""What simple agents are paid in an arena, played as reinforcement plays it: the same world, the same rewards.

The calls are answered by what the sandbox gave in the trials. Doing the task pays 1; doing nothing, repeating the
question, answering without calls and refusing pay nothing; repeating one call, trying everything and calling ahead of
what was found out pay what the F1 rule allows, and never all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from astra.certificate.trials import Tried
from astra.environments.arena import ArenaWorld
from astra.records import Answer, Environment, Probe, Variant, canonical
from astra.rewards import REWARDS, Tally, f1
from astra.sandbox import TIMEOUT_S, Result

PAID = "f1"  # the paper's reward; what the certificate stores
WITH_ANSWER = "f1_answer"
CLOSE = 1e-9


class Replay:
    """A sandbox that answers a call with what it gave when it was tried."""

    backend = "replay"

    def __init__(self, tried: Sequence[Tried]) -> None:
        self._results = {
            (one.trial.tool.code, canonical(arguments)): result
            for one in tried
            for arguments, result in zip(one.trial.calls, one.first, strict=True)
        }

    def call(self, code: str, function: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Result:
        """Raises KeyError for a call that was not tried."""
        return self._results[code, canonical(dict(arguments))]


class Agent(NamedTuple):
    """Calls, one a turn, and a final message; ``most`` is what it may be paid, ``least`` what it must be."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    final: str
    most: float
    least: float = 0.0


def solving(arena: Environment, tried: Sequence[Tried]) -> dict[str, Agent]:
    """The agents of an arena that can be done."""
    probes = in_order(arena)
    n = len(probes)
    right = said(arena.answer)
    agents = {
        "golden": Agent(_calls(probes), right, 1.0, 1.0),
        "do_nothing": Agent((), "", 0.0),
        "echo": Agent((), arena.question, 0.0),
        "answer_only": Agent((), right, 0.0),
        "from_question": Agent((), f"The answer is {_from_question(arena, probes)}.", 0.0),
        "refuse": Agent((), "I cannot answer: no tool gives that.", 0.0),
    }
    if n:
        twin = sum((probe.tool, probe.arguments) == (probes[0].tool, probes[0].arguments) for probe in probes)
        agents["repeat_one"] = Agent(_calls(probes[:1]) * (n + 1), right, f1(twin, n, n + 1, True))
        every = tuple(_everything(tried))
        agents["enumerate"] = Agent(every, right, f1(n, n, len(every), True))
    ahead = _ahead(arena, probes)
    if ahead:
        # The first of them is a guess; what it gives may be what a later one needs.
        agents["call_ahead"] = Agent(_calls(ahead[::-1]), right, f1(len(ahead) - 1, n, len(ahead), True))
    return agents


def in_order(arena: Environment) -> list[Probe]:
    """The golden calls in the order of their steps."""
    order = {step.id: n for n, step in enumerate(arena.steps)}
    return sorted(arena.probes, key=lambda one: order.get(one.step, len(order)))


def said(answer: Answer) -> str:
    """A final message that gives an answer."""
    values = answer.value if answer.kind == "list" else [answer.value]
    unit = f" {answer.unit}" if answer.unit else ""
    return f"The answer is {' and '.join(_plain(value) for value in values)}{unit}."


def _plain(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _calls(probes: Sequence[Probe]) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple((probe.tool, probe.arguments) for probe in probes)


def _from_question(arena: Environment, probes: Sequence[Probe]) -> str:
    """What the question names: the arguments of the calls that build on nothing."""
    first = {step.id for step in arena.steps if not step.depends_on}
    return " and ".join(str(one) for probe in probes if probe.step in first for one in probe.arguments.values())


def _everything(tried: Sequence[Tried]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every tool with every row, tools in their order, rows sorted so that nothing tells which is golden."""
    for one in tried:
        rows = [*(probe.arguments for probe in one.trial.golden), *one.trial.others]
        for _, arguments in sorted({canonical(row): row for row in rows}.items()):
            yield one.trial.tool.spec.name, arguments


def _ahead(arena: Environment, probes: Sequence[Probe]) -> list[Probe]:
    """The calls with arguments that only an earlier result says: made first, they are guesses."""
    world = ArenaWorld(arena.tools, arena.steps, arena.probes, Replay(()), arena.question)
    return [probe for probe in probes if probe.step in world.building]


def played(arena: Environment, variant: Variant | None, agent: Agent, sandbox: Replay) -> Tally:
    """How an agent's episode ends, as reinforcement counts it."""
    world = ArenaWorld(arena.tools, arena.steps, arena.probes, sandbox, arena.question, arena.answer, variant)
    for name, arguments in agent.calls:
        world.step(name, json.dumps(arguments, ensure_ascii=False))
    return world.tally(agent.final)


def payments(
    arena: Environment, variant: Variant | None, agents: Mapping[str, Agent], tried: Sequence[Tried]
) -> tuple[dict[str, float], str | None]:
    """What each agent is paid, and the first that is paid other than it should be."""
    sandbox = Replay(tried)
    found: dict[str, float] = {}
    wrong = None
    for name, agent in agents.items():
        tally = played(arena, variant, agent, sandbox)
        found[name] = round(REWARDS[PAID](*tally), 9)
        full = agent.least == 1.0
        fits = agent.least - CLOSE <= found[name] <= agent.most + CLOSE and (full or found[name] < 1.0 - CLOSE)
        if wrong is None and not fits:
            wrong = f"{name} is paid {found[name]:.3f}, it may be {agent.least:.3f} to {agent.most:.3f}"
        elif wrong is None and (REWARDS[WITH_ANSWER](*tally) >= 1.0 - CLOSE) != full:
            wrong = f"{name} is paid {REWARDS[WITH_ANSWER](*tally):.3f} where the answer counts"
    return found, wrong
