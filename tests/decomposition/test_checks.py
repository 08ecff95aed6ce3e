"""The deterministic checks of a draft: what each lets through and what it refuses, with the reason."""

from __future__ import annotations

import pytest

from astra.decomposition.checks import checks
from astra.decomposition.draft import Draft, Unsound
from tests.decomposition.drafts import draft, quote, step


def failed(one: Draft, max_hops: int = 3) -> str | None:
    """The reason of the first check that fails."""
    for test in checks(max_hops).values():
        try:
            test(one)
        except Unsound as error:
            return error.reason
    return None


CHAIN = (step(1, "Lima"), step(2, "Pizarro", 1, question="Who founded Lima?"))
PAIR = (step(1, 3, subject="Peru"), step(2, 10, subject="Chad"))


@pytest.mark.parametrize(
    "one",
    [
        draft("Pizarro", *CHAIN),
        draft(["Lima", "Oslo"], step(1, "Lima"), step(2, "Oslo")),
        draft(["Oslo", "Lima"], step(1, "Lima"), step(2, "Oslo"), step(3, ["Lima", "Oslo"], 1, 2, tool=False)),
        draft(13, *PAIR, step(3, 13, 1, 2, tool=False, operation="sum")),
        draft(7, *PAIR, step(3, 7, 1, 2, tool=False)),
        draft("Chad", *PAIR, step(3, "Chad", 1, 2, tool=False, operation="which_max"), question="Peru or Chad?"),
        draft(False, *PAIR, step(3, False, 1, 2, tool=False, operation="greater")),
        draft("Lima", step(1, "Lima", evidence=(quote("Lima is the capital."),)), origin="texts"),
        draft("利马", step(1, "利马", question="秘鲁的首都是哪里？"), language="zh", question="哪里是首都？"),
    ],
)
def test_a_sound_draft_passes_all_checks(one):
    assert failed(one) is None


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (draft("Lima", *CHAIN), "answer_not_derivable"),
        (draft("Francisco Pizarro", *CHAIN), "answer_not_derivable"),
        (draft(["Lima"], *CHAIN), "answer_not_derivable"),
        (draft(["Lima", "Rome"], step(1, "Lima"), step(2, "Oslo")), "answer_not_derivable"),
        (draft(14, *PAIR, step(3, 14, 1, 2, tool=False, operation="sum")), "answer_not_derivable"),
        (draft(13, *PAIR, step(3, 13, 1, 2, tool=False, operation="difference")), "answer_not_derivable"),
        (draft(99, *PAIR, step(3, 99, 1, 2, tool=False)), "answer_not_derivable"),
        (draft(13, *PAIR, step(3, 13, 1, 2, tool=False, operation="guess")), "answer_not_derivable"),
        (draft("x", step(1, "Lima"), step(2, "x", tool=False)), "answer_not_derivable"),
        (draft("Chad", *PAIR, step(3, "Chad", 1, 2, tool=False), question="Peru or Chad?"), "answer_not_derivable"),
        (
            draft("Chad", *PAIR, step(3, "Chad", 1, 2, tool=False, operation="which_max"), question="Is the smaller Peru or Chad?"),
            "answer_not_derivable",
        ),
        (draft(["Lima", "Oslo"], step(1, "Lima", tool=False), step(2, "Oslo", 1)), "needed_step_without_tool"),
        (draft("Pizarro", step(1, "Lima"), step(2, "Oslo", 1), step(3, "Rome", 2), step(4, "Pizarro", 3)),
         "too_many_hops"),
        (draft("Pizarro", *CHAIN, hops=((1, 1), (2, 1))), "wrong_hop_level"),
        (draft("Pizarro", *CHAIN, question="Who was Pizarro?"), "answer_in_question"),
        (draft("Pizarro", *CHAIN, question="Who founded LIMA?"), "answer_in_question"),
        (draft(13, *PAIR, step(3, 13, 1, 2, tool=False, operation="sum"), question="Is it 13?"), "answer_in_question"),
        (draft(1664, step(1, 1664), question="Is the 1,664 km coast long?"), "answer_in_question"),
        (draft("Lima", step(1, "Lima"), origin="texts"), "no_evidence"),
        (draft("Lima", step(1, "Lima", evidence=(quote("The capital is Cusco."),))), "answer_not_in_quote"),
        (draft(5, step(1, 5, evidence=(quote("It has 15 units."),))), "answer_not_in_quote"),
        (draft(True, step(1, True, evidence=(quote("It is true."),))), "answer_not_in_quote"),
        (draft("Lima", step(1, "Lima"), question="¿Cuál es la capital del país?"), "wrong_language"),
        (draft("Lima", step(1, "Lima"), question="秘鲁的首都是哪里？"), "wrong_language"),
        (draft("利马", step(1, "利马", question="What is the capital of Peru?"), language="zh", question="哪里？"),
         "wrong_language"),
    ],
)  # fmt: skip
def test_an_unsound_draft_is_refused_for_its_own_reason(one, reason):
    assert failed(one) == reason


def test_a_choice_may_not_hide_a_looked_up_answer_in_the_question():
    closing = step(3, "Chad", 1, 2, tool=False, operation="which_max")
    assert failed(draft("Chad", *PAIR, closing, question="Peru with 3 or Chad?")) == "answer_in_question"
