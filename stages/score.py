"""Score: seven judged dimensions for every trajectory (paper section 3.2.4).

data/tasks, data/trajectories -> data/score/scorecards.jsonl

QU and QP look at the first assistant turn, TCU and TCP at each turn that follows tool results, TC at each call, FA at
the last turn; TCS is counted: the share of calls that succeeded. A dimension is the mean of its verdicts, the overall
score the mean of the dimensions that apply.

Departures: the authors' code counts a judge that fails as 1.0 and a failed call as 0.5. Here a dimension that could not
be judged makes the trajectory a reject with the reason, a failed call counts 0, and above ``max_unjudged`` the stage
fails. A conversation without tool results has no TCU and TCP, and one without calls no TCS and TC.

    python -m stages.score
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import Field

from astra.judge import Judge, JudgeFailed, Question
from astra.llm import EndpointUnavailable, ModelParams, Models, Settings
from astra.prompts import render
from astra.records import Message, Reject, Scorecard, Section, Task, Trajectory, Verdict, canonical, content_id
from astra.stage import Contract, Run, StageError, write_records

Dimension = Literal["QU", "QP", "TCU", "TCP", "TCS", "TC", "FA"]


class Params(Section):
    dimensions: list[Dimension] = Field(min_length=1, description="Which dimensions count (paper: all seven).")
    reasks: int = Field(ge=0, le=5, description="How often an unusable reply is asked for again.")
    votes: int = Field(ge=1, le=9, description="Judgements per question, averaged; their spread is in the metrics.")
    max_unjudged: float = Field(ge=0, le=1, description="Share of trajectories without a verdict that fails the stage.")


CONTRACT = Contract(
    name="score",
    reads={"tasks": "data/tasks/tasks.jsonl", "trajectories": "data/trajectories/trajectories.jsonl"},
    writes={"scorecards": "data/score/scorecards.jsonl"},
    params={"score": Params, "seed": int, "models.judge": ModelParams},
    settings={"llm": Settings},
    flags={"rejudge": "ask again for kept judgements that gave no verdict; all others come from the kept replies"},
)

KEYS: dict[Dimension, tuple[str, ...]] = {"FA": ("relevance", "faithfulness")}


class Place(NamedTuple):
    """What a question is about: a dimension of a trajectory, at a message, and at one of its calls."""

    dimension: Dimension
    message: int
    call: int | None = None


def places(trajectory: Trajectory, dimensions: Sequence[Dimension]) -> Iterator[Place]:
    """Everything that has to be judged in a trajectory, in a stable order."""
    turns = [place for place, one in enumerate(trajectory.messages) if one.role == "assistant"]
    after = [place for place in turns if trajectory.messages[place - 1].role == "tool"]
    asked: dict[Dimension, list[Place]] = {
        "QU": [Place("QU", turns[0])],
        "QP": [Place("QP", turns[0])],
        "TCU": [Place("TCU", place) for place in after],
        "TCP": [Place("TCP", place) for place in after],
        "TC": [
            Place("TC", place, number)
            for place in turns
            for number, _ in enumerate(trajectory.messages[place].tool_calls)
        ],
        "FA": [Place("FA", turns[-1])],
        "TCS": [],
    }
    for dimension in dimensions:
        yield from asked[dimension]


def shown(trajectory: Trajectory, question: str) -> dict[str, Any]:
    """The conversation as the judge reads it."""
    return {
        "question": question,
        "tools": [{"name": tool.name, "description": tool.description} for tool in trajectory.tools],
        "messages": [_line(message) for message in trajectory.messages if message.role != "system"],
    }


def _line(message: Message) -> dict[str, Any]:
    line: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.tool_calls:
        calls = [call.function for call in message.tool_calls]
        line["calls"] = [{"name": call.name, "arguments": call.arguments} for call in calls]
    if message.role == "tool":
        line["failed"] = message.is_error
    return line


def to_question(place: Place, conversation: dict[str, Any], offset: int) -> Question:
    """The prompt for one place; ``offset`` is how many system messages were left out before it."""
    mark = {"turn": place.message - offset} | ({"call": place.call} if place.call is not None else {})
    text = render(f"score/{place.dimension}", input=canonical({**conversation, "marked": mark}))
    return Question(text, KEYS.get(place.dimension, ("score",)))


def call_status(trajectory: Trajectory) -> Verdict | None:
    """TCS: the share of calls that succeeded; None without calls."""
    results = [message for message in trajectory.messages if message.role == "tool"]
    if not results:
        return None
    succeeded = sum(not message.is_error for message in results)
    return Verdict(score=succeeded / len(results), reason=f"{succeeded} of {len(results)} calls succeeded")


class Unjudged(Exception):
    """A dimension of a trajectory without a verdict."""

    def __init__(self, dimension: Dimension, failure: JudgeFailed) -> None:
        super().__init__(f"{dimension}: {failure}")
        self.reason = f"unjudged_{dimension.lower()}"
        self.detail = str(failure)[:500]


def to_scorecard(
    trajectory: Trajectory, dimensions: Sequence[Dimension], judged: Sequence[tuple[Place, Verdict | JudgeFailed]]
) -> Scorecard:
    """The scorecard of a trajectory. Raises Unjudged: a missing verdict is never a number."""
    found: dict[str, Verdict] = {}
    for dimension in dimensions:
        verdicts: list[Verdict] = []
        for place, outcome in judged:
            if place.dimension == dimension:
                if isinstance(outcome, JudgeFailed):
                    raise Unjudged(dimension, outcome)
                verdicts.append(outcome)
        status = call_status(trajectory) if dimension == "TCS" else None
        verdicts += [status] if status else []
        if verdicts:
            scores = [verdict.score for verdict in verdicts if verdict.score is not None]
            worst = min(verdicts, key=lambda one: one.score if one.score is not None else 1.0)
            found[dimension] = Verdict(score=fmean(scores), reason=worst.reason)
    return Scorecard(
        id=content_id("scorecard", trajectory.id, sorted(found)),
        trajectory_id=trajectory.id,
        dimensions=found,
        overall=fmean(verdict.score or 0.0 for verdict in found.values()),
    )


def score(trajectories: Iterable[Trajectory], questions: Mapping[str, str], judge: Judge,
          dimensions: Sequence[Dimension]) -> Iterator[tuple[Trajectory, Scorecard | Unjudged]]:  # fmt: skip
    """A scorecard for each trajectory, or what of it was not judged, in order; trajectories are taken as they come."""
    waiting: deque[tuple[Trajectory, list[Place]]] = deque()

    def prompts() -> Iterator[Question]:
        for one in trajectories:
            asked = list(places(one, dimensions))
            waiting.append((one, asked))
            conversation = shown(one, questions[one.task_id])
            offset = sum(message.role == "system" for message in one.messages)
            for place in asked:
                yield to_question(place, conversation, offset)

    judged: list[tuple[Place, Verdict | JudgeFailed]] = []
    for outcome in judge.stream(prompts()):
        yield from _unasked(waiting, dimensions)
        one, asked = waiting[0]
        judged.append((asked[len(judged)], outcome))
        if len(judged) == len(asked):
            waiting.popleft()
            yield one, _outcome(one, dimensions, judged)
            judged = []
    yield from _unasked(waiting, dimensions)


def _unasked(
    waiting: deque[tuple[Trajectory, list[Place]]], dimensions: Sequence[Dimension]
) -> Iterator[tuple[Trajectory, Scorecard | Unjudged]]:
    """Those at the front about which no question is asked."""
    while waiting and not waiting[0][1]:
        one, _ = waiting.popleft()
        yield one, _outcome(one, dimensions, [])


def _outcome(
    one: Trajectory, dimensions: Sequence[Dimension], judged: Sequence[tuple[Place, Verdict | JudgeFailed]]
) -> Scorecard | Unjudged:
    try:
        return to_scorecard(one, dimensions, judged)
    except Unjudged as failure:
        return failure


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["score"]
        model: ModelParams = run.params["models.judge"]
        questions = {task.id: task.question for task in run.read("tasks", Task)}
        judge = Judge(
            models.client("judge"), model, run.params["seed"], params.reasks, params.votes, renew="rejudge" in run.flags
        )
        seen = Scores()
        trajectories = run.progress(known(run.stream("trajectories", Trajectory), questions), unit="trajectory")
        rejects: list[Reject] = []

        def cards() -> Iterator[Scorecard]:
            for one, outcome in score(trajectories, questions, judge, params.dimensions):
                run.n_in += 1
                if isinstance(outcome, Unjudged):
                    rejects.append(Reject(id=one.id, reason=outcome.reason, detail=outcome.detail))
                else:
                    seen.add(outcome)
                    yield outcome
            if not run.estimating:
                fail_closed(rejects, run.n_in, params.max_unjudged, model)

        try:
            run.n_out = run.write("scorecards", cards())
        except EndpointUnavailable as error:
            raise type(error)(f"the judge is not there, nothing was scored: {error}") from None
        for reject in rejects:
            run.reject(reject.id, reject.reason, reject.detail)
        run.metrics |= seen.metrics(params.dimensions) | judge.agreement.metrics()
        run.metrics["unjudged"] = round(len(rejects) / max(1, run.n_in), 4)


def known(trajectories: Iterable[Trajectory], questions: Mapping[str, str]) -> Iterator[Trajectory]:
    """The trajectories. Raises StageError for one whose task is not there."""
    for one in trajectories:
        if one.task_id not in questions:
            raise StageError(
                f"{CONTRACT.reads['trajectories']}: {one.id} belongs to no task of {CONTRACT.reads['tasks']}"
            )
        yield one


def fail_closed(rejects: Sequence[Reject], total: int, max_unjudged: float, model: ModelParams) -> None:
    """Stop the stage where too much is unjudged; what was not judged is left in rejects.jsonl. Raises StageError."""
    if not total or len(rejects) / total <= max_unjudged:
        return
    write_records(CONTRACT.rejects, rejects)
    counts = ", ".join(f"{reason} {count}" for reason, count in Counter(one.reason for one in rejects).most_common())
    raise StageError(
        f"{len(rejects)} of {total} trajectories have no verdict ({counts}), over score.max_unjudged {max_unjudged}. "
        f"Judge {model.name} over {model.transport}; the first failure: {rejects[0].detail[:200]}. No scores were "
        f"written; the rows and reasons are in {CONTRACT.rejects}. When the judge works: dvc repro score"
    )


@dataclass
class Scores:
    """Scores of the cards that passed by."""

    overall: list[float] = field(default_factory=list)
    dimensions: dict[str, list[float]] = field(default_factory=dict)

    def add(self, card: Scorecard) -> None:
        self.overall.append(card.overall)
        for name, verdict in card.dimensions.items():
            self.dimensions.setdefault(name, []).append(verdict.score or 0.0)

    def metrics(self, dimensions: Sequence[Dimension]) -> dict[str, Any]:
        """Mean overall and per dimension, each over the trajectories that have it."""
        found: dict[str, Any] = {"overall": round(fmean(self.overall), 4)} if self.overall else {}
        for name in dimensions:
            if scores := self.dimensions.get(name):
                found[name] = {"mean": round(fmean(scores), 4), "n": len(scores)}
        return found


if __name__ == "__main__":
    main(sys.argv[1:])
