"""Schemas as documents write them -> JSON Schema 2020-12 that stands alone (paper section 3.1: "convertible schemas").

References are inlined, older drafts and OpenAPI dialects translated, type names of other worlds understood, and what no
keyword of 2020-12 can mean is dropped. Cleaning what was cleaned changes nothing. The result is valid by construction:
it holds only the keywords of ``keywords.py``, each with a value that its table allows; tests hold that against the
meta-schema, which is much too slow to be asked about every tool.

A result without notes accepts exactly the values that the document's schema accepts. Whatever was lost or guessed
leaves a note ``<what> <pointer>``:

    accepts more    truncated_recursion  a definition that contains itself is unrolled ``max_ref_depth`` times; the next
                                         occurrence takes anything of its type, e.g. an open object
                    truncated_definition inlining all references would make too much of it: definitions below a certain
                                         number of others take anything of their type
                    unresolved_ref       the reference leads out of the document, or nowhere
                    unknown_type         no type that we know has this name
                    bad_keyword, bad_pattern, bad_schema   what stands there means nothing, or nothing to Python
                    enum_type_mismatch   type and enum disagree: the values win
                    enum_without_null    type allows null and enum does not: null was added
                    ghost_required       a required name had no property; it has one now
                    empty_range          a least that is over the most: no value could be given; both were dropped
                    loosened             a not, if or oneOf around one of these, or what refuses all else beside one,
                                         would refuse more now, so it was dropped (oneOf: became anyOf)
                    top_level_union      the alternatives of a call's arguments became one object (``flat_top``)
    accepts less    implied_type         properties without type: an object; items without type: an array
                    flat_parameters      parameters stood where a schema should; they are its properties (``flat``)
    as before       null_only            a property that can only be null is of no use for linking tools
                    default_dropped, default_coerced   a default that its schema refuses (``defaults``)

Of each kind the first ``MAX_NOTES`` are told, then how many more there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from astra.formats import flat
from astra.formats.defaults import honest
from astra.formats.keywords import (
    ANNOTATIONS,
    BOOLEAN_SINGLES,
    IN_PLACE,
    LISTS,
    MAPS,
    SCALARS,
    SINGLES,
    Schema,
    distinct,
    empty_ranges,
    has_type,
    in_order,
    is_pattern,
    kinds_of,
    listed,
    one_type,
    plain_format,
    scalar,
    translated,
)
from astra.formats.references import References, escape, step
from astra.formats.type_names import UnknownTypeName, named_type
from astra.formats.unions import TOP_FORBIDDEN, UNEVALUATED, beside_reference, flat_top, or_null, simplified
from astra.records import canonical

MAX_NESTING = 64
MAX_SUBSCHEMAS = 5000
CUT_SUBSCHEMAS = 1000  # of one that must be cut anyway: no more than a model may read
CUT_BELOW = (8, 6, 5, 4, 3, 2, 1, 0)  # references within references that are followed, the most first
MAX_HOPS = 16
MAX_PASSES = 8
MAX_NOTES = 20
TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
LOOSER = frozenset(
    [
        "truncated_recursion",
        "truncated_definition",
        "unresolved_ref",
        "unknown_type",
        "bad_keyword",
        "bad_pattern",
        "bad_schema",
        "enum_type_mismatch",
        "enum_without_null",
        "ghost_required",
        "empty_range",
        "loosened",
    ]
)
NO_CONTAINER = frozenset({"type", "anyOf", "oneOf", "allOf", "const", "enum"})


class SchemaInvalid(Exception):
    """No schema can be made of this. ``pointer`` says where."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.pointer = pointer


class SchemaTooLarge(SchemaInvalid):
    """Inlining its references makes the schema larger than any model could read."""


class Cleaned(NamedTuple):
    schema: Schema
    notes: tuple[str, ...]


def clean(schema: Any, root: Any, max_ref_depth: int, pointer: str = "") -> Cleaned:
    """A schema for any value. Raises SchemaInvalid.

    ``root`` is the document that ``#/...`` references point into where the schema itself has no such place.
    """
    return _settled(schema, root, max_ref_depth, pointer, in_place=False)


def clean_parameters(schema: Any, root: Any, max_ref_depth: int, pointer: str = "") -> Cleaned:
    """A schema for a call's arguments: always an object with ``properties`` and ``required``. Raises SchemaInvalid."""
    read = flat.as_schema(schema)
    cleaned, notes = _settled(read.schema, root, max_ref_depth, pointer, in_place=True)
    return Cleaned(cleaned, (f"flat_parameters {pointer or '/'}", *notes) if read.is_made else notes)


