"""Training rows against fingerprints: which row is too like which case, and how."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from astra.decontamination.benchmarks import BENCHMARKS, NotThere, collect, locate
from astra.decontamination.fingerprints import (
    FEWEST_WHOLE,
    Fingerprints,
    Hashes,
    Places,
    fingerprint,
    grams_of,
    name_key,
    parameters_key,
    signature_key,
    tool_vectors,
    whole_key,
)
from astra.decontamination.report import DecontaminationReport, Fingerprinted, Hit, Kind, NotAvailable, counted
from astra.decontamination.settings import Decontaminating, Thresholds
from astra.encoder import Vectors, hashed, words
from astra.records import ToolSpec, Trajectory, canonical
from astra.stage import StageError

FEWEST_GRAMS = 3  # one group in common ("what is the capital of") says nothing, however short the question
FEWEST_DESCRIBED = 6  # words of a description that says enough to be compared by itself ("Capital of a country.")
FEWEST_DOCUMENTED = 12  # words of a tool's name, description and parameters, likewise
BLOCK = 2048  # rows of a similarity matrix that are in memory at a time


class TrainingRow(NamedTuple):
    """What of a row is compared: its user messages and its tools."""

    id: str
    messages: tuple[str, ...]
    tools: tuple[ToolSpec, ...]

    @classmethod
    def of(cls, one: Trajectory) -> TrainingRow:
        """A trajectory's user messages and all tools that it ever offers."""
        asked = tuple(message.content or "" for message in one.messages if message.role == "user")
        return cls(one.id, asked, (*one.tools, *(tool for later in one.late for tool in later.tools)))


class Match(NamedTuple):
    """A text or tool of ours beside a case."""

    kind: Kind
    benchmark: str
    case_id: str
    score: float


class Gathered(NamedTuple):
    """Fingerprints of the wanted benchmarks that are here, and what to do about the others."""

    fingerprints: Fingerprints
    missing: tuple[NotAvailable, ...]


def gather(how: Decontaminating) -> Gathered:
    """Fingerprints from the file that ``how`` names, else of every wanted benchmark that is here. Raises StageError."""
    if how.fingerprints is not None:
        return _stored(Path(how.fingerprints), how)
    corpora, missing = [], []
    for name in how.benchmarks:
        try:
            corpora.append(collect(name, locate(name, how.paths, how.environments)))
        except NotThere as absence:
            missing.append(NotAvailable(benchmark=name, remedy=str(absence)))
    return Gathered(fingerprint(corpora, how.encoder), tuple(missing))


def _stored(path: Path, how: Decontaminating) -> Gathered:
    if not path.is_file():
        raise StageError(
            f"{path}: no such file of fingerprints. Make it: python -m astra.decontamination --fingerprints {path}"
        )
    stored = Fingerprints.load(path)
    if stored.encoder.name != how.encoder:
        raise StageError(f"{path}: made with encoder {stored.encoder.name}, params say {how.encoder}. Make it anew")
    there = {one.name for one in stored.known}
    missing = [name for name in how.benchmarks if name not in there]
    return Gathered(
        stored,
        tuple(NotAvailable(benchmark=name, remedy=f"not in {path}: {BENCHMARKS[name].remedy}") for name in missing),
    )


def decontaminate(
    rows: Sequence[TrainingRow], how: Decontaminating, gathered: Gathered | None = None
) -> DecontaminationReport:
    """Compare all rows with the wanted benchmarks that are here; what is not here is in the report too."""
    known, missing = gathered or gather(how)
    found = find(rows, known, how.thresholds) if known.known else Found([], {})
    return DecontaminationReport(
        fingerprinted=tuple(
            Fingerprinted(
                benchmark=one.name,
                version=one.version,
                n_tools=one.n_tools,
                n_questions=one.n_questions,
                n_too_short=one.n_short,
            )
            for one in known.known
        ),
        not_available=missing,
        encoder=known.encoder.name,
        thresholds={name: float(value) for name, value in how.thresholds.model_dump().items()},
        n_rows=len(rows),
        rows_digest=digest_of(rows),
        n_rows_hit=len({hit.row_id for hit in found.hits}),
        hits_by_kind=counted(found.hits),
        names_only=found.names_only,
        hits=tuple(found.hits),
    )


