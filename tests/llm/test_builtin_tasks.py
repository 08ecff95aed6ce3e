"""The language of requests: what the writer says, the agent and the judge read back."""

from __future__ import annotations

import random

import jsonschema
import pytest

from astra.llm.builtin import graph_tasks, phrases, tasks
from astra.llm.builtin.samples import sample_value
from astra.wording import states
from tests.stages.imitation import FERRY, TABLES

FERRY_TOOLS = [tool.model_dump() for tool in FERRY.tools]
TABLE_TOOLS = [tool.model_dump() for tool in TABLES.tools]


@pytest.mark.parametrize(
    ("description", "clause"),
    [
        ("Returns the weather. Needs a key.", "return the weather"),
        ("Shows differences between branches", "show differences between branches"),
        ("The current tide (in metres) at a port.", "get the current tide"),
        ("ICAO code lookup", "get the ICAO code lookup"),
        ("", "use get tide"),
    ],
)
def test_a_clause_is_the_first_sentence_as_an_imperative(description, clause):
    assert phrases.clause({"name": "get_tide", "description": description}) == clause


@pytest.mark.parametrize("seed", range(12))
def test_steps_and_values_are_read_back_whatever_the_values_hold(seed):
    values = {"from_port": 'L"y\\me, then x', "toPort": "O. Porto; also y", "tags": ["a", "b"]}
    steps = [phrases.step_text(FERRY_TOOLS[0], values), phrases.step_text(FERRY_TOOLS[2], {})]
    text = phrases.request_text(steps, [False, True], random.Random(seed))
    first, second = phrases.read_steps("I am a baker. " + text + " Keep it short.")
    assert first.clause == "find routes from a port"
    assert first.given == {"from port": 'L"y\\me, then x', "to port": "O. Porto; also y", "tags": '["a", "b"]'}
    assert phrases.value_of(first.given["tags"], {"type": "array"}) == ["a", "b"]
    assert (second.clause, second.dependent, second.given) == ("book a place on a sailing", True, {})


@pytest.mark.parametrize("write", [phrases.forward_question, phrases.nested_question])
@pytest.mark.parametrize("seed", range(6))
def test_branches_of_a_look_up_question_are_read_back(write, seed):
    branches = [
        phrases.Branch("airport", "LHR", ("host city", "home country")),
        phrases.Branch("country", "Trinidad and Tobago", ("currency",)),
    ]
    assert phrases.read_knowledge("I am a nurse. " + write(branches, random.Random(seed)), TABLE_TOOLS) == branches


def test_an_ordinary_tool_is_in_no_look_up_form():
    assert phrases.knowledge_form(FERRY_TOOLS[0]) is None
    assert phrases.knowledge_form(TABLE_TOOLS[0]) == ("airport", "host city")


def written(chain, bindings, tools, seed=1):
    shown = {"tools": tools, "chain": chain, "bindings": bindings}
    return tasks.write_chain(shown, random.Random(seed))["question"]


BOUND = [{"step": 1, "parameter": "route_id", "origin": "result", "from_step": 0, "output": "x"}]


def test_a_request_states_what_the_user_gives_and_not_what_a_result_gives():
    question = written(["find_routes", "list_sailings"], BOUND, FERRY_TOOLS)
    assert phrases.read_given(question, "from_port")
    assert phrases.read_given(question, "route_id") is None
    assert graph_tasks.read_tools(question, FERRY_TOOLS) == ["find_routes", "list_sailings"]


def test_a_request_for_look_ups_starts_from_a_key_that_the_schemas_show():
    bound = [{"step": 1, "parameter": "city", "origin": "result", "from_step": 0, "output": "result"}]
    question = written(["airport_city", "city_country"], bound, TABLE_TOOLS)
    assert phrases.read_knowledge(question, TABLE_TOOLS)[0].key in ("LHR", "OSL")
    assert graph_tasks.read_tools(question, TABLE_TOOLS) == ["airport_city", "city_country"]


@pytest.mark.parametrize("tools", [FERRY_TOOLS, TABLE_TOOLS], ids=["steps", "look-ups"])
@pytest.mark.parametrize("seed", range(6))
def test_a_rewriting_asks_for_the_same_tools(tools, seed):
    shown = {"server": {}, "tools": tools, "n_tools": 2, "number": seed}
    made = tasks.write_server(shown, random.Random(seed))
    again = {
        "question": made["question"],
        "target_tools": made["target_tools"],
        "tools": tools,
        "persona": {"who": "a cook", "style": "warm", "voice": "polite", "because": "it is late"},
    }
    for rewrite in (tasks.diversity, tasks.complexity, tasks.persona):
        rewritten = rewrite(again, random.Random(seed + 100))
        question = rewritten["question"]
        assert question != made["question"] or rewrite is tasks.complexity
        assert set(graph_tasks.read_tools(question, tools)) == set(made["target_tools"])
        assert rewritten["target_tools"] == made["target_tools"]
        assert {tuple(one.values())[:2] for one in rewritten["values"]} >= {
            tuple(one.values())[:2] for one in made["values"]
        }
        assert all(states(question, one["value"]) for one in rewritten["values"])


