"""Faults of the dependency graph, hop levels, and the four shapes read from it."""

from __future__ import annotations

import pytest

from astra.decomposition.draft import StepReply, Unsound
from astra.decomposition.graph import check_hops, depth, levels, renumbered, shape_of
from tests.decomposition.drafts import step


def replies(*edges: tuple[int, list[int] | None], **change: object) -> list[StepReply]:
    return [
        StepReply.model_validate(
            {"id": n, "question": f"Question {n}?", "answer": "x", "depends_on": before, "needs_tool": True} | change
        )
        for n, before in edges
    ]


def reason(call) -> str:
    with pytest.raises(Unsound) as error:
        call()
    return error.value.reason


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([(1, [1])], "cyclic_dependency"),
        ([(1, [2]), (2, [1])], "cyclic_dependency"),
        ([(1, [3]), (2, [1]), (3, [2])], "cyclic_dependency"),
        ([(1, []), (2, [3]), (3, [2]), (4, [1])], "cyclic_dependency"),
        ([(1, [2]), (2, [])], "forward_dependency"),
        ([(1, []), (2, [7])], "dangling_dependency"),
        ([(1, []), (2, [0])], "dangling_dependency"),
        ([(1, []), (2, [-1])], "dangling_dependency"),
        ([(1, []), (1, [])], "duplicate_step"),
        ([(1, []), (2, [1, 1])], "duplicate_dependency"),
        ([(n, [n - 1] if n > 1 else []) for n in range(1, 22)], "too_many_steps"),
    ],
)
def test_a_faulty_graph_is_told_by_its_fault(edges, expected):
    assert reason(lambda: renumbered(replies(*edges))) == expected


def test_one_question_asked_twice_is_a_duplicate_whatever_its_case():
    twice = replies((1, []), (2, []), question="Who wrote it?")
    twice[1] = twice[1].model_copy(update={"question": "who  wrote IT?"})
    assert reason(lambda: renumbered(twice)) == "duplicate_step"


def test_ids_are_names_and_never_places_in_the_list():
    found = renumbered(replies((10, None), (20, [10]), (5, [20, 10])))
    assert [(one.id, one.depends_on) for one in found] == [(1, []), (2, [1]), (3, [2, 1])]


def test_levels_count_from_one_along_the_longest_way():
    steps = [step(1, "a"), step(2, "b", 1), step(3, "c"), step(4, "d", 2, 3)]
    assert levels(steps) == {1: 1, 2: 2, 3: 1, 4: 3}
    check_hops(steps, [(1, 1), (4, 3)], 3)
    assert reason(lambda: check_hops(steps, [(4, 2)], 3)) == "wrong_hop_level"
    assert reason(lambda: check_hops(steps, [], 2)) == "too_many_hops"


def test_a_step_without_a_tool_is_no_hop_of_the_budget():
    steps = [step(1, "a"), step(2, "b"), step(3, ["a", "b"], 1, 2, tool=False)]
    assert depth(steps) == 1
    check_hops(steps, [(3, 2)], 1)


CLOSING = step(9, ["a", "b"], 1, 2, tool=False)


@pytest.mark.parametrize(
    ("steps", "shape"),
    [
        ([step(1, "a")], "single_hop"),
        ([step(1, "a"), step(9, "a", 1, tool=False)], "single_hop"),
        ([step(1, "a"), step(2, "b"), CLOSING], "parallel_single_hop"),
        ([step(1, "a"), step(2, "b"), step(3, "c")], "parallel_single_hop"),
        ([step(1, "a"), step(2, "b", 1)], "multi_hop"),
        ([step(1, "a"), step(2, "b", 1), step(3, "c", 1, 2)], "multi_hop"),
        ([step(1, "a"), step(2, "b", 1), step(3, "c")], "parallel_multi_hop"),
        ([step(1, "a"), step(2, "b"), step(3, "c", 1, 2)], "parallel_multi_hop"),
        ([step(1, "a"), step(2, "b", 1), step(3, "c", 1)], "parallel_multi_hop"),
    ],
)
def test_the_shape_is_that_of_the_steps_that_need_a_tool(steps, shape):
    assert shape_of(steps) == shape


def test_a_question_that_needs_no_tool_has_no_shape():
    assert reason(lambda: shape_of([step(1, "a", tool=False)])) == "no_tool_step"