def digest_of(rows: Iterable[TrainingRow]) -> str:
    """sha256 over the rows in order."""
    content = hashlib.sha256()
    for row in rows:
        parts = [row.id, list(row.messages), [tool.openai()["function"] for tool in row.tools]]
        content.update(canonical(parts).encode() + b"\n")
    return content.hexdigest()


class Found(NamedTuple):
    hits: list[Hit]
    names_only: dict[str, int]


def find(rows: Sequence[TrainingRow], known: Fingerprints, thresholds: Thresholds) -> Found:
    """Every row's hits in row order; equal messages and tools are looked at once."""
    texts = {text: place for place, text in enumerate(dict.fromkeys(text for row in rows for text in row.messages))}
    specs = {_tool_key(tool): tool for row in rows for tool in row.tools}
    by_text = question_matches(list(texts), known, thresholds)
    tools = list(specs.values())
    by_tool, names_only = tool_matches(tools, known, thresholds)
    matches = dict(zip(specs, by_tool, strict=True))
    families = Families(known, thresholds.family)
    hits: list[Hit] = []
    for row in rows:
        parts = [
            (f"message {number}", match) for number, text in enumerate(row.messages) for match in by_text[texts[text]]
        ]
        parts += [(f"tool {tool.name}", match) for tool in row.tools for match in matches[_tool_key(tool)]]
        parts += [("tools", match) for match in families.of(tool.name for tool in row.tools)]
        hits += _best(row.id, parts)
    return Found(hits, names_only)


def _tool_key(tool: ToolSpec) -> str:
    return canonical([tool.name, tool.description, tool.parameters])


def _best(row_id: str, parts: Iterable[tuple[str, Match]]) -> Iterator[Hit]:
    """The best match of each kind and benchmark, in the order in which kinds come up."""
    best: dict[tuple[str, str], tuple[str, Match]] = {}
    for part, match in parts:
        key = (match.kind, match.benchmark)
        if key not in best or match.score > best[key][1].score:
            best[key] = (part, match)
    for part, match in best.values():
        yield Hit(row_id=row_id, part=part, **match._asdict())


# ---- questions


def question_matches(texts: Sequence[str], known: Fingerprints, thresholds: Thresholds) -> list[list[Match]]:
    """For each text, of every benchmark, the best matching question by whole, by word groups and by meaning."""
    found: list[list[Match]] = [[] for _ in texts]
    wholes: dict[int, dict[int, int]] = {}  # hash -> benchmark -> question
    for question, (key, benchmark) in enumerate(
        zip(known.question_whole.tolist(), known.question_benchmark.tolist(), strict=True)
    ):
        wholes.setdefault(key, {}).setdefault(benchmark, question)
    for place, text in enumerate(texts):
        for piece in [text, *sentences(text)]:
            if len(words(piece)) >= FEWEST_WHOLE:
                same = wholes.get(whole_key(piece), {}).values()
                found[place] += [_question(known, "question_whole", question, 1.0) for question in same]
    for place, question, share in shared_grams(texts, known):
        if share >= thresholds.ngrams:
            found[place].append(_question(known, "question_ngrams", question, share))
    pieces = [(place, piece) for place, text in enumerate(texts) for piece in windows(text)]
    for start in range(0, len(pieces), BLOCK):
        block = pieces[start : start + BLOCK]
        vectors = known.encoder.encode([piece for _, piece in block])
        for at, question, score in nearest(
            vectors, known.question_vector, known.question_benchmark, thresholds.question
        ):
            found[block[at][0]].append(_question(known, "question_meaning", question, score))
    return found


