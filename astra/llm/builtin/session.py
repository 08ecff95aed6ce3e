"""What the session says when the rule-based server answers a call: state and history, read by ids.

The state that the prompt gives is settled and goes before everything else; what the history told of a thing last fills
the rest, so that a value which may have changed stays as it was where no call says how it changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

CREATING = frozenset({
    "add", "apply", "begin", "book", "build", "buy", "claim", "compose", "create", "deploy", "draft", "enrol", "enroll",
    "file", "generate", "grant", "hire", "insert", "invite", "issue", "launch", "lend", "log", "make", "new", "open",
    "order", "pay", "place", "plan", "post", "prepare", "publish", "purchase", "raise", "record", "register", "rent",
    "report", "request", "reserve", "save", "schedule", "send", "sign", "start", "submit", "subscribe", "upload",
    "write",
})  # fmt: skip
DELETING = frozenset({"delete", "destroy", "drop", "erase", "purge", "remove", "unregister"})
ENDING = frozenset({"abort", "cancel", "revoke", "withdraw"})
ENDED = ("cancelled", "canceled", "withdrawn", "revoked", "closed", "inactive")
_IDS = frozenset({"id", "ids", "key", "uuid", "no", "number", "ref", "reference", "code"})
_SHARED = frozenset({
    "area", "calling", "country", "currency", "dial", "error", "house", "language", "page", "phone", "post", "postal",
    "room", "seat", "status", "unlock", "zip",
})  # fmt: skip
_PREPOSITIONS = frozenset({"at", "by", "for", "from", "in", "of", "on", "to", "via", "with"})

Plain = str | int | float


class Made(NamedTuple):
    """A thing that a call of this session made: what made it, and what was said of it then."""

    noun: str
    id: Plain
    id_name: str
    arguments: dict[str, Any]
    values: dict[str, Any]


@dataclass(frozen=True)
class Session:
    """What is known when one call is answered."""

    settled: Mapping[tuple[str, str], dict[str, Any]]  # by kind and id: properties without the kind's name
    latest: Mapping[tuple[str, str], dict[str, Any]]  # by the property that identifies, and id: as last told
    asked: Mapping[str, Any]  # what the history says of the things that the arguments name
    made: tuple[Made, ...]
    taken: frozenset[str]  # every id that was met
    gone: frozenset[tuple[str, str]]  # kind and id
    ended: frozenset[tuple[str, str]]

    def of(self, name: str, value: Any, nouns: set[str]) -> dict[str, Any]:
        """What is settled of the thing that a property identifies; a bare ``id`` is one of ``nouns``'."""
        keys = [(kind, str(value)) for kind in _kinds(name, nouns)]
        return next((found for key in keys if (found := self.settled.get(key))), {})

    def is_gone(self, name: str, value: Any, nouns: set[str]) -> bool:
        return any((kind, str(value)) in self.gone for kind in _kinds(name, nouns))

    def is_ended(self, name: str, value: Any, nouns: set[str]) -> bool:
        return any((kind, str(value)) in self.ended for kind in _kinds(name, nouns))


def _kinds(name: str, nouns: set[str]) -> list[str]:
    kind = kind_of(name)
    return [kind] if kind else sorted(nouns)


def session(tool: str, arguments: Mapping[str, Any], shown: Mapping[str, Any]) -> Session:
    """Read the prompt's ``state`` and ``history`` before a call."""
    state = shown.get("state") or {"things": [], "gone": []}
    history = [one for one in shown["history"] if "error" not in one]
    creating = verb(tool) in CREATING
    named = {str(value) for name, value in arguments.items() if names_thing(name) and isinstance(value, Plain)}
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    asked: dict[str, Any] = {}
    made: list[Made] = []
    for earlier in history:
        found = objects(earlier["result"])
        for one in found:
            owner = next(((name, str(value)) for name, value in plain(one).items() if names_thing(name)), None)
            if owner is not None:
                latest.setdefault(owner, {}).update(plain(one))
        makes = verb(earlier["tool"]) in CREATING
        if makes:
            made += _made(earlier, found)
        if not (creating and makes):
            for thing in ({**earlier["arguments"], **(plain(found[0]) if found else {})}, *found):
                if named & {str(value) for value in plain(thing).values()}:
                    asked.update(plain(thing))
    if creating:  # what is made anew has names and states of its own; prices and places stay
        asked = {name: value for name, value in asked.items() if not names_thing(name)}
    settled = {(one["kind"], str(one["id"])): one["values"] for one in state["things"]}
    told_gone = frozenset((one["kind"], str(one["id"])) for one in state["gone"])
    gone = told_gone if "state" in shown else _removed(history, DELETING)
    return Session(settled, latest, asked, tuple(made), _met(history), gone, _removed(history, ENDING))


