"""One question to a judge model: a Verdict, or JudgeFailed after bounded re-asks. Nothing else becomes a number.

Accepted for a score in [0, 1]: a JSON number; a text that holds nothing but a number (``"0.8"``), a fraction
(``"4/5"``) or a percentage (``"80%"``). Names are compared without regard to case. Float noise up to 1e-6 beyond the
range is rounded into it; anything further out is out of range, not clamped. Prose, nested objects, other names,
booleans and words are no scores, nor are scores that differ within one reply (an example, a draft, a quotation of what
is judged), and the judge is told so and asked again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol, TypeVar

from astra.llm.errors import RequestRefused
from astra.llm.reply import ReplyInvalid, json_objects, parse_json
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Message, Refused, Verdict

NOISE = 1e-6


class JudgeFailed(Refused):
    """No verdict. ``reason`` is one of invalid_output, incomplete, wrong_type, out_of_range, judge_truncated, or
    judge_<why the endpoint refused>; ``detail`` holds the last raw reply.
    """


A = TypeVar("A")
B = TypeVar("B")


class Asks(Protocol):
    """What a judge needs of ``astra.llm``'s client."""

    async def ask(self, request: Request) -> Completion: ...

    def map(self, items: Iterable[A], work: Callable[[A], Awaitable[B]]) -> Iterator[B]: ...


@dataclass(frozen=True)
class Question:
    """A rendered prompt and the names of the scores that its reply must hold; the verdict is their mean."""

    prompt: str
    keys: tuple[str, ...] = ("score",)


@dataclass(frozen=True)
class Judge:
    """A model that judges. ``reasks`` is how often an unusable reply is asked for again.

    ``votes`` judgements of each question are averaged; more than half of them must be usable. ``renew`` asks again for
    replies that are kept but cannot be used.
    """

    client: Asks
    model: ModelParams
    seed: int
    reasks: int
    votes: int = 1
    renew: bool = False
    agreement: Agreement = field(default_factory=lambda: Agreement())

    def stream(self, questions: Iterable[Question]) -> Iterator[Verdict | JudgeFailed]:
        """The outcomes in the order of the questions, which are taken as there is room. Raises EndpointUnavailable."""
        return self.client.map(questions, self._outcome)

    def all(self, questions: Sequence[Question]) -> list[Verdict | JudgeFailed]:
        """What ``stream`` gives, as a list."""
        return list(self.stream(questions))

    async def _outcome(self, question: Question) -> Verdict | JudgeFailed:
        try:
            return await self.ask(question)
        except JudgeFailed as failure:
            return failure

    async def ask(self, question: Question) -> Verdict:
        """The verdict on one question: the mean of the votes. Raises JudgeFailed, or EndpointUnavailable."""
        verdicts: list[Verdict] = []
        failure: JudgeFailed | None = None
        for vote in range(self.votes):
            try:
                verdicts.append(await self._vote(question, vote))
            except JudgeFailed as last:
                failure = last
        if failure is not None and 2 * len(verdicts) <= self.votes:
            raise failure
        scores = [one.score for one in verdicts if one.score is not None]
        self.agreement.add(scores)
        return verdicts[0].model_copy(update={"score": fmean(scores)})

    async def _vote(self, question: Question, vote: int) -> Verdict:
        messages: tuple[Message, ...] = (Message(role="user", content=question.prompt),)
        model = self.model
        failure = JudgeFailed("invalid_output", "never asked")
        for again in range(self.reasks + 1):
            sample = vote * (self.reasks + 1) + again
            schema = reply_schema(question.keys)
            request = Request(model=model, messages=messages, seed=self.seed, sample=sample, json_schema=schema)
            try:
                reply = await self.client.ask(request)
                try:
                    return read_verdict(reply, question.keys)
                except JudgeFailed:
                    if not (self.renew and reply.cached):
                        raise
                reply = await self.client.ask(dataclasses.replace(request, renew=True))
                return read_verdict(reply, question.keys)
            except RequestRefused as refusal:
                raise JudgeFailed(f"judge_{refusal.reason}", refusal.detail) from refusal
            except JudgeFailed as last:
                failure = last
            if failure.reason == "judge_truncated":
                model = model.model_copy(update={"max_tokens": 2 * model.max_tokens})
            else:
                messages = messages[:1] + _complaint(reply, failure, question.keys)
        raise failure