def _question(known: Fingerprints, kind: Kind, question: int, score: float) -> Match:
    benchmark = known.known[known.question_benchmark[question]].name
    return Match(kind, benchmark, str(known.question_id[question]), round(min(float(score), 1.0), 4))


_SENTENCE = re.compile(r"(?<=[.!?;:。！？])\s+|\n+")


def sentences(text: str) -> list[str]:
    """The sentences of a text that has more than one."""
    pieces = [piece for piece in _SENTENCE.split(text) if piece.strip()]
    return pieces if len(pieces) > 1 else []


def windows(text: str) -> Iterator[str]:
    """The text, its sentences and its pairs of sentences: a question may stand inside a longer message."""
    pieces = sentences(text)
    pairs = [" ".join(pieces[at : at + 2]) for at in range(len(pieces) - 1)] if len(pieces) > 2 else []
    for piece in dict.fromkeys([text, *pieces, *pairs]):
        if len(words(piece)) >= FEWEST_WHOLE:  # a question of FEWEST_WORDS may have lost some
            yield piece


def shared_grams(texts: Sequence[str], known: Fingerprints) -> Iterator[tuple[int, int, float]]:
    """Text, the question of a benchmark that it holds the largest share of, and that share of its word groups."""
    for place, text in enumerate(texts):
        grams = grams_of(text)
        first = np.searchsorted(known.gram, grams, "left")
        last = np.searchsorted(known.gram, grams, "right")
        spans = [known.gram_question[a:b] for a, b in zip(first, last, strict=True) if b > a]
        if not spans:
            continue
        owners, counts = np.unique(np.concatenate(spans), return_counts=True)
        shares = np.where(counts >= FEWEST_GRAMS, counts / known.question_grams[owners], 0)
        for benchmark in np.unique(known.question_benchmark[owners]):
            best = int(np.where(known.question_benchmark[owners] == benchmark, shares, -1).argmax())
            yield place, int(owners[best]), float(shares[best])


def nearest(
    vectors: Vectors, fingerprints: Vectors, benchmarks: Places, least: float
) -> Iterator[tuple[int, int, float]]:
    """Row, its most similar fingerprint of a benchmark and the cosine, where that is at least ``least``.

    Fingerprints of one benchmark stand together; ``benchmarks`` says which is whose.
    """
    starts = np.flatnonzero(np.diff(benchmarks, prepend=-1)).tolist()
    spans = list(zip(starts, [*starts[1:], len(benchmarks)], strict=True))
    for row in range(0, len(vectors), BLOCK):
        for first, last in spans:
            similarity = vectors[row : row + BLOCK] @ fingerprints[first:last].T  # (block, fingerprints)
            best = similarity.argmax(axis=1)
            scores = similarity[np.arange(len(best)), best]
            for at in np.flatnonzero(scores >= least):
                yield row + int(at), first + int(best[at]), float(scores[at])


# ---- tools


