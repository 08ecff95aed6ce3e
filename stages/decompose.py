"""Decompose: questions over joined facts, each with sub-questions whose answers are computed (paper section 3.3.1).

data/raw/knowledge -> data/decompose/decompositions.jsonl

Evidence is walked first (facts whose value is the next one's subject), then the teacher words the question and the
sub-questions, then the stage checks: every answer against the tables, the dependency graph (no cycle, no dangling or
forward reference), the needed-tool rule, the answer not standing in the question; then the judge's four checks and QS.

Departures: the paper lets the model invent questions and answers from a text; here answers are facts and none is
guessed. Splits are made by content before anything is worded: relation pairs, entities and relations are reserved by
seed, held-out questions take only reserved compositions, training questions take none and repeat no held-out fact.

    python -m stages.decompose
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, Field

from astra.knowledge import Knowledge, KnowledgeError, Relation, Value
from astra.llm import Client, Completion, ModelParams, Models, Request, RequestRefused, Role, Settings
from astra.llm.reply import parse_json, validate
from astra.prompts import render
from astra.records import Answer, Decomposition, Message, Section, Shape, Split, Step, canonical, content_id
from astra.splits import Composition, Fact, beside, chained, of_steps
from astra.stage import Contract, Run, StageError

SHAPES: tuple[Shape, ...] = get_args(Shape)
ROLES: tuple[Role, ...] = ("teacher", "judge")
SPLITS: tuple[Split, ...] = ("heldout", "heldout_entities", "heldout_tools", "train")  # held-out content is taken first


class Counts(Section):
    train: int = Field(ge=0, description="Training questions.")
    heldout: int = Field(ge=0, description="Held-out questions: seen entities and relations, unseen facts.")
    heldout_entities: int = Field(ge=0, description="Questions over reserved entities.")
    heldout_tools: int = Field(ge=0, description="Questions that need a reserved relation.")


class Shares(Section):
    single_hop: float = Field(ge=0)
    parallel_single_hop: float = Field(ge=0)
    multi_hop: float = Field(ge=0)
    parallel_multi_hop: float = Field(ge=0)


class Reserve(Section):
    pairs: float = Field(gt=0, lt=1, description="Share of compositions kept for the main held-out split.")
    countries: int = Field(ge=1, description="Countries kept out, with their cities, airports and holidays.")
    elements: int = Field(ge=0, description="Chemical elements kept out.")
    relations: int = Field(ge=1, description="Relations (tools) kept out; only such that end a path.")


class Params(Section):
    questions: Counts
    shapes: Shares = Field(
        description="How training questions spread over the four shapes; held-out ones are balanced."
    )
    max_hops: int = Field(ge=2, le=4, description="Longest chain of facts (the paper's hop budget H).")
    same_relation: float = Field(
        ge=0, le=1, description="Share of parallel questions asking one thing of two subjects."
    )
    reserve: Reserve
    reasks: int = Field(ge=0, le=5, description="Further tries for a reply that cannot be used.")
    min_quality: float = Field(ge=0, le=1, description="QS below this is a reject.")


CONTRACT = Contract(
    name="decompose",
    reads={"knowledge": "data/raw/knowledge/knowledge.yaml"},
    writes={"decompositions": "data/decompose/decompositions.jsonl"},
    params={"seed": int, "decompose": Params, "models.teacher": ModelParams, "models.judge": ModelParams},
    settings={"llm": Settings},
)

Path = tuple[str, ...]  # relations, each read for the one before's value


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

    @property
    def paths(self) -> list[Path]:
        return [tuple(hop.relation.name for hop in branch) for branch in self.branches]

    @property
    def facts(self) -> set[Fact]:
        return {(hop.relation.name, hop.subject) for branch in self.branches for hop in branch}


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
    relations = frozenset(rng.sample(ends, params.reserve.relations))
    entities: set[str] = set()
    if "country" in knowledge.tables:
        entities |= set(rng.sample(knowledge.keys("country"), params.reserve.countries))
    if "element" in knowledge.tables:
        entities |= set(rng.sample(knowledge.keys("element"), params.reserve.elements))
    if not entities:
        entities = set(rng.sample(knowledge.keys(knowledge.tables[0]), params.reserve.countries))
    for relation, target in (("city_country", "country"), ("airport_city", "city")):
        if relation in knowledge.relations and target in knowledge.tables:
            entities |= {key for key, value in knowledge.facts(relation).items() if value in entities}
    if "country_holiday" in knowledge.relations:
        entities |= {str(day) for key, day in knowledge.facts("country_holiday").items() if key in entities}
    return Plan(seed, params.reserve.pairs, frozenset(entities), relations)


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


def draw_paths(shape: Shape, paths: list[Path], same_relation: float, rng: random.Random) -> list[Path]:
    """Relation paths of one question of that shape; every starting relation's table is equally likely."""
    single = [path for path in paths if len(path) == 1]
    longer = [path for path in paths if len(path) > 1]
    if shape == "single_hop":
        return [_even(single, rng)]
    if shape == "multi_hop":
        return [_even(longer, rng)]
    short = [path for path in longer if len(path) == 2]
    first = _even(single if shape == "parallel_single_hop" else short, rng)
    if rng.random() < same_relation:
        return [first, first]
    second = _even(single if shape == "parallel_single_hop" or rng.random() < 0.5 else short, rng)
    return rng.sample([first, second], 2)


