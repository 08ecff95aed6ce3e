"""The held state: what contradicts it is told, what may be true is not."""

from __future__ import annotations

from typing import Any

import pytest

from astra.environments.naming import attribute, identifies, noun, reads_only
from astra.environments.world import Exchange, World, same

Step = tuple[str, dict[str, Any], Any]


def after(*steps: Step) -> World:
    world = World()
    for tool, arguments, result in steps:
        exchange = Exchange(tool, arguments, result)
        assert world.contradiction(exchange) is None
        world.take(exchange)
    return world


def refusal(world: World, tool: str, arguments: dict[str, Any], result: Any = None, error: str | None = None) -> str:
    return world.contradiction(Exchange(tool, arguments, result, error)) or ""


READ = ("get_issue", {"issue_id": "I-7"}, {"id": "I-7", "title": "Leak", "status": "open", "votes": 3})
LISTED = ("search_issues", {"text": "water"}, {"issues": [{"id": "I-7", "title": "Leak", "votes": 3}], "total": 1})
MADE = ("create_issue", {"title": "Crash", "priority": 2}, {"id": "I-8", "title": "Crash", "status": "open"})
CLOSED = ("update_issue", {"issue_id": "I-7", "status": "closed"}, {"id": "I-7", "status": "closed"})
DELETED = ("delete_issue", {"issue_id": "I-7"}, {"ok": True})


