"""Small drafts and replies for the tests of the checks."""

from __future__ import annotations

from typing import Any

from astra.decomposition.draft import Draft, natural
from astra.records import Quote, Step

DOCUMENT = "texts/peru.txt"


def step(number: int, answer: Any, *depends_on: int, tool: bool = True, **fields: Any) -> Step:
    fields = {"question": f"What is number {number}?", "relation": None, "subject": None} | fields
    unit = fields.pop("unit", None)
    return Step(id=number, answer=natural(answer, unit), depends_on=depends_on, needs_tool=tool, **fields)


def draft(answer: Any, *steps: Step, **fields: Any) -> Draft:
    given = {
        "origin": "given",
        "split": "train",
        "domain": "x",
        "language": "en",
        "question": "Who wrote it, and when?",
    }
    return Draft(**(given | fields), answer=natural(answer), steps=steps)


def quote(text: str) -> Quote:
    return Quote(document=DOCUMENT, start=0, end=len(text), text=text)
