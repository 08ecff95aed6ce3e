"""Merging: nothing that a tool served is lost, by rule or with a model, and what does not work out stays apart."""

from __future__ import annotations

import json
import random

import pytest

from astra.answers import matches, result_value
from astra.certificate import Failures, Playable, certify
from astra.llm.builtin import BuiltinTransport
from astra.records import Answer, CodeTool, Environment, Probe, Step, ToolSpec
from astra.sandbox import Job, open_pool
from astra.synthesis import Writer
from astra.synthesis.intents import Intents, candidates
from astra.synthesis.merging import merge
from astra.tables import cells, literal, table_of
from tests.stages.test_envsynth import MODEL, Scripted, client

FUNCTION = """def {name}({key}):
    \"\"\"{says}\"\"\"
    if {key} not in TABLE:
        raise ValueError(f"unknown {key}: {{{key}}}")
    return {{"result": TABLE[{key}]}}
"""


@pytest.fixture(scope="module")
def pool():
    with open_pool() as open_:
        yield open_


def tool(number, rows, name="depth", key="sea", says="Depth of a sea.", function=FUNCTION):
    named = name if number == 1 else f"{name}_{number}"
    spec = ToolSpec(
        name=named, description=says,
        parameters={"type": "object", "properties": {key: {"type": "string"}}, "required": [key]},
        returns={"type": "object", "properties": {"result": {"type": "number"}}, "required": ["result"]},
    )  # fmt: skip
    code = f"{literal('TABLE', rows)}\n\n\n{function.format(name=named, key=key, says=says)}"
    return CodeTool(spec=spec, code=code, serves=(number,))


def environment(tools, golden, relation=None, origin="given"):
    """One step for each tool, answered by the golden key."""
    steps, probes = [], []
    for number, (one, key) in enumerate(zip(tools, golden, strict=True), 1):
        (parameter,) = one.spec.parameters["required"]
        answer = Answer(kind="number", value=table_of(one.code).rows[key])
        steps.append(
            Step(id=number, question=f"How deep is it at {key}?", answer=answer, needs_tool=True, relation=relation)
        )
        probes.append(Probe(step=number, tool=one.spec.name, arguments={parameter: key}, expected=answer))
    return Environment(
        id="e", decomposition_id="d", domain="sea", shape="parallel_single_hop",
        question=f"How deep is it at {' and at '.join(golden)}?",
        answer=Answer(kind="list", value=[one.answer.value for one in steps]), steps=tuple(steps), tools=tuple(tools),
        probes=tuple(probes), split="train", origin=origin,
    )  # fmt: skip


def served(tools, probes, pool):
    """The steps whose golden call gives the expected answer."""
    by_name = {one.spec.name: one for one in tools}
    assert len(by_name) == len(tools)
    results = pool.map([Job(by_name[one.tool].code, one.tool, (one.arguments,)) for one in probes])
    return {
        probe.step
        for probe, (result,) in zip(probes, results, strict=True)
        if result.ok and matches(probe.expected, result_value(result.value))
    }


# ---------------------------------------------------------------- by rule


def test_tools_whose_parameters_are_named_otherwise_are_merged_and_their_calls_rewritten(pool):
    tools = (tool(1, {"Rio": 7, "Vigo": 9}), tool(2, {"Faro": 8, "Sines": 3}, key="basin", says="How deep a basin is."))
    new = merge(environment(tools, ["Rio", "Faro"], relation="depth"))
    (whole,) = new.tools
    assert whole.spec == tools[0].spec
    assert [one.arguments for one in new.probes] == [{"sea": "Rio"}, {"sea": "Faro"}]
    assert served(new.tools, new.probes, pool) == {1, 2}


@pytest.mark.parametrize(
    "function",
    [
        FUNCTION.replace("TABLE[{key}]}}", "TABLE[{key}] + 0}}"),
        FUNCTION.replace("unknown", "no"),
        FUNCTION.replace("not in", "not in list(TABLE) and {key} not in"),
        "SCALE = 2\n\n\n" + FUNCTION,
        "import math\n\n\n" + FUNCTION,
    ],
)
def test_functions_that_differ_in_more_than_names_are_not_merged_by_rule(function):
    tools = (tool(1, {"Rio": 7, "Vigo": 9}), tool(2, {"Faro": 8, "Sines": 3}, function=function))
    assert merge(environment(tools, ["Rio", "Faro"], relation="depth")).tools == tools


