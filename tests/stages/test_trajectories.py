"""trajectories as a script: every attempt is a conversation or a reject, real where it can be, twice the same bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from astra.conversations import Figures, check_refusals, without_repetitions
from astra.environments.faults import FAULTS
from astra.live import LiveConfigInvalid
from astra.llm import Completion, EndpointUnavailable, Request, RequestRefused
from astra.records import Message, Reject, Server, Source, Task, ToolSpec, Trajectory, Usage, UserTurn
from astra.stage import StageError, read_records, write_records
from stages.trajectories import (
    CONTRACT,
    Params,
    known_servers,
    live_servers,
    main,
    offered_tools,
    system_prompt,
)
from tests.llm.clients import client_of, settings

LLM = {"llm": settings().model_dump()}
PARAMS = {
    "attempts": 2, "max_turns": 12, "max_conversation_tokens": 20000, "max_tools": 4, "withhold_rate": 0.0,
    "together_rate": 0.0, "user": "script", "user_reasks": 1, "live": "live", "fault_rate": 0.3, "emulator_reasks": 1, "concurrency": 4,
    "start_timeout_s": 60, "call_timeout_s": 20, "max_lost": 0.5,
}  # fmt: skip
MODEL = {"transport": "builtin", "name": "astra-rules-1", "temperature": 0.7, "max_tokens": 4096}
RIVERS = """tables:
  river:
    source: csv
    options: {file: rivers.csv}
    key: name
    relations:
      river_mouth: {column: mouth, label: mouth, kind: text}
      river_length: {column: length, label: length, kind: number, unit: km}
