"""What every environment promises, whoever answers: errors of calls are observations, equal calls see one world."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from astra.environments import Environment, Observation
from astra.environments.emulator import Emulator
from astra.environments.live import Live, LiveSessions
from astra.environments.recording import Recording, Replay, answered_live
from astra.environments.routed import Routed
from astra.live import CallResult, LiveConfig
from astra.llm import ModelParams, builtin_client
from astra.records import FunctionCall, Server, Source, ToolCall, ToolSpec

RIVER = {"type": "object", "properties": {"river": {"type": "string"}}, "required": ["river"]}
RESULT = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
TOOL = ToolSpec(name="get_mouth", description="Mouth of a river.", parameters=RIVER, returns=RESULT)
SERVER = Server(
    id="s", name="rivers", title="Rivers", description="Rivers.", domain="geography", tools=(TOOL,),
    source=Source(format="mcp", uri="x", revision="1", licence="MIT"),
)  # fmt: skip
MODEL = ModelParams(transport="builtin", name="astra-rules-1", temperature=0.7, max_tokens=4096)
TABLES = """tables:
  river:
    source: csv
    options: {file: FILE}
    key: name
    relations:
      get_mouth: {column: mouth, label: mouth, kind: text}
"""


def emulator() -> Emulator:
    return Emulator(SERVER, (TOOL,), builtin_client(), MODEL, seed=1, key="k", fault_rate=0.0, reasks=1)


@contextmanager
def emulated(folder: Path) -> Iterator[Environment]:
    yield emulator()


@contextmanager
def routed(folder: Path) -> Iterator[Environment]:
    yield Routed([emulator()], (TOOL,))


@contextmanager
def live(folder: Path) -> Iterator[Environment]:
    (folder / "rivers.csv").write_text("name,mouth\nAxe,Seaton\nExe,Exmouth\n")
    (folder / "rivers.yaml").write_text(TABLES.replace("FILE", str(folder / "rivers.csv")))
    config = LiveConfig(
        name="rivers", command="python", args=("-m", "astra.knowledge_server", str(folder / "rivers.yaml"))
    )
    with LiveSessions({"s": config}, start_timeout_s=60, call_timeout_s=20) as sessions:
        yield Live("s", frozenset({"get_mouth"}), (TOOL,), sessions, emulator())


@contextmanager
def recording(folder: Path) -> Iterator[Environment]:
    with live(folder) as plain:
        assert isinstance(plain, Live)
        with answered_live(plain.sessions, "record", folder / "recording.jsonl") as calls:
            yield Live("s", plain.live_tools, plain.tools, calls, emulator())


@contextmanager
def replaying(folder: Path) -> Iterator[Environment]:
    kept = Recording(folder / "recording.jsonl")
    for river, mouth in (("Axe", "Seaton"), ("Exe", "Exmouth")):
        kept.add("s", "get_mouth", {"river": river}, CallResult(json.dumps({"result": mouth}), False))
    yield Live("s", frozenset({"get_mouth"}), (TOOL,), Replay(kept), emulator())


ENVIRONMENTS = {
    "emulator": emulated, "live": live, "live, recording": recording, "live, replaying": replaying, "routed": routed,
}  # fmt: skip


@pytest.fixture(params=ENVIRONMENTS)
def play(
    request, tmp_path
) -> Iterator[Callable[[Callable[[Environment], Awaitable[list[Observation]]]], list[Observation]]]:
    with ENVIRONMENTS[request.param](tmp_path) as environment:
        yield lambda script: asyncio.run(script(environment))


def call(**arguments: object) -> ToolCall:
    return ToolCall(id="c", function=FunctionCall(name="get_mouth", arguments=json.dumps(arguments)))


def test_it_names_the_tools_that_it_answers(play):
    async def script(world: Environment) -> list[Observation]:
        assert [tool.name for tool in world.tools] == ["get_mouth"]
        return []

    play(script)


def test_a_good_call_is_answered_in_the_form_that_the_tool_documents(play):
    async def script(world: Environment) -> list[Observation]:
        return [await world.call(call(river="Axe"))]

    (seen,) = play(script)
    assert not seen.is_error
    assert seen.fault is None
    assert isinstance(json.loads(seen.content)["result"], str)


def test_equal_calls_see_one_world(play):
    async def script(world: Environment) -> list[Observation]:
        return [await world.call(call(river=name)) for name in ("Axe", "Exe", "Axe")]

    first, other, again = play(script)
    assert first == again
    assert first != other


def test_a_call_without_its_parameter_is_an_error_that_names_it_and_changes_nothing(play):
    async def script(world: Environment) -> list[Observation]:
        return [await world.call(one) for one in (call(river="Axe"), call(), call(river=3), call(river="Axe"))]

    before, missing, wrong, after = play(script)
    assert missing.is_error
    assert missing.content == "missing parameter: river"
    assert wrong.is_error
    assert "river" in wrong.content
    assert before == after
