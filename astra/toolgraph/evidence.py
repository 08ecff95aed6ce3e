"""What says that a value which one tool returns can fill a parameter that another requires, and how much it says.

Five kinds of evidence are added up: the name, the format, the enumeration, the type, and how alike the two texts are.
What contradicts (types that never meet, other formats, enumerations without a common value) ends the matter. Pairs
are found by an index over names, formats and enumerations and by the texts' vectors, never by trying each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from astra.records import Link, Section, ToolSpec
from astra.toolgraph.values import GENERIC, Input, Output, Value, inputs, outputs

ENDS_ALIKE, GENERIC_NAME = (
    0.8,
    0.2,
)  # of the weight of a name, where "slot id" meets "entry slot id", or "id" meets "id"
ALIKE = 0.5  # texts less alike than this say nothing
NO_SCALAR = frozenset(("object", "boolean"))
FEW = 2  # enumerations with fewer common values say nothing
REMEMBERED = 10_000  # texts; 20 MB
Key = tuple[str, Any]
Vectors = NDArray[np.float32]


class Weights(Section):
    """How much each kind of evidence counts where it holds fully."""

    name: float = Field(ge=0, le=1, description="The output is called as the parameter; less for a part of the name.")
    format: float = Field(ge=0, le=1, description="Both have the same format, and one that means something: email.")
    enum: float = Field(ge=0, le=1, description="Both are one of the same values; less for some of them.")
    type: float = Field(ge=0, le=1, description="Both have the same JSON type.")
    similarity: float = Field(
        ge=0, le=1, description="Cosine similarity of what is said about the two, from a half up."
    )


class Prior(Section):
    """When a value counts as able to fill a parameter."""

    weights: Weights = Field(description="What each kind of evidence counts.")
    min_score: float = Field(gt=0, description="Sum of the evidence below which there is no link.")
    encoder: str = Field(description="builtin, or a sentence-transformers model, for the similarity of descriptions.")


class Encodes(Protocol):
    """Texts to unit vectors: one row a text."""

    def encode(self, texts: Sequence[str]) -> Vectors: ...


class Remembering:
    """An encoder that remembers the last texts: "city: the name of the city" stands in a thousand schemas."""

    def __init__(self, encoder: Encodes, most: int = REMEMBERED) -> None:
        self._encoder = encoder
        self._most = most
        self._known: dict[str, Vectors] = {}

    def encode(self, texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if len(self._known) + len(new) > self._most:
            self._known.clear()
            new = list(dict.fromkeys(texts))
        if new:
            self._known |= zip(new, self._encoder.encode(new), strict=True)
        return np.stack([self._known[text] for text in texts])


# ---------------------------------------------------------------- one value and one parameter


def evidence(output: Output, parameter: Input, alike: float, weights: Weights) -> dict[str, float]:
    """What counts for this output filling this parameter, and how much. ``alike`` is the cosine of their texts."""
    if contradicts(output, parameter):
        return {}
    here, there = output.value, parameter.value
    amounts = {
        "name": weights.name * _name(output, parameter),
        "format": weights.format * (parameter.spoken not in GENERIC and here.format == there.format is not None),
        "enum": weights.enum * _common(here.choices, there.choices),
        "type": weights.type * (not here.types.isdisjoint(there.types)),
        "similarity": weights.similarity * alike if alike >= ALIKE else 0.0,
    }
    return {kind: round(amount, 3) for kind, amount in amounts.items() if amount}


def contradicts(output: Output, parameter: Input) -> bool:
    """Whether no value of the output can be one of the parameter's, or a value alone cannot fill it."""
    here, there = output.value, parameter.value
    return (
        there.is_fixed
        or bool(here.types and there.types and here.types.isdisjoint(there.types))
        or not there.types.isdisjoint(NO_SCALAR)
        or bool(here.format and there.format and here.format != there.format)
        or bool(here.choices and there.choices and here.choices.isdisjoint(there.choices))
    )


def _name(output: Output, parameter: Input) -> float:
    if not parameter.names.isdisjoint(output.names - GENERIC):
        return 1.0
    if any(" " in name and parameter.spoken.endswith(" " + name) for name in output.names):
        return ENDS_ALIKE
    return GENERIC_NAME if parameter.spoken in output.names else 0.0


def _common(given: frozenset[str], taken: frozenset[str]) -> float:
    """The share of the values that two enumerations have in common."""
    common = given & taken
    return len(common) / len(given | taken) if len(common) >= FEW else 0.0


