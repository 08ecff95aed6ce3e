"""Schemas as documents write them -> JSON Schema 2020-12 that stands alone (paper section 3.1: "convertible schemas").

References are inlined, older drafts and OpenAPI dialects translated, type names of other worlds understood, and what no
keyword of 2020-12 can mean is dropped. Every repair that loses or guesses something leaves a note ``<what> <pointer>``.
Cleaning what was cleaned changes nothing.

A definition that contains itself is unrolled ``max_ref_depth`` times; the next occurrence becomes an open object with
the note ``truncated_recursion``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import jsonschema

from astra.formats.type_names import UnknownTypeName, named_type
from astra.records import canonical

Schema = dict[str, Any]

MAX_NESTING = 64
MAX_SUBSCHEMAS = 5000
DROPPED = ("$schema", "$id", "id", "$anchor", "$defs", "definitions", "$comment", "discriminator", "xml")
ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
OBJECT_KEYS = frozenset({"type", "properties", "required", *ANNOTATIONS})


class SchemaInvalid(Exception):
    """No schema can be made of this. ``pointer`` says where."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.pointer = pointer


class Cleaned(NamedTuple):
    schema: Schema
    notes: tuple[str, ...]


def clean(schema: Any, root: Any, max_ref_depth: int, pointer: str = "") -> Cleaned:
    """A schema for any value. Raises SchemaInvalid.

    ``root`` is the document that ``#/...`` references point into where the schema itself has no such place.
    """
    cleaner = _Cleaner((schema, root), max_ref_depth)
    cleaned = cleaner.schema(schema, pointer, ("#",))
    _check(cleaned, pointer)
    return Cleaned(cleaned, tuple(cleaner.notes))


def clean_parameters(schema: Any, root: Any, max_ref_depth: int, pointer: str = "") -> Cleaned:
    """A schema for a call's arguments: always an object with ``properties`` and ``required``. Raises SchemaInvalid."""
    cleaner = _Cleaner((schema, root), max_ref_depth)
    cleaned = cleaner.schema({} if schema is None else schema, pointer, ("#",))
    kinds = _listed(cleaned.pop("type", "object"))
    if "object" not in kinds or cleaned == {"not": {}}:
        raise SchemaInvalid(pointer, f"parameters must be an object, not {'/'.join(kinds)}")
    properties = cleaned.pop("properties", {})
    required = cleaned.pop("required", [])
    for name in required:
        if name not in properties:
            properties[name] = {}
            cleaner.note("ghost_required", _step(_step(pointer, "properties"), name))
    cleaned = {"type": "object", "properties": properties, "required": required, **cleaned}
    _check(cleaned, pointer)
    return Cleaned(cleaned, tuple(cleaner.notes))


def _check(schema: Schema, pointer: str) -> None:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = pointer + "".join(f"/{part}" for part in error.absolute_path)
        raise SchemaInvalid(where, f"not JSON Schema 2020-12: {error.message[:200]}") from None
    except RecursionError:
        raise SchemaInvalid(pointer, "nested too deep to be checked") from None


