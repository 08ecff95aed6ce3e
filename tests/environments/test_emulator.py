"""The emulator: one world per session, checked arguments and results, failures from a plan drawn before it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import re
from collections import Counter
from typing import NamedTuple

import pytest

from astra.environments import Observation
from astra.environments.emulator import Emulator, EmulatorContradiction, EmulatorReplyInvalid
from astra.environments.faults import FAULTS, PLANNED, TRANSPORT, Fault, FaultPlan, broken_off, out_of_date
from astra.llm import builtin_client
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, Server, Source, ToolCall, ToolSpec, Usage
from tests.environments.ledger import TRACKER, Ledger

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


def session(client: Answers, *faults: Fault | None, reasks: int = 1, server: Server = SERVER) -> Emulator:
    """An emulator whose calls fail as planned here."""
    world = Emulator(server, server.tools, client, MODEL, seed=17, key="17:task-1:0", fault_rate=0.0, reasks=reasks)
    world.plan = FaultPlan(faults)
    return world


def ask(world: Emulator, *calls: tuple[str, dict[str, object]]) -> list[Observation]:
    async def run() -> list[Observation]:
        made = [ToolCall(id="c", function=FunctionCall(name=n, arguments=json.dumps(a))) for n, a in calls]
        return [await world.call(one) for one in made]

    return asyncio.run(run())


def shown(request: Request) -> dict[str, object]:
    prompt = request.messages[0].content or ""
    return json.loads(prompt.split("```json\n")[1].split("\n```")[0])


LYME = {"port": "Lyme"}
BERTH_4, BERTH_7 = '{"result": {"berth": 4}}', '{"result": {"berth": 7}}'


# ---------------------------------------------------------------- one world


def test_a_repeated_reading_returns_what_it_returned_without_asking_the_model() -> None:
    client = Answers(BERTH_4)
    first, second = ask(session(client), ("get_berth", LYME), ("get_berth", LYME))
    assert first == second == Observation('{"berth": 4}', False, "emulator")
    assert len(client.requests) == 1


def test_a_reading_after_a_writing_goes_to_the_model_with_the_whole_history() -> None:
    client = Answers(BERTH_4, BERTH_7, BERTH_7)
    ask(session(client), ("get_berth", LYME), ("assign_berth", LYME), ("get_berth", LYME))
    history = shown(client.requests[-1])["history"]
    assert [(one["tool"], one["result"]) for one in history] == [
        ("get_berth", {"berth": 4}),
        ("assign_berth", {"berth": 7}),
    ]


LEAK = {"id": "I-1", "title": "Leak", "status": "open", "priority": 2}
CREATE = ("create_issue", {"title": "Leak", "priority": 2})
GET, DELETE = ("get_issue", {"issue_id": "I-1"}), ("delete_issue", {"issue_id": "I-1"})
CLOSE = ("update_issue", {"issue_id": "I-1", "status": "closed"})


def result(value: object) -> str:
    return json.dumps({"result": value})


def test_the_model_is_shown_the_state_that_its_answer_must_agree_with() -> None:
    client = Answers(result(LEAK), result(LEAK))
    ask(session(client, server=TRACKER), CREATE, GET)
    assert shown(client.requests[1])["state"] == {
        "things": [{"kind": "issue", "id": "I-1", "values": {"title": "Leak", "priority": 2, "status": "open"}}],
        "gone": [],
    }
    assert shown(client.requests[0])["state"] == {"things": [], "gone": []}


def test_an_answer_that_contradicts_the_session_is_asked_again_with_what_it_contradicts() -> None:
    client = Answers(result(LEAK), result({**LEAK, "title": "Flood"}), result(LEAK))
    seen = ask(session(client, server=TRACKER), CREATE, GET)
    assert json.loads(seen[1].content) == LEAK
    complaint = client.requests[2].messages[-1].content or ""
    assert "contradicts" in complaint
    assert "title of issue i-1 is 'Leak', written in call 1" in complaint


def test_a_conversation_whose_answers_stay_contradictory_ends() -> None:
    lie = result({**LEAK, "title": "Flood"})
    with pytest.raises(EmulatorContradiction, match=r"tracker\.get_issue: 2 replies.*'Flood'"):
        ask(session(Answers(result(LEAK), lie, lie), server=TRACKER), CREATE, GET)


def test_what_was_deleted_is_not_found_without_asking_the_model() -> None:
    client = Answers(result(LEAK), result({"issue_id": "I-1"}))
    seen = ask(session(client, server=TRACKER), CREATE, DELETE, GET)
    assert seen[-1] == Observation("not found: I-1", True, "emulator")
    assert len(client.requests) == 2


def test_what_a_live_tool_answered_is_part_of_the_world() -> None:
    world = session(Answers(result([{**LEAK, "title": "Flood"}]), result([LEAK])), server=TRACKER)
    call = ToolCall(id="c", function=FunctionCall(name="get_issue", arguments=json.dumps(GET[1])))
    world.note(call, Observation(json.dumps(LEAK), False, "live"))
    assert json.loads(ask(world, ("search_issues", {"reporter": "Ana"}))[0].content) == [LEAK]


# ---------------------------------------------------------------- replies and arguments


@pytest.mark.parametrize("bad", ["It is berth 4.", '{"result": {"berth": "four"}}', '{"berth": 4}', '{"error": ""}'])
def test_an_unusable_reply_is_asked_again_with_what_is_wrong(bad: str) -> None:
    client = Answers(bad, BERTH_4)
    assert ask(session(client), ("get_berth", LYME))[0].content == '{"berth": 4}'
    assert "cannot be used" in (client.requests[1].messages[-1].content or "")
    assert client.requests[1].messages != client.requests[0].messages


def test_replies_that_stay_unusable_end_the_conversation_not_the_stage() -> None:
    with pytest.raises(EmulatorReplyInvalid, match=r"harbour\.get_berth") as ended:
        ask(session(Answers("prose", "prose")), ("get_berth", LYME))
    assert not isinstance(ended.value, EmulatorContradiction)


def test_arguments_that_break_the_schema_are_refused_before_any_tool_runs_or_fails() -> None:
    client = Answers(BERTH_4)
    world = session(client, Fault("timeout", "timeout"))
    seen = ask(world, ("get_berth", {}), ("get_berth", {"port": 3}), ("get_berth", LYME), ("get_berth", LYME))
    assert seen[0] == Observation("missing parameter: port", True, "agent")
    assert seen[1] == Observation("invalid parameter port: 3 is not of type 'string'", True, "agent")
    assert [one.fault for one in seen] == [None, None, "timeout", None]
    assert len(client.requests) == 1


def test_an_error_of_the_server_is_an_error_without_a_fault() -> None:
    seen = ask(session(Answers('{"error": "port closed on Sundays"}')), ("assign_berth", LYME))
    assert seen == [Observation("port closed on Sundays", True, "emulator")]


# ---------------------------------------------------------------- failures of the network


@pytest.mark.parametrize("kind", TRANSPORT)
def test_a_failed_call_is_recorded_as_its_kind_and_changes_no_state(kind: str) -> None:
    client = Answers(BERTH_7)
    world = session(client, Fault(kind, "timeout"))
    seen = ask(world, ("assign_berth", LYME), ("assign_berth", LYME))
    assert seen == [
        Observation(TRANSPORT[kind], True, "emulator", kind),
        Observation('{"berth": 7}', False, "emulator"),
    ]
    assert shown(client.requests[0])["history"] == []


def test_a_partial_answer_is_an_error_that_shows_what_came_and_the_whole_one_is_what_stays() -> None:
    client = Answers(BERTH_4)
    seen = ask(session(client, Fault("partial", "timeout")), ("get_berth", LYME), ("get_berth", LYME))
    assert seen[0] == Observation(broken_off('{"berth": 4}'), True, "emulator", "partial")
    assert seen[0].content.endswith('Received: {"bert')
    assert seen[1] == Observation('{"berth": 4}', False, "emulator")
    assert len(client.requests) == 1


def test_a_stale_answer_is_what_was_true_before_the_last_change_and_the_history_holds_the_truth() -> None:
    closed = {**LEAK, "status": "closed"}
    client = Answers(result(LEAK), result(closed), result(closed), result([closed]))
    world = session(client, None, None, Fault("stale", "timeout", 45), server=TRACKER)
    seen = ask(world, CREATE, CLOSE, GET, GET, ("search_issues", {"reporter": "Ana"}))
    assert seen[2] == Observation(out_of_date(json.dumps(LEAK), 45), False, "emulator", "stale")
    assert json.loads(seen[3].content) == closed
    assert [one["result"] for one in shown(client.requests[-1])["history"]] == [LEAK, closed, closed, closed]


def test_a_stale_answer_of_what_nothing_changed_says_how_old_it_is_and_reads_the_same_anew() -> None:
    client = Answers(BERTH_4)
    seen = ask(session(client, Fault("stale", "timeout", 20)), ("get_berth", LYME), ("get_berth", LYME))
    assert seen[0].content == (
        'Stale response: a cached copy, 20 minutes old, not checked since. Received: {"berth": 4}'
    )
    assert [one.fault for one in seen] == ["stale", None]
    assert seen[1].content == '{"berth": 4}'


def test_a_call_that_cannot_be_partial_or_stale_fails_as_the_plan_holds_for_it() -> None:
    client = Answers('{"error": "no such berth"}', '{"error": "no such berth"}', BERTH_4)
    world = session(client, Fault("partial", "rate_limit"), Fault("stale", "unreachable"), Fault("stale", "timeout"))
    seen = ask(world, ("assign_berth", LYME), ("get_berth", LYME), ("assign_berth", LYME), ("get_berth", LYME))
    assert [one.fault for one in seen[:3]] == ["rate_limit", "unreachable", "timeout"]


def test_a_plan_is_drawn_before_the_conversation_and_is_the_same_for_the_same_key() -> None:
    plans = [FaultPlan.drawn(f"17:task-{n}:0:server-1", 0.2) for n in range(40)]
    assert plans == [FaultPlan.drawn(f"17:task-{n}:0:server-1", 0.2) for n in range(40)]
    assert len(set(plans)) == 40
    world = Emulator(SERVER, TOOLS, Answers(), MODEL, seed=1, key="17:task-3:0", fault_rate=0.2, reasks=0)
    assert world.plan == plans[3]
    assert world.plan.at(PLANNED) is None


def test_planned_failures_have_the_given_share_and_all_kinds() -> None:
    planned = [one for n in range(200) for one in FaultPlan.drawn(f"17:task-{n}:0:s", 0.2).faults]
    assert within_chance(sum(one is not None for one in planned), len(planned), 0.2)
    assert set(Counter(one.kind for one in planned if one)) == set(FAULTS)
    assert {one.otherwise for one in planned if one} == set(TRANSPORT)
    assert FaultPlan.drawn("k", 0.0).faults == (None,) * PLANNED
    assert None not in FaultPlan.drawn("k", 1.0).faults


def within_chance(n_faults: int, n_calls: int, rate: float) -> bool:
    """Whether a share lies in the 99.9 % interval of a binomial at the rate."""
    return abs(n_faults / n_calls - rate) <= 3.29 * (rate * (1 - rate) / n_calls) ** 0.5


# ---------------------------------------------------------------- many conversations, and a second opinion


class Played(NamedTuple):
    wrong: list[str]
    faults: list[str | None]
    contents: list[str]


class Lies:
    """The built-in emulator, which in one of its answers puts a wrong value or leaves an item out."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.honest = builtin_client()

    async def ask(self, request: Request) -> Completion:
        reply = await self.honest.ask(request)
        said = json.loads(reply.content or "")
        if "result" not in said or self.draw.random() < 0.7:
            return reply
        items = said["result"] if isinstance(said["result"], list) else said["result"].get("issues", [said["result"]])
        if items and isinstance(items[0], dict):
            name = self.draw.choice(sorted(items[0]))
            other = {"status": "blocked", "priority": 1 + items[0].get("priority", 1) % 5}
            items[0][name] = other.get(name, f"{items[0][name]}7")
        return dataclasses.replace(reply, content=json.dumps(said))


