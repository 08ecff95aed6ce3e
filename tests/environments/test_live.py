"""Live environments: one shared session, bounded restarts, and a broken server is never a tool's answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from astra.environments import EnvironmentUnavailable, Observation
from astra.environments.emulator import Emulator
from astra.environments.live import MAX_STARTS, Live, LiveCallFailed, LiveSessions
from astra.environments.routed import Routed, ToolNameTaken
from astra.live import LiveConfig
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, Server, Source, ToolCall, ToolSpec, Usage
from tests.test_live import Served

FAKE = str(Path(__file__).parents[1] / "fake_mcp_server.py")
ANY = {"type": "object"}
TOOLS = tuple(
    ToolSpec(name=name, wire_name=wire, description=name, parameters=ANY)
    for name, wire in (("pid", None), ("fare", "quote_fare"), ("book", None))
)
SERVER = Server(
    id="server-1", name="fake", title="Fake", description="Fake.", domain="test", tools=TOOLS,
    source=Source(format="mcp_live", uri="x#fake", revision="1", licence="MIT"),
)  # fmt: skip
MODEL = ModelParams(transport="builtin", name="stand-in", temperature=0, max_tokens=64)


class Books:
    """A client whose every reply is a booking, and which keeps the prompts."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def ask(self, request: Request) -> Completion:
        self.prompts.append(request.messages[0].content or "")
        return Completion('{"result": "booked"}', "stop", Usage(calls=1, prompt_tokens=1, completion_tokens=1))


def sessions(mode: str, call_timeout_s: float = 10) -> LiveSessions:
    config = LiveConfig(name=mode, command="python", args=(FAKE, mode))
    return LiveSessions({"server-1": config}, start_timeout_s=20, call_timeout_s=call_timeout_s)


def live(shared: LiveSessions, client: Books | None = None) -> Live:
    emulator = Emulator(SERVER, TOOLS, client or Books(), MODEL, seed=1, key="k", fault_rate=0.0, reasks=0)
    return Live("server-1", frozenset({"pid", "fare"}), TOOLS, shared, emulator)


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="c", function=FunctionCall(name=name, arguments=json.dumps(arguments)))


def test_conversations_share_one_process_and_equal_calls_are_made_once():
    async def run(shared: LiveSessions) -> list[Observation]:
        return [await live(shared).call(call("pid", n=n)) for n in (1, 2, 1)]

    with sessions("plain") as shared:
        seen = asyncio.run(run(shared))
    assert len({one.content for one in seen}) == 1
    assert all(one.executed_by == "live" and not one.is_error for one in seen)


def test_the_servers_flag_and_not_its_words_says_what_an_error_is():
    async def run(shared: LiveSessions) -> list[Observation]:
        return [await live(shared).call(call("fare", case=case)) for case in range(4)]

    with sessions("plain") as shared:
        seen = asyncio.run(run(shared))
    assert [(one.content, one.is_error) for one in seen] == [
        ("port closed on Sundays", True),
        ('{"fare": 12.5}', False),
        ("Error: log line found", False),
        ("fare is 12.5", False),
    ]


def test_a_tool_that_is_not_deterministic_is_emulated_and_the_emulator_knows_the_live_results():
    client = Books()

    async def run(shared: LiveSessions) -> Observation:
        world = live(shared, client)
        await world.call(call("fare", case=1))
        return await world.call(call("book"))

    with sessions("plain") as shared:
        seen = asyncio.run(run(shared))
    assert seen == Observation('"booked"', False, "emulator")
    shown = json.loads(client.prompts[0].split("```json\n")[1].split("\n```")[0])
    assert shown["history"] == [{"tool": "fare", "arguments": {"case": 1}, "result": {"fare": 12.5}}]


@pytest.mark.parametrize("mode", ["dead_on_call", "hangs_on_call"])
def test_a_call_without_answer_ends_its_conversation_and_after_one_restart_the_server_is_not_started_again(mode):
    async def run(shared: LiveSessions) -> None:
        for _ in range(2):
            with pytest.raises(LiveCallFailed):
                await live(shared).call(call("pid"))
        for _ in range(3):
            with pytest.raises(LiveCallFailed, match="failed 2 times"):
                await live(shared).call(call("pid"))

    with sessions(mode, call_timeout_s=0.5) as shared:
        asyncio.run(run(shared))
        assert shared._starts.total() == 2