def test_a_written_request_lists_the_values_that_it_states():
    shown = {"tools": FERRY_TOOLS, "chain": ["find_routes", "list_sailings"], "bindings": BOUND}
    made = tasks.write_chain(shown, random.Random(1))
    assert [(one["tool"], one["parameter"]) for one in made["values"]] == [
        ("find_routes", "from_port"),
        ("find_routes", "to_port"),
    ]
    assert all(states(made["question"], one["value"]) for one in made["values"])


ROUTE = 'Please find routes from a port with from port "Lyme" and to port "Bath"'
SHOWN = {
    "question": f"{ROUTE}, then use that result to list the sailings of a route.",
    "target_tools": ["find_routes", "list_sailings"],
    "tools": FERRY_TOOLS,
}


@pytest.mark.parametrize("seed", range(4))
def test_a_request_without_a_value_states_all_others_and_the_answer_gives_it(seed):
    missing = {"tool": "find_routes", "parameter": "from_port", "value": "Lyme"}
    made = tasks.missing_value({**SHOWN, "missing": missing}, random.Random(seed))
    first, second = phrases.read_steps(made["question"])
    assert (first.given, second.dependent) == ({"to port": "Bath"}, True)
    assert phrases.read_value(made["answer"]) == {"from port": "Lyme"}


@pytest.mark.parametrize("seed", range(4))
def test_further_turns_ask_for_the_steps_that_need_earlier_results(seed):
    made = tasks.several_turns(SHOWN, random.Random(seed))
    assert graph_tasks.read_tools(made["question"], FERRY_TOOLS) == ["find_routes"]
    (turn,) = made["turns"]
    assert turn["target_tools"] == graph_tasks.read_tools(turn["says"], FERRY_TOOLS) == ["list_sailings"]
    assert phrases.read_steps(turn["says"])[0].dependent


@pytest.mark.parametrize("seed", range(4))
def test_further_turns_of_look_ups_go_on_from_the_answer(seed):
    names = ["airport_city", "city_country", "country_currency"]
    branch = phrases.Branch("airport", "LHR", ("host city", "home country", "currency"))
    shown = {
        "question": phrases.nested_question([branch], random.Random(seed)),
        "target_tools": names,
        "tools": TABLE_TOOLS,
    }
    made = tasks.several_turns(shown, random.Random(seed))
    (turn,) = made["turns"]
    asked = phrases.read_look_up_follow_up(turn["says"])
    assert asked is not None
    first = phrases.read_knowledge(made["question"], TABLE_TOOLS)[0]
    assert (*first.labels, *asked.labels) == branch.labels
    assert graph_tasks.read_tools(turn["says"], TABLE_TOOLS) == turn["target_tools"] == names[len(first.labels) :]


def test_a_request_that_cannot_be_cut_has_no_turns():
    shown = {**SHOWN, "question": f"{ROUTE}.", "target_tools": ["find_routes"]}
    assert tasks.several_turns(shown, random.Random(1))["turns"] == []


def test_a_vote_finds_a_loose_step_and_an_ended_thing():
    def vote(chain, bindings):
        return graph_tasks.vote({"tools": FERRY_TOOLS, "chain": chain, "bindings": bindings}, random.Random(1))[
            "coherent"
        ]

    assert vote(["find_routes", "list_sailings"], BOUND)
    assert not vote(["find_routes", "get_weather"], [])
    ended = [{"step": 1, "parameter": "booking_ref", "origin": "result", "from_step": 0, "output": "x"}]
    assert not vote(["cancel_booking", "list_sailings"], ended)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a", "b"]}, {"type": "integer", "minimum": 90, "maximum": 95}, {"type": "number", "minimum": 7},
        {"type": "string", "format": "date"}, {"type": "array", "items": {"type": "integer"}}, {"type": "boolean"},
        {"anyOf": [{"type": "null"}, {"type": "integer"}]}, {"type": "string", "description": "Id, e.g. FR-204."},
        {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    ],
)  # fmt: skip
def test_a_sample_value_is_one_that_the_schema_takes(schema):
    for seed in range(20):
        jsonschema.validate(sample_value("thing", schema, random.Random(seed)), schema)


def test_where_no_value_can_be_made_there_is_none():
    assert sample_value("x", {"type": "string", "pattern": "^Q{9}$"}, random.Random(1)) is None
