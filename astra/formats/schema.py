"""Schemas as documents write them -> JSON Schema 2020-12 that stands alone (paper section 3.1: "convertible schemas").

References are inlined, older drafts and OpenAPI dialects translated, type names of other worlds understood, and what no
keyword of 2020-12 can mean is dropped. Cleaning what was cleaned changes nothing. The result is valid by construction:
it holds only the keywords of ``keywords.py``, each with a value that its table allows; tests hold that against the
meta-schema, which is much too slow to be asked about every tool.

A result without notes accepts exactly the values that the document's schema accepts. Whatever was lost or guessed
leaves a note ``<what> <pointer>`` (below not, if, oneOf and maxContains, more and less change places):

    accepts more    truncated_recursion  a definition that contains itself is unrolled ``max_ref_depth`` times; the next
                                         occurrence takes anything of its type, e.g. an open object
                    unresolved_ref       the reference leads out of the document, or nowhere
                    unknown_type         no type that we know has this name
                    bad_keyword, bad_pattern, bad_schema   what stands there means nothing, or nothing to Python
                    enum_type_mismatch   type and enum disagree: the values win
                    enum_without_null    type allows null and enum does not: null was added
                    ghost_required       a required name had no property; it has one now
                    top_level_union      the alternatives of a call's arguments became one object (``flat_top``)
    accepts less    implied_type         properties without type: an object; items without type: an array
    as before       null_only            a property that can only be null is of no use for linking tools
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    has_type,
    in_order,
    is_pattern,
    kinds_of,
    listed,
    one_type,
    scalar,
    translated,
)
from astra.formats.references import References, escape, step
from astra.formats.type_names import UnknownTypeName, named_type
from astra.formats.unions import TOP_FORBIDDEN, beside_reference, flat_top, or_null, simplified
from astra.records import canonical

MAX_NESTING = 64
MAX_SUBSCHEMAS = 5000
MAX_HOPS = 16
MAX_PASSES = 8
TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
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
    cleaned, notes = _settled(schema, root, max_ref_depth, pointer, in_place=False)
    return Cleaned(cleaned, tuple(notes))


def clean_parameters(schema: Any, root: Any, max_ref_depth: int, pointer: str = "") -> Cleaned:
    """A schema for a call's arguments: always an object with ``properties`` and ``required``. Raises SchemaInvalid."""
    cleaned, notes = _settled(schema, root, max_ref_depth, pointer, in_place=True)
    return Cleaned(cleaned, tuple(notes))


def _settled(
    schema: Any, root: Any, max_ref_depth: int, pointer: str, in_place: bool
) -> tuple[Schema, dict[str, None]]:
    """The cleaned schema and the notes. What was merged is cleaned again, until that changes nothing."""
    cleaner, cleaned = _unrolled(schema, root, max_ref_depth, pointer, in_place)
    notes = cleaner.notes
    for _ in range(MAX_PASSES if cleaner.merged else 0):
        before = canonical(cleaned)
        again = _Cleaner(References((cleaned,)), 1)
        cleaned = again.whole(cleaned, pointer, in_place)
        notes |= again.notes
        if canonical(cleaned) == before:
            break
    return cleaned, notes


def _unrolled(schema: Any, root: Any, max_ref_depth: int, pointer: str, in_place: bool) -> tuple[_Cleaner, Schema]:
    """The cleaner after its first pass, and the result; unrolled less often where only that makes it small enough."""
    for depth in range(max_ref_depth, 1, -1):
        cleaner = _Cleaner(References((schema, root)), depth)
        with contextlib.suppress(SchemaTooLarge):
            return cleaner, cleaner.whole(schema, pointer, in_place)
    cleaner = _Cleaner(References((schema, root)), 1)
    return cleaner, cleaner.whole(schema, pointer, in_place)


@dataclass
class _Cleaner:
    """One pass over one schema. ``path`` names the references that are being unrolled, outermost first."""

    references: References
    max_ref_depth: int
    notes: dict[str, None] = field(default_factory=dict)
    n_subschemas: int = 0
    merged: bool = False

    def note(self, what: str, pointer: str, detail: str = "") -> None:
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
        if self.n_subschemas > MAX_SUBSCHEMAS:
            raise SchemaTooLarge(pointer, f"more than {MAX_SUBSCHEMAS} subschemas after inlining references")
        if pointer.count("/") > 2 * MAX_NESTING or len(path) > MAX_NESTING:
            raise SchemaInvalid(pointer, f"nested more than {MAX_NESTING} deep")
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
        siblings = self.schema({k: v for k, v in raw.items() if k not in (key, "nullable")}, pointer, path, True)
        if not isinstance(reference, str):
            self.note("unresolved_ref", pointer, type(reference).__name__)
            return self._finished(siblings, pointer, in_place, nullable=False)
        target = self.references.resolve(reference)
        if target is None:
            self.note("unresolved_ref", pointer, reference)
            return self._finished(siblings, pointer, in_place, nullable=False)
        if path.count(reference) >= self.max_ref_depth:
            self.note("truncated_recursion", pointer, reference)
            merged = self._open(target.value, pointer) | {k: siblings[k] for k in ANNOTATIONS if k in siblings}
        else:
            alone = not siblings.keys() - set(ANNOTATIONS)
            self.merged |= not alone
            cleaned = self.schema(target.value, pointer, (*path, reference), in_place or not alone)
            merged = beside_reference(cleaned, siblings)
        return self._finished(merged, pointer, in_place, raw.get("nullable") is True)

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
        raw = translated(raw)
        nullable = raw.pop("nullable", False) is True
        cleaned = self._types(raw.pop("type", None), pointer, path)
        if "anyOf" in cleaned and raw.pop("anyOf", None) is not None:
            self.note("bad_keyword", step(pointer, "anyOf"))
        for key, value in raw.items():
            if key in SCALARS:
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
        if "required" in raw or "properties" in raw:
            self._required(raw, cleaned, pointer)
        if "enum" in raw:
            self._enum(raw["enum"], cleaned, pointer)
        self.merged |= "allOf" in cleaned
        return self._finished(cleaned, pointer, in_place, nullable)

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
        if isinstance(names, bool) or names is None:
            names = []  # about this schema itself: its parent has read it
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.note("bad_keyword", step(pointer, "required"))
            names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        properties = raw.get("properties")
        for name, one in properties.items() if isinstance(properties, dict) else ():
            if isinstance(one, dict) and one.get("required") is True:
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
