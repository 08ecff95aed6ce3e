"""Parameters without the schema around them: ``{"city": {"type": "string"}}``, lists of named ones, texts, types alone.

Documents written by hand leave out ``type: object`` and ``properties``, at the top of a tool's parameters and inside
them. What stands beside an object's keywords, or in their place, and looks like a schema of its own is a property then.
A keyword is told from a parameter of that name by its value: no schema has an object for a title.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from astra.formats.keywords import LISTS, MAPS, SCALARS, SINGLES, Schema, listed
from astra.formats.parsing import strict_json
from astra.formats.type_names import UnknownTypeName, named_type

TEXTS = frozenset({"title", "description", "format", "pattern", "contentEncoding", "contentMediaType", "id"})
OF_OBJECTS = frozenset({"properties", "patternProperties", "additionalProperties", "propertyNames", "definitions"}) | {
    "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "not", "if", "then", "else",
}  # fmt: skip
"""Keywords with objects as values that a call's arguments may really have."""
CONTAINERS = MAPS | SINGLES | OF_OBJECTS | {"default", "const", "example", "examples", "xml", "discriminator"}
OTHERS = frozenset({"type", "enum", "required", "nullable", "examples", "strict", "externalDocs", "components"})
KEYWORDS = CONTAINERS | OTHERS | LISTS | TEXTS | SCALARS.keys()
SETTLED = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "anyOf", "oneOf", "allOf", "enum"})
"""Keywords that say what a schema is, so that nothing beside them is a property of it."""
SIGNS = frozenset({"type", "enum", "items", "properties", "$ref", "anyOf", "oneOf", "allOf"})
HINTS = SIGNS | {"description", "default", "example", "examples", "const", "format", "title", "required", "optional"}
YES, NO = frozenset({"true", "yes", "required"}), frozenset({"false", "no", "optional"})
_TOLD = re.compile(r"^(?P<type>[\w.\[\]|]+)\s*(?:[-:,;–—]\s*|\((?=\w))(?P<text>.*?)\)?$", re.DOTALL)


class Read(NamedTuple):
    """A schema, and whether it had to be made of something else."""

    schema: Any
    is_made: bool


def as_schema(parameters: Any) -> Read:
    """The schema of a call's arguments, of whatever stands in its place. What is a schema comes back as it is."""
    if isinstance(parameters, str) and parameters.lstrip()[:1] in ("{", "["):
        try:
            return Read(as_schema(strict_json(parameters)).schema, True)
        except (ValueError, RecursionError):
            return Read(parameters, False)
    if isinstance(parameters, list):
        return Read({"type": "object", "properties": named(parameters)}, bool(parameters))
    if not isinstance(parameters, dict):
        return Read(parameters, False)
    if isinstance(parameters.get("properties"), list):
        return Read({**parameters, "properties": named(parameters["properties"])}, bool(parameters["properties"]))
    found = _at_the_top(parameters)
    return Read(_with(parameters, found), True) if found else Read(parameters, False)


def spelled_out(raw: Schema) -> Schema | None:
    """An inner object schema with ``properties`` where it lists them beside its keywords; None for any other."""
    strange = [key for key, value in raw.items() if isinstance(value, dict) and _is_strange(key, value)]
    if not strange or raw.keys() & SETTLED or _has_properties(raw, strange):
        return None
    kinds = raw.get("type")
    if not (kinds is None or isinstance(kinds, dict) or _may_be_object(kinds)):
        return None
    found = [key for key, value in raw.items() if key in strange and _is_schema(value)]
    if kinds is None or isinstance(kinds, dict):
        others = [key for key in raw if key in CONTAINERS and key not in ("additionalProperties", "definitions")]
        if len(found) < len(strange) or not all(_is_schema(raw[key]) for key in others):
            return None  # a vendor's own words stand there
        found = [key for key in raw if key in found or key in others]
    return _with(raw, found) if found else None


def named(entries: Iterable[Any]) -> dict[str, Any]:
    """The properties of a list of parameters: objects with a ``name``, objects of one parameter each, bare names."""
    found: dict[str, Any] = {}
    for one in entries:
        if isinstance(one, str):
            found.setdefault(one, {})
        elif isinstance(one, dict) and isinstance(one.get("name"), str):
            found.setdefault(one["name"], _named(one))
        elif isinstance(one, dict):
            for name, value in one.items():
                found.setdefault(str(name), _property(value))
    return found


def says_required(one: Any) -> bool | None:
    """What a property says of itself (``required: true`` of draft 3, ``optional: false``); None where nothing."""
    if not isinstance(one, dict):
        return None
    for key, means in (("required", True), ("optional", False)):
        said = _flag(one.get(key))
        if said is not None:
            return said is means
    return None


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    return True if word in YES else False if word in NO else None


def is_flag(value: Any) -> bool:
    """Whether a value of ``required`` speaks of the schema itself rather than naming its properties."""
    return _flag(value) is not None


def _named(one: dict[str, Any]) -> Any:
    inner = one.get("schema")
    rest = {key: value for key, value in one.items() if key not in ("name", "in", "schema")}
    return {**rest, **inner} if isinstance(inner, dict) else rest