def play(n: int, n_calls: int = 14, rate: float = 0.2, client: Lies | None = None) -> Played:
    """A conversation of arbitrary calls with the built-in emulator, read by a ledger."""
    draw, ledger = random.Random(f"calls:{n}"), Ledger()
    asked = client or builtin_client()
    world = Emulator(TRACKER, TRACKER.tools, asked, MODEL, seed=1, key=f"1:task-{n}:0", fault_rate=rate, reasks=0)
    seen: list[Observation] = []
    for _ in range(n_calls):
        tool, arguments = arbitrary_call(draw, ledger)
        seen += ask(world, (tool, arguments))
        ledger.read(tool, arguments, seen[-1])
    return Played(ledger.wrong, [one.fault for one in seen], [one.content for one in seen])


def arbitrary_call(draw: random.Random, ledger: Ledger) -> tuple[str, dict[str, object]]:
    tool = draw.choice(TRACKER.tools).name
    met = sorted(ledger.issues)
    issue = draw.choice(met) if met and draw.random() < 0.85 else f"ISSU-{draw.randint(1, 9999)}"
    comment = draw.choice(sorted(ledger.comments) or ["COMM-1"])
    change = draw.choice(({"title": draw.choice(("Burst", "Halt"))}, {"status": "closed"}, {"status": "blocked"},
                          {"priority": draw.randint(1, 5)}))  # fmt: skip
    given: dict[str, dict[str, object]] = {
        "create_issue": {"title": draw.choice(("Leak", "Crash")), "priority": draw.randint(1, 5)},
        "update_issue": {"issue_id": issue, **change},
        "list_issues": {},
        "search_issues": {"reporter": draw.choice(("Ana", "Bo"))},
        "add_comment": {"issue_id": issue, "body": draw.choice(("Seen", "Agreed"))},
        "get_comment": {"comment_id": comment},
    }
    return tool, given.get(tool, {"issue_id": issue})