def _even(paths: Sequence[Path], rng: random.Random) -> Path:
    length = rng.choice(sorted({len(path) for path in paths}))
    some = [path for path in paths if len(path) == length]
    table = rng.choice(sorted({path[0].split("_")[0] for path in some}))
    return rng.choice([path for path in some if path[0].split("_")[0] == table])


MAX_DRAWS = 4000  # per question; a reservation under which nothing is left is a wrong parameter


def draw(split: Split, shape: Shape, knowledge: Knowledge, paths: list[Path], plan: Plan, params: Params,
         rng: random.Random) -> Evidence:  # fmt: skip
    """Evidence for one question. Raises StageError where the reservations leave none of that shape."""
    for _ in range(MAX_DRAWS):
        chosen = draw_paths(shape, paths, params.same_relation, rng)
        if not plan.allows(split, chosen):
            continue
        subjects = [rng.choice(knowledge.keys(knowledge.relations[path[0]].table)) for path in chosen]
        branches = [walk(knowledge, path, subject) for path, subject in zip(chosen, subjects, strict=True)]
        found = [branch for branch in branches if branch is not None]
        names = [name for branch in found for name in (branch[0].subject, *(str(hop.value) for hop in branch))]
        if len(found) < len(chosen) or len(set(names)) < len(names):
            continue
        evidence = Evidence(split, shape, tuple(found))
        if plan.admits(evidence):
            return evidence
    raise StageError(
        f"params.yaml: decompose.reserve: no {shape} question for split {split} in {MAX_DRAWS} draws. "
        "Reserve less, or ask for fewer questions."
    )


def shapes_for(split: Split, count: int, params: Params, rng: random.Random) -> list[Shape]:
    """The shape of every question: balanced in held-out splits, by share in training."""
    if split != "train":
        return [SHAPES[place % len(SHAPES)] for place in range(count)]
    weights = [getattr(params.shapes, shape) for shape in SHAPES]
    return rng.choices(SHAPES, weights=weights, k=count)


def gather(knowledge: Knowledge, params: Params, seed: int) -> list[Evidence]:
    """All evidence, held-out splits first, so that training can avoid their facts. No two ask for the same."""
    plan = reserve(knowledge, params, seed)
    paths = relation_paths(knowledge, params.max_hops)
    found: list[Evidence] = []
    seen: set[tuple[Any, ...]] = set()
    for split in SPLITS:
        rng = random.Random(f"{seed}:{split}")
        for shape in shapes_for(split, getattr(params.questions, split), params, rng):
            for _ in range(MAX_DRAWS):
                evidence = draw(split, shape, knowledge, paths, plan, params, rng)
                key = tuple(sorted((path, branch[0].subject) for path, branch in zip(evidence.paths, evidence.branches,
                                                                                    strict=True)))  # fmt: skip
                if key not in seen:
                    break
            else:
                raise StageError(f"params.yaml: decompose.questions.{split}: the tables hold no more {shape} questions")
            seen.add(key)
            found.append(evidence)
            if split != "train":
                plan.taken |= evidence.facts
    return found


# ---------------------------------------------------------------- wording, and what may be wrong with it


class StepReply(BaseModel):
    id: int
    question: str = Field(min_length=1)
    answer: Any
    depends_on: list[int]
    needs_tool: bool
    relation: str | None
    subject: str | None


class ComposeReply(BaseModel):
    question: str = Field(min_length=1)
    answer: Any
    steps: list[StepReply] = Field(min_length=1)


class StepVerdict(BaseModel):
    id: int
    dependency: int = Field(ge=0, le=1)
    atomicity: int = Field(ge=0, le=1)
    rationality: int = Field(ge=0, le=1)


class VerifyReply(BaseModel):
    steps: list[StepVerdict]
    completeness: int = Field(ge=0, le=1)
    reason: str


