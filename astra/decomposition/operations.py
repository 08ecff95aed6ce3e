"""Named operations: how an answer is computed from the answers of the steps that it depends on.

A step without a tool names its operation, or leaves it open and the one that gives its answer is found. An operation
that does not apply (mixed units, a tie, too few values) gives nothing, and nothing is ever derived from nothing.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from astra.answers import Comparison, folded, item_of, matches
from astra.records import Answer, Step


class NotComputable(Exception):
    """The operation does not apply to these values."""


class Operand(NamedTuple):
    """One step's answer, the entity that it was asked of, and those that the steps before it were asked of."""

    answer: Answer
    subject: str | None
    through: tuple[str, ...] = ()


class Operation(NamedTuple):
    """What it computes, in words for the teacher. ``chooses``: the answer is one of the entities in the question."""

    means: str
    compute: Callable[[Sequence[Operand]], Answer]
    chooses: bool = False


def _numbers(operands: Sequence[Operand], least: int = 2) -> tuple[list[float], str | None]:
    units = {one.answer.unit for one in operands}
    values = [one.answer.value for one in operands]
    if len(values) < least or any(one.answer.kind != "number" for one in operands) or len(units) > 1:
        raise NotComputable("it takes numbers of one unit")
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise NotComputable("it takes plain numbers")
    return values, units.pop()


def _number(value: float, unit: str | None) -> Answer:
    """A computed number without the noise of floating point."""
    if not math.isfinite(value):
        raise NotComputable("the result is no number")
    return Answer(kind="number", value=value if isinstance(value, int) else float(f"{value:.12g}"), unit=unit)


def _exact_sum(values: Sequence[float]) -> float:
    return sum(values) if all(isinstance(one, int) for one in values) else math.fsum(values)


def _same(operands: Sequence[Operand]) -> Answer:
    if len(operands) != 1:
        raise NotComputable("it takes one answer")
    return operands[0].answer


def _list(operands: Sequence[Operand]) -> Answer:
    if len(operands) < 2 or any(one.answer.kind == "list" for one in operands):
        raise NotComputable("it takes several single answers")
    return Answer(kind="list", value=[one.answer.value for one in operands])


def _lists(operands: Sequence[Operand], least: int) -> list[list[Any]]:
    if len(operands) < least or any(one.answer.kind != "list" for one in operands):
        raise NotComputable("it takes lists")
    return [one.answer.value for one in operands]


def _union(operands: Sequence[Operand]) -> Answer:
    return Answer(kind="list", value=_distinct([one for items in _lists(operands, 2) for one in items]))


def _intersection(operands: Sequence[Operand]) -> Answer:
    first, *others = _lists(operands, 2)
    kept = [one for one in first if all(any(matches(item_of(one), other) for other in items) for items in others)]
    if not kept:
        raise NotComputable("they have nothing in common")
    return Answer(kind="list", value=_distinct(kept)) if len(kept) > 1 else item_of(kept[0])


def _distinct(items: Sequence[Any]) -> list[Any]:
    kept: list[Any] = []
    for one in items:
        if not any(matches(item_of(other), one) for other in kept):
            kept.append(one)
    return kept


def _count(operands: Sequence[Operand]) -> Answer:
    return Answer(kind="number", value=len(_distinct([one for items in _lists(operands, 1) for one in items])))


def _sum(operands: Sequence[Operand]) -> Answer:
    values, unit = _numbers(operands)
    return _number(_exact_sum(values), unit)


def _mean(operands: Sequence[Operand]) -> Answer:
    values, unit = _numbers(operands)
    return _number(_exact_sum(values) / len(values), unit)


def _difference(operands: Sequence[Operand]) -> Answer:
    values, unit = _numbers(operands)
    if len(values) != 2:
        raise NotComputable("it takes two numbers")
    return _number(_exact_sum([max(values), -min(values)]), unit)