def check_conversations(n: int) -> None:
    played = [play(one) for one in range(n)]
    assert [one.wrong for one in played if one.wrong] == []
    faults = Counter(fault for one in played for fault in one.faults)
    assert within_chance(faults.total() - faults[None], faults.total(), 0.2)


def test_the_built_in_emulator_never_contradicts_itself() -> None:
    check_conversations(100)


@pytest.mark.slow
def test_a_thousand_conversations_of_the_built_in_emulator_hold_no_contradiction() -> None:
    check_conversations(1000)


WHOLE, TEXT = {"type": "integer"}, {"type": "string"}


def of(**properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties)}


CUSTOMER = of(id=WHOLE, name=TEXT, email=TEXT)
ORDER = of(
    orderId=WHOLE, status={"enum": ["open", "cancelled"]}, customer=CUSTOMER, tags={"type": "array", "items": TEXT},
    lines={"type": "array", "items": of(sku=TEXT, quantity=WHOLE)},
)  # fmt: skip
SHAPES: dict[str, tuple[dict[str, object], dict[str, object] | None]] = {  # parameters, result
    "createOrder": (of(customerId=WHOLE, tags={"type": "array", "items": TEXT}), ORDER),
    "getOrder": (of(orderId=WHOLE), ORDER),
    "cancelOrder": (of(orderId=WHOLE), of(orderId=WHOLE)),
    "listOrders": (of(), of(orders={"type": "array", "items": ORDER}, count=WHOLE)),
    "createCustomer": (of(name=TEXT), of(ok={"type": "boolean"}, customer=CUSTOMER)),
    "getCustomer": (of(customerId=WHOLE), of(data=CUSTOMER)),
    "listCustomers": (of(), of(results={"type": "array", "items": CUSTOMER})),
    "deleteCustomer": (of(customerId=WHOLE), of(ok={"type": "boolean"})),
    "create_note": (of(title=TEXT), None),
    "get_note": (of(note_id=TEXT), None),
    "update_note": (of(note_id=TEXT, title=TEXT), None),
}
SHOP = TRACKER.model_copy(
    update={
        "tools": tuple(
            ToolSpec(name=name, description=name, parameters=parameters, returns=returns)
            for name, (parameters, returns) in SHAPES.items()
        )
    }
)