def _made(earlier: Mapping[str, Any], found: list[dict[str, Any]]) -> list[Made]:
    """What a call made: the first thing in its result that it did not name."""
    given = {str(value) for value in plain(earlier["arguments"]).values()}
    for one in found:
        for name, value in plain(one).items():
            if names_thing(name) and str(value) not in given:
                return [Made(noun(earlier["tool"]), value, name, plain(earlier["arguments"]), plain(one))]
    return []


def _removed(history: list[dict[str, Any]], verbs: frozenset[str]) -> frozenset[tuple[str, str]]:
    """Things that calls with these verbs took away: ``remove_label`` of an issue does not take the issue."""
    removed = set()
    for one in history:
        named = {name: value for name, value in plain(one["arguments"]).items() if names_thing(name)}
        if verb(one["tool"]) in verbs and len(named) == 1:
            ((name, value),) = named.items()
            if kind_of(name) in ("", noun(one["tool"])) or len(one["arguments"]) == 1:
                removed.add((kind_of(name) or noun(one["tool"]), str(value)))
    return frozenset(removed)


def _met(history: list[dict[str, Any]]) -> frozenset[str]:
    things = [thing for one in history for thing in (one["arguments"], *objects(one["result"]))]
    return frozenset(str(value) for thing in things for name, value in plain(thing).items() if names_thing(name))


# ---------------------------------------------------------------- names and values


@lru_cache(maxsize=65536)
def words(name: str) -> tuple[str, ...]:
    """``getUser_id`` -> get, user, id."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name))


def verb(tool: str) -> str:
    return (words(tool) or ("",))[0]


def singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def noun(tool: str) -> str:
    """What a tool is about: ``find_farm_markets_for_user`` -> market."""
    spoken = words(tool)[1:]
    until = next((n for n, word in enumerate(spoken) if word in _PREPOSITIONS and n), len(spoken))
    return singular(spoken[until - 1]) if until else ""


def is_id(name: str) -> bool:
    return words(name)[-1:] != () and words(name)[-1] in _IDS


def names_thing(name: str) -> bool:
    """Whether a value of this name is one thing's own: an invoice number is, a country code is not."""
    spoken = words(name)
    loose = spoken[-1:] and spoken[-1] in ("code", "key", "no", "number")
    return is_id(name) and not (loose and (len(spoken) < 2 or spoken[-2] in _SHARED))


def kind_of(name: str) -> str:
    """The kind of thing that an identifying name is for; empty for a bare ``id``."""
    spoken = words(name)
    return singular(spoken[-2]) if len(spoken) > 1 else ""


def bare(path: str, kind: str) -> str:
    """A property's name as the state writes it: ``issueTitle`` of an issue is title."""
    spoken = list(words(path))
    while len(spoken) > 1 and (spoken[0] in ("new", "updated") or singular(spoken[0]) == kind):
        spoken = spoken[1:]
    return "_".join(spoken) or path


def objects(value: Any) -> list[dict[str, Any]]:
    """Every object in a result, outermost first."""
    if isinstance(value, dict):
        return [value, *(inner for one in value.values() for inner in objects(one))]
    if isinstance(value, list):
        return [inner for one in value for inner in objects(one)]
    return []


def plain(thing: Mapping[str, Any]) -> dict[str, Any]:
    """The properties with a plain value."""
    return {name: value for name, value in thing.items() if isinstance(value, Plain)}
