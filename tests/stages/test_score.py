"""score: seven dimensions, rules before the judge, and a judge that fails is a reject, never a number."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

import stages.score as stage
from astra.judge import Judge
from astra.llm import TRANSPORTS, builtin_client
from astra.llm.builtin import BuiltinTransport
from astra.llm.errors import EndpointUnavailable
from astra.llm.types import Completion, ModelParams, Request
from astra.prompts import render
from astra.records import FunctionCall, LateTools, Message, Scorecard, Task, ToolCall, ToolSpec, Trajectory, Usage
from astra.scorecards import Unjudged, places
from astra.stage import read_records, write_records
from tests.llm.clients import client_of

LLM = "llm: {concurrency: 4, attempts: 1, timeout_s: 60, deadline_s: 60, max_wait_s: 1, budget: {stage_usd: null, run_usd: null}, prices: {}}\n"
MODEL = ModelParams(transport="builtin", name="astra-rules-1", temperature=0, max_tokens=256)
ALL = ["QU", "QP", "TCU", "TCP", "TCS", "TC", "FA"]
PARAMS = stage.Params.model_validate({
    "dimensions": ALL, "reasks": 1, "votes": 1,
    "caps": {"invented": 0.0, "unsourced": 0.5, "repeated": 0.0, "unheeded": 0.5, "unfinished": 0.0},
    "max_unjudged": 0.1, "max_shown": 4000,
})  # fmt: skip


def tool(name: str, description: str) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {name.split("_")[0]: {"type": "string"}},
        "required": [name.split("_")[0]],
    }
    return ToolSpec(name=name, description=description, parameters=schema)


TOOLS = (
    tool("airport_city", "Host city of an airport."),
    tool("city_country", "Home country of a city."),
    tool("city_population", "City population of a city."),
)
QUESTION = "For airport LHR, find the host city, then its home country."


def turn(number: int, said: str, name: str, argument: str) -> Message:
    call = FunctionCall(name=name, arguments=json.dumps({name.split("_")[0]: argument}))
    return Message(role="assistant", content=said, tool_calls=(ToolCall(id=f"c{number}", function=call),))


def result(number: int, text: str, error: bool = False) -> Message:
    return Message(role="tool", tool_call_id=f"c{number}", content=text, is_error=error, executed_by="sandbox")


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def trajectory(*messages: Message, name: str = "t1", question: str = QUESTION, **more: Any) -> Trajectory:
    return Trajectory(
        id=name, task_id="task", server_ids=("s",), attempt=0, tools=more.pop("tools", TOOLS), stop="answered",
        model="m", messages=(Message(role="system", content="Be brief."), user(question), *messages),
        usage=Usage(calls=1, prompt_tokens=1, completion_tokens=1), **more,
    )  # fmt: skip


GOOD = (
    turn(1, "Next: host city of LHR.", "airport_city", "LHR"), result(1, '{"result": "London"}'),
    turn(2, "Next: home country of London.", "city_country", "London"), result(2, '{"result": "United Kingdom"}'),
    Message(role="assistant", content="The answer is United Kingdom."),
)  # fmt: skip


PLAIN = stage.Brief()


def judged(one: Trajectory, judge: Judge | None = None, brief: stage.Brief = PLAIN) -> Scorecard:
    judge = judge or Judge(builtin_client(), MODEL, 1, 1)
    _, outcome = next(iter(stage.score([one], {"task": brief}, judge, PARAMS)))
    assert isinstance(outcome, Scorecard), outcome
    return outcome


class Gives:
    """A judge that gives every question the same score and keeps the prompts."""

    def __init__(self, score: float = 1.0) -> None:
        self.score = score
        self.prompts: list[str] = []

    async def send(self, request: Request) -> Completion:
        self.prompts.append(request.messages[0].content or "")
        text = json.dumps(dict.fromkeys(("score", "relevance", "faithfulness"), self.score) | {"reason": "as ever"})
        return Completion(text, "stop", Usage(calls=1, prompt_tokens=0, completion_tokens=0))

    def inputs(self, dimension: str) -> list[dict[str, Any]]:
        """What it was shown for a dimension."""
        title = render(f"score/{dimension}", input="").splitlines()[0]
        found = [text for text in self.prompts if text.startswith(title)]
        return [json.loads(text.split("```json\n")[1].split("\n```")[0]) for text in found]


def given(score: float, one: Trajectory, brief: stage.Brief = PLAIN) -> Scorecard:
    """What becomes of a judge that gives everything this score."""
    return judged(one, Judge(client_of(Gives(score)), MODEL, 1, 1), brief)


def dimension(card: Scorecard, name: str) -> float:
    score = card.dimensions[name].score
    assert score is not None
    return score


def test_a_clean_conversation_gets_full_marks_on_all_seven():
    card = judged(trajectory(*GOOD))
    assert {name: dimension(card, name) for name in card.dimensions} == dict.fromkeys(ALL, 1.0)
    assert card.overall == 1.0


def test_a_failed_call_counts_nothing_in_tool_call_status():
    messages = (turn(1, "Next: host city of LHR.", "airport_city", "LHR"), result(1, "timed out", error=True), *GOOD)
    assert dimension(judged(trajectory(*messages)), "TCS") == pytest.approx(2 / 3)


def test_a_repeated_and_a_needless_call_are_not_concise():
    repeated = (
        *GOOD[:2],
        turn(3, "Next: host city of LHR.", "airport_city", "LHR"),
        result(3, '{"result": "London"}'),
        *GOOD[2:],
    )
    assert dimension(judged(trajectory(*repeated)), "TC") == pytest.approx(2 / 3)
    needless = (
        *GOOD[:2],
        turn(3, "Next: city population of London.", "city_population", "London"),
        result(3, '{"result": 9}'),
        *GOOD[2:],
    )
    assert dimension(judged(trajectory(*needless)), "TC") == pytest.approx(2 / 3)


def test_an_answer_without_a_source_is_not_faithful():
    made_up = (*GOOD[:-1], Message(role="assistant", content="The answer is 4711."))
    card = judged(trajectory(*made_up))
    assert dimension(card, "FA") <= 0.5
    assert "4711" in card.dimensions["FA"].reason


def test_a_conversation_without_calls_is_judged_on_what_applies():
    card = judged(trajectory(Message(role="assistant", content="The answer is France.")))
    assert set(card.dimensions) == {"QU", "QP", "FA"}
    assert card.overall < 0.1


def test_saying_that_no_tool_does_it_is_only_right_where_none_does():
    refusal = said("I cannot answer: no tool gives the currency.")
    beside_the_point = judged(trajectory(refusal))
    longer = "For airport LHR, find the host city, then its home country, then its currency."
    right = judged(trajectory(refusal, question=longer))
    assert dimension(beside_the_point, "QU") == 0.0
    assert dimension(right, "QU") == 1.0


# ---------------------------------------------------------------- the seven dimensions


@pytest.mark.parametrize(
    "text",
    ["Sure, all done.", "The answer is LHR.", "", "Done. To find the host city: done.", "I would not know, sorry."],
)
@pytest.mark.parametrize("question", [QUESTION, "Bitte finde das Land zum Flughafen LHR."])
def test_a_tool_free_conversation_that_is_worth_nothing_scores_at_most_a_tenth(text, question):
    assert judged(trajectory(said(text), question=question)).overall <= 0.1


def test_a_conversation_of_zeros_whose_calls_all_failed_scores_zero():
    failed = trajectory(turn(1, "", "airport_city", "LHR"), result(1, "timed out", error=True), said("It failed."))
    card = given(0.0, failed)
    assert dimension(card, "TCS") == 0.0
    assert card.overall == 0.0


def test_an_injected_failure_counts_as_a_failed_call_and_is_not_held_against_the_agent_elsewhere():
    failure = result(1, "Request timed out after 30 s.", error=True).model_copy(update={"fault": "timeout"})
    card = judged(trajectory(turn(1, "Next: host city of LHR.", "airport_city", "LHR"), failure, *GOOD))
    assert dimension(card, "TCS") == pytest.approx(2 / 3)
    assert card.dimensions["TCS"].reason == "2 of 3 calls succeeded; failed: airport_city (timeout injected)"
    assert {name: dimension(card, name) for name in ("QP", "TCP", "TC")} == {"QP": 1.0, "TCP": 1.0, "TC": 1.0}
    assert card.evidence == ()


def test_a_call_that_nothing_answers_did_not_succeed():
    cut = trajectory(*GOOD[:2], turn(2, "Next: home country of London.", "city_country", "London"))
    assert dimension(given(1.0, cut), "TCS") == 0.5


def test_a_conversation_in_which_the_assistant_says_nothing_is_a_reject():
    judge = Judge(builtin_client(), MODEL, 1, 1)
    ((_, outcome),) = stage.score([trajectory()], {"task": PLAIN}, judge, PARAMS)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason == "nothing_applies"
    assert "the assistant says nothing" in outcome.detail


def test_call_ids_that_come_again_are_told_apart():
    again = (turn(1, "a", "airport_city", "LHR"), result(1, "no such airport", error=True))
    assert dimension(given(1.0, trajectory(*again, *GOOD)), "TCS") == pytest.approx(2 / 3)


def test_dimensions_that_do_not_apply_are_left_out_and_named_with_the_reason():
    card = judged(trajectory(said("The answer is France.")))
    assert card.not_applicable == {
        "TCU": "no turn follows a tool result", "TCP": "no turn follows a tool result",
        "TCS": "no call was made", "TC": "no call was made",
    }  # fmt: skip
    assert judged(trajectory(*GOOD)).not_applicable == {}


def test_a_trajectory_to_which_no_dimension_applies_is_a_reject():
    params = PARAMS.model_copy(update={"dimensions": ["TCS", "TC"]})
    judge = Judge(client_of(Gives()), MODEL, 1, 1)
    (_, outcome), (_, other) = stage.score(
        [trajectory(said("Hello.")), trajectory(*GOOD)], {"task": stage.Brief()}, judge, params
    )
    assert isinstance(outcome, Unjudged)
    assert outcome.reason == "nothing_applies"
    assert isinstance(other, Scorecard)


def test_every_dimension_says_why_and_a_mean_says_where_its_lowest_verdict_stands():
    repeated = (*GOOD[:2], turn(3, "Next: host city of LHR.", "airport_city", "LHR"),
                result(3, '{"result": "London"}'), *GOOD[2:])  # fmt: skip
    card = judged(trajectory(*repeated))
    assert all(verdict.reason for verdict in card.dimensions.values())
    assert card.dimensions["TC"].reason.startswith("mean of 3, 0 at message 4, call 0: rule: airport_city was")


def test_the_id_of_a_scorecard_covers_its_scores():
    one = trajectory(*GOOD)
    assert given(1.0, one).id == given(1.0, one).id
    assert given(1.0, one).id != given(0.5, one).id


# ---------------------------------------------------------------- rules before the judge

INVENTED = (
    turn(1, "Next.", "airport_city", "QXZ-4711"), result(1, '{"result": "London"}'), said("The answer is London."),
)  # fmt: skip


def test_an_invented_value_caps_conciseness_and_planning_and_the_reason_names_it():
    card = given(1.0, trajectory(*INVENTED))
    assert {name: dimension(card, name) for name in ("QP", "TC")} == {"QP": 0.0, "TC": 0.0}
    assert card.dimensions["TC"].reason == (
        'rule: airport "QXZ-4711" of airport_city stands neither in the user\'s words nor in an earlier result'
    )
    assert [(one.kind, one.message, one.call) for one in card.evidence] == [("invented", 2, 0)]
    assert dimension(card, "FA") == 1.0


def test_the_judge_is_not_asked_where_a_rule_leaves_nothing():
    transport = Gives()
    judged(trajectory(*INVENTED), Judge(client_of(transport), MODEL, 1, 1))
    assert not transport.inputs("TC")
    assert not transport.inputs("QP")
    assert len(transport.inputs("QU")) == len(transport.inputs("FA")) == 1


def test_a_rule_only_lowers_and_both_reasons_are_kept():
    words = (turn(1, "Next.", "city_country", "Atlantis"), result(1, '{"result": "Greece"}'), said("It is Greece."))
    high, low = given(0.9, trajectory(*words)), given(0.2, trajectory(*words))
    assert dimension(high, "TC") == 0.5
    assert high.dimensions["TC"].reason == (
        'rule: city "Atlantis" of city_country stands neither in the user\'s words nor in an earlier result '
        "(the judge: 0.9, as ever)"
    )
    assert dimension(low, "TC") == 0.2
    assert low.dimensions["TC"].reason == "as ever"


def test_a_turn_of_several_calls_is_capped_by_the_mean_of_theirs():
    calls = (*turn(1, "", "airport_city", "LHR").tool_calls, *turn(2, "", "airport_city", "QXZ-4711").tool_calls)
    both = Message(role="assistant", content="Both.", tool_calls=calls)
    card = given(1.0, trajectory(both, result(1, "London"), result(2, "Paris"), said("London and Paris.")))
    assert dimension(card, "QP") == 0.5
    assert dimension(card, "TC") == 0.5


def test_an_answered_call_that_is_repeated_caps_and_one_that_failed_does_not():
    again = (turn(3, "Once more.", "airport_city", "LHR"), result(3, '{"result": "London"}'))
    card = given(1.0, trajectory(*GOOD[:2], *again, *GOOD[2:]))
    assert dimension(card, "TC") == pytest.approx(2 / 3)
    assert dimension(card, "TCP") == pytest.approx(2 / 3)
    failed = (turn(3, "", "airport_city", "LHR"), result(3, "busy", error=True))
    assert dimension(given(1.0, trajectory(*failed, *GOOD)), "TC") == 1.0


def test_facts_of_the_answer_without_a_source_cap_it_by_their_share():
    answer = said("The answer is United Kingdom, population 67215293.")
    card = given(1.0, trajectory(*GOOD[:-1], answer))
    assert dimension(card, "FA") == pytest.approx((1 + 2 / 3) / 2)
    assert "67215293: in no result and not in the user's words" in card.dimensions["FA"].reason


def test_a_cap_of_one_switches_a_rule_off():
    params = PARAMS.model_copy(update={"caps": PARAMS.caps.model_copy(update={"invented": 1.0})})
    judge = Judge(client_of(Gives(0.8)), MODEL, 1, 1)
    _, card = next(iter(stage.score([trajectory(*INVENTED)], {"task": stage.Brief()}, judge, params)))
    assert isinstance(card, Scorecard)
    assert dimension(card, "TC") == 0.8
    assert len(card.evidence) == 1


def test_the_judge_reads_what_the_rules_found_at_its_place_and_what_is_unusual_in_the_task():
    transport = Gives()
    words = (turn(1, "Next.", "city_country", "Atlantis"), result(1, '{"result": "Greece"}'), said("It is Greece."))
    brief = stage.Brief("missing_value", ("airport_city.airport",))
    judged(trajectory(*words), Judge(client_of(transport), MODEL, 1, 1), brief)
    task = "the first request leaves out the airport for airport_city: to ask for it is right, to guess is wrong"
    found = 'city "Atlantis" of city_country stands neither in the user\'s words nor in an earlier result'
    assert transport.inputs("TC")[0]["evidence"] == [task, found]
    assert transport.inputs("FA")[0]["evidence"] == [task]
    plain = Gives()
    judged(trajectory(*GOOD), Judge(client_of(plain), MODEL, 1, 1))
    assert all("evidence" not in one for one in plain.inputs("TC"))


def test_a_prompt_stays_bounded_where_results_are_long_and_evidence_is_much():
    transport = Gives()
    many = {"city": "Atlantis", **{f"id{n}": f"XY-{n}{'9' * 300}" for n in range(40)}}
    call = ToolCall(id="c2", function=FunctionCall(name="city_country", arguments=json.dumps(many)))
    long = trajectory(
        *GOOD[:1], result(1, "London " + "x" * 200_000 + " end"), Message(role="assistant", tool_calls=(call,)),
        result(2, "y" * 200_000), said("The answer is London."),
    )  # fmt: skip
    judged(long, Judge(client_of(transport), MODEL, 1, 1))
    assert max(map(len, transport.prompts)) < 5 * 4000
    content = transport.inputs("FA")[0]["messages"][2]["content"]
    assert content.startswith("London x")
    assert content.endswith("x end")
    assert "characters left out" in content


# ---------------------------------------------------------------- several user turns, tools that come later


def test_with_several_user_turns_first_turns_and_answers_are_all_judged():
    several = trajectory(
        *GOOD, user("And what is the city population of that city?"),
        turn(4, "Next: city population of London.", "city_population", "London"), result(4, '{"result": 8866180}'),
        said("The answer is 8866180."),
    )  # fmt: skip
    assert [one.message for one in places(several, ["QU"])] == [2, 8]
    assert [one.message for one in places(several, ["FA"])] == [6, 10]
    card = judged(several)
    assert {name: dimension(card, name) for name in card.dimensions} == dict.fromkeys(ALL, 1.0)


def test_a_conversation_is_as_good_as_its_weakest_part():
    told = trajectory(*GOOD, user("And what is the city population of that city?"), said("The answer is London."))
    card = judged(told)
    assert {name: dimension(card, name) for name in ("QU", "QP", "FA")} == {"QU": 0.0, "QP": 0.0, "FA": 0.0}
    assert card.overall < 0.7
    assert (
        card.dimensions["FA"].reason
        == "lowest of 2, 0 at message 8: a part is left out: city_population was never tried"
    )


LATE = tool("city_currency", "Currency of a city.")


CURRENCY = "For airport LHR, find the host city, then its currency."


def later(*after: Message) -> Trajectory:
    brought = f"There is a new tool for it.\n\n{json.dumps(LATE.openai())}"
    refusal = said("I cannot answer: no tool gives the currency.")
    return trajectory(
        refusal, user(brought), *after, question=CURRENCY, late=(LateTools(message=3, tools=(LATE,)),)
    )  # fmt: skip


def test_a_tool_that_comes_later_may_be_missed_before_and_must_be_used_after():
    call = turn(2, "Next: currency of London.", "city_currency", "London")
    used = judged(later(*GOOD[:2], call, result(2, '{"result": "GBP"}'), said("The answer is GBP.")))
    assert {name: dimension(used, name) for name in ("QU", "QP", "TCP", "TC")} == dict.fromkeys(
        ("QU", "QP", "TCP", "TC"), 1.0
    )
    assert used.evidence == ()
    refused = judged(later(said("I cannot answer: no tool gives the currency.")))
    assert dimension(refused, "QU") == 0.0
    early = judged(trajectory(*GOOD[:2], call, result(2, "no such tool", error=True), question=CURRENCY))
    assert early.evidence[0].detail == "no tool city_currency is offered"


ROOM = ToolSpec(
    name="book_room", description="Book a room for a day.",
    parameters={"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
)  # fmt: skip
BOOK = "Please book a room for a day."


def test_asking_for_a_value_that_was_left_out_is_right_and_guessing_it_is_not():
    brief = stage.Brief("missing_value", ("book_room.day",))
    call = ToolCall(id="c1", function=FunctionCall(name="book_room", arguments='{"day": "2026-05-04"}'))
    booking = Message(role="assistant", content="Next: book a room for a day.", tool_calls=(call,))
    booked = (booking, result(1, '{"booking_id": "B-17"}'), said("Done. To book a room: booking id B-17."))
    ask = (said("Which day should I use to book a room for a day?"), user('Use the day "2026-05-04".'))
    asked = judged(trajectory(*ask, *booked, question=BOOK, tools=(ROOM,)), brief=brief)
    assert {name: dimension(asked, name) for name in asked.dimensions} == dict.fromkeys(ALL, 1.0)
    guessed = judged(trajectory(*booked, question=BOOK, tools=(ROOM,)), brief=brief)
    assert guessed.evidence[0].detail == "the user had not said the day for book_room"
    assert {name: dimension(guessed, name) for name in ("QU", "QP", "TC", "FA")} == {
        "QU": 0.0, "QP": 0.0, "TC": 0.0, "FA": 0.5
    }  # fmt: skip
    assert guessed.overall < 0.7


def test_what_is_asked_for_is_what_which_stands_before():
    spec = {"type": "object", "properties": {key: {"type": "string"} for key in ("time", "source_zone", "zone")}}
    convert = ToolSpec(
        name="convert_time", description="Convert a time to a zone.",
        parameters=spec | {"required": ["time", "source_zone", "zone"]},
    )  # fmt: skip
    question = 'Please convert a time to a zone with time "09:15" and zone "Asia/Tokyo".'
    ask = said("Which source zone should I use to convert a time to a zone?")
    assert judged(trajectory(ask, question=question, tools=(convert,))).overall == 1.0
    ask = said("Which zone should I use to convert a time to a zone?")
    assert judged(trajectory(ask, question=question, tools=(convert,))).overall == 0.0


def test_asking_for_what_the_user_said_is_worth_nothing():
    question = 'Please book a room for a day with day "2026-05-04".'
    asked = trajectory(said("Which day should I use?"), question=question, tools=(ROOM,))
    assert judged(asked).overall == 0.0


# ---------------------------------------------------------------- parts, answers that a tool does not have, wishes

TWO_PARTS = "For airport LHR, find the host city. Also for city Oslo, find the city population."


def test_a_right_call_to_which_the_tool_has_no_answer_was_not_called_wrongly():
    unknown = result(1, "no host city known for airport: LHR", error=True)
    end = said("I could not find the host city of LHR: no host city known for airport: LHR.")
    card = judged(trajectory(turn(1, "Next: host city of LHR.", "airport_city", "LHR"), unknown, end))
    assert {name: dimension(card, name) for name in ("QP", "TC", "TCS")} == {"QP": 1.0, "TC": 1.0, "TCS": 0.0}
    assert card.dimensions["TC"].reason == "asked for; airport_city has no answer to it"
    mistyped = turn(1, "Next: host city of LHR.", "airport_city", "LRH")
    card = judged(trajectory(mistyped, result(1, "unknown airport: LRH", error=True), end))
    assert dimension(card, "TC") == 0.0
    assert "called wrongly" in card.dimensions["TC"].reason


def test_a_part_that_was_never_tried_costs_and_one_that_was_tried_and_declined_hardly_does():
    first = (turn(1, "Next: host city of LHR.", "airport_city", "LHR"), result(1, "no host city known", error=True))
    second = (turn(2, "Next: city population of Oslo.", "city_population", "Oslo"), result(2, '{"result": 9}'))
    gives_up = said("I could not find the host city of LHR: no host city known.")
    left = judged(trajectory(*first, gives_up, question=TWO_PARTS))
    both = said("I could not find the host city of LHR: no host city known. The city population of Oslo is 9.")
    tried = judged(trajectory(*first, *second, both, question=TWO_PARTS))
    assert (dimension(left, "FA"), dimension(left, "TCP")) == (pytest.approx(0.6875), 0.5)
    assert "city_population was never tried" in left.dimensions["FA"].reason
    assert dimension(tried, "FA") > 0.9
    assert dimension(tried, "TCP") == 1.0


def test_what_another_tool_did_instead_of_a_missing_one_is_nobody_s_wish_and_no_answer():
    pay = ToolSpec(name="write_note", description="Write a note.", parameters={"type": "object", "properties": {}})
    call = ToolCall(id="c1", function=FunctionCall(name="write_note", arguments="{}"))
    wrote = Message(role="assistant", content="Next: pay a bill.", tool_calls=(call,))
    done = trajectory(
        *GOOD[:2], wrote, result(1, '{"note_id": "NOTE-1"}'), said("Done. To pay a bill: note id NOTE-1."),
        question="Please find the host city; also pay a bill.", tools=(*TOOLS, pay),
    )  # fmt: skip
    card = judged(done)
    assert dimension(card, "FA") < 0.7
    assert "passes over" in card.dimensions["FA"].reason


def test_an_answer_from_a_cache_may_be_read_again_and_must_not_be_passed_over():
    text = 'Stale response: a cached copy, 45 minutes old, not checked since. Received: {"result": "London"}'
    old = result(3, text).model_copy(update={"fault": "stale"})
    again = turn(3, "Next: host city of LHR.", "airport_city", "LHR")
    reread = judged(trajectory(again, old, *GOOD))
    assert {name: dimension(reread, name) for name in reread.dimensions} == dict.fromkeys(ALL, 1.0)
    taken = judged(trajectory(again, old, *GOOD[2:]))
    assert dimension(taken, "TCU") == 0.75
    assert "a cached answer is taken for a fresh one" in taken.dimensions["TCU"].reason


def test_an_answer_in_another_form_than_the_user_wished_is_less_relevant_whatever_the_judge_says():
    wished = f"{QUESTION} Answer in one sentence."
    long = (*GOOD[:-1], said("I found it in the end. The answer is United Kingdom."))
    card = judged(trajectory(*long, question=wished))
    assert dimension(card, "FA") == 0.75
    assert card.dimensions["FA"].reason.startswith("rule: the user wished 'Answer in one sentence': the answer has 2")
    assert dimension(judged(trajectory(*GOOD, question=wished)), "FA") == 1.0


def booking(
    *tools: str, question: str = "Book a room and a table.", last: str = "Done.", called: str = "a"
) -> Trajectory:
    specs = tuple(
        ToolSpec(name=name, description=name, parameters={"type": "object", "properties": {"x": {"type": "string"}},
                                                          "required": ["x"]})
        for name in tools
    )  # fmt: skip
    call = ToolCall(id="c1", function=FunctionCall(name=called, arguments='{"x": "LHR"}'))
    messages = (Message(role="assistant", content="Next.", tool_calls=(call,)), result(1, "{}"), said(last))
    return trajectory(*messages, question=question, tools=specs)


def asks_for(*tools: str, given: tuple[str, ...]) -> stage.Brief:
    return stage.Brief("plain", (), tools, frozenset((name, "x") for name in given))


def unfinished(one: Trajectory, brief: stage.Brief) -> list[str]:
    return [found.detail for found in given(1.0, one, brief).evidence if found.kind == "unfinished"]


def test_a_part_of_which_the_request_states_all_and_that_was_never_tried_is_found_without_a_judge():
    brief = asks_for("a", "b", given=("a", "b"))
    card = given(1.0, booking("a", "b"), brief)
    assert unfinished(booking("a", "b"), brief) == ["b was never tried, and the request states all it needs"]
    assert dimension(card, "FA") == 0.75


@pytest.mark.parametrize(
    ("one", "brief"),
    [
        (booking("a", "b"), asks_for("a", "b", given=("a",))),  # b needs what nobody stated
        (booking("a", "b", "c", called="c"), asks_for("a", "b", given=("a", "b"))),  # done in another way
        (booking("a"), asks_for("a", "b", given=("a", "b"))),  # b is not offered
        (booking("a", "b", question="If a room is free, book a table."), asks_for("a", "b", given=("a", "b"))),
        (
            booking("a", "b", last="The room failed. Shall I go on with the table?"),
            asks_for("a", "b", given=("a", "b")),
        ),
    ],
)
def test_a_good_conversation_is_not_taken_for_an_unfinished_one(one, brief):
    assert unfinished(one, brief) == []


# ---------------------------------------------------------------- a judge that fails


class Flaky:
    """A judge that answers prose for some trajectories and by rule for the others."""

    def __init__(self, broken: set[str]) -> None:
        self.broken = broken
        self.inner = BuiltinTransport()

    async def send(self, request: Request) -> Completion:
        await asyncio.sleep(0)
        text = request.messages[0].content or ""
        if any(mark in text for mark in self.broken):
            return Completion(
                "I would say it is excellent, 10 out of 10.",
                "stop",
                Usage(calls=1, prompt_tokens=0, completion_tokens=0),
            )
        return await self.inner.send(request)


def test_a_judge_that_fails_is_a_reject_and_leaves_the_other_scores_as_they_are():
    other = (*GOOD[:-1], Message(role="assistant", content="The answer is United Kingdom. Yours, B."))
    both = [trajectory(*GOOD, name="a"), trajectory(*other, name="b")]
    judge = Judge(client_of(Flaky({"Yours, B."})), MODEL, 1, 1)
    first, second = (outcome for _, outcome in stage.score(both, {"task": stage.Brief()}, judge, PARAMS))
    assert first == judged(both[0])
    assert isinstance(second, Unjudged)
    assert second.reason == "unjudged_qu"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = Task(
        id="task", server_ids=("s",), chain_id=None, question=QUESTION, target_tools=("airport_city",), origin="server",
        augmentation="none", quality={},
    )  # fmt: skip
    write_records("data/tasks/tasks.jsonl", [task])
    write_records("data/trajectories/trajectories.jsonl", [trajectory(*GOOD, name=f"t{n}") for n in range(4)])
    (tmp_path / "params.yaml").write_text(
        "seed: 1\nmodels: {judge: {transport: builtin, name: r, temperature: 0.0, max_tokens: 64}}\n"
        "score:\n  dimensions: [QU, QP, TCU, TCP, TCS, TC, FA]\n"
        "  caps: {invented: 0.0, unsourced: 0.5, repeated: 0.0, unheeded: 0.5, unfinished: 0.0}\n"
        "  reasks: 0\n  votes: 1\n  max_unjudged: 0.3\n  max_shown: 4000\n" + LLM
    )
    return tmp_path


def test_the_stage_writes_a_scorecard_for_each_trajectory(workspace, capsys):
    stage.main()
    assert len(list(read_records("data/score/scorecards.jsonl", Scorecard))) == 4
    assert capsys.readouterr().err.startswith("score: 4 in, 4 out, 0 rejected")


def test_a_judge_that_fails_on_every_call_yields_no_scorecard_a_counted_reason_and_a_non_zero_exit(
    workspace, monkeypatch, capsys
):
    monkeypatch.setitem(TRANSPORTS, "builtin", lambda role, store: Flaky({""}))
    with pytest.raises(SystemExit) as stopped:
        stage.main()
    assert stopped.value.code
    said = capsys.readouterr().err
    assert "4 of 4 trajectories have no verdict (unjudged_qu 4)" in said
    assert "dvc repro score" in said
    assert not (workspace / "data/score/scorecards.jsonl").exists()
    assert not (workspace / "metrics/score.json").exists()
    assert (workspace / "data/score/rejects.jsonl").read_text().count("unjudged_qu") == 4


class Down:
    async def send(self, request: Request) -> Completion:
        raise EndpointUnavailable("model r: HTTP 402 after 6 attempts")


def test_a_judge_that_is_down_stops_the_stage(workspace, monkeypatch, capsys):
    monkeypatch.setitem(TRANSPORTS, "builtin", lambda role, store: Down())
    with pytest.raises(SystemExit) as stopped:
        stage.main()
    assert stopped.value.code
    assert "402" in capsys.readouterr().err
    assert not (workspace / "data/score/scorecards.jsonl").exists()


def test_trajectories_are_taken_as_they_come_and_given_back_in_order():
    taken: list[str] = []

    def coming():
        for n in range(500):
            taken.append(f"t{n}")
            asks = n % 3  # some of which nothing is asked beside the opening and the answer
            yield trajectory(*GOOD, name=taken[-1]) if asks else trajectory(said("Hello."), name=taken[-1])

    judge = Judge(client_of(Gives()), MODEL, 1, 1)
    outcomes = stage.score(coming(), {"task": PLAIN}, judge, PARAMS)
    first = [one.id for one, _ in itertools.islice(outcomes, 20)]
    assert first == [f"t{n}" for n in range(20)]
    assert len(taken) < 60
    assert [one.id for one, _ in outcomes] == [f"t{n}" for n in range(20, 500)]


# ---------------------------------------------------------------- --rejudge


class Counting(Flaky):
    """An endpoint that counts what it is asked."""

    n_asked = 0

    async def send(self, request: Request) -> Completion:
        self.n_asked += 1
        return await super().send(request)


def answer_of(text: str) -> tuple[Message, ...]:
    return (*GOOD[:-1], said(text))


@pytest.fixture
def endpoint(workspace, monkeypatch):
    """The stage with a judge over the network: four trajectories, of which one holds a mark."""
    monkeypatch.setenv("ASTRA_CACHE", str(workspace / "cache"))
    rows = [
        trajectory(*answer_of(f"The answer is United Kingdom. {mark}"), name=f"t{n}")
        for n, mark in enumerate(("One.", "Two.", "Yours, B.", "Four."))
    ]
    write_records("data/trajectories/trajectories.jsonl", rows)
    params = workspace / "params.yaml"
    params.write_text(params.read_text().replace("transport: builtin", "transport: openai"))

    def judged_by(broken: set[str]) -> Counting:
        transport = Counting(broken)
        monkeypatch.setitem(TRANSPORTS, "openai", lambda role, store: transport)
        return transport

    return judged_by


def cards() -> dict[str, Scorecard]:
    return {one.trajectory_id: one for one in read_records("data/score/scorecards.jsonl", Scorecard)}


def test_judging_again_asks_only_for_what_gave_no_verdict(endpoint, capsys):
    first = endpoint({"Yours, B."})
    stage.main()
    assert list(cards()) == ["t0", "t1", "t3"]
    n_places, before = len(places(trajectory(*GOOD), PARAMS.dimensions)), cards()
    assert first.n_asked == 4 * n_places

    still_broken = endpoint({"Yours, B."})
    stage.main()
    assert still_broken.n_asked == 0
    assert list(cards()) == ["t0", "t1", "t3"]

    mended = endpoint(set())
    stage.main(["--rejudge"])
    assert mended.n_asked == n_places
    assert list(cards()) == ["t0", "t1", "t2", "t3"]
    assert {name: cards()[name] for name in before} == before
    assert "score: 4 in, 4 out, 0 rejected" in capsys.readouterr().err

    last = endpoint({""})
    stage.main()
    assert last.n_asked == 0
    assert list(cards()) == ["t0", "t1", "t2", "t3"]


def test_judging_again_where_everything_has_a_verdict_asks_nobody(endpoint):
    endpoint(set())
    stage.main()
    again = endpoint({""})
    stage.main(["--rejudge"])
    assert again.n_asked == 0


def test_the_same_seed_gives_the_same_bytes(workspace):
    stage.main()
    first = (workspace / "data/score/scorecards.jsonl").read_bytes()
    stage.main()
    assert (workspace / "data/score/scorecards.jsonl").read_bytes() == first