# ------------------------------------------------------------------------ telling them apart


def _at_the_top(raw: dict[str, Any]) -> list[str]:
    """The keys of a tool's parameters that are parameters and no keywords; none for a schema."""
    if raw.keys() & SETTLED and not all(isinstance(raw[key], dict) for key in raw.keys() & SETTLED):
        return []
    strange = [key for key, value in raw.items() if _is_strange(key, value, at_the_top=True)]
    if _has_properties(raw, strange) or not _wants_properties(raw):
        return []
    if isinstance(raw.get("type"), str | list) and not set(strange) - {"type"} - (CONTAINERS - OF_OBJECTS) - TEXTS:
        return []  # a schema with keywords that say nothing of objects
    if not raw.keys() - set(strange) - TEXTS and all(isinstance(value, str) for value in raw.values()):
        strange = list(raw) if any(_type_of(value) or key not in KEYWORDS for key, value in raw.items()) else []
    is_bare = not raw.keys() & {"type", "properties", "$schema", "additionalProperties"} - set(strange)
    return [key for key in strange if _looks_like_one(raw[key], is_bare)]


def _has_properties(raw: Schema, strange: list[str]) -> bool:
    """Whether it really has the keyword: a parameter of that name is a schema among other parameters."""
    found = raw.get("properties")
    if not isinstance(found, dict) or not found:
        return False
    return not _says_what_it_is(found) or isinstance(raw.get("type"), str) or set(strange) <= {"properties"}


def _wants_properties(raw: Schema) -> bool:
    """Whether something would be lost: a schema of another type than object is refused as what it is."""
    if set(raw) <= {"type", "description", "title"} and isinstance(raw.get("type"), str | list):
        return False
    return not isinstance(raw.get("enum"), list)


def _is_strange(key: str, value: Any, at_the_top: bool = False) -> bool:
    """Whether no schema (no object's, at the top) has this value under this key."""
    if key.startswith(("$", "x-", "_")):
        return False
    if key not in KEYWORDS:
        return True
    if key == "type":
        return isinstance(value, dict) if not at_the_top else not _may_be_object(value) or isinstance(value, dict)
    if key == "properties":
        return isinstance(value, dict) and _says_what_it_is(value)
    if isinstance(value, dict):
        return key not in (OF_OBJECTS if at_the_top else CONTAINERS)
    return at_the_top and key in TEXTS and isinstance(value, str) and _type_of(value) is not None


def _may_be_object(kinds: Any) -> bool:
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    return any(_type_of(one) == "object" for one in names if isinstance(one, str))


def _type_of(text: str) -> str | None:
    """The first JSON type that a type's name stands for; None for a word that is none."""
    try:
        return listed(named_type(text).get("type", "any"))[0]
    except UnknownTypeName:
        return None


def _is_schema(value: Any) -> bool:
    """Whether a value is clearly a schema, or nothing but properties of one."""
    if not isinstance(value, dict):
        return False
    return _says_what_it_is(value) or (bool(value) and all(_is_schema(one) for one in value.values()))


def _says_what_it_is(value: dict[str, Any]) -> bool:
    """Whether an object says a type that we know, or what only schemas say."""
    kind = value.get("type")
    names = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
    if names and all(isinstance(one, str) and _type_of(one) for one in names):
        return True
    if any(isinstance(value.get(key), list) for key in ("enum", "anyOf", "oneOf", "allOf")):
        return True
    return isinstance(value.get("$ref"), str)


def _looks_like_one(value: Any, is_bare: bool) -> bool:
    """Whether what stands beside a call's keywords, or (``is_bare``) instead of them, may be a parameter."""
    if isinstance(value, str):
        return is_bare or _told(value) is not None
    if isinstance(value, list):
        return is_bare or (bool(value) and all(isinstance(one, str) and _type_of(one) for one in value))
    if not isinstance(value, dict):
        return False
    return _is_schema(value) or (is_bare and (not value or bool(value.keys() & HINTS)))


# ------------------------------------------------------------------------ saying it as a schema


def _with(raw: Schema, names: Iterable[str]) -> Schema:
    """The same with those keys as its properties."""
    names = list(names)
    rest = {key: value for key, value in raw.items() if key not in names}
    return {**rest, "type": rest.get("type", "object"), "properties": {name: _property(raw[name]) for name in names}}


def _property(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, str) and _type_of(one) for one in value):
        return {"type": value}
    if not isinstance(value, str):
        return value
    return _told(value) or {"description": value}


def _told(text: str) -> Schema | None:
    """``string``, ``string - the town``, ``int (of days)`` as a schema; None for what names no type first."""
    if _type_of(text):
        inner = re.search(r"\((.*)\)\s*$", text, re.DOTALL)
        return {"type": text, **({"description": inner[1]} if inner and " " in inner[1] else {})}
    match = _TOLD.match(text.strip())
    if match and _type_of(match["type"]):
        return {"type": match["type"], "description": match["text"]}
    return None
