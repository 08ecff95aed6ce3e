"""Given questions: those with sub-questions are converted, and a model divides those without.

Where sub-questions are given nothing is asked of a teacher; the checks of all sources follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel

from astra.answers import matches
from astra.decomposition.draft import Brief, DivideReply, Draft, StepReply, Unsound, natural
from astra.decomposition.layouts import Given
from astra.decomposition.operations import OPERATIONS, inferred, operands_of
from astra.decomposition.params import Params
from astra.decomposition.quotes import Document, holds
from astra.decomposition.steps import Hops, steps_of
from astra.prompts import render
from astra.records import Answer, Quote, Step, canonical


@dataclass(frozen=True)
class GivenBrief(Brief):
    """A given question; the teacher divides it where it has no sub-questions."""

    kind: ClassVar[type[BaseModel]] = DivideReply
    id: str
    given: Given
    params: Params

    @property
    def prompt(self) -> str | None:
        one = self.given
        if one.steps is not None or one.unusable is not None:
            return None
        shown = {
            "question": one.question, "answer": one.answer, "language": one.language, "max_hops": self.params.max_hops,
            "documents": [{"id": each.id, "title": each.title, "text": each.text} for each in one.documents],
            "operations": {name: operation.means for name, operation in OPERATIONS.items()},
        }  # fmt: skip
        return render("decompose/divide", input=canonical(shown))

    @property
    def needs_endpoint(self) -> str | None:
        return None if self.prompt is None else f"{self.given.where}: a question without sub-questions is to be divided"

    def draft(self, reply: DivideReply | None) -> Draft:
        """The question as it was given, with its own steps or those of the reply. Raises Unsound."""
        one = self.given
        if one.unusable is not None:
            raise Unsound("unanswerable", one.unusable)
        if reply is not None:
            steps, hops = steps_of(reply.steps, one.documents)
            if one.documents:
                _check_quoted(steps)
        else:
            assert one.steps is not None
            steps, hops = self._converted(one.steps)
        answer = _as_steps_say(natural(one.answer), steps)
        return Draft(
            "given", "train", one.domain, one.language, one.question, answer, _closed(one, steps, answer), hops
        )

    def _converted(self, replies: Sequence[StepReply]) -> tuple[tuple[Step, ...], Hops]:
        one = self.given
        steps, hops = steps_of(replies, one.documents)
        places = {reply.id: place for place, reply in enumerate(replies, 1)}
        unsaid = {places[number] for number in one.open_tools}
        needed = {before for step in steps for before in step.depends_on}
        found: list[Step] = []
        for step, reply in zip(steps, replies, strict=True):
            computes = step.id in unsaid - needed and not step.evidence and bool(step.depends_on)
            operation = (
                inferred(operands_of(step, steps), step.answer, f"{one.question} {step.question}") if computes else None
            )
            if operation is not None:
                step = step.model_copy(update={"needs_tool": False, "operation": operation})
            found.append(step if step.evidence else _supported(step, one, one.supports.get(reply.id)))
        return tuple(found), hops


def _check_quoted(steps: Sequence[Step]) -> None:
    for step in steps:
        if step.needs_tool and not step.evidence:
            raise Unsound("no_evidence", f"step {step.id} quotes no document: {step.question}")


def _supported(step: Step, given: Given, name: str | None) -> Step:
    """The step with the sentence of its document that holds its answer, where there is one."""
    document = next((one for one in given.documents if one.id == name), None)
    quote = None if document is None else sentence_with(document, step.answer)
    return step if quote is None else step.model_copy(update={"evidence": (quote,)})


_SENTENCE = re.compile(r"\S.*?(?:[.!?。！？](?=\s|$|[^\x00-\x7f])|\n|$)", re.DOTALL)


def sentence_with(document: Document, answer: Answer) -> Quote | None:
    """The first sentence of a document that holds an answer."""
    for found in _SENTENCE.finditer(document.text):
        if found.group().strip() and holds(found.group(), answer):
            text = found.group().rstrip()
            start = found.start() + document.offset
            return Quote(document=document.id, start=start, end=start + len(text), text=text)
    return None


def _as_steps_say(answer: Answer, steps: Sequence[Step]) -> Answer:
    """The answer with the type and unit of the last step that gives it."""
    for step in reversed(steps):
        if matches(step.answer, answer.value) and (not answer.unit or answer.unit == step.answer.unit):
            return step.answer
    return answer


def _closed(given: Given, steps: tuple[Step, ...], answer: Answer) -> tuple[Step, ...]:
    """The steps with one that computes the answer from the last ones, where none of those is the answer."""
    needed = {before for step in steps for before in step.depends_on}
    last = [step for step in steps if step.id not in needed]
    if any(step.answer == answer for step in last) or any(not step.needs_tool for step in last):
        return steps
    closing = Step(
        id=len(steps) + 1, question=given.question, answer=answer, depends_on=tuple(step.id for step in last),
        needs_tool=False,
    )  # fmt: skip
    operation = inferred(operands_of(closing, (*steps, closing)), answer, given.question)
    return (*steps, closing.model_copy(update={"operation": operation}))


def given_briefs(given: Sequence[Given], params: Params) -> Iterator[GivenBrief]:
    """A brief for every given question."""
    for one in given:
        yield GivenBrief(one.id, one, params)
