"""Tools mixed in by similarity band (paper section 3.4.3)."""

from __future__ import annotations

import pytest

from astra.training.distractors import BANDS, Distractors, Mixing
from tests.training.tiny import CAPITAL, CURRENCY, POPULATION, SYMBOL, tool

SETTING = Mixing(mode="banded", per_band=1, high=0.5, low=0.1, encoder="builtin")
LARGEST = tool("country_largest_city", "country", "largest city", {"Spain": "Madrid"})
MASS = tool("element_mass", "element", "atomic mass", {"iron": 56})
POOL = [CAPITAL, POPULATION, CURRENCY, SYMBOL, LARGEST, MASS]


def distractors(pool=POOL, **changes) -> Distractors:
    return Distractors(pool, SETTING.model_copy(update=changes), 3)


def names(tools):
    return [one.spec.name for one in tools]


def test_bands_are_ordered_by_similarity_to_the_nearest_tool_in_scope():
    one = distractors()
    bands = one.bands(["country_capital"])
    similar = {name: one.similarity[one.place[name], one.place["country_capital"]] for name in one.names}
    assert sorted(name for band in BANDS for name in bands[band]) == sorted(set(one.names) - {"country_capital"})
    assert all(similar[name] > 0.5 for name in bands["high"])
    assert all(0.1 <= similar[name] <= 0.5 for name in bands["medium"])
    assert all(similar[name] < 0.1 for name in bands["low"])


def test_words_in_common_make_tools_similar():
    one = distractors()
    near, far = one.place["country_currency"], one.place["element_mass"]
    assert one.similarity[one.place["country_capital"], near] > one.similarity[one.place["country_capital"], far]


@pytest.mark.parametrize("mode", ["random", "banded"])
def test_drawn_names_never_collide(mode):
    one = distractors(mode=mode, per_band=2)
    for key in range(20):
        found = names(one.draw([CAPITAL, POPULATION], str(key)))
        assert len(set(found)) == len(found)
        assert not {"country_capital", "city_population"} & set(found)


def test_the_same_key_draws_the_same_tools_and_keys_differ():
    one, other = distractors(), distractors()
    assert [names(one.draw([CAPITAL], str(key))) for key in range(9)] == [
        names(other.draw([CAPITAL], str(key))) for key in range(9)
    ]
    assert len({tuple(names(one.draw([CAPITAL], str(key)))) for key in range(20)}) > 1


def test_none_draws_nothing():
    assert distractors(mode="none").draw([CAPITAL], "k") == []


def test_a_tool_that_says_and_asks_the_same_under_another_name_is_never_drawn():
    twin = CAPITAL.model_copy(update={"spec": CAPITAL.spec.model_copy(update={"name": "capital_of"})})
    one = distractors([*POOL, twin], mode="random", per_band=4)
    drawn = {name for key in range(30) for name in names(one.draw([CAPITAL], str(key)))}
    assert "capital_of" not in drawn
    assert drawn


def test_tools_of_one_name_are_variants_of_which_one_is_drawn():
    other = CURRENCY.model_copy(update={"code": "def country_currency(country):\n    return 1\n"})
    one = distractors([CAPITAL, CURRENCY, other], mode="random", per_band=1)
    drawn = [one.draw([CAPITAL], str(key)) for key in range(30)]
    assert {len(found) for found in drawn} == {1}
    assert len({found[0].code for found in drawn}) == 2


def test_what_was_drawn_is_counted_by_band():
    one = distractors()
    one.draw([CAPITAL], "k")
    assert sum(one.drawn.values()) == 3
