"""What files of given questions look like: a layout is known by the keys of a row, and errors name their place.

With sub-questions, references become dependencies and triples become questions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from astra.decomposition.draft import SourceError, StepReply
from astra.decomposition.languages import LANGUAGES, detected
from astra.decomposition.quotes import Document

Row = Mapping[str, Any]


class Given(NamedTuple):
    """One given question. ``steps`` is None where it has no sub-questions, ``supports`` names the document of a step.

    ``open_tools`` are the steps of which nobody said whether they need a tool.
    """

    id: str
    where: str
    question: str
    answer: Any
    domain: str
    language: str
    documents: tuple[Document, ...] = ()
    steps: tuple[StepReply, ...] | None = None
    open_tools: frozenset[int] = frozenset()
    supports: Mapping[int, str] = {}
    unusable: str | None = None


# ---------------------------------------------------------------- values of a row


class Reading(NamedTuple):
    """A row with its place, for messages."""

    row: Row
    where: str
    domain: str

    def fail(self, key: str, says: str) -> SourceError:
        return SourceError(f"{self.where}: {key}: {says} (got {str(self.row.get(key))[:80]!r})")

    def first(self, *keys: str) -> str | None:
        """The first of these keys that the row has."""
        return next((key for key in keys if self.row.get(key) not in (None, "")), None)

    def text(self, *keys: str) -> str:
        """The text under the first of these keys. Raises SourceError where there is none."""
        key = self.first(*keys) or keys[0]
        value = self.row.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, "a text is needed here")
        return value

    def items(self, key: str) -> list[Any]:
        """The list under a key, read from JSON text where it is one. Raises SourceError."""
        value = self.row.get(key)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise self.fail(key, "no JSON list") from None
        if not isinstance(value, list):
            raise self.fail(key, "a list is needed here")
        return value

    def given(self, **parts: Any) -> Given:
        """The question of the row, with what its layout found."""
        question = " ".join(self.text("question", "main_question", "query").split())
        key = self.first("answer", "final_answer", "answers") or "answer"
        answer = self.row.get(key)
        if isinstance(answer, list) and len(answer) == 1:
            answer = answer[0]
        if answer in (None, "", []):
            raise self.fail(key, "a question needs its answer")
        name = self.first("id", "_id", "uuid", "_uuid")
        told = self.row.get("language")
        return Given(
            id=str(self.row[name]) if name else self.where,
            where=self.where,
            question=question,
            answer=answer,
            domain=str(self.row.get("domain") or self.domain),
            language=_code(told) or detected(question),
            **parts,
        )


def _code(told: Any) -> str | None:
    """``en`` of ``en-US``; None for what names no language that can be checked."""
    code = told.partition("-")[0].strip().casefold() if isinstance(told, str) else ""
    return code if code in LANGUAGES else None


def _documents(reading: Reading) -> tuple[Document, ...]:
    """The paragraphs of a row: ``[[title, [sentences]]]``, ``{title: [...], sentences: [...]}``, or plain texts."""
    key = reading.first("context", "contexts", "documents", "paragraphs", "text")
    if key is None:
        return ()
    value = reading.row[key]
    if isinstance(value, Mapping) and all(isinstance(value.get(part), list) for part in ("title", "sentences")):
        value = [list(pair) for pair in zip(value["title"], value["sentences"], strict=False)]
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise reading.fail(key, "texts are needed here")
    found = [_document(reading, key, place, one) for place, one in enumerate(value)]
    return tuple({one.id: one for one in found}.values())


def _document(reading: Reading, key: str, place: int, one: Any) -> Document:
    if isinstance(one, str):
        return Document(f"{reading.where}#{place}", "", one, reading.domain)
    if isinstance(one, Mapping):
        title = str(one.get("title") or "")
        text = next((one[name] for name in ("paragraph_text", "text", "contents") if name in one), None)
    elif isinstance(one, list) and len(one) == 2 and isinstance(one[0], str):
        title, text = one
    else:
        raise reading.fail(key, f"item {place} is no document")
    if isinstance(text, list) and all(isinstance(part, str) for part in text):
        text = " ".join(part.strip() for part in text)
    if not isinstance(text, str) or not text.strip():
        raise reading.fail(key, f"item {place} has no text")
    return Document(title or f"{reading.where}#{place}", title, text, reading.domain)


# ---------------------------------------------------------------- layouts


class Layout(NamedTuple):
    """A form that files of given questions come in."""

    has: frozenset[str]
    read: Callable[[Reading], Given]


def _hotpot(reading: Reading) -> Given:
    """HotpotQA: paragraphs and which of them support the answer; no sub-questions."""
    return reading.given(documents=_supporting(reading))


def _supporting(reading: Reading) -> tuple[Document, ...]:
    """The paragraphs that the row names as its support; all of them where it names none that is there."""
    documents, named = _documents(reading), reading.row.get("supporting_facts")
    if isinstance(named, Mapping):
        said = named.get("title")
    else:
        said = [one[0] for one in named if isinstance(one, list) and one] if isinstance(named, list) else []
    titles = {one for one in said if isinstance(one, str)} if isinstance(said, list) else set[str]()
    return tuple(one for one in documents if one.title in titles) or documents


def _two_wiki(reading: Reading) -> Given:
    """2WikiMultihopQA: triples of subject, relation and value are the sub-questions."""
    triples = reading.items("evidences")
    if not triples or any(not isinstance(one, list) or len(one) != 3 for one in triples):
        raise reading.fail("evidences", "triples [subject, relation, value] are needed here")
    steps: list[StepReply] = []
    for subject, relation, value in (map(str, one) for one in triples):
        before = [step.id for step in steps if str(step.answer) == subject][-1:]
        steps.append(_asks(len(steps) + 1, subject, relation, value, before))
    documents = _supporting(reading)
    titles = {one.title for one in documents}
    supports = {step.id: step.subject for step in steps if step.subject in titles}
    return reading.given(documents=documents, steps=tuple(steps), supports=supports)


def _asks(number: int, subject: str, relation: str, value: Any, before: list[int]) -> StepReply:
    return StepReply(
        id=number, question=f"What is the {relation} of {subject}?", answer=value, depends_on=before, needs_tool=True,
        relation=re.sub(r"\W+", "_", relation.casefold()).strip("_") or None, subject=subject,
    )  # fmt: skip


_REFERENCE = re.compile(r"#(\d+)")


def _musique(reading: Reading) -> Given:
    """MuSiQue: sub-questions in order; ``#1`` is the first one's answer, ``Green >> performer`` asks of a subject."""
    if reading.row.get("answerable") is False:
        return reading.given(unusable="its paragraphs do not hold the answer")
    documents = _documents(reading)
    titles = {
        one["idx"]: _document(reading, "paragraphs", place, one).id
        for place, one in enumerate(reading.items("paragraphs"))
        if isinstance(one, Mapping) and isinstance(one.get("idx"), int)
    }
    steps: list[StepReply] = []
    supports: dict[int, str] = {}
    for number, one in enumerate(reading.items("question_decomposition"), 1):
        step = Reading(one if isinstance(one, Mapping) else {}, f"{reading.where}: sub-question {number}", "")
        steps.append(_musique_step(step, number, steps))
        support = step.row.get("paragraph_support_idx")
        if isinstance(support, int) and support in titles:
            supports[number] = titles[support]
    supported = tuple(one for one in documents if one.id in supports.values())
    return reading.given(documents=supported, steps=tuple(steps), supports=supports)


