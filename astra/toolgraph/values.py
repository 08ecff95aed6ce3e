"""The values that travel between tools: the scalars that a tool returns and the parameters that it requires."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from astra.records import ToolSpec

GENERIC = frozenset((
    "id", "name", "title", "type", "status", "state", "result", "value", "text", "message", "description",
    "content", "data", "date", "time", "code", "count", "total", "limit", "page", "offset", "size", "order",
    "sort", "query", "filter", "format", "language", "lang", "unit", "units", "url", "uri", "key", "label",
    "note", "notes", "created", "at", "updated", "created_at", "updated_at", "success", "ok", "error",
    "category", "tags", "role", "amount", "number", "index",
))  # fmt: skip
"""Names that mean nothing without the thing that they belong to."""
LOOSE_FORMATS = frozenset(("date", "date-time", "time", "uri", "int32", "int64", "float", "double"))
"""Formats that very different values share."""
MAX_DEPTH, MAX_OUTPUTS = 5, 80

Schema = Mapping[str, Any]


class Value(NamedTuple):
    """What the schema of a scalar says."""

    types: frozenset[str]  # none: any
    format: str | None  # where it says what the value is: email, but not date
    choices: frozenset[str]  # of an enumeration; none: any
    is_fixed: bool  # one constant


class Output(NamedTuple):
    """A scalar that a tool returns."""

    path: str
    names: frozenset[str]  # what it may be called, as words: its name, its noun and name, its title
    value: Value
    text: str  # what a person reads about it


class Input(NamedTuple):
    """A parameter that a tool requires, or an item of it where it takes a list."""

    name: str
    spoken: str
    names: frozenset[str]  # what fills it, as words; never a generic word alone
    value: Value
    text: str


def value(schema: Schema) -> Value:
    form = schema.get("format")
    return Value(
        types(schema),
        form if isinstance(form, str) and form not in LOOSE_FORMATS else None,
        frozenset(f"{type(one).__name__} {one}" for one in schema.get("enum", ()) if one is not None),
        "const" in schema,
    )


def words(name: str) -> str:
    """``createdAt`` -> ``created at``."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)).lower()


def singular(noun: str) -> str:
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def noun_of(tool: ToolSpec) -> str:
    """The thing that a tool is about: ``create_invoice`` -> ``invoice``."""
    spoken = words(tool.name).split()
    return singular(spoken[-1]) if spoken else ""


def plain(schema: Any) -> Schema:
    """A schema without its alternatives: the first that is not null. Normalized schemas hold no references."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        options = schema.get("anyOf") or schema.get("oneOf")
        if "properties" in schema or not options:
            return schema
        beside = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        first: Any = next((one for one in options if one != {"type": "null"}), {})
        schema = {**beside, **first} if isinstance(first, dict) else beside
    return {}


def types(schema: Schema) -> frozenset[str]:
    """The JSON types that a schema names, but null; number covers integer."""
    named = schema.get("type")
    found = {named} if isinstance(named, str) else set(named or ())
    return frozenset(found | {"number"} if "integer" in found else found) - {"null"}


def outputs(tool: ToolSpec) -> list[Output]:
    """The scalars in a tool's documented result; none where it documents none."""
    if tool.returns is None:
        return []
    return list(islice(_outputs(plain(tool.returns), "", noun_of(tool), 0), MAX_OUTPUTS))


def _outputs(schema: Schema, path: str, noun: str, depth: int) -> Iterator[Output]:
    if depth > MAX_DEPTH:
        return
    for name, one in schema.get("properties", {}).items():
        here, inner, spoken = f"{path}.{name}" if path else name, plain(one), words(name)
        if "properties" in inner or "items" in inner:
            yield from _outputs(inner, here, singular(spoken) or noun, depth + 1)
        else:
            title = str(inner.get("title") or "").lower()
            names = frozenset(filter(None, (spoken, f"{noun} {spoken}", title)))
            yield Output(here, names, value(inner), _text(f"{noun} {spoken}", inner))
    if "items" in schema:
        items = plain(schema["items"])
        if "properties" in items or "items" in items:
            yield from _outputs(items, path + "[]", noun, depth + 1)
        elif path:
            yield Output(path + "[]", frozenset([noun]), value(items), _text(noun, items))


def inputs(tool: ToolSpec) -> list[Input]:
    """The parameters that a tool requires, in its order."""
    properties = tool.parameters.get("properties", {})
    return [_input(name, plain(properties.get(name)), noun_of(tool)) for name in tool.parameters.get("required", ())]


def _input(name: str, schema: Schema, noun: str) -> Input:
    spoken = words(name)
    text = _text(f"{noun} {spoken}" if spoken in GENERIC else spoken, schema)
    if "array" in types(schema):
        schema = plain(schema.get("items"))
    names = frozenset([f"{noun} {spoken}"] if spoken in GENERIC else [spoken, singular(spoken)])
    return Input(name, spoken, names, value(schema), text)


def _text(spoken: str, schema: Schema) -> str:
    return f"{spoken} {schema.get('title') or ''} {schema.get('description') or ''}".strip()
