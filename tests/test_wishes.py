"""Wishes for the form of an answer: what can be checked is, and what is not surely against one is let through."""

from __future__ import annotations

import pytest

from astra.evidence.wishes import n_sentences, unheeded


@pytest.mark.parametrize(
    ("wish", "answer", "against"),
    [
        ("Keep the answer to two sentences.", "The ferry leaves. It costs money. It is late.", "3 sentences"),
        ("Answer in one sentence.", "It leaves at nine. It is late.", "2 sentences"),
        ("Please answer in at most 10 words.", "one two three four five six seven eight nine ten eleven", "11 words"),
        ("Reply in no more than two sentences, please.", "The first. The second. The third.", "3 sentences"),
        ("Answer in JSON only.", "Sure: {}", "no JSON"),
        ("Give the answer as a list, one line for each step.", "The port is LYM, the fare 12 EUR.", "no list"),
        ("Reply in German.", "The answer is that you have to take the ferry of the morning.", "is in en"),
        ("Give me the result in kilometres.", "It is 5 mi away.", "in kilometres"),
    ],
)
def test_an_answer_in_another_form_than_was_wished_is_found_with_what_it_has_instead(wish, answer, against):
    (found,) = unheeded([wish], answer)
    assert against in found


@pytest.mark.parametrize(
    ("wish", "answer"),
    [
        (
            "Keep the answer to two sentences.",
            "The fare is 12.5 EUR for Dr. Smith at 9 a.m. on deck No. 5. It is paid.",
        ),
        ("Answer in one sentence.", "The booking AB12 is confirmed for 2026-05-04, see https://example.org/a.b"),
        ("Answer in one sentence.", "Which port do you mean? The old one or the new one?"),
        ("Answer in JSON only.", '```json\n{"port": "LYM"}\n```'),
        ("Give the answer as a list.", "Here it is:\n1. LYM\n2. OBN"),
        ("Reply in German.", "Die Fähre ist um 9 Uhr und nicht später, für eine Person."),
        ("Reply in German.", "LYM"),
        ("Give the answer in euros.", "That makes €45."),
        ("Give the answer in euros.", "The ferry is cancelled."),
        ("Find the two sentences in the file.", "The first one. Then another. And a third one."),
        ("Write the note in English to the board.", "Das ist nicht mehr da und der Rest ist für morgen."),
        ('Set it with note "answer in one sentence".', "It is set. It is saved. It is there."),
        ("Put the list of guests in JSON into the box.", "Done."),
    ],
)
def test_a_good_answer_is_never_held_against_a_wish(wish, answer):
    assert list(unheeded([wish], answer)) == []


def test_a_wish_of_an_earlier_turn_still_holds():
    assert list(unheeded(["Find the port. Answer in one sentence.", "And the fare?"], "It is one. It is two euros."))


def test_sentences_are_counted_only_where_they_surely_end():
    assert n_sentences("Done: to find the port: code LYM; to book: ref AB12.") == 1
    assert n_sentences("The value is 3.5. It rose.") == 2
    assert n_sentences("no full stop") == 0
