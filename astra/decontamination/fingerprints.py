"""What is kept of the benchmarks: hashes, hashed word groups and vectors, never their text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astra.decontamination.benchmarks import Corpus
from astra.encoder import BUILTIN, Encoder, Vectors, WordEncoder, hashed, open_encoder, unit, words

GRAM = 5  # words a group
FEWEST_WORDS = 6  # a shorter question ("What is my first name?") is only compared as a whole
FEWEST_WHOLE = 4  # and one shorter than this ("Thanks a lot!") not at all
PARTS = (0.2, 0.5, 0.3)  # of a tool's name, description and parameters in its document's vector
Hashes = NDArray[np.uint64]
Places = NDArray[np.int32]


class Known(NamedTuple):
    """One fingerprinted benchmark."""

    name: str
    version: str
    n_tools: int
    n_questions: int
    n_short: int


@dataclass(frozen=True)
class Fingerprints:
    """All benchmarks at hand. Tool arrays are parallel (T), question arrays too (Q), word groups point there (G)."""

    encoder: Encoder
    known: tuple[Known, ...]
    tool_benchmark: Places  # (T,)
    tool_id: NDArray[Any]
    tool_group: Hashes
    tool_name: Hashes
    tool_parameters: Hashes  # 0 for fewer than three parameters, which say nothing
    tool_signature: Hashes  # name and parameters; 0 for one short word with one parameter, as in cd(folder)
    tool_description: Vectors  # (T, WIDTH)
    tool_document: Vectors  # (T, 3 * WIDTH)
    question_benchmark: Places  # (Q,)
    question_id: NDArray[Any]
    question_whole: Hashes
    question_grams: Places  # how many groups each question has
    question_vector: Vectors  # (Q, WIDTH); zeros for short ones
    gram: Hashes  # (G,), sorted
    gram_question: Places  # (G,)

    def save(self, path: Path) -> None:
        """One .npz without any text but the cases' ids."""
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        arrays |= {name: value.astype(np.float16) for name, value in arrays.items() if value.dtype == np.float32}
        if isinstance(self.encoder, WordEncoder):
            counts = self.encoder.counts
            arrays["count_word"] = np.fromiter(counts.keys(), np.uint64, len(counts))
            arrays["count"] = np.fromiter(counts.values(), np.int64, len(counts))
        about = {
            "encoder": self.encoder.name,
            "total": self.encoder.total if isinstance(self.encoder, WordEncoder) else 0,
            "known": [one._asdict() for one in self.known],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def load(cls, path: Path) -> Fingerprints:
        """What ``save`` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            arrays = {
                name: value.astype(np.float32) if value.dtype == np.float16 else value for name, value in stored.items()
            }
        about = json.loads(str(arrays.pop("about")))
        counted, count = arrays.pop("count_word", np.zeros(0, np.uint64)), arrays.pop("count", np.zeros(0, np.int64))
        if about["encoder"] == BUILTIN:
            counts = dict(zip(map(int, counted), map(int, count), strict=True))
            encoder: Encoder = WordEncoder(counts, about["total"])
        else:
            encoder = open_encoder(about["encoder"], ())
        return cls(encoder=encoder, known=tuple(Known(**one) for one in about["known"]), **arrays)


def fingerprint(corpora: Sequence[Corpus], encoder: str = BUILTIN) -> Fingerprints:
    """The fingerprints of these benchmarks, under the named encoder."""
    tools = [(place, tool) for place, corpus in enumerate(corpora) for tool in corpus.tools]
    cases = [(place, case) for place, corpus in enumerate(corpora) for case in corpus.questions]
    sizes = [len(words(case.text)) for _, case in cases]
    kept = [(place, case) for (place, case), n_words in zip(cases, sizes, strict=True) if n_words >= FEWEST_WHOLE]
    texts = [case.text for _, case in kept]
    opened = open_encoder(encoder, [*texts, *(tool.description for _, tool in tools)])
    long = np.array([len(words(text)) >= FEWEST_WORDS for text in texts], dtype=bool)
    vectors = opened.encode(texts) * long[:, None]
    grams = [grams_of(text) if is_long else np.zeros(0, np.uint64) for text, is_long in zip(texts, long, strict=True)]
    owners = np.repeat(np.arange(len(grams), dtype=np.int32), [len(one) for one in grams])
    flat = np.concatenate([np.zeros(0, np.uint64), *grams])
    order = np.argsort(flat, kind="stable")
    descriptions, documents = tool_vectors(
        opened, [(tool.name, tool.description, tool.parameters, tool.parameter_texts) for _, tool in tools]
    )
    return Fingerprints(
        encoder=opened,
        known=tuple(
            Known(
                corpus.benchmark,
                corpus.version,
                len(corpus.tools),
                sum(place == at for place, _ in kept),
                sum(place == at and size < FEWEST_WHOLE for (place, _), size in zip(cases, sizes, strict=True)),
            )
            for at, corpus in enumerate(corpora)
        ),
        tool_benchmark=np.array([place for place, _ in tools], np.int32),
        tool_id=np.array([tool.id for _, tool in tools], dtype=np.str_),
        tool_group=_hashes(tool.group for _, tool in tools),
        tool_name=_hashes(name_key(tool.name) for _, tool in tools),
        tool_parameters=np.array([parameters_key(tool.parameters) for _, tool in tools], np.uint64),
        tool_signature=np.array([signature_key(tool.name, tool.parameters) for _, tool in tools], np.uint64),
        tool_description=_coarse(descriptions),
        tool_document=_coarse(documents),
        question_benchmark=np.array([place for place, _ in kept], np.int32),
        question_id=np.array([case.id for _, case in kept], dtype=np.str_),
        question_whole=np.array([whole_key(text) for text in texts], np.uint64),
        question_grams=np.array([len(one) for one in grams], np.int32),
        question_vector=_coarse(vectors),
        gram=flat[order],
        gram_question=owners[order],
    )


def _coarse(vectors: Vectors) -> Vectors:
    """As precise as a file keeps them, so that a file gives the same scores."""
    return vectors.astype(np.float16).astype(np.float32)


def _hashes(texts: Iterable[str]) -> Hashes:
    return np.array([hashed(text) for text in texts], np.uint64)


def name_key(name: str) -> str:
    """A tool's name without case, separators and a server's or class's prefix before a dot."""
    return "".join(words(name.rpartition(".")[2]))


def parameters_key(names: Sequence[str]) -> int:
    """The hash of a set of three or more parameter names; 0 for fewer."""
    keys = sorted({"".join(words(name)) for name in names})
    return hashed(" ".join(keys)) if len(keys) >= 3 else 0


def signature_key(name: str, parameters: Sequence[str]) -> int:
    """The hash of a tool's name and parameter names; 0 where these are fewer than three words in all."""
    keys = sorted({"".join(words(one)) for one in parameters})
    telling = bool(keys) and len(words(name.rpartition(".")[2])) + len(keys) >= 3
    return hashed(f"{name_key(name)}({' '.join(keys)})") if telling else 0


def whole_key(text: str) -> int:
    """The hash of a text's words in any order."""
    return hashed(" ".join(sorted(words(text))))


def grams_of(text: str) -> Hashes:
    """The hashed groups of five following words, each once, sorted."""
    said = words(text)
    return np.unique(_hashes(" ".join(said[at : at + GRAM]) for at in range(len(said) - GRAM + 1)))


Described = tuple[str, str, Sequence[str], Sequence[str]]  # name, description, parameters, what is said of those


def tool_vectors(encoder: Encoder, tools: Sequence[Described]) -> tuple[Vectors, Vectors]:
    """Of each tool the vector of its description, and that of its whole document. (T, WIDTH), (T, 3 * WIDTH)"""
    if not tools:
        return np.zeros((0, 1), np.float32), np.zeros((0, 1), np.float32)
    names = encoder.encode([" ".join(words(name)) for name, *_ in tools])
    descriptions = encoder.encode([description for _, description, *_ in tools])
    asked = encoder.encode([" ".join([*(" ".join(words(one)) for one in names), *texts]) for *_, names, texts in tools])
    parts = [
        np.float32(np.sqrt(weight)) * part for weight, part in zip(PARTS, (names, descriptions, asked), strict=True)
    ]
    return descriptions, unit(np.concatenate(parts, axis=1))
