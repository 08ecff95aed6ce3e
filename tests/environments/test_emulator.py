"""The emulator: one world per session, checked arguments and results, seeded failures."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from astra.environments import Observation
from astra.environments.emulator import FAULTS, Emulator, EmulatorReplyInvalid, drawn_fault, reads_only
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, Server, Source, ToolCall, ToolSpec, Usage

MODEL = ModelParams(transport="builtin", name="stand-in", temperature=0, max_tokens=64)
BERTH = {"type": "object", "properties": {"berth": {"type": "integer"}}, "required": ["berth"]}
PORT = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
TOOLS = tuple(
    ToolSpec(name=name, description=name, parameters=PORT, returns=BERTH) for name in ("get_berth", "assign_berth")
)
SERVER = Server(
    id="server-1", name="harbour", title="Harbour", description="Berths of a port.", domain="transport", tools=TOOLS,
    source=Source(format="mcp", uri="x", revision="y", licence="MIT"),
)  # fmt: skip


class Answers:
    """A client that gives the texts in turn and keeps the requests."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.requests: list[Request] = []

    async def ask(self, request: Request) -> Completion:
        self.requests.append(request)
        return Completion(self.texts.pop(0), "stop", Usage(calls=1, prompt_tokens=1, completion_tokens=1))


def session(client: Answers, fault_rate: float = 0.0, key: str = "17:task-1:0", reasks: int = 1) -> Emulator:
    return Emulator(SERVER, TOOLS, client, MODEL, seed=17, key=key, fault_rate=fault_rate, reasks=reasks)


def ask(world: Emulator, *calls: tuple[str, dict[str, object]]) -> list[Observation]:
    async def run() -> list[Observation]:
        made = [ToolCall(id="c", function=FunctionCall(name=n, arguments=json.dumps(a))) for n, a in calls]
        return [await world.call(one) for one in made]

    return asyncio.run(run())


LYME = {"port": "Lyme"}


def test_a_repeated_reading_returns_what_it_returned_without_asking_the_model() -> None:
    client = Answers('{"result": {"berth": 4}}')
    first, second = ask(session(client), ("get_berth", LYME), ("get_berth", LYME))
    assert first == second == Observation('{"berth": 4}', False, "emulator")
    assert len(client.requests) == 1


def test_a_reading_after_a_writing_goes_to_the_model_with_the_whole_history() -> None:
    client = Answers('{"result": {"berth": 4}}', '{"result": {"berth": 7}}', '{"result": {"berth": 7}}')
    ask(session(client), ("get_berth", LYME), ("assign_berth", LYME), ("get_berth", LYME))
    prompt = client.requests[-1].messages[0].content or ""
    shown = json.loads(prompt.split("```json\n")[1].split("\n```")[0])
    assert [(one["tool"], one["result"]) for one in shown["history"]] == [
        ("get_berth", {"berth": 4}),
        ("assign_berth", {"berth": 7}),
    ]


@pytest.mark.parametrize("bad", ["It is berth 4.", '{"result": {"berth": "four"}}', '{"berth": 4}', '{"error": ""}'])
def test_an_unusable_reply_is_asked_again_with_what_is_wrong(bad: str) -> None:
    client = Answers(bad, '{"result": {"berth": 4}}')
    assert ask(session(client), ("get_berth", LYME))[0].content == '{"berth": 4}'
    assert "cannot be used" in (client.requests[1].messages[-1].content or "")
    assert client.requests[1].messages != client.requests[0].messages


def test_replies_that_stay_unusable_end_the_conversation_not_the_stage() -> None:
    with pytest.raises(EmulatorReplyInvalid, match=r"harbour\.get_berth"):
        ask(session(Answers("prose", "prose")), ("get_berth", LYME))


def test_arguments_that_break_the_schema_are_refused_without_asking_the_model() -> None:
    client = Answers()
    seen = ask(session(client), ("get_berth", {}), ("get_berth", {"port": 3}))
    assert seen[0] == Observation("missing parameter: port", True, "emulator")
    assert seen[1].is_error
    assert seen[1].content.startswith("invalid parameter port")
    assert client.requests == []


def test_an_error_of_the_server_is_an_error_without_a_fault() -> None:
    seen = ask(session(Answers('{"error": "port closed on Sundays"}')), ("assign_berth", LYME))
    assert seen == [Observation("port closed on Sundays", True, "emulator")]


def test_a_failed_call_is_recorded_as_its_kind_and_changes_no_state() -> None:
    client = Answers()
    world = session(client, fault_rate=1.0)
    seen = ask(world, ("assign_berth", LYME))[0]
    assert seen.fault in FAULTS
    assert seen.content == FAULTS[str(seen.fault)]
    assert client.requests == []
    assert world._history == []


def test_failures_are_drawn_per_call_at_the_given_rate_and_in_all_kinds() -> None:
    drawn = [drawn_fault(f"17:task-{n}:0", 0, 0.2) for n in range(2000)]
    assert drawn == [drawn_fault(f"17:task-{n}:0", 0, 0.2) for n in range(2000)]
    share = sum(one is not None for one in drawn) / 2000
    assert 0.17 < share < 0.23
    assert set(Counter(one for one in drawn if one)) == set(FAULTS)


def test_only_a_reading_verb_in_front_makes_a_tool_reading() -> None:
    assert reads_only("getBerth")
    assert reads_only("search_routes")
    assert not reads_only("assign_berth")
    assert not reads_only("budget_get")