def shop(n: int) -> list[str]:
    """Arbitrary calls, mostly of what earlier answers named; a contradiction would end it."""
    draw, met = random.Random(f"shop:{n}"), {"customerId": [3], "orderId": [3], "note_id": ["N-1"]}
    world = Emulator(SHOP, SHOP.tools, builtin_client(), MODEL, seed=1, key=f"1:{n}:0", fault_rate=0.1, reasks=0)
    told = []
    for _ in range(12):
        tool = draw.choice(SHOP.tools)
        given = {"name": "Ana", "title": draw.choice(("Tides", "Bread")), "tags": ["late", "gift"]}
        arguments = {one: draw.choice(met[one]) if one in met else given[one] for one in tool.parameters["properties"]}
        (seen,) = ask(world, (tool.name, arguments))
        told.append(seen.content)
        if not seen.is_error:
            for name, value in re.findall(r'"(orderId|note_id|id)": ("[^"]+"|\d+)', seen.content):
                for known in (name,) if name != "id" else ("customerId", "note_id"):
                    wanted = str if known == "note_id" else int
                    met[known] += [json.loads(value)] if isinstance(json.loads(value), wanted) else []
    return told


def test_nested_undocumented_and_numbered_things_make_one_world_too() -> None:
    told = [shop(n) for n in range(60)]
    assert sum(map(len, told)) == 720
    assert sum(one.startswith("not found") for contents in told for one in contents) > 5


