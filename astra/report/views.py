"""What of each kind of record a list shows, and what its page gets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from astra.records import (
    Arena,
    Chain,
    Message,
    Reject,
    Rollout,
    Sample,
    Scorecard,
    Server,
    Task,
    ToolGraph,
    ToolSpec,
    Trajectory,
)
from astra.report.chunks import Column, Entry, Kind, compact, safe_json, shortened
from astra.toolgraph.drawing import placed

NO_FAULT = "none"

GRAPHS = Kind(
    "graph",
    "Tool graphs",
    (
        Column("server", "Server", "text"),
        Column("graph", "Graph", "id"),
        Column("domain", "Domain", "facet"),
        Column("format", "Format", "facet"),
        Column("tools", "Tools", "number"),
        Column("edges", "Edges", "number"),
    ),
)
CHAINS = Kind(
    "chain",
    "Chains",
    (
        Column("walk", "Tools in order", "text"),
        Column("server", "Server", "facet"),
        Column("length", "Length", "number"),
        Column("support", "Support", "number"),
    ),
)
TASKS = Kind(
    "task",
    "Tasks",
    (
        Column("question", "Request", "text"),
        Column("kind", "Kind", "facet"),
        Column("origin", "Origin", "facet"),
        Column("augmentation", "Rewritten", "facet"),
        Column("server", "Server", "facet"),
        Column("tools", "Tools", "number"),
        Column("quality", "Quality", "number"),
    ),
)
TRAJECTORIES = Kind(
    "trajectory",
    "Trajectories",
    (
        Column("question", "Request", "text"),
        Column("task", "Task", "id"),
        Column("kind", "Kind", "facet"),
        Column("faults", "Faults", "tags"),
        Column("server", "Server", "facet"),
        Column("stop", "Ended", "facet"),
        Column("model", "Model", "facet"),
        Column("calls", "Calls", "number"),
        Column("overall", "Score", "number"),
    ),
)
ARENAS = Kind(
    "arena",
    "Arenas",
    (
        Column("question", "Question", "text"),
        Column("shape", "Shape", "facet"),
        Column("split", "Split", "facet"),
        Column("domain", "Domain", "facet"),
        Column("variant", "Variant", "facet"),
        Column("steps", "Steps", "number"),
        Column("tools", "Tools", "number"),
    ),
)
ROLLOUTS = Kind(
    "rollout",
    "Rollouts",
    (
        Column("question", "Question", "text"),
        Column("arena", "Arena", "id"),
        Column("stop", "Ended", "facet"),
        Column("update", "Update", "number"),
        Column("calls", "Calls", "number"),
        Column("reward", "Reward", "number"),
    ),
)
SAMPLES = Kind(
    "sample",
    "Eval samples",
    (
        Column("question", "Question", "text"),
        Column("case", "Case", "id"),
        Column("model", "Model", "facet"),
        Column("benchmark", "Benchmark", "facet"),
        Column("mode", "Mode", "facet"),
        Column("failed", "Failure", "facet"),
        Column("measure", "Measure", "facet"),
        Column("score", "Score", "number"),
    ),
)
REJECTS = Kind(
    "reject",
    "Rejects",
    (
        Column("record", "Record", "id"),
        Column("stage", "Stage", "facet"),
        Column("reason", "Reason", "facet"),
        Column("detail", "Detail", "text"),
    ),
)
KINDS = (GRAPHS, CHAINS, TASKS, TRAJECTORIES, ARENAS, ROLLOUTS, SAMPLES, REJECTS)


def graph(server: Server, one: ToolGraph | None, names: Mapping[str, str]) -> Entry:
    """A server, and its graph where it has one."""
    edges = one.edges if one else ()
    record = compact({**server.model_dump(mode="json", exclude={"tools"}), "graph": one.id if one else None})
    record["edges"] = [{**edge.model_dump(mode="json"), "weight": round(edge.weight, 4)} for edge in edges]
    ends = [(edge.source, _far(edge.target, edge.target_server_id, names)) for edge in edges]
    own = {tool.name for tool in server.tools}
    if ends:
        record["boxes"] = [box._asdict() for box in placed(ends, own).values()]
    row = (server.title or server.name, one.id if one else "", server.domain, server.source.format)
    return Entry(server.id, (*row, len(server.tools), len(edges)), record, _offered(server.tools))


def _far(tool: str, server_id: str | None, names: Mapping[str, str]) -> str:
    return tool if server_id is None else f"{names.get(server_id, server_id)}/{tool}"


def chain(one: Chain, names: Mapping[str, str]) -> Entry:
    row = (" → ".join(one.tools), _servers(one.server_ids, names), len(one.tools), one.support)
    return Entry(one.id, row, one.model_dump(mode="json"))


def task(one: Task, names: Mapping[str, str]) -> Entry:
    scores = [verdict.score for verdict in one.quality.values() if verdict.score is not None]
    quality = round(sum(scores) / len(scores), 4) if scores else None
    servers = _servers(one.server_ids, names)
    row = (shortened(one.question), one.kind, one.origin, one.augmentation, servers, len(one.target_tools), quality)
    return Entry(one.id, row, compact(one.model_dump(mode="json")))


def trajectory(one: Trajectory, card: Scorecard | None, names: Mapping[str, str]) -> Entry:
    """A conversation with its scorecard. Tools that come later follow those offered from the beginning."""
    record = _with_messages(one.model_dump(mode="json", exclude={"tools", "late"}))
    record["n_first"] = len(one.tools)
    record["late"] = [{"message": late.message, "tools": [tool.name for tool in late.tools]} for late in one.late]
    record["card"] = card.model_dump(mode="json", exclude={"trajectory_id"}) if card else None
    faults = sorted({message.fault for message in one.messages if message.fault}) or [NO_FAULT]
    n_calls = sum(len(message.tool_calls) for message in one.messages)
    servers = _servers(one.server_ids, names)
    said = shortened(_asked(one.messages))
    overall = card.overall if card else None
    row = (said, one.task_id, one.kind, faults, servers, one.stop, one.model, n_calls, overall)
    tools = [*one.tools, *(tool for late in one.late for tool in late.tools)]
    return Entry(one.id, row, record, _offered(tools))


def arena(one: Arena) -> Entry:
    variant = one.variant.kind if one.variant else NO_FAULT
    row = (shortened(one.question), one.shape, one.split, one.domain, variant, len(one.steps), len(one.tools))
    return Entry(one.id, row, compact(one.model_dump(mode="json", exclude={"tools"})) | {"code": _code(one)})


def _code(one: Arena) -> list[dict[str, Any]]:
    return [{**_tool(tool.spec), "code": tool.code, "serves": list(tool.serves)} for tool in one.tools]


def rollout(one: Rollout) -> Entry:
    record = _with_messages(one.model_dump(mode="json"))
    row = (shortened(_asked(one.messages)), one.arena_id, one.stop, one.update, one.n_calls, one.reward)
    return Entry(f"{one.arena_id}:{one.update}:{one.sample}", row, record)


def sample(one: Sample) -> Entry:
    """An evaluated case; its list shows the first measure, which is the benchmark's own."""
    record = _with_messages(one.model_dump(mode="json"))
    measure, score = next(iter(one.scores.items()), ("", None))
    failed = "failed" if one.error else NO_FAULT
    asked = shortened(_asked(one.messages))
    row = (asked, one.case, one.model, one.benchmark, one.mode, failed, measure, score)
    return Entry(f"{one.model}:{one.benchmark}:{one.case}:{one.mode}:{one.trial}", row, record)


def reject(one: Reject, stage: str, number: int) -> Entry:
    """A reject; one thing can fail twice, so its place among its stage's makes the id."""
    record = {**one.model_dump(mode="json"), "stage": stage}
    return Entry(f"{stage}:{number}", (one.id, stage, one.reason, shortened(one.detail, 300)), record)


def _with_messages(record: dict[str, Any]) -> dict[str, Any]:
    """A record and its messages without what says nothing."""
    return compact(record) | {"messages": [compact(message) for message in record["messages"]]}


def _asked(messages: Iterable[Message]) -> str | None:
    return next((message.content for message in messages if message.role == "user"), None)


def _servers(ids: Iterable[str], names: Mapping[str, str]) -> str:
    return ", ".join(names.get(one, one) for one in ids)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return compact(spec.model_dump(mode="json"))


def _offered(specs: Iterable[ToolSpec]) -> list[str]:
    return [_offer(spec.model_dump_json()) for spec in specs]


@lru_cache(4096)  # a server's tools are offered in thousands of conversations
def _offer(document: str) -> str:
    return safe_json(compact(json.loads(document)))
