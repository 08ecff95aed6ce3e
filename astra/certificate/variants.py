"""Arenas that cannot be done as asked, made from certified ones: a needed tool is not there, or a value is not said.

Both teach to stop: the paid end is a truthful refusal that names what is missing, or a question for it. A variant keeps
what was taken from it, so that the arena that it came from can be rebuilt and certified again from the file alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from astra.answers import says, words
from astra.certificate.agents import Agent, in_order, said
from astra.records import CodeTool, Environment, Probe, Step, ToolSpec, Variant, content_id
from astra.wording import language

UNSAID = ("a certain {}", "one particular {}", "some {}", "a specific {}")
_LABEL = re.compile(r"^(?:returns?|gets?|fetch(?:es)?|gives?|finds?|looks? up|reads?)?\s*(?:the |an? )?(?P<label>.+?)"
                    r" (?:of|for) (?:an?|the|one|each)(?: given)? [\w ]+$", re.IGNORECASE)  # fmt: skip


def label_of(spec: ToolSpec) -> str:
    """What a tool reads, in words: ``Host city of an airport.`` -> ``host city``."""
    first = spec.description.split(". ")[0].strip().rstrip(".")
    found = _LABEL.match(first)
    label = found["label"] if found else spec.name.replace("_", " ")
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def without_tool(arena: Environment, rng: random.Random) -> tuple[Environment, Variant] | None:
    """The arena without one of its tools; None where what is missing cannot be told from what is there."""
    tool = rng.choice(arena.tools)
    label = label_of(tool.spec)
    others = [one for one in arena.tools if one is not tool]
    if any(words(label_of(one.spec)) == words(label) for one in others):
        return None
    names = dict.fromkeys((label, tool.spec.name.replace("_", " "), tool.spec.name))
    return _taken(arena, "missing_tool", set(tool.serves), tuple(names), arena.question, tool, None)


def without_value(arena: Environment, rng: random.Random) -> tuple[Environment, Variant] | None:
    """The arena whose question no longer says what one of its branches is about; None where it cannot be left out."""
    options = [probe for probe in in_order(arena) if _is_sayable(arena, probe)]
    if not options or language(arena.question) not in (None, "en"):
        return None
    probe = rng.choice(options)
    (parameter, value), *_ = probe.arguments.items()
    names = nouns(parameter)
    unsaid = rng.choice(UNSAID).format(names[0])
    spoken = "|".join(re.escape(one) for one in names)
    question = re.sub(
        rf"(?:\b(?:the|an?) )?\b(?:{spoken}) {re.escape(value)}(?![^\W_])", unsaid, arena.question, count=1, flags=re.I
    )
    if question == arena.question or says(value, question):
        return None
    return _taken(arena, "missing_value", {probe.step}, names, question, None, value)


def nouns(parameter: str) -> tuple[str, ...]:
    """What a parameter's value is called, the plainest first: ``airport_code`` -> airport, airport code."""
    whole = parameter.replace("_", " ").strip()
    plain = re.sub(r" (?:name|id|code|key|title)$", "", whole)
    return tuple(dict.fromkeys((plain, whole)))


def _is_sayable(arena: Environment, probe: Probe) -> bool:
    """Whether a golden call builds on nothing and its one argument is a text that the question says once."""
    step = next(one for one in arena.steps if one.id == probe.step)
    if step.depends_on or len(probe.arguments) != 1:
        return False
    (value,) = probe.arguments.values()
    return isinstance(value, str) and arena.question.count(value) == 1


def _taken(
    arena: Environment, kind: str, first: set[int], names: tuple[str, ...], question: str,
    tool: CodeTool | None, value: str | None,
) -> tuple[Environment, Variant]:  # fmt: skip
    lost = _builds_on(arena.steps, first)
    label = {one.spec.name: label_of(one.spec) for one in arena.tools}
    done = {label[one.tool] for one in arena.probes if one.step not in lost}
    variant = Variant.model_validate(
        {
            "kind": kind,
            "base": arena.id,
            "question": arena.question,
            "tools": tuple(one.spec.name for one in arena.tools),
            "probes": tuple(one.step for one in arena.probes),
            "step": min(first),
            "names": names,
            "labels": tuple(dict.fromkeys(label.values())),
            "undone": tuple(one for one in dict.fromkeys(label[one.tool] for one in arena.probes) if one not in done),
            "tool": tool,
            "value": value,
            "lost": tuple(one for one in arena.probes if one.step in lost),
        }
    )
    changed = {
        "id": content_id("environment", arena.id, kind, tool.spec.name if tool else value, question),
        "question": question,
        "tools": tuple(one for one in arena.tools if one is not tool),
        "probes": tuple(one for one in arena.probes if one.step not in lost),
    }
    return arena.model_copy(update=changed), variant