@dataclass
class _Cleaner:
    """One pass over one schema. ``path`` names the references that are being unrolled, outermost first."""

    roots: tuple[Any, ...]
    max_ref_depth: int
    notes: list[str] = field(default_factory=list)
    n_subschemas: int = 0

    def note(self, what: str, pointer: str, detail: str = "") -> None:
        text = f"{what} {pointer or '/'}" + (f" ({detail})" if detail else "")
        if text not in self.notes:
            self.notes.append(text)

    def schema(self, raw: Any, pointer: str, path: tuple[str, ...]) -> Schema:
        """The cleaned form of any (sub)schema, boolean and absent ones included."""
        self.n_subschemas += 1
        if self.n_subschemas > MAX_SUBSCHEMAS:
            raise SchemaInvalid(pointer, f"more than {MAX_SUBSCHEMAS} subschemas after inlining references")
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
        if "$ref" in raw or "$dynamicRef" in raw:
            return self._referenced(raw, pointer, path)
        return self._keywords(raw, pointer, path)

    # ------------------------------------------------------------ references

    def _referenced(self, raw: Schema, pointer: str, path: tuple[str, ...]) -> Schema:
        reference = raw.get("$ref", raw.get("$dynamicRef"))
        beside = {k: v for k, v in raw.items() if k not in ("$ref", "$dynamicRef", "nullable")}
        siblings = self._keywords(beside, pointer, path)
        if not isinstance(reference, str):
            self.note("unresolved_ref", pointer, type(reference).__name__)
            return siblings
        if path.count(reference) >= self.max_ref_depth:
            self.note("truncated_recursion", pointer, reference)
            return {"type": "object", **{key: siblings[key] for key in ANNOTATIONS if key in siblings}}
        found, target = self._resolve(reference)
        if not found:
            self.note("unresolved_ref", pointer, reference)
            return siblings
        merged = _merged(self.schema(target, pointer, (*path, reference)), siblings)
        return _in_order(_or_null(merged)) if raw.get("nullable") is True else merged

    def _resolve(self, reference: str) -> tuple[bool, Any]:
        if not reference.startswith("#"):
            return False, None
        for root in self.roots:
            found, target = _look_up(root, reference[1:])
            if found:
                return True, target
        return False, None

    # -------------------------------------------------------------- keywords

    def _keywords(self, raw: Schema, pointer: str, path: tuple[str, ...]) -> Schema:
        raw = _translated(raw)
        nullable = raw.pop("nullable", False) is True
        cleaned: Schema = self._types(raw.pop("type", None), pointer, path)
        for key, value in raw.items():
            if key in DROPPED or key.startswith("x-"):
                continue
            at = _step(pointer, key)
            if key in MAPS:
                cleaned |= self._map(key, value, at, path)
            elif key in LISTS:
                cleaned |= self._list(key, value, at, path)
            elif key in SINGLES:
                allows_boolean = key in BOOLEAN_SINGLES and isinstance(value, bool)
                cleaned[key] = value if allows_boolean else self.schema(value, at, path)
            elif key in SCALARS:
                if SCALARS[key](value):
                    cleaned[key] = value
                elif value is not None:
                    self.note("bad_keyword", at)
        self._required(raw, cleaned, pointer)
        self._enum(raw, cleaned, pointer)
        _infer_container(cleaned)
        if nullable:
            cleaned = _or_null(cleaned)
        return _in_order(_simplified(cleaned))

    def _types(self, raw: Any, pointer: str, path: tuple[str, ...]) -> Schema:
        """What ``type`` says: a name, a list of names, or (seen in the wild) a schema."""
        if raw is None:
            return {}
        if isinstance(raw, dict):
            return self.schema(raw, _step(pointer, "type"), path)
        names = raw if isinstance(raw, list) else [raw]
        try:
            found = [named_type(one) if isinstance(one, str) else _refuse(one) for one in names]
        except UnknownTypeName as error:
            self.note("unknown_type", _step(pointer, "type"), str(error))
            return {}
        if not found or {} in found:
            return {}
        if len(found) == 1:
            return self._keywords(found[0], pointer, path) if set(found[0]) - {"type"} else _one_type(found[0])
        if all(set(one) == {"type"} for one in found):
            kinds = list(dict.fromkeys(kind for one in found for kind in _listed(one["type"])))
            return _one_type({"type": kinds})
        return {"anyOf": found}

    def _map(self, key: str, value: Any, at: str, path: tuple[str, ...]) -> Schema:
        if not isinstance(value, dict):
            if value not in (None, []):
                self.note("bad_keyword", at)
            return {key: {}} if key == "properties" else {}
        kept = {}
        for name, one in value.items():
            if key == "patternProperties" and not _is_pattern(name):
                self.note("bad_pattern", _step(at, name))
                continue
            kept[name] = self.schema(one, _step(at, name), path)
            if kept[name].get("type") == "null":
                self.note("null_only", _step(at, name))
        return {key: kept}

    def _list(self, key: str, value: Any, at: str, path: tuple[str, ...]) -> Schema:
        if not isinstance(value, list) or not value:
            self.note("bad_keyword", at)
            return {}
        return {key: [self.schema(one, _step(at, str(place)), path) for place, one in enumerate(value)]}

    def _required(self, raw: Schema, cleaned: Schema, pointer: str) -> None:
        """The names in ``required``, and those of properties that say ``required: true`` of themselves (draft 3)."""
        listed = raw.get("required", [])
        names = [listed] if isinstance(listed, str) else listed
        if isinstance(names, bool) or names is None:
            names = []  # about this schema itself: its parent has read it
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.note("bad_keyword", _step(pointer, "required"))
            names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        properties = raw.get("properties")
        for name, one in properties.items() if isinstance(properties, dict) else ():
            if isinstance(one, dict) and one.get("required") is True:
                names = [*names, str(name)]
        if names or (isinstance(listed, list) and "required" in raw):
            cleaned["required"] = list(dict.fromkeys(names))
        for name in names if "properties" in cleaned else ():
            if name not in cleaned["properties"]:
                cleaned["properties"][name] = {}
                self.note("ghost_required", _step(_step(pointer, "properties"), name))

    def _enum(self, raw: Schema, cleaned: Schema, pointer: str) -> None:
        """The values with their JSON types; where they contradict ``type``, the values win."""
        if "enum" not in raw:
            return
        values = raw["enum"]
        if not isinstance(values, list) or not values:
            self.note("bad_keyword", _step(pointer, "enum"))
            return
        distinct = _distinct(values)
        kinds = _listed(cleaned["type"]) if "type" in cleaned else []
        inferred = _kinds_of(distinct)
        if kinds and not all(_fits(value, kinds) for value in distinct):
            self.note("enum_type_mismatch", _step(pointer, "type"), "/".join(kinds))
            kinds = []
        if "null" in kinds and None not in distinct:
            distinct.append(None)
        cleaned["enum"] = distinct
        cleaned |= _one_type({"type": kinds or inferred})


