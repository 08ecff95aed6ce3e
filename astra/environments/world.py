"""The state of an emulated server over one conversation, held by rules: what exists, what it is like, what is gone.

Every answer is read into things (a kind and an id, e.g. booking BK-1), each with its attributes. An attribute stays
settled until a call writes it or may have changed it; an answer that says otherwise is a contradiction. The world has
no clock: what no call changed stays as it is. Read by names alone (``naming``), so this holds for tools nobody has
seen; where names do not settle what a value belongs to, nothing is held against the answer.

What a call that changes something may have changed: the things that it or its answer names and the things that they
were met with, but not their names and titles; everything, where it names nothing.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from astra.environments.naming import (
    DELETING_VERBS,
    RESTORING_VERBS,
    TRANSFORMING_VERBS,
    UPDATING_VERBS,
    attribute,
    identifies,
    noun,
    presents,
    reads_only,
    singular,
    verb,
    words,
)
from astra.records import canonical

LASTING = frozenset({  # no call changes these but one that names them
    "author", "created", "created_at", "created_by", "created_on", "creator", "description", "display_name", "email",
    "family_name", "first_name", "full_name", "label", "last_name", "name", "reporter", "subject", "title",
})  # fmt: skip
COUNTING = frozenset({"count", "total", "n", "num", "pages", "page", "size", "limit", "offset"})
WRAPPERS = frozenset({"data", "entry", "hit", "item", "match", "record", "response", "result", "row"})
OUTCOMES = ("success", "succeeded", "ok")
NOT_FOUND = re.compile(r"not found|no such|(does not|doesn't) exist|could not find", re.IGNORECASE)
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[t ](\d\d:\d\d)(:\d\d)?(?:\.\d+)?(?:z|[+-]\d\d:?\d\d)?)?")

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Exchange:
    """A call that reached the server, and what it returned."""

    tool: str
    arguments: dict[str, Any]
    result: Any = None
    error: str | None = None

    def shown(self) -> dict[str, Any]:
        outcome = {"result": self.result} if self.error is None else {"error": self.error}
        return {"tool": self.tool, "arguments": self.arguments, **outcome}

    @cached_property
    def told(self) -> Told:
        """What the result says, by the names in it."""
        return _Reader(self).told()


class Thing(NamedTuple):
    """A kind and an id, both in lower case."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class Claim(NamedTuple):
    """An attribute that an answer gives to a thing; ``context``: the other arguments that it may depend on, as JSON."""

    thing: Thing
    attribute: str
    value: Any
    context: str
    holder: dict[str, Any]  # the object in the answer that has it
    key: str


class Told(NamedTuple):
    """What one answer says."""

    given: dict[str, Thing]  # that the arguments name
    own: Thing | None  # what the call is about, or made
    made: bool
    things: dict[Thing, Scalar]  # that the answer describes, with their ids as written
    claims: list[Claim]
    clash: str | None  # where the answer contradicts itself


@dataclass
class Fact:
    """What is known of one attribute. ``written`` by a call's arguments, else read; ``past`` holds what it was."""

    value: Any
    call: int  # since which it is so
    written: bool = False
    settled: bool = True
    past: list[Any] = field(default_factory=list)

    def change(self, value: Any, call: int, written: bool) -> None:
        if not same(self.value, value):
            self.past.append(self.value)
            self.call = call
        self.value, self.written, self.settled = value, written, True


@dataclass
class Known:
    """A thing of the world. Facts by attribute, then by context."""

    id: Scalar
    call: int  # that it was first met in
    made_by: str | None = None  # arguments of the call that made it
    gone: bool = False
    facts: dict[str, dict[str, Fact]] = field(default_factory=dict)
    links: set[Thing] = field(default_factory=set)


# ---------------------------------------------------------------- reading an answer