@pytest.mark.parametrize(
    ("steps", "answer", "told"),
    [
        ([LISTED], ("get_issue", {"issue_id": "I-7"}, {"id": "I-7", "title": "Flood"}), "title of issue i-7 is 'Leak'"),
        ([READ], ("search_issues", {"text": "x"}, [{"id": "I-7", "votes": 4}]), "votes of issue i-7 is 3"),
        ([MADE], ("get_issue", {"issue_id": "I-8"}, {"id": "I-8", "title": "Slow"}), "title of issue i-8 is 'Crash'"),
        ([MADE], ("get_issue", {"issue_id": "I-8"}, {"id": "I-8", "priority": 5}), "priority of issue i-8 is 2, written"),
        ([READ, CLOSED], ("get_issue", {"issue_id": "I-7"}, {"id": "I-7", "status": "open"}), "status of issue i-7"),
        ([READ, CLOSED], ("get_issue", {"issue_id": "I-7"}, {"id": "I-7", "title": "Flood"}), "title of issue i-7"),
        ([READ, DELETED], ("get_issue", {"issue_id": "I-7"}, READ[2]), "issue i-7 was deleted"),
        ([READ, DELETED], LISTED, "issue i-7 was deleted"),
        ([READ, MADE], ("list_issues", {}, {"issues": [READ[2]]}), "issue i-8, made in call 2, is not in the list"),
        ([MADE], ("create_issue", {"title": "Slow"}, {"id": "I-8"}), "the id of issue i-8 was given out in call 1"),
        ([READ], ("create_issue", {"title": "Slow"}, {"id": "I-7"}), "the id of issue i-7 belongs to another issue"),
        ([], ("get_issue", {"issue_id": "I-7"}, {"id": "I-9"}), "about issue i-7 and the answer about issue i-9"),
        ([], ("list_notes", {"issue_id": "I-7"}, [{"note_id": "N", "issue_id": "I-9"}]), "has issue_id 'I-9' in a list"),
        ([], ("get_note_author", {"note_id": "N-1"}, {"note_id": "N-2"}), "note_id is 'N-1' in the call and 'N-2'"),
        ([MADE], ("update_issue", {"issue_id": "I-8", "status": "closed"}, {"id": "I-8", "priority": 4}), "priority"),
        ([], ("update_issue", {"issue_id": "I-7", "votes": 3}, {"votes": 4}), "votes is 3 in the call and 4"),
        ([], ("list_issues", {}, [{"id": "I-7", "title": "A"}, {"id": "I-7", "title": "B"}]), "in one place"),
    ],
)  # fmt: skip
def test_an_answer_that_contradicts_the_session_is_told_with_what_it_contradicts(steps, answer, told):
    assert told in refusal(after(*steps), *answer)


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        ([READ], ("get_issue", {"issue_id": "I-7"}, {"id": "I-7", "title": "leak ", "votes": 3.0})),
        ([READ, CLOSED], ("get_issue", {"issue_id": "I-7"}, {"id": "I-7", "status": "closed", "votes": 4})),
        ([READ], ("get_user", {"user_id": "I-7"}, {"id": "I-7", "title": "Dr"})),
        ([READ], ("get_issue", {"issue_id": "I-9"}, {"id": "I-9", "title": "Flood"})),
        ([READ, DELETED], ("create_issue", {"title": "Leak"}, {"id": "I-9", "title": "Leak"})),
        ([MADE], ("list_issues", {}, {"issues": [], "next_cursor": "p2"})),
        ([MADE], ("list_issues", {"status": "closed"}, {"issues": []})),
        ([MADE], ("list_issues", {}, {"titles": ["Crash"]})),
        ([MADE], ("list_issues", {}, {"values": [{"id": "I-8", "title": "Crash"}]})),
        ([], ("list_levels", {"gauge_id": "G"}, [{"gauge_id": "G", "cm": 3}, {"gauge_id": "G", "cm": 4}])),
        ([], ("list_cities", {}, [{"country_code": "PT", "n": 3}, {"country_code": "PT", "n": 4}])),
        ([], ("translate_text", {"text": "hello"}, {"text": "bonjour"})),
        ([], ("find_place", {"name": "Lyme"}, {"place_id": "P", "name": "Lyme Regis"})),
        (
            [("quote_fare", {"sailing_id": "S", "n_passengers": 1}, {"sailing_id": "S", "fare": 10})],
            ("quote_fare", {"sailing_id": "S", "n_passengers": 2}, {"sailing_id": "S", "fare": 20}),
        ),
        (
            [("get_player_season", {"player_id": "P"}, {"player_id": "P", "goals": 3})],
            ("get_player_career", {"player_id": "P"}, {"player_id": "P", "goals": 90}),
        ),
        (
            [("list_bikes", {"station_id": "S"}, [{"bike_id": "B", "battery": 50}]),
             ("start_ride", {"bike_id": "B"}, {"ride_id": "R"})],
            ("list_bikes", {"station_id": "S"}, [{"bike_id": "B", "battery": 40}]),
        ),
        ([("set_balance", {"account_id": "A", "balance": 100}, {"account_id": "A", "balance": 100}),
          ("withdraw", {"account_id": "A", "amount": 30}, {"account_id": "A", "balance": 70})],
         ("get_account", {"account_id": "A"}, {"account_id": "A", "balance": 70})),
        ([("register_adopter", {"name": "Ana"}, {"adopter_id": "A-1"})],
         ("transfer_chip", {"chip_no": "C-1", "adoption_id": "D-1"}, {"chip_no": "C-1", "adopter_id": "A-1"})),
    ],
)  # fmt: skip
def test_an_answer_that_may_be_true_is_not_held_against_the_server(steps, answer):
    assert refusal(after(*steps), *answer) == ""


def test_a_thing_that_was_told_of_cannot_be_denied_and_a_deleted_one_can():
    assert "call 1 told of it" in refusal(after(READ), "get_issue", {"issue_id": "I-7"}, error="No such issue.")
    assert refusal(after(READ, DELETED), "get_issue", {"issue_id": "I-7"}, error="No such issue.") == ""
    assert refusal(after(READ), "get_issue", {"issue_id": "I-9"}, error="No such issue.") == ""
    assert refusal(after(READ), "get_issue", {"issue_id": "I-7"}, error="Not on Sundays.") == ""


