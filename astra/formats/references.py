"""Where a ``$ref`` leads: JSON pointers, anchors and identifiers within one document. Nothing is ever fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

INDEX = re.compile(r"[0-9]{1,9}")


class Target(NamedTuple):
    """What a reference stands for. A document may really hold null there, so a miss is no Target at all."""

    value: Any


class References:
    """The places that the references of one schema may name: in the schema itself, then in its document."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self._roots = roots
        self._named: list[dict[str, Any]] | None = None

    def resolve(self, reference: str) -> Target | None:
        """The target, or None where the reference leads nowhere in these documents."""
        if reference in ("", "#") or reference.startswith("#/"):
            return self._first(reference.removeprefix("#"))
        return self._by_name(reference)

    def _first(self, pointer: str) -> Target | None:
        for root in self._roots:
            target = look_up(root, pointer)
            if target is not None:
                return target
        return None

    def _by_name(self, reference: str) -> Target | None:
        if self._named is None:
            self._named = [_named(root) for root in self._roots]
        base, _, fragment = reference.partition("#")
        for named in self._named:
            whole = named.get(reference)
            if whole is not None:
                return Target(whole)
            if base in named and (not fragment or fragment.startswith("/")):
                target = look_up(named[base], fragment)
                if target is not None:
                    return target
        return None


def _named(root: Any) -> dict[str, Any]:
    """Subschemas by identifier (as written, and resolved against the root's) and by anchor (``#name``)."""
    found: dict[str, Any] = {}
    base = _text(root.get("$id")) or _text(root.get("id")) if isinstance(root, dict) else ""
    for one in _objects(root):
        identifier = _text(one.get("$id")) or _text(one.get("id"))
        for name in (identifier, _joined(base, identifier)):
            if name:
                found.setdefault(name.removesuffix("#"), one)
        for key in ("$anchor", "$dynamicAnchor"):
            if _text(one.get(key)):
                found.setdefault(f"#{one[key]}", one)
    return found


def _joined(base: str, identifier: str) -> str:
    try:
        return urljoin(base, identifier)
    except ValueError:
        return ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects(root: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value, outermost first."""
    waiting = [root]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting += reversed(here.values())
        elif isinstance(here, list):
            waiting += reversed(here)


def step(pointer: str, part: str) -> str:
    return f"{pointer}/{escape(part)}"


def escape(part: str) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1") if "~" in part or "/" in part else part


def look_up(root: Any, pointer: str) -> Target | None:
    """What stands at a JSON pointer."""
    if pointer and not pointer.startswith("/"):
        return None
    here = root
    for part in pointer.split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and name in here:
            here = here[name]
        elif isinstance(here, list) and INDEX.fullmatch(name) and int(name) < len(here):
            here = here[int(name)]
        else:
            return None
    return Target(here)
