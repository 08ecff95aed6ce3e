"""The keywords of JSON Schema 2020-12 that have a meaning here, which values each may hold, and older spellings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from astra.records import canonical

Schema = dict[str, Any]

ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
IN_PLACE = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentSchemas"})
"""Keywords whose subschemas speak of the same value as the schema that they stand in."""


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and float(value).is_integer()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_pattern(value: Any) -> bool:
    """Whether Python can search for it; ECMA-only constructs cannot be checked here, so they are dropped."""
    return isinstance(value, str) and _compiles(value)


@lru_cache(maxsize=4096)
def _compiles(pattern: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


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


COUNTS = frozenset(
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"]
)
MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
BOOLEAN_SINGLES = frozenset({"additionalProperties", "unevaluatedProperties", "unevaluatedItems", "items"})
SINGLES = BOOLEAN_SINGLES | {"contains", "propertyNames", "not", "if", "then", "else", "contentSchema"}
SCALARS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _is_bool),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(COUNTS, _is_count),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": is_pattern,
    "examples": lambda value: isinstance(value, list),
    "dependentRequired": _is_name_lists,
    "default": _anything,
    "const": _anything,
}
ORDER = ("type", "title", "description", "enum", "const", "properties", "required", "items", "prefixItems")


def scalar(key: str, value: Any) -> Any:
    """The value of a keyword of ``SCALARS`` in its plainest form."""
    if key in COUNTS:
        return int(value)
    if key == "dependentRequired":
        return {name: list(dict.fromkeys(names)) for name, names in value.items()}
    return value


LIMITS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))
NUMBER_LIMITS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
FORMAT = re.compile(r"[A-Za-z][\w.:/+-]*")


def empty_ranges(schema: Schema) -> list[tuple[str, ...]]:
    """The keywords of each least that is over its most: no value has a place between them."""
    found: list[tuple[str, ...]] = [pair for pair in LIMITS if set(pair) <= schema.keys() and _is_over(schema, *pair)]
    least = _strictest(schema, "minimum", "exclusiveMinimum", max)
    most = _strictest(schema, "maximum", "exclusiveMaximum", min)
    if least and most and (least[0] > most[0] or (least[0] == most[0] and (least[1] or most[1]))):
        found.append(tuple(key for key in NUMBER_LIMITS if key in schema))
    return found


def _is_over(schema: Schema, least: str, most: str) -> bool:
    return bool(schema[least] > schema[most])


def _strictest(schema: Schema, plain: str, exclusive: str, pick: Callable[..., Any]) -> tuple[Any, bool] | None:
    """The limit that decides, and whether it is itself shut out."""
    given = [schema[key] for key in (plain, exclusive) if key in schema]
    if not given:
        return None
    limit = pick(given)
    return limit, schema.get(exclusive) == limit


def plain_format(text: str) -> str | None:
    """A format's name as a schema may hold it; None for a text that can be no name."""
    text = text.strip()
    return text if FORMAT.fullmatch(text) else None


OLD = frozenset(
    [
        "exclusiveMinimum",
        "exclusiveMaximum",
        "items",
        "additionalItems",
        "example",
        "examples",
        "x-nullable",
        "dependencies",
    ]
)
"""Keywords that another dialect may mean otherwise."""


def translated(raw: Schema) -> Schema:
    """The same with keywords of drafts 3 to 2019-09 and of OpenAPI 3.0 in their 2020-12 spelling. A new dict."""
    new = dict(raw)
    if not new.keys() & OLD:
        return new
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(new.get(exclusive), bool) and new.pop(exclusive) and limit in new:
            new[exclusive] = new.pop(limit)
    if isinstance(new.get("items"), list):
        first = new.pop("items")
        if first:
            new["prefixItems"] = first
        if "additionalItems" in new:
            new["items"] = new["additionalItems"]
    new.pop("additionalItems", None)
    if "example" in new:
        new.setdefault("examples", [new.pop("example")])
    if isinstance(new.get("examples"), dict):
        new["examples"] = [one.get("value") if isinstance(one, dict) else one for one in new["examples"].values()]
    if isinstance(new.get("x-nullable"), bool):
        new.setdefault("nullable", new["x-nullable"])
    dependencies = new.pop("dependencies", None)
    if isinstance(dependencies, dict):
        _translate_dependencies(new, dependencies)
    return new


def _translate_dependencies(new: Schema, dependencies: dict[str, Any]) -> None:
    lists = {name: [one] if isinstance(one, str) else one for name, one in dependencies.items()}
    for key, kinds in (("dependentRequired", list), ("dependentSchemas", dict | bool)):
        found = {name: one for name, one in lists.items() if isinstance(one, kinds)}
        already = new.get(key)
        if found:
            new[key] = found | (already if isinstance(already, dict) else {})


def in_order(schema: Schema) -> Schema:
    """The usual keywords first; what a reader and a diff expect."""
    return {key: schema[key] for key in ORDER if key in schema} | {k: v for k, v in schema.items() if k not in ORDER}


# ------------------------------------------------------------------- types and values


def listed(kinds: str | list[str]) -> list[str]:
    return [kinds] if isinstance(kinds, str) else kinds


def one_type(schema: Schema) -> Schema:
    """The same, with ``type`` as a plain name where there is only one."""
    kinds = listed(schema["type"])
    return {**schema, "type": kinds[0] if len(kinds) == 1 else kinds}


def kind_of(value: Any) -> str:
    """The JSON type of a value; 1.0 is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def kinds_of(values: Iterable[Any]) -> list[str]:
    """The types of the values, in order of first appearance; ``number`` covers ``integer``."""
    kinds = list(dict.fromkeys(kind_of(value) for value in values))
    return [kind for kind in kinds if kind != "integer" or "number" not in kinds]


def has_type(value: Any, kinds: list[str]) -> bool:
    kind = kind_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def identity(value: Any) -> str:
    """Equal exactly where JSON Schema calls two values equal: 1 and 1.0 are, 1 and true are not."""
    return canonical(_with_integers(value))


def _with_integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_integers(one) for key, one in value.items()}
    return [_with_integers(one) for one in value] if isinstance(value, list) else value


def distinct(values: list[Any]) -> list[Any]:
    """The values without repetition, each where it stands first."""
    seen: dict[str, Any] = {}
    for value in values:
        seen.setdefault(identity(value), value)
    return list(seen.values())
