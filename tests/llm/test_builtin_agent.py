"""The rule-based agent: plans from text and documents, recovers from failures, ends honestly."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from astra.agent import Conversation, Limits, converse
from astra.environments import Observation
from astra.evidence.wishes import n_sentences
from astra.llm.builtin import phrases
from astra.llm.builtin.agent import turn
from astra.llm.builtin.plan import found_in
from astra.llm.builtin.speech import field
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Message, ToolCall, ToolSpec
from astra.user import Said

FACTS = {
    ("airport_city", "LHR"): "London",
    ("airport_icao", "LHR"): "EGLL",
    ("city_country", "London"): "United Kingdom",
    ("country_currency", "United Kingdom"): "GBP",
    ("country_capital", "Bosnia and Herzegovina"): "Sarajevo",
    ("country_population", "Spain"): 46723749,
}
LABELS = {
    "airport_city": "Host city", "airport_icao": "ICAO code", "city_country": "Home country",
    "country_currency": "Currency", "country_capital": "Capital", "country_population": "National population",
}  # fmt: skip
FLEET = {
    "find_port": ("Find the code of the ferry port of a town.", {"town": "string"}, {"port_code": "LYM"}),
    "list_sailings": (
        "List the sailings from a port on a day.",
        {"from_port": "string", "day": "string"},
        {"sailings": [{"sailing_id": "S-1", "left": 4}, {"sailing_id": "S-2", "left": 9}]},
    ),
    "book_sailing": (
        "Book places on a sailing.",
        {"sailing_id": "string", "n_passengers": "integer"},
        {"booking_ref": "AB12", "status": "confirmed"},
    ),
}


def lookup_tools(*without: str) -> tuple[ToolSpec, ...]:
    made = []
    for name, label in LABELS.items():
        table = name.split("_")[0]
        article = "an" if table[0] in "aeiou" else "a"
        schema = {"type": "object", "properties": {table: {"type": "string"}}, "required": [table]}
        made.append(ToolSpec(name=name, description=f"{label} of {article} {table}.", parameters=schema))
    return tuple(tool for tool in made if tool.name not in without)


def fleet_tools(*without: str) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(
            name=name,
            description=text,
            parameters={
                "type": "object",
                "properties": {one: {"type": kind} for one, kind in parameters.items()},
                "required": list(parameters),
            },
        )
        for name, (text, parameters, _) in FLEET.items()
        if name not in without
    )


class World:
    """Both sets of tools, with failures as told: one text per call, in order, None for a call that works."""

    def __init__(self, tools: tuple[ToolSpec, ...], failures: Iterator[str | None] | None = None) -> None:
        self.tools = tools
        self.failures = failures or iter(())
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def call(self, call: ToolCall) -> Observation:
        name, arguments = call.function.name, json.loads(call.function.arguments)
        self.calls.append((name, arguments))
        failure = next(self.failures, None)
        if failure is not None:
            return Observation(failure, True, "emulator")
        if name in FLEET:
            missing = [one for one in FLEET[name][1] if one not in arguments]
            if missing:
                return Observation(f"missing parameter: {missing[0]}", True, "emulator")
            return Observation(json.dumps(FLEET[name][2]), False, "emulator")
        table, key = next(iter(arguments.items()))
        if (name, key) not in FACTS:
            return Observation(f"unknown {table}: {key}", True, "live")
        return Observation(json.dumps({"result": FACTS[name, key]}), False, "live")


class Rules:
    """The agent as a policy."""

    def __init__(self, temperature: float, seed: int) -> None:
        self.model = ModelParams(transport="builtin", name="rules", temperature=temperature, max_tokens=4096)
        self.seed = seed

    async def reply(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], sample: int, max_tokens: int
    ) -> Completion:
        return turn(Request(self.model, messages, tools), random.Random(f"{self.seed}:{len(messages)}"))


class Script:
    """A user who says these turns, with the tools that come with them."""

    def __init__(self, *turns: Said) -> None:
        self.turns = list(turns)

    async def reply(self, messages: Sequence[Message]) -> Said | None:
        return self.turns.pop(0) if self.turns else None


def talk(
    question: str, world: World, temperature: float = 0.0, seed: int = 0, *, later: Sequence[Said] = (),
    without: str | None = None, system: str = "Use the tools.",
) -> Conversation:  # fmt: skip
    opening = (Message(role="system", content=system), Message(role="user", content=question))
    limits, policy = Limits(max_turns=20, max_tokens=4096), Rules(temperature, seed)
    offer = tuple(tool for tool in world.tools if tool.name != without)
    return asyncio.run(converse(policy, world, opening, limits, user=Script(*later), offer=offer))


def answer(end: Conversation) -> str:
    return end.messages[-1].content or ""


def thoughts(end: Conversation) -> list[str]:
    return [m.content or "" for m in end.messages if m.role == "assistant" and m.tool_calls]


HOPS = "For airport LHR, find the host city, then its home country, then its currency."
NESTED = "What is the currency of the home country of the host city of airport LHR?"


@pytest.mark.parametrize("question", [HOPS, NESTED])
def test_both_word_orders_of_a_multi_hop_question_take_the_same_calls(question):
    end = talk(question, world := World(lookup_tools()))
    assert world.calls == [
        ("airport_city", {"airport": "LHR"}),
        ("city_country", {"city": "London"}),
        ("country_currency", {"country": "United Kingdom"}),
    ]
    assert thoughts(end) == [
        "Next: host city of LHR.",
        "Next: home country of London.",
        "Next: currency of United Kingdom.",
    ]
    assert answer(end) == "The answer is GBP."


def test_parallel_branches_are_answered_together():
    branches = [
        phrases.Branch("airport", "LHR", ("ICAO code",)),
        phrases.Branch("country", "Bosnia and Herzegovina", ("capital",)),
        phrases.Branch("country", "Spain", ("national population",)),
    ]
    for write in (phrases.forward_question, phrases.nested_question):
        end = talk(write(branches, random.Random(3)), World(lookup_tools()))
        assert answer(end) == "The answer is EGLL, Sarajevo and 46723749."


def test_a_missing_tool_is_said_before_any_call():
    end = talk(NESTED, world := World(lookup_tools("country_currency")))
    assert answer(end) == "I cannot answer: no tool gives the currency."
    assert world.calls == []


@pytest.mark.parametrize(
    "question",
    [
        "For airport LHR, find the host city.",
        "What is the host city of airport LHR?",
    ],
)
def test_a_missing_tool_is_said_even_where_nothing_else_is_about_that_kind_of_thing(question: str):
    end = talk(question, world := World(lookup_tools("airport_city", "airport_icao")))
    assert answer(end) == "I cannot answer: no tool gives the host city."
    assert world.calls == []


def test_an_unknown_entity_ends_with_what_the_tool_said():
    end = talk("For airport XXX, find the host city.", World(lookup_tools()))
    assert answer(end) == "I could not find the host city of XXX: unknown airport: XXX."


def test_a_value_that_names_no_entity_cannot_be_followed():
    question = "For country Spain, find the national population, then its capital."
    assert answer(talk(question, World(lookup_tools()))).startswith("I could not find the capital:")


BOOKING = (
    'Please find the code of the ferry port of a town with town "Lyme", then use that result to list the sailings from a '
    'port on a day with day "2026-05-04", then use that result to book places on a sailing with n passengers "2".'
)


def test_arguments_come_from_the_request_and_from_earlier_results():
    end = talk(BOOKING, world := World(fleet_tools()))
    assert world.calls == [
        ("find_port", {"town": "Lyme"}),
        ("list_sailings", {"from_port": "LYM", "day": "2026-05-04"}),
        ("book_sailing", {"sailing_id": "S-1", "n_passengers": 2}),
    ]
    assert all(value in answer(end) for value in ("LYM", "S-1", "AB12", "confirmed"))


def test_a_passing_failure_is_tried_again():
    end = talk(BOOKING, world := World(fleet_tools(), iter(["Request timed out after 30 s.", None, None])))
    assert world.calls[0] == world.calls[1]
    assert "Request timed out after 30 s" in thoughts(end)[1]
    assert "AB12" in answer(end)


def test_a_failure_that_stays_is_given_up_and_said_with_what_is_done():
    failures: Iterator[str | None] = iter([None, *["Could not connect to the server."] * 9])
    end = talk(BOOKING, world := World(fleet_tools(), failures))
    assert len(world.calls) == 4
    assert answer(end) == (
        "I could not list the sailings from a port on a day: Could not connect to the server. I tried 3 times. "
        "So I did not book places on a sailing. Done before that: find the code of the ferry port of a town: "
        "port code LYM."
    )


def test_an_error_of_the_server_is_not_tried_again():
    end = talk(BOOKING, world := World(fleet_tools(), iter(["port closed on Sundays"])))
    assert len(world.calls) == 1
    assert answer(end).startswith("I could not find the code of the ferry port of a town: port closed on Sundays")


def test_a_step_that_no_tool_does_is_said():
    end = talk(BOOKING, World(fleet_tools("book_sailing")))
    assert answer(end) == "I could not do this: none of the tools can book places on a sailing."


def test_a_request_in_no_known_language_is_answered_honestly():
    assert answer(talk("Hello there!", World(fleet_tools()))).startswith("I could not tell")


@pytest.mark.parametrize(
    ("question", "tools", "final"),
    [(HOPS, lookup_tools, "The answer is GBP."), (BOOKING, fleet_tools, "AB12")],
)
def test_slips_happen_once_at_most_are_recovered_from_and_need_a_temperature(
    question: str, tools: Callable[[], tuple[ToolSpec, ...]], final: str
):
    n_plain = len(talk(question, World(tools())).messages)
    ends = [talk(question, World(tools()), temperature=0.7, seed=seed) for seed in range(80)]
    slipped = [end for end in ends if len(end.messages) > n_plain]
    assert 2 <= len(slipped) <= 40
    assert all(len(end.messages) == n_plain + 2 for end in slipped)
    assert all(final in answer(end) for end in ends)


def test_a_result_is_searched_by_name_and_by_type():
    result = {"port": {"id": 7, "name": "Lyme"}, "count": 3}
    assert found_in(result, "port_id", {"type": "integer"}, "thing") == (3, 7)
    assert found_in(result, "port_id", {"type": "string"}, "thing") == (3, "7")
    assert found_in(result, "name", {"type": "string"}, "thing") == (5, "Lyme")
    assert found_in({"codes": ["A", "B"]}, "codes", {"type": "array", "items": {"type": "string"}}, "x") == (
        5,
        ["A", "B"],
    )
    assert found_in({"flag": True}, "count", {"type": "integer"}, "x") is None


# ---------------------------------------------------------------- unusual kinds

VALUELESS = BOOKING.replace(' with town "Lyme"', "")
TOWN = Said('Here it is: town "Lyme".')


def answers(end: Conversation) -> list[str]:
    return [m.content or "" for m in end.messages if m.role == "assistant" and not m.tool_calls]


def test_a_value_that_nothing_gives_is_asked_for_before_its_tool_is_called_and_then_used():
    end = talk(VALUELESS, world := World(fleet_tools()), later=[TOWN])
    assert answers(end)[0] == "Which town should I use to find the code of the ferry port of a town?"
    assert world.calls[0] == ("find_port", {"town": "Lyme"})
    assert "AB12" in answer(end)


def test_a_tool_that_comes_later_is_missed_first_and_then_used():
    brought = next(tool for tool in fleet_tools() if tool.name == "book_sailing")
    there = Said("A tool for that was just added. Go on with it.\n\nFrom now on: {}", (brought,))
    end = talk(BOOKING, world := World(fleet_tools()), later=[there], without="book_sailing")
    assert answers(end)[0] == "I could not do this: none of the tools can book places on a sailing."
    assert [name for name, _ in world.calls] == ["find_port", "list_sailings", "book_sailing"]
    assert "AB12" in answer(end)
    assert [(one.message, one.tools) for one in end.late] == [(3, (brought,))]


def test_a_further_turn_goes_on_from_earlier_results_and_is_answered_alone():
    first, *_ = BOOKING.split(", then")
    more = Said('Thanks. Now use that result to list the sailings from a port on a day with day "2026-05-04".')
    end = talk(f"{first}.", world := World(fleet_tools()), later=[more])
    assert world.calls == [
        ("find_port", {"town": "Lyme"}),
        ("list_sailings", {"from_port": "LYM", "day": "2026-05-04"}),
    ]
    assert "LYM" in answers(end)[0]
    assert "S-1" in answer(end)
    assert "LYM" not in answer(end)


def test_a_further_look_up_goes_on_from_the_answer():
    more = Said("And what is the currency of the home country of that city?")
    end = talk("For airport LHR, find the host city.", world := World(lookup_tools()), later=[more])
    assert answers(end) == ["The answer is London.", "The answer is GBP."]
    assert [name for name, _ in world.calls] == ["airport_city", "city_country", "country_currency"]


def test_calls_that_need_no_other_go_into_one_turn_where_the_system_prompt_says_so():
    question = "For airport LHR, find the host city, then its home country. Also for country Spain, find the national population."
    system = "Calls that need no result of each other go into one turn."
    end = talk(question, world := World(lookup_tools()), system=system)
    assert [len(m.tool_calls) for m in end.messages if m.role == "assistant"] == [2, 1, 0]
    assert sorted(name for name, _ in world.calls) == ["airport_city", "city_country", "country_population"]
    assert answer(end) == "The answer is United Kingdom and 46723749."
    assert len(talk(question, World(lookup_tools())).messages) == len(end.messages) + 1


HOT = 2.0


def ends(
    question: str, tools: tuple[ToolSpec, ...], later: Sequence[Said], without: str | None = None
) -> list[tuple[Conversation, World]]:
    made = []
    for seed in range(60):
        world = World(tools)
        made.append((talk(question, world, temperature=HOT, seed=seed, later=later, without=without), world))
    return made


def test_sometimes_a_missing_value_is_guessed():
    guessed = [
        world.calls for end, world in ends(VALUELESS, fleet_tools(), [TOWN]) if not answers(end)[0].startswith("Which")
    ]
    assert 5 <= len(guessed) <= 40
    assert any(calls and calls[0][0] == "find_port" and calls[0][1]["town"] != "Lyme" for calls in guessed)


def test_sometimes_what_no_tool_did_is_claimed():
    claimed = [end for end, world in ends(BOOKING, fleet_tools("book_sailing"), []) if answer(end).startswith("Done.")]
    assert 5 <= len(claimed) <= 40
    assert all(len(end.messages) == 3 for end in claimed)


def test_sometimes_a_tool_that_has_come_is_not_seen():
    brought = next(tool for tool in fleet_tools() if tool.name == "book_sailing")
    there = Said("There is a new tool for that now, try again.", (brought,))
    blind = [
        end
        for end, world in ends(BOOKING, fleet_tools(), [there], "book_sailing")
        if answers(end)[-1].startswith("I could not do this") and not world.calls
    ]
    assert 5 <= len(blind) <= 40


def test_sometimes_a_further_turn_is_answered_without_a_call():
    more = Said("And what is the home country of that city?")
    lazy = [
        world
        for _, world in ends("For airport LHR, find the host city.", lookup_tools(), [more])
        if "city_country" not in [name for name, _ in world.calls]
    ]
    assert 5 <= len(lazy) <= 40


# ---------------------------------------------------------------- parts that fail, answers from a cache, wishes


def test_a_part_that_fails_leaves_the_others_to_be_done_and_both_are_said():
    question = "For airport XXX, find the host city, then its home country. Also for country Spain, find the national population."
    end = talk(question, world := World(lookup_tools()))
    assert [name for name, _ in world.calls] == ["airport_city", "country_population"]
    assert answer(end) == (
        "I could not find the host city of XXX: unknown airport: XXX. The national population of Spain is 46723749."
    )


def test_a_part_for_which_there_is_no_tool_leaves_the_others_to_be_done():
    question = "For country Spain, find the national population. Also for airport LHR, find the host city."
    end = talk(question, world := World(lookup_tools("airport_city")))
    assert [name for name, _ in world.calls] == ["country_population"]
    assert answer(end) == "No tool gives the host city. The national population of Spain is 46723749."


def test_a_tool_that_is_about_something_else_does_not_stand_in_for_one_that_is_missing():
    end = talk(
        'Please book a payment on a sailing with sailing id "S-1".', world := World(fleet_tools("list_sailings"))
    )
    assert world.calls == []
    assert answer(end) == "I could not do this: none of the tools can book a payment on a sailing."


CACHED = 'Stale response: a cached copy, 45 minutes old, not checked since. Received: {"port_code": "LYM"}'


class Cached(World):
    """The first reading of a port comes from a cache, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__(fleet_tools())
        self.left = times

    async def call(self, call: ToolCall) -> Observation:
        seen = await super().call(call)
        if call.function.name != "find_port" or not self.left:
            return seen
        self.left -= 1
        return Observation(CACHED, False, "emulator", "stale")


