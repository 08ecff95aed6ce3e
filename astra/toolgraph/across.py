"""Tools of other servers that a tool can feed: a bounded number for each, found by an index and never by trying all.

Parameters stand in the index under what could fill them (names, formats, enumerations), and under one key in the order
of a locality-sensitive hash of their tool's description, in a few tables with other bits first. A tool looks up its
outputs and sees, under each key, only the few parameters that lie next to its own hash: of the thousand tools that take
a city, those for a like purpose. So the cost grows with the tools and not with the pairs. Identifiers do not cross:
they mean something only at home.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from astra.records import Link, Server
from astra.toolgraph.evidence import (
    Encodes,
    Key,
    Prior,
    Signature,
    Takers,
    Vectors,
    given_under,
    strength,
    taken_under,
)

PLANES, TABLES = 24, 3  # bits of the hash; orders in which it is looked at
WINDOW = 2  # entries looked at on either side, per neighbour wanted
IDENTIFIERS = frozenset(("id", "ids", "uuid", "guid", "ref", "reference", "handle", "key", "token"))
BATCH = 256


class Place(NamedTuple):
    """One tool of one server."""

    server: int
    signature: Signature


class Crossing(NamedTuple):
    """A tool that feeds a tool of another server, and how."""

    source: Place
    target: Place
    via: tuple[Link, ...]


def crossings(
    servers: Sequence[Server], signatures: Sequence[Sequence[Signature]], prior: Prior, encoder: Encodes, most: int
) -> Iterator[Crossing]:
    """For each tool the ``most`` tools of other servers that its result fills best, in the order of the sources."""
    places = [Place(n, portable(one)) for n, own in enumerate(signatures) for one in own]
    vectors = _described(servers, places, encoder)
    tables = [_Table(places, hashes) for hashes in locality(vectors)]
    for at, source in enumerate(places):
        keys = list(dict.fromkeys(key for output in source.signature.outputs for key in given_under(output)))
        near = sorted({n for table in tables for n in table.near(at, keys, WINDOW * most)})
        near = [n for n in near if _apart(source, places[n])]
        alike = np.round(vectors[near] @ vectors[at], 2)
        nearest = np.argsort(-alike, kind="stable")[: 2 * most]
        yield from _best(source, [places[near[n]] for n in nearest], prior, encoder)[:most]


class _Table:
    """Under each key the tools that take such a value, as (hash, place), in order."""

    def __init__(self, places: Sequence[Place], hashes: Sequence[int]) -> None:
        self.hashes = hashes
        self.entries: dict[Key, list[tuple[int, int]]] = {}
        for n, place in enumerate(places):
            for key in {key: None for parameter in place.signature.inputs for key in taken_under(parameter)}:
                self.entries.setdefault(key, []).append((hashes[n], n))
        for entries in self.entries.values():
            entries.sort()

    def near(self, at: int, keys: Iterable[Key], most: int) -> Iterator[int]:
        """The tools beside this one under each of its keys, ``most`` on either side."""
        for key in keys:
            entries = self.entries.get(key, [])
            middle = bisect_left(entries, (self.hashes[at], at))
            for _, n in entries[max(0, middle - most) : middle + most]:
                yield n


def portable(tool: Signature) -> Signature:
    """The tool with those of its parameters that a stranger's value can fill."""
    kept = [one for one in tool.inputs if not IDENTIFIERS & set(one.spoken.split()[-1:])]
    return tool._replace(inputs=kept)


def _best(source: Place, targets: Sequence[Place], prior: Prior, encoder: Encodes) -> list[Crossing]:
    """How a tool feeds others, the best first."""
    linked = Takers([one.signature for one in targets], prior, encoder).fed_by(source.signature, len(targets))
    found = [Crossing(source, targets[place], via) for place, via in linked.items()]
    return sorted(found, key=lambda one: -strength(one.via))


def _described(servers: Sequence[Server], places: Sequence[Place], encoder: Encodes) -> Vectors:
    """What the tools do, as vectors. (N, WIDTH)"""
    said = [f"{servers[one.server].title} {one.signature.tool.name} {one.signature.tool.description}" for one in places]
    return np.concatenate([encoder.encode(said[n : n + BATCH]) for n in range(0, len(said), BATCH)])


def locality(vectors: Vectors) -> list[list[int]]:
    """For each table a number for each vector, near for vectors that point the same way from their middle.

    Its bits say on which side of seeded planes the vector lies; each table has other planes first.
    """
    planes = np.random.default_rng(0).standard_normal((vectors.shape[1], PLANES))
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    sides = np.where(np.round(centred @ planes, 6) > 0, "1", "0")
    first = range(0, PLANES, PLANES // TABLES)
    return [[int("".join(row), 2) for row in np.roll(sides, -start, axis=1)] for start in first]


def _apart(source: Place, target: Place) -> bool:
    """Whether the two belong to different servers and can be told apart by name in one chain."""
    return source.server != target.server and source.signature.tool.name != target.signature.tool.name
