"""Servers and tasks -> data/trajectories/trajectories.jsonl: an agent works on each task (paper section 3.2.3).

Every task is tried ``attempts`` times by the policy model, with the tools it was written for among a seeded handful of
others of the same servers. Calls of live, deterministic tools are made for real; all others go to an emulator with an
explicit session history and seeded failures. What the task lets the user say later is said by its script, or by a model
that keeps to it; tools that come with such a turn are offered from there on. A conversation that the agent could not
finish keeps its honest end and is left to ``score``; one that the machinery or a cut reply broke is a reject.

Departures from the paper: failures are drawn per (seed, task, attempt, call) and recorded on the message; in a small
share of attempts a needed tool is withheld, so that saying "no tool can do this" is in the training data too; the paper
has one user turn. The system prompt follows the persona that asks, and in a share of attempts it wants calls that need
no result of each other in one turn. An attempt in which nothing went another way than before is a reject: it would only
be trained on twice.

    python -m stages.trajectories
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from astra.agent import Asks, Conversation, Limits, ModelPolicy, converse
from astra.conversations import Figures, check_refusals, within_losses, without_repetitions
from astra.environments import Environment
from astra.environments.emulator import Emulator, EmulatorContradiction, EmulatorReplyInvalid
from astra.environments.live import Live, LiveCallFailed, LiveSessions
from astra.environments.recording import CallsLive, Mode, answered_live
from astra.environments.routed import Routed, ToolNameTaken
from astra.live import LiveConfig, LiveConfigInvalid, read_config, read_notes
from astra.llm import ModelParams, Models, RequestRefused, Settings
from astra.prompts import render
from astra.records import Message, Reject, Section, Server, Task, ToolSpec, Trajectory, content_id
from astra.servers import pool
from astra.stage import Contract, Run, StageError
from astra.user import ModelUser, ScriptedUser, UserReplyInvalid


class Params(Section):
    attempts: int = Field(ge=1, description="Conversations per task.")
    max_turns: int = Field(ge=1, description="Assistant turns per conversation (authors' code: 20).")
    max_conversation_tokens: int = Field(
        ge=256, description="Tokens, prompt and reply, at which one ends (paper: 58k)."
    )
    max_tools: int = Field(ge=1, description="Tools offered: the task's and others of its servers, this many.")
    withhold_rate: float = Field(ge=0, le=1, description="Share of plain attempts without one of the needed tools.")
    together_rate: float = Field(
        ge=0, le=1, description="Share of attempts whose system prompt wants calls that need no other in one turn."
    )
    user: Literal["script", "model"] = Field(description="Who says the user's later turns; model asks models.user.")
    user_reasks: int = Field(ge=0, le=5, description="Further tries for an unusable reply of the user's model.")
    fault_rate: float = Field(ge=0, le=1, description="Probability that an emulated call fails (paper: 0.2).")
    emulator_reasks: int = Field(ge=0, le=5, description="Further tries for an emulator reply that breaks the schema.")
    live: Mode = Field(description="live: call; record: call once and keep; replay: only what was kept.")
    concurrency: int = Field(ge=1, description="Conversations, and calls per model, in flight.")
    start_timeout_s: float = Field(gt=0, description="For a live server to answer initialize.")
    call_timeout_s: float = Field(gt=0, description="For one live call.")
    max_lost: float = Field(ge=0, le=1, description="Share lost to live servers above which the stage stops.")


CONTRACT = Contract(
    name="trajectories",
    reads={
        "servers": "data/normalize/servers.jsonl",
        "tasks": "data/tasks/tasks.jsonl",
        "tools": "data/raw/tools",
        "knowledge": "data/raw/knowledge/knowledge.yaml",
        "knowledge_server": "astra/knowledge_server.py",
        "recording": "data/raw/recordings/live.jsonl",
    },
    writes={"trajectories": "data/trajectories/trajectories.jsonl"},
    params={
        "seed": int,
        "trajectories": Params,
        "models.policy": ModelParams,
        "models.emulator": ModelParams,
        "models.user": ModelParams,
    },
    settings={"llm": Settings},
)

KEPT_ENDS = {"answered", "max_turns", "max_tokens"}  # a cut reply, a loop or silence teaches nothing
FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (EmulatorContradiction, "emulator_contradiction"),
    (EmulatorReplyInvalid, "emulator_reply_invalid"),
    (UserReplyInvalid, "user_reply_invalid"),
    (LiveCallFailed, "tool_infra_error"),
    (ToolNameTaken, "tool_name_taken"),
)


class Try(NamedTuple):
    """One conversation to be held."""

    task: Task
    attempt: int

    @property
    def key(self) -> str:
        return f"{self.task.id}:{self.attempt}"


@dataclass(frozen=True)
class LiveServers:
    """Which servers can be called for real, and which of their tools."""

    configs: Mapping[str, LiveConfig]
    tools: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Stage:
    """What all conversations share."""

    params: Params
    seed: int
    servers: Mapping[str, Server]
    live: LiveServers
    calls_live: CallsLive
    policy: ModelPolicy
    emulator: Asks
    emulator_model: ModelParams
    user: Asks | None  # None: the script
    user_model: ModelParams


# ---------------------------------------------------------------- what is offered


def offered_tools(task: Task, servers: Sequence[Server], params: Params, rng: random.Random) -> tuple[ToolSpec, ...]:
    """What is offered at first, in seeded order: the task's tools among others of its servers.

    A tool that a task says is missing is not there; of a plain task's tools one is sometimes withheld.
    """
    every = pool(servers, task.target_tools)
    absent = set(task.missing) if task.kind in ("missing_tool", "later_tool") else set()
    needed = [tool for tool in every if tool.name in task.target_tools and tool.name not in absent]
    others = [tool for tool in every if tool.name not in task.target_tools]
    if len(every) > params.max_tools and (needed or absent):
        others = rng.sample(others, min(len(others), max(0, params.max_tools - len(needed) - len(absent))))
    if task.kind == "plain" and rng.random() < params.withhold_rate and needed and others:
        needed.remove(rng.choice(needed))
    offered = needed + others
    rng.shuffle(offered)
    return tuple(offered)


def late_tools(task: Task, servers: Sequence[Server]) -> dict[str, ToolSpec]:
    """The tools that the user's later turns bring, by name."""
    brought = {name for turn in task.turns for name in turn.brings}
    return {tool.name: tool for tool in pool(servers, task.target_tools) if tool.name in brought}


