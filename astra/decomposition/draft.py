"""What every source yields and every check reads: briefs, the teacher's reply, drafts, and why there is none."""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, Field, field_validator

from astra.answers import DATE_FORMS, item_of, quantity
from astra.records import Answer, Origin, Refused, Split, Step
from astra.stage import StageError


class SourceError(StageError):
    """A knowledge file is wrong: the message names file, line or key, the value met and the remedy."""


class Unsound(Refused):
    """A decomposition that fails a check; ``reason`` goes into rejects."""


class QuoteReply(BaseModel):
    """A quotation as a model gives it: by its words, by its place, or both."""

    document: str
    quote: str | None = None
    start: int | None = None
    end: int | None = None


class StepReply(BaseModel):
    id: int
    question: str = Field(min_length=1)
    answer: Any
    depends_on: list[int]
    needs_tool: bool
    relation: str | None = None
    subject: str | None = None
    hop: int | None = Field(default=None, description="Hop level, 1 for a step that depends on none.")
    operation: str | None = Field(default=None, description="How a step without a tool computes its answer.")
    unit: str | None = None
    evidence: list[QuoteReply] = []

    @field_validator("depends_on", "evidence", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return [] if value is None else value


class ComposeReply(BaseModel):
    question: str = Field(min_length=1)
    answer: Any
    steps: list[StepReply] = Field(min_length=1)


class DivideReply(BaseModel):
    """The steps of a question that is given; the teacher may not change what is asked."""

    steps: list[StepReply] = Field(min_length=1)


@dataclass(frozen=True)
class Draft:
    """A worded question with its steps; nothing but the form is checked yet.

    ``hops`` are the levels that the writer stated, by step id, which the graph must agree with.
    """

    origin: Origin
    split: Split
    domain: str
    language: str
    question: str
    answer: Answer
    steps: tuple[Step, ...]
    hops: tuple[tuple[int, int], ...] = ()


class Brief(ABC):
    """What one question is made from."""

    kind: ClassVar[type[BaseModel]] = ComposeReply
    id: str

    @property
    @abstractmethod
    def prompt(self) -> str | None:
        """What the teacher is asked; None where all is given."""

    @property
    def needs_endpoint(self) -> str | None:
        """What a model has to do here that no rule can, with the file that asks for it; None where rules will do."""
        return None

    @abstractmethod
    def draft(self, reply: Any) -> Draft:
        """The draft in a reply of ``kind``, None where there was no prompt. Raises Unsound."""


def typed(value: Any, kind: str, unit: str | None = None) -> Answer:
    """A value of a named kind as an expected answer."""
    if isinstance(value, list):
        return Answer(kind="list", value=value)
    if kind in ("number", "date"):
        return Answer.model_validate({"kind": kind, "value": value, "unit": unit})
    return Answer(kind="text", value=value)


def natural(value: Any, unit: str | None = None) -> Answer:
    """A value of the kind that its form shows: ``1,664 km`` is a number, ``3 May 1990`` a date, ``yes`` a truth value.

    ``007`` and what is no quantity stay text. Raises Unsound for what cannot be an answer.
    """
    if isinstance(value, str):
        return _natural_text(" ".join(value.split()), unit)
    if isinstance(value, list) and value and all(isinstance(one, str | int | float) for one in value):
        return Answer(kind="list", value=[natural(one).value for one in value])
    if not isinstance(value, bool | int | float):
        raise Unsound(
            "bad_answer", f"{str(value)[:200]!r} is no answer: a text, number, truth value or list of these is"
        )
    found = item_of(value)
    return found.model_copy(update={"unit": unit}) if found.kind == "number" else found


def _natural_text(text: str, unit: str | None) -> Answer:
    if not text:
        raise Unsound("bad_answer", "an answer is empty")
    if text.casefold() in ("yes", "no", "true", "false"):
        return Answer(kind="boolean", value=text.casefold() in ("yes", "true"))
    day = _date(text)
    if day is not None:
        return Answer(kind="date", value=day)
    found = None if re.match(r"[-+]?0\d", text) else quantity(text)
    if found is None or (unit and found.unit and found.unit != unit.casefold()):
        return Answer(kind="text", value=text)
    whole = int(found.value) if found.value.is_integer() and abs(found.value) < 2**53 else found.value
    return Answer(kind="number", value=whole, unit=unit or found.unit or None)


def _date(text: str) -> str | None:
    for form in DATE_FORMS:
        try:
            return datetime.datetime.strptime(text, form).date().isoformat()
        except ValueError:
            continue
    return None
