"""Servers and chains -> data/tasks/tasks.jsonl: written, augmented, judged (paper section 3.2.2).

Two origins: a request for which exactly one verified chain is the solution, and a request from the server's documents
alone. A seeded share of them is rewritten along three axes: diversity (another wording), complexity (more is asked),
persona (who asks). Every request is then judged on question quality, scenario realism and tool necessity, and the
lowest of them decides: below a threshold on any dimension is a reject that names it.

Departures: the authors' code stores ratings that nothing reads. A dimension that could not be judged is a reject here,
and a stage in which that happens too often fails.

    python -m stages.tasks
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import Field

from astra import prompts
from astra.judge import Judge, JudgeFailed, Question, share_failed
from astra.llm import Client, Completion, ModelParams, Models, Request, RequestRefused, Settings
from astra.llm.reply import ReplyInvalid, parse_json
from astra.llm.structured import TEXT, TEXTS, object_schema
from astra.prompts import render
from astra.records import Chain, Message, Section, Server, Task, ToolSpec, Verdict, content_id
from astra.stage import Contract, Run, StageError

Axis = Literal["diversity", "complexity", "persona"]
AXES: tuple[Axis, ...] = ("diversity", "complexity", "persona")
DIMENSIONS = ("question_quality", "scenario_realism", "tool_necessity")


class Shares(Section):
    diversity: float = Field(ge=0, le=1, description="Share of written tasks that are also worded anew.")
    complexity: float = Field(ge=0, le=1, description="Share of written tasks that also get a harder version.")
    persona: float = Field(ge=0, le=1, description="Share of written tasks that are also asked by a persona.")


class Thresholds(Section):
    question_quality: float = Field(ge=0, le=1, description="Clear, complete, names no tool.")
    scenario_realism: float = Field(ge=0, le=1, description="Plausible values and a purpose.")
    tool_necessity: float = Field(ge=0, le=1, description="Needs each target tool and no other.")


class Params(Section):
    per_chain: int = Field(ge=0, description="Requests written for each chain.")
    per_server: int = Field(ge=0, description="Requests written from each server's documents alone.")
    per_server_of: dict[str, int] = Field(description="The same for single servers, by name, where it differs.")
    max_server_tools: int = Field(ge=1, le=8, description="Tools of a server-only request: 1 to this, in turn.")
    augment: Shares = Field(description="How many tasks are rewritten along each axis.")
    min_quality: Thresholds = Field(description="Below any of these a task is dropped (paper section 3.2.2).")
    reasks: int = Field(ge=0, le=5, description="Further tries for a reply that cannot be used.")
    judge_reasks: int = Field(ge=0, le=5, description="Further tries for an unusable judgement.")
    max_unjudged: float = Field(ge=0, le=1, description="Share of judgements that may fail before the stage does.")


CONTRACT = Contract(
    name="tasks",
    reads={"servers": "data/normalize/servers.jsonl", "chains": "data/chains/chains.jsonl"},
    writes={"tasks": "data/tasks/tasks.jsonl"},
    params={"seed": int, "tasks": Params, "models.teacher": ModelParams, "models.judge": ModelParams},
    settings={"llm": Settings},
)


class Draft(NamedTuple):
    """A request that is to be written: the prompt, and what is known of the task before."""

    key: str
    prompt: str
    server: Server
    chain: Chain | None
    augmentation: Literal["none", "diversity", "complexity", "persona"] = "none"
    source: Task | None = None
    persona: str | None = None
    sample: int = 0


class Refusal(NamedTuple):
    id: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Teacher:
    """The model that writes."""

    client: Client
    model: ModelParams
    seed: int
    reasks: int

    def write(self, drafts: Sequence[Draft]) -> Iterator[Task | Refusal]:
        """The task of each draft, not judged yet, or why there is none."""
        asked = (
            (
                Request(
                    model=self.model, messages=(Message(role="user", content=one.prompt),), seed=self.seed,
                    sample=one.sample, json_schema=reply_schema(one),
                ),
                partial(read_task, one),
            )
            for one in drafts
        )  # fmt: skip
        for one, outcome in zip(drafts, self.client.read_all(asked, self.reasks), strict=True):
            if isinstance(outcome, RequestRefused):
                yield Refusal(one.key, outcome.reason, outcome.detail)
            else:
                yield outcome


# ---------------------------------------------------------------- drafts


def document(tool: ToolSpec) -> dict[str, Any]:
    return tool.model_dump(include={"name", "description", "parameters", "returns"})


def about(server: Server) -> dict[str, str]:
    return {"title": server.title, "description": server.description}


def chain_drafts(chains: Iterable[Chain], servers: Mapping[str, Server], per_chain: int) -> Iterator[Draft]:
    for chain in chains:
        server = servers[chain.server_ids[0]]
        shown = {
            "server": about(server),
            "tools": [document(tool) for tool in server.tools],
            "chain": chain.tools,
            "bindings": [binding.model_dump() for binding in chain.bindings],
        }
        prompt = render("tasks/write_chain", input=json.dumps(shown, ensure_ascii=False))
        for n in range(per_chain):
            yield Draft(f"{chain.id}:{n}", prompt, server, chain, sample=n)


def server_drafts(servers: Iterable[Server], params: Params) -> Iterator[Draft]:
    for server in servers:
        tools = [document(tool) for tool in server.tools]
        for n in range(params.per_server_of.get(server.name, params.per_server)):
            n_tools = min(len(tools), 1 + n % params.max_server_tools)
            shown = {"server": about(server), "tools": tools, "n_tools": n_tools, "number": n}
            prompt = render("tasks/write_server", input=json.dumps(shown, ensure_ascii=False))
            yield Draft(f"{server.id}:{n}", prompt, server, None, sample=n)


def augmenting_drafts(
    written: Sequence[Task], servers: Mapping[str, Server], chains: Mapping[str, Chain], shares: Shares, seed: int
) -> Iterator[Draft]:
    """A seeded choice of written tasks for each axis; whether one task is chosen hangs on nothing but that task."""
    personas = read_personas()
    for axis in AXES:
        for task in written:
            rng = random.Random(f"{seed}:{axis}:{task.id}")
            if rng.random() >= getattr(shares, axis):
                continue
            server = servers[task.server_ids[0]]
            person = rng.choice(personas) if axis == "persona" else None
            tools = [tool for tool in server.tools if axis != "persona" or tool.name in task.target_tools]
            shown = {
                "server": about(server),
                "tools": [document(tool) for tool in tools],
                "target_tools": task.target_tools,
                "question": task.question,
                **({"persona": person} if person else {}),
            }
            prompt = render(f"tasks/{axis}", input=json.dumps(shown, ensure_ascii=False))
            chain = chains[task.chain_id] if task.chain_id else None
            who = person["who"] if person else None
            yield Draft(f"{task.id}:{axis}", prompt, server, chain, augmentation=axis, source=task, persona=who)


def read_personas() -> list[dict[str, str]]:
    """Who may ask, and how. Raises StageError where the file is not a list of {who, style, because}."""
    file = Path(prompts.__file__).parent / "tasks" / "personas.yaml"
    people = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not people or any(one.keys() != {"who", "style", "because"} for one in people):
        raise StageError(f"{file}: expected a list of entries with who, style and because")
    return list(people)


# ---------------------------------------------------------------- replies


def reply_schema(draft: Draft) -> dict[str, Any]:
    """The JSON Schema of a reply; a writer that is given no chain and no task names the tools, too."""
    names_tools = draft.chain is None and draft.source is None
    return object_schema(question=TEXT, target_tools=TEXTS) if names_tools else object_schema(question=TEXT)


def read_task(draft: Draft, reply: Completion) -> Task | Refusal:
    """The task in a reply, not judged yet. Raises ReplyInvalid for a reply that may be asked for again."""
    value = parse_json(reply.content or "")
    question = value.get("question") if isinstance(value, dict) else None
    if not isinstance(question, str) or not question.strip():
        raise ReplyInvalid("no question in the reply")
    targets = _targets(draft, value)
    question = " ".join(question.split())
    if draft.source is not None and question == draft.source.question:
        return Refusal(draft.key, "unchanged", question[:200])
    return Task(
        id=content_id("task", draft.server.id, question, targets),
        server_ids=(draft.server.id,),
        chain_id=draft.chain.id if draft.chain else None,
        question=question,
        target_tools=targets,
        origin="chain" if draft.chain else "server",
        augmentation=draft.augmentation,
        parent=draft.source.id if draft.source else None,
        persona=draft.persona,
        quality={},
    )


def _targets(draft: Draft, value: Mapping[str, Any]) -> tuple[str, ...]:
    """The target tools: the chain's, the source's, or those that the writer names. Raises ReplyInvalid."""
    if draft.chain is not None:
        return draft.chain.tools
    if draft.source is not None:
        return draft.source.target_tools
    named = value.get("target_tools")
    if not isinstance(named, list) or not named or not all(isinstance(one, str) for one in named):
        raise ReplyInvalid("no target_tools in the reply")
    known = [tool.name for tool in draft.server.tools]
    unknown = set(named) - set(known)
    if unknown:
        raise ReplyInvalid(f"target_tools {sorted(unknown)} are not on {draft.server.name}; its tools: {known}")
    return tuple(named)


def without_duplicates(tasks: Iterable[Task | Refusal]) -> Iterator[Task | Refusal]:
    """The same, with a task whose question its server already has turned into a Refusal."""
    seen: dict[tuple[tuple[str, ...], str], str] = {}
    for one in tasks:
        if isinstance(one, Task):
            asked = (one.server_ids, one.question.casefold())
            if asked in seen:
                yield Refusal(one.id, "duplicate", f"same question as {seen[asked]}")
                continue
            seen[asked] = one.id
        yield one


# ---------------------------------------------------------------- judging


def judged_input(task: Task, server: Server) -> str:
    by_name = {tool.name: tool for tool in server.tools}
    shown = {
        "server": about(server),
        "question": task.question,
        "target_tools": [document(by_name[name]) for name in task.target_tools],
        "other_tools": [
            tool.model_dump(include={"name", "description", "parameters"})
            for tool in server.tools
            if tool.name not in task.target_tools
        ],
    }
    return json.dumps(shown, ensure_ascii=False)


def judge_all(tasks: Sequence[Task], servers: Mapping[str, Server], judge: Judge) -> list[list[Verdict | JudgeFailed]]:
    """For each task the outcomes over DIMENSIONS."""
    questions = [
        Question(render(f"tasks/{dimension}", input=text))
        for text in (judged_input(task, servers[task.server_ids[0]]) for task in tasks)
        for dimension in DIMENSIONS
    ]
    outcomes = judge.all(questions)
    return [outcomes[n : n + len(DIMENSIONS)] for n in range(0, len(outcomes), len(DIMENSIONS))]


def decided(task: Task, outcomes: Sequence[Verdict | JudgeFailed], least: Thresholds) -> Task | Refusal:
    """The task with its quality, or the first dimension that could not be judged or is too low."""
    quality: dict[str, Verdict] = {}
    for dimension, outcome in zip(DIMENSIONS, outcomes, strict=True):
        if isinstance(outcome, JudgeFailed):
            return Refusal(task.id, f"unjudged_{dimension}", str(outcome))
        quality[dimension] = outcome
    for dimension, verdict in quality.items():
        wanted: float = getattr(least, dimension)
        if verdict.score is None or verdict.score < wanted:
            detail = f"{verdict.score} < {wanted}: {verdict.reason}; {task.question}"
            return Refusal(task.id, f"low_{dimension}", detail)
    return task.model_copy(update={"quality": quality})


def figures(tasks: Sequence[Task], servers: Mapping[str, Server]) -> dict[str, Any]:
    """Numbers of the kept tasks."""
    per_server = Counter(servers[task.server_ids[0]].name for task in tasks)
    return {
        "servers": len(per_server),
        "largest_server_share": round(max(per_server.values(), default=0) / max(1, len(tasks)), 4),
        "origin": dict(sorted(Counter(task.origin for task in tasks).items())),
        "augmentation": dict(sorted(Counter(task.augmentation for task in tasks).items())),
        "target_tools": dict(sorted(Counter(str(len(task.target_tools)) for task in tasks).items())),
        "distinct_tools": len({(task.server_ids, name) for task in tasks for name in task.target_tools}),
    }


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["tasks"]
        servers = {server.id: server for server in run.read("servers", Server)}
        chains = {chain.id: chain for chain in run.read("chains", Chain)}
        known = {server.name for server in servers.values()}
        unknown = sorted(params.per_server_of.keys() - known)
        if unknown:
            raise StageError(
                f"params.yaml: tasks.per_server_of: no server {unknown}; servers are: {sorted(known)}. "
                "If it is a live server that did not start, data/normalize/rejects.jsonl says why"
            )
        teacher = Teacher(models.client("teacher"), run.params["models.teacher"], run.params["seed"], params.reasks)
        judge = Judge(models.client("judge"), run.params["models.judge"], run.params["seed"], params.judge_reasks)

        drafts = [*chain_drafts(chains.values(), servers, params.per_chain), *server_drafts(servers.values(), params)]
        written = list(teacher.write(drafts))
        sources = [one for one in without_duplicates(written) if isinstance(one, Task)]
        more = list(augmenting_drafts(sources, servers, chains, params.augment, run.params["seed"]))
        written += teacher.write(more)

        candidates: list[Task] = []
        for one in without_duplicates(written):
            if isinstance(one, Refusal):
                run.reject(*one)
            else:
                candidates.append(one)
        outcomes = judge_all(candidates, servers, judge)
        unjudged = share_failed([one for row in outcomes for one in row])
        if unjudged > params.max_unjudged:
            last = next(one for row in reversed(outcomes) for one in row if isinstance(one, JudgeFailed))
            raise StageError(
                f"judge {judge.model.name}: {unjudged:.0%} of the judgements failed, tasks.max_unjudged is "
                f"{params.max_unjudged:.0%}; the last: {last}. Mend the judge, then: dvc repro tasks"
            )
        tasks: list[Task] = []
        for task, row in zip(candidates, outcomes, strict=True):
            decision = decided(task, row, params.min_quality)
            if isinstance(decision, Refusal):
                run.reject(*decision)
            else:
                tasks.append(decision)
        run.n_in, run.n_out = len(written), run.write("tasks", tasks)
        run.metrics |= {
            **figures(tasks, servers),
            "unjudged_share": round(unjudged, 4),
        }


if __name__ == "__main__":
    main(sys.argv[1:])
