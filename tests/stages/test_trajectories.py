"""trajectories as a script: every attempt is a conversation or a reject, real where it can be, twice the same bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml

from astra.live import LiveConfigInvalid
from astra.llm import Completion, EndpointUnavailable, Request, RequestRefused
from astra.records import Server, Source, Task, ToolSpec, Trajectory
from astra.stage import StageError, read_records, write_records
from stages.trajectories import (
    CONTRACT,
    Figures,
    Params,
    check_refusals,
    known_servers,
    live_servers,
    main,
    offered_tools,
)
from tests.llm.clients import client_of, settings

LLM = {"llm": settings().model_dump()}
PARAMS = {
    "attempts": 2, "max_turns": 12, "max_tools": 4, "withhold_rate": 0.0, "fault_rate": 0.3, "emulator_reasks": 1,
    "concurrency": 4, "start_timeout_s": 60, "call_timeout_s": 20,
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


def task(name: str, server: Server, question: str, *tools: str) -> Task:
    return Task(
        id=f"task-{name}", server_ids=(server.id,), chain_id=None, question=question, target_tools=tools,
        origin="server", augmentation="none", quality={},
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
    params = {"seed": 3, "models": {"policy": MODEL, "emulator": MODEL}, "trajectories": PARAMS, **LLM}
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
    assert [(one.task_id, one.attempt) for one in made] == [(one.id, n) for one in TASKS for n in range(2)]
    assert len({one.id for one in made}) == len(made)
    metrics = json.loads(Path(CONTRACT.metrics).read_text())
    assert metrics["in"] == metrics["out"] == 16
    assert metrics["live_calls"] >= 6
    assert metrics["tool_calls"] == metrics["live_calls"] + metrics["emulated_calls"]


def test_two_runs_write_the_same_bytes_whatever_the_concurrency(workspace):
    main()
    first = [Path(path).read_bytes() for path in (CONTRACT.writes["trajectories"], CONTRACT.rejects, CONTRACT.metrics)]
    set_params(workspace, concurrency=1)
    main()
    assert first == [
        Path(path).read_bytes() for path in (CONTRACT.writes["trajectories"], CONTRACT.rejects, CONTRACT.metrics)
    ]


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
