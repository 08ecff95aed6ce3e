"""The four checks that a model makes of a draft, binary for each sub-question, and their mean, the quality QS."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from astra.decomposition.draft import Draft, Unsound
from astra.decomposition.params import Percentile
from astra.llm import Client, Completion, ModelParams, Request, RequestRefused
from astra.llm.reply import parse_json, validate
from astra.prompts import render
from astra.records import Message, Step, canonical

M = TypeVar("M", bound=BaseModel)


class StepVerdict(BaseModel):
    id: int
    dependency: int = Field(ge=0, le=1)
    atomicity: int = Field(ge=0, le=1)
    rationality: int = Field(ge=0, le=1)


class VerifyReply(BaseModel):
    steps: list[StepVerdict]
    completeness: int = Field(ge=0, le=1)
    reason: str


@dataclass(frozen=True)
class Writer:
    """A role's model, whose replies are records."""

    client: Client
    model: ModelParams
    seed: int
    reasks: int

    def replies(self, asked: Iterable[tuple[str, type[M]]]) -> Iterator[M | RequestRefused]:
        """The reply to each prompt as a record of its kind, or why there is none."""
        return self.client.read_all(((self._request(*one), _reader(one[1])) for one in asked), self.reasks)

    def _request(self, prompt: str, kind: type[M]) -> Request:
        messages = (Message(role="user", content=prompt),)
        return Request(model=self.model, messages=messages, seed=self.seed, json_schema=_schema(kind))


@cache
def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    return kind.model_json_schema()


def _reader(kind: type[M]) -> Any:
    def read(reply: Completion) -> M:
        return validate(kind, parse_json(reply.content or ""))

    return read


def verify_prompt(draft: Draft) -> str:
    """What the judge sees of a draft."""
    shown = {"question": draft.question, "answer": draft.answer.value, "steps": [_shown(step) for step in draft.steps]}
    return render("decompose/verify", input=canonical(shown))


def _shown(step: Step) -> dict[str, Any]:
    value = {"id": step.id, "question": step.question, "answer": step.answer.value,
             "depends_on": list(step.depends_on), "needs_tool": step.needs_tool}  # fmt: skip
    return value | ({"operation": step.operation} if step.operation else {})


def judge(drafts: Sequence[Draft], judging: Writer) -> Iterator[dict[str, float] | Unsound]:
    """The paper's four checks of each draft, or why it could not be judged."""
    asked = ((verify_prompt(draft), VerifyReply) for draft in drafts)
    for draft, reply in zip(drafts, judging.replies(asked), strict=True):
        try:
            if isinstance(reply, RequestRefused):
                raise Unsound("unjudged", f"{reply.reason}: {reply.detail}")
            yield quality(reply, draft.steps)
        except Unsound as error:
            yield error


def quality(verdicts: VerifyReply, steps: Sequence[Step]) -> dict[str, float]:
    """DC, SA, SR (means over steps) and TC. Raises Unsound where a step was not judged."""
    judged = {one.id: one for one in verdicts.steps}
    if len(judged) < len(verdicts.steps) or judged.keys() != {step.id for step in steps}:
        raise Unsound("unjudged", f"judged steps {[one.id for one in verdicts.steps]} of {len(steps)}")
    return {
        "DC": fmean(one.dependency for one in verdicts.steps),
        "SA": fmean(one.atomicity for one in verdicts.steps),
        "SR": fmean(one.rationality for one in verdicts.steps),
        "TC": float(verdicts.completeness),
    }


def threshold(min_quality: float | Percentile, qualities: Sequence[float]) -> float:
    """The least QS that is kept: a value, or the smallest QS that so many percent of all do not exceed."""
    if not isinstance(min_quality, Percentile):
        return min_quality
    if not qualities:
        return 0.0
    place = math.ceil(min_quality.percentile / 100 * len(qualities) - 1e-9)
    return sorted(qualities)[max(place, 1) - 1]
