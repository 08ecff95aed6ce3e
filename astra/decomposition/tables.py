"""Questions over joined tables: evidence is walked first, then worded; every answer is a fact, or computed from facts.

Splits are made by content before anything is worded: relation pairs, entities and relations are reserved by seed,
held-out questions take only reserved compositions, training questions take none and repeat no held-out fact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, NamedTuple, get_args

from astra.answers import matches
from astra.decomposition.draft import Brief, ComposeReply, Draft, StepReply, Unsound, typed
from astra.decomposition.graph import renumbered
from astra.decomposition.operations import NotComputable, Operand, computed
from astra.decomposition.params import Params
from astra.knowledge import Knowledge, Relation, Value
from astra.prompts import render
from astra.records import Answer, Shape, Split, Step, canonical
from astra.splits import Composition, Fact, beside, chained
from astra.stage import StageError

SHAPES: tuple[Shape, ...] = get_args(Shape)
SPLITS: tuple[Split, ...] = ("heldout", "heldout_entities", "heldout_tools", "train")  # held-out content is taken first
ARITHMETIC = ("sum", "difference")
CHOICES = ("which_max", "which_min")

Path = tuple[str, ...]  # relations, each read for the one before's value
Grouped = list[list[list[Path]]]  # by length, then by table


class Hop(NamedTuple):
    """One fact of the evidence."""

    relation: Relation
    subject: str
    value: Value


class Evidence(NamedTuple):
    """Branches of joined facts for one question, with the split that they belong to."""

    split: Split
    shape: Shape
    branches: tuple[tuple[Hop, ...], ...]
    operation: str | None = None
    language: str = "en"

    @property
    def paths(self) -> list[Path]:
        return [tuple(hop.relation.name for hop in branch) for branch in self.branches]

    @property
    def facts(self) -> set[Fact]:
        return {(hop.relation.name, hop.subject) for branch in self.branches for hop in branch}

    @property
    def answer(self) -> Answer:
        """What the question asks for: the last value of its branch, of all branches, or computed from those."""
        last = [branch[-1] for branch in self.branches]
        if self.operation is not None:
            return computed(self.operation, [Operand(_answer(hop), hop.subject) for hop in last])
        return _answer(last[0]) if len(last) == 1 else Answer(kind="list", value=[hop.value for hop in last])


def _answer(hop: Hop) -> Answer:
    return typed(hop.value, hop.relation.kind, hop.relation.unit)


@dataclass
class Plan:
    """What is reserved, and which facts held-out questions have taken."""

    seed: int
    share: float
    entities: frozenset[str]
    relations: frozenset[str]
    taken: set[Fact] = field(default_factory=set)

    def reserved(self, composition: Composition) -> bool:
        """True for the share of compositions that only the main held-out split may hold."""
        return random.Random(f"{self.seed}:{':'.join(composition)}").random() < self.share

    def allows(self, split: Split, paths: Sequence[Path]) -> bool:
        """Whether the relations of these paths, put together like this, may stand in that split."""
        held = sum(relation in self.relations for path in paths for relation in path)
        if (held > 0) != (split == "heldout_tools"):
            return False
        flags = [self.reserved(composition) for composition in compositions(paths)]
        if split == "heldout":
            return all(flags)
        return split != "train" or not any(flags)

    def admits(self, evidence: Evidence) -> bool:
        """Whether these very facts may stand in that split."""
        names = {str(name) for branch in evidence.branches for hop in branch for name in (hop.subject, hop.value)}
        has_reserved = bool(names & self.entities)
        if has_reserved != (evidence.split == "heldout_entities"):
            return False
        return evidence.split != "train" or not evidence.facts & self.taken


def compositions(paths: Sequence[Path]) -> set[Composition]:
    chains = {chained(first, second) for path in paths for first, second in pairwise(path)}
    return chains | {beside(one, other) for one, other in combinations(paths, 2)}


def reserve(knowledge: Knowledge, params: Params, seed: int) -> Plan:
    """Draw what is kept out of training: whole countries with all that is in them, elements, relations."""
    rng = random.Random(f"{seed}:reserve")
    ends = sorted(name for name, relation in knowledge.relations.items() if relation.target is None)
    relations = frozenset(_sample(rng, ends, params.reserve.relations, "relations", "relations that join nothing"))
    entities: set[str] = set()
    for table, name, count in (
        ("country", "countries", params.reserve.countries),
        ("element", "elements", params.reserve.elements),
    ):
        if table in knowledge.tables:
            entities |= set(_sample(rng, knowledge.keys(table), count, name, f"entities of table {table}"))
    if not entities:
        first = knowledge.tables[0]
        keys = knowledge.keys(first)
        entities = set(_sample(rng, keys, params.reserve.countries, "countries", f"entities of table {first}"))
    for relation, target in (("city_country", "country"), ("airport_city", "city")):
        if relation in knowledge.relations and target in knowledge.tables:
            entities |= {key for key, value in knowledge.facts(relation).items() if value in entities}
    if "country_holiday" in knowledge.relations:
        entities |= {str(day) for key, day in knowledge.facts("country_holiday").items() if key in entities}
    return Plan(seed, params.reserve.pairs, frozenset(entities), relations)


def _sample(rng: random.Random, items: Sequence[str], count: int, key: str, of: str) -> list[str]:
    if count >= len(items):
        raise StageError(f"params.yaml: decompose.reserve.{key}: {count}, there are {len(items)} {of}; reserve fewer")
    return rng.sample(items, count)


def relation_paths(knowledge: Knowledge, max_hops: int) -> list[Path]:
    """All chains of joined relations of at most that many hops, in a stable order."""
    paths: list[Path] = [(name,) for name in knowledge.relations]
    for path in paths:
        target = knowledge.relations[path[-1]].target
        if target is not None and len(path) < max_hops:
            paths.extend((*path, relation.name) for relation in knowledge.of_table(target) if relation.name not in path)
    return sorted(paths, key=lambda path: (len(path), path))


def walk(knowledge: Knowledge, path: Path, subject: str) -> tuple[Hop, ...] | None:
    """The facts along a path from a subject; None where one is missing or an entity comes twice."""
    hops: list[Hop] = []
    seen = {subject}
    for name in path:
        try:
            value = knowledge.value(name, subject)
        except KeyError:
            return None
        if str(value) in seen:
            return None
        hops.append(Hop(knowledge.relations[name], subject, value))
        subject = str(value)
        seen.add(subject)
    return tuple(hops)


MAX_DRAWS = 4000  # per question; a reservation under which nothing is left is a wrong parameter


@dataclass(frozen=True)
class Drawing:
    """Draws evidence for questions; every starting relation's table is equally likely."""

    knowledge: Knowledge
    paths: Sequence[Path]
    plan: Plan
    params: Params

    def evidence(self, split: Split, shape: Shape, rng: random.Random) -> Evidence:
        """Evidence for one question. Raises StageError where the reservations leave none of that shape."""
        for _ in range(MAX_DRAWS):
            chosen = self.draw_paths(shape, rng)
            if not self.plan.allows(split, chosen):
                continue
            tables = [self.knowledge.relations[path[0]].table for path in chosen]
            subjects = [rng.choice(self.knowledge.keys(table)) for table in tables]
            branches = [walk(self.knowledge, path, subject) for path, subject in zip(chosen, subjects, strict=True)]
            found = [branch for branch in branches if branch is not None]
            names = [name for branch in found for name in (branch[0].subject, *(str(hop.value) for hop in branch))]
            if len(found) < len(chosen) or len(set(names)) < len(names):
                continue
            evidence = Evidence(split, shape, tuple(found))
            if self.plan.admits(evidence):
                return evidence
        raise StageError(
            f"params.yaml: decompose.reserve: no {shape} question for split {split} in {MAX_DRAWS} draws. "
            "Reserve less, or ask for fewer questions."
        )

    def draw_paths(self, shape: Shape, rng: random.Random) -> list[Path]:
        """Relation paths of one question of that shape."""
        if shape in ("multi_hop", "parallel_multi_hop") and not self.longer:
            raise StageError(f"params.yaml: decompose.shapes.{shape}: no table joins another; add joins to a relation")
        if shape == "single_hop":
            return [_even(self.single, rng)]
        if shape == "multi_hop":
            return [_even(self.longer, rng)]
        first = _even(self.single if shape == "parallel_single_hop" else self.short, rng)
        if rng.random() < self.params.same_relation:
            return [first, first]
        second = _even(self.single if shape == "parallel_single_hop" or rng.random() < 0.5 else self.short, rng)
        return rng.sample([first, second], 2)

    @cached_property
    def single(self) -> Grouped:
        return self._grouped(lambda length: length == 1)

    @cached_property
    def longer(self) -> Grouped:
        return self._grouped(lambda length: length > 1)

    @cached_property
    def short(self) -> Grouped:
        return self._grouped(lambda length: length == 2)

    def _grouped(self, wanted: Callable[[int], bool]) -> Grouped:
        """The paths of such lengths, by length and then by the table that they start from, both sorted."""
        groups: dict[int, dict[str, list[Path]]] = {}
        for path in self.paths:
            if wanted(len(path)):
                table = self.knowledge.relations[path[0]].table
                groups.setdefault(len(path), {}).setdefault(table, []).append(path)
        return [[groups[length][table] for table in sorted(groups[length])] for length in sorted(groups)]


