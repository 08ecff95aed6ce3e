"""The data of a tool: the answer's row among decoys. They come from the knowledge tables, else a model invents them.

No decoy's value is an answer of the same question, and all are of the answer's kind. Decoys of training tools hold
nothing that is held out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from astra.answers import folded, is_empty, matches
from astra.knowledge import Knowledge, Value
from astra.llm.reply import ReplyInvalid, parse_json, validate
from astra.prompts import render
from astra.records import Answer, Decomposition, Record, Step, canonical
from astra.splits import Heldout
from astra.synthesis.documents import Document
from astra.synthesis.lost import Lost
from astra.tables import TABLE, literal, with_cell

LEAST = 2  # decoys that a model must have invented, where so many are wanted
MAX_TEXT = 300  # characters of a key or a value


class Row(NamedTuple):
    """One entry: a key for each required parameter, and the value."""

    keys: tuple[str, ...]
    value: Any


def table(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as a tool reads them: by key; where it has several, one in the other."""
    found: dict[str, Any] = {}
    for row in rows:
        found = with_cell(found, row.keys, row.value)
    return found


def program(rows: Sequence[Row], function: str) -> str:
    """The tool's source: its data, then the function that reads them."""
    return f"{literal(TABLE, table(rows))}\n\n\n{function}"


def like(answer: Answer, value: Any) -> Answer:
    """Another value as an answer of the same kind."""
    return Answer(kind=answer.kind, value=value, unit=answer.unit)


def is_like(answer: Answer, value: Any) -> bool:
    """Whether a value could be an answer of the same kind."""
    if answer.kind == "list":
        return isinstance(value, list) and bool(value) and all(isinstance(one, str | int | float) for one in value)
    if answer.kind in ("boolean", "number") and isinstance(value, bool) != (answer.kind == "boolean"):
        return False
    kinds: dict[str, type | tuple[type, ...]] = {"number": (int, float), "boolean": bool}
    if not isinstance(value, kinds.get(answer.kind, str)) or is_empty(like(answer, value)):
        return False
    return bool(matches(like(answer, value), value)) and len(str(value)) <= MAX_TEXT


def is_other(value: Any, answers: Sequence[Answer]) -> bool:
    """Whether a value is none of these answers."""
    return not any(matches(answer, value) for answer in answers if not is_empty(answer))


# ---------------------------------------------------------------- from the knowledge


def knowledge_rows(
    step: Step, one: Decomposition, knowledge: Knowledge, heldout: Heldout, decoys: int, seed: int
) -> list[Row]:
    """The step's fact among decoys, in an order that says nothing. Raises Lost where there are no decoys."""
    assert step.relation is not None
    assert step.subject is not None
    facts = knowledge.facts(step.relation)
    answers = {folded(str(other.answer.value)) for other in one.steps}

    def is_decoy(key: str, value: Value) -> bool:
        if folded(str(value)) in answers or key == step.subject:
            return False
        if one.split != "train":
            return True
        return (step.relation, key) not in heldout.facts and not {key, str(value)} & heldout.entities

    rng = random.Random(f"{seed}:{one.id}:{step.id}")
    options = [Row((key,), value) for key, value in facts.items() if is_decoy(key, value)]
    if not options:
        raise Lost("no_decoys", f"step {step.id}: {step.relation} has no other value than the answers of the question")
    rows = [Row((step.subject,), facts[step.subject]), *rng.sample(options, min(decoys, len(options)))]
    rng.shuffle(rows)
    return rows


def knowledge_examples(relation: str, knowledge: Knowledge, asked: frozenset[tuple[str, str]], count: int) -> list[Row]:
    """Facts for whoever writes the relation's function: none that a question asks for, no value that is an answer."""
    facts = knowledge.facts(relation)
    answers = {folded(str(facts[key])) for one, key in asked if one == relation and key in facts}
    free = [Row((key,), value) for key, value in facts.items()
            if (relation, key) not in asked and folded(str(value)) not in answers]  # fmt: skip
    found: dict[str, Row] = {}
    for row in free:
        found.setdefault(folded(str(row.value)), row)
    return list(found.values())[:count]


# ---------------------------------------------------------------- from a model


class RowReply(Record):
    arguments: dict[str, str]
    result: Any


class RowsReply(Record):
    rows: tuple[RowReply, ...]


def rows_prompt(document: Document, step: Step, arguments: Mapping[str, str], decoys: int) -> str:
    """Asks for rows beside the golden one; the answer is not shown."""
    shown = {
        "tool": document.model_dump(),
        "taken": arguments,
        "kind": step.answer.kind,
        "unit": step.answer.unit,
        "rows": decoys,
    }
    return render("envsynth/rows", input=canonical(shown))


def read_rows(
    text: str, document: Document, step: Step, one: Decomposition, arguments: Mapping[str, str], decoys: int
) -> list[Row]:
    """The usable decoys in a reply, at most so many. Raises ReplyInvalid, which never tells the answer."""
    keys_of = [tuple(arguments.values())]
    answers = [one.answer, *(other.answer for other in one.steps)]
    found: list[Row] = []
    why = "no rows"
    for row in validate(RowsReply, parse_json(text)).rows:
        keys = tuple(row.arguments.get(name, "").strip() for name in document.keys)
        if row.arguments.keys() != set(document.keys) or not all(keys) or max(map(len, keys)) > MAX_TEXT:
            why = f"a row's arguments are not {', '.join(document.keys)}"
        elif _folded(keys) in map(_folded, keys_of):
            why = f"{', '.join(keys)} comes twice, or is the row that is taken"
        elif not is_like(step.answer, row.result) or not document.takes(row.result):
            why = f"a result is not of kind {step.answer.kind}: {str(row.result)[:80]!r}"
        elif not is_other(row.result, answers):
            why = "a result is one that may not be used; invent other values"
        else:
            found.append(Row(keys, row.result))
            keys_of.append(keys)
    least = 1 if step.answer.kind == "boolean" else LEAST
    if len(found) < min(least, decoys):
        raise ReplyInvalid(f"{len(found)} usable rows: {why}")
    return found[:decoys]


def invented_rows(
    step: Step, one: Decomposition, arguments: Mapping[str, str], decoys: Sequence[Row], seed: int
) -> list[Row]:
    """The golden row among invented decoys, in an order that says nothing."""
    rows = [Row(tuple(arguments.values()), step.answer.value), *decoys]
    random.Random(f"{seed}:{one.id}:{step.id}").shuffle(rows)
    return rows


def _folded(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(folded(key) for key in keys)