def test_what_is_gone_is_missing_until_it_is_restored():
    world = after(READ, DELETED)
    assert world.missing("get_issue", {"issue_id": "I-7"}) == "not found: I-7"
    assert world.missing("get_user", {"user_id": "I-7"}) is None
    assert world.missing("restore_issue", {"issue_id": "I-7"}) is None
    world.take(Exchange("restore_issue", {"issue_id": "I-7"}, {"ok": True}))
    assert world.missing("get_issue", {"issue_id": "I-7"}) is None


def test_taking_something_out_of_something_deletes_neither():
    world = after(
        ("remove_item", {"cart_id": "C", "item_id": "I"}, {"ok": True}),
        ("remove_label", {"issue_id": "I-7", "label": "wet"}, {"ok": True}),
    )
    assert world.missing("get_issue", {"issue_id": "I-7"}) is None
    assert world.missing("get_cart", {"cart_id": "C"}) is None
    assert world.missing("get_item", {"item_id": "I"}) is None


def test_a_call_that_failed_by_its_own_word_changes_nothing():
    world = after(READ, ("delete_issue", {"issue_id": "I-7"}, {"success": False}))
    assert world.missing("get_issue", {"issue_id": "I-7"}) is None
    assert "votes" in refusal(world, "get_issue", {"issue_id": "I-7"}, {"id": "I-7", "votes": 9})


def test_the_state_shows_what_is_settled_and_what_is_gone():
    assert after(READ, CLOSED, MADE).shown() == {
        "things": [
            {"kind": "issue", "id": "I-7", "values": {"title": "Leak", "status": "closed"}},
            {"kind": "issue", "id": "I-8", "values": {"title": "Crash", "priority": 2, "status": "open"}},
        ],
        "gone": [],
    }
    assert after(READ, DELETED).shown() == {"things": [], "gone": [{"kind": "issue", "id": "I-7"}]}


def test_an_earlier_state_is_the_answer_with_what_its_values_were():
    world = after(READ, CLOSED)
    now = Exchange("get_issue", {"issue_id": "I-7"}, {"id": "I-7", "title": "Leak", "status": "closed"})
    assert world.earlier(now) == {"id": "I-7", "title": "Leak", "status": "open"}
    assert now.result["status"] == "closed"
    assert after(READ).earlier(Exchange(*READ)) is None


def test_an_earlier_list_lacks_what_was_made_last():
    world = after(READ, CLOSED, MADE)
    listed = Exchange("list_issues", {}, {"issues": [{"id": "I-7", "status": "closed"}, MADE[2]], "total": 2})
    assert world.earlier(listed) == {"issues": [{"id": "I-7", "status": "closed"}], "total": 1}
    assert world.earlier(Exchange("list_issues", {}, [MADE[2]])) == []
    assert world.earlier(Exchange("get_issue", {"issue_id": "I-8"}, MADE[2])) is None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True), (True, 1, False), ("Ana  Ruiz", "ana ruiz", True), ("12", 12, True), ([1, "a"], [1.0, "A"], True),
        ("2026-05-04", "2026-05-04T00:00:00Z", True), ("2026-05-04", "2026-05-05", False), ([1], [1, 2], False),
    ],
)  # fmt: skip
def test_values_are_compared_by_what_they_say(one, other, equal):
    assert same(one, other) is equal


def test_names_say_what_reads_and_what_identifies():
    assert reads_only("getBerth")
    assert reads_only("search_routes")
    for writing in ("assign_berth", "budget_get", "check_in_guest", "get_or_create_user", "country_capital", ""):
        assert not reads_only(writing)
    assert (noun("find_farm_markets_for_farm_market"), noun("getUserById"), noun("ping")) == ("market", "user", "")
    assert [identifies(name) for name in ("id", "issueId", "booking_ref", "file_ids")] == [
        "",
        "issue",
        "booking",
        "file",
    ]
    assert [identifies(name) for name in ("country_code", "page_number", "code", "title", "new_id")] == [None] * 5
    assert attribute("new_title", "issue") == attribute("issueTitle", "issue") == "title"