def _product(operands: Sequence[Operand]) -> Answer:
    values, unit = _numbers(operands)
    if unit:
        raise NotComputable("a product has another unit")
    return _number(math.prod(values), None)


def _ratio(operands: Sequence[Operand]) -> Answer:
    values, _ = _numbers(operands)
    if len(values) != 2 or values[1] == 0:
        raise NotComputable("it takes two numbers, the second not 0")
    return _number(values[0] / values[1], None)


def _days_between(operands: Sequence[Operand]) -> Answer:
    if len(operands) != 2:
        raise NotComputable("it takes two dates")
    first, second = map(_date, operands)
    return Answer(kind="number", value=abs((second - first).days))


def _date(operand: Operand) -> datetime.date:
    try:
        return datetime.date.fromisoformat(str(operand.answer.value))
    except ValueError:
        raise NotComputable("it takes dates as YYYY-MM-DD") from None


def _ordered(operands: Sequence[Operand]) -> list[Operand]:
    """By number or date, smallest first."""
    if operands and all(one.answer.kind == "date" for one in operands):
        return sorted(operands, key=_date)
    _numbers(operands)
    return sorted(operands, key=lambda one: float(one.answer.value))


def _ends(operands: Sequence[Operand], largest: bool) -> Operand:
    ordered = _ordered(operands)
    if len(ordered) < 2:
        raise NotComputable("it takes several answers")
    first, second = ordered[-1:-3:-1] if largest else ordered[:2]
    if matches(first.answer, second.answer.value):
        raise NotComputable("it is a tie")
    return first


def _max(operands: Sequence[Operand]) -> Answer:
    return _ordered(operands)[-1].answer


def _min(operands: Sequence[Operand]) -> Answer:
    return _ordered(operands)[0].answer


def _which(operand: Operand) -> Answer:
    if operand.subject is None:
        raise NotComputable("the step that it chooses names no subject")
    return Answer(kind="text", value=operand.subject)


def _which_max(operands: Sequence[Operand]) -> Answer:
    return _which(_ends(operands, largest=True))


def _which_min(operands: Sequence[Operand]) -> Answer:
    return _which(_ends(operands, largest=False))


def _equal(operands: Sequence[Operand]) -> Answer:
    if len(operands) < 2 or len({one.answer.kind for one in operands}) > 1:
        raise NotComputable("it takes several answers of one kind")
    first, *others = operands
    return Answer(kind="boolean", value=all(bool(matches(first.answer, one.answer.value)) for one in others))


def _greater(operands: Sequence[Operand]) -> Answer:
    if len(operands) != 2:
        raise NotComputable("it takes two answers")
    return Answer(kind="boolean", value=_ends(operands, largest=True) == operands[0])


OPERATIONS: dict[str, Operation] = {
    "same": Operation("the one answer that it depends on, restated", _same),
    "list": Operation("all of these answers", _list),
    "union": Operation("all items of several lists, each once", _union),
    "intersection": Operation("what is in all of the lists", _intersection),
    "count": Operation("how many different items the lists have", _count),
    "sum": Operation("all numbers together", _sum),
    "mean": Operation("their average", _mean),
    "difference": Operation("by how much two numbers differ, never negative", _difference),
    "product": Operation("numbers without a unit multiplied", _product),
    "ratio": Operation("the first number divided by the second", _ratio),
    "days_between": Operation("days from one date to the other", _days_between),
    "max": Operation("the largest number or latest date", _max),
    "min": Operation("the smallest number or earliest date", _min),
    "which_max": Operation("the subject with the largest number or latest date", _which_max, chooses=True),
    "which_min": Operation("the subject with the smallest number or earliest date", _which_min, chooses=True),
    "equal": Operation("true where all answers are the same, else false", _equal),
    "greater": Operation("true where the first is larger or later than the second, else false", _greater),
}


