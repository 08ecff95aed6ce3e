"""What a question or a conversation is made of, and whether it touches what is held out.

A *fact* is a relation read for a subject, a document that is quoted, or a sub-question of no named relation. A
*composition* is how facts are put together: a relation that feeds another, or the relation paths of two branches asked
for side by side. Training and the main held-out split share no question, no fact and no composition; entities and
relations occur in both. Two harder splits hold out entities and relations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

from astra.records import Decomposition, Environment, Message, Step

Fact = tuple[str, str]
DOCUMENT, ASKED = "a document", "asked"  # what a fact is of that is no relation read for a subject
Composition = tuple[str, ...]


class Content(NamedTuple):
    """The parts of one question or conversation."""

    facts: frozenset[Fact]
    compositions: frozenset[Composition]
    relations: frozenset[str]
    entities: frozenset[str]


def chained(first: str, second: str) -> Composition:
    """A relation whose value is the second's subject."""
    return ("chain", first, second)


def beside(one: Sequence[str], other: Sequence[str]) -> Composition:
    """Two relation paths in one question, in either order."""
    return ("beside", *sorted([">".join(one), ">".join(other)]))


def of_steps(steps: Iterable[Step]) -> Content:
    """The content of a decomposition's steps; language-only steps add nothing.

    Every document that a step quotes is a fact, and so is the sub-question where no relation and subject are named.
    """
    steps = tuple(steps)
    kept = {
        step.id: step for step in steps if step.needs_tool and step.relation is not None and step.subject is not None
    }
    facts = {(step.relation or "", step.subject or "") for step in kept.values()}
    facts |= {(DOCUMENT, quote.document) for step in steps for quote in step.evidence}
    unnamed = [step for step in steps if step.needs_tool and step.id not in kept]
    edges = [(kept[before], step) for step in kept.values() for before in step.depends_on if before in kept]
    compositions = {chained(first.relation or "", second.relation or "") for first, second in edges}
    compositions |= {beside(one, other) for one, other in combinations(_paths(kept), 2)}
    values = {str(step.answer.value) for step in kept.values() if step.answer.kind == "text"}
    return Content(
        frozenset(facts | {(ASKED, " ".join(step.question.casefold().split())) for step in unnamed}),
        frozenset(compositions),
        frozenset(step.relation or "" for step in kept.values()),
        frozenset(step.subject or "" for step in kept.values()) | values,
    )


def _paths(steps: dict[int, Step]) -> list[tuple[str, ...]]:
    """The relation paths from every root to every step that nothing depends on."""
    needed = {before for step in steps.values() for before in step.depends_on}

    def back(step: Step) -> list[tuple[str, ...]]:
        before = [steps[one] for one in step.depends_on if one in steps]
        own = step.relation or ""
        return [(*path, own) for one in before for path in back(one)] if before else [(own,)]

    return [path for step in steps.values() if step.id not in needed for path in back(step)]


def of_messages(messages: Sequence[Message]) -> Content:
    """The content of a conversation: every tool call with one text argument that succeeded counts as a step.

    A call whose argument is an earlier call's result depends on that call.
    """
    results = {message.tool_call_id: message for message in messages if message.role == "tool" and not message.is_error}
    steps: list[Step] = []
    for message in messages:
        for call in message.tool_calls:
            subject, result = _one_text(call.function.arguments), results.get(call.id)
            if subject is None or result is None:
                continue
            before = tuple(step.id for step in steps if str(step.answer.value) == subject)[-1:]
            steps.append(_as_step(len(steps) + 1, call.function.name, subject, before, result.content or ""))
    return of_steps(steps)


def _as_step(number: int, relation: str, subject: str, before: tuple[int, ...], text: str) -> Step:
    value: object = text
    try:
        parsed = json.loads(text)
        value = parsed.get("result", text) if isinstance(parsed, dict) else parsed
    except ValueError:
        pass
    answer = {"kind": "text", "value": value if isinstance(value, str) else json.dumps(value)}
    return Step.model_validate(
        {"id": number, "question": relation, "answer": answer, "depends_on": before, "needs_tool": True,
         "relation": relation, "subject": subject}
    )  # fmt: skip


def _one_text(arguments: str) -> str | None:
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return None
    values = list(parsed.values()) if isinstance(parsed, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


class Heldout(NamedTuple):
    """Everything that no training text may contain."""

    questions: frozenset[str]
    facts: frozenset[Fact]
    compositions: frozenset[Composition]
    relations: frozenset[str]
    entities: frozenset[str]

    @classmethod
    def of(cls, worlds: Iterable[Decomposition | Environment]) -> Heldout:
        """What the held-out worlds among these reserve.

        Facts and questions of all held-out splits, compositions of the main one; of the harder splits also the
        entities and the relations that no training world has.
        """
        by_split: dict[str, list[Content]] = {}
        questions: set[str] = set()
        for world in worlds:
            by_split.setdefault(world.split, []).append(of_steps(world.steps))
            if world.split != "train":
                questions.add(world.question)
        train = by_split.get("train", [])
        held = [one for split, contents in by_split.items() if split != "train" for one in contents]
        main = by_split.get("heldout", [])
        train_entities = frozenset().union(*(one.entities for one in train))
        train_relations = frozenset().union(*(one.relations for one in train))
        return cls(
            frozenset(questions),
            frozenset().union(*(one.facts for one in held)),
            frozenset().union(*(one.compositions for one in main)),
            frozenset().union(*(one.relations for one in by_split.get("heldout_tools", []))) - train_relations,
            frozenset(name for one in by_split.get("heldout_entities", []) for _, name in one.facts) - train_entities,
        )

    def conflict(self, question: str, content: Content, text: str = "") -> str | None:
        """Why this must not be trained on, as a reject reason; None where it may. ``text`` is all of its words."""
        if question in self.questions:
            return "heldout_question"
        shared = content.facts & self.facts
        if shared:
            return "heldout_document" if any(kind == DOCUMENT for kind, _ in shared) else "heldout_fact"
        if content.compositions & self.compositions:
            return "heldout_composition"
        if content.relations & self.relations:
            return "heldout_tool"
        if content.entities & self.entities or _names_in(text, self.entities):
            return "heldout_entity"
        return None


def _names_in(text: str, names: frozenset[str]) -> list[str]:
    """The names that a text holds as whole words, in their own case."""
    return _pattern(names).findall(text) if text and names else []


@cache
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
