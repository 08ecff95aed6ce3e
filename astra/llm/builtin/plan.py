"""What the built-in agent means to do: the user's turns and the offered tools' documents -> calls with their sources.

A plan is made anew each turn from text alone, so it is the same in every turn of a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from astra.llm.builtin import phrases

Tool = Mapping[str, Any]  # name, description, parameters
LIKE = 0.8  # share of a clause's own words that another tool's document must have
_SMALL = frozenset(
    ["a", "an", "the", "of", "on", "in", "at", "to", "for", "from", "by", "with", "and", "or", "its", "one"]
)


class Given(NamedTuple):
    """An argument that the request states."""

    value: Any


class Earlier(NamedTuple):
    """An argument that an earlier result holds; ``step`` is that step where it is known, else any before."""

    step: int | None


class Planned(NamedTuple):
    """One call to make. ``tool`` is None where no offered tool does it."""

    tool: str | None
    says: str  # what it is for, in the request's words
    arguments: dict[str, Given | Earlier]
    last: bool  # its result is part of the answer
    dependent: bool = False  # the request says that it needs an earlier result
    turn: int = 0  # which of the user's turns asks for it


class Plan(NamedTuple):
    steps: tuple[Planned, ...]
    knowledge: bool  # every value is the one ``result`` of a table look-up

    @property
    def turn(self) -> int:
        """The last of the user's turns that asks for something."""
        return self.steps[-1].turn


def plan(said: Sequence[str], tools: Sequence[Tool]) -> Plan:
    """The calls that the user's turns ask for, in order; no steps where they are in no language known here."""
    if phrases.read_knowledge(said[0], tools):
        steps: list[Planned] = []
        for turn, text in enumerate(said):
            steps += _lookups(phrases.read_knowledge(text, tools), tools, len(steps), turn)
            follow_up = phrases.read_look_up_follow_up(text) if turn else None
            if follow_up is not None:
                steps += _further_lookups(follow_up, tools, len(steps), turn)
        return Plan(tuple(steps), True)
    told: list[tuple[int, phrases.StepText]] = []
    for turn, text in enumerate(said):
        if turn:
            told = _with_value(told, phrases.read_value(text), tools)
        told += [(turn, step) for step in phrases.read_steps(text)]
    return Plan(tuple(_step(step, tools, turn) for turn, step in told), False)


def _lookups(branches: Sequence[phrases.Branch], tools: Sequence[Tool], n: int, turn: int) -> Iterator[Planned]:
    """Steps from number ``n`` on."""
    by_label = {(form.table, form.label): tool for tool in tools if (form := phrases.knowledge_form(tool))}
    by_label_alone = {label: (table, tool) for (table, label), tool in by_label.items()}
    for branch in branches:
        for depth, label in enumerate(branch.labels):
            table, tool = by_label_alone.get(label, (branch.table, None))
            if depth == 0:
                tool = by_label.get((branch.table, label))
            source: Given | Earlier = Given(branch.key) if depth == 0 else Earlier(n - 1)
            last = depth == len(branch.labels) - 1
            yield Planned(tool["name"] if tool else None, label, {table: source}, last, turn=turn)
            n += 1


def _further_lookups(asked: phrases.FollowUp, tools: Sequence[Tool], n: int, turn: int) -> Iterator[Planned]:
    """Look-ups that go on from the latest result."""
    for step in _lookups([phrases.Branch(asked.table, "", asked.labels)], tools, n, turn):
        table = next(iter(step.arguments))
        first = step.arguments[table] == Given("")
        yield step._replace(arguments={table: Earlier(n - 1)}) if first else step


def _with_value(
    told: Sequence[tuple[int, phrases.StepText]], value: Mapping[str, str], tools: Sequence[Tool]
) -> list[tuple[int, phrases.StepText]]:
    """The steps with a value that was given later, where their tool takes it and nothing was given."""
    filled = []
    for turn, step in told:
        tool = _tool_for(step, tools)
        takes = {phrases.label(name) for name in tool["parameters"].get("properties", {})} if tool else set()
        more = {name: text for name, text in value.items() if name in takes}
        filled.append((turn, step._replace(given={**more, **step.given})))
    return filled


def _step(told: phrases.StepText, tools: Sequence[Tool], turn: int) -> Planned:
    tool = _tool_for(told, tools)
    if tool is None:
        return Planned(None, told.clause, {}, True, told.dependent, turn)
    properties, required = tool["parameters"].get("properties", {}), tool["parameters"].get("required", [])
    arguments: dict[str, Given | Earlier] = {}
    for name, schema in properties.items():
        if phrases.label(name) in told.given:
            arguments[name] = Given(phrases.value_of(told.given[phrases.label(name)], schema))
        elif name in required:
            arguments[name] = Earlier(None)
    return Planned(tool["name"], told.clause, arguments, True, told.dependent, turn)


