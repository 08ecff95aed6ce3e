"""What is shown on the final bytes of an arena before it is certified: each check says what is wrong, or nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from astra.answers import folded, is_empty, item_of, leaves, matches, mentions, result_value
from astra.certificate.trials import NOWHERE, UNKNOWN, Tried, unlisted_options
from astra.environments.arena import is_setting
from astra.records import Answer, CodeTool, Environment, Step, canonical
from astra.sandbox import Result
from astra.tables import constants, table_of

LEAST_TELLING = 100  # a number from here on stands in a program for a reason
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
LEAST_VALUES = 3  # of a tool over all its rows; of two, every other guess is right


def unique_names(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """No two tools answer to one name, in whatever case, since some clients fold it."""
    names = [folded(tool.spec.name) for tool in arena.tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"more than one tool called {', '.join(twice)}" if twice else None


def steps_mapped(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """Steps, golden calls, tools and the answer fit together."""
    ids = [step.id for step in arena.steps]
    needed = sorted(step.id for step in arena.steps if step.needs_tool)
    if len(set(ids)) < len(ids):
        return f"a step twice: {ids}"
    if not needed:
        return "no step needs a tool"
    if sorted(probe.step for probe in arena.probes) != needed:
        return f"steps {needed} need tools, golden calls reach {sorted(probe.step for probe in arena.probes)}"
    return _wrong_dependency(arena.steps) or _wrong_service(arena) or _wrong_answer(arena) or _unsaid(arena)


def _wrong_dependency(steps: Sequence[Step]) -> str | None:
    known: set[int] = set()
    for step in steps:
        if not known >= set(step.depends_on):
            return f"step {step.id} depends on {list(step.depends_on)}, and before it are only {sorted(known)}"
        known.add(step.id)
    return None


def _wrong_service(arena: Environment) -> str | None:
    for tool in arena.tools:
        called = sorted(probe.step for probe in arena.probes if probe.tool == tool.spec.name)
        if sorted(tool.serves) != called:
            return f"{tool.spec.name} serves {sorted(tool.serves)}, golden calls use it for {called}"
    names = {tool.spec.name for tool in arena.tools}
    strange = sorted({probe.tool for probe in arena.probes} - names)
    return f"golden calls use {', '.join(strange)}, which is not there" if strange else None


def _wrong_answer(arena: Environment) -> str | None:
    for step in arena.steps:
        if is_empty(step.answer):
            return f"step {step.id} expects an empty answer"
    built_on = {one for step in arena.steps for one in step.depends_on}
    ends = [step.answer for step in arena.steps if step.id not in built_on]
    whole = Answer(kind="list", value=[one.value for one in ends])
    if not any(matches(arena.answer, one.value) for one in (*ends, whole)):
        return f"the answer {arena.answer.value!r} is none of what the steps end in"
    return None


def _unsaid(arena: Environment) -> str | None:
    """A golden call that builds on nothing takes its arguments from the question; else nobody can make it."""
    first = {step.id for step in arena.steps if not step.depends_on}
    specs = {tool.spec.name: tool.spec for tool in arena.tools}
    for probe in arena.probes:
        for name, value in probe.arguments.items() if probe.step in first else ():
            if not is_setting(specs.get(probe.tool), name, value) and not mentions(item_of(value), arena.question):
                return f"the question does not say {name} {value!r}, which step {probe.step} is asked with"
    return None


def golden(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """Every golden call gives the answer of its step."""
    expected = {step.id: step.answer for step in arena.steps}
    for one in tried:
        for probe, result in one.golden:
            answer = expected.get(probe.step)
            right = probe.expected == answer and matches(probe.expected, result_value(result.value))
            if not (result.ok and right):
                return f"step {probe.step}: {probe.tool} gives {_told(result)}, expected {probe.expected.value!r}"
    return None


def repeatable(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """Two fresh processes, other hash and random seeds, clock, time zone and locale, in opposite order: same bytes."""
    for one in tried:
        for arguments, first, second in zip(one.trial.calls, one.first, one.second, strict=True):
            if _bytes(first) != _bytes(second):
                return f"{one.trial.tool.spec.name} with {arguments}: {_told(first)}, then {_told(second)}"
    return None


def other_arguments(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """Other valid arguments give other answers, and every optional parameter has an effect."""
    for one in tried:
        wrong = _same_elsewhere(one) or _idle_setting(one)
        if wrong:
            return f"{one.trial.tool.spec.name} {wrong}"
    return None


def _same_elsewhere(one: Tried) -> str | None:
    if not one.trial.golden:
        return "is called by no golden call"
    answering = [result for result in one.others if result.ok]
    if not answering:
        return "has no other row to try"
    broken = [result for result in one.others if not result.ok and result.status != "tool_error"]
    if broken:
        return f"fails for other rows: {_told(broken[0])}"
    data = _data(one.trial.tool)
    for probe in one.trial.golden:
        if any(_tells(probe.expected, result.value, data) for result in answering):
            return f"gives {probe.expected.value!r} for other arguments too"
    return None


def _idle_setting(one: Tried) -> str | None:
    unlisted = unlisted_options(one.trial.tool)
    if unlisted:
        return f"lists no values of its optional {unlisted[0]}, so what it gives for them cannot be shown"
    for name in dict.fromkeys(name for name, _ in one.settings):
        results = [result for which, result in one.settings if which == name]
        broken = [result for result in results if not result.ok]
        if broken:
            return f"fails with a listed {name}: {_told(broken[0])}"
        if all(_bytes(result) == _bytes(one.first[0]) for result in results):
            return f"gives the same for every {name}"
    return None


def data_followed(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """With another row's value in the golden row, a golden call gives what that other row gave."""
    for one in tried:
        name = one.trial.tool.spec.name
        for probe in one.trial.golden:
            if _is_written(probe.expected, one.trial.tool):
                return f"{name} says {probe.expected.value!r} outside of its table"
        if one.trial.golden and (one.trial.swapped is None or not one.trial.swaps):
            return f"{name} has no row for a golden call in a table"
        for swap, result in zip(one.trial.swaps, one.swapped, strict=True):
            wanted = one.result(swap.other)
            if wanted is None or not wanted.ok:
                return f"{name} with {swap.other}: {_told(wanted) if wanted else 'not tried'}"
            if not result.ok or canonical(result.value) != canonical(wanted.value):
                return f"{name} with {swap.golden} over other data: {_told(result)}, not {_told(wanted)}"
    return None


