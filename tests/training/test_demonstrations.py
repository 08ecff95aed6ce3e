"""Teacher demonstrations act in the arena; one that does not solve it is refused."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from astra.splits import of_messages, of_steps
from astra.training.demonstrations import Demonstrating, DemonstrationFailed, demonstrate, label_of, question
from astra.training.episodes import Case
from tests.training.tiny import CAPITAL, CURRENCY, POPULATION, SYMBOL, InProcess, arena

CLEAN = Demonstrating(slips=0, slip_rate=0, missing_tool=0, reworded=False)
SLIPPING = Demonstrating(slips=1, slip_rate=1, missing_tool=0, reworded=False)
FULL = (CURRENCY, POPULATION, CAPITAL, SYMBOL)


def play(how=CLEAN, seed=0, tools=FULL, missing=None):
    return demonstrate(Case(arena("Ghana"), tools, missing), how, random.Random(seed), InProcess())


def test_a_clean_demonstration_makes_the_golden_calls_and_states_the_answer():
    texts = [
        (one.role, one.content, [json.loads(call.function.arguments) for call in one.tool_calls]) for one in play()
    ]
    assert texts == [
        ("user", "For country Ghana, find the capital, then its city population.", []),
        ("assistant", "Next: capital of Ghana.", [{"country": "Ghana"}]),
        ("tool", '{"result": "Accra"}', []),
        ("assistant", "Next: city population of Accra.", [{"city": "Accra"}]),
        ("tool", '{"result": 2}', []),
        ("assistant", "The answer is 2.", []),
    ]


def test_results_come_from_the_sandboxed_tools():
    assert {one.executed_by for one in play() if one.role == "tool"} == {"sandbox"}


@pytest.mark.parametrize("seed", range(12))
def test_a_slip_is_followed_by_the_right_call_and_the_arena_is_still_solved(seed):
    messages = play(SLIPPING, seed)
    assert of_steps(arena("Ghana").steps).facts <= of_messages(messages).facts
    assert sum(len(one.tool_calls) for one in messages) == 4
    assert messages[-1].content == "The answer is 2."


def test_slips_are_of_several_kinds():
    seen = [one for seed in range(40) for one in play(SLIPPING, seed)]
    assert any(one.is_error for one in seen)  # mistyped
    assert any(one.name == "country_currency" for one in seen)  # another tool for the same kind of thing
    pairs = [message.tool_calls[0].function for message in seen if message.tool_calls]
    assert any(one == other for one, other in pairwise(pairs))  # made twice


def test_where_a_needed_tool_is_not_there_that_is_said():
    messages = play(tools=(CURRENCY, CAPITAL), missing="city_population")
    assert messages[-1].content == "I cannot answer: no tool gives the city population."
    assert [call.function.name for one in messages for call in one.tool_calls] == ["country_capital"]


def test_a_tool_that_answers_otherwise_than_its_probe_makes_the_demonstration_fail():
    broken = CAPITAL.model_copy(update={"code": "def country_capital(country):\n    return {'result': 'Rome'}\n"})
    with pytest.raises(DemonstrationFailed) as failure:
        play(tools=(broken, POPULATION))
    assert failure.value.reason == "demonstration_unsolved"


def test_the_same_seed_plays_the_same_demonstration():
    assert play(SLIPPING, 3) == play(SLIPPING, 3)


def test_questions_are_reworded_without_changing_what_is_asked():
    found = {question(arena("Ghana"), random.Random(seed)) for seed in range(30)}
    assert len(found) > 3
    assert all("Ghana" in one and "capital" in one and "city population" in one for one in found)


def test_a_label_is_what_the_description_says_before_its_entity():
    assert label_of(POPULATION.spec) == "city population"
    iso = POPULATION.spec.model_copy(update={"description": "ICAO code of a city."})
    assert label_of(iso) == "ICAO code"