def _even(groups: Grouped, rng: random.Random) -> Path:
    return rng.choice(rng.choice(rng.choice(groups)))


def shapes_for(split: Split, count: int, params: Params, rng: random.Random) -> list[Shape]:
    """The shape of every question: balanced in held-out splits, by share in training."""
    if split != "train":
        return [SHAPES[place % len(SHAPES)] for place in range(count)]
    weights = [getattr(params.shapes, shape) for shape in SHAPES]
    return rng.choices(SHAPES, weights=weights, k=count)


def gather(knowledge: Knowledge, params: Params, seed: int) -> list[Evidence]:
    """All evidence, held-out splits first, so that training can avoid their facts. No two ask for the same."""
    plan = reserve(knowledge, params, seed)
    drawing = Drawing(knowledge, relation_paths(knowledge, params.max_hops), plan, params)
    found: list[Evidence] = []
    seen: set[tuple[Any, ...]] = set()
    for split in SPLITS:
        rng = random.Random(f"{seed}:{split}")
        for shape in shapes_for(split, getattr(params.questions, split), params, rng):
            for _ in range(MAX_DRAWS):
                evidence = drawing.evidence(split, shape, rng)
                key = _key(evidence)
                if key not in seen:
                    break
            else:
                raise StageError(f"params.yaml: decompose.questions.{split}: the tables hold no more {shape} questions")
            seen.add(key)
            found.append(evidence)
            if split != "train":
                plan.taken |= evidence.facts
    return [asked_for(one, params, seed) for one in found]