class Bounds(NamedTuple):
    """How far references are followed: a definition inside itself, references within references, subschemas in all."""

    depth: int
    hops: int = MAX_NESTING
    most: int = MAX_SUBSCHEMAS


def _bounds(max_ref_depth: int) -> Iterator[Bounds]:
    """What is tried, until the schema is small enough: the whole of it, then less and less of its definitions."""
    for depth in range(max_ref_depth, 0, -1):
        yield Bounds(depth)
    for hops in CUT_BELOW:
        yield Bounds(1, hops, CUT_SUBSCHEMAS)
    yield Bounds(1, 0)


def _settled(schema: Any, root: Any, max_ref_depth: int, pointer: str, in_place: bool) -> Cleaned:
    """The cleaned schema and the notes. What was merged is cleaned again, until that changes nothing."""
    cleaner, cleaned = _unrolled(schema, root, max_ref_depth, pointer, in_place)
    notes = cleaner.notes
    for _ in range(MAX_PASSES if cleaner.merged else 0):
        before = canonical(cleaned)
        again = _Cleaner(References((cleaned,)), Bounds(1))
        cleaned = again.whole(cleaned, pointer, in_place)
        notes |= again.notes
        if canonical(cleaned) == before:
            break
    cleaned = honest(cleaned, pointer, cleaner.note)
    return Cleaned(cleaned, tuple(_told(notes)))


def _unrolled(schema: Any, root: Any, max_ref_depth: int, pointer: str, in_place: bool) -> tuple[_Cleaner, Schema]:
    """The cleaner after its first pass, and the result; unrolled less far where only that makes it small enough."""
    refused: SchemaTooLarge | None = None
    for bounds in _bounds(max_ref_depth):
        cleaner = _Cleaner(References((schema, root)), bounds)
        try:
            return cleaner, cleaner.whole(schema, pointer, in_place)
        except SchemaTooLarge as error:
            refused = error
    assert refused is not None
    raise refused


def _told(notes: Iterable[str]) -> Iterator[str]:
    """The notes, of each kind only so many: one schema may be cut in thousands of places."""
    met: Counter[str] = Counter()
    for note in notes:
        what = note.partition(" ")[0]
        met[what] += 1
        if met[what] <= MAX_NOTES:
            yield note
    for what, n in met.items():
        if n > MAX_NOTES:
            yield f"{what} in {n - MAX_NOTES} more places"


