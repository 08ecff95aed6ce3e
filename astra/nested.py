"""Nested mappings, as params and metrics are, with a dotted name for everything in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of everything in a tree that is no mapping."""
    for key, value in tree.items():
        place = f"{above}.{key}" if above else str(key)
        if isinstance(value, Mapping):
            yield from leaves(value, place)
        else:
            yield place, value