def _key(evidence: Evidence) -> tuple[tuple[Path, str], ...]:
    starts = [branch[0].subject for branch in evidence.branches]
    return tuple(sorted(zip(evidence.paths, starts, strict=True)))


def asked_for(evidence: Evidence, params: Params, seed: int) -> Evidence:
    """The evidence with the language of its question and, for a share, an operation over two numbers.

    Drawn from the facts themselves, so that neither share moves any other draw.
    """
    rng = random.Random(f"{seed}:asked:{sorted(evidence.facts)}")
    spoken = rng.choices(list(params.languages), weights=list(params.languages.values()))[0]
    evidence = evidence._replace(language=spoken)
    last = [branch[-1].relation for branch in evidence.branches]
    if len(last) < 2 or last[0].kind != "number" or len(set(last)) > 1 or rng.random() >= params.computed:
        return evidence
    choosable = all(len(branch) == 1 for branch in evidence.branches)  # a choice names the entities of the question
    for operation in rng.sample(options := ARITHMETIC + (CHOICES if choosable else ()), len(options)):
        try:
            answer = evidence._replace(operation=operation).answer
        except NotComputable:
            continue
        if all(answer.value != branch[-1].value for branch in evidence.branches):
            return evidence._replace(operation=operation)
    return evidence


# ---------------------------------------------------------------- briefs


@dataclass(frozen=True)
class TableBrief(Brief):
    """A question to be worded over evidence whose answers are known."""

    id: str
    evidence: Evidence

    @property
    def prompt(self) -> str:
        return render("decompose/compose", input=shown(self.evidence))

    def draft(self, reply: ComposeReply) -> Draft:
        """The draft, whose answers are those of the tables. Raises Unsound where the reply has others."""
        evidence = self.evidence
        steps = to_steps(reply, evidence)
        if not matches(evidence.answer, reply.answer):
            raise Unsound("answer_not_derivable", f"answer {reply.answer!r}, the steps give {evidence.answer.value!r}")
        domain = evidence.branches[0][0].relation.table
        return Draft("tables", evidence.split, domain, evidence.language, reply.question, evidence.answer, steps)


def shown(evidence: Evidence) -> str:
    """The evidence as the teacher reads it."""
    branches = [
        [{"relation": hop.relation.name, "label": hop.relation.label, "table": hop.relation.table,
          "subject": hop.subject, "value": hop.value} for hop in branch]
        for branch in evidence.branches
    ]  # fmt: skip
    value = {"shape": evidence.shape, "language": evidence.language, "branches": branches}
    if evidence.operation is not None:
        value |= {"operation": evidence.operation, "answer": evidence.answer.value}
    return canonical(value)


def to_steps(reply: ComposeReply, evidence: Evidence) -> tuple[Step, ...]:
    """The reply's steps with typed answers. Raises Unsound where one does not fit the evidence or the graph."""
    hops = {(hop.relation.name, hop.subject): hop for branch in evidence.branches for hop in branch}
    steps: list[Step] = []
    for one in renumbered(reply.steps):
        answer, operation = typed(one.answer, "text"), None
        if one.needs_tool:
            hop = hops.pop((one.relation or "", one.subject or ""), None)
            if hop is None or not matches(_answer(hop), one.answer):
                raise Unsound("answer_not_derivable", f"step {one.id}: {one.relation} of {one.subject}: {one.answer!r}")
            answer = _answer(hop)
        elif evidence.operation is not None:
            answer, operation = evidence.answer, evidence.operation
            if not matches(answer, one.answer):
                raise Unsound(
                    "answer_not_derivable", f"step {one.id}: {one.answer!r}, {operation} gives {answer.value!r}"
                )
        steps.append(_step(one, answer, operation))
    if hops:
        raise Unsound("fact_unused", f"no step asks for {sorted(hops)}")
    return tuple(steps)


def _step(one: StepReply, answer: Answer, operation: str | None) -> Step:
    return Step(
        id=one.id, question=one.question, answer=answer, depends_on=tuple(one.depends_on), needs_tool=one.needs_tool,
        relation=one.relation, subject=one.subject, operation=operation,
    )  # fmt: skip


def table_briefs(knowledge: Knowledge, params: Params, seed: int) -> Iterator[TableBrief]:
    """A brief for every question asked of the tables."""
    for place, evidence in enumerate(gather(knowledge, params, seed)):
        yield TableBrief(f"evidence-{place}", evidence)