def test_what_comes_from_a_cache_is_read_again():
    end = talk(BOOKING, world := Cached(1))
    assert [name for name, _ in world.calls] == ["find_port", "find_port", "list_sailings", "book_sailing"]
    assert thoughts(end)[1].startswith("That is a cached copy, 45 minutes old. Reading again")
    assert "cached" not in answer(end)


def test_what_stays_in_the_cache_is_used_and_said_to_be_old():
    end = talk(BOOKING, world := Cached(9))
    assert [name for name, _ in world.calls] == ["find_port"] * 3 + ["list_sailings", "book_sailing"]
    assert "port code LYM (as of a cached copy, 45 minutes old)" in answer(end)


def test_the_answer_takes_the_form_that_was_wished_for():
    lines = answer(talk(f"{BOOKING} {phrases.WISHES['list']}", World(fleet_tools()))).splitlines()
    assert len(lines) == 3
    assert all(line.startswith("- ") for line in lines)
    assert "AB12" in json.dumps(json.loads(answer(talk(f"{BOOKING} {phrases.WISHES['json']}", World(fleet_tools())))))
    assert n_sentences(answer(talk(f"{BOOKING} {phrases.WISHES['two_sentences']}", World(fleet_tools())))) <= 2
    assert n_sentences(answer(talk(f"{BOOKING} {phrases.WISHES['one_sentence']}", World(fleet_tools())))) == 1


