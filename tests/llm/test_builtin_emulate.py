"""The rule-based server: results that satisfy schemas, in one world."""

from __future__ import annotations

import datetime
import json
from typing import Any

import jsonschema
import pytest

from astra.llm.builtin.emulate import emulate
from astra.llm.builtin.values import NAMED, PEOPLE, WEEKDAYS

ISSUE = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "string", "enum": ["open", "closed"]},
        "created_at": {"type": "string", "format": "date-time"},
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["id", "title", "status"],
}


def ask(
    name: str,
    arguments: dict[str, Any],
    returns: dict[str, Any] | None,
    history: list[dict[str, Any]] | None = None,
    state: dict[str, Any] | None = None,
) -> dict[str, Any]:
    tool = {"name": name, "description": "", "parameters": {"type": "object"}, "returns": returns}
    shown = {"server": {}, "tool": tool, "arguments": arguments, "history": history or []}
    reply = emulate(shown | ({"state": state} if state else {}))
    if returns and "result" in reply:
        jsonschema.validate(reply["result"], returns)
    return reply


def done(name: str, arguments: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    return {"tool": name, "arguments": arguments, **reply}


def test_the_same_question_has_the_same_answer_whatever_came_between() -> None:
    first = ask("get_issue", {"issue_id": "I-7"}, ISSUE)
    other = done("get_user", {"user_id": "U-1"}, {"result": {"id": "U-1", "name": "Ana"}})
    assert ask("get_issue", {"issue_id": "I-7"}, ISSUE, [other]) == first
    assert first["result"]["id"] == "I-7"


def test_what_was_created_is_read_back_with_its_title_under_its_id() -> None:
    made = ask("create_issue", {"title": "Leak"}, ISSUE)
    history = [done("create_issue", {"title": "Leak"}, made)]
    read = ask("get_issue", {"issue_id": made["result"]["id"]}, ISSUE, history)
    assert read["result"]["title"] == "Leak"
    listed = ask("list_issues", {}, {"type": "array", "items": ISSUE}, history)
    assert made["result"]["id"] in [one["id"] for one in listed["result"]]


def test_two_things_created_alike_have_two_ids() -> None:
    one = ask("create_issue", {"title": "Leak"}, ISSUE)
    two = ask("create_issue", {"title": "Leak"}, ISSUE, [done("create_issue", {"title": "Leak"}, one)])
    assert one["result"]["id"] != two["result"]["id"]


def test_an_update_is_seen_by_the_next_reading() -> None:
    closed = ask("update_issue", {"issue_id": "I-7", "status": "closed"}, ISSUE)
    history = [done("update_issue", {"issue_id": "I-7", "status": "closed"}, closed)]
    assert ask("get_issue", {"issue_id": "I-7"}, ISSUE, history)["result"]["status"] == "closed"


def test_what_was_deleted_is_not_found() -> None:
    history = [done("delete_issue", {"issue_id": "I-7"}, {"result": {"status": "done"}})]
    assert ask("get_issue", {"issue_id": "I-7"}, ISSUE, history) == {"error": "not found: I-7"}


ISSUES = {"type": "array", "items": ISSUE}


def test_what_the_state_settles_goes_before_what_the_history_told_last() -> None:
    told = done("create_issue", {"title": "Leak"}, {"result": {"id": "I-7", "title": "Leak", "status": "open"}})
    state = {"things": [{"kind": "issue", "id": "I-7", "values": {"title": "Flood", "priority": 5}}], "gone": []}
    read = ask("get_issue", {"issue_id": "I-7"}, ISSUE, [told], state)["result"]
    assert (read["id"], read["title"], read["priority"]) == ("I-7", "Flood", 5)
    listed = ask("list_issues", {}, ISSUES, [told], state)["result"]
    assert next(one for one in listed if one["id"] == "I-7")["title"] == "Flood"


def test_a_list_holds_what_fits_its_question_and_nothing_that_is_gone() -> None:
    made = {"result": {"id": "I-7", "title": "Leak", "status": "open"}}
    history = [done("create_issue", {"title": "Leak", "project_id": "P-1"}, made)]
    assert "I-7" in [one["id"] for one in ask("list_issues", {"project_id": "P-1"}, ISSUES, history)["result"]]
    assert "I-7" not in [one["id"] for one in ask("list_issues", {"project_id": "P-2"}, ISSUES, history)["result"]]
    drawn = ask("list_issues", {}, ISSUES)["result"][0]["id"]
    gone = {"things": [], "gone": [{"kind": "issue", "id": drawn}]}
    assert drawn not in [one["id"] for one in ask("list_issues", {}, ISSUES, [], gone)["result"]]


def test_what_is_made_gets_an_id_that_the_session_has_not_met() -> None:
    drawn = ask("create_issue", {"title": "Leak"}, ISSUE)["result"]["id"]
    reads = [done("get_issue", {"issue_id": drawn}, {"result": {"id": drawn}})]
    blocked = ask("create_issue", {"title": "Leak"}, ISSUE, [{"tool": "x", "arguments": {}, "error": "no"}])
    taken = [done("get_issue", {}, {"result": {"id": blocked["result"]["id"]}})]
    assert ask("create_issue", {"title": "Leak"}, ISSUE, taken)["result"]["id"] != blocked["result"]["id"]
    assert ask("create_issue", {"title": "Leak"}, ISSUE, reads)["result"]["id"] != drawn


def test_what_was_cancelled_is_there_and_says_so() -> None:
    booking = {"type": "object", "properties": {"booking_ref": {"type": "string"}, "status": {"type": "string"}}}
    history = [done("cancel_booking", {"booking_ref": "B-1"}, {"result": {"booking_ref": "B-1"}})]
    read = ask("check_booking", {"booking_ref": "B-1"}, booking, history)["result"]
    assert read == {"booking_ref": "B-1", "status": "cancelled"}


def test_items_that_share_an_id_with_the_question_are_things_apart() -> None:
    level = {"type": "object", "properties": {"gauge_id": {"type": "string"}, "day": {"type": "string"}}}
    lists = [ask("list_levels", {"gauge_id": f"G-{n}"}, {"type": "array", "items": level})["result"] for n in range(9)]
    assert max(map(len, lists)) == 3
    assert all(one["gauge_id"] == f"G-{n}" for n, made in enumerate(lists) for one in made)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"price": {"type": "number", "minimum": 5, "maximum": 6}}},
        {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 3, "multipleOf": 5}}},
        {
            "type": "object",
            "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}-\\d{2}$"}},
            "required": ["code"],
        },
        {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 2, "$defs": {"a": {"enum": ["x", "y"]}}},
        {"type": "array", "items": {"$ref": "#/$defs/a~1b"}, "minItems": 1, "$defs": {"a/b": {"enum": [7, 8]}}},
        {"anyOf": [{"type": "null"}, {"type": "string", "format": "uuid"}]},
        {"allOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}]},
        {"type": ["object", "null"], "additionalProperties": {"type": "number"}},
        {"type": "string", "maxLength": 4},
        {"type": "boolean"},
        {},
    ],
)
def test_results_satisfy_their_schema(schema: dict[str, Any]) -> None:
    ask("get_thing", {"city": "Oslo"}, schema)


