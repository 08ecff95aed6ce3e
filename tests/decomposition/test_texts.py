"""Questions composed from documents: passages, splits by document, and what a model's replies have to hold."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from astra.decomposition.checks import checks
from astra.decomposition.draft import Draft, Unsound
from astra.decomposition.judging import Writer
from astra.decomposition.quotes import Document
from astra.decomposition.texts import TextBrief, cut, text_briefs
from astra.llm import Completion, ModelParams, Request
from astra.records import Usage
from stages.decompose import compose, verify
from tests.decomposition.sources import params
from tests.llm.clients import client_of

PERU = Document("peru", "Peru", "The capital of Peru is Lima. Lima was founded by Pizarro.", "history")
CHAD = Document("chad", "Chad", "The capital of Chad is a city. It has 12 wells.", "history")
MODEL = ModelParams(transport="openai", name="scripted", temperature=0, max_tokens=256)


class Scripted:
    """An endpoint that says these texts in turn, the last of them for ever."""

    def __init__(self, *said: str) -> None:
        self.said = list(said)
        self.asked: list[Request] = []

    async def send(self, request: Request) -> Completion:
        self.asked.append(request)
        text = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        return Completion(text, "stop", Usage(calls=1, prompt_tokens=0, completion_tokens=0))


def brief(*passages: Document, **change: Any) -> TextBrief:
    fields = {"id": "text-1", "passages": passages or (PERU,), "shape": "multi_hop", "language": "en", "split": "train",
              "max_hops": 3, "number": 1}  # fmt: skip
    return TextBrief(**(fields | change))


def step(number: int, question: str, answer: Any, quoted: str | None, **change: Any) -> dict[str, Any]:
    evidence = [] if quoted is None else [{"document": "peru", "quote": quoted}]
    fields = {"id": number, "question": question, "answer": answer, "unit": None, "depends_on": [], "needs_tool": True,
              "hop": 1, "subject": None, "operation": None, "evidence": evidence}  # fmt: skip
    return fields | change


FIRST = step(1, "What is the capital of Peru?", "Lima", "The capital of Peru is Lima.")
SECOND = step(2, "Who founded Lima?", "Pizarro", "Lima was founded by Pizarro.", depends_on=[1], hop=2)


def said(*steps: dict[str, Any], **change: Any) -> str:
    return json.dumps({"question": "Who founded the capital of Peru?", "answer": "Pizarro", "steps": steps} | change)


def outcome(*replies: str, reasks: int = 0, one: TextBrief | None = None) -> Draft | str:
    """The draft that the stage makes of an endpoint's replies, else the reason why there is none."""
    teacher = Writer(client_of(Scripted(*replies)), MODEL, 17, reasks)
    (found,) = compose([one or brief()], teacher)
    try:
        if isinstance(found, Unsound):
            raise found
        verify(found, checks(3), Counter())
    except Unsound as error:
        return error.reason
    return found


def test_a_good_reply_becomes_a_draft_with_quotations_in_their_places():
    found = outcome(said(FIRST, SECOND))
    assert isinstance(found, Draft)
    (quote,) = found.steps[1].evidence
    assert PERU.text[quote.start : quote.end] == quote.text == "Lima was founded by Pizarro."
    assert (found.origin, found.domain, found.hops) == ("texts", "history", ((1, 1), (2, 2)))


def test_a_reply_that_is_no_json_is_asked_for_again_and_then_lost():
    assert isinstance(outcome("I think that", said(FIRST, SECOND), reasks=1), Draft)
    assert outcome("I think that", reasks=1) == "reply_invalid"
    assert outcome('{"question": "Who?", "answer": "x", "steps": []}') == "reply_invalid"
    assert outcome(said(FIRST | {"needs_tool": "perhaps"})) == "reply_invalid"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (said(FIRST, SECOND | {"evidence": []}), "no_evidence"),
        (said(FIRST, step(2, "Who founded Lima?", "Pizarro", "Pizarro founded Lima.", depends_on=[1], hop=2)), "quote_not_verbatim"),
        (said(FIRST, SECOND | {"answer": "Cortez"}, answer="Cortez"), "answer_not_in_quote"),
        (said(FIRST, SECOND, answer="Cortez"), "answer_not_derivable"),
        (said(FIRST, SECOND | {"depends_on": [2]}), "cyclic_dependency"),
        (said(FIRST | {"depends_on": [2]}, SECOND), "cyclic_dependency"),
        (said(SECOND, FIRST), "forward_dependency"),
        (said(FIRST, SECOND | {"depends_on": [5]}), "dangling_dependency"),
        (said(FIRST, SECOND | {"hop": 1}), "wrong_hop_level"),
        (said(FIRST, SECOND | {"question": FIRST["question"]}), "duplicate_step"),
        (said(FIRST | {"needs_tool": False, "operation": "same"}, SECOND), "needed_step_without_tool"),
        (said(FIRST, SECOND, question="Who founded Lima, the capital of Peru?"), "answer_in_question"),
        (said(FIRST, SECOND, question="¿Quién es el que fundó la capital del Perú?"), "wrong_language"),
        (said(FIRST | {"evidence": [{"document": "chad", "quote": "It has 12 wells."}]}, SECOND), "unknown_document"),
        (said(FIRST | {"answer": {"city": "Lima"}}, SECOND), "bad_answer"),
    ],
)  # fmt: skip
def test_a_reply_that_does_not_hold_is_refused_for_its_reason(reply, reason):
    assert outcome(reply) == reason


