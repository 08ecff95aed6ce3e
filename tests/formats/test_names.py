"""Legal names are unique, stable, and do not depend on who else stands where in the list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra.formats.names import LEGAL, legal_names

LONG = "get_port_authority_weather_observation_station_daily_summary_by_station_id_"


def test_a_legal_name_stays_and_another_becomes_its_slug():
    assert legal_names(["harbour_tide", "9lives", " spaced name ", "a.b/c"]) == [
        "harbour_tide",
        "9lives",
        "spaced_name",
        "a_b_c",
    ]


def test_names_that_would_collide_are_told_apart_by_a_hash():
    names = legal_names(
        ["harbour.tide/now", "harbour_tide_now", f"{LONG}metric", f"{LONG}imperial", "天气.查询", "天气.预报"]
    )
    assert len(set(names)) == 6
    assert names[1] == "harbour_tide_now"
    assert all(LEGAL.match(name) for name in names)


@given(st.lists(st.text(min_size=1), unique=True, max_size=8), st.randoms())
def test_any_names_become_unique_legal_names_whatever_their_order(wanted, random):
    names = dict(zip(wanted, legal_names(wanted), strict=True))
    assert len(set(names.values())) == len(wanted)
    assert all(LEGAL.fullmatch(name) for name in names.values())
    shuffled = random.sample(wanted, len(wanted))
    assert dict(zip(shuffled, legal_names(shuffled), strict=True)) == names


def test_the_same_name_twice_is_the_callers_mistake():
    with pytest.raises(ValueError, match="must differ"):
        legal_names(["a", "a"])
