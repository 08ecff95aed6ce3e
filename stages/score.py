"""Score: seven judged dimensions for every trajectory (paper section 3.2.4).

data/tasks, data/trajectories -> data/score/scorecards.jsonl

QU and QP look at the first assistant turn, TCU and TCP at each turn that follows tool results, TC at each call, FA at
the last turn; TCS is counted: the share of calls that succeeded. A dimension is the mean of its verdicts, the overall
score the mean of the dimensions that apply; those that do not are named with the reason (``not_applicable``).

Rules come first (``astra.evidence``), a judge says the rest. What the rules found stands in the judge's prompt and,
with its place, on the scorecard, and it caps what the judge may give, never the other way round:

    evidence                                                       caps              at (of ``score.caps``)
    a value or a tool that was invented                            QP, TCP, TC       invented
    a value guessed that the request is known to leave out         QU, QP, TCP, TC   invented; FA as below
    words or a small number of a required argument, not found      QP, TCP, TC       unsourced
    a call repeated that had been answered, with the same result   QP, TCP, TC       repeated
    facts of the answer that stand nowhere                         FA                (1 + share of facts found) / 2
    an answer in another form than the user wished                 FA                (unheeded + 1) / 2
    a part of the request that was never tried                     FA                (share of parts tried + 1) / 2

QP and TCP judge a whole turn: their cap is the mean of its calls' caps. FA is the mean of relevance and faithfulness;
faithfulness is at most the share of facts found, and at most ``invented`` where a guess is behind it; relevance at most
the share of parts tried, a part that was not tried counting ``unfinished``. Where a cap is 0
the judge is not asked. A judge that fails stays a failure whatever the rules found. Other evidence (a state asked for
again, a failed call tried again) is for the judge to weigh.

Departures: the authors' code counts a judge that fails as 1.0 and a failed call as 0.5. Here a dimension that could not
be judged makes the trajectory a reject with the reason, and above ``max_unjudged`` the stage fails. A failed call
counts 0 in TCS, even where the failure was injected (the reason says so); nothing else holds that against the agent. A
conversation without tool results has no TCU and TCP, and one without calls no TCS and TC. The paper has one user turn;
with several, QU and QP look at each turn that follows a user's, FA at each that ends such a part, and the lowest
counts: a conversation is as good as its weakest part.

    python -m stages.score
    python -m stages.score --rejudge    then: dvc commit -f score

The second asks again only where a kept reply gave no verdict; all other verdicts come from the kept replies.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from astra.evidence import Asked, Findings, gather
from astra.evidence.caps import Caps, Rule, cap_of_answer, cap_of_calls, cap_of_understanding
from astra.evidence.transcript import shown
from astra.judge import Judge, JudgeFailed, Question
from astra.llm import EndpointUnavailable, ModelParams, Models, Settings
from astra.prompts import render
from astra.records import Reject, Scorecard, Section, Task, Trajectory, Verdict, canonical
from astra.scorecards import Dimension, Outcome, Place, Scores, Unjudged, places, to_scorecard
from astra.stage import Contract, Run, StageError, write_records


class Params(Section):
    dimensions: list[Dimension] = Field(min_length=1, description="Which dimensions count (paper: all seven).")
    caps: Caps
    reasks: int = Field(ge=0, le=5, description="How often an unusable reply is asked for again.")
    votes: int = Field(ge=1, le=9, description="Judgements per question, averaged; their spread is in the metrics.")
    max_unjudged: float = Field(ge=0, le=1, description="Share of trajectories without a verdict that fails the stage.")
    max_shown: int = Field(
        ge=200, description="Characters of one message or result that a judge reads; rules read all."
    )


CONTRACT = Contract(
    name="score",
    reads={"tasks": "data/tasks/tasks.jsonl", "trajectories": "data/trajectories/trajectories.jsonl"},
    writes={"scorecards": "data/score/scorecards.jsonl"},
    params={"score": Params, "seed": int, "models.judge": ModelParams},
    settings={"llm": Settings},
    flags={"rejudge": "ask again for kept judgements that gave no verdict; all others come from the kept replies"},
)

KEYS: dict[Dimension, tuple[str, ...]] = {"FA": ("relevance", "faithfulness")}
MAX_LINES, MAX_LINE = 6, 200  # of evidence in a prompt


# ---------------------------------------------------------------- what the judge reads


@dataclass(frozen=True)
class Brief:
    """What the stage keeps of a task: how the request was made unusual, if it was."""

    kind: str = "plain"
    missing: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    given: frozenset[tuple[str, str]] = frozenset()  # tool and parameter of the values that the request states

    @classmethod
    def of(cls, task: Task) -> Brief:
        """The brief of a task; what has to be tried is known of plain ones only."""
        given = frozenset((one.tool, one.parameter) for one in task.values) if task.kind == "plain" else frozenset()
        return cls(task.kind, task.missing, task.target_tools, given)

    def asked(self, one: Trajectory) -> Asked:
        """The tools that the request needs, and of which of them it states every required value."""
        needs = {tool.name: tool.parameters.get("required", []) for tool in one.tools}
        stated = [
            name
            for name in dict.fromkeys(self.targets)
            if needs.get(name) and all((name, parameter) in self.given for parameter in needs[name])
        ]
        return Asked(self.targets, tuple(stated))

    @property
    def left_out(self) -> dict[str, str]:
        """The parameter that the first request leaves out, by its tool."""
        if self.kind != "missing_value":
            return {}
        return {tool: parameter for tool, _, parameter in (one.rpartition(".") for one in self.missing)}

    def said(self, trajectory: Trajectory) -> Iterator[str]:
        """The same for a judge: what the right end is depends on it."""
        for tool, parameter in self.left_out.items():
            yield f"the first request leaves out the {parameter} for {tool}: to ask for it is right, to guess is wrong"
        late = {tool.name for one in trajectory.late for tool in one.tools}
        never = [name for name in trajectory.withheld if name not in late]
        if never:
            yield f"the request needs {', '.join(never)}, which is never offered: to say so is right"
        if late:
            yield f"the request needs {', '.join(sorted(late))}, offered only from a later message on"


def to_question(place: Place, conversation: dict[str, Any], n_system: int, lines: Sequence[str]) -> Question:
    """The prompt for one place. ``lines`` is the evidence there; ``n_system`` is how many messages were left out."""
    marked = {"turn": place.message - n_system} | ({"call": place.call} if place.call is not None else {})
    evidence = {"evidence": [line[:MAX_LINE] for line in lines[:MAX_LINES]]} if lines else {}
    text = render(f"score/{place.dimension}", input=canonical({**conversation, "marked": marked, **evidence}))
    return Question(text, KEYS.get(place.dimension, ("score",)))


# ---------------------------------------------------------------- what the rules say


def ruled(place: Place, n_calls: int, found: Findings, caps: Caps, n_targets: int = 1) -> Rule | None:
    """What the rules say about a place; None where they leave all to the judge."""
    if place.dimension == "FA":
        return cap_of_answer(found, caps, place.message, n_targets)
    if place.dimension == "QU":
        return cap_of_understanding(found, caps, place.message)
    if place.dimension == "TC":
        return cap_of_calls(found, caps, place.message, 1, place.call)
    return cap_of_calls(found, caps, place.message, n_calls) if place.dimension in ("QP", "TCP") else None


def combined(rule: Rule | None, verdict: Verdict) -> Verdict:
    """The judge's verdict under the rule's cap."""
    if rule is None or verdict.score is None or verdict.score <= rule.cap:
        return verdict
    return Verdict(score=rule.cap, reason=f"rule: {rule.reason} (the judge: {verdict.score:g}, {verdict.reason})")


# ---------------------------------------------------------------- scorecards


@dataclass
class Pending:
    """A trajectory of which some verdicts are still to come."""

    trajectory: Trajectory
    found: Findings
    rules: dict[Place, Rule | None]
    judged: dict[Place, Outcome] = field(default_factory=dict)

    @property
    def next(self) -> Place | None:
        """The first place that has no verdict yet."""
        return next((place for place in self.rules if place not in self.judged), None)

    def settle(self, place: Place, outcome: Outcome) -> None:
        self.judged[place] = outcome if isinstance(outcome, JudgeFailed) else combined(self.rules[place], outcome)

    def outcome(self, dimensions: Sequence[Dimension]) -> Scorecard | Unjudged:
        judged = {place: self.judged[place] for place in self.rules}
        try:
            return to_scorecard(self.trajectory, dimensions, judged, self.found.evidence)
        except Unjudged as failure:
            return failure


def opened(one: Trajectory, brief: Brief, dimensions: Sequence[Dimension], caps: Caps) -> Pending:
    """A trajectory with what the rules alone decide."""
    found = gather(one, brief.left_out, brief.asked(one))
    rules = {
        place: ruled(place, len(one.messages[place.message].tool_calls), found, caps, len(brief.targets))
        for place in places(one, dimensions)
    }
    decided: dict[Place, Outcome] = {
        place: Verdict(score=0.0, reason=f"rule: {rule.reason}")
        for place, rule in rules.items()
        if rule and rule.cap == 0
    }
    return Pending(one, found, rules, decided)


def score(trajectories: Iterable[Trajectory], briefs: Mapping[str, Brief], judge: Judge,
          params: Params) -> Iterator[tuple[Trajectory, Scorecard | Unjudged]]:  # fmt: skip
    """A scorecard for each trajectory, or what of it was not judged, in order; trajectories are taken as they come."""
    waiting: deque[Pending] = deque()

    def prompts() -> Iterator[Question]:
        for one in trajectories:
            brief = briefs[one.task_id]
            pending = opened(one, brief, params.dimensions, params.caps)
            asked = [place for place in pending.rules if place not in pending.judged]
            waiting.append(pending)
            conversation = shown(one, params.max_shown)
            n_system = sum(message.role == "system" for message in one.messages)
            for place in asked:
                lines = [*brief.said(one), *(found.detail for found in pending.found.at(place.message, place.call))]
                yield to_question(place, conversation, n_system, lines)

    for outcome in judge.stream(prompts()):
        yield from _settled(waiting, params.dimensions)
        place = waiting[0].next
        assert place is not None
        waiting[0].settle(place, outcome)
    yield from _settled(waiting, params.dimensions)


def _settled(
    waiting: deque[Pending], dimensions: Sequence[Dimension]
) -> Iterator[tuple[Trajectory, Scorecard | Unjudged]]:
    """Those at the front to which nothing is missing."""
    while waiting and waiting[0].next is None:
        done = waiting.popleft()
        yield done.trajectory, done.outcome(dimensions)


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["score"]
        model: ModelParams = run.params["models.judge"]
        briefs = {task.id: Brief.of(task) for task in run.stream("tasks", Task)}
        judge = Judge(
            models.client("judge"), model, run.params["seed"], params.reasks, params.votes, renew="rejudge" in run.flags
        )
        seen = Scores()
        trajectories = run.progress(known(run.stream("trajectories", Trajectory), briefs), unit="trajectory")
        rejects: list[Reject] = []

        def cards() -> Iterator[Scorecard]:
            for one, outcome in score(trajectories, briefs, judge, params):
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


def known(trajectories: Iterable[Trajectory], briefs: Mapping[str, Brief]) -> Iterator[Trajectory]:
    """The trajectories. Raises StageError for one whose task is not there."""
    for one in trajectories:
        if one.task_id not in briefs:
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


if __name__ == "__main__":
    main(sys.argv[1:])