def live_servers(servers: Iterable[Server]) -> LiveServers:
    """The configurations of live servers that have deterministic tools, and those tools' names.

    Raises LiveConfigInvalid where a configuration has changed since ``normalize``.
    """
    configs: dict[str, LiveConfig] = {}
    tools: dict[str, frozenset[str]] = {}
    for server in servers:
        if server.source.format != "mcp_live":
            continue
        file, _, name = server.source.uri.partition("#")
        notes = read_notes(Path(file)).get(name)
        marked = {one.name for one in server.tools if notes and notes.is_deterministic(one.wire_name or one.name)}
        if not marked:
            continue
        entries = read_config(file)
        if name not in entries:
            raise LiveConfigInvalid(f"{file}: no server {name!r} any more. Run: dvc repro normalize")
        configs[server.id], tools[server.id] = entries[name], frozenset(marked)
    return LiveServers(configs, tools)


# ---------------------------------------------------------------- one conversation


async def hold(one: Try, stage: Stage) -> Trajectory | Reject:
    """One conversation. Raises EnvironmentUnavailable and EndpointUnavailable, which stop the stage."""
    params, task = stage.params, one.task
    servers = [stage.servers[server_id] for server_id in task.server_ids]
    tools = offered_tools(task, servers, params, random.Random(f"{stage.seed}:{one.key}"))
    late = late_tools(task, servers)
    together = random.Random(f"{stage.seed}:{one.key}:together").random() < params.together_rate
    system = Message(role="system", content=system_prompt(task, together))
    opening = (system, Message(role="user", content=task.question))
    limits = Limits(params.max_turns, stage.policy.model.max_tokens, params.max_conversation_tokens)
    try:
        environment = open_environment(one, servers, (*tools, *late.values()), stage)
        user = open_user(one, late, stage)
        end = await converse(stage.policy, environment, opening, limits, one.attempt, user, tools)
    except tuple(kind for kind, _ in FAILURES) as error:
        reason = next(reason for kind, reason in FAILURES if isinstance(error, kind))
        return Reject(id=one.key, reason=reason, detail=str(error))
    except RequestRefused as error:
        return Reject(id=one.key, reason=error.reason, detail=error.detail)
    if end.stop not in KEPT_ENDS:
        return Reject(id=one.key, reason=end.detail or end.stop, detail=f"ended after {end.usage.calls} model calls")
    return to_trajectory(one, tools, end, stage)


def to_trajectory(one: Try, tools: tuple[ToolSpec, ...], end: Conversation, stage: Stage) -> Trajectory:
    """The record of a conversation that is kept."""
    task = one.task
    offered = {tool.name for tool in tools} | {name for turn in task.turns for name in turn.brings}
    return Trajectory(
        id=content_id("trajectory", task.id, one.attempt, [message.model_dump() for message in end.messages]),
        task_id=task.id, kind=task.kind, server_ids=task.server_ids, attempt=one.attempt, tools=tools, late=end.late,
        withheld=tuple(dict.fromkeys(name for name in task.target_tools if name not in offered)),
        messages=end.messages, stop=end.stop, model=stage.policy.model.name, usage=end.usage,
    )  # fmt: skip


