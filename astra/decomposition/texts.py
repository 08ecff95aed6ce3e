"""Questions composed from documents: a model writes them, and every sub-answer is quoted verbatim with its place."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from astra.answers import matches
from astra.decomposition.draft import Brief, ComposeReply, Draft, natural
from astra.decomposition.operations import OPERATIONS
from astra.decomposition.params import Params
from astra.decomposition.quotes import Document
from astra.decomposition.steps import steps_of
from astra.decomposition.tables import SHAPES
from astra.prompts import render
from astra.records import Answer, Shape, Split, Step, canonical, content_id
from astra.wording import states


@dataclass(frozen=True)
class TextBrief(Brief):
    """A question to be composed from passages; ``number`` tells several over the same ones apart."""

    id: str
    passages: tuple[Document, ...]
    shape: Shape
    language: str
    split: Split
    max_hops: int
    number: int

    @property
    def prompt(self) -> str:
        shown = {
            "domain": self.passages[0].domain, "language": self.language, "shape": self.shape,
            "max_hops": self.max_hops, "number": self.number,
            "documents": [{"id": one.id, "title": one.title, "text": one.text} for one in self.passages],
            "operations": {name: operation.means for name, operation in OPERATIONS.items()},
        }  # fmt: skip
        return render("decompose/read", input=canonical(shown))

    @property
    def needs_endpoint(self) -> str:
        return f"{self.passages[0].id}: a question is to be composed from this text"

    def draft(self, reply: ComposeReply) -> Draft:
        """The draft in a reply. Raises Unsound for a faulty graph, answer or quotation."""
        steps, hops = steps_of(reply.steps, self.passages)
        answer = answer_of(reply.answer, steps)
        domain = self.passages[0].domain
        return Draft("texts", self.split, domain, self.language, reply.question, answer, steps, hops)


def answer_of(value: object, steps: Sequence[Step]) -> Answer:
    """The answer with the type of the step that gives it; of the kind that its form shows where none does."""
    found = next((step.answer for step in reversed(steps) if matches(step.answer, value)), None)
    return natural(value) if found is None else found


def text_briefs(documents: Sequence[Document], params: Params, seed: int) -> Iterator[TextBrief]:
    """Briefs over each passage, a share of them over two of one domain; no held-out document is in a training one."""
    texts = params.texts
    passages = [one for document in documents for one in cut(document, texts.passage)]
    splits = {one.id: split_of(one, texts.heldout, seed) for one in documents}
    for passage in passages:
        rng = random.Random(f"{seed}:text:{passage.id}:{passage.offset}")
        others = partners(passage, passages, splits)
        for number in range(1, texts.questions + 1):
            joined = (rng.choice(others),) if rng.random() < texts.joined and others else ()
            shape = rng.choices(SHAPES, weights=[getattr(params.shapes, name) for name in SHAPES])[0]
            spoken = rng.choices(list(params.languages), weights=list(params.languages.values()))[0]
            parts = (passage, *joined)
            key = content_id("text", [(one.id, one.offset) for one in parts], number)
            yield TextBrief(key, parts, shape, spoken, splits[passage.id], params.max_hops, number)


def split_of(document: Document, heldout: float, seed: int) -> Split:
    """By its words, so that a copy under another name is on the same side."""
    words = " ".join(document.text.split())
    return "heldout" if random.Random(f"{seed}:document:{words}").random() < heldout else "train"


def partners(passage: Document, passages: Sequence[Document], splits: dict[str, Split]) -> list[Document]:
    """Passages to join with one: of another document of its domain and split, and linked by a title if any is."""
    others = [
        one
        for one in passages
        if one.id != passage.id and one.domain == passage.domain and splits[one.id] == splits[passage.id]
    ]
    linked = [one for one in others if states(passage.text, one.title) or states(one.text, passage.title)]
    return linked or others


_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?])\s+|(?<=[。！？])"))  # the best first


def cut(document: Document, most: int) -> list[Document]:
    """The stretches of a document of at most so many characters, cut where a paragraph, a line or a sentence ends."""
    passages: list[Document] = []
    start, text = 0, document.text
    while start < len(text):
        end = min(start + most, len(text))
        if end < len(text):
            kinds = ([found.end() for found in kind.finditer(text, start + most // 2, end)] for kind in _BREAKS)
            end = next((places[-1] for places in kinds if places), end)
        if text[start:end].strip():
            passages.append(document._replace(text=text[start:end], offset=document.offset + start))
        start = end
    return passages
