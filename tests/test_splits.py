"""Facts and compositions of questions and conversations, and what may not be trained on."""

from __future__ import annotations

import json

import pytest

from astra.records import Answer, Decomposition, FunctionCall, Message, Quote, Step, ToolCall
from astra.splits import Heldout, beside, chained, of_messages, of_steps


def step(number, relation, subject, value, depends_on=()):
    answer = Answer(kind="text", value=value)
    return Step(id=number, question=f"{relation} of {subject}?", answer=answer, depends_on=depends_on, needs_tool=True,
                relation=relation, subject=subject)  # fmt: skip


LEAF = Step(id=3, question="State the answers together.", answer=Answer(kind="list", value=["EUR", "Madrid"]),
            depends_on=(1, 2), needs_tool=False)  # fmt: skip
CHAIN = (step(1, "airport_city", "LHR", "London"), step(2, "city_country", "London", "UK", (1,)))
PARALLEL = (step(1, "country_currency", "Spain", "EUR"), step(2, "country_capital", "Italy", "Rome"), LEAF)


def question(text, steps, split="train"):
    return Decomposition(
        id=text, domain="x", language="en", shape="single_hop", question=text, answer=steps[0].answer, steps=steps,
        checks={}, quality=1, split=split,
    )  # fmt: skip


def called(number, name, arguments, result, is_error=False):
    call = ToolCall(id=f"c{number}", function=FunctionCall(name=name, arguments=json.dumps(arguments)))
    return [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id=f"c{number}", content=result, is_error=is_error),
    ]


def test_a_chain_has_its_facts_and_its_edges():
    content = of_steps(CHAIN)
    assert content.facts == {("airport_city", "LHR"), ("city_country", "London")}
    assert content.compositions == {chained("airport_city", "city_country")}
    assert content.entities == {"LHR", "London", "UK"}


def test_parallel_branches_have_their_paths_as_a_pair_in_either_order():
    content = of_steps(PARALLEL)
    assert content.compositions == {beside(("country_capital",), ("country_currency",))}
    assert beside(("a", "b"), ("c",)) == beside(("c",), ("a", "b"))


def test_a_language_only_step_adds_nothing():
    assert of_steps(PARALLEL) == of_steps(PARALLEL[:2])


def read(number, question, document, depends_on=()):
    quote = Quote(document=document, start=0, end=4, text="Lima")
    return Step(id=number, question=question, answer=Answer(kind="text", value="Lima"), depends_on=depends_on,
                needs_tool=True, evidence=(quote,))  # fmt: skip


def test_quoted_documents_and_sub_questions_without_a_relation_are_facts():
    content = of_steps([read(1, "What is  the capital?", "peru.txt"), LEAF])
    assert content.facts == {("a document", "peru.txt"), ("asked", "what is the capital?")}
    assert not content.compositions | content.relations | content.entities


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (read(1, "Who founded it?", "peru.txt"), "heldout_document"),
        (read(1, "what is the capital?", "chad.txt"), "heldout_fact"),
        (read(1, "Who founded it?", "chad.txt"), None),
    ],
)
def test_a_document_or_a_sub_question_that_is_held_out_is_not_trained_on(other, reason):
    heldout = Heldout.of([question("Q?", (read(1, "What is the capital?", "peru.txt"),), "heldout")])
    assert heldout.conflict("R?", of_steps([other])) == reason


def test_a_conversation_has_the_content_of_the_question_that_it_solves():
    messages = [
        *called(1, "airport_city", {"airport": "LHR"}, '{"result": "London"}'),
        *called(2, "city_country", {"city": "London"}, '{"result": "UK"}'),
    ]
    assert of_messages(messages) == of_steps(CHAIN)


def test_calls_that_failed_or_take_no_single_text_add_nothing():
    messages = [
        *called(1, "airport_city", {"airport": "LHX"}, "unknown airport: LHX", is_error=True),
        *called(2, "add", {"a": 1, "b": 2}, "3"),
        *called(3, "double", {"a": 1}, "2"),
    ]
    assert of_messages(messages) == of_steps(())


@pytest.fixture
def heldout():
    return Heldout.of([
        question("t", (step(1, "city_country", "Paris", "France"), step(2, "country_capital", "Peru", "Lima"))),
        question("h", CHAIN, "heldout"),
        question("e", (step(1, "country_capital", "Chad", "N'Djamena"),), "heldout_entities"),
        question("r", (step(1, "country_area", "Peru", "1285220"),), "heldout_tools"),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "steps", "reason"),
    [
        ("h", PARALLEL, "heldout_question"),
        ("new", CHAIN[:1], "heldout_fact"),
        ("new", (step(1, "airport_city", "CDG", "Paris"), step(2, "city_country", "Paris", "France", (1,))),
         "heldout_composition"),
        ("new", (step(1, "country_area", "France", "1"),), "heldout_tool"),
        ("new", (step(1, "country_currency", "Chad", "XAF"),), "heldout_entity"),
        ("new", PARALLEL, None),
    ],
)  # fmt: skip
def test_what_touches_held_out_content_is_told_with_its_reason(heldout, text, steps, reason):
    assert heldout.conflict(text, of_steps(steps)) == reason


def test_entities_and_relations_that_training_has_are_not_reserved(heldout):
    assert heldout.entities == {"Chad"}
    assert heldout.relations == {"country_area"}


def test_a_reserved_entity_is_found_anywhere_in_the_words(heldout):
    content = of_steps(PARALLEL)
    assert heldout.conflict("new", content, "Next: capital of Chad.") == "heldout_entity"
    assert heldout.conflict("new", content, "Chadwick went home.") is None
