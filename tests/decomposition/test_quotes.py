"""Quotations stand in their documents verbatim, and hold answers by type."""

from __future__ import annotations

import pytest

from astra.decomposition.draft import QuoteReply, Unsound, natural
from astra.decomposition.quotes import Document, holds, located
from astra.records import Answer

TEXT = "Lima is the capital of Peru.\nIt was founded in 1535, on 18 January, by\nPizarro."
DOCUMENTS = {"peru": Document("peru", "Peru", TEXT, "x"), "part": Document("part", "", TEXT, "x", offset=1000)}


def place(document="peru", **reply):
    return located(QuoteReply(document=document, **reply), DOCUMENTS)


def test_words_are_found_and_a_stated_place_is_kept_where_it_is_right():
    assert place(quote="capital of Peru").start == TEXT.index("capital")
    assert place(quote="is", start=5, end=7).start == 5
    assert place(start=0, end=4).text == "Lima"


def test_a_wrong_place_is_mended_from_the_words_and_never_believed():
    found = place(quote="capital of Peru", start=0, end=4)
    assert TEXT[found.start : found.end] == found.text == "capital of Peru"


def test_line_breaks_may_be_spaces_and_what_is_kept_are_the_document_s_words():
    assert place(quote="by Pizarro").text == "by\nPizarro"


def test_places_are_of_the_whole_document_where_a_passage_is_shown():
    found = place("part", quote="Lima")
    assert (found.start, found.end) == (1000, 1004)
    assert place("part", start=1000, end=1004).text == "Lima"


@pytest.mark.parametrize(
    "reply",
    [
        {"quote": "Lima was the capital of Peru"},
        {"quote": "lima is the capital"},
        {"quote": ""},
        {"quote": "  "},
        {},
        {"start": 3},
        {"start": 4, "end": 4},
        {"start": 5, "end": 2},
        {"start": -4, "end": 4},
        {"start": 0, "end": 10_000},
        {"quote": "Lima is the capital of Chile", "start": 0, "end": 28},
    ],
)
def test_what_does_not_stand_there_is_refused(reply):
    with pytest.raises(Unsound) as error:
        place(**reply)
    assert error.value.reason == "quote_not_verbatim"


def test_another_document_than_those_shown_is_refused():
    with pytest.raises(Unsound, match="peru") as error:
        place("chile", quote="Lima")
    assert error.value.reason == "unknown_document"


@pytest.mark.parametrize(
    ("text", "answer", "held"),
    [
        ("It has 1,664 km of coast.", "1664 km", True),
        ("12km away", "12 km", True),
        ("It is 12 miles long.", "12 km", False),
        ("about 12 million people", 12_000_000, True),
        ("12 million", 12, False),
        ("grew by 5 million", 5, False),
        ("15 units", 5, False),
        ("-5 degrees", 5, False),
        ("in the 1990s", 1990, False),
        ("founded in 1990.", 1990, True),
        ("1,200 and 300", 300, True),
        ("5 in total", 5, True),
        ("three children", 3, True),
        ("code 007", 7, False),
        ("code 007", "007", True),
        ("costs $1,200.50", 1200.5, True),
        ("5% of it", "5%", True),
        ("on 3 May 1990", "1990-05-03", True),
        ("on May 3rd, 1990, in", "1990-05-03", True),
        ("on 03/05/1990", "1990-05-03", False),
        ("on 13 May 1990", "1990-05-03", False),
        ("The Londoner", "London", False),
        ("LONDON, of course", "London", True),
        ("东京人口1400万", "东京", True),
        ("人口12人", 12, True),
        ("a, b and c", ["c", "a"], True),
        ("a and b", ["c", "a"], False),
        ("yes, it is", True, False),
    ],
)
def test_a_text_holds_an_answer_by_its_type(text, answer, held):
    assert holds(text, natural(answer)) is held


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("1,664 km", Answer(kind="number", value=1664, unit="km")),
        ("3 May 1990", Answer(kind="date", value="1990-05-03")),
        ("yes", Answer(kind="boolean", value=True)),
        ("007", Answer(kind="text", value="007")),
        (" Le  Havre ", Answer(kind="text", value="Le Havre")),
        (12.5, Answer(kind="number", value=12.5)),
        (["1", "b"], Answer(kind="list", value=[1, "b"])),
        ("03/05/1990", Answer(kind="text", value="03/05/1990")),
    ],
)
def test_a_value_has_the_kind_that_its_form_shows(value, answer):
    assert natural(value) == answer


@pytest.mark.parametrize("value", ["", "  ", None, {"a": 1}, [], [None], [["a"]]])
def test_what_is_no_answer_is_refused(value):
    with pytest.raises(Unsound) as error:
        natural(value)
    assert error.value.reason == "bad_answer"
