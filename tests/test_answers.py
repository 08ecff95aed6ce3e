"""Typed comparison, on the tables of HC-061 and HC-062 and beyond."""

from __future__ import annotations

import pytest

from astra.answers import in_text, is_empty, matches, mentions, result_value
from astra.records import Answer


def answer(kind, value, **more):
    return Answer(kind=kind, value=value, **more)


@pytest.mark.parametrize(
    ("kind", "gold", "text", "expected"),
    [
        ("number", "1", "21", False),
        ("number", "1", "1", True),
        ("number", "1", "The answer is 1.", True),
        ("number", "1", "1 or 2", False),
        ("number", "1", "1.5", False),
        ("number", "1", "-1", False),
        ("boolean", "no", "I do not know", False),
        ("text", "no", "I do not know", False),
        ("text", "Bude", "not Bude but Lyme", False),
        ("text", "Bude", "BUDE ", True),
        ("text", "", "anything", False),
    ],
)
def test_a_final_answer_matches_as_a_whole_token_of_its_kind(kind, gold, text, expected):
    assert in_text(answer(kind, gold), text).ok is expected


@pytest.mark.parametrize(
    ("gold", "got", "expected"),
    [
        (answer("number", "50 million"), "$50 million", True),
        (answer("number", "50 million"), "50,000,000", True),
        (answer("number", "50 million"), "150", False),
        (answer("number", "50 million"), "50%", False),
        (answer("number", -12), "12", False),
        (answer("number", "1,234.5"), "1234.50", True),
        (answer("number", "3.5 km"), "3500 m", True),
        (answer("number", 3.5, unit="km"), "3500 m", True),
        (answer("number", "3.5 km"), "3.5 miles", False),
        (answer("number", 0.1), "0.10000000000000001", True),
        (answer("date", "2030-03-04"), "4 March 2030", True),
        (answer("date", "2030-03-04"), "03/04/2030", False),
        (answer("date", "03/04/2030"), "2030-03-04", False),
        (answer("date", "17:05"), "5:05 pm", True),
        (answer("number", 12, decimals=0), "11.7", True),
        (answer("number", 12, decimals=0), "11.4", False),
        (answer("text", "007"), "7", False),
        (answer("number", 7), "007", True),
    ],
)
def test_numbers_dates_and_codes_are_compared_with_scale_sign_unit_and_form(gold, got, expected):
    assert matches(gold, got).ok is expected
    assert in_text(gold, f"The answer is {got}.").ok is expected


def test_the_decimal_mark_is_a_setting_and_not_both():
    assert not matches(answer("number", 1234.5), "1.234,5")
    assert matches(answer("number", 1234.5), "1.234,5", decimal_mark=",")
    assert not matches(answer("number", 1234.5), "1,234.5", decimal_mark=",")


@pytest.mark.parametrize(
    ("gold", "got"),
    [
        (answer("number", 5), True),
        (answer("number", 5), None),
        (answer("number", 5), float("nan")),
        (answer("number", 5), 10**400),
        (answer("text", "5"), 5),
        (answer("boolean", True), 1),
        (answer("list", ["a", "b"]), ["a"]),
        (answer("list", ["a", "b"]), "a and b"),
        (answer("list", ["a", "b"]), ["a", "a"]),
    ],
)
def test_a_value_of_another_type_is_another_value(gold, got):
    assert not matches(gold, got)


def test_a_list_matches_in_any_order():
    assert matches(answer("list", ["EUR", 5]), [5, "eur"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is EUR and Trinidad and Tobago.", True),
        ("The answer is Trinidad and Tobago and EUR.", True),
        ("The answer is EUR, Trinidad and Tobago", True),
        ("The answer is EUR.", False),
        ("The answer is EUR and Trinidad and Tobago and USD.", False),
        ("The answer is EUR or Trinidad and Tobago.", False),
        ("I cannot answer: no tool gives the currency.", False),
    ],
)
def test_a_list_in_a_text_is_exactly_its_items(text, expected):
    assert in_text(answer("list", ["EUR", "Trinidad and Tobago"]), text).ok is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Madrid", True),
        ("**Madrid**", True),
        ("The capital of Spain is Madrid.", True),
        ("Answer: Madrid", True),
        ("The answer is Madrid. The answer is Lisbon.", False),
        ("It is Lisbon or it is Madrid.", False),
        ("Maybe the capital is Madrid.", False),
        ("It is not the case that the answer is Madrid.", False),
        ("Madrid, I think", False),
        ("The answer is Madrid Barajas.", False),
        ("I cannot answer: no tool gives the capital.", False),
        ("", False),
    ],
)
def test_a_text_that_hedges_denies_or_gives_several_answers_matches_nothing(text, expected):
    assert in_text(answer("text", "Madrid"), text).ok is expected


def test_units_that_the_question_states_may_be_left_out_but_not_changed():
    gold = answer("number", 83, unit="ft")
    assert in_text(gold, "The answer is 83.")
    assert in_text(gold, "The answer is 83 ft.")
    assert not in_text(gold, "The answer is 83 m.")
    assert not in_text(gold, "The answer is 83 apples.")


def test_an_empty_gold_is_a_fault_of_the_data():
    assert is_empty(answer("text", " "))
    assert is_empty(answer("list", []))
    assert matches(answer("text", None), None).rule == "empty_gold"


def test_every_decision_names_its_rule():
    assert matches(answer("number", "3.5 km"), "3500 m").rule == "number_unit_converted"
    assert matches(answer("date", "2030-03-04"), "03/04/2030").rule == "ambiguous_date"


def test_a_result_object_holds_its_value():
    assert result_value({"result": 5}) == 5
    assert result_value({"result": 5, "unit": "m"}) == {"result": 5, "unit": "m"}
    assert result_value([1]) == [1]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (50e6, None, "$50M"), (50e6, None, "US$50 million"), (5e9, None, "5B"), (50e6, "$", "50 million dollars"),
        (120_000, None, "12万"), (35_000, None, "3.5 万"), (3e8, None, "3亿"), (1e12, None, "1万亿"),
        (12, "km", "12 kilometres"), (12, "km", "12,000 meters"), (12, "km", "12km"), (12, "km", "12 公里"),
        (3, "km2", "3 square kilometers"), (90, "min", "1.5 hours"), (12, "kg", "12 kilograms"), (12, "kg", "12 千克"),
        (5, "€", "5 euros"), (10, "%", "10 per cent"), (21, "°C", "21 ℃"), (50, "m", "50m"),
    ],
)  # fmt: skip
def test_scales_and_units_are_read_as_they_are_written_in_full_and_in_short(value, unit, text):
    expected = Answer(kind="number", value=value, unit=unit)
    assert matches(expected, text)
    assert mentions(expected, f"It is {text}, they say")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (50, "m", "50M"), (50e6, None, "50 m"), (50e6, None, "50m"), (10, "lb", "10 pounds"), (10, "£", "10 pounds"),
        (12, None, "12万"), (5e6, None, "5 millionaires"), (1e6, None, "1Mbps"), (12, "km", "12 kilograms"),
        (3, "km2", "3 kilometres"),
    ],
)  # fmt: skip
def test_another_scale_or_unit_is_not_what_was_meant(value, unit, text):
    assert not matches(Answer(kind="number", value=value, unit=unit), text)


def test_a_number_between_chinese_words_is_seen_and_one_in_a_latin_word_is_not():
    assert mentions(Answer(kind="number", value=120_000), "人口为12万人")
    assert mentions(Answer(kind="number", value=12), "共有12个")
    assert not mentions(Answer(kind="number", value=2), "alpha2")