# ------------------------------------------------------------------ keyword tables


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _anything(_: Any) -> bool:
    return True


def _is_name_lists(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in value.values()
    )


MAPS = ("properties", "patternProperties", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
BOOLEAN_SINGLES = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "items")
SINGLES = (*BOOLEAN_SINGLES, "contains", "propertyNames", "not", "if", "then", "else", "contentSchema")
SCALARS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _is_bool),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": _is_pattern,
    "examples": lambda value: isinstance(value, list),
    "dependentRequired": _is_name_lists,
    "default": _anything,
    "const": _anything,
}
ORDER = ("type", "title", "description", "enum", "const", "properties", "required", "items", "prefixItems")


def _translated(raw: Schema) -> Schema:
    """The same with keywords of drafts 3 to 7 and of OpenAPI 3.0 in their 2020-12 spelling. A new dict."""
    new = dict(raw)
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(new.get(exclusive), bool) and new.pop(exclusive) and limit in new:
            new[exclusive] = new.pop(limit)
    if isinstance(new.get("items"), list):
        new["prefixItems"] = new.pop("items")
        if "additionalItems" in new:
            new["items"] = new.pop("additionalItems")
    new.pop("additionalItems", None)
    if "example" in new:
        new.setdefault("examples", [new.pop("example")])
    if isinstance(new.get("examples"), dict):
        new["examples"] = [one.get("value") if isinstance(one, dict) else one for one in new["examples"].values()]
    dependencies = new.pop("dependencies", None)
    if isinstance(dependencies, dict):
        lists = {name: one for name, one in dependencies.items() if isinstance(one, list)}
        schemas = {name: one for name, one in dependencies.items() if isinstance(one, dict)}
        new |= ({"dependentRequired": lists} if lists else {}) | ({"dependentSchemas": schemas} if schemas else {})
    return new


def _in_order(schema: Schema) -> Schema:
    """The usual keywords first; what a reader and a diff expect."""
    return {key: schema[key] for key in ORDER if key in schema} | {k: v for k, v in schema.items() if k not in ORDER}


# ------------------------------------------------------------------- types and enums


def _refuse(value: Any) -> Schema:
    raise UnknownTypeName(canonical(value)[:80])


def _listed(kinds: str | list[str]) -> list[str]:
    return [kinds] if isinstance(kinds, str) else kinds


def _one_type(schema: Schema) -> Schema:
    """The same, with ``type`` as a plain name where there is only one."""
    kinds = _listed(schema["type"])
    return {**schema, "type": kinds[0] if len(kinds) == 1 else kinds}


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _kinds_of(values: Iterable[Any]) -> list[str]:
    """The types of the values, in order of first appearance; ``number`` covers ``integer``."""
    kinds = list(dict.fromkeys(_kind_of(value) for value in values))
    return [kind for kind in kinds if kind != "integer" or "number" not in kinds]


