"""Named operations compute answers from answers, with their types and units, or do not apply."""

from __future__ import annotations

import pytest

from astra.decomposition.draft import natural
from astra.decomposition.operations import (
    OPERATIONS,
    NotComputable,
    Operand,
    against,
    computed,
    direction,
    gives,
    inferred,
    operands_of,
)
from tests.decomposition.drafts import step


def operands(*values, unit=None):
    return [Operand(natural(value, unit), f"s{place}") for place, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("operation", "values", "result"),
    [
        ("same", ["Lima"], "Lima"),
        ("list", ["Lima", "Oslo"], ["Lima", "Oslo"]),
        ("union", [["a", "b"], ["b", "c"]], ["a", "b", "c"]),
        ("intersection", [["a", "b"], ["B", "c"]], "b"),
        ("count", [["a", "b", "A"]], 2),
        ("sum", [1, 2, 3], 6),
        ("sum", [0.1, 0.2], 0.3),
        ("mean", [1, 2], 1.5),
        ("difference", [3, 10], 7),
        ("difference", [10, 3], 7),
        ("product", [3, 4], 12),
        ("ratio", [3, 4], 0.75),
        ("days_between", ["2020-03-01", "28 February 2020"], 2),
        ("max", [3, 10], 10),
        ("min", ["2020-03-01", "2019-03-01"], "2019-03-01"),
        ("which_max", [3, 10], "s2"),
        ("which_min", ["2020-03-01", "2019-03-01", "2021-01-01"], "s2"),
        ("equal", ["Peru", "peru"], True),
        ("equal", ["Peru", "Chad"], False),
        ("greater", [3, 10], False),
    ],
)
def test_an_operation_gives_its_result_and_no_other(operation, values, result):
    assert computed(operation, operands(*values)) == natural(result)
    assert gives(operation, operands(*values), natural(result))
    assert not gives(operation, operands(*values), natural("something else"))


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("sum", [1, "Lima"]),
        ("sum", [1]),
        ("sum", []),
        ("sum", [True, 1]),
        ("difference", [1, 2, 3]),
        ("ratio", [1, 0]),
        ("which_max", [3, 3]),
        ("which_min", [3]),
        ("max", []),
        ("min", ["Lima", "Oslo"]),
        ("days_between", ["2020-03-01", "Lima"]),
        ("count", ["Lima"]),
        ("intersection", [["a"], ["b"]]),
        ("same", ["a", "b"]),
        ("list", ["a"]),
        ("equal", ["Lima", 3]),
        ("greater", [3, 3]),
        ("sum_up", [1, 2]),
    ],
)
def test_what_does_not_apply_gives_nothing(operation, values):
    with pytest.raises(NotComputable):
        computed(operation, operands(*values))
    assert not gives(operation, operands(*values), natural(3)) if operation in OPERATIONS else True


def test_units_are_kept_and_never_mixed():
    assert computed("sum", operands(1, 2, unit="km")).unit == "km"
    assert not gives("sum", operands(1, 2, unit="km"), natural(3))
    mixed = [*operands(1, unit="km"), *operands(2, unit="m")]
    assert inferred(mixed, natural("3 km"), "How much?") is None
    with pytest.raises(NotComputable):
        computed("product", operands(1, 2, unit="km"))


def test_a_choice_may_name_the_entity_that_its_branch_starts_from():
    steps = [
        step(1, "Ann", subject="Film A"), step(2, "1960-01-01", 1, subject="Ann"),
        step(3, "Bob", subject="Film B"), step(4, "1950-01-01", 3, subject="Bob"),
        step(5, "Film B", 2, 4, tool=False),
    ]  # fmt: skip
    asked = operands_of(steps[-1], steps), steps[-1].answer
    assert inferred(*asked, "Which film has the director who was born first?") == "which_min"
    assert inferred(*asked, "Which film has the younger director?") is None
    assert inferred(*asked, "Which film is it?") is None
    assert gives("which_min", operands_of(steps[-1], steps), natural("Bob"))
    assert not gives("which_min", operands_of(steps[-1], steps), natural("Film A"))


def test_nothing_is_inferred_for_an_answer_that_no_operation_gives():
    assert inferred(operands(3, 4), natural(8), "How much?") is None
    assert inferred([], natural("x"), "Which is larger?") is None


@pytest.mark.parametrize(
    ("question", "values", "end"),
    [
        ("Which country is larger, Peru or Chad?", [3, 4], "max"),
        ("Who has fewer children?", [3, 4], "min"),
        ("Which came out first?", ["2020-03-01", "2019-03-01"], "min"),
        ("Who is older?", ["2020-03-01", "2019-03-01"], "min"),
        ("Who is older?", [30, 40], "max"),
        ("Who died later?", ["2020-03-01", "2019-03-01"], "max"),
        ("哪个国家更大？", [3, 4], "max"),
        ("Which is more or less famous?", [3, 4], None),
        ("Which one?", [3, 4], None),
    ],
)
def test_a_question_says_which_end_it_asks_for(question, values, end):
    assert direction(question, operands(*values)) == end
    for operation in ("which_max", "which_min"):
        assert against(operation, question, operands(*values)) == (end is not None and not operation.endswith(end))