@dataclass
class _Cleaner:
    """One pass over one schema. ``path`` names the references that are being unrolled, outermost first."""

    references: References
    bounds: Bounds
    notes: dict[str, None] = field(default_factory=dict)
    n_subschemas: int = 0
    n_loose: int = 0
    merged: bool = False

    def note(self, what: str, pointer: str, detail: str = "") -> None:
        self.n_loose += what in LOOSER
        self.notes[f"{what} {pointer or '/'}" + (f" ({detail})" if detail else "")] = None

    def whole(self, raw: Any, pointer: str, in_place: bool) -> Schema:
        """The cleaned form of the outermost schema, which is a call's arguments where it is ``in_place``."""
        cleaned = self.schema(raw, pointer, ("#",), in_place)
        return self._parameters(cleaned, pointer) if in_place else cleaned

    def _parameters(self, cleaned: Schema, pointer: str) -> Schema:
        kinds = listed(cleaned.get("type", "object"))
        cleaned = {key: value for key, value in cleaned.items() if key != "type"}
        if "object" not in kinds or cleaned == {"not": {}}:
            found = "/".join(kinds) if cleaned != {"not": {}} else "nothing at all"
            raise SchemaInvalid(pointer, f"parameters must be an object, not {found}")
        if cleaned.keys() & TOP_FORBIDDEN:
            cleaned = flat_top(cleaned)
            self.merged = True
            self.note("top_level_union", pointer)
        self._add_ghosts(cleaned, pointer)
        properties, required = cleaned.pop("properties", {}), cleaned.pop("required", [])
        cleaned = {"type": "object", "properties": properties, "required": required, **cleaned}
        return cleaned if _mentions(cleaned, "unevaluatedItems") else _with_items(cleaned)

    def schema(self, raw: Any, pointer: str, path: tuple[str, ...], in_place: bool = False) -> Schema:
        """The cleaned form of any (sub)schema, boolean and absent ones included.

        ``in_place``: it speaks of the value that the schema around it speaks of, so nothing may be guessed here.
        """
        self.n_subschemas += 1
        if self.n_subschemas > self.bounds.most:
            raise SchemaTooLarge(pointer, f"more than {self.bounds.most} subschemas with its definitions left out")
        if pointer.count("/") > 2 * MAX_NESTING:
            raise SchemaTooLarge(pointer, f"nested more than {MAX_NESTING} deep")
        if raw is True or raw is None:
            return {}
        if raw is False:
            return {"not": {}}
        if isinstance(raw, str):
            raw = {"type": raw}
        if not isinstance(raw, dict):
            self.note("bad_schema", pointer, type(raw).__name__)
            return {}
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if key in raw:
                return self._referenced(raw, key, pointer, path, in_place)
        return self._keywords(raw, pointer, path, in_place)

    # ------------------------------------------------------------ references

    def _referenced(self, raw: Schema, key: str, pointer: str, path: tuple[str, ...], in_place: bool) -> Schema:
        reference = raw[key]
        beside = {k: v for k, v in raw.items() if k not in (key, "nullable")}
        siblings = self.schema(beside, pointer, path, True) if beside else {}
        if not isinstance(reference, str):
            return self._unresolved(siblings, type(reference).__name__, pointer, in_place)
        target = self.references.resolve(reference)
        if target is None:
            return self._unresolved(siblings, reference, pointer, in_place)
        cut = self._cut(reference, path)
        if cut is not None:
            self.note(cut, pointer, reference)
            merged = self._open(target.value, pointer) | {k: siblings[k] for k in ANNOTATIONS if k in siblings}
        else:
            alone = not siblings.keys() - set(ANNOTATIONS)
            self.merged |= not alone
            n_loose = self.n_loose
            cleaned = self.schema(target.value, pointer, (*path, reference), in_place or not alone)
            if self.n_loose > n_loose:
                self._drop(siblings, UNEVALUATED, pointer)
            merged = beside_reference(cleaned, siblings)
        return self._finished(merged, pointer, in_place, raw.get("nullable") is True)

    def _cut(self, reference: str, path: tuple[str, ...]) -> str | None:
        """Why a reference is not followed, as the note says it; None for one that is."""
        if path.count(reference) >= self.bounds.depth:
            return "truncated_recursion"
        return "truncated_definition" if len(path) > self.bounds.hops else None

    def _unresolved(self, siblings: Schema, reference: str, pointer: str, in_place: bool) -> Schema:
        """What stands beside a reference that leads nowhere."""
        self.note("unresolved_ref", pointer, reference)
        self._drop(siblings, UNEVALUATED, pointer)
        return self._finished(siblings, pointer, in_place, nullable=False)

    def _drop(self, cleaned: Schema, keys: Iterable[str], pointer: str) -> None:
        """Take keywords away that would refuse what the document takes; in place."""
        for key in sorted(cleaned.keys() & set(keys)):
            del cleaned[key]
            self.note("loosened", step(pointer, key))

    def _open(self, raw: Any, pointer: str) -> Schema:
        """Anything of the type that a definition has; anything at all where it does not say one type of its own."""
        for _ in range(MAX_HOPS):
            if not isinstance(raw, dict):
                break
            if isinstance(raw.get("$ref"), str):
                target = self.references.resolve(raw["$ref"])
                raw = target.value if target else None
                continue
            kinds = self._types(raw.get("type"), "", ()).get("type") if "type" in raw else None
            if kinds is None and "properties" in raw and not raw.keys() & NO_CONTAINER:
                kinds = "object"
                self.note("implied_type", pointer, kinds)
            if kinds is None:
                break
            nullable = "null" in listed(kinds) or raw.get("nullable") is True
            return one_type({"type": [*(one for one in listed(kinds) if one != "null"), *(["null"] * nullable)]})
        return {}

    # -------------------------------------------------------------- keywords

    def _keywords(self, raw: Schema, pointer: str, path: tuple[str, ...], in_place: bool) -> Schema:
        spelled_out = flat.spelled_out(raw)
        if spelled_out is not None:
            self.note("flat_parameters", pointer)
        raw = translated(spelled_out or raw)
        nullable = raw.pop("nullable", False) is True
        cleaned = self._types(raw.pop("type", None), pointer, path)
        if "anyOf" in cleaned and raw.pop("anyOf", None) is not None:
            self.note("bad_keyword", step(pointer, "anyOf"))
        looser: set[str] = set()
        for key, value in raw.items():
            n_loose = self.n_loose
            if key == "format" and isinstance(value, str):
                cleaned |= self._format(value, step(pointer, key))
            elif key in SCALARS:
                if SCALARS[key](value):
                    cleaned[key] = scalar(key, value)
                elif value is not None:
                    self.note("bad_keyword", step(pointer, key))
            elif key in MAPS:
                cleaned |= self._map(key, value, step(pointer, key), path)
            elif key in LISTS:
                cleaned |= self._list(key, value, step(pointer, key), path)
            elif key in SINGLES:
                allows_boolean = key in BOOLEAN_SINGLES and (value is False or (value is True and key != "items"))
                at = step(pointer, key)
                cleaned[key] = value if allows_boolean else self.schema(value, at, path, key in IN_PLACE)
            if self.n_loose > n_loose:
                looser.add(key)
        if looser:
            self._turn_round(cleaned, looser, raw, pointer)
        for keys in empty_ranges(cleaned):
            self.note("empty_range", pointer, " ".join(f"{key} {cleaned.pop(key)}" for key in keys))
        if "required" in raw or "properties" in raw:
            self._required(raw, cleaned, pointer)
        if "enum" in raw:
            self._enum(raw["enum"], cleaned, pointer)
        self.merged |= "allOf" in cleaned
        return self._finished(cleaned, pointer, in_place, nullable)

    def _format(self, value: str, at: str) -> Schema:
        """A format's name; what can be none is dropped."""
        name = plain_format(value)
        if name is None:
            self.note("bad_keyword", at, value[:40])
        return {"format": name} if name is not None else {}

    def _turn_round(self, cleaned: Schema, looser: set[str], raw: Schema, pointer: str) -> None:
        """Take away what refuses more since something in it (``looser``) accepts more; in place."""
        self._drop(cleaned, {"not"} & looser, pointer)
        self._drop(cleaned, ("if", "then", "else") if "if" in looser else (), pointer)
        self._drop(cleaned, ("maxContains",) if "contains" in looser else (), pointer)
        if looser & IN_PLACE:
            self._drop(cleaned, UNEVALUATED, pointer)
        patterns = raw.get("patternProperties")
        if isinstance(patterns, dict) and not all(is_pattern(one) for one in patterns):
            self._drop(cleaned, ("additionalProperties", "unevaluatedProperties"), pointer)
        if "oneOf" in looser and "oneOf" in cleaned:
            branches = cleaned.pop("oneOf")
            self.note("loosened", step(pointer, "oneOf"))
            cleaned.setdefault("anyOf", branches)

    def _finished(self, cleaned: Schema, pointer: str, in_place: bool, nullable: bool) -> Schema:
        cleaned = simplified(cleaned)
        if not in_place:
            self._infer_container(cleaned, pointer)
            if "properties" in cleaned:
                self._add_ghosts(cleaned, pointer)
        cleaned = in_order(cleaned)
        return in_order(simplified(or_null(cleaned))) if nullable else cleaned

    def _types(self, raw: Any, pointer: str, path: tuple[str, ...]) -> Schema:
        """What ``type`` says: a name, a list of names, or (seen in the wild) a schema."""
        if raw is None:
            return {}
        if isinstance(raw, str) and raw in TYPES:
            return {"type": raw}
        if isinstance(raw, dict):
            return self.schema(raw, step(pointer, "type"), path, True)
        names = ["null" if one is None else one for one in raw] if isinstance(raw, list) else [raw]
        try:
            found = [named_type(one) if isinstance(one, str) else _refuse(one) for one in names]
        except UnknownTypeName as error:
            self.note("unknown_type", step(pointer, "type"), str(error))
            return {}
        if not found or {} in found:
            return {}
        if all(set(one) == {"type"} for one in found):
            kinds = list(dict.fromkeys(kind for one in found for kind in listed(one["type"])))
            return one_type({"type": kinds})
        return self._keywords(found[0], pointer, path, True) if len(found) == 1 else {"anyOf": found}

    def _map(self, key: str, value: Any, at: str, path: tuple[str, ...]) -> Schema:
        if key == "properties" and isinstance(value, list) and any(isinstance(one, dict) for one in value):
            self.note("flat_parameters", at)
            value = flat.named(value)
        if not isinstance(value, dict):
            if value not in (None, []):
                self.note("bad_keyword", at)
            return {key: {}} if key == "properties" else {}
        kept = {}
        for name, one in value.items():
            if key == "patternProperties" and not is_pattern(name):
                self.note("bad_pattern", step(at, name))
                continue
            kept[name] = self.schema(one, step(at, name), path, key in IN_PLACE)
            if kept[name].get("type") == "null":
                self.note("null_only", step(at, name))
        return {key: kept}

    def _list(self, key: str, value: Any, at: str, path: tuple[str, ...]) -> Schema:
        if not isinstance(value, list) or not value:
            self.note("bad_keyword", at)
            return {}
        return {key: [self.schema(one, step(at, str(n)), path, key in IN_PLACE) for n, one in enumerate(value)]}

    def _required(self, raw: Schema, cleaned: Schema, pointer: str) -> None:
        """The names in ``required``, and those of properties that say ``required: true`` of themselves (draft 3)."""
        given = raw.get("required", [])
        names = [given] if isinstance(given, str) else given
        if flat.is_flag(given) or names is None:
            names = []  # about this schema itself: its parent has read it
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.note("bad_keyword", step(pointer, "required"))
            names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        properties = raw.get("properties")
        if isinstance(properties, list):
            properties = flat.named(properties)
        for name, one in properties.items() if isinstance(properties, dict) else ():
            if flat.says_required(one):
                names = [*names, str(name)]
        if names or (isinstance(given, list) and "required" in raw):
            cleaned["required"] = list(dict.fromkeys(names))

    def _add_ghosts(self, cleaned: Schema, pointer: str) -> None:
        """A property for each required name of an object that has none; in place."""
        properties = dict(cleaned.get("properties", {}))
        for name in [name for name in cleaned.get("required", ()) if name not in properties]:
            rest = cleaned.get("additionalProperties")
            named = any(re.search(pattern, name) for pattern in cleaned.get("patternProperties", ()))
            properties[name] = rest if isinstance(rest, dict) and not named else {}
            cleaned["properties"] = properties
            self.note("ghost_required", step(step(pointer, "properties"), name))

    def _enum(self, values: Any, cleaned: Schema, pointer: str) -> None:
        """The values with their JSON types; where they contradict ``type``, the values win."""
        if not isinstance(values, list) or not values:
            self.note("bad_keyword", step(pointer, "enum"))
            return
        kept = distinct(values)
        kinds = listed(cleaned["type"]) if "type" in cleaned else []
        inferred = kinds_of(kept)
        if kinds and not all(has_type(value, kinds) for value in kept):
            self.note("enum_type_mismatch", step(pointer, "type"), "/".join(kinds))
            kinds = []
        if "null" in kinds and None not in kept:
            kept.append(None)
            self.note("enum_without_null", step(pointer, "enum"))
        cleaned["enum"] = kept
        cleaned |= one_type({"type": kinds or inferred})

    def _infer_container(self, cleaned: Schema, pointer: str) -> None:
        """``properties`` without ``type`` means an object, ``items`` an array."""
        if cleaned.keys() & NO_CONTAINER:
            return
        if "properties" in cleaned:
            cleaned["type"] = "object"
        elif "items" in cleaned or "prefixItems" in cleaned:
            cleaned["type"] = "array"
        if "type" in cleaned:
            self.note("implied_type", pointer, cleaned["type"])