def test_tools_of_other_types_or_with_other_values_for_one_key_stay_apart():
    other = tool(2, {"Rio": 8, "Sines": 3})
    tools = (tool(1, {"Rio": 7, "Vigo": 9}), other)
    assert merge(environment(tools, ["Vigo", "Sines"], relation="depth")).tools == tools
    text = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
    other = tool(2, {"Faro": 8, "Sines": 3})
    other = other.model_copy(update={"spec": other.spec.model_copy(update={"returns": text})})
    tools = (tools[0], other)
    assert merge(environment(tools, ["Vigo", "Sines"], relation="depth")).tools == tools


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_merged_by_rule_every_golden_call_is_still_served(seed, pool):
    rng = random.Random(seed)
    tools, golden = [], []
    for number in range(1, rng.randint(2, 6)):
        keys = rng.sample([f"Place{n}" for n in range(40)], rng.randint(2, 5))
        shift = 0 if rng.random() < 0.8 else 100  # another value for a key that two tools have
        rows = {key: int(key[5:]) * 7 + shift for key in keys}
        key, says = rng.choice(
            [("sea", "Depth of a sea."), ("basin", "Depth of a basin."), ("port", "Depth of a port.")]
        )
        function = rng.choice([FUNCTION, FUNCTION, FUNCTION.replace("TABLE[{key}]}}", "+TABLE[{key}]}}")])
        tools.append(tool(number, rows, key=key, says=says, function=function))
        golden.append(keys[0])
    one = environment(tools, golden, relation="depth")
    new = merge(one)
    assert served(one.tools, one.probes, pool) == served(new.tools, new.probes, pool) == {step.id for step in one.steps}
    assert [probe.step for probe in new.probes] == [probe.step for probe in one.probes]
    assert sorted(step for made in new.tools for step in made.serves) == [step.id for step in one.steps]
    before = {(keys, value) for made in one.tools for keys, value in cells(table_of(made.code).rows, 1)}
    assert before == {(keys, value) for made in new.tools for keys, value in cells(table_of(made.code).rows, 1)}


# ---------------------------------------------------------------- with a model

UNALIKE = FUNCTION.replace("TABLE[{key}]}}", "TABLE.get({key})}}")
GIVEN = environment(
    (
        tool(1, {"Rio": 7, "Vigo": 9, "Ria": 4}),
        tool(2, {"Faro": 8, "Sines": 3, "Olhao": 5}, function=UNALIKE),
        tool(3, {"Alps": 44, "Etna": 33, "Tatra": 26}, name="height", key="peak", says="Height of a peak."),
    ),
    ["Rio", "Faro", "Alps"],
)


def intents(pool, transport, max_tries=3):
    return Intents(Writer(client(transport), MODEL, 17, pool, max_tries))


def test_a_model_groups_tools_of_one_intent_and_writes_one_function_over_the_data_of_all(pool):
    made = intents(pool, transport := Scripted([]))
    (new,) = made.merge([GIVEN], [merge(GIVEN)])
    assert [one.spec.name for one in new.tools] == ["depth", "height_3"]
    assert [one.serves for one in new.tools] == [(1, 2), (3,)]
    assert len(table_of(new.tools[0].code).rows) == 6
    assert served(new.tools, new.probes, pool) == {1, 2, 3}
    (outcome,) = certify([Playable(GIVEN.model_copy(update=new._asdict()))], pool)
    assert not isinstance(outcome, Failures), outcome
    told = [one.messages[0].content for one in transport.asked]
    assert len(told) == 2
    assert not [text for text in told if '"Rio"' in text or '"Faro"' in text]