def _fits(value: Any, kinds: list[str]) -> bool:
    kind = _kind_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _identity(value: Any) -> str:
    """Equal exactly where JSON Schema calls two values equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return canonical(value)


def _distinct(values: list[Any]) -> list[Any]:
    """The values without repetition, each where it stands first."""
    seen: dict[str, Any] = {}
    for value in values:
        seen.setdefault(_identity(value), value)
    return list(seen.values())


def _infer_container(schema: Schema) -> None:
    """``properties`` without ``type`` means an object, ``items`` an array."""
    if "type" in schema or any(key in schema for key in ("anyOf", "oneOf", "allOf", "const", "enum")):
        return
    if "properties" in schema:
        schema["type"] = "object"
    elif "items" in schema or "prefixItems" in schema:
        schema["type"] = "array"


# ---------------------------------------------------------------- unions and merges


def _or_null(schema: Schema) -> Schema:
    """The same schema, or null."""
    if "type" in schema:
        kinds = _listed(schema["type"])
        new = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
        if "enum" in new and None not in new["enum"]:
            new["enum"] = [*new["enum"], None]
        return new if "const" not in new else {"anyOf": [schema, {"type": "null"}]}
    if "anyOf" in schema and not any(one == {"type": "null"} for one in schema["anyOf"]):
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    outer = {key: schema[key] for key in ANNOTATIONS if key in schema}
    inner = {key: value for key, value in schema.items() if key not in outer}
    return {**outer, "anyOf": [inner, {"type": "null"}]} if inner else schema


def _simplified(schema: Schema) -> Schema:
    """Without needless ``anyOf`` / ``oneOf`` / ``allOf``, so that a parameter's type is where one looks for it."""
    schema = _without_allof(schema)
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        outer = {k: v for k, v in schema.items() if k != key}
        if branches is None or set(outer) - set(ANNOTATIONS):
            continue
        if len(branches) == 1:
            return _annotated(branches[0], outer)
        if all(set(one) == {"type"} for one in branches):
            kinds = list(dict.fromkeys(kind for one in branches for kind in _listed(one["type"])))
            if key == "anyOf" or _disjoint(branches):
                return {**_one_type({"type": kinds}), **outer}
        some = [one for one in branches if one != {"type": "null"}]
        if len(some) == 1 and "type" in some[0] and len(branches) == 2 and not _takes_null(some[0]):
            return _annotated(_or_null(some[0]), outer)
    return schema


def _disjoint(branches: list[Schema]) -> bool:
    kinds = [kind for one in branches for kind in _listed(one["type"])]
    return len(set(kinds)) == len(kinds) and not {"integer", "number"} <= set(kinds)


def _takes_null(schema: Schema) -> bool:
    return "null" in _listed(schema["type"])


def _annotated(schema: Schema, annotations: Schema) -> Schema:
    return {**schema, **annotations}


def _without_allof(schema: Schema) -> Schema:
    """``allOf`` of plain objects, or of one schema, as one schema; anything that could change meaning stays."""
    branches = schema.get("allOf")
    if branches is None:
        return schema
    outer = {key: value for key, value in schema.items() if key != "allOf"}
    merged: Schema = {}
    for branch in [*branches, outer]:
        both = _joined(merged, branch)
        if both is None:
            return schema
        merged = both
    return merged


def _joined(base: Schema, over: Schema) -> Schema | None:
    """Both at once, the annotations of ``over`` first; None where they cannot be said in one schema."""
    shared = {key for key in base.keys() & over.keys() if _identity(base[key]) != _identity(over[key])}
    constraints = shared - set(ANNOTATIONS)
    if constraints - {"properties", "required"}:
        return None
    if constraints and not (base.keys() | over.keys()) <= OBJECT_KEYS:
        return None
    new = {**base, **over}
    if "properties" in constraints:
        clash = [name for name in base["properties"].keys() & over["properties"].keys()
                 if _identity(base["properties"][name]) != _identity(over["properties"][name])]  # fmt: skip
        if clash:
            return None
        new["properties"] = {**base["properties"], **over["properties"]}
    if "required" in constraints:
        new["required"] = list(dict.fromkeys([*base["required"], *over["required"]]))
    return new


def _merged(target: Schema, siblings: Schema) -> Schema:
    """A reference's target with the keywords that stood beside the reference (2020-12 lets both count)."""
    both = _joined(target, siblings)
    if both is not None:
        return _in_order(both)
    annotations = {key: siblings[key] for key in ANNOTATIONS if key in siblings}
    rest = {key: value for key, value in siblings.items() if key not in annotations}
    return {**annotations, "allOf": [target, rest]}


# --------------------------------------------------------------------- JSON pointers


def _step(pointer: str, part: str) -> str:
    return f"{pointer}/{escape(part)}"


def escape(part: str) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


def _look_up(root: Any, pointer: str) -> tuple[bool, Any]:
    """Whether the place exists, and what is there."""
    if pointer and not pointer.startswith("/"):
        return False, None
    here = root
    for part in pointer.split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and name in here:
            here = here[name]
        elif isinstance(here, list) and name.isdigit() and int(name) < len(here):
            here = here[int(name)]
        else:
            return False, None
    return True, here


__all__ = ["Cleaned", "Schema", "SchemaInvalid", "clean", "clean_parameters", "escape"]