def _refuse(value: Any) -> Schema:
    raise UnknownTypeName(canonical(value)[:80])


# ------------------------------------------------------------- a finished schema


def _subschemas(schema: Schema) -> list[Schema]:
    """The schemas directly below one, boolean ones left out."""
    below = [one for key in SINGLES & schema.keys() for one in [schema[key]]]
    below += [one for key in LISTS & schema.keys() for one in schema[key]]
    below += [one for key in MAPS & schema.keys() for one in schema[key].values()]
    return [one for one in below if isinstance(one, dict)]


def _mentions(schema: Schema, keyword: str) -> bool:
    return keyword in schema or any(_mentions(one, keyword) for one in _subschemas(schema))


def _with_items(schema: Schema) -> Schema:
    """The same with ``items: {}`` in each array that says nothing of its items: endpoints refuse it otherwise."""
    new = dict(schema)
    for key in SINGLES & new.keys():
        new[key] = _with_items(new[key]) if isinstance(new[key], dict) else new[key]
    for key in LISTS & new.keys():
        new[key] = [_with_items(one) for one in new[key]]
    for key in MAPS & new.keys():
        new[key] = {name: _with_items(one) for name, one in new[key].items()}
    if "array" in listed(new.get("type", [])) and "items" not in new:
        new["items"] = {}
        return in_order(new)
    return new


__all__ = ["Cleaned", "Schema", "SchemaInvalid", "clean", "clean_parameters", "escape"]
