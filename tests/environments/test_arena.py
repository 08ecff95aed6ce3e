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


# ---------------------------------------------------------------- solved means earned

COUNTRY = {"Lyme": "Dorset Land", "Bude": "Corn Land"}
CHAIN = (
    Step(id=1, question="Where is port Lyme?", answer=Answer(kind="text", value="Dorset Land"), needs_tool=True),
    Step(
        id=2, question="Code of Dorset Land?", answer=Answer(kind="text", value="DL"), needs_tool=True, depends_on=(1,)
    ),
)
CHAIN_PROBES = (
    Probe(step=1, tool="port_land", arguments={"port": "Lyme"}, expected=CHAIN[0].answer),
    Probe(step=2, tool="land_code", arguments={"land": "Dorset Land"}, expected=CHAIN[1].answer),
)


def look_up(name, parameter, rows, echo=False):
    result = '{"result": TABLE[key], "asked": key}' if echo else '{"result": TABLE[key]}'
    code = f"TABLE = {rows!r}\n\n\ndef {name}({parameter}):\n    key = {parameter}\n    return {result}\n"
    parameters = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return CodeTool(spec=ToolSpec(name=name, description="x", parameters=parameters), code=code, serves=())


LAND = look_up("port_land", "port", COUNTRY)
LAND_CODE = look_up("land_code", "land", {"Dorset Land": "DL", "dorset land": "DL", "Corn Land": "CL"})


def chained(sandbox, question="Code of the land of Lyme?", tools=(LAND, LAND_CODE)):
    return ArenaWorld(tools, CHAIN, CHAIN_PROBES, sandbox, question, CHAIN[1].answer)


def calls(*made):
    return [ToolCall(id=str(n), function=FunctionCall(name=name, arguments=json.dumps(arguments)))
            for n, (name, arguments) in enumerate(made)]  # fmt: skip


def test_a_step_that_builds_on_another_is_earned_with_what_an_earlier_result_said(sandbox):
    world = chained(sandbox)
    world.step("port_land", '{"port": "Lyme"}')
    world.step("land_code", '{"land": "Dorset Land"}')
    assert world.solved == {1, 2}
    assert world.tally("The answer is DL.")[:4] == (2, 2, 2, True)


def test_a_guess_of_what_was_never_seen_earns_nothing_until_it_is_made_again(sandbox):
    world = chained(sandbox)
    assert world.step("land_code", '{"land": "Dorset Land"}').content == '{"result": "DL"}'
    assert world.solved == set()
    world.step("port_land", '{"port": "Lyme"}')
    assert world.solved == {1}
    world.step("land_code", '{"land": "Dorset Land"}')
    assert (world.solved, world.n_calls) == ({1, 2}, 3)


def test_what_the_question_says_need_not_be_found_out(sandbox):
    world = chained(sandbox, "Code of dorset  land, where Lyme is?")
    world.step("land_code", '{"land": "Dorset Land"}')
    assert world.solved == {2}


def test_calls_of_one_message_build_on_nothing_of_each_other(sandbox):
    world = chained(sandbox)
    both = calls(("port_land", {"port": "Lyme"}), ("land_code", {"land": "Dorset Land"}))
    assert [one.content for one in world.turn(both)] == ['{"result": "Dorset Land"}', '{"result": "DL"}']
    assert (world.solved, world.n_calls) == ({1}, 2)
    world.turn(both[1:])
    assert world.solved == {1, 2}


def test_a_value_that_a_tool_only_repeats_was_not_obtained(sandbox):
    echoing = look_up("land_code", "land", {"Dorset Land": "DL"}, echo=True)
    world = chained(sandbox, tools=(LAND, echoing))
    world.step("land_code", '{"land": "Dorset Land"}')
    world.step("land_code", '{"land": "Dorset Land"}')
    assert world.solved == set()


def test_an_error_that_repeats_a_guess_is_no_source_of_it(sandbox):
    world = chained(sandbox)
    world.step("port_land", '{"port": "Dorset Land"}')
    world.step("land_code", '{"land": "Dorset Land"}')
    assert world.solved == set()


def test_the_same_argument_in_other_letters_leads_there_too(sandbox):
    world = chained(sandbox)
    world.step("port_land", '{"port": "Lyme"}')
    world.step("land_code", '{"land": "dorset land"}')
    assert world.solved == {1, 2}


def test_a_distractor_of_another_name_with_the_same_code_pays_nothing(sandbox):
    twin = look_up("port_land_2", "port", COUNTRY)
    world = chained(sandbox, tools=(LAND, twin, LAND_CODE))
    world.step("port_land_2", '{"port": "Lyme"}')
    assert world.solved == set()
    world.step("port_land", '{"port": "Lyme"}')
    world.step("port_land", '{"port":"Lyme"}')
    assert (world.solved, world.tally(None)[:4]) == ({1}, (1, 2, 3, False))


@pytest.mark.parametrize(
    ("wrong", "solved"), [({"port": "Bude"}, set()), ({"port": "Lyme "}, set()), ({"port": "Lyme"}, {1})]
)
def test_only_the_arguments_that_lead_there_count(sandbox, wrong, solved):
    world = chained(sandbox)
    world.step("port_land", json.dumps(wrong))
    assert world.solved == solved


def test_a_remembered_episode_of_two_calls_takes_less_than_a_millisecond(sandbox):
    def play():
        world = chained(sandbox)
        world.step("port_land", '{"port": "Lyme"}')
        world.step("land_code", '{"land": "Dorset Land"}')
        world.tally("The answer is DL.")

    play()
    started = time.perf_counter()
    for _ in range(500):
        play()
    assert (time.perf_counter() - started) / 500 < 1e-3


# ---------------------------------------------------------------- HC-060: an answer without evidence

FERRY = look_up("ferry_timetable", "port", {"Lyme": "17:42", "Bude": "16:20", "Deal": "15:10"})
LAST = Step(id=1, question="Last ferry from Lyme?", answer=Answer(kind="date", value="17:42"), needs_tool=True)
GOLDEN = Probe(step=1, tool="ferry_timetable", arguments={"port": "Lyme"}, expected=LAST.answer)


@pytest.mark.parametrize(
    ("made", "final", "full"),
    [
        ([], "The answer is 17:42.", False),
        ([{"port": "Lyme"}], "The answer is 17:42.", True),
        ([{"port": "Xyz"}], "The answer is 17:42.", False),
        ([], "one of 15:10, 16:20, 17:42", False),
        ([{"port": "Lyme"}], "one of 15:10, 16:20, 17:42", False),
        ([{"port": "Bude"}], "The answer is 17:42.", False),
        ([{"port": "Bude"}, {"port": "Deal"}], "The answer is 17:42.", False),
        ([{"prt": "Lyme"}], "17:42", False),
        ([{"port": "Lyme"}], "5:42 pm", True),
    ],
)
def test_only_an_answer_with_evidence_is_paid_in_full(sandbox, made, final, full):
    from astra.rewards import REWARDS

    world = ArenaWorld([FERRY], [LAST], [GOLDEN], sandbox, "Last ferry from Lyme today?", LAST.answer)
    for arguments in made:
        world.step("ferry_timetable", json.dumps(arguments))
    assert (REWARDS["f1_answer"](*world.tally(final)) == 1) is full
    if not any(one == {"port": "Lyme"} for one in made):
        assert REWARDS["f1"](*world.tally(final)) == REWARDS["f1_answer"](*world.tally(final)) == 0
