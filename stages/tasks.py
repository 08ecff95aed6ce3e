"""Servers and chains -> data/tasks/tasks.jsonl: written, augmented, made unusual, judged (paper section 3.2.2).

Two origins: a request for which exactly one verified chain is the solution, and a request from the server's documents
alone. A seeded share of them is rewritten along three axes: diversity (another wording), complexity (more is asked),
persona (who asks). Another share is made into the unusual kinds, whose right end is not a plain answer: a needed tool
is missing, a required value is missing, a tool comes later in the talk, the user asks in several turns. A rewriting
keeps tools, values and language, or it is a reject that says what was lost. What is too like an earlier task is a
reject, too. Every other request is judged, and the lowest dimension decides.

Departures: the authors' code stores ratings that nothing reads and keeps four dimensions; verifiability and stability
are from Toucan, which theirs descend from. A dimension that could not be judged is a reject here, and a stage in which
that happens too often fails. The unusual kinds are not in the paper.

    python -m stages.tasks
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import Field

from astra import wording
from astra.drafts import Draft, Refusal, read_task, reply_schema
from astra.judge import Judge, JudgeFailed, Question, share_failed
from astra.likeness import Likeness, sifted, without_duplicates
from astra.llm import Client, ModelParams, Models, Request, RequestRefused, Settings
from astra.prompts import render
from astra.records import Chain, Message, Reject, Section, Server, Task, Verdict
from astra.rewriting import Kinds, Shares, Sources, about, document
from astra.servers import check_names, pool
from astra.stage import Contract, Run, StageError, write_records

DIMENSIONS = ("question_quality", "scenario_realism", "tool_necessity", "verifiability", "stability")
KIND_FIT = "kind_fit"  # judged of unusual kinds only


class Thresholds(Section):
    question_quality: float = Field(ge=0, le=1, description="Clear, complete, names no tool.")
    scenario_realism: float = Field(ge=0, le=1, description="Plausible values and a purpose.")
    tool_necessity: float = Field(ge=0, le=1, description="Needs each target tool and no other.")
    verifiability: float = Field(ge=0, le=1, description="Whether an answer is right can be checked.")
    stability: float = Field(ge=0, le=1, description="The same answer is right on another day.")
    kind_fit: float = Field(ge=0, le=1, description="An unusual kind is what it says; plain tasks are not asked.")


class Params(Section):
    per_chain: int = Field(ge=0, description="Requests written for each chain.")
    per_server: int = Field(ge=0, description="Requests written from each server's documents alone.")
    per_server_of: dict[str, int] = Field(description="The same for single servers, by name, where it differs.")
    max_server_tools: int = Field(ge=1, le=8, description="Tools of a server-only request: 1 to this, in turn.")
    augment: Shares = Field(description="How many tasks are rewritten along each axis.")
    kinds: Kinds = Field(description="How many tasks are made into each unusual kind.")
    likeness: Likeness = Field(description="From where on two tasks are one.")
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


def chain_drafts(chains: Iterable[Chain], servers: Mapping[str, Server], per_chain: int) -> Iterator[Draft]:
    for chain in chains:
        own = tuple(servers[server_id] for server_id in chain.server_ids)
        shown = {
            "server": about(own),
            "tools": [document(tool) for tool in pool(own, chain.tools)],
            "chain": chain.tools,
            "bindings": [binding.model_dump() for binding in chain.bindings],
        }
        prompt = render("tasks/write_chain", input=json.dumps(shown, ensure_ascii=False))
        for n in range(per_chain):
            yield Draft(f"{chain.id}:{n}", prompt, own, chain, sample=n)


def server_drafts(servers: Iterable[Server], params: Params) -> Iterator[Draft]:
    for server in servers:
        tools = [document(tool) for tool in server.tools]
        for n in range(params.per_server_of.get(server.name, params.per_server)):
            n_tools = min(len(tools), 1 + n % params.max_server_tools)
            shown = {"server": about([server]), "tools": tools, "n_tools": n_tools, "number": n}
            prompt = render("tasks/write_server", input=json.dumps(shown, ensure_ascii=False))
            yield Draft(f"{server.id}:{n}", prompt, (server,), None, sample=n)


# ---------------------------------------------------------------- judging


def dimensions_of(task: Task) -> tuple[str, ...]:
    return DIMENSIONS if task.kind == "plain" else (*DIMENSIONS, KIND_FIT)


def judged_input(task: Task, servers: Sequence[Server]) -> str:
    tools = pool(servers, task.target_tools)
    by_name = {tool.name: tool for tool in tools}
    shown = {
        "server": about(servers),
        "question": task.question,
        "target_tools": [document(by_name[name]) for name in task.target_tools],
        "other_tools": [
            tool.model_dump(include={"name", "description", "parameters"})
            for tool in tools
            if tool.name not in task.target_tools
        ],
    }
    if task.kind != "plain":
        turns = [{"says": turn.says, "target_tools": turn.target_tools} for turn in task.turns]
        shown |= {"kind": task.kind, "missing": task.missing, "later_turns": turns}
    return json.dumps(shown, ensure_ascii=False)


def judge_all(
    tasks: Sequence[Task], servers: Mapping[str, Server], judge: Judge
) -> Iterator[list[Verdict | JudgeFailed]]:
    """For each task the outcomes over its dimensions."""
    texts = (judged_input(task, [servers[server_id] for server_id in task.server_ids]) for task in tasks)
    questions = (
        Question(render(f"tasks/{dimension}", input=text))
        for task, text in zip(tasks, texts, strict=True)
        for dimension in dimensions_of(task)
    )
    outcomes = judge.stream(questions)
    return ([next(outcomes) for _ in dimensions_of(task)] for task in tasks)


def decided(task: Task, outcomes: Sequence[Verdict | JudgeFailed], least: Thresholds) -> Task | Refusal:
    """The task with its quality, or the first dimension that could not be judged or is too low."""
    quality: dict[str, Verdict] = {}
    for dimension, outcome in zip(dimensions_of(task), outcomes, strict=True):
        if isinstance(outcome, JudgeFailed):
            return Refusal(task.id, f"unjudged_{dimension}", str(outcome))
        quality[dimension] = outcome
    for dimension, verdict in quality.items():
        wanted: float = getattr(least, dimension)
        if verdict.score is None or verdict.score < wanted:
            detail = f"{verdict.score} < {wanted}: {verdict.reason}; {task.question}"
            return Refusal(task.id, f"low_{dimension}", detail)
    return task.model_copy(update={"quality": quality})


# ---------------------------------------------------------------- figures


def shape(chain: Chain) -> str:
    """Which step uses which, e.g. ``3: 0>1 1>2``: the form of a chain, whatever its tools."""
    used = sorted(
        {(one.from_step, one.step) for one in chain.bindings if one.origin == "result" and one.from_step is not None}
    )
    return f"{len(chain.tools)}: {' '.join(f'{source}>{target}' for source, target in used)}".strip()


def figures(tasks: Sequence[Task], servers: Mapping[str, Server], chains: Mapping[str, Chain]) -> dict[str, Any]:
    """Numbers of the kept tasks, and how varied they are."""
    per_server = Counter(servers[server_id].name for task in tasks for server_id in task.server_ids)
    shapes = Counter(shape(chains[task.chain_id]) for task in tasks if task.chain_id)
    questions = [task.question for task in tasks]
    return {
        "servers": len(per_server),
        "largest_server_share": round(max(per_server.values(), default=0) / max(1, len(tasks)), 4),
        "origin": dict(sorted(Counter(task.origin for task in tasks).items())),
        "augmentation": dict(sorted(Counter(task.augmentation for task in tasks).items())),
        "kind": dict(sorted(Counter(task.kind for task in tasks).items())),
        "target_tools": dict(sorted(Counter(str(len(task.target_tools)) for task in tasks).items())),
        "distinct_tools": len({(task.server_ids, name) for task in tasks for name in task.target_tools}),
        "domains": len({servers[server_id].domain for task in tasks for server_id in task.server_ids}),
        "chain_shapes": dict(sorted(shapes.items())),
        "distinct_ngrams": {str(n): wording.distinct(questions, n) for n in (1, 2, 3)},
    }


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["tasks"]
        servers = {server.id: server for server in run.read("servers", Server)}
        chains = {chain.id: chain for chain in run.read("chains", Chain)}
        check_names("tasks.per_server_of", params.per_server_of, servers.values())
        teacher = Teacher(models.client("teacher"), run.params["models.teacher"], run.params["seed"], params.reasks)
        judge = Judge(models.client("judge"), run.params["models.judge"], run.params["seed"], params.judge_reasks)

        drafts = [*chain_drafts(chains.values(), servers, params.per_chain), *server_drafts(servers.values(), params)]
        written = list(run.progress(teacher.write(drafts), len(drafts), "task"))
        plain = [one for one in without_duplicates(written) if isinstance(one, Task)]
        sources = Sources(plain, servers, chains, run.params["seed"])
        more = [*sources.augmenting(params.augment), *sources.unusual(params.kinds)]
        written += run.progress(teacher.write(more), len(more), "task")

        candidates, refusals = sifted(written, params.likeness)
        outcomes = list(run.progress(judge_all(candidates, servers, judge), len(candidates), "judged"))
        tasks: list[Task] = []
        for task, row in zip(candidates, outcomes, strict=True):
            decision = decided(task, row, params.min_quality)
            if isinstance(decision, Refusal):
                refusals.append(decision)
            else:
                tasks.append(decision)
        unjudged = share_failed([one for row in outcomes for one in row])
        if not run.estimating:
            fail_closed(refusals, unjudged, params.max_unjudged, judge)
        for one in refusals:
            run.reject(*one)
        run.n_in, run.n_out = len(written), run.write("tasks", tasks)
        run.metrics |= {**figures(tasks, servers, chains), "unjudged_share": round(unjudged, 4)}


def fail_closed(refusals: Sequence[Refusal], unjudged: float, most: float, judge: Judge) -> None:
    """Stop the stage where too much is unjudged; what was refused is left in rejects.jsonl. Raises StageError."""
    if unjudged <= most:
        return
    write_records(CONTRACT.rejects, (Reject(id=one.id, reason=one.reason, detail=one.detail) for one in refusals))
    last = next(one for one in reversed(refusals) if one.reason.startswith("unjudged_"))
    raise StageError(
        f"judge {judge.model.name}: {unjudged:.0%} of the judgements failed, tasks.max_unjudged is {most:.0%}; the "
        f"last: {last.detail}. No tasks were written; the rows and reasons are in {CONTRACT.rejects}. Mend the judge, "
        "then: dvc repro tasks"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