# ---------------------------------------------------------------- the index


def taken_under(parameter: Input) -> Iterator[Key]:
    """The keys under which a parameter is found by what could fill it."""
    for name in parameter.names:
        yield "name", name
    parts = parameter.spoken.split()
    for at in range(1, len(parts) - 1):
        yield "ending", " ".join(parts[at:])
    yield from _exact(parameter.value)


def given_under(output: Output) -> Iterator[Key]:
    """The keys under which an output finds the parameters that it could fill."""
    for name in sorted(output.names - GENERIC):
        yield "name", name
        if " " in name:
            yield "ending", name
    yield from _exact(output.value)


def _exact(value: Value) -> Iterator[Key]:
    if value.format is not None:
        yield "format", value.format
    if len(value.choices) >= FEW:
        yield "enum", value.choices


# ---------------------------------------------------------------- tools


class Signature(NamedTuple):
    """What a tool returns and requires."""

    tool: ToolSpec
    outputs: Sequence[Output]
    inputs: Sequence[Input]


def signature(tool: ToolSpec) -> Signature:
    return Signature(tool, outputs(tool), inputs(tool))


def texts(signatures: Iterable[Signature]) -> Iterator[str]:
    """All that is encoded of some tools."""
    for one in signatures:
        yield from (value.text for value in one.outputs)
        yield from (value.text for value in one.inputs)


class Takers:
    """Tools by what could fill their required parameters."""

    def __init__(self, tools: Sequence[Signature], prior: Prior, encoder: Encodes) -> None:
        self.tools = tools
        self.n_cut = 0
        self._prior = prior
        self._encoder = encoder
        self._taken = [(n, parameter) for n, one in enumerate(tools) for parameter in one.inputs]
        self._vectors = encoder.encode([parameter.text for _, parameter in self._taken]) if self._taken else None
        self._index: dict[Key, list[int]] = {}
        for column, (_, parameter) in enumerate(self._taken):
            for key in taken_under(parameter):
                self._index.setdefault(key, []).append(column)

    def fed_by(self, source: Signature, most: int) -> dict[int, tuple[Link, ...]]:
        """How a tool's result can fill required parameters, by the place of the tool that takes it, in order.

        For each parameter the best output, and of the tools the ``most`` that are filled best; ``n_cut`` counts others.
        """
        if self._vectors is None or not source.outputs:
            return {}
        alike = likeness(self._encoder.encode([output.text for output in source.outputs]), self._vectors)
        best: dict[int, tuple[tuple[float, int, int], Link]] = {}
        for row, column in self._pairs(source.outputs, alike):
            (place, parameter), output = self._taken[column], source.outputs[row]
            found = {} if self.tools[place] is source else evidence(
                output, parameter, float(alike[row, column]), self._prior.weights
            )  # fmt: skip
            score = round(sum(found.values()), 4)
            rank = (score, -output.path.count("."), -row)
            if found and score >= self._prior.min_score and (column not in best or rank > best[column][0]):
                best[column] = (rank, Link(output=output.path, parameter=parameter.name, evidence=found))
        linked: dict[int, tuple[Link, ...]] = {}
        for column in sorted(best):
            place = self._taken[column][0]
            linked[place] = (*linked.get(place, ()), best[column][1])
        return self._cut(linked, most)

    def _pairs(self, given: Sequence[Output], alike: NDArray[np.float64]) -> list[tuple[int, int]]:
        """Outputs and parameters that share a key of the index, or whose texts are alike, in order."""
        found = {
            (row, column)
            for row, output in enumerate(given)
            for key in given_under(output)
            for column in self._index.get(key, ())
        }
        rows, columns = np.nonzero(alike >= ALIKE)
        return sorted(found.union(zip(rows.tolist(), columns.tolist(), strict=True)))

    def _cut(self, linked: dict[int, tuple[Link, ...]], most: int) -> dict[int, tuple[Link, ...]]:
        if len(linked) <= most:
            return linked
        self.n_cut += len(linked) - most
        best = sorted(linked, key=lambda place: -strength(linked[place]))[:most]
        return {place: linked[place] for place in sorted(best)}


def strength(links: Iterable[Link]) -> float:
    """The score of the best of some links."""
    return max(link.score for link in links)


def likeness(some: Vectors, others: Vectors) -> NDArray[np.float64]:
    """Cosine similarities of unit vectors, rounded so that they hang on no machine. (len(some), len(others))"""
    return np.asarray(np.round((some @ others.T).astype(np.float64), 2), dtype=np.float64)
