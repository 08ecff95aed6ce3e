"""What the words that documents use for types mean in JSON Schema: BFCL, Python annotations, RapidAPI hubs."""

from __future__ import annotations

import re
from typing import Any

SYNONYMS: dict[str, dict[str, Any]] = {
    name: schema
    for names, schema in (
        ("string str text char character enum geopoint", {"type": "string"}),
        ("integer int long short byte bigint biginteger int32 int64", {"type": "integer"}),
        ("number float double decimal numeric", {"type": "number"}),
        ("boolean bool", {"type": "boolean"}),
        ("object dict dictionary map mapping hashmap hashtable record", {"type": "object"}),
        ("array list tuple set sequence arraylist linkedlist queue stack iterable frozenset", {"type": "array"}),
        ("null none nonetype nil", {"type": "null"}),
        ("any unknown mixed *", {}),
        ("date", {"type": "string", "format": "date"}),
        ("datetime date-time timestamp", {"type": "string", "format": "date-time"}),
        ("time", {"type": "string", "format": "time"}),
        ("email", {"type": "string", "format": "email"}),
        ("uuid", {"type": "string", "format": "uuid"}),
        ("url uri", {"type": "string", "format": "uri"}),
        ("file binary", {"type": "string", "contentEncoding": "base64"}),
    )
    for name in names.split()
}

_GENERIC = re.compile(r"^(?P<head>[A-Za-z_.]+)\[(?P<body>.*)\]$", re.DOTALL)


class UnknownTypeName(Exception):
    """A word that names no type that we know."""


def named_type(text: str) -> dict[str, Any]:
    """The schema that a type name stands for, e.g. ``Optional[str]``, ``dict``, ``DATE (YYYY-MM-DD)``.

    Raises UnknownTypeName.
    """
    text = text.strip()
    generic = _GENERIC.match(text)
    if generic:
        return _generic(generic["head"].rpartition(".")[2].lower(), _split(generic["body"], ","))
    alternatives = _split(text, "|")
    if len(alternatives) > 1:
        return _union([named_type(one) for one in alternatives])
    word = text.partition("(")[0].strip().rpartition(".")[2].lower()
    if word not in SYNONYMS:
        raise UnknownTypeName(text)
    return dict(SYNONYMS[word])


def _generic(head: str, arguments: list[str]) -> dict[str, Any]:
    if head == "optional":
        return _union([named_type(arguments[0]), {"type": "null"}])
    if head == "union":
        return _union([named_type(one) for one in arguments])
    if head == "annotated":
        return named_type(arguments[0])
    if head == "literal":
        return {"enum": [_literal(one) for one in arguments]}
    outer = named_type(head)
    if outer == {"type": "array"} and arguments:
        return {**outer, "items": named_type(arguments[0])}
    if outer == {"type": "object"} and len(arguments) == 2:
        return {**outer, "additionalProperties": named_type(arguments[1])}
    return outer


def _union(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """One type list where the alternatives are bare types, else ``anyOf``; a member that takes anything takes all."""
    if {} in schemas:
        return {}
    if all(set(one) == {"type"} for one in schemas):
        return {"type": list(dict.fromkeys(one["type"] for one in schemas))}
    return {"anyOf": schemas}


def _literal(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    if re.fullmatch(r"-?\d{1,300}", text):
        return int(text)
    return text.strip("'\"")


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand outside square brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