def _musique_step(step: Reading, number: int, steps: Sequence[StepReply]) -> StepReply:
    question, before = step.text("question"), sorted({int(one) for one in _REFERENCE.findall(step.text("question"))})
    if any(not 1 <= one < number for one in before):
        raise step.fail("question", "it refers to a sub-question that does not stand before it")
    said = _REFERENCE.sub(lambda found: str(steps[int(found.group(1)) - 1].answer), question)
    subject, arrow, relation = said.partition(" >> ")
    if arrow:
        return _asks(number, subject.strip(), relation.strip(), step.text("answer"), before)
    return StepReply(id=number, question=said, answer=step.text("answer"), depends_on=before, needs_tool=True)


STEPS_KEYS = ("decomposition_trace", "sub_questions", "subquestions", "steps", "decomposition")


def _plain(reading: Reading) -> Given:
    """A question and its answer, with or without documents and sub-questions."""
    key = reading.first(*STEPS_KEYS)
    if key is None:
        return reading.given(documents=_documents(reading))
    parts = [
        Reading(one if isinstance(one, Mapping) else {}, f"{reading.where}: {key}[{place}]", "")
        for place, one in enumerate(reading.items(key))
    ]
    if not parts:
        raise reading.fail(key, "it is empty; leave it out where there are no sub-questions")
    steps = tuple(_plain_step(one, place) for place, one in enumerate(parts, 1))
    unsaid = [step.id for step, one in zip(steps, parts, strict=True) if one.first("needs_tool") is None]
    return reading.given(documents=_documents(reading), steps=steps, open_tools=frozenset(unsaid))


def _plain_step(part: Reading, place: int) -> StepReply:
    question = part.text("question", "sub_question")
    answer = part.row.get(part.first("answer", "sub_answer") or "answer")
    if answer in (None, "", []):
        raise part.fail("answer", "a sub-question needs its answer")
    number = part.first("id", "_uuid")
    before = part.row.get(part.first("depends_on", "dependency") or "depends_on")
    value = {
        "id": place if number is None else part.row[number],
        "question": question,
        "answer": answer,
        "depends_on": [before] if isinstance(before, int) else before,
        "needs_tool": True if part.first("needs_tool") is None else part.row["needs_tool"],
        "hop": part.row.get(part.first("hop", "hop_level") or "hop"),
        **{key: part.row[key] for key in ("operation", "subject", "relation", "unit", "evidence") if part.first(key)},
    }
    try:
        return StepReply.model_validate(value)
    except ValidationError as error:
        told = error.errors()[0]
        raise part.fail(".".join(map(str, told["loc"])), told["msg"]) from None


LAYOUTS: dict[str, Layout] = {
    "musique": Layout(frozenset({"question", "question_decomposition", "paragraphs"}), _musique),
    "2wiki": Layout(frozenset({"question", "evidences", "context"}), _two_wiki),
    "hotpotqa": Layout(frozenset({"question", "supporting_facts", "context"}), _hotpot),
    "astra": Layout(frozenset({"main_question", "decomposition_trace"}), _plain),
    "plain": Layout(frozenset({"question", "answer"}), _plain),
}


def layout_of(row: Row) -> Layout | None:
    """The layout that a row has the keys of."""
    return next((one for one in LAYOUTS.values() if one.has <= row.keys()), None)