def test_where_the_user_wished_to_stop_at_a_failure_nothing_else_is_tried():
    question = BOOKING.replace(", then use that result to book", "; also book").replace(
        "on a sailing with", 'on a sailing with sailing id "S-9" and'
    )
    failures: Iterator[str | None] = iter(["port closed"])
    stopped = World(fleet_tools(), failures)
    talk(f"{question} {phrases.WISHES['stop']}", stopped)
    assert [name for name, _ in stopped.calls] == ["find_port"]
    going_on = World(fleet_tools(), iter(["port closed"]))
    talk(question, going_on)
    assert [name for name, _ in going_on.calls] == ["find_port", "book_sailing"]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("n_pieces", "number of pieces"), ("weight_kg", "weight in kg"), ("netEur", "net in EUR"),
        ("chip_no", "chip number"), ("booking_ref", "booking reference"), ("target_c", "target in °C"),
        ("grains_m3", "grains per m³"), ("no", "no"), ("fromPort", "from port"), ("age_years", "age in years"),
    ],
)  # fmt: skip
def test_a_parameter_is_named_as_people_name_it_and_the_label_of_a_label_is_itself(name, label):
    assert phrases.label(name) == label
    assert phrases.label(label) == label


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("price_eur", 12.5, "price 12.5 EUR"), ("n_bikes", 3, "3 bikes"), ("is_on", True, "on: yes"),
        ("vaccinated", False, "vaccinated: no"), ("days_in_transit", 4, "days in transit 4"),
        ("age_years", 7, "age 7 years"), ("status", "confirmed", "status confirmed"),
    ],
)  # fmt: skip
def test_a_value_is_said_with_its_unit_after_it(name, value, said):
    assert field(name, value) == said
