"""Texts as vectors whose cosine says how alike two are: built in, or any sentence-transformers model.

The built-in encoder needs no download and is a bag of words: a word's vector is signed hashing of the word and of its
letter groups, so that inflections and slips stay near, weighted by how rare the word is among the benchmarks. Word
order and case say nothing.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

BUILTIN = "builtin"
WIDTH = 512
KEPT_WORDS = 100_000
_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W_\u3040-\u30ff\u4e00-\u9fff]+(?:'[a-z]+)?")  # Han: each its own
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """Texts to unit vectors."""

    name: str

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One row a text, of length 1, or 0 where the text has no word. (N, WIDTH)"""
        ...


def words(text: str) -> list[str]:
    """The words of a text or identifier in order: case, accents, underscores and punctuation are gone."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return [word.removesuffix("'s") for word in _WORD.findall(_HUMP.sub(" ", plain).casefold())]


def hashed(text: str) -> int:
    """A stable 64-bit hash."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class WordEncoder:
    """The built-in encoder; ``counts`` say in how many of ``total`` benchmark texts a hashed word occurs."""

    name = BUILTIN

    def __init__(self, counts: dict[int, int], total: int) -> None:
        self.counts = counts
        self.total = total
        self._known: dict[str, Vectors] = {}

    @classmethod
    def over(cls, texts: Iterable[str]) -> WordEncoder:
        """The encoder whose word weights come from these texts."""
        counts: Counter[int] = Counter()
        total = 0
        for text in texts:
            counts.update({hashed(word) for word in words(text)})
            total += 1
        return cls(dict(counts), total)

    def encode(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), WIDTH), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in dict.fromkeys(words(text)):  # in order: a sum of floats hangs on it
                out[row] += self._word(word)
        return unit(out)

    def _word(self, word: str) -> Vectors:
        if word not in self._known:
            if len(self._known) >= KEPT_WORDS:
                self._known.clear()
            rarity = math.log((1 + self.total) / (1 + self.counts.get(hashed(word), 0))) + 0.1
            self._known[word] = np.float32(rarity) * _letters(word)
        return self._known[word]


def _letters(word: str) -> Vectors:
    """A unit vector of a word: half the word itself, half its groups of three and four letters."""
    own: Vectors = _scattered([word])
    edged = f"<{word}>"
    groups = [edged[at : at + n] for n in (3, 4) for at in range(len(edged) - n + 1)]
    shared = _scattered([f"~{group}" for group in groups])
    both: Vectors = unit(unit(own[None]) + unit(shared[None]))[0]
    return both


def _scattered(features: Sequence[str]) -> Vectors:
    """Signed hashing: each feature adds or takes 1 at eight places."""
    out = np.zeros(WIDTH, dtype=np.float32)
    for feature in features:
        digest = np.frombuffer(hashlib.blake2b(feature.encode(), digest_size=16).digest(), dtype="<u2")
        np.add.at(out, digest % WIDTH, np.where(digest & 0x8000, np.float32(1), np.float32(-1)))
    return out


def unit(vectors: Vectors) -> Vectors:
    """Rows of length 1; rows of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-6)
    return scaled


class SentenceEncoder:
    """A sentence-transformers model, by hub id or folder."""

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer  # brings torch: only where it is asked for

        self.name = name
        self._model = SentenceTransformer(name)

    def encode(self, texts: Sequence[str]) -> Vectors:
        vectors = self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)


def open_encoder(name: str, texts: Iterable[str]) -> Encoder:
    """The named model, or the built-in one with word weights of these texts."""
    return WordEncoder.over(texts) if name == BUILTIN else SentenceEncoder(name)