@dataclass
class Agreement:
    """How far the votes on one question lie apart, over all questions with more than one usable vote."""

    n: int = 0
    spread: float = 0.0

    def add(self, scores: Sequence[float]) -> None:
        if len(scores) > 1:
            self.n += 1
            self.spread += max(scores) - min(scores)

    def metrics(self) -> dict[str, Any]:
        """Mean distance of the highest from the lowest vote, and over how many questions; empty without any."""
        return {"vote_spread": {"mean": round(self.spread / self.n, 4), "n": self.n}} if self.n else {}


def _complaint(reply: Completion, failure: JudgeFailed, keys: tuple[str, ...]) -> tuple[Message, Message]:
    form = ", ".join(f'"{key}": <number from 0 to 1>' for key in keys)
    text = f'This cannot be used ({failure.reason}). Reply with one JSON object: {{{form}, "reason": "<one sentence>"}}'
    return Message(role="assistant", content=reply.content or ""), Message(role="user", content=text)


def reply_schema(keys: tuple[str, ...]) -> dict[str, Any]:
    """The JSON Schema of a judge's reply."""
    scores = {key: {"type": "number", "minimum": 0, "maximum": 1} for key in keys}
    properties = {**scores, "reason": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": [*keys, "reason"]}


def read_verdict(reply: Completion, keys: tuple[str, ...]) -> Verdict:
    """The verdict in a reply. Raises JudgeFailed."""
    raw = (reply.content or "")[:2000]
    if reply.finish_reason == "length":
        raise JudgeFailed("judge_truncated", f"cut after its limit of tokens; reply: {raw!r}")
    try:
        value = parse_json(reply.content or "")
    except ReplyInvalid as error:
        raise JudgeFailed("invalid_output", f"{error}; reply: {raw!r}") from None
    if not isinstance(value, dict):
        raise JudgeFailed("invalid_output", f"reply: {raw!r}")
    stated = [
        one for one in json_objects(reply.content or "") if _scores(one, keys)
    ]  # an example, a draft, a quotation
    if stated and not _scores(value, keys):
        value = stated[0]
    if any(_scores(one, keys) != _scores(value, keys) for one in stated):
        raise JudgeFailed("invalid_output", f"verdicts that differ; reply: {raw!r}")
    named = _named(value, keys, raw)
    missing = [key for key in keys if key.lower() not in named]
    if missing:
        reason = "incomplete" if len(missing) < len(keys) else "invalid_output"
        raise JudgeFailed(reason, f"no {', '.join(missing)}; reply: {raw!r}")
    scores = [score_of(named[key.lower()], raw) for key in keys]
    return Verdict(score=sum(scores) / len(scores), reason=str(named.get("reason") or ""))


def _named(value: dict[str, Any], keys: tuple[str, ...], raw: str) -> dict[str, Any]:
    """The values by their names in lower case. Raises JudgeFailed where one score is stated twice."""
    named: dict[str, Any] = {}
    wanted = {key.lower() for key in keys}
    for name, one in value.items():
        low = str(name).lower()
        if low in wanted and low in named and named[low] != one:
            raise JudgeFailed("invalid_output", f"{low} is stated twice; reply: {raw!r}")
        named[low] = one
    return named


def _scores(value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """What an object states of the scores that were asked for."""
    wanted = {key.lower() for key in keys}
    return {str(name).lower(): one for name, one in value.items() if str(name).lower() in wanted}


_NUMBER = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(?:(%)|/\s*(\d+(?:\.\d+)?))?\s*")


def score_of(value: Any, raw: str) -> float:
    """A score in [0, 1]. Raises JudgeFailed with wrong_type or out_of_range."""
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value)
        if found is None or (found.group(3) is not None and float(found.group(3)) == 0):
            raise JudgeFailed("wrong_type", f"{value!r} is no number; reply: {raw!r}")
        number = float(found.group(1)) / (100 if found.group(2) else float(found.group(3) or 1))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value if abs(value) <= 2 else float("inf")  # integers may be larger than any float
    else:
        raise JudgeFailed("wrong_type", f"{value!r} is no number; reply: {raw!r}")
    if not -NOISE <= number <= 1 + NOISE:
        raise JudgeFailed("out_of_range", f"{value!r} is not in [0, 1]; reply: {raw!r}")
    return min(1.0, max(0.0, number))


def share_failed(outcomes: Sequence[Verdict | JudgeFailed]) -> float:
    """The share of outcomes that are no verdict; 0 of none."""
    return sum(isinstance(one, JudgeFailed) for one in outcomes) / max(1, len(outcomes))