def test_a_server_that_dies_now_and_then_is_started_again_but_not_for_ever():
    async def run(shared: LiveSessions) -> list[str]:
        ends = []
        for n in range(2 * MAX_STARTS + 4):
            name, arguments = ("pid", {"n": n}) if n % 2 == 0 else ("die", {})
            try:
                ends.append((await shared.call("server-1", name, json.dumps(arguments))).text)
            except LiveCallFailed as error:
                ends.append(str(error))
        return ends

    with sessions("mortal") as shared:
        ends = asyncio.run(run(shared))
    assert len({one for one in ends if one.isdigit()}) == MAX_STARTS
    assert all(f"failed {MAX_STARTS} times" in one for one in ends[-4:])


def test_a_server_that_is_gone_for_good_costs_its_own_conversations_and_spares_its_neighbours():
    configs = {
        "dead": LiveConfig(name="dead", command="python", args=(FAKE, "dead_on_start")),
        "server-1": LiveConfig(name="well", command="python", args=(FAKE, "plain")),
    }

    async def run(shared: LiveSessions) -> None:
        assert (await live(shared).call(call("pid"))).executed_by == "live"
        for _ in range(3):
            with pytest.raises(LiveCallFailed, match="live server dead: failed 2 times.*exit code 3"):
                await shared.call("dead", "pid", "{}")
        assert (await live(shared).call(call("pid", n=2))).executed_by == "live"

    with LiveSessions(configs, start_timeout_s=20, call_timeout_s=10) as shared:
        asyncio.run(run(shared))


def test_where_no_live_server_can_be_opened_the_stage_stops():
    configs = {name: LiveConfig(name=name, command="python", args=(FAKE, "dead_on_start")) for name in ("a", "b")}

    async def run(shared: LiveSessions) -> None:
        with pytest.raises(LiveCallFailed):
            await shared.call("a", "pid", "{}")
        with pytest.raises(EnvironmentUnavailable, match="No live server could be opened"):
            await shared.call("b", "pid", "{}")

    with LiveSessions(configs, start_timeout_s=20, call_timeout_s=10) as shared:
        asyncio.run(run(shared))


def test_a_session_that_fails_under_several_conversations_fails_each_of_them_once():
    async def run(shared: LiveSessions) -> list[object]:
        calls = [live(shared).call(call("pid", n=n)) for n in range(4)]
        return await asyncio.gather(*calls, return_exceptions=True)

    with sessions("dead_on_call") as shared:
        ends = asyncio.run(run(shared))
    assert {type(end) for end in ends} == {LiveCallFailed}


def test_a_server_that_does_not_start_stops_the_stage():
    with sessions("dead_on_start") as shared, pytest.raises(EnvironmentUnavailable, match="exit code 3"):
        asyncio.run(live(shared).call(call("pid")))


def test_a_server_at_an_address_is_shared_and_when_it_is_lost_its_conversations_end():
    async def run(shared: LiveSessions) -> None:
        assert (await live(shared).call(call("pid"))).executed_by == "live"
        at.process.kill()
        with pytest.raises(LiveCallFailed, match="MCP server served at http"):
            await live(shared).call(call("pid", n=2))
        for _ in range(2):
            with pytest.raises(LiveCallFailed, match="failed 3 times.*ConnectError"):
                await live(shared).call(call("pid", n=2))

    with Served("plain") as at, LiveSessions({"server-1": LiveConfig(name="served", url=at.url)}, 20, 10) as shared:
        asyncio.run(run(shared))


def test_a_server_that_starts_too_slowly_is_not_started_again_and_again():
    config = LiveConfig(name="slow", command="python", args=(FAKE, "slow30"))
    shared = LiveSessions({"server-1": config}, start_timeout_s=0.3, call_timeout_s=5)
    with (
        shared,
        pytest.raises(EnvironmentUnavailable, match=r"failed 1 times.*initialize in 0.3 s \(start_timeout_s\)"),
    ):
        asyncio.run(live(shared).call(call("pid")))


class Named:
    """An environment that answers with its name."""

    def __init__(self, name: str, *tools: ToolSpec) -> None:
        self.name = name
        self.tools = tools

    async def call(self, call: ToolCall) -> Observation:
        return Observation(self.name, False, "emulator")


def test_each_tool_goes_to_its_own_server():
    routed = Routed([Named("a", TOOLS[0]), Named("b", TOOLS[1])], TOOLS[:2])
    assert asyncio.run(routed.call(call("fare"))).content == "b"


def test_one_name_on_two_servers_is_refused():
    with pytest.raises(ToolNameTaken, match="pid"):
        Routed([Named("a", TOOLS[0]), Named("b", TOOLS[0])], TOOLS[:1])