"""


def tool(name: str, description: str, returns: dict | None = None, **parameters: str) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {one: {"type": kind} for one, kind in parameters.items()},
        "required": list(parameters),
    }
    return ToolSpec(name=name, description=description, parameters=schema, returns=returns)


def result(**properties: str) -> dict:
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": kinds, "required": list(properties)}


FERRIES = Server(
    id="server-ferries", name="ferries", title="Ferries", description="Sailings.", domain="transport",
    tools=(
        tool("find_port", "Find the code of the port of a town.", result(port_code="string"), town="string"),
        tool("list_sailings", "List the sailings from a port.", result(sailing_id="string"), port_code="string"),
        tool("book_sailing", "Book places on a sailing.", result(booking_ref="string"), sailing_id="string"),
        *(tool(f"spare_{n}", f"Check spare part {n} of a ship.", result(left="integer"), ship="string") for n in range(6)),
    ),
    source=Source(format="mcp", uri="data/raw/tools/ferries.mcp.json", revision="1", licence="MIT"),
)  # fmt: skip
KNOWLEDGE = Server(
    id="server-rivers", name="rivers", title="Rivers", description="Rivers.", domain="geography",
    tools=(
        tool("river_mouth", "Mouth of a river.", result(result="string"), river="string"),
        tool("river_length", "Length of a river.", result(result="number"), river="string"),
    ),
    source=Source(format="mcp_live", uri="data/raw/tools/live.mcp.json#rivers", revision="1", licence="MIT"),
)  # fmt: skip


def task(name: str, server: Server, question: str, *tools: str, **more: Any) -> Task:
    return Task(
        id=f"task-{name}", server_ids=(server.id,), chain_id=None, question=question, target_tools=tools,
        origin="server", augmentation="none", quality={}, **more,
    )  # fmt: skip


BOOKING = (
    'Please find the code of the port of a town with town "Lyme", then use that result to list the sailings from a port, '
    "then use that result to book places on a sailing."
)
TASKS = [
    *(task(f"ferry-{n}", FERRIES, BOOKING.replace("Lyme", f"Lyme {n}"), "find_port", "list_sailings", "book_sailing")
      for n in range(6)),
    task("mouth", KNOWLEDGE, "What is the mouth of river Axe?", "river_mouth"),
    task("length", KNOWLEDGE, "For river Axe, find the length. Also for river Exe, find the mouth.", "river_mouth", "river_length"),
]  # fmt: skip


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = {"policy": MODEL, "emulator": MODEL, "user": MODEL}
    params = {"seed": 3, "models": models, "trajectories": PARAMS, **LLM}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    folder = tmp_path / "data/raw/tools"
    folder.mkdir(parents=True)
    (tmp_path / "rivers.csv").write_text("name,mouth,length\nAxe,Seaton,35\nExe,Exmouth,96\n")
    (tmp_path / "rivers.yaml").write_text(RIVERS)
    entry = {"command": "python", "args": ["-m", "astra.knowledge_server", "rivers.yaml"]}
    (folder / "live.mcp.json").write_text(json.dumps({"mcpServers": {"rivers": entry}}))
    (folder / "live.notes.yaml").write_text("rivers: {deterministic_tools: all}\n")
    write_records(CONTRACT.reads["servers"], [FERRIES, KNOWLEDGE])
    write_records(CONTRACT.reads["tasks"], TASKS)
    return tmp_path


def written() -> list[Trajectory]:
    return list(read_records(CONTRACT.writes["trajectories"], Trajectory))


def set_params(folder: Path, **changes: object) -> None:
    tree = yaml.safe_load((folder / "params.yaml").read_text())
    tree["trajectories"].update(changes)
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))


def test_every_attempt_is_a_conversation_in_the_order_of_the_tasks(workspace):
    main()
    made = written()
    repeated = {one.id for one in read_records(CONTRACT.rejects, Reject)}
    every = [(one.id, n) for one in TASKS for n in range(2)]
    assert [(one.task_id, one.attempt) for one in made] == [
        one for one in every if f"{one[0]}:{one[1]}" not in repeated
    ]
    assert len({one.id for one in made}) == len(made)
    metrics = json.loads(Path(CONTRACT.metrics).read_text())
    assert metrics["in"] == 16 == metrics["out"] + len(repeated)
    assert metrics["live_calls"] >= 6
    assert set(metrics["fault_shares"]) == set(FAULTS)
    assert sum(metrics["fault_shares"].values()) == pytest.approx(metrics["fault_share"], abs=1e-3)
    assert metrics["tool_calls"] == metrics["live_calls"] + metrics["emulated_calls"]


def test_two_runs_write_the_same_bytes_whatever_the_concurrency(workspace):
    main()
    first = [Path(path).read_bytes() for path in (CONTRACT.writes["trajectories"], CONTRACT.rejects, CONTRACT.metrics)]
    set_params(workspace, concurrency=1)
    main()
    assert first == [
        Path(path).read_bytes() for path in (CONTRACT.writes["trajectories"], CONTRACT.rejects, CONTRACT.metrics)
    ]


def test_an_attempt_that_goes_the_same_way_as_one_before_is_a_reject_and_is_not_trained_on_twice():
    def attempt(n: int, system: str, says: str, task_id: str = "task-1") -> Trajectory:
        messages = tuple(Message(role=role, content=text) for role, text in (("system", system), ("assistant", says)))
        return Trajectory(
            id=f"trajectory-{task_id}-{n}", task_id=task_id, server_ids=("s",), attempt=n, tools=(), messages=messages,
            stop="answered", model="m", usage=Usage(calls=1, prompt_tokens=0, completion_tokens=0),
        )  # fmt: skip

    held = [attempt(0, "a", "x"), attempt(1, "b", "x"), attempt(2, "a", "y"), attempt(0, "a", "x", "task-2")]
    made = list(without_repetitions(held))
    assert made == [
        held[0], Reject(id="task-1:1", reason="same_as_attempt", detail="attempt 0 went the same way"), *held[2:],
    ]  # fmt: skip


def test_live_tools_are_called_for_real_and_others_emulated_with_recorded_failures(workspace):
    main()
    made = {(one.task_id, one.attempt): one for one in written()}
    rivers = made["task-length", 0]
    assert rivers.messages[-1].content == "The answer is 35 and Exmouth."
    assert {m.executed_by for m in rivers.messages if m.role == "tool"} == {"live"}
    ferries = [m for one in made.values() if "ferry" in one.task_id for m in one.messages if m.role == "tool"]
    assert {m.executed_by for m in ferries} == {"emulator"}
    assert any(m.fault and m.is_error for m in ferries)


def test_a_conversation_that_gives_up_is_kept_with_its_honest_end(workspace):
    set_params(workspace, fault_rate=1.0)
    main()
    end = next(one for one in written() if one.task_id == "task-ferry-0")
    assert end.stop == "answered"
    assert (end.messages[-1].content or "").startswith("I could not")


def test_a_trajectory_carries_the_tools_that_were_offered(workspace):
    main()
    for one in written():
        names = {tool.name for tool in one.tools}
        assert len(names) <= PARAMS["max_tools"]
        assert {call.function.name for m in one.messages for call in m.tool_calls} <= names


def test_a_live_server_that_does_not_start_stops_the_stage_with_3(workspace, capsys):
    broken = {"command": "python", "args": ["-c", "raise SystemExit('RIVERS_KEY not set')"]}
    (workspace / "data/raw/tools/live.mcp.json").write_text(json.dumps({"mcpServers": {"rivers": broken}}))
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 3
    assert "RIVERS_KEY not set" in capsys.readouterr().err


def test_a_live_server_that_dies_in_the_middle_costs_its_own_conversations_with_the_reason_and_no_other(workspace):
    fake = {"command": "python", "args": [str(Path(__file__).parents[1] / "fake_mcp_server.py"), "dead_on_call"]}
    (workspace / "data/raw/tools/live.mcp.json").write_text(json.dumps({"mcpServers": {"rivers": fake}}))
    main()
    rejects = list(read_records(CONTRACT.rejects, Reject))
    assert [one.id for one in rejects] == ["task-mouth:0", "task-mouth:1", "task-length:0", "task-length:1"]
    assert {one.reason for one in rejects} == {"tool_infra_error"}
    assert all("MCP server rivers died with exit code 9" in one.detail for one in rejects)
    assert [one.task_id for one in written()] == [f"task-ferry-{n}" for n in range(6) for _ in range(2)]


def test_too_many_conversations_lost_to_live_servers_stop_the_stage_and_name_the_limit(workspace, capsys):
    fake = {"command": "python", "args": [str(Path(__file__).parents[1] / "fake_mcp_server.py"), "dead_on_call"]}
    (workspace / "data/raw/tools/live.mcp.json").write_text(json.dumps({"mcpServers": {"rivers": fake}}))
    set_params(workspace, max_lost=0.1)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 3
    said = capsys.readouterr().err
    assert "4 of 16 conversations were lost to live servers, more than trajectories.max_lost 0.1" in said
    assert "dvc repro trajectories" in said
    assert not Path(CONTRACT.writes["trajectories"]).exists()


def test_a_task_of_an_unknown_server_names_the_remedy():
    with pytest.raises(StageError, match="dvc repro tasks"):
        known_servers(TASKS, [FERRIES])


def test_a_live_server_that_left_the_configuration_names_the_remedy(workspace):
    (workspace / "data/raw/tools/live.mcp.json").write_text('{"mcpServers": {}}')
    with pytest.raises(LiveConfigInvalid, match="dvc repro normalize"):
        live_servers([KNOWLEDGE])


def test_the_tasks_tools_are_always_offered_among_others_in_seeded_order():
    params = Params(**PARAMS)
    offers = [offered_tools(TASKS[0], [FERRIES], params, random.Random(seed)) for seed in range(30)]
    assert all(set(TASKS[0].target_tools) <= {one.name for one in offer} and len(offer) == 4 for offer in offers)
    assert len({tuple(one.name for one in offer) for offer in offers}) > 10


def test_a_withheld_tool_is_one_that_the_task_needs():
    params = Params(**{**PARAMS, "withhold_rate": 1.0})
    for seed in range(10):
        names = {one.name for one in offered_tools(TASKS[0], [FERRIES], params, random.Random(seed))}
        assert len(set(TASKS[0].target_tools) - names) == 1


class Refuses:
    """A transport whose model will not."""

    async def send(self, request: Request) -> Completion:
        raise RequestRefused("filtered", "no")


def test_a_model_that_refuses_most_conversations_is_a_failure_of_the_machinery():
    client = client_of(Refuses())
    client.meter.refused["filtered"] = 6
    check_refusals(client, 12)
    client.meter.refused["filtered"] = 7
    with pytest.raises(EndpointUnavailable, match="filtered 7"):
        check_refusals(client, 12)


def test_no_conversations_have_figures_too():
    assert Figures().metrics()["messages_per_conversation"] == 0.0


# ---------------------------------------------------------------- unusual kinds, end to end

STEPS = ("find_port", "list_sailings", "book_sailing")
MISSING_TOOL = task("no-tool", FERRIES, BOOKING, *STEPS, kind="missing_tool", missing=("book_sailing",))
LATER_TOOL = task(
    "later", FERRIES, BOOKING, *STEPS, kind="later_tool", missing=("book_sailing",),
    turns=(UserTurn(says="A tool for that was just added. Go on with it.", brings=("book_sailing",)),),
)  # fmt: skip
MISSING_VALUE = task(
    "no-value", FERRIES, "Please find the code of the port of a town.", "find_port", kind="missing_value",
    missing=("find_port.town",), turns=(UserTurn(says='Here it is: town "Lyme".', gives="Lyme"),),
)  # fmt: skip
SEVERAL_TURNS = task(
    "turns", FERRIES, 'Please find the code of the port of a town with town "Lyme".', *STEPS, kind="several_turns",
    turns=(
        UserTurn(says="Thanks. Now use that result to list the sailings from a port.", target_tools=("list_sailings",)),
        UserTurn(says="Good. From what you found, book places on a sailing.", target_tools=("book_sailing",)),
    ),
)  # fmt: skip
UNUSUAL = (MISSING_TOOL, LATER_TOOL, MISSING_VALUE, SEVERAL_TURNS)


@pytest.fixture
def unusual(workspace):
    """The conversations of the unusual tasks, without failures and slips."""
    tree = yaml.safe_load((workspace / "params.yaml").read_text())
    tree["trajectories"] |= {"fault_rate": 0.0, "attempts": 1}
    tree["models"]["policy"]["temperature"] = 0.0
    (workspace / "params.yaml").write_text(yaml.safe_dump(tree))
    write_records(CONTRACT.reads["tasks"], UNUSUAL)
    main()
    return {one.kind: one for one in written()}


def said(one: Trajectory, role: str) -> list[str]:
    return [m.content or "" for m in one.messages if m.role == role and not m.tool_calls]


def called(one: Trajectory) -> list[str]:
    return [call.function.name for m in one.messages for call in m.tool_calls]


def test_every_trajectory_records_its_task_s_kind_and_metrics_count_them(unusual):
    assert set(unusual) == {"missing_tool", "later_tool", "missing_value", "several_turns"}
    metrics = json.loads(Path(CONTRACT.metrics).read_text())
    assert metrics["kinds"] == dict.fromkeys(sorted(unusual), 1)
    assert metrics["user_turns_per_conversation"] == 2.0


def test_a_missing_tool_is_never_offered_and_the_right_end_says_so(unusual):
    one = unusual["missing_tool"]
    assert "book_sailing" not in {tool.name for tool in one.tools}
    assert (one.withheld, one.late) == (("book_sailing",), ())
    assert said(one, "assistant") == ["I could not do this: none of the tools can book places on a sailing."]


def test_a_later_tool_is_offered_from_the_message_that_shows_its_document(unusual):
    one = unusual["later_tool"]
    assert "book_sailing" not in {tool.name for tool in one.tools}
    (late,) = one.late
    assert [tool.name for tool in late.tools] == ["book_sailing"]
    assert one.messages[late.message].role == "user"
    assert '"name": "book_sailing"' in (one.messages[late.message].content or "")
    assert called(one) == list(STEPS)
    assert not one.withheld


def test_a_missing_value_is_asked_for_given_by_the_user_and_used(unusual):
    one = unusual["missing_value"]
    roles = [m.role for m in one.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    assert said(one, "assistant")[0].startswith("Which town")
    assert json.loads(one.messages[4].tool_calls[0].function.arguments) == {"town": "Lyme"}


def test_several_turns_are_each_answered_from_what_was_found(unusual):
    one = unusual["several_turns"]
    assert len(said(one, "user")) == len(said(one, "assistant")) == 3
    assert called(one) == list(STEPS)


def test_the_later_turns_may_be_said_by_a_model_and_the_metrics_count_its_calls(workspace):
    set_params(workspace, user="model")
    write_records(CONTRACT.reads["tasks"], UNUSUAL)
    main()
    metrics = json.loads(Path(CONTRACT.metrics).read_text())
    assert metrics["models"]["user"]["calls"] >= 4
    assert metrics["out"] + metrics["rejects"].get("same_as_attempt", 0) == 8


def test_the_unusual_kinds_repeat_byte_for_byte(workspace):
    write_records(CONTRACT.reads["tasks"], UNUSUAL)
    main()
    first = Path(CONTRACT.writes["trajectories"]).read_bytes()
    set_params(workspace, concurrency=1)
    main()
    assert Path(CONTRACT.writes["trajectories"]).read_bytes() == first


def test_the_system_prompt_follows_the_persona_that_asks():
    prompts = {
        system_prompt(task("p", FERRIES, "Find it.", "find_port", persona="a baker", voice=voice))
        for voice in ("brief", "polite", "casual")
    }
    assert len(prompts) == 3
    assert all("The user is a baker" in one for one in prompts)
    assert system_prompt(TASKS[0]) not in prompts


def test_a_share_of_attempts_wants_calls_that_need_no_other_in_one_turn(workspace):
    for voice in (None, "brief", "polite", "casual"):
        one = task("p", FERRIES, "Find it.", "find_port", persona=voice and "a baker", voice=voice)
        assert "go into one turn" in system_prompt(one, together=True)
        assert "make one call" in system_prompt(one)
    set_params(workspace, together_rate=0.5)
    main()
    prompts = [one.messages[0].content or "" for one in written()]
    assert 0 < sum("go into one turn" in text for text in prompts) < len(prompts)


def test_a_task_over_two_servers_is_answered_by_both(workspace):
    question = 'Please find the code of the port of a town with town "Lyme"; also ring the bell with loudness "3".'
    bell = tool("ring_bell", "Ring the bell.", result(rung="boolean"), loudness="integer")
    clash = tool("spare_0", "Check another spare part 0.", result(left="integer"), ship="string")
    tower = FERRIES.model_copy(update={"id": "server-tower", "name": "tower", "tools": (bell, clash)})
    both = Task(
        id="task-both", server_ids=(FERRIES.id, tower.id), chain_id=None, question=question,
        target_tools=("find_port", "ring_bell"), origin="chain", augmentation="none", quality={},
    )  # fmt: skip
    set_params(workspace, fault_rate=0.0, max_tools=12)
    write_records(CONTRACT.reads["servers"], [FERRIES, tower])
    write_records(CONTRACT.reads["tasks"], [both])
    main()
    one = written()[0]
    assert "spare_0" not in {tool.name for tool in one.tools}
    assert set(called(one)) == {"find_port", "ring_bell"}
    assert not json.loads(Path(CONTRACT.metrics).read_text())["rejected"]


def test_a_recorded_run_is_replayed_byte_for_byte_without_its_servers(workspace):
    set_params(workspace, live="record")
    main()
    recorded = Path(CONTRACT.writes["trajectories"]).read_bytes()
    (workspace / "rivers.csv").unlink()
    set_params(workspace, live="replay")
    main()
    assert Path(CONTRACT.writes["trajectories"]).read_bytes() == recorded
    Path(CONTRACT.reads["recording"]).write_text("")
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 3