def _builds_on(steps: Sequence[Step], first: set[int]) -> set[int]:
    """Steps, and all that depend on them."""
    lost = set(first)
    for step in steps:
        if lost & set(step.depends_on):
            lost.add(step.id)
    return lost


def rebuilt(arena: Environment, variant: Variant) -> Environment:
    """The arena that a variant was made from. Raises ValueError where what was taken does not fill what is missing."""
    tools = {one.spec.name: one for one in (*arena.tools, *([variant.tool] if variant.tool else []))}
    probes = {one.step: one for one in (*arena.probes, *variant.lost)}
    if sorted(tools) != sorted(variant.tools) or sorted(probes) != sorted(variant.probes):
        raise ValueError(
            f"{arena.id}: tools {sorted(tools)} and steps {sorted(probes)} are not those of {variant.base}"
        )
    changed = {
        "id": variant.base,
        "question": variant.question,
        "tools": tuple(tools[name] for name in variant.tools),
        "probes": tuple(probes[step] for step in variant.probes),
    }
    return arena.model_copy(update=changed)


def withheld(arena: Environment, variant: Variant) -> str | None:
    """What was taken is really not there, is what the lost steps need, and all of it is noted."""
    base = rebuilt(arena, variant)
    if variant.kind == "missing_tool":
        if variant.tool is None or variant.value is not None or arena.question != variant.question:
            return "a missing tool takes a tool and nothing else"
        if variant.tool.spec.name in {one.spec.name for one in arena.tools}:
            return f"{variant.tool.spec.name} is still there"
        first = set(variant.tool.serves)
    else:
        if variant.tool is not None or variant.value is None or arena.question == variant.question:
            return "a missing value takes a value and nothing else"
        if says(variant.value, arena.question) or not says(variant.value, variant.question):
            return f"the question says {variant.value!r}, or did not before"
        first = {probe.step for probe in variant.lost if variant.value in probe.arguments.values()} & {variant.step}
    lost = _builds_on(base.steps, first) & {probe.step for probe in base.probes}
    if not first or variant.step != min(first) or {probe.step for probe in variant.lost} != lost:
        return f"steps {sorted(lost)} cannot be done, noted are {sorted(probe.step for probe in variant.lost)}"
    return None


def refusing(arena: Environment, variant: Variant) -> dict[str, Agent]:
    """The agents of an arena that cannot be done."""
    able = tuple((probe.tool, probe.arguments) for probe in in_order(arena))
    blind = tuple((probe.tool, probe.arguments) for probe in variant.lost)
    end = honest_end(variant)
    invented = tuple(blind[:1])
    return {
        "honest": Agent(able, end, 1.0, 1.0),
        "honest_at_once": Agent((), end, 1.0, 1.0),
        "do_nothing": Agent((), "", 0.0),
        "echo": Agent((), arena.question, 0.0),
        "vague": Agent((), "I cannot answer." if variant.kind == "missing_tool" else "Can you clarify?", 0.0),
        "answer_anyway": Agent(able, said(arena.answer), 0.0),
        "guess": Agent(able, f"{end} It is probably {variant.lost[0].expected.value}.", 0.0),
        "invented_call": Agent((*able, *invented), end, 2 / 3),
    }


def honest_end(variant: Variant) -> str:
    """A final message that is the honest end."""
    if variant.kind == "missing_tool":
        return f"I cannot answer: no tool gives the {variant.names[0]}."
    return f"Which {variant.names[0]} do you mean?"


def drawn(
    arena: Environment, missing_tool: float, missing_value: float, seed: int
) -> Iterator[tuple[Environment, Variant]]:
    """The variant of an arena, if the draw that is its own gives it one."""
    rng = random.Random(f"{seed}:variant:{arena.id}")
    share = rng.random()
    made = None
    if share < missing_tool:
        made = without_tool(arena, rng)
    elif share < missing_tool + missing_value:
        made = without_value(arena, rng)
    if made is not None:
        yield made
