"""Tools that a case does not need, mixed in so that choosing is learned (paper section 3.4.3).

Every tool document is embedded; relative to the tools in scope the others fall into three bands of cosine similarity,
and some are drawn from each. A near-duplicate that reads the same for the same kind of thing could really answer, so it
is never drawn. The default embedding needs no download: a sentence-transformers StaticEmbedding whose token vectors
are seeded noise, so that similarity is shared words weighted by how rare they are.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from astra.records import CodeTool, Section, ToolSpec

BANDS = ("high", "medium", "low")
BUILTIN = "builtin"
WIDTH = 512


class Mixing(Section):
    """Which tools are mixed in, and how many."""

    mode: Literal["none", "random", "banded"] = Field(
        description="banded is the paper's; the others are its ablations."
    )
    per_band: int = Field(
        ge=0, le=16, description="Tools drawn from each band (paper: K); random draws as many in all."
    )
    high: float = Field(gt=0, lt=1, description="Cosine similarity above which a tool is in the high band.")
    low: float = Field(gt=0, lt=1, description="Cosine similarity below which a tool is in the low band.")
    encoder: str = Field(description="builtin, or a sentence-transformers model (paper: Qwen3-Embedding-8B).")


def document(tool: ToolSpec) -> str:
    """The text of a tool that is embedded."""
    return f"{tool.name.replace('_', ' ')}: {tool.description} {' '.join(tool.parameters.get('properties', {}))}"


def open_encoder(name: str, documents: Sequence[str], seed: int) -> SentenceTransformer:
    """The named model, or the built-in one over these documents' words."""
    if name != BUILTIN:
        return SentenceTransformer(name)
    words = Counter(word for text in documents for word in set(re.findall(r"\w+", text.lower())))
    vocabulary = {"[UNK]": 0} | {word: place for place, word in enumerate(sorted(words), 1)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("removed")]
    )
    noise = np.random.default_rng(seed).standard_normal((len(vocabulary), WIDTH)).astype(np.float32)
    rarity = [0.0, *(math.log((1 + len(documents)) / (1 + words[word])) + 1 for word in sorted(words))]
    weights = noise / np.linalg.norm(noise, axis=1, keepdims=True) * np.array(rarity, dtype=np.float32)[:, None]
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")


class Distractors:
    """Draws distractors for a set of tools from a pool; the pool is embedded once."""

    def __init__(self, pool: Sequence[CodeTool], mixing: Mixing, seed: int) -> None:
        """Tools of one name are variants of one document (other data tables); any of them may be drawn."""
        self.mixing = mixing
        self.seed = seed
        self.variants: dict[str, list[CodeTool]] = {}
        for tool in pool:
            self.variants.setdefault(tool.spec.name, []).append(tool)
        self.names = sorted(self.variants)
        documents = [document(self.variants[name][0].spec) for name in self.names]
        encoder = open_encoder(mixing.encoder, documents, seed)
        vectors = encoder.encode(documents, normalize_embeddings=True, show_progress_bar=False)
        self.similarity = np.asarray(vectors @ vectors.T, dtype=np.float64)  # (N, N), cosine
        self.place = {name: place for place, name in enumerate(self.names)}
        self.drawn: Counter[str] = Counter()

    def bands(self, scope: Sequence[str]) -> dict[str, list[str]]:
        """The pool's other tools by their highest similarity to any tool in scope."""
        found: dict[str, list[str]] = {band: [] for band in BANDS}
        known = [self.place[name] for name in scope if name in self.place]
        for name in self.names:
            if name in scope or not known:
                continue
            nearest = float(self.similarity[self.place[name], known].max())
            band = "high" if nearest > self.mixing.high else "low" if nearest < self.mixing.low else "medium"
            found[band].append(name)
        return found

    def draw(self, tools: Sequence[CodeTool], key: str, absent: CodeTool | None = None) -> list[CodeTool]:
        """Distractors for these tools, seeded by ``key``; names never collide with theirs or each other's.

        Nor is any drawn that could stand in for the one tool that an arena lacks on purpose.
        """
        rng = random.Random(f"{self.seed}:distractors:{key}")
        kept_out = [*tools, *([absent] if absent is not None else [])]
        scope = [tool.spec.name for tool in kept_out]
        signatures = {_signature(tool.spec) for tool in kept_out}
        total = len(BANDS) * self.mixing.per_band
        if self.mixing.mode == "none" or not total:
            return []
        by_band = {
            band: [name for name in names if _signature(self.variants[name][0].spec) not in signatures]
            for band, names in self.bands(scope).items()
        }
        if self.mixing.mode == "random":
            groups = [("random", [name for band in BANDS for name in by_band[band]], total)]
        else:
            groups = [(band, by_band[band], self.mixing.per_band) for band in BANDS]
        chosen: list[str] = []
        short = 0
        for band, names, wanted in groups:
            some = rng.sample(names, min(wanted, len(names)))
            short += wanted - len(some)
            self.drawn[band] += len(some)
            chosen += some
        rest = [name for band in BANDS for name in by_band[band] if name not in chosen]
        filled = rng.sample(rest, min(short, len(rest)))
        self.drawn["filled"] += len(filled)
        return [rng.choice(self.variants[name]) for name in [*chosen, *filled]]


def _signature(spec: ToolSpec) -> tuple[str, ...]:
    """What a tool asks and says, without its name: two tools alike in this answer the same question."""
    return (spec.description.casefold(), *sorted(spec.parameters.get("properties", {})))