def test_given_values_are_echoed_and_a_total_counts_its_list() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "total": {"type": "integer"},
            "stays": {"type": "array", "items": ISSUE},
        },
    }
    result = ask("search_stays", {"city": "Oslo"}, schema)["result"]
    assert result["city"] == "Oslo"
    assert result["total"] == len(result["stays"])
    assert json.dumps(result) == json.dumps(ask("search_stays", {"city": "Oslo"}, schema)["result"])


def test_times_lie_on_the_day_that_the_call_names():
    schema = {"type": "object", "properties": {"departs_at": {"type": "string", "format": "date-time"}}}
    assert ask("list_sailings", {"day": "2026-05-04"}, schema)["result"]["departs_at"].startswith("2026-05-04T")
    assert ask("list_sailings", {"day": "2026-02-31"}, schema)["result"]["departs_at"].startswith("2026-")


# ---------------------------------------------------------------- values that make sense together


def told(tool: str, arguments: dict[str, Any], **properties: dict[str, Any]) -> dict[str, Any]:
    returns = {"type": "object", "properties": properties}
    shown = {"tool": {"name": tool, "returns": returns}, "arguments": arguments, "history": [], "state": None}
    return dict(emulate(shown)["result"])


TEXT, NUMBER, DAY = {"type": "string"}, {"type": "number"}, {"type": "string", "format": "date"}


def test_an_amount_with_tax_and_a_price_of_many_are_reckoned_from_the_call() -> None:
    assert told("issue_invoice", {"net_eur": 100.0}, gross_eur=NUMBER) == {"gross_eur": 120.0}
    assert told("quote_fare", {"n_passengers": 2}, fare_eur=NUMBER) == {"fare_eur": 73.0}


def test_what_begins_does_so_before_it_ends_and_a_weekday_is_that_of_its_day() -> None:
    for place in ("Lyme", "Oban", "Pula", "Kotor", "Izola"):
        season = told("get_season", {"place": place}, season_start=DAY, season_end=DAY)
        assert season["season_start"] <= season["season_end"]
        now = told("get_time", {"place": place}, datetime={"type": "string"}, day_of_week=TEXT)
        assert datetime.date.fromisoformat(now["datetime"][:10]).strftime("%A") == now["day_of_week"]


def test_texts_are_of_the_kind_that_name_and_document_say() -> None:
    people = told("list_it", {}, lecturer={**TEXT, "description": "Name of the lecturer."})
    assert people["lecturer"] in PEOPLE
    assert told("get_animal", {}, animal_name=TEXT)["animal_name"] in NAMED["animal"]
    assert told("find_markets", {}, market_day=TEXT)["market_day"] in WEEKDAYS
    assert told("look_up", {"article_words": "hex bolts"}, article_name=TEXT)["article_name"].startswith("Hex bolts, ")


def test_what_was_just_booked_is_not_cancelled() -> None:
    states = {"type": "string", "enum": ["confirmed", "waiting", "cancelled"]}
    assert all(told("book_trip", {"place": str(n)}, status=states)["status"] == "confirmed" for n in range(8))
    read = {told("check_trip", {"trip_id": f"TRIP-{n}"}, status=states)["status"] for n in range(20)}
    assert read == {"confirmed", "waiting"}
