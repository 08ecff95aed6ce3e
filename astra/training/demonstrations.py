"""Teacher demonstrations in training arenas: the language of the arenas, shown by acting in them.

Not in the paper. A policy that starts from random weights gets no reward to learn from, so its SFT set holds
conversations played by rule through the same sandboxed tools that RL uses. Some slip on purpose (a wrong tool, a
mistyped entity, a call made twice) and recover; some lack a tool and say so. What did not solve its arena is refused.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from pydantic import Field

from astra.environments.arena import ArenaWorld
from astra.llm.builtin import phrases
from astra.records import Arena, FunctionCall, Message, Probe, Section, Step, ToolCall, ToolSpec, Variant
from astra.sandbox import Sandbox
from astra.training.episodes import Case


class Demonstrating(Section):
    """How demonstrations vary."""

    slips: float = Field(ge=0, le=1, description="Share in which some steps are preceded by a needless call.")
    slip_rate: float = Field(ge=0, le=1, description="Chance of a slip before each step of such a demonstration.")
    missing_tool: float = Field(ge=0, lt=1, description="Share in which a needed tool is not there and that is said.")
    reworded: bool = Field(description="Word each question anew; off repeats the arena's own words.")


class DemonstrationFailed(Exception):
    """The demonstration did not do what it should show; ``reason`` is short and stable."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass
class Play:
    """A demonstration under way."""

    world: ArenaWorld
    messages: list[Message] = field(default_factory=list)

    def call(self, tool: str, arguments: dict[str, str], thought: str) -> bool:
        """Make one call; True where it succeeded."""
        call = ToolCall(
            id=f"call_{self.world.n_calls + 1}",
            function=FunctionCall(name=tool, arguments=json.dumps(arguments, ensure_ascii=False)),
        )
        self.messages.append(Message(role="assistant", content=thought, tool_calls=(call,)))
        seen = self.world.step(call.function.name, call.function.arguments)
        self.messages.append(
            Message(role="tool", tool_call_id=call.id, name=tool, content=seen.content,
                    executed_by=seen.executed_by, is_error=seen.is_error)
        )  # fmt: skip
        return not seen.is_error

    def say(self, text: str) -> None:
        self.messages.append(Message(role="assistant", content=text))


def demonstrate(case: Case, how: Demonstrating, rng: random.Random, sandbox: Sandbox) -> tuple[Message, ...]:
    """A conversation that does the case's question, or stops at the tool that is not there.

    Raises DemonstrationFailed where the arena was not solved: such a conversation teaches nothing.
    """
    arena = case.arena
    play = Play(ArenaWorld.of(arena, case.tools, sandbox))
    play.messages.append(Message(role="user", content=question(arena, rng) if how.reworded else arena.question))
    if arena.variant is not None:
        return _end_honestly(play, arena.variant, arena, case)
    specs = {tool.spec.name: tool.spec for tool in case.tools}
    own = {tool.spec.name: tool.spec for tool in arena.tools}
    probes = {probe.step: probe for probe in arena.probes}
    slips = rng.random() < how.slips
    for step in arena.steps:
        if not step.needs_tool:
            continue
        probe = probes[step.id]
        label = label_of(own[probe.tool])
        if probe.tool == case.missing:
            play.say(f"I cannot answer: no tool gives the {label}.")
            return tuple(play.messages)
        if slips and rng.random() < how.slip_rate:
            _slip(play, probe, specs, rng)
        play.call(probe.tool, dict(probe.arguments), thought(label, probe))
    needed = {step.id for step in arena.steps if step.needs_tool}
    if play.world.solved != needed:
        raise DemonstrationFailed(
            "demonstration_unsolved", f"{arena.id}: solved {sorted(play.world.solved)} of {sorted(needed)}"
        )
    answers = arena.answer.value if arena.answer.kind == "list" else [arena.answer.value]
    play.say(f"The answer is {' and '.join(str(value) for value in answers)}.")
    return tuple(play.messages)


def _end_honestly(play: Play, variant: Variant, arena: Arena, case: Case) -> tuple[Message, ...]:
    """Do what can be done, then say what is missing, or ask for it. Raises DemonstrationFailed."""
    specs = {tool.spec.name: tool.spec for tool in case.tools}
    for probe in arena.probes:
        play.call(probe.tool, dict(probe.arguments), thought(label_of(specs[probe.tool]), probe))
    name = variant.names[0]
    said = (
        f"I cannot answer: no tool gives the {name}."
        if variant.kind == "missing_tool"
        else f"Which {name} do you mean?"
    )
    ended = play.world.honest(said)
    if ended is None or not ended.ok:
        raise DemonstrationFailed("demonstration_dishonest", f"{arena.id}: {said}: {ended.rule if ended else ''}")
    play.say(said)
    return tuple(play.messages)


def thought(label: str, probe: Probe) -> str:
    return f"Next: {label} of {next(iter(probe.arguments.values()))}."


def _slip(play: Play, probe: Probe, specs: dict[str, ToolSpec], rng: random.Random) -> None:
    """A needless call before the right one: another tool for the same entity, a typing error, or the same twice."""
    (parameter, subject), *_ = probe.arguments.items()
    kind = rng.random()
    others = sorted(
        name
        for name, spec in specs.items()
        if name != probe.tool and list(spec.parameters.get("properties", {})) == [parameter]
    )
    if kind < 0.5 and others:
        name = rng.choice(others)
        play.call(name, {parameter: subject}, f"Next: {label_of(specs[name])} of {subject}.")
    elif kind < 0.75:
        mistyped = str(subject)[:-1] + rng.choice("qxwj")
        play.call(probe.tool, {parameter: mistyped}, f"Next: {label_of(specs[probe.tool])} of {mistyped}.")
    else:
        play.call(probe.tool, {parameter: subject}, thought(label_of(specs[probe.tool]), probe))


def label_of(spec: ToolSpec) -> str:
    """What a tool reads, in words: ``Host city of an airport.`` -> ``host city``."""
    return _label(spec.name, spec.description, tuple(spec.parameters.get("properties", {})))


@cache
def _label(name: str, description: str, parameters: tuple[str, ...]) -> str:
    schema = {
        "type": "object",
        "properties": {one: {"type": "string"} for one in parameters},
        "required": list(parameters),
    }
    form = phrases.knowledge_form({"name": name, "description": description, "parameters": schema})
    return form.label if form else phrases.words(name)


def question(arena: Arena, rng: random.Random) -> str:
    """The arena's question in the words of a new draw, where its tools are look-ups; else its own words."""
    if arena.variant is not None or any(step.operation not in (None, "list") for step in arena.steps):
        return arena.question
    forms = {tool.spec.name: tool.spec for tool in arena.tools}
    probes = {probe.step: probe for probe in arena.probes}
    branches = []
    for path in _paths(arena.steps):
        first = probes[path[0].id]
        if list(forms[first.tool].parameters.get("properties", {})) != list(first.arguments):
            return arena.question
        (table, subject), *_ = first.arguments.items()
        labels = tuple(label_of(forms[probes[step.id].tool]) for step in path)
        branches.append(phrases.Branch(table, str(subject), labels))
    word = phrases.forward_question if rng.random() < 0.5 else phrases.nested_question
    return word(branches, rng)


def _paths(steps: Sequence[Step]) -> list[list[Step]]:
    """Branches of tool steps in order; each step follows the one it depends on."""
    paths: list[list[Step]] = []
    for step in steps:
        if not step.needs_tool:
            continue
        for path in paths:
            if path[-1].id in step.depends_on:
                path.append(step)
                break
        else:
            paths.append([step])
    return paths
