"""The held-out of the imitation line: which conversations, and what a reply on a recorded history is worth."""

from __future__ import annotations

import pytest

from astra.benchmarks.imitation import Imitation, held_out
from astra.benchmarks.types import CallText, Reply
from astra.records import Reject
from tests.stages.training_run import trajectory

SPAIN = trajectory(1, "Which city governs Spain?", "Spain", "Madrid")
AGAIN = trajectory(2, "Which city governs Spain?", "Spain", "Madrid")
GHANA = trajectory(3, "Which city governs Ghana?", "Ghana", "Accra")
PERU = trajectory(4, "Which city governs Peru?", "Peru", "Lima")
ALL = [SPAIN, AGAIN, GHANA, PERU]


def reject(number: int, reason: str) -> Reject:
    return Reject(id=f"trajectory-{number}", reason=reason, detail="d")


def ids(found) -> list[str]:
    return [one.id for one in found]


def test_held_out_is_what_sft_kept_away_from_for_the_arenas_sake():
    rejects = [reject(1, "heldout_fact"), reject(3, "low_score"), reject(4, "too_long")]
    assert ids(held_out(ALL, {"trajectory-9"}, set(), rejects)) == ["trajectory-1"]


def test_rows_that_were_set_apart_are_held_out_too():
    assert ids(held_out(ALL, set(), {"trajectory-4"}, [])) == ["trajectory-4"]


def test_a_question_that_was_trained_on_in_another_attempt_is_not_held_out():
    assert held_out(ALL, {"trajectory-2"}, {"trajectory-1"}, [reject(1, "heldout_fact")]) == []


def test_one_conversation_stands_for_a_question():
    assert ids(held_out(ALL, set(), set(), [reject(1, "heldout_tool"), reject(2, "heldout_tool")])) == ["trajectory-1"]


def test_an_unfinished_conversation_shows_nothing():
    cut = trajectory(5, "Which city governs Japan?", "Japan", "Tokyo", stop="max_turns")
    assert held_out([cut], set(), {"trajectory-5"}, []) == []


def call(name: str, arguments: str) -> Reply:
    return Reply(tool_calls=[CallText(id="c", name=name, arguments=arguments)], stop="tool_calls")


def scores(*replies: Reply) -> dict[str, float]:
    playing = Imitation([SPAIN]).start("trajectory-1", 0)
    for reply in replies:
        assert playing.turn() == playing.turn() is not None
        playing.take(reply)
    assert playing.turn() is None
    return playing.verdict().scores


RIGHT = call("country_capital", '{"country": "Spain"}')
SAID = Reply(content="It is Madrid.")


def test_the_recorded_replies_score_one():
    assert scores(RIGHT, SAID) == {"same_calls": 1.0, "same_tools": 1.0, "same_kind": 1.0}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (call("country_capital", '{"country":  "Spain" }'), SAID, (1, 1, 1)),  # the same JSON
        (call("country_capital", '{"country": "Ghana"}'), SAID, (0.5, 1, 1)),
        (call("country_capital", '{"country": "Spain"'), SAID, (0.5, 1, 1)),  # no JSON
        (call("country_capital", '{"country": "Spain", "year": 1}'), SAID, (0.5, 1, 1)),
        (call("country_currency", '{"country": "Spain"}'), SAID, (0.5, 0.5, 1)),
        (Reply(tool_calls=[*RIGHT.tool_calls, *RIGHT.tool_calls], stop="tool_calls"), SAID, (0.5, 0.5, 1)),
        (SAID, SAID, (0.5, 0.5, 0.5)),  # an answer where a call was due
        (RIGHT, RIGHT, (0.5, 0.5, 0.5)),  # a call where an answer was due
        (SAID, RIGHT, (0, 0, 0)),
        (Reply(content="x", stop="length"), Reply(content="x", stop="length"), (0, 0, 0)),  # cut: no answer
        (Reply(stop="context"), Reply(stop="context"), (0, 0, 0)),
    ],
)
def test_a_turn_counts_where_the_same_is_done(first, second, expected):
    assert scores(first, second) == dict(zip(("same_calls", "same_tools", "same_kind"), expected, strict=True))


def test_a_turn_is_asked_for_on_the_recorded_history_not_on_what_was_replied():
    playing = Imitation([SPAIN]).start("trajectory-1", 0)
    playing.take(SAID)
    ask = playing.turn()
    assert ask is not None
    assert [one["role"] for one in ask.messages] == ["user", "assistant", "tool"]
    assert ask.messages[1]["tool_calls"][0]["function"]["name"] == "country_capital"
    assert "Madrid" in ask.messages[2]["content"]