class Unsound(Exception):
    """A decomposition that fails a deterministic check."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def shown(evidence: Evidence) -> str:
    """The evidence as the teacher reads it."""
    branches = [
        [{"relation": hop.relation.name, "label": hop.relation.label, "table": hop.relation.table,
          "subject": hop.subject, "value": hop.value} for hop in branch]
        for branch in evidence.branches
    ]  # fmt: skip
    return canonical({"shape": evidence.shape, "language": "en", "branches": branches})


def typed(value: Any, kind: str, unit: str | None = None) -> Answer:
    """A table's value as an expected answer."""
    if isinstance(value, list):
        return Answer(kind="list", value=value)
    if kind in ("number", "date"):
        return Answer.model_validate({"kind": kind, "value": value, "unit": unit})
    return Answer(kind="text", value=value)


def to_steps(reply: ComposeReply, evidence: Evidence) -> tuple[Step, ...]:
    """The reply's steps with typed answers. Raises Unsound where one does not fit the evidence or the graph."""
    hops = {(hop.relation.name, hop.subject): hop for branch in evidence.branches for hop in branch}
    steps: list[Step] = []
    for number, one in enumerate(reply.steps, 1):
        if one.id != number or any(not 1 <= before < number for before in one.depends_on):
            raise Unsound("bad_dependency", f"step {one.id} at place {number} depends on {one.depends_on}")
        if one.needs_tool:
            hop = hops.pop((one.relation or "", one.subject or ""), None)
            if hop is None or hop.value != one.answer:
                raise Unsound("answer_not_derivable", f"step {number}: {one.relation} of {one.subject}: {one.answer!r}")
            answer = typed(hop.value, hop.relation.kind, hop.relation.unit)
        else:
            answer = typed(one.answer, "text")
        steps.append(Step(id=number, question=one.question, answer=answer, depends_on=tuple(one.depends_on),
                          needs_tool=one.needs_tool, relation=one.relation, subject=one.subject))  # fmt: skip
    if hops:
        raise Unsound("fact_unused", f"no step asks for {sorted(hops)}")
    return tuple(steps)


def check(question: str, answer: Any, steps: Sequence[Step], evidence: Evidence) -> None:
    """The deterministic checks. Raises Unsound."""
    needed = {before for step in steps for before in step.depends_on}
    for step in steps:
        if step.id in needed and not step.needs_tool:
            raise Unsound("needed_step_without_tool", f"step {step.id}: {step.question}")
    last = [branch[-1].value for branch in evidence.branches]
    if answer != (last if len(last) > 1 else last[0]):
        raise Unsound("answer_not_derivable", f"answer {answer!r}, the steps give {last!r}")
    for branch in evidence.branches:
        for hop in branch:
            if contains(question, str(hop.value)):
                raise Unsound("answer_in_question", f"{hop.value!r} stands in {question!r}")


def contains(text: str, value: str) -> bool:
    """True where the text has the value as whole words, whatever the case."""
    padded = "".join(char if char.isalnum() else " " for char in f" {text} ".casefold())
    wanted = "".join(char if char.isalnum() else " " for char in value.casefold())
    return f" {' '.join(wanted.split())} " in f" {' '.join(padded.split())} "


def quality(verdicts: VerifyReply, steps: Sequence[Step]) -> dict[str, float]:
    """DC, SA, SR (means over steps) and TC. Raises Unsound where a step was not judged."""
    if [one.id for one in verdicts.steps] != [step.id for step in steps]:
        raise Unsound("unjudged", f"judged steps {[one.id for one in verdicts.steps]} of {len(steps)}")
    return {
        "DC": fmean(one.dependency for one in verdicts.steps),
        "SA": fmean(one.atomicity for one in verdicts.steps),
        "SR": fmean(one.rationality for one in verdicts.steps),
        "TC": float(verdicts.completeness),
    }


def compose(evidence: Sequence[Evidence], teacher: Writer) -> Iterator[Draft | Unsound]:
    """A checked draft for each evidence, or why there is none."""
    prompts = (render("decompose/compose", input=shown(one)) for one in evidence)
    for one, reply in zip(evidence, teacher.replies(prompts, ComposeReply), strict=True):
        try:
            if isinstance(reply, RequestRefused):
                raise Unsound(reply.reason, reply.detail)
            steps = to_steps(reply, one)
            check(reply.question, reply.answer, steps, one)
            yield Draft(one, reply.question, typed(reply.answer, _kind(one), _unit(one)), steps)
        except Unsound as error:
            yield error


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Writer:
    """A role's model, whose replies are records."""

    client: Client
    model: ModelParams
    seed: int
    reasks: int

    def replies(self, prompts: Iterable[str], kind: type[M]) -> Iterator[M | RequestRefused]:
        """The reply to each prompt as a record, or why there is none."""

        def read(reply: Completion) -> M:
            return validate(kind, parse_json(reply.content or ""))

        schema = kind.model_json_schema()
        asked = (
            (Request(model=self.model, messages=(Message(role="user", content=text),), seed=self.seed,
                     json_schema=schema), read)
            for text in prompts
        )  # fmt: skip
        return self.client.read_all(asked, self.reasks)