def test_a_member_that_holds_a_case_fast_becomes_an_argument(pool):
    one = environment((tool(1, {"day": 7, "night": 9}, name="rio", key="hour"),
                       tool(2, {"day": 8, "night": 3}, name="faro", key="hour")), ["day", "night"])  # fmt: skip
    document = {
        "name": "depth_at", "description": "Depth of a place at an hour.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "hour": {"type": "string"}},
                       "required": ["place", "hour"]},
        "returns": {"type": "object", "properties": {"result": {"type": "number"}}, "required": ["result"]},
    }  # fmt: skip
    hour = {"parameter": "hour"}
    said = {"groups": [{"tools": ["rio", "faro_2"], "document": document,
                        "arguments": {"rio": {"place": {"value": "Rio"}, "hour": hour},
                                      "faro_2": {"place": {"value": "Faro"}, "hour": hour}}}]}  # fmt: skip
    (new,) = intents(pool, Scripted([json.dumps(said)], "Merge: group the tools")).merge([one], [merge(one)])
    (whole,) = new.tools
    assert table_of(whole.code).rows == {"Faro": {"day": 8, "night": 3}, "Rio": {"day": 7, "night": 9}}
    assert [probe.arguments for probe in new.probes] == [
        {"place": "Rio", "hour": "day"},
        {"place": "Faro", "hour": "night"},
    ]
    assert served(new.tools, new.probes, pool) == {1, 2}


def test_a_merged_function_that_fails_goes_back_with_the_error_and_then_the_tools_stay_apart(pool):
    broken = "```python\ndef depth(sea):\n    return {'result': TABLE[see]}\n```"
    made = intents(pool, transport := Scripted([broken], "Merge: write the code"))
    (new,) = made.merge([GIVEN], [merge(GIVEN)])
    assert len(new.tools) == 2
    assert "NameError" in transport.asked[-1].messages[-1].content
    assert [(one.part, one.number) for one in made.writer.tries] == [("merge", 1)]
    never = intents(pool, Scripted([broken] * 3, "Merge: write the code"))
    (kept,) = never.merge([GIVEN], [merge(GIVEN)])
    assert kept == merge(GIVEN)
    assert len(never.writer.tries) == 3


GOOD = {"tools": ["depth", "depth_2"], "document": GIVEN.tools[0].spec.model_dump(include={"name", "description", "parameters", "returns"}),
        "arguments": {"depth": {"sea": {"parameter": "sea"}}, "depth_2": {"sea": {"parameter": "sea"}}}}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tools": ["depth", "deep"]}, "no such tool"),
        ({"tools": ["depth"]}, "at least 2"),
        ({"tools": ["depth", "depth"]}, "alone"),
        ({"document": {**GOOD["document"], "name": "height_3"}}, "taken"),
        ({"document": {**GOOD["document"], "name": "depth of"}}, "name"),
        ({"arguments": {"depth": GOOD["arguments"]["depth"]}}, "depth_2 are for"),
        ({"arguments": {**GOOD["arguments"], "depth_2": {"sea": {"value": "Faro"}}}}, "each once"),
        ({"arguments": {**GOOD["arguments"], "depth_2": {"sea": {}}}}, "either a parameter or a value"),
        ({"tools": ["depth", "depth_2", "height_3"]}, "height_3 are for"),
    ],
)
def test_a_grouping_that_loses_something_goes_back_and_then_the_tools_stay_apart(change, why, pool):
    said = json.dumps({"groups": [{**GOOD, **change}]})
    made = intents(pool, Scripted([said] * 3, "Merge: group the tools"))
    (kept,) = made.merge([GIVEN], [merge(GIVEN)])
    assert kept == merge(GIVEN)
    assert why in made.writer.tries[0].trouble


def test_two_members_with_other_results_for_the_same_arguments_are_not_merged(pool):
    one = environment(
        (tool(1, {"Rio": 7, "Vigo": 9}), tool(2, {"Rio": 8, "Sines": 3}, function=UNALIKE)), ["Vigo", "Sines"]
    )
    made = intents(pool, BuiltinTransport())
    (kept,) = made.merge([one], [merge(one)])
    assert kept.tools == one.tools
    assert {one.trouble for one in made.writer.tries} == {
        "depth, depth_2 have different results for the same arguments"
    }


def test_nobody_is_asked_about_tools_of_different_tables():
    one = environment(GIVEN.tools, ["Rio", "Faro", "Alps"], origin="tables")
    tabled = one.model_copy(update={"steps": tuple(
        step.model_copy(update={"relation": f"relation_{step.id}"}) for step in one.steps
    )})  # fmt: skip
    assert candidates(tabled, merge(tabled)) == ()
    assert [made.spec.name for made in candidates(one, merge(one))] == ["depth", "depth_2"]
