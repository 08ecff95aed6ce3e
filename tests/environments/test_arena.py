"""An arena as it is played: what solves a step, what is an error, what is remembered."""

from __future__ import annotations

import json
import time

import pytest

from astra.environments.arena import ArenaWorld, forget
from astra.environments.base import EnvironmentUnavailable
from astra.records import Answer, CodeTool, FunctionCall, Probe, Step, ToolCall, ToolSpec
from astra.sandbox import Result, SandboxUnavailable, open_sandbox

CODE = """TABLE = {"Lyme": 12.5, "Bude": 9}


def port_fare(port):
    if port not in TABLE:
        raise ValueError(f"unknown port: {port}")
    return {"result": TABLE[port]}
"""
PARAMETERS = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}


def tool(name="port_fare", code=CODE, parameters=PARAMETERS):
    spec = ToolSpec(name=name, description="Fare of a port.", parameters=parameters)
    return CodeTool(spec=spec, code=code.replace("port_fare", name), serves=(1,))


def fare(step, port, value):
    answer = Answer(kind="number", value=value)
    question = f"What is the fare of port {port}?"
    return Step(id=step, question=question, answer=answer, needs_tool=True, relation="port_fare", subject=port)


def probe(step, port, value):
    return Probe(step=step, tool="port_fare", arguments={"port": port}, expected=Answer(kind="number", value=value))


STEPS = (fare(1, "Lyme", 12.5), fare(2, "Bude", 9))
PROBES = (probe(1, "Lyme", 12.5), probe(2, "Bude", 9))


class CountingSandbox:
    """A sandbox that notes how often it is asked, and answers what it is told."""

    backend = "counting"

    def __init__(self, result):
        self.result = result
        self.n_asked = 0

    def call(self, code, function, arguments, timeout_s=2.0):
        self.n_asked += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture(scope="module")
def sandbox():
    with open_sandbox() as worker:
        yield worker


@pytest.fixture(autouse=True)
def nothing_remembered():
    forget()


@pytest.fixture
def world(sandbox):
    return ArenaWorld([tool(), tool("port_depth")], STEPS, PROBES, sandbox)


def test_a_golden_call_that_answers_as_expected_solves_its_step_once(world):
    for _ in range(3):
        seen = world.step("port_fare", '{"port": "Lyme"}')
    assert (seen.content, seen.is_error, seen.executed_by) == ('{"result": 12.5}', False, "sandbox")
    assert (world.solved, world.n_calls, world.n_required) == ({1}, 3, 2)
    world.step("port_fare", '{"port":"Bude"}')
    assert world.solved == {1, 2}


def test_another_tool_with_the_same_result_solves_nothing(world):
    assert world.step("port_depth", '{"port": "Lyme"}').content == '{"result": 12.5}'
    assert world.solved == set()


def test_a_golden_call_that_answers_otherwise_solves_nothing(sandbox):
    world = ArenaWorld([tool(code=CODE.replace("12.5", "12.6"))], STEPS, PROBES, sandbox)
    assert not world.step("port_fare", '{"port": "Lyme"}').is_error
    assert world.solved == set()


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("port_fare", '{"port": "Xyz"}', "unknown port: Xyz"),
        ("port_fare", "{}", "missing parameter: port"),
        ("port_fare", '{"prt": "Lyme"}', "unknown parameter: prt"),
        ("port_fare", '{"port": 5}', "invalid parameter port: expected a string"),
        ("port_fare", '{"port": "Lyme"', "arguments are not valid JSON"),
        ("port_fare", '["Lyme"]', "arguments are not a JSON object"),
        ("port_tide", '{"port": "Lyme"}', "unknown tool: port_tide"),
    ],
)
def test_what_the_caller_did_wrong_is_an_error_that_names_it_and_counts_as_a_call(world, name, arguments, said):
    seen = world.step(name, arguments)
    assert (seen.content, seen.is_error, seen.executed_by) == (said, True, "sandbox")
    assert (world.solved, world.n_calls) == (set(), 1)


def test_arguments_that_do_not_fit_never_reach_the_sandbox():
    counting = CountingSandbox(Result("ok", 1))
    world = ArenaWorld([tool()], STEPS, PROBES, counting)
    for arguments in ("{}", '{"prt": "Lyme"}', '{"port": 5}', "nonsense"):
        world.step("port_fare", arguments)
    assert counting.n_asked == 0


def test_what_a_call_gave_is_remembered_across_episodes_of_the_same_code_only():
    counting = CountingSandbox(Result("ok", {"result": 12.5}))
    for _ in range(5):
        world = ArenaWorld([tool()], STEPS, PROBES, counting)
        world.step("port_fare", '{"port": "Lyme"}')
        assert world.solved == {1}
    assert counting.n_asked == 1
    ArenaWorld([tool(code=CODE + "\n")], STEPS, PROBES, counting).step("port_fare", '{"port": "Lyme"}')
    assert counting.n_asked == 2


def test_a_time_out_is_an_error_observation_that_is_not_remembered():
    counting = CountingSandbox(Result("timeout", error="timeout"))
    world = ArenaWorld([tool()], STEPS, PROBES, counting)
    assert world.step("port_fare", '{"port": "Lyme"}').content == "the tool failed: timeout"
    world.step("port_fare", '{"port": "Lyme"}')
    assert counting.n_asked == 2


def test_a_lost_sandbox_is_no_observation():
    world = ArenaWorld([tool()], STEPS, PROBES, CountingSandbox(SandboxUnavailable("gone")))
    with pytest.raises(EnvironmentUnavailable, match="gone"):
        world.step("port_fare", '{"port": "Lyme"}')


def test_an_arena_whose_needed_tool_was_removed_can_be_played(sandbox):
    world = ArenaWorld([tool("port_depth")], STEPS, PROBES, sandbox)
    assert world.step("port_fare", '{"port": "Lyme"}').content == "unknown tool: port_fare"
    assert (world.n_required, world.solved) == (2, set())


def test_two_tools_of_one_name_are_refused(sandbox):
    with pytest.raises(ValueError, match="not unique"):
        ArenaWorld([tool(), tool()], STEPS, PROBES, sandbox)


async def _call(world, arguments):
    call = ToolCall(id="1", function=FunctionCall(name="port_fare", arguments=json.dumps(arguments)))
    return await world.call(call)


def test_the_async_call_of_the_seam_is_the_same_step(world):
    import asyncio

    assert asyncio.run(_call(world, {"port": "Bude"})).content == '{"result": 9}'
    assert world.solved == {2}


def test_a_remembered_call_takes_less_than_a_tenth_of_a_millisecond(world):
    world.step("port_fare", '{"port": "Lyme"}')
    started = time.perf_counter()
    for _ in range(2000):
        world.step("port_fare", '{"port": "Lyme"}')
    assert (time.perf_counter() - started) / 2000 < 1e-4