class _Reader:
    """Reads one answer: which things it describes, and what it says of each."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.reads = reads_only(exchange.tool)
        self.noun = noun(exchange.tool)
        self.given: dict[str, Thing] = {}
        for name, value in exchange.arguments.items():
            for n, one in enumerate(value if isinstance(value, list) else [value]):
                kind = identifies(name)
                if kind is not None and _is_id(one):
                    self.given[f"{name}[{n}]" if isinstance(value, list) else name] = thing(kind or self.noun, one)
        self.things: dict[Thing, Scalar] = {}
        self.claims: list[Claim] = []
        self.clash: str | None = None

    def told(self) -> Told:
        result = self._unwrapped(self.exchange.result)
        own, made = (None, False) if self.reads else self._written(result)
        if isinstance(result, dict):
            own = self._about(result) if self.reads else own
            self.clash = self._another(result)
            self._object(result, own, self.noun, "")
        elif isinstance(result, list):
            self._items(result, self.noun)
        return Told(self.given, own, made, self.things, self.claims, self.clash)

    def _unwrapped(self, result: Any) -> Any:
        """The one object that a result is a wrapper of: ``{"ok": true, "issue": {...}}``."""
        inner = [name for name, one in result.items() if isinstance(one, dict)] if isinstance(result, dict) else []
        if len(inner) == 1 and (inner[0] in WRAPPERS or singular(inner[0].lower()) == self.noun):
            return result[inner[0]]
        return result

    def _about(self, result: dict[str, Any]) -> Thing | None:
        """What the object that a reading returns describes."""
        here = _handles(result, self.noun)
        given = set(self.given.values())
        for one in here.values():
            if one in given:
                return one
        named = next((one for one in here.values() if one.kind == self.noun), None)
        if named is not None:
            return named
        if here and next(iter(result)) in here:
            return next(iter(here.values()))
        return next(iter(given)) if len(given) == 1 and next(iter(given)).kind == self.noun else None

    def _another(self, result: dict[str, Any]) -> str | None:
        """The answer of ``get_issue`` or ``update_issue`` about another issue than the one that was named."""
        plain = len(words(self.exchange.tool)) == 2 and (self.reads or verb(self.exchange.tool) in UPDATING_VERBS)
        asked = {one for one in self.given.values() if one.kind == self.noun}
        here = [one for one in _handles(result, self.noun).values() if one.kind == self.noun]
        if plain and len(asked) == 1 and here and not asked & set(here):
            return f"the call is about {next(iter(asked))} and the answer about {here[0]}"
        return None

    def _written(self, result: Any) -> tuple[Thing | None, bool]:
        """What a call that changes something made, else what it changed."""
        here = list(_handles(self._unwrapped(result), self.noun).values()) if isinstance(result, dict) else []
        given = list(self.given.values())
        echoed = [one for one in here if one in given]
        changes = verb(self.exchange.tool) in UPDATING_VERBS | DELETING_VERBS
        if here and not changes and not any(one.kind == self.noun for one in echoed):
            fresh = [one for one in here if one.id not in {other.id for other in given}]
            likely = [one for one in fresh if one.kind == self.noun] + fresh[: here[0] in fresh]
            if likely:
                return likely[0], True
        named = [one for one in given if one.kind == self.noun]
        return next(iter(echoed + named + given), None), False

    def _object(self, value: dict[str, Any], own: Thing | None, noun_here: str, prefix: str) -> None:
        """Claims of an object about its thing; objects inside it that have ids are things of their own."""
        if own is not None and not prefix:
            self._met(own, value, noun_here)
        has_list = any(isinstance(one, list) for one in value.values())
        for name, one in value.items():
            if isinstance(one, dict):
                inner = self._inner(one, name)
                if inner is not None:
                    self._object(one, inner, inner.kind, "")
                else:
                    self._object(one, own, noun_here, f"{prefix}{name}.")
            elif isinstance(one, list) and any(isinstance(item, dict) for item in one):
                self._items(one, name)
            elif own is not None and one is not None and not (has_list and COUNTING & set(words(name))):
                self._claim(own, prefix + name, one, noun_here, value, name)

    def _inner(self, value: dict[str, Any], name: str) -> Thing | None:
        kind = singular(words(name)[-1]) if words(name) else ""
        return next((one for one in _handles(value, kind).values() if one.kind == kind), None)

    def _items(self, items: Sequence[Any], container: str) -> None:
        """A list of objects, each its own thing where its id is no other item's."""
        kind = singular(words(container)[-1]) if words(container) else ""
        kinds = {kind, self.noun} - WRAPPERS
        objects = [one for one in items if isinstance(one, dict)]
        owners = [self._owner(one, kinds, kind) for one in objects]
        for one, own in zip(objects, owners, strict=True):
            if own is not None and own.kind not in kinds and owners.count(own) > 1:
                own = None  # what the items have in common is not what each of them is
            if own is not None and own.kind in kinds:
                self.clash = self.clash or self._elsewhere(one, own)
            self._object(one, own, own.kind if own is not None and own.kind in kinds else self.noun, "")

    def _elsewhere(self, item: dict[str, Any], own: Thing) -> str | None:
        """An item of a list that belongs to another thing than the one whose list was asked for."""
        for name, given in self.given.items():
            there = item.get(name)
            if identifies(name) != own.kind and _is_id(there) and value_id(there) != given.id:
                return f"{own} has {name} {there!r} in a list for {given}"
        return None

    def _owner(self, item: dict[str, Any], kinds: set[str], kind: str) -> Thing | None:
        bare = kind if kind not in WRAPPERS else self.noun
        here = _handles(item, bare)
        given = set(self.given.values())
        free = {name: one for name, one in here.items() if one not in given}
        named = next((one for name, one in free.items() if one.kind in kinds or identifies(name) == ""), None)
        if named is not None:
            return named
        return free.get(next(iter(item), ""))

    def _met(self, own: Thing, value: dict[str, Any], noun_here: str) -> None:
        raw = next((value[name] for name, one in _handles(value, noun_here).items() if one == own), own.id)
        self.things.setdefault(own, raw)

    def _claim(self, own: Thing, path: str, value: Any, noun_here: str, holder: dict[str, Any], key: str) -> None:
        if not (_is_scalar(value) or (isinstance(value, list) and all(map(_is_scalar, value)))):
            return
        if identifies(key) is not None and _is_id(value) and value_id(value) == own.id:
            return
        if self.reads and holder is self.exchange.result and key in self.exchange.arguments:
            return  # a condition of the question, not a property
        name = attribute(path, own.kind)
        if noun_here != own.kind and name not in LASTING and identifies(key) is None:
            name = f"{noun_here}:{name}"  # a player's career and a player's season both have goals
        claim = Claim(own, name, value, self._context(own), holder, key)
        for other in self.claims:
            if other[:2] == claim[:2] and other.holder is not holder and not same(other.value, value):
                self.clash = f"{own} has {key} {other.value!r} in one place and {value!r} in another"
        self.claims.append(claim)

    def _context(self, own: Thing) -> str:
        """What a reading's answer may depend on beside the thing; what a change leaves behind depends on nothing."""
        if not self.reads:
            return ""
        rest = {
            name: value
            for name, value in self.exchange.arguments.items()
            if not presents(name) and self.given.get(name) != own
        }
        return canonical(rest) if rest else ""


