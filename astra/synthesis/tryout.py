"""What a written function is put through before it is taken, and what its writer is told.

First on the example rows, which the writer knows, with everything that its document promises; what goes wrong there is
told in full. Then on the rows of each question, with the answer as it is and with another value in its place: a
function that does not follow its data knows the answer from elsewhere. Of those rows the writer is told nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

from astra.answers import folded, matches, result_value
from astra.records import Answer
from astra.sandbox import Job, Result
from astra.synthesis.documents import Document, values_of
from astra.synthesis.rows import Row, is_other, like, program

NOWHERE = "no such entry"
NO_VALUE = "no such value"
TOGETHER = 100  # calls in one process
TOLD = 300  # characters of the sandbox's error
PLACEHOLDERS: dict[str, tuple[Any, ...]] = {
    "text": ("alpha", "beta"),
    "number": (12.5, 1700),
    "date": ("2021-03-04", "1999-11-30"),
    "boolean": (True, False),
    "list": (["alpha", "beta"], ["gamma", "delta"]),
}


class Call(NamedTuple):
    """One call and what it must give: this value, an error that names one of these, or (both none) any result."""

    arguments: dict[str, Any]
    value: Answer | None = None
    error: tuple[str, ...] = ()


def examples_or_placeholders(rows: Sequence[Row], keys: Sequence[str], answer: Answer) -> list[Row]:
    """At least two rows with different values that are nobody's answer."""
    if len({folded(str(row.value)) for row in rows}) > 1:
        return list(rows)
    return [Row(tuple(f"{key} {n}" for key in keys), value) for n, value in enumerate(PLACEHOLDERS[answer.kind], 1)]


# ---------------------------------------------------------------- on rows that the writer knows


def example_calls(document: Document, rows: Sequence[Row], answer: Answer) -> list[Call]:
    """Every row, every key that no row has, every option's default, values and a value that it does not list."""
    calls = [Call(_arguments(document, row), like(answer, row.value)) for row in rows]
    first = _arguments(document, rows[0])
    calls += [Call({**first, key: NOWHERE}, error=(key, NOWHERE)) for key in document.keys]
    for name, option in document.options.items():
        default, *others = values_of(option)
        calls.append(Call({**first, name: default}, like(answer, rows[0].value)))
        calls += [Call({**_arguments(document, row), name: value}) for row in rows for value in others]
        if "enum" in option:
            calls.append(Call({**first, name: NO_VALUE}, error=(name, NO_VALUE)))
    return calls


def job(function: str, document: Document, rows: Sequence[Row], calls: Sequence[Mapping[str, Any]]) -> Job:
    return Job(program(rows, function), document.name, tuple(calls))


def trouble(document: Document, rows: Sequence[Row], calls: Sequence[Call], results: Sequence[Result]) -> str | None:
    """What is wrong with a function on its example rows; None where all is right."""
    for call, result in zip(calls, results, strict=True):
        wrong = _wrong(document, call, result)
        if wrong is not None:
            return f"called with {json.dumps(call.arguments, ensure_ascii=False)} the function {wrong}"
    return _idle_option(document, rows, calls, results)


def _wrong(document: Document, call: Call, result: Result) -> str | None:
    if result.printed:
        return "prints"
    if call.error:
        if result.status == "tool_error" and any(word in result.error for word in call.error):
            return None
        return f"does not raise an error that names {' or '.join(map(repr, call.error))}: {told(result)}"
    if not result.ok:
        return f"fails: {told(result)}"
    fault = fault_of_form(document, result)
    if fault is not None:
        return fault
    if call.value is not None and not matches(call.value, result_value(result.value)):
        return f"returns {json.dumps(result.value, ensure_ascii=False)[:TOLD]}, the entry is {call.value.value!r}"
    return None


def fault_of_form(document: Document, result: Result) -> str | None:
    """Where a result does not fit the document; never its value."""
    for error in Draft202012Validator(document.returns).iter_errors(result.value):
        where = ".".join(map(str, error.absolute_path)) or "the result"
        return f"returns what `returns` does not describe: {where}, by {error.validator}"
    return None


