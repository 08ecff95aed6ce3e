"""Given questions: sub-questions are converted and checked, and a model divides those that have none."""

from __future__ import annotations

import pytest

from astra.decomposition.checks import checks
from astra.decomposition.draft import DivideReply, Unsound
from astra.decomposition.folder import read_folder
from astra.decomposition.given import GivenBrief, given_briefs
from astra.decomposition.graph import shape_of
from tests.decomposition.sources import ASTRA, HOTPOT, MUSIQUE, TWO_WIKI, folder, params


def brief(tmp_path, row) -> GivenBrief:
    (found,) = given_briefs(read_folder(folder(tmp_path, qa_jsonl=[row])).given, params())
    return found


def outcome(one: GivenBrief, reply: DivideReply | None = None):
    """The draft where it passes all checks, else the reason why not."""
    try:
        draft = one.draft(reply)
        for test in checks(3).values():
            test(draft)
    except Unsound as error:
        return error.reason
    return draft


def test_musique_references_become_dependencies_and_paragraphs_are_quoted(tmp_path):
    one = brief(tmp_path, MUSIQUE)
    assert one.prompt is None
    draft = outcome(one)
    first, second = draft.steps
    assert (first.question, first.subject, first.relation) == ("What is the performer of Green?", "Green", "performer")
    assert (second.question, second.depends_on) == ("Who is the spouse of Steve Hillage?", (1,))
    assert [quote.text for step in draft.steps for quote in step.evidence] == [
        "Green is an album by Steve Hillage.", "Hillage and his wife Miquette Giraudy played."]  # fmt: skip
    assert shape_of(draft.steps) == "multi_hop"


def test_2wiki_triples_become_steps_and_the_comparison_a_computed_one(tmp_path):
    draft = outcome(brief(tmp_path, TWO_WIKI))
    assert [(step.depends_on, step.answer.kind) for step in draft.steps] == [
        ((), "text"), ((1,), "date"), ((), "text"), ((3,), "date"), ((2, 4), "text")]  # fmt: skip
    closing = draft.steps[-1]
    assert (closing.operation, closing.needs_tool, closing.answer.value) == ("which_min", False, "South")
    assert [len(step.evidence) for step in draft.steps] == [1, 1, 1, 1, 0]
    assert shape_of(draft.steps) == "parallel_multi_hop"


def test_astra_s_own_form_keeps_ids_levels_and_finds_the_computed_leaf(tmp_path):
    draft = outcome(brief(tmp_path, ASTRA))
    assert [(step.id, step.depends_on, step.needs_tool, step.operation) for step in draft.steps] == [
        (1, (), True, None), (2, (), True, None), (3, (1, 2), False, "difference")]  # fmt: skip
    assert draft.hops == ((1, 1), (2, 1), (3, 2))


def changed(row, place, **change):
    trace = [dict(step) for step in row["decomposition_trace"]]
    trace[place] |= change
    return row | {"decomposition_trace": trace}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (changed(ASTRA, 0, dependency=[30]), "cyclic_dependency"),
        (changed(ASTRA, 0, dependency=[20]), "forward_dependency"),
        (changed(ASTRA, 2, dependency=[1, 2]), "dangling_dependency"),
        (changed(ASTRA, 1, _uuid=10), "duplicate_step"),
        (changed(ASTRA, 2, hop_level=1), "wrong_hop_level"),
        (changed(ASTRA, 0, needs_tool=False), "needed_step_without_tool"),
        (changed(ASTRA, 0, needs_tool="false"), "needed_step_without_tool"),
        (changed(ASTRA, 2, sub_answer=8), "answer_not_derivable"),
        (changed(changed(ASTRA, 1, sub_answer=11), 2, needs_tool=False), "answer_not_derivable"),
        (ASTRA | {"final_answer": 12}, "answer_not_derivable"),
        (ASTRA | {"main_question": "Is it 10 more than Peru?"}, "answer_in_question"),
        (MUSIQUE | {"answerable": False}, "unanswerable"),
        (MUSIQUE | {"answer": "Someone Else"}, "answer_not_derivable"),
        (TWO_WIKI | {"answer": "North"}, "answer_not_derivable"),
    ],
)
def test_sub_questions_that_do_not_hold_are_refused_for_their_reason(tmp_path, row, reason):
    assert outcome(brief(tmp_path, row)) == reason


def dividing(*steps, **change):
    defaults = {"depends_on": [], "needs_tool": True}
    return DivideReply.model_validate(
        {"steps": [defaults | {"id": n} | step | change for n, step in enumerate(steps, 1)]}
    )


ANN = {"question": "Where is Ann Lee from?", "answer": "Peru", "subject": "Ann Lee",
       "evidence": [{"document": "Ann Lee", "quote": "Ann Lee is from Peru."}]}  # fmt: skip
BO = {"question": "Where is Bo Hay from?", "answer": "Peru", "subject": "Bo Hay",
      "evidence": [{"document": "Bo Hay", "quote": "Bo Hay is from Peru.", "start": 0, "end": 20}]}  # fmt: skip
SAME = {
    "question": "Are they one country?",
    "answer": "yes",
    "depends_on": [1, 2],
    "needs_tool": False,
    "operation": "equal",
}


def test_a_model_s_division_of_a_question_is_kept_where_it_holds(tmp_path):
    one = brief(tmp_path, HOTPOT)
    assert "Nothing here" not in one.prompt
    assert "to be divided" in one.needs_endpoint
    draft = outcome(one, dividing(ANN, BO, SAME))
    assert (draft.question, draft.answer.value) == (HOTPOT["question"], True)
    assert shape_of(draft.steps) == "parallel_single_hop"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((ANN,), "answer_not_derivable"),
        ((ANN, BO, SAME | {"answer": "no"}), "answer_not_derivable"),
        ((ANN, BO, SAME | {"operation": "sum"}), "answer_not_derivable"),
        ((ANN, BO, SAME | {"depends_on": [1, 3]}), "cyclic_dependency"),
        ((ANN | {"evidence": []}, BO, SAME), "no_evidence"),
        ((ANN | {"evidence": [{"document": "Ann Lee", "quote": "Ann Lee comes from Peru."}]}, BO, SAME), "quote_not_verbatim"),
        ((ANN | {"evidence": [{"document": "Other", "quote": "Nothing here."}]}, BO, SAME), "unknown_document"),
        ((ANN | {"answer": "Chad"}, BO, SAME | {"answer": "no"}), "answer_not_in_quote"),
        ((ANN | {"operation": "same"}, BO, SAME), "operation_with_tool"),
        ((ANN | {"question": "秘鲁在哪里？"}, BO, SAME), "wrong_language"),
    ],
)  # fmt: skip
def test_a_division_that_does_not_hold_is_refused_for_its_reason(tmp_path, steps, reason):
    assert outcome(brief(tmp_path, HOTPOT), dividing(*steps)) == reason