def operands_of(step: Step, steps: Sequence[Step]) -> list[Operand]:
    """What a step computes with, in the order in which it names its dependencies."""
    by_id = {one.id: one for one in steps}

    def through(one: Step) -> tuple[str, ...]:
        found, todo = dict.fromkeys(one.depends_on), list(one.depends_on)
        while todo:
            for number in by_id[todo.pop()].depends_on:
                if number not in found:
                    found[number] = None
                    todo.append(number)
        return tuple(name for number in found if (name := by_id[number].subject) is not None)

    return [Operand(one.answer, one.subject, through(one)) for one in map(by_id.__getitem__, step.depends_on)]


def computed(operation: str, operands: Sequence[Operand]) -> Answer:
    """The result of a named operation. Raises NotComputable."""
    if operation not in OPERATIONS:
        raise NotComputable(f"no operation is called {operation!r}; there are: {', '.join(OPERATIONS)}")
    return OPERATIONS[operation].compute(operands)


def gives(operation: str, operands: Sequence[Operand], expected: Answer) -> bool:
    """Whether the operation applies and gives that answer, unit included.

    A choice may name the entity that the question starts from: ``which film's director was born first``.
    """
    try:
        found = computed(operation, operands)
    except NotComputable:
        return False
    if OPERATIONS[operation].chooses:
        chosen = next(one for one in operands if one.subject == found.value)
        return any(matches(expected, name) for name in (found.value, *chosen.through))
    return (
        found.kind == expected.kind and (found.unit or None) == (expected.unit or None) and bool(_fits(expected, found))
    )


def _fits(expected: Answer, found: Answer) -> Comparison:
    if expected.kind == "boolean":
        return Comparison(folded(str(expected.value)) == folded(str(found.value)), "boolean")
    return matches(expected, found.value)


# What is tried where nobody names an operation. Either of two entities is the larger or the smaller one, so a choice
# is inferred only where the question says which.
INFERRED = ("same", "list", "union", "intersection", "count", "sum", "difference", "days_between", "equal")
EXTREMES = ("which_max", "which_min", "max", "min")
_LATE = re.compile(
    r"\b(?:later|latest|last|younger|youngest|newer|newest|(?:most|more) recent(?:ly)?|after)\b|更晚|最晚|更年轻"
)
_EARLY = re.compile(r"\b(?:first|earlier|earliest|older|oldest|before|sooner)\b|更早|最早|首先|更老|年长")
_LARGE = re.compile(
    r"\b(?:larger|largest|more|most|higher|highest|greater|greatest|bigger|biggest|longer|longest|taller|tallest|"
    r"heavier|heaviest|deeper|deepest|older|oldest|maximum)\b|更大|最大|更多|最多|更高|最高|更长|最长|更重"
)
_SMALL = re.compile(
    r"\b(?:smaller|smallest|less|least|fewer|fewest|lower|lowest|shorter|shortest|lighter|lightest|younger|youngest|"
    r"minimum)\b|更小|最小|更少|最少|更低|最低|更短|最短|更轻"
)


def direction(question: str, operands: Sequence[Operand]) -> str | None:
    """``max`` or ``min`` where the question asks for that end, of dates or of numbers; None where it says neither."""
    are_dates = all(one.answer.kind == "date" for one in operands)
    high, low = (_LATE, _EARLY) if are_dates else (_LARGE, _SMALL)
    asked = [name for name, words in (("max", high), ("min", low)) if words.search(question.casefold())]
    return asked[0] if len(asked) == 1 else None


def against(operation: str, question: str, operands: Sequence[Operand]) -> bool:
    """Whether an operation takes one end where the question asks for the other."""
    asked = direction(question, operands)
    return operation in EXTREMES and asked is not None and not operation.endswith(asked)


def inferred(operands: Sequence[Operand], expected: Answer, question: str) -> str | None:
    """The first operation that gives that answer to the question; None where none does."""
    asked = direction(question, operands)
    tried = INFERRED + tuple(name for name in EXTREMES if asked is not None and name.endswith(asked))
    return next((name for name in tried if gives(name, operands, expected)), None)
