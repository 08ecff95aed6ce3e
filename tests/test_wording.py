"""What a rewriting must keep, and how varied texts are."""

from __future__ import annotations

import pytest

from astra.wording import distinct, language, states


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What is the capital of the country with the most rivers?", "en"),
        ("Welche Stadt ist die Hauptstadt von Peru und wie groß ist sie?", "de"),
        ("Quelle est la capitale du pays et je veux les horaires pour demain", "fr"),
        ("¿Cuál es la capital del país y con qué moneda se paga en el centro?", "es"),
        ("Qual é a capital do país e como é que se paga uma viagem?", "pt"),
        ("Jaki jest czas w Warszawie i na lotnisku, proszę?", "pl"),
        ("东京的天气怎么样？", "cjk"),
        ("東京の天気はどうですか", "japanese"),
        ("서울 날씨 어때요?", "hangul"),
        ("Какая погода в Москве?", "cyrillic"),
        ("LHR 42", None),
        ("Lyme, Bath, Oban.", None),
    ],
)
def test_a_language_is_told_by_script_and_function_words(text: str, found: str | None) -> None:
    assert language(text) == found


def test_quoted_values_and_single_foreign_names_make_no_other_language() -> None:
    assert language('Please find the author of the book with title "Der Mann und die See ist nicht da".') == "en"
    assert language("What is the name of the temple that is called 清水寺 in the guide?") == "en"


@pytest.mark.parametrize(
    ("text", "value", "held"),
    [
        ("From Lyme to Bath", "lyme", True),
        ("From Lymeton to Bath", "Lyme", False),
        ("Seats: 12", "2", False),
        ("2 seats", "2", True),
        ('with title "The \\"Best\\" Boat"', 'The "Best" Boat', True),
        ("the  Old\nHarbour", "Old Harbour", True),
        ("里斯本的天气", "里斯本", True),
        ("O. Porto; also", "O. Porto", True),
        ("anything", "", False),
    ],
)
def test_a_text_states_a_value_only_as_whole_words(text: str, value: str, held: bool) -> None:
    assert states(text, value) is held


def test_distinct_n_grams_are_a_share_of_all_of_them() -> None:
    assert distinct(["a b a b"], 1) == 0.5
    assert distinct(["a b", "a b"], 2) == 0.5
    assert distinct(["one two three"], 3) == 1.0
    assert distinct(["one"], 2) == 0.0
