"""The arguments of a tool call as an environment gets them, from whatever form the model wrote them in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from astra.llm.reply import clean_value, strict_json
from astra.records.references import dereferenced

MAX_DEPTH = 8  # of alternatives within alternatives


class ArgumentsInvalid(Exception):
    """The arguments are no JSON object, not even a quoted one; the message says so to the model."""


class ArgumentsCut(ArgumentsInvalid):
    """The arguments are the beginning of a JSON text: the reply was cut."""


class Decoded(NamedTuple):
    """Arguments as the environment gets them, and what had to be mended, e.g. ``ids: read from text``."""

    arguments: dict[str, Any]
    repairs: tuple[str, ...]


def decode_arguments(text: str, schema: dict[str, Any]) -> Decoded:
    """Arguments from what a model wrote. Only the schema decides what quoted JSON is decoded and what stays text.

    Raises ArgumentsInvalid (ArgumentsCut where the text breaks off).
    """
    if text.strip() in ("", "null"):
        return Decoded({}, ())
    value, repairs = _json(text), []
    if isinstance(value, str):
        value = _json(value)
        repairs.append("arguments: encoded twice")
    if not isinstance(value, dict):
        raise ArgumentsInvalid(f"invalid arguments: expected a JSON object, got {text.strip()[:60]}")
    try:
        return Decoded(_coerced(clean_value(value), schema, schema, "", repairs), tuple(repairs))
    except RecursionError:
        raise ArgumentsInvalid("invalid arguments: nested too deeply") from None


def _json(text: str) -> Any:
    try:
        return strict_json(text)
    except json.JSONDecodeError as error:
        if _breaks_off(error):
            raise ArgumentsCut("invalid arguments: the JSON text breaks off") from None
        raise ArgumentsInvalid(f"invalid arguments: not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:  # NaN, numbers that none can hold, nesting without end
        raise ArgumentsInvalid(f"invalid arguments: {str(error)[:100]}") from None


def _breaks_off(error: json.JSONDecodeError) -> bool:
    """Whether more text could have made it valid."""
    rest = error.doc[error.pos :].strip()
    opened = error.doc.lstrip()[:1] in ("{", "[", '"')
    started = not rest or any(word.startswith(rest) for word in ("true", "false", "null", "-"))
    return opened and (started or error.msg.startswith("Unterminated string"))


def breaks_off(text: str) -> bool:
    """Whether a text of arguments is the beginning of a JSON text: the reply was cut."""
    if text.strip() in ("", "null"):
        return False
    try:
        _json(text)
    except ArgumentsCut:
        return True
    except ArgumentsInvalid:
        return False
    return False


def _coerced(value: Any, schema: Any, root: dict[str, Any], path: str, repairs: list[str]) -> Any:
    """The value with quoted JSON decoded wherever the schema does not take a string."""
    schema = dereferenced(schema, root)
    allowed = _types(schema, root)
    if isinstance(value, str) and allowed and "string" not in allowed:
        try:
            plain = _json(value)
        except ArgumentsInvalid:
            return value
        if not _is_one_of(plain, allowed):
            return value
        repairs.append(f"{path}: read from text")
        value = plain
    if isinstance(value, dict):
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        return {
            key: _coerced(one, properties.get(key, {}), root, f"{path}.{key}" if path else key, repairs)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_coerced(one, schema.get("items", {}), root, f"{path}[]", repairs) for one in value]
    return value


def _types(schema: Mapping[str, Any], root: dict[str, Any], depth: int = 0) -> set[str]:
    """JSON types that a schema names, over its alternatives; empty where it leaves the type open."""
    named = schema.get("type")
    if isinstance(named, str | list):
        return {named} if isinstance(named, str) else {one for one in named if isinstance(one, str)}
    if depth > MAX_DEPTH:
        return set()  # an alternative that refers to itself
    options = [one for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list) for one in schema[key]]
    alternatives = [_types(dereferenced(one, root), root, depth + 1) for one in options]
    return set().union(*alternatives) if all(alternatives) else set()


def _is_one_of(value: Any, types: set[str]) -> bool:
    kinds = {
        dict: {"object"}, list: {"array"}, bool: {"boolean"}, int: {"integer", "number"}, float: {"number"},
        type(None): {"null"}, str: {"string"},
    }  # fmt: skip
    return bool(kinds[type(value)] & types)