def test_the_same_seed_gives_the_same_conversation_with_the_same_faults() -> None:
    assert [play(n) for n in range(5)] == [play(n) for n in range(5)]


def test_lies_that_the_second_opinion_sees_are_caught_before_the_client_hears_them() -> None:
    caught = missed = 0
    for n in range(150):
        try:
            missed += bool(play(n, rate=0.0, client=Lies(random.Random(n))).wrong)
        except EmulatorContradiction:
            caught += 1
    assert caught > 100
    assert missed <= 0.03 * caught  # the ledger knows that an update of one property leaves the others alone


def test_the_second_opinion_finds_lies() -> None:
    lies = {
        "get_issue": ({"issue_id": "I-1"}, {**LEAK, "title": "Flood"}),
        "list_issues": ({}, {"issues": [], "total": 0}),
        "create_issue": ({"title": "Crash", "priority": 1}, {**LEAK, "title": "Crash", "priority": 1}),
        "search_issues": ({"reporter": "Ana"}, [{**LEAK, "reporter": "Bo"}]),
        "update_issue": ({"issue_id": "I-1", "priority": 3}, LEAK),
    }
    for tool, (arguments, answer) in lies.items():
        ledger = Ledger()
        ledger.read(*CREATE, Observation(json.dumps(LEAK), False, "emulator"))
        ledger.read(tool, arguments, Observation(json.dumps(answer), False, "emulator"))
        assert ledger.wrong, tool