def _tool_for(told: phrases.StepText, tools: Sequence[Tool]) -> Tool | None:
    """The tool whose clause is the step's; of several the one that takes what is given and wants nothing else.

    A clause in other words is met by a tool only that has nearly all that it says: a credit note books no payment.
    """
    named = [tool for tool in tools if phrases.clause(tool) == told.clause]
    fitting = [tool for tool in named or tools if _takes(tool, told)]
    if not named:
        fitting = [tool for tool in fitting if _overlap(tool, told) >= LIKE]
    return max(fitting or named, key=lambda tool: (_overlap(tool, told), -_n_missing(tool, told)), default=None)


def _takes(tool: Tool, told: phrases.StepText) -> bool:
    return told.given.keys() <= {phrases.label(name) for name in tool["parameters"].get("properties", {})}


def _n_missing(tool: Tool, told: phrases.StepText) -> int:
    return sum(phrases.label(name) not in told.given for name in tool["parameters"].get("required", []))


def _overlap(tool: Tool, told: phrases.StepText) -> float:
    """The share of the words of a clause that say something which the tool has."""
    asked = set(told.clause.lower().split()) - _SMALL
    offered = set(phrases.clause(tool).lower().split()) | set(phrases.words(str(tool["name"])).split())
    return len(asked & offered) / max(1, len(asked))


# ---------------------------------------------------------------- values out of results


class Leaf(NamedTuple):
    """A plain value in a result, with the names on the way to it."""

    path: tuple[str, ...]
    value: Any


def read_result(content: str) -> Any:
    """A result as JSON where it is JSON, else its text."""
    try:
        return json.loads(content)
    except ValueError:
        return content


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All plain values of a result, outermost first in written order."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from leaves(one, (*path, str(name)))
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one, path)
    elif value is not None:
        yield Leaf(path, value)


def found_in(
    result: Any, parameter: str, schema: Mapping[str, Any], noun: str, taken: Sequence[Any] = ()
) -> tuple[int, Any] | None:
    """The value of a result that best fills a parameter, and how well by name (0 to 5); none of ``taken``."""
    best: tuple[int, Any] | None = None
    whole = [Leaf((str(name),), one) for name, one in result.items()] if isinstance(result, dict) else []
    nested = [leaf for leaf in whole if isinstance(leaf.value, dict | list)]
    for leaf in [*nested, *leaves(result)]:
        value = _as_type(leaf.value, schema)
        rank = _name_fit(leaf.path, parameter, str(schema.get("description", "")), noun)
        if value is not None and value not in taken and (best is None or rank > best[0]):
            best = (rank, value)
    return best


def _as_type(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value as the parameter's type takes it; None where it does not."""
    kind = schema.get("type", "string")
    kinds = {kind} if isinstance(kind, str) else set(kind)
    if "enum" in schema and value not in schema["enum"]:
        return None
    if isinstance(value, dict):
        return value if "object" in kinds else None
    if isinstance(value, list):
        return value if "array" in kinds and value else None
    if isinstance(value, bool):
        return value if "boolean" in kinds else None
    if isinstance(value, str):
        fits = "string" in kinds
    else:
        fits = "number" in kinds or ("integer" in kinds and float(value).is_integer())
        if not fits and "string" in kinds:
            return str(value)
    if fits:
        return value
    if "array" in kinds:
        inner = _as_type(value, schema.get("items", {}))
        return None if inner is None else [inner]
    return None


def _name_fit(path: tuple[str, ...], parameter: str, description: str, noun: str) -> int:
    """How well the names on the way to a value say that it is the parameter.

    5 the same name; 4 a longer form of it; 3 its last word, about the same noun; 2 all its words are in the parameter's
    name and description; 1 a word in common; 0 nothing.
    """
    wanted, has = _stems(parameter), _stems(path[-1]) if path else []
    around = {stem for name in path[:-1] for stem in _stems(name)} | {_singular(noun)}
    if not has:
        return 0
    if wanted == has:
        return 5
    if has[-len(wanted) :] == wanted:
        return 4
    if len(wanted) > 1 and has == wanted[-1:]:
        return 3 if wanted[-2] in around else 2
    if set(has) <= {*wanted, *_stems(description)}:
        return 2
    return 1 if set(wanted) & set(has) else 0


def _stems(text: str) -> list[str]:
    return [_singular(word) for word in phrases.words(text).split()]


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and len(word) > 3 else word