def thing(kind: str, value: Scalar) -> Thing:
    return Thing(kind, value_id(value))


def value_id(value: Any) -> str:
    return str(value).strip().casefold()


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip() != ""


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _handles(value: Mapping[str, Any], bare: str) -> dict[str, Thing]:
    """The properties of an object that identify something; a bare ``id`` is one of ``bare``'s."""
    found = {}
    for name, one in value.items():
        kind = identifies(name)
        if kind is not None and _is_id(one):
            found[name] = thing(kind or bare, one)
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two values say the same: numbers by value, texts but for case and space, a day and a moment on it."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= 1e-6 * max(1.0, abs(one), abs(other))
    mine, theirs = (" ".join(str(text).casefold().split()) for text in (one, other))
    moments = MOMENT.fullmatch(mine), MOMENT.fullmatch(theirs)
    if moments[0] and moments[1]:
        parts = zip(moments[0].groups(), moments[1].groups(), strict=True)
        return all(left == right for left, right in parts if left and right)
    return mine == theirs


# ---------------------------------------------------------------- the state


@dataclass
class World:
    """What one conversation has settled. Answers are taken in order; ``contradiction`` is asked before each."""

    known: dict[Thing, Known] = field(default_factory=dict)
    n_calls: int = 0

    def missing(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """What a server says to a call that names a thing which is gone; None where it names none."""
        if verb(tool) in RESTORING_VERBS:
            return None
        for name, one in Exchange(tool, arguments).told.given.items():
            if one in self.known and self.known[one].gone:
                return f"not found: {arguments.get(name, self.known[one].id)}"
        return None

    def contradiction(self, exchange: Exchange) -> str | None:
        """What in an answer cannot be, after all that was answered before; None where it may be."""
        if exchange.error is not None:
            return self._lost(exchange)
        if _failed(exchange):
            return None
        said = exchange.told
        found = said.clash or _unechoed(exchange) or self._risen(exchange, said) or self._made_twice(exchange, said)
        return found or self._changed(exchange, said) or self._left_out(exchange, said)

    def take(self, exchange: Exchange) -> None:
        """Note what an answer says and does. Errors change nothing."""
        self.n_calls += 1
        if exchange.error is not None or _failed(exchange):
            return
        said = exchange.told
        if not reads_only(exchange.tool):
            self._touch(exchange, said)
        for one, raw in said.things.items():
            self._get(one, raw)
        if not reads_only(exchange.tool):
            self._write(exchange, said)
        for claim in said.claims:
            self._note(claim.thing, claim.attribute, claim.context, claim.value)
        self._link(said)

    def earlier(self, exchange: Exchange) -> Any:
        """The result as it would have read before the last change to what it tells; None where none is known."""
        result = copy.deepcopy(exchange.result)
        claims = Exchange(exchange.tool, exchange.arguments, result).told.claims
        changed = [(fact, claim) for claim in claims if (fact := self._altered(claim)) is not None]
        listed = [one for one in claims if one.holder is not result and self._is_made(one.thing)]
        last = max([fact.call for fact, _ in changed] + [self.known[one.thing].call for one in listed], default=None)
        if last is None:
            return None
        for fact, claim in changed:
            if fact.call == last:
                claim.holder[claim.key] = fact.past[-1]
        _leave_out(result, {id(one.holder) for one in listed if self.known[one.thing].call == last})
        return result

    def _altered(self, claim: Claim) -> Fact | None:
        """The fact behind a claim, where it had another value of the same type before."""
        fact = next(self._facts(claim), None)
        if fact is None or not fact.past or not same(fact.value, claim.value):
            return None
        before = fact.past[-1]
        return None if type(before) is not type(claim.value) or same(before, claim.value) else fact

    def _is_made(self, one: Thing) -> bool:
        return one in self.known and self.known[one].made_by is not None

    def shown(self) -> dict[str, Any]:
        """The state as a prompt gives it: what must stay, and what is gone."""
        things = [
            {"kind": one.kind, "id": known.id, "values": values}
            for one, known in self.known.items()
            if not known.gone and ((values := _settled(known)) or known.made_by is not None)
        ]
        gone = [{"kind": one.kind, "id": known.id} for one, known in self.known.items() if known.gone]
        return {"things": things, "gone": gone}

    # ----------------------------------------------------- what cannot be

    def _lost(self, exchange: Exchange) -> str | None:
        """An error that denies a thing which is there."""
        error = exchange.error or ""
        if not NOT_FOUND.search(error) or verb(exchange.tool) in DELETING_VERBS:
            return None
        given = exchange.told.given
        for one in given.values():
            known = self.known.get(one)
            meant = len(exchange.arguments) == 1 or value_id(one.id) in error.casefold()
            if known is not None and meant and not known.gone:
                return f"{one} is there: call {known.call} told of it, and nothing has removed it"
        return None

    def _risen(self, exchange: Exchange, said: Told) -> str | None:
        if verb(exchange.tool) in RESTORING_VERBS | DELETING_VERBS:
            return None
        about = {said.own, *(one for one in said.things if one.kind == noun(exchange.tool))}  # not what it refers to
        gone = next((one for one in said.things if one in about and one in self.known and self.known[one].gone), None)
        return f"{gone} was deleted and is in the answer" if gone else None

    def _made_twice(self, exchange: Exchange, said: Told) -> str | None:
        if not said.made or said.own is None or said.own not in self.known:
            return None
        known = self.known[said.own]
        if known.made_by is not None and known.made_by != canonical(exchange.arguments):
            return f"the id of {said.own} was given out in call {known.call}; what is new needs an id of its own"
        for name, value in exchange.arguments.items():
            facts = known.facts.get(attribute(name, said.own.kind), {})
            if any(fact.settled and not same(fact.value, value) for fact in facts.values()):
                return f"the id of {said.own} belongs to another {said.own.kind}, met in call {known.call}"
        return None

    def _changed(self, exchange: Exchange, said: Told) -> str | None:
        """A claim that differs from what is settled, where this call did not change it."""
        reads = reads_only(exchange.tool)
        for claim in said.claims:
            for fact in self._facts(claim):
                kept = fact.settled and (reads or not _may_change(exchange, said, claim.thing, claim.attribute, fact))
                if kept and not same(fact.value, claim.value):
                    how = "written" if fact.written else "told"
                    return (
                        f"{claim.key} of {claim.thing} is {fact.value!r}, {how} in call {fact.call} and not changed "
                        f"since; the answer says {claim.value!r}"
                    )
        return None

    def _left_out(self, exchange: Exchange, said: Told) -> str | None:
        """A whole list that lacks a thing made in this session."""
        if verb(exchange.tool) != "list" or exchange.arguments or _has_more(exchange.result):
            return None
        kind, ids = noun(exchange.tool), {one.id for one in said.things}
        made = [one for one, known in self.known.items() if one.kind == kind and known.made_by and not known.gone]
        lacks = next((one for one in made if one.id not in ids), None)
        if not ids and not _lists_nothing(exchange.result):
            return None  # what is listed has no ids
        return f"{lacks}, made in call {self.known[lacks].call}, is not in the list" if lacks else None

    def _facts(self, claim: Claim) -> Iterator[Fact]:
        """What is known of a claim's attribute and comparable with it, the written first."""
        known = self.known.get(claim.thing)
        if known is None:
            return
        every = known.facts.get(claim.attribute, {})
        for context, fact in sorted(every.items(), key=lambda one: not one[1].written):
            lasting = claim.attribute in LASTING and isinstance(claim.value, str)
            if fact.written or lasting or context == claim.context or "" in (context, claim.context):
                yield fact

    # ----------------------------------------------------- what an answer does

    def _get(self, one: Thing, raw: Scalar) -> Known:
        return self.known.setdefault(one, Known(raw, self.n_calls))

    def _note(self, one: Thing, name: str, context: str, value: Any, written: bool = False) -> None:
        facts = self._get(one, one.id).facts.setdefault(name, {})
        others = [fact for fact in facts.values() if written and not same(fact.value, value)]
        for other in others:
            other.settled = False
        fact = facts.get(context)
        if fact is None:
            facts[context] = Fact(value, self.n_calls, written, past=[other.value for other in others])
        else:
            fact.change(value, self.n_calls, written or (fact.written and same(fact.value, value)))

    def _touch(self, exchange: Exchange, said: Told) -> None:
        """Unsettle what a call may have changed."""
        named = {*said.given.values(), *said.things}
        near = {other for one in named if one in self.known for other in self.known[one].links}
        for one in (named | near) if named else list(self.known):
            for name, facts in (self.known[one].facts if one in self.known else {}).items():
                for fact in facts.values():
                    fact.settled = fact.settled and not _may_change(exchange, said, one, name, fact)

    def _write(self, exchange: Exchange, said: Told) -> None:
        """Note what the arguments of a call that makes, updates or deletes say of its thing."""
        word, own = verb(exchange.tool), said.own
        if word in DELETING_VERBS | RESTORING_VERBS:
            target = _deleted(exchange)
            if target is not None:
                raw = exchange.arguments.get(next(iter(said.given)), target.id)
                self._get(target, raw).gone = word in DELETING_VERBS
            return
        if own is None or not (said.made or word in UPDATING_VERBS):
            return
        if said.made:
            self._get(own, said.things.get(own, own.id)).made_by = canonical(exchange.arguments)
        about = noun(exchange.tool)
        for name, value in exchange.arguments.items():
            plain = _is_scalar(value) or (isinstance(value, list) and all(map(_is_scalar, value)))
            if plain and said.given.get(name) != own and not (presents(name) and said.made is False):
                plainly = attribute(name, own.kind)
                self._note(own, plainly, "", value, written=True)
                if about != own.kind and not said.made:
                    self._note(own, f"{about}:{plainly}", "", value, written=True)

    def _link(self, said: Told) -> None:
        """Things met in one call have to do with one another: those asked for with each that was told of."""
        pairs = [(given, one) for given in said.given.values() for one in said.things if given != one]
        for claim in said.claims:
            kind = identifies(claim.key)
            if kind and _is_id(claim.value):
                pairs.append((claim.thing, thing(kind, claim.value)))
        for one, other in pairs:
            self._get(one, one.id).links.add(other)
            self._get(other, other.id).links.add(one)


def _failed(exchange: Exchange) -> bool:
    """Whether the result of a call that changes something says that nothing was changed."""
    if reads_only(exchange.tool) or not isinstance(exchange.result, dict):
        return False
    deletes = verb(exchange.tool) in DELETING_VERBS
    names = (*OUTCOMES, "deleted", "removed") if deletes else OUTCOMES
    return any(exchange.result.get(name) is False for name in names)


def _may_change(exchange: Exchange, said: Told, one: Thing, name: str, fact: Fact) -> bool:
    """Whether a call that names a thing, or one that it was met with, may change an attribute of it."""
    word = verb(exchange.tool)
    name = name.rpartition(":")[2]
    named = any(attribute(key, one.kind) == name for key in exchange.arguments)
    if named or noun(exchange.tool) in name.split("_") or (word == "rename" and name in LASTING):
        return True
    updates = word in UPDATING_VERBS and one == said.own  # an update says what it changes
    return not (name in LASTING or (updates and fact.written))


def _deleted(exchange: Exchange) -> Thing | None:
    """The one thing that a call deletes: ``remove_label`` of an issue does not remove the issue."""
    given = list(exchange.told.given.values())
    named = len(given) == 1 and (given[0].kind == noun(exchange.tool) or len(exchange.arguments) == 1)
    return given[0] if named else None


def _lists_nothing(result: Any) -> bool:
    """Whether a result is, or holds, an empty list, and no other."""
    lists = [result] if isinstance(result, list) else []
    lists += [one for one in result.values() if isinstance(one, list)] if isinstance(result, dict) else []
    return bool(lists) and not any(lists)


def _has_more(result: Any) -> bool:
    if not isinstance(result, dict):
        return False
    return any(value for name, value in result.items() if {"next", "more", "cursor", "truncated"} & set(words(name)))


def _leave_out(value: Any, objects: set[int]) -> None:
    """Take objects, by identity, out of the lists in a result; a count beside a list follows it."""
    if isinstance(value, list):
        value[:] = [one for one in value if id(one) not in objects]
    for one in list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        n_before = len(one) if isinstance(one, list) else None
        _leave_out(one, objects)
        if n_before is not None and isinstance(value, dict) and len(one) < n_before:
            value |= {
                name: len(one)
                for name, count in value.items()
                if type(count) is int and count == n_before and COUNTING & set(words(name))
            }


def _unechoed(exchange: Exchange) -> str | None:
    """An argument that the answer names with another value."""
    if not isinstance(exchange.result, dict):
        return None
    reads, transforms = reads_only(exchange.tool), verb(exchange.tool) in TRANSFORMING_VERBS
    for name, given in exchange.arguments.items():
        value = exchange.result.get(name)
        if not (_is_scalar(given) and _is_scalar(value)) or presents(name) or same(given, value):
            continue
        free = transforms or (reads and (not isinstance(given, str) or _within(given, value)))
        if identifies(name) is not None or not free:
            return f"{name} is {given!r} in the call and {value!r} in the answer"
    return None


def _within(one: Any, other: Any) -> bool:
    mine, theirs = str(one).casefold(), str(other).casefold()
    return mine in theirs or theirs in mine


def _settled(known: Known) -> dict[str, Any]:
    """One value for each attribute that is settled: the written, else the one that depends on nothing, else any."""
    values = {}
    for name, facts in known.facts.items():
        settled = [(not fact.written, context, fact.value) for context, fact in facts.items() if fact.settled]
        if settled:
            values[name.rpartition(":")[2]] = min(settled, key=lambda one: one[:2])[2]
    return values