class Draft(NamedTuple):
    """A worded question that passed the deterministic checks."""

    evidence: Evidence
    question: str
    answer: Answer
    steps: tuple[Step, ...]


def _kind(evidence: Evidence) -> str:
    return evidence.branches[0][-1].relation.kind


def _unit(evidence: Evidence) -> str | None:
    return evidence.branches[0][-1].relation.unit if len(evidence.branches) == 1 else None


def verify_prompt(draft: Draft) -> str:
    """What the judge sees of a draft."""
    steps = [
        {"id": step.id, "question": step.question, "answer": step.answer.value,
         "depends_on": list(step.depends_on), "needs_tool": step.needs_tool}
        for step in draft.steps
    ]  # fmt: skip
    text = canonical({"question": draft.question, "answer": draft.answer.value, "steps": steps})
    return render("decompose/verify", input=text)


def judge(drafts: Sequence[Draft], judging: Writer) -> Iterator[dict[str, float] | Unsound]:
    """The paper's four checks of each draft, or why it could not be judged."""
    for draft, reply in zip(drafts, judging.replies(map(verify_prompt, drafts), VerifyReply), strict=True):
        try:
            if isinstance(reply, RequestRefused):
                raise Unsound("unjudged", f"{reply.reason}: {reply.detail}")
            yield quality(reply, draft.steps)
        except Unsound as error:
            yield error


def finish(draft: Draft, checks: dict[str, float]) -> Decomposition:
    return Decomposition(
        id=content_id("decomposition", draft.question, [step.model_dump() for step in draft.steps]),
        domain=draft.evidence.branches[0][0].relation.table,
        language="en",
        shape=draft.evidence.shape,
        question=draft.question,
        answer=draft.answer,
        steps=draft.steps,
        checks=checks,
        quality=fmean(checks.values()),
        split=draft.evidence.split,
    )


def unfamiliar(one: Decomposition, entities: frozenset[str], relations: frozenset[str]) -> bool:
    """True for a main held-out question with a subject or relation that training never shows: no fair test of facts."""
    content = of_steps(one.steps)
    subjects = {subject for _, subject in content.facts}
    return one.split == "heldout" and not (subjects <= entities and content.relations <= relations)


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["decompose"]
        seed = run.params["seed"]
        try:
            knowledge = Knowledge.load(run.path("knowledge"))
        except KnowledgeError as error:
            raise StageError(str(error)) from None
        evidence = gather(knowledge, params, seed)
        run.n_in = len(evidence)
        teacher, judging = (Writer(models.client(role), models.params_of(role), seed, params.reasks) for role in ROLES)
        drafts: list[Draft] = []
        for place, draft in enumerate(compose(evidence, teacher)):
            if isinstance(draft, Unsound):
                run.reject(f"evidence-{place}", draft.reason, draft.detail)
            else:
                drafts.append(draft)
        found: list[Decomposition] = []
        for draft, checks in zip(drafts, judge(drafts, judging), strict=True):
            if isinstance(checks, Unsound):
                run.reject(content_id("draft", draft.question), checks.reason, checks.detail)
            elif fmean(checks.values()) < params.min_quality:
                run.reject(content_id("draft", draft.question), "low_quality", canonical(checks))
            else:
                found.append(finish(draft, checks))
        trained = [of_steps(one.steps) for one in found if one.split == "train"]
        entities = frozenset().union(*(content.entities for content in trained))
        relations = frozenset().union(*(content.relations for content in trained))
        kept = []
        for one in found:
            if unfamiliar(one, entities, relations):
                run.reject(one.id, "unfamiliar_content", "a subject or relation of it occurs in no training question")
            else:
                kept.append(one)
        run.n_out = run.write("decompositions", kept)
        run.metrics |= summary(kept)


def summary(kept: Sequence[Decomposition]) -> dict[str, Any]:
    """Counts by split and shape, mean hops, and the share of steps that need a tool."""
    steps = [step for one in kept for step in one.steps]
    return {
        "splits": {split: sum(one.split == split for one in kept) for split in SPLITS},
        "shapes": {shape: Counter(one.shape for one in kept)[shape] for shape in SHAPES},
        "mean_hops": round(fmean(sum(step.needs_tool for step in one.steps) for one in kept), 3) if kept else 0.0,
        "tool_share": round(fmean(step.needs_tool for step in steps), 3) if steps else 0.0,
        "mean_quality": round(fmean(one.quality for one in kept), 4) if kept else 0.0,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
