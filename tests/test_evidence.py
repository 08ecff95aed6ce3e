"""evidence: what has a source and what has none; silence where it cannot be told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from astra.evidence import exchanges, gather
from astra.evidence.caps import Caps, cap_of_answer, cap_of_calls
from astra.evidence.known import Known
from astra.evidence.reading import days, numbers, times
from astra.evidence.sources import Given, facts, source_fault
from astra.evidence.transcript import clipped
from astra.records import Evidence, FunctionCall, Message, ToolCall, ToolSpec, Trajectory, Usage

REQUEST = (
    "Please find the member with phone +47 22 55 50 17 for two people on 5 March at 2 pm in München. Invoice R-2026-081 "
    "of Anna's shop is over 1,234.50 EUR, 12 km away; write to anna.b@example.org, see https://shop.example/r/81."
)


def told(*texts: str) -> Known:
    known = Known()
    for text in texts:
        known.say(text)
    return known


def fault(
    value: Any, required: bool = True, schema: dict[str, Any] | None = None, request: str = REQUEST
) -> str | None:
    return source_fault(Given("x", value, schema or {}, required), told(request))


@pytest.mark.parametrize(
    "value",
    [
        "+47 22 55 50 17", "+4722555017", "22 55 50 17", 2, "2", "2026-03-05", "2026-03-05T14:00:00Z", "14:00",
        "München", "Munchen", "munchen", "R-2026-081", "081", "Anna", "annas", 1234.5, "1234.50", "1.234,50 EUR",
        "1,234.50", "EUR", "eur", 12, 12000, "anna.b@example.org", "https://shop.example/r/81", "example.org",
        "Dear Anna, please pay R-2026-081 until 5 March.", 1246.5, 617.25, "東京",
    ],
)  # fmt: skip
def test_a_value_that_was_said_in_any_form_has_a_source(value):
    assert fault(value) is None


@pytest.mark.parametrize(
    "value",
    [
        "+47 22 55 50 18", "2026-03-06", "2027-04-05T10:00:00Z", "R-2026-082", "X-2026-081", "R-2025-081", 1234.7, 99,
        "4711", "bob@example.org", "anna.b@example.com", "https://shop.example/r/82", "Reminder: pay R-2026-999 soon.",
    ],
)  # fmt: skip
def test_an_id_an_address_a_day_or_a_number_from_nowhere_is_invented(value):
    assert fault(value) == "invented"


@pytest.mark.parametrize("value", ["Atlantis", "Bob", "a quick brown fox", "15:30", "2026-03-05T09:15:00"])
def test_words_small_numbers_and_times_from_nowhere_may_be_a_paraphrase(value):
    assert fault(value) == "unsourced"


def test_a_small_number_may_have_been_said_in_words():
    assert fault(7, request="Book it for the whole crew.") == "unsourced"
    assert fault(70, request="Book it for the whole crew.") == "invented"


@pytest.mark.parametrize(
    ("value", "required", "schema"),
    [
        (True, True, {}), (None, True, {}), ("asc", True, {"enum": ["asc", "desc"]}), (50, True, {"default": 50}),
        (50, False, {}), ("metric", False, {}), ("metric", True, {"description": "Units: metric or imperial."}),
        ("DE", True, {}), ("de", True, {}),
    ],
)  # fmt: skip
def test_what_is_for_the_agent_to_decide_is_no_invention(value, required, schema):
    assert fault(value, required, schema) is None


def test_an_example_in_a_document_is_no_source_of_an_id():
    assert fault("R-2026-777", schema={"description": "Number of an invoice, e.g. R-2026-777."}) == "invented"


def test_an_optional_id_from_nowhere_is_invented_too():
    assert fault("R-2026-777", required=False) == "invented"


@pytest.mark.parametrize(
    "request_", ["Book it for next Tuesday.", "Book it in 3 days.", "Reserviere für morgen.", "明天"]
)
def test_a_day_is_worked_out_where_the_user_spoke_of_one_relative_to_today(request_):
    assert fault("2026-03-06", request=request_) is None


@pytest.mark.parametrize("request_", ["Book it for a day of mine.", "After that, plan this week start."])
def test_and_is_invented_where_not(request_):
    assert fault("2026-03-06", request=request_.replace("this week start", "the week")) == "invented"


def test_a_value_in_another_script_cannot_be_told():
    assert fault("Tokyo", request="東京の天気は？") is None
    assert fault("東京", request="The weather in Tokyo?") is None


def test_a_number_in_another_unit_was_computed_and_an_answer_may_round():
    known = told("It is 21.4 degrees and 10 km away, 1500 pounds at 193.21 each.")
    assert facts("That is 70.5 °F, 6.2 miles, about 21 degrees, 289,815 yen, roughly 290,000.", known).unsupported == ()
    assert facts("That is 71.5 °F, about 24 degrees, roughly 270,000.", known).unsupported == ("71.5", "24", "270,000")


def test_a_number_that_only_names_something_is_not_computed():
    known = told("Compare 17 and 30.")
    assert source_fault(Given("total", 47, {}, True), known) is None
    assert source_fault(Given("order_id", 47, {}, True), known) == "invented"
    assert source_fault(Given("orderId", 30, {}, True), known) is None


def test_a_place_may_be_given_by_coordinates_that_the_agent_knows():
    assert source_fault(Given("latitude", 51.5074, {}, True), told("The weather in London?")) == "unsourced"


def test_totals_means_and_lengths_of_a_result_were_computed():
    known = told("Sum up my bills.")
    known.take_value({"bills": [{"eur": 17.25, "no": "B-1"}, {"eur": 20.5, "no": "B-2"}, {"eur": 31.0, "no": "B-3"}]})
    for number in (68.75, 22.92, 37.75, 13.75):
        assert source_fault(Given("x", number, {}, True), known) is None
    assert source_fault(Given("x", 68.95, {}, True), known) == "invented"


def test_numbers_days_and_times_are_read_in_every_way_that_they_can_be_meant():
    assert {1234.0, 1.234} <= set(numbers("1.234"))
    assert {5000.0, 0.19, 19.0, 2.5e6} <= set(numbers("5k, 19 % and 2.5 million"))
    assert {tuple(one) for one in days("03/04/2030")} == {(2030, 4, 3), (2030, 3, 4)}
    assert [tuple(one) for one in days("on the 5th of March, 2026 or May 3")] == [(2026, 3, 5), (None, 5, 3)]
    assert list(times("at 2 pm, 14:30 and 12 a.m.")) == [(14, 0), (14, 30), (0, 0)]


# ---------------------------------------------------------------- facts


@pytest.mark.parametrize(
    ("text", "unsupported"),
    [
        ("The answer is Atlantis.", ("Atlantis",)),
        ("On 5 March 2026 at 14:00 Anna's shop wants 1234.50 EUR.", ()),
        ("On 6 March it is 1,240.10 €.", ("6 March", "1,240.10")),
        ("See https://evil.example/x, and write to bob@example.org.", ("https://evil.example/x", "bob@example.org")),
        ("1. Find it\n2. Pay it\nThat makes 3 steps.", ()),
        ("Invoice R-2026-081 or R-2026-082?", ("R-2026-082",)),
        ("Die Rechnung ist für Frau Keller, 99,50 Euro.", ("99,50",)),
        ("**Payment Summary**\n- Invoice Number: R-2026-081", ()),
        ("It is 12km from here, which is 12000 metres.", ()),
        ("", ()),
    ],
)  # fmt: skip
def test_facts_of_an_answer_are_looked_for_in_what_was_said(text, unsupported):
    assert facts(text, told(REQUEST)).unsupported == unsupported


def test_the_share_of_facts_with_a_source_is_one_where_nothing_is_stated():
    assert facts("I could not do that.", told(REQUEST)).share == 1.0
    assert facts("It is Atlantis, R-2026-081.", told(REQUEST)).share == 0.5


# ---------------------------------------------------------------- trajectories

TOOL = ToolSpec(
    name="get_invoice", description="Get the printed form of an invoice.",
    parameters={
        "type": "object", "required": ["invoice"],
        "properties": {"invoice": {"$ref": "#/$defs/invoice"}, "lines": {"type": "array", "items": {"type": "object"}}},
        "$defs": {
            "invoice": {"type": "object", "required": ["no"],
                        "properties": {"no": {"type": "string"}, "copies": {"type": "integer"}}},
        },
    },
)  # fmt: skip


def call(arguments: Any, name: str = "get_invoice", number: int = 1, text: str = "") -> Message:
    made = FunctionCall(name=name, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments))
    return Message(role="assistant", content=text, tool_calls=(ToolCall(id=f"c{number}", function=made),))


def answer(content: Any, number: int = 1, **more: Any) -> Message:
    text = content if isinstance(content, str) else json.dumps(content)
    return Message(role="tool", tool_call_id=f"c{number}", content=text, executed_by="emulator", **more)


def found(*messages: Message, request: str = "Get invoice R-2026-081.") -> list[tuple[str, int, int | None]]:
    return [(one.kind, one.message, one.call) for one in gather(trajectory(*messages, request=request)).evidence]


def trajectory(*messages: Message, request: str = "Get invoice R-2026-081.") -> Trajectory:
    return Trajectory(
        id="t", task_id="k", server_ids=("s",), attempt=0, tools=(TOOL,), stop="answered", model="m",
        messages=(Message(role="system", content="Use tools."), Message(role="user", content=request), *messages),
        usage=Usage(calls=1, prompt_tokens=1, completion_tokens=1),
    )  # fmt: skip


def test_nested_arguments_are_followed_into_the_tools_document():
    assert found(call({"invoice": {"no": "R-2026-081", "copies": 70}})) == []  # copies: optional, a decision
    assert found(call({"invoice": {"no": "R-2026-099"}})) == [("invented", 2, 0)]
    assert found(call({"invoice": {"no": "R-2026-081"}, "lines": [{"ref": "L-55"}]})) == [("invented", 2, 0)]


def test_an_earlier_result_is_a_source_and_a_later_one_is_not():
    first, second = call({"invoice": {"no": "R-2026-081"}}), call({"invoice": {"no": "R-2026-099"}}, number=2)
    assert found(first, answer({"next": "R-2026-099"}), second, answer("{}", 2)) == []
    assert found(second, answer({"next": "R-2026-099"}, 2)) == [("invented", 2, 0)]


def test_what_an_error_says_back_is_no_source_and_what_it_adds_is():
    wrong = call({"invoice": {"no": "R-2026-099"}})
    error = answer("no invoice R-2026-099; there is R-2026-100", is_error=True)
    again = call({"invoice": {"no": "R-2026-099"}}, number=2)
    right = call({"invoice": {"no": "R-2026-100"}}, number=3)
    kinds = found(wrong, error, again, answer("no", 2, is_error=True), right, answer("{}", 3))
    assert kinds == [("invented", 2, 0), ("failed_before", 4, 0), ("invented", 4, 0)]


def test_a_call_is_repeated_where_it_brought_the_same_and_asked_again_where_not():
    one, other = call({"invoice": {"no": "R-2026-081"}}), call({"invoice": {"no": "R-2026-081"}}, number=2)
    assert found(one, answer("open"), other, answer("open", 2)) == [("repeated", 4, 0)]
    assert found(one, answer("open"), other, answer("paid", 2)) == [("asked_again", 4, 0)]
    spaced = call('{"invoice":   {"no": "R-2026-081"}}', number=2)
    assert found(one, answer("open"), spaced, answer("open", 2)) == [("repeated", 4, 0)]


def test_an_injected_failure_tried_again_is_nothing_to_note():
    one, other = call({"invoice": {"no": "R-2026-081"}}), call({"invoice": {"no": "R-2026-081"}}, number=2)
    assert found(one, answer("timed out", is_error=True, fault="timeout"), other, answer("open", 2)) == []
    assert found(one, answer("locked", is_error=True), other, answer("open", 2)) == [("failed_before", 4, 0)]


def test_a_tool_that_is_not_offered_is_invented():
    assert found(call({}, name="pay_invoice")) == [("invented", 2, 0)]


def test_arguments_that_are_no_json_are_left_to_the_judge():
    assert found(call('{"invoice": ')) == []


def test_an_answer_may_speak_of_what_was_done_and_of_the_tools_but_not_of_a_failed_calls_values():
    done = call({"invoice": {"no": "R-2026-081", "copies": 70}})
    said = Message(role="assistant", content="I got 70 copies of the Printed Form.")
    assert found(done, answer("{}"), said) == []
    assert found(done, answer("busy", is_error=True), said) == [("unsupported", 4, None)]


def test_calls_find_their_own_answers_where_ids_come_again_or_the_order_is_another():
    both = Message(role="assistant", content="", tool_calls=(call({}).tool_calls[0], call({}, number=2).tool_calls[0]))
    messages = (both, answer("b", 2), answer("a"), call({}), answer("c"), call({}, number=3))
    contents = [one.answer.content if one.answer else None for one in exchanges(messages)]
    assert contents == ["a", "b", "c", None]


def test_caps_are_those_of_the_worst_evidence_and_a_turns_are_the_mean_of_its_calls():
    caps = Caps(invented=0.0, unsourced=0.5, repeated=0.0, unheeded=0.5, unfinished=0.0)
    bad = gather(trajectory(call({"invoice": {"no": "R-2026-099"}}), Message(role="assistant", content="It is 4711.")))
    one, turn = cap_of_calls(bad, caps, 2, 1, 0), cap_of_calls(bad, caps, 2, 4)
    assert one is not None
    assert turn is not None
    assert (one.cap, turn.cap) == (0.0, 0.75)
    last = cap_of_answer(bad, caps, 3)
    assert last is not None
    assert last.cap == 0.5
    assert caps.of(Evidence(kind="asked_again", message=1, call=0, detail="")) == 1.0


def test_a_long_text_is_clipped_to_its_beginning_and_end():
    assert clipped("abc", 3) == "abc"
    text = clipped("a" * 500 + "z" * 500, 200)
    assert text.startswith("a" * 150 + " [... 800 characters")
    assert text.endswith("z" * 50)


def test_a_large_result_is_read_in_reasonable_time():
    rows = [{"id": f"ROW-{n}", "eur": n * 1.5, "on": "2026-03-05"} for n in range(5000)]
    blob = "QmFzZTY0" * 20_000
    many = [call({"invoice": {"no": f"ROW-{n}"}}, number=n + 2) for n in range(20)]
    answers = [answer("{}", n + 2) for n in range(20)]
    pairs = [message for pair in zip(many, answers, strict=True) for message in pair]
    assert found(call({"invoice": {"no": "R-2026-081"}}), answer({"rows": rows, "blob": blob}), *pairs) == []
