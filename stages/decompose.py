"""Decompose: questions with verified sub-questions, from tables, texts and given questions (paper section 3.3.1).

data/raw/knowledge -> data/decompose/decompositions.jsonl

What lies in the folder is recognised: tables (YAML, with CSV files of one's own), documents (text, Markdown, JSONL),
questions with or without sub-questions (JSON, JSONL, CSV; HotpotQA's, MuSiQue's and 2Wiki's layouts too). Each yields
briefs; the teacher words or divides them; every draft then passes the same deterministic checks, and what is left is
judged: the paper's four checks and QS. Splits are made by content: no training question shares a fact, a composition
or a document with a held-out one.

Departures: the paper lets the model invent questions and answers from a text; here answers are facts of tables,
computed from them, or quoted verbatim with their place. The shape is read from the graph, not taken from the model.

    python -m stages.decompose
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from astra.decomposition.checks import Check, checks
from astra.decomposition.draft import Brief, Draft, Unsound
from astra.decomposition.folder import Raw, read_folder
from astra.decomposition.given import given_briefs
from astra.decomposition.graph import shape_of
from astra.decomposition.judging import Writer, judge, threshold
from astra.decomposition.params import Params
from astra.decomposition.splitting import conflicts, split_given, unfamiliar
from astra.decomposition.tables import SHAPES, SPLITS, table_briefs
from astra.decomposition.texts import text_briefs
from astra.llm import ModelParams, Models, RequestRefused, Role, Settings
from astra.records import Decomposition, Origin, canonical, content_id
from astra.stage import Contract, Run, StageError

ROLES: tuple[Role, ...] = ("teacher", "judge")
ORIGINS: tuple[Origin, ...] = ("tables", "texts", "given")

CONTRACT = Contract(
    name="decompose",
    reads={"knowledge": "data/raw/knowledge"},
    writes={"decompositions": "data/decompose/decompositions.jsonl"},
    params={"seed": int, "decompose": Params, "models.teacher": ModelParams, "models.judge": ModelParams},
    settings={"llm": Settings},
)


def gather(raw: Raw, params: Params, seed: int) -> list[Brief]:
    """The briefs of all sources that the folder has."""
    tables = table_briefs(raw.knowledge, params, seed) if raw.knowledge.tables else ()
    return [*tables, *text_briefs(raw.documents, params, seed), *given_briefs(raw.given, params)]


def check_languages(raw: Raw, teacher: ModelParams, params: Params) -> None:
    """Raises StageError for languages that the built-in rules do not write."""
    spoken = [code for code, share in params.languages.items() if share]
    if teacher.transport == "builtin" and spoken != ["en"] and (raw.knowledge.tables or raw.documents):
        raise StageError(
            f"params.yaml: decompose.languages: {', '.join(spoken)}: the built-in teacher (models.teacher.transport) "
            f"writes English only; set models.teacher to an endpoint, or leave only en"
        )


def check_teacher(briefs: Sequence[Brief], teacher: ModelParams) -> None:
    """Raises StageError for briefs that the built-in rules cannot do."""
    for brief in briefs if teacher.transport == "builtin" else ():
        if brief.needs_endpoint is not None:
            raise StageError(
                f"{brief.needs_endpoint}; the built-in teacher cannot do that: set models.teacher to an endpoint in "
                "params.yaml, or take the file away"
            )


def compose(briefs: Sequence[Brief], teacher: Writer) -> Iterator[Draft | Unsound]:
    """A draft for each brief, or why there is none; the teacher is asked only where something is left to word."""
    replies = teacher.replies((brief.prompt, brief.kind) for brief in briefs if brief.prompt is not None)
    for brief in briefs:
        try:
            reply = None if brief.prompt is None else next(replies)
            if isinstance(reply, RequestRefused):
                raise Unsound(reply.reason, reply.detail)
            yield brief.draft(reply)
        except Unsound as error:
            yield error
    next(replies, None)  # the end is where most replies refused is an error


def verify(draft: Draft, tests: Mapping[str, Check], passed: Counter[str]) -> None:
    """Make all deterministic checks and count those that pass. Raises Unsound at the first that does not."""
    for name, test in tests.items():
        test(draft)
        passed[name] += 1


def finish(draft: Draft, scores: dict[str, float]) -> Decomposition:
    return Decomposition(
        id=content_id("decomposition", draft.question, [step.model_dump() for step in draft.steps]),
        domain=draft.domain,
        language=draft.language,
        shape=shape_of(draft.steps),
        question=draft.question,
        answer=draft.answer,
        steps=draft.steps,
        checks=scores,
        quality=fmean(scores.values()),
        split=draft.split,
        origin=draft.origin,
    )


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["decompose"]
        seed: int = run.params["seed"]
        raw = read_folder(run.path("knowledge"))
        model = models.params_of("teacher")
        check_languages(raw, model, params)
        briefs = gather(raw, params, seed)
        if not run.estimating:
            check_teacher(briefs, model)
        run.n_in = len(briefs)
        teacher, judging = (Writer(models.client(role), models.params_of(role), seed, params.reasks) for role in ROLES)
        left: Counter[str] = Counter()
        drafts = sound(run, briefs, teacher, params, left)
        found = good(run, drafts, judging, params, left)
        kept = apart(run, found, params, seed)
        run.n_out = run.write("decompositions", kept)
        run.metrics |= summary(kept) | {"left": dict(left) | {"apart": len(kept)}}


def sound(run: Run, briefs: Sequence[Brief], teacher: Writer, params: Params, left: Counter[str]) -> list[Draft]:
    """The drafts that pass the deterministic checks."""
    tests = checks(params.max_hops)
    left["briefs"] = len(briefs)
    left.update(dict.fromkeys(["written", *tests], 0))  # |= would drop a check that nothing passes
    drafts: list[Draft] = []
    written = run.progress(compose(briefs, teacher), len(briefs), "question")
    for brief, draft in zip(briefs, written, strict=True):
        try:
            if isinstance(draft, Unsound):
                raise draft
            left["written"] += 1
            verify(draft, tests, left)
            drafts.append(draft)
        except Unsound as error:
            run.reject(brief.id, error.reason, error.detail)
    return drafts


def good(run: Run, drafts: Sequence[Draft], judging: Writer, params: Params, left: Counter[str]) -> list[Decomposition]:
    """The drafts that were judged to be good enough, each once."""
    judged: list[Decomposition] = []
    for draft, scores in zip(drafts, run.progress(judge(drafts, judging), len(drafts), "judged"), strict=True):
        if isinstance(scores, Unsound):
            run.reject(content_id("draft", draft.question), scores.reason, scores.detail)
        else:
            judged.append(finish(draft, scores))
    least = threshold(params.min_quality, [one.quality for one in judged])
    run.metrics["min_quality"] = least
    found: dict[str, Decomposition] = {}
    for one in judged:
        if one.quality < least:
            run.reject(content_id("draft", one.question), "low_quality", canonical(one.checks))
        elif one.id in found:
            run.reject(one.id, "duplicate_question", one.question)
        else:
            found[one.id] = one
    left["judged"], left["quality"] = len(judged), len(found)
    return list(found.values())


def apart(run: Run, found: Sequence[Decomposition], params: Params, seed: int) -> list[Decomposition]:
    """The questions of which no training one has anything in common with a held-out one, and none is unfair."""
    given = [one for one in found if one.origin == "given"]
    split = iter(split_given(given, params.given.heldout, params.reserve.pairs, seed))
    found = [next(split) if one.origin == "given" else one for one in found]
    clear: list[Decomposition] = []
    for one, reason in zip(found, conflicts(found), strict=True):
        if reason is not None:
            run.reject(one.id, reason, "a held-out question has that, too")
        else:
            clear.append(one)
    kept: list[Decomposition] = []
    for one, is_unfamiliar in zip(clear, unfamiliar(clear), strict=True):
        if is_unfamiliar:
            run.reject(one.id, "unfamiliar_content", "a subject or relation of it occurs in no training question")
        else:
            kept.append(one)
    return kept


def summary(kept: Sequence[Decomposition]) -> dict[str, Any]:
    """Counts by split, shape, source and language, mean hops, and the share of steps that need a tool."""
    steps = [step for one in kept for step in one.steps]
    return {
        "splits": {split: sum(one.split == split for one in kept) for split in SPLITS},
        "shapes": {shape: Counter(one.shape for one in kept)[shape] for shape in SHAPES},
        "sources": {origin: Counter(one.origin for one in kept)[origin] for origin in ORIGINS},
        "languages": dict(sorted(Counter(one.language for one in kept).items())),
        "mean_hops": round(fmean(sum(step.needs_tool for step in one.steps) for one in kept), 3) if kept else 0.0,
        "tool_share": round(fmean(step.needs_tool for step in steps), 3) if steps else 0.0,
        "mean_quality": round(fmean(one.quality for one in kept), 4) if kept else 0.0,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