def test_a_computed_leaf_is_computed_again():
    wells = [{"document": "chad", "quote": "It has 12 wells."}]
    two = {"document": "more", "quote": "It has 30 wells."}
    more = Document("more", "More", "More is a place. It has 30 wells.", "history")
    steps = [
        step(1, "How many wells has Chad?", 12, None, evidence=wells, subject="Chad"),
        step(2, "How many wells has More?", 30, None, evidence=[two], subject="More"),
    ]
    for operation, answer, reason in (
        ("sum", 42, None),
        ("sum", 43, "answer_not_derivable"),
        ("which_max", "More", None),
    ):
        last = step(3, "Taken together?", answer, None, depends_on=[1, 2], needs_tool=False, operation=operation, hop=2)
        words = "Has Chad or More more wells?" if operation == "which_max" else "How many wells are there in both?"
        found = outcome(said(*steps, last, answer=answer, question=words), one=brief(CHAD, more))
        assert (None if isinstance(found, Draft) else found) == reason


def test_a_question_in_another_language_is_checked_by_its_script():
    first = FIRST | {"question": "秘鲁的首都是哪里？"}
    chinese = said(first, SECOND | {"question": "谁建立了Lima？"}, question="谁建立了秘鲁的首都？")
    assert isinstance(outcome(chinese, one=brief(language="zh")), Draft)
    assert outcome(chinese) == "wrong_language"
    assert outcome(said(FIRST, SECOND), one=brief(language="zh")) == "wrong_language"


# ---------------------------------------------------------------- passages and splits


def test_a_long_document_is_cut_where_something_ends_and_nothing_is_lost():
    text = "\n\n".join(f"Paragraph {n} says this. And that." for n in range(60))
    passages = cut(Document("d", "", text, "x"), 300)
    assert "".join(one.text for one in passages) == text
    assert all(text[one.offset : one.offset + len(one.text)] == one.text for one in passages)
    assert max(len(one.text) for one in passages) <= 300
    assert all(one.text.startswith("Paragraph") for one in passages)


def test_text_without_any_break_is_cut_all_the_same():
    assert [len(one.text) for one in cut(Document("d", "", "x" * 700, "x"), 300)] == [300, 300, 100]


def corpus(count: int) -> list[Document]:
    return [Document(f"d{n}", f"Title {n}", f"Text number {n} of the corpus.", f"domain{n % 2}") for n in range(count)]


def test_no_document_is_asked_about_in_two_splits_and_joined_ones_are_of_one_domain():
    chosen = params(texts={"questions": 3, "joined": 0.7, "passage": 2000, "heldout": 0.3})
    briefs = list(text_briefs(corpus(40), chosen, 17))
    assert len(briefs) == 120
    assert len({one.id for one in briefs}) == len({one.prompt for one in briefs}) == 120
    splits: dict[str, set[str]] = {}
    for one in briefs:
        assert len({passage.domain for passage in one.passages}) == 1
        for passage in one.passages:
            splits.setdefault(passage.id, set()).add(one.split)
    assert all(len(found) == 1 for found in splits.values())
    assert {"train", "heldout"} == set().union(*splits.values())
    assert 0.5 < sum(len(one.passages) == 2 for one in briefs) / 120 < 0.9
    assert briefs == list(text_briefs(corpus(40), chosen, 17))


def test_documents_that_name_each_other_are_joined_first():
    linked = [*corpus(9), Document("x", "Whales", "Title 4 is about whales.", "domain0")]
    chosen = params(texts={"questions": 5, "joined": 1, "passage": 2000, "heldout": 0})
    pairs = {
        tuple(one.id for one in each.passages) for each in text_briefs(linked, chosen, 17) if each.passages[0].id == "x"
    }
    assert pairs == {("x", "d4")}


def test_a_copy_of_a_document_is_in_the_split_of_the_first():
    copies = [one._replace(id=f"copy of {one.id}", text=f"  {one.text}\n") for one in corpus(30)]
    chosen = params(texts={"questions": 1, "joined": 0, "passage": 2000, "heldout": 0.5})
    splits = {one.passages[0].id: one.split for one in text_briefs([*corpus(30), *copies], chosen, 17)}
    assert all(splits[f"d{n}"] == splits[f"copy of d{n}"] for n in range(30))
