"""A trajectory's scorecard: what of it is judged, and how verdicts make a score (paper section 3.2.4).

A dimension is the mean of its verdicts, or the lowest over the user's turns; the overall score is the mean of the
dimensions that apply. A dimension without a verdict makes no scorecard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, NamedTuple

from astra.evidence import exchanges
from astra.judge import JudgeFailed
from astra.records import Evidence, Refused, Scorecard, Trajectory, Verdict, content_id

Dimension = Literal["QU", "QP", "TCU", "TCP", "TCS", "TC", "FA"]
PER_REQUEST: tuple[Dimension, ...] = ("QU", "QP", "FA")  # asked once for each turn of the user
NO_RESULT = "no turn follows a tool result"
NO_CALL = "no call was made"
NOT_APPLICABLE: dict[Dimension, str] = {
    **dict.fromkeys(PER_REQUEST, "the assistant says nothing"),
    "TCU": NO_RESULT, "TCP": NO_RESULT, "TCS": NO_CALL, "TC": NO_CALL,
}  # fmt: skip


class Place(NamedTuple):
    """What a question is about: a dimension of a trajectory, at a message, and at one of its calls."""

    dimension: Dimension
    message: int
    call: int | None = None


def places(trajectory: Trajectory, dimensions: Sequence[Dimension]) -> list[Place]:
    """Everything that has to be judged in a trajectory, in a stable order."""
    messages = trajectory.messages
    turns = [place for place, one in enumerate(messages) if one.role == "assistant"]
    first = [place for place in turns if place == turns[0] or messages[place - 1].role == "user"]
    after = [place for place in turns if messages[place - 1].role == "tool"]
    ends = [place for place in turns if place == turns[-1] or messages[place + 1].role == "user"]
    calls = [(place, number) for place in turns for number, _ in enumerate(messages[place].tool_calls)]
    asked: dict[Dimension, list[Place]] = {
        "QU": [Place("QU", place) for place in first],
        "QP": [Place("QP", place) for place in first],
        "TCU": [Place("TCU", place) for place in after],
        "TCP": [Place("TCP", place) for place in after],
        "TC": [Place("TC", *call) for call in calls],
        "FA": [Place("FA", place) for place in ends],
        "TCS": [],
    }
    return [place for dimension in dimensions for place in asked[dimension]]


class Unjudged(Refused):
    """A trajectory without a score: a dimension without a verdict, or none that applies."""


Outcome = Verdict | JudgeFailed


def to_scorecard(
    trajectory: Trajectory,
    dimensions: Sequence[Dimension],
    judged: Mapping[Place, Outcome],
    evidence: Sequence[Evidence],
) -> Scorecard:
    """The scorecard of a trajectory. Raises Unjudged: a missing verdict is never a number."""
    found: dict[str, Verdict] = {}
    not_applicable: dict[str, str] = {}
    for dimension in dimensions:
        verdicts: dict[Place, Verdict] = {}
        for place, outcome in judged.items():
            if place.dimension == dimension:
                if isinstance(outcome, JudgeFailed):
                    raise Unjudged(f"unjudged_{dimension.lower()}", str(outcome)[:500])
                verdicts[place] = outcome
        one = call_status(trajectory) if dimension == "TCS" else _summed(dimension, verdicts)
        if one is not None:
            found[dimension] = one
        else:
            not_applicable[dimension] = NOT_APPLICABLE[dimension]
    if not found:
        raise Unjudged("nothing_applies", f"none of {', '.join(dimensions)}: {'; '.join(not_applicable.values())}")
    overall = fmean(verdict.score or 0.0 for verdict in found.values())
    content = [{name: verdict.model_dump() for name, verdict in found.items()}, not_applicable, overall]
    return Scorecard(
        id=content_id("scorecard", trajectory.id, *content, [one.model_dump() for one in evidence]),
        trajectory_id=trajectory.id, dimensions=found, not_applicable=not_applicable, evidence=tuple(evidence),
        overall=overall,
    )  # fmt: skip


def _summed(dimension: Dimension, verdicts: Mapping[Place, Verdict]) -> Verdict | None:
    """The mean of verdicts, or the lowest over the user's turns; the reason is the lowest one's, with its place."""
    if not verdicts:
        return None
    scores = {place: verdict.score or 0.0 for place, verdict in verdicts.items()}
    lowest = min(scores, key=lambda place: scores[place])
    if len(verdicts) == 1:
        return verdicts[lowest]
    where = f"message {lowest.message}" + (f", call {lowest.call}" if lowest.call is not None else "")
    kind = "lowest" if dimension in PER_REQUEST else "mean"
    worst = f"{scores[lowest]:g} at {where}" if scores[lowest] < max(scores.values()) else f"each {scores[lowest]:g}"
    score = scores[lowest] if kind == "lowest" else fmean(scores.values())
    reason = f"{kind} of {len(verdicts)}, {worst}: {verdicts[lowest].reason}"
    return Verdict(score=score, reason=reason)


def call_status(trajectory: Trajectory) -> Verdict | None:
    """TCS: the share of calls that succeeded; None without calls. One that the conversation left unanswered did not."""
    calls = exchanges(trajectory.messages)
    if not calls:
        return None
    failed = [one for one in calls if not one.succeeded]
    named = [
        one.name + (f" ({one.answer.fault} injected)" if one.answer is not None and one.answer.fault else "")
        for one in failed[:4]
    ]
    n_good = len(calls) - len(failed)
    reason = f"{n_good} of {len(calls)} calls succeeded" + (f"; failed: {', '.join(named)}" if named else "")
    return Verdict(score=n_good / len(calls), reason=reason)


@dataclass
class Scores:
    """Scores of the cards that passed by."""

    overall: list[float] = field(default_factory=list)
    dimensions: dict[str, list[float]] = field(default_factory=dict)
    evidence: Counter[str] = field(default_factory=Counter)

    def add(self, card: Scorecard) -> None:
        self.overall.append(card.overall)
        self.evidence.update({one.kind for one in card.evidence})
        for name, verdict in card.dimensions.items():
            self.dimensions.setdefault(name, []).append(verdict.score or 0.0)

    def metrics(self, dimensions: Sequence[Dimension]) -> dict[str, Any]:
        """Mean overall and per dimension, each over the trajectories that have it; how many have which evidence."""
        found: dict[str, Any] = {"overall": round(fmean(self.overall), 4)} if self.overall else {}
        for name in dimensions:
            if scores := self.dimensions.get(name):
                found[name] = {"mean": round(fmean(scores), 4), "n": len(scores)}
        return found | ({"evidence": dict(sorted(self.evidence.items()))} if self.evidence else {})