def _idle_option(
    document: Document, rows: Sequence[Row], calls: Sequence[Call], results: Sequence[Result]
) -> str | None:
    """An optional parameter one of whose values changes nothing on any row."""
    plain = {row.keys: result.value for row, result in zip(rows, results, strict=False)}
    given = list(zip(calls, results, strict=True))
    for name, option in document.options.items():
        for value in values_of(option)[1:]:
            changed = [result.value != plain[tuple(call.arguments[key] for key in document.keys)]
                       for call, result in given if call.arguments.get(name) == value and not call.error]  # fmt: skip
            if changed and not any(changed):
                return f"{name}={value!r} changes nothing in what the function returns"
    return None


def told(result: Result) -> str:
    """A result that is no value, in the sandbox's words."""
    if result.ok:
        return f"it returns {json.dumps(result.value, ensure_ascii=False)[:TOLD]}"
    return f"{result.status}: {result.error_type} {result.error[:TOLD]}".rstrip()


# ---------------------------------------------------------------- on the rows of a question


class Case(NamedTuple):
    """One step's data, the call that reads its answer, and the answer."""

    rows: Sequence[Row]
    golden: Mapping[str, str]
    answer: Answer

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.golden.values())


def golden_jobs(function: str, document: Document, cases: Sequence[Case]) -> list[Job]:
    """The golden call of every case, on its own data."""
    return [job(function, document, one.rows, [one.golden]) for one in cases]


def swapped_jobs(function: str, document: Document, cases: Sequence[Case]) -> list[Job]:
    """The golden calls again, many in one process, on data that hold other values in the answers' places."""
    values = _swapped(cases)
    groups = [cases[start : start + TOGETHER] for start in range(0, len(cases), TOGETHER)]
    return [
        job(function, document, [Row(one.keys, values[one.keys]) for one in group], [one.golden for one in group])
        for group in groups
    ]


def _swapped(cases: Sequence[Case]) -> dict[tuple[str, ...], Any]:
    """Another value for every golden entry: one of the case's other rows."""
    values: dict[tuple[str, ...], Any] = {}
    for one in cases:
        options = [*(row.value for row in one.rows), *PLACEHOLDERS[one.answer.kind]]
        values.setdefault(one.keys, next(value for value in options if is_other(value, [one.answer])))
    return values


def hidden_troubles(
    document: Document, cases: Sequence[Case], plain: Sequence[Result], swapped: Sequence[Result]
) -> list[str | None]:
    """What is wrong on rows that the writer does not see, case by case, told without what stands in them."""
    values = _swapped(cases)
    found = []
    for one, first, second in zip(cases, plain, swapped, strict=True):
        other = like(one.answer, values[one.keys])
        hidden = [*one.rows, Row((), other.value)]
        found.append(_hidden(document, hidden, one.answer, first) or _hidden(document, hidden, other, second))
    return found


def _hidden(document: Document, rows: Sequence[Row], answer: Answer, result: Result) -> str | None:
    wrong = "called for an entry that is not among the examples the function"
    if result.printed:
        return f"{wrong} prints"
    if not result.ok:
        return f"{wrong} fails: {_without(result, rows)}"
    fault = fault_of_form(document, result)
    if fault is not None:
        return f"{wrong} {fault}"
    if not matches(answer, result_value(result.value)):
        return f"{wrong} returns another value than its data have"
    return None


def _without(result: Result, rows: Sequence[Row]) -> str:
    """The sandbox's words, unless something of the rows stands in them."""
    hidden = [folded(str(one)) for row in rows for one in (*row.keys, row.value)]
    error = folded(result.error)
    return f"{result.status}: {result.error_type}" if any(one in error for one in hidden) else told(result)


def _arguments(document: Document, row: Row) -> dict[str, Any]:
    return dict(zip(document.keys, row.keys, strict=True))