def _is_written(answer: Answer, tool: CodeTool) -> bool:
    """Whether the program holds an answer as a constant that is not in its table; small numbers are in any program."""
    telling = (
        value
        for value in constants(tool.code)
        if isinstance(value, str) or (isinstance(value, int | float) and abs(value) >= LEAST_TELLING)
    )
    return any(matches(answer, value) for value in telling)


def bad_arguments(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """Arguments out of the table, missing, unknown or of another type give an error that names the parameter."""
    for one in tried:
        for bad, result in one.bad:
            if result.status != "tool_error" or not _is_named(bad.parameter, bad.value, result.error):
                return f"{one.trial.tool.spec.name} with {bad.arguments}: {_told(result)}"
    return None


def _is_named(parameter: str, value: str | None, error: str) -> bool:
    if value is not None and value in error:
        return True
    spoken = re.escape(parameter).replace("_", "[_ -]")
    return re.search(rf"(?<![^\W_]){spoken}(?![^\W_])", error, re.IGNORECASE) is not None


def no_leak(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """No tool tells the answer of a step that it does not serve; no error tells any; nothing is printed."""
    answers = [step for step in arena.steps if step.needs_tool]
    for one in tried:
        name = one.trial.tool.spec.name
        foreign = [step for step in answers if step.id not in one.trial.tool.serves]
        data = _data(one.trial.tool)
        results = [*one.others, *(result for _, result in one.golden), *(result for _, result in one.settings)]
        for step in foreign:
            if any(result.ok and _tells(step.answer, result.value, data) for result in results):
                return f"{name} tells the answer of step {step.id}"
        errors = {_own_words(result.error) for result in (*(bad for _, bad in one.bad), *one.others) if not result.ok}
        for step in answers:
            if any(mentions(step.answer, error) for error in errors):
                return f"an error of {name} tells the answer of step {step.id}"
        if any(result.printed for result in (*one.first, *one.second)):
            return f"{name} prints"
    return None


def _own_words(error: str) -> str:
    """An error without what the trial's arguments put into it."""
    return error.replace(NOWHERE, "").replace(UNKNOWN, "")


def _data(tool: CodeTool) -> frozenset[str]:
    """The texts in the tool's table."""
    table = table_of(tool.code)
    return frozenset(folded(one) for one in leaves(table.rows) if isinstance(one, str)) if table else frozenset()


def _tells(answer: Answer, value: Any, data: frozenset[str]) -> bool:
    """Whether a result holds an answer: a whole value of its data, or words in a text that it made."""
    if matches(answer, result_value(value)):
        return True
    for one in leaves(value):
        if matches(answer, one):
            return True
        if isinstance(one, str) and folded(one) not in data and mentions(answer, one):
            return True
    return False


def question_silent(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """The question says no answer of a step that needs a tool."""
    for step in arena.steps:
        if step.needs_tool and mentions(step.answer, arena.question):
            return f"the question tells the answer of step {step.id}"
    return None


def documents_silent(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """No tool's document says an answer: not its names, descriptions, enumerations, examples or defaults."""
    for tool in arena.tools:
        said = "\n".join(dict.fromkeys(_said(tool.spec.model_dump(mode="json"))))
        for step in arena.steps:
            if step.needs_tool and mentions(step.answer, said):
                return f"the document of {tool.spec.name} tells the answer of step {step.id}"
    return None


def _said(document: Any) -> Iterator[str]:
    """All that a document says in so many words; bounds and the like are numbers of another kind."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _spoken(str(name))
            if name in ("enum", "examples", "example", "default", "const"):
                yield from (str(one) for one in leaves(value))
            else:
                yield from _said(value)
    elif isinstance(document, list):
        for one in document:
            yield from _said(one)
    elif isinstance(document, str):
        yield document
        yield from _spoken(document)


def _spoken(name: str) -> Iterator[str]:
    """A name in words: ``truro_town``, ``getTruroTown``."""
    yield name.replace("_", " ")
    yield _HUMP.sub(" ", name).replace("_", " ")


def not_guessable(arena: Environment, tried: Sequence[Tried]) -> str | None:
    """No step that needs a tool has an answer that is one of two."""
    for step in arena.steps:
        if step.needs_tool and step.answer.kind == "boolean":
            return f"step {step.id} can be guessed: {step.answer.value!r}"
    for one in tried:
        values = {
            folded(canonical(result.value)) for result in (*one.others, *(won for _, won in one.golden)) if result.ok
        }
        if one.trial.golden and len(values) < LEAST_VALUES:
            return (
                f"step {one.trial.golden[0].step} can be guessed: {one.trial.tool.spec.name} gives {len(values)} values"
            )
    return None


def _bytes(result: Result) -> str:
    return canonical([result.status, result.value, result.error_type, result.error, result.notes, result.printed])


def _told(result: Result) -> str:
    return f"{result.value!r}"[:100] if result.ok else f"{result.status} {result.error!r}"[:100]


Check = Callable[[Environment, Sequence[Tried]], str | None]
CHECKS: dict[str, Check] = {
    "unique_names": unique_names,
    "steps_mapped": steps_mapped,
    "golden": golden,
    "repeatable": repeatable,
    "data_followed": data_followed,
    "other_arguments": other_arguments,
    "bad_arguments": bad_arguments,
    "no_leak": no_leak,
    "question_silent": question_silent,
    "documents_silent": documents_silent,
    "not_guessable": not_guessable,
}