def tool_matches(
    tools: Sequence[ToolSpec], known: Fingerprints, thresholds: Thresholds
) -> tuple[list[list[Match]], dict[str, int]]:
    """For each tool its matches, best of each kind; and how many only share a name, by benchmark."""
    found: list[list[Match]] = [[] for _ in tools]
    names_only: Counter[str] = Counter()
    if not tools or not len(known.tool_id):
        return found, {}
    described = [_described(tool) for tool in tools]
    descriptions, documents = tool_vectors(known.encoder, described)
    telling = np.array([_tells(*one) for one in described], dtype=bool)  # (N, 2)
    for place, tool, score in nearest(
        descriptions * telling[:, :1], known.tool_description, known.tool_benchmark, thresholds.description
    ):
        found[place].append(_tool(known, "tool_description", tool, score))
    for place, tool, score in nearest(
        documents * telling[:, 1:], known.tool_document, known.tool_benchmark, thresholds.document
    ):
        found[place].append(_tool(known, "tool_document", tool, score))
    for place, (name, _, parameters, _) in enumerate(described):
        similar = known.tool_document @ documents[place]  # (T,)
        same_name = known.tool_name == np.uint64(hashed(name_key(name)))
        equal: tuple[tuple[Kind, NDArray[np.bool_], float], ...] = (
            ("tool_signature", _equal(known.tool_signature, signature_key(name, parameters)), -1.0),
            ("tool_name", same_name, thresholds.support),
            ("tool_parameters", _equal(known.tool_parameters, parameters_key(parameters)), thresholds.support),
        )
        for kind, same, least in equal:
            for benchmark in np.unique(known.tool_benchmark[same]):
                tool = int(np.where(same & (known.tool_benchmark == benchmark), similar, -2).argmax())
                if similar[tool] >= least:
                    score = 1.0 if kind == "tool_signature" else float(similar[tool])
                    found[place].append(_tool(known, kind, tool, score))
        if same_name.any() and not found[place]:
            names_only.update({known.known[at].name for at in known.tool_benchmark[same_name]})
    return found, dict(sorted(names_only.items()))


def _equal(hashes: Hashes, key: int) -> NDArray[np.bool_]:
    """Where a hash is this one; nowhere for 0, which stands for too little to say."""
    return hashes == np.uint64(key) if key else np.zeros(len(hashes), dtype=bool)


def _tells(name: str, description: str, parameters: Sequence[str], texts: Sequence[str]) -> tuple[bool, bool]:
    """Whether a description, and whether a whole document, has words enough to be compared by meaning."""
    said = set(words(description))
    everything = said.union(*(words(text) for text in (name, *parameters, *texts)))
    return len(said) >= FEWEST_DESCRIBED, len(everything) >= FEWEST_DOCUMENTED


def _described(tool: ToolSpec) -> tuple[str, str, Sequence[str], Sequence[str]]:
    properties: Mapping[str, object] = tool.parameters.get("properties", {})
    texts = [str(one.get("description") or "") for one in properties.values() if isinstance(one, dict)]
    return tool.name, tool.description, tuple(properties), texts


def _tool(known: Fingerprints, kind: Kind, tool: int, score: float) -> Match:
    benchmark = known.known[known.tool_benchmark[tool]].name
    return Match(kind, benchmark, str(known.tool_id[tool]), round(min(score, 1.0), 4))


class Families:
    """Finds rows whose tools bear the names of one API's tools, however their documents are worded."""

    def __init__(self, known: Fingerprints, least: int) -> None:
        self.known = known
        self.least = least
        self.groups: dict[int, set[int]] = {}
        self.place: dict[int, int] = {}
        for place, (group, name) in enumerate(zip(known.tool_group.tolist(), known.tool_name.tolist(), strict=True)):
            if group == hashed(""):  # functions of single questions are no API
                continue
            key = hash((int(known.tool_benchmark[place]), group))
            self.groups.setdefault(name, set()).add(key)
            self.place.setdefault(key, place)
        self._seen: dict[frozenset[str], list[Match]] = {}

    def of(self, names: Iterable[str]) -> list[Match]:
        """Of every benchmark the API with the most names in common, if enough are."""
        key = frozenset(names)
        if key not in self._seen:
            shared: Counter[int] = Counter()
            for name in {name_key(one) for one in key}:
                shared.update(self.groups.get(hashed(name), ()))
            best: dict[str, Match] = {}
            for group, count in shared.items():
                match = self._match(group, count)
                if count >= self.least and (match.benchmark not in best or count > best[match.benchmark].score):
                    best[match.benchmark] = match
            self._seen[key] = list(best.values())
        return self._seen[key]

    def _match(self, group: int, count: int) -> Match:
        place = self.place[group]
        benchmark = self.known.known[self.known.tool_benchmark[place]].name
        return Match("tool_family", benchmark, str(self.known.tool_id[place]), float(count))