ONE_CALL = "make one call"
TOGETHER = "call; calls that need no result of each other go into one turn"


def system_prompt(task: Task, together: bool = False) -> str:
    """How the agent is to work: the base prompt, or the one for the voice of the persona that asks."""
    how = TOGETHER if together else ONE_CALL
    if task.voice is None or task.persona is None:
        return render("trajectories/system", how=how).strip()
    return render(f"trajectories/system_{task.voice}", persona=task.persona, how=how).strip()


def open_user(one: Try, late: Mapping[str, ToolSpec], stage: Stage) -> ScriptedUser | None:
    """Who says what the task lets the user say later; None for a task with one user turn."""
    if not one.task.turns:
        return None
    if stage.user is None:
        return ScriptedUser(one.task, late)
    return ModelUser(
        one.task, late, stage.user, stage.user_model, stage.seed, sample=one.attempt, reasks=stage.params.user_reasks
    )


def open_environment(one: Try, servers: Sequence[Server], tools: tuple[ToolSpec, ...], stage: Stage) -> Environment:
    """What answers this conversation's calls. Raises ToolNameTaken."""
    parts = [_environment(one, server, own, stage) for server, own in by_server(servers, tools)]
    return parts[0] if len(parts) == 1 else Routed(parts, tools)


def by_server(servers: Sequence[Server], tools: Sequence[ToolSpec]) -> Iterator[tuple[Server, tuple[ToolSpec, ...]]]:
    """Each server with those of the tools that are its own; what two servers have alike goes to the first."""
    taken: set[str] = set()
    for server in servers:
        own = tuple(tool for tool in tools if tool in server.tools and tool.name not in taken)
        taken |= {tool.name for tool in own}
        yield server, own


def _environment(one: Try, server: Server, tools: tuple[ToolSpec, ...], stage: Stage) -> Environment:
    emulator = Emulator(
        server, tools, stage.emulator, stage.emulator_model, stage.seed, key=f"{stage.seed}:{one.key}",
        fault_rate=stage.params.fault_rate, reasks=stage.params.emulator_reasks,
    )  # fmt: skip
    marked = stage.live.tools.get(server.id)
    return Live(server.id, marked, tools, stage.calls_live, emulator) if marked else emulator


# ---------------------------------------------------------------- all of them


def known_servers(tasks: Iterable[Task], servers: Iterable[Server]) -> dict[str, Server]:
    """Servers by id. Raises StageError for a task of a server that is not there."""
    by_id = {server.id: server for server in servers}
    for task in tasks:
        for server_id in task.server_ids:
            if server_id not in by_id:
                raise StageError(
                    f"{CONTRACT.reads['tasks']}: {task.id} is for server {server_id}, which is not in "
                    f"{CONTRACT.reads['servers']}. Run: dvc repro tasks"
                )
    return by_id


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["trajectories"]
        tasks = run.read("tasks", Task)
        servers = known_servers(tasks, run.read("servers", Server))
        tries = (Try(task, attempt) for task in tasks for attempt in range(params.attempts))
        run.n_in = len(tasks) * params.attempts
        agent, emulator = models.client("policy"), models.client("emulator")
        user = models.client("user") if params.user == "model" else None
        mode: Mode = "live" if run.estimating and params.live == "record" else params.live
        seen = Figures()
        try:
            live = live_servers(servers.values())
        except LiveConfigInvalid as error:
            raise StageError(str(error)) from None
        with (
            LiveSessions(live.configs, params.start_timeout_s, params.call_timeout_s) as sessions,
            answered_live(sessions, mode, CONTRACT.reads["recording"]) as calls_live,
        ):
            policy = ModelPolicy(agent, run.params["models.policy"], run.params["seed"])
            stage = Stage(
                params, run.params["seed"], servers, live, calls_live, policy, emulator, run.params["models.emulator"],
                user, run.params["models.user"],
            )  # fmt: skip
            held = models.loop.map(tries, lambda one: hold(one, stage), params.concurrency)
            bar = run.progress(within_losses(held, params.max_lost), total=run.n_in, unit="conversation")
            run.n_out = run.write("trajectories", seen.of(kept(without_repetitions(seen.held(bar)), run)))
        for client in (agent, emulator, *([user] if user else [])):
            check_refusals(client, run.n_in)
        run.metrics |= seen.metrics()


def kept(held: Iterable[Trajectory | Reject], run: Run) -> Iterator[Trajectory]:
    """The trajectories; the others are noted as rejects."""
    for one in held:
        if isinstance(one, Reject):
            run.reject(one.id, one.reason, one.detail)
        else:
            yield one


if __name__ == "__main__":
    main(sys.argv[1:])
