"""Defaults that a call could really hold: one that breaks its own schema is read as what it spells, or dropped.

A text that spells a value of the type exactly is that value, a number or boolean where text is wanted is its text;
nothing is bent further: ``00120`` is no number, ``yes`` no boolean, ``true`` no number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema

from astra.formats.keywords import ANNOTATIONS, LISTS, MAPS, SINGLES, Schema, has_type, identity, listed
from astra.formats.parsing import strict_json
from astra.formats.references import step

PLAIN = frozenset({*ANNOTATIONS, "type", "enum", "format"})
NOTHING = object()
Note = Callable[[str, str, str], None]


def honest(schema: Schema, pointer: str, note: Note) -> Schema:
    """The schema with each default, its own and those below, one that it takes; what was changed is noted."""
    new = dict(schema)
    for key in SINGLES & new.keys():
        if isinstance(new[key], dict):
            new[key] = honest(new[key], step(pointer, key), note)
    for key in LISTS & new.keys():
        new[key] = [honest(one, step(step(pointer, key), str(n)), note) for n, one in enumerate(new[key])]
    for key in MAPS & new.keys():
        new[key] = {name: honest(one, step(step(pointer, key), name), note) for name, one in new[key].items()}
    if "default" in new and not fits(new["default"], new):
        _mend(new, step(pointer, "default"), note)
    return new


def _mend(schema: Schema, at: str, note: Note) -> None:
    """Put what the default spells in its place, or take it away."""
    value = schema.pop("default")
    meant = mended(value, schema)
    shown = json.dumps(value, ensure_ascii=False)[:40]
    if meant is NOTHING:
        note("default_dropped", at, f"{shown} is none of its values")
    else:
        schema["default"] = meant
        note("default_coerced", at, f"{shown} read as {json.dumps(meant, ensure_ascii=False)[:40]}")


def fits(value: Any, schema: Schema) -> bool:
    """Whether a schema takes a value."""
    if "type" in schema and not has_type(value, listed(schema["type"])):
        return False
    if "enum" in schema and identity(value) not in {identity(one) for one in schema["enum"]}:
        return False
    if not schema.keys() - PLAIN:
        return True
    try:
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    except (OverflowError, RecursionError):  # a number or a nesting that cannot be compared
        return False


def mended(value: Any, schema: Schema) -> Any:
    """The value that was meant by one that a schema does not take; NOTHING where that cannot be told."""
    kinds = listed(schema.get("type", []))
    return next((one for one in _readings(value, kinds) if fits(one, schema)), NOTHING)


def _readings(value: Any, kinds: list[str]) -> Iterator[Any]:
    if isinstance(value, str):
        for kind in kinds:
            meant = spelled(value, kind)
            if meant is not None:
                yield meant
    elif isinstance(value, int | float) and "string" in kinds:  # true and false too
        yield json.dumps(value)


def spelled(text: str, kind: str) -> Any:
    """The value that a text spells exactly; None for ``00120``, ``1e5`` as an integer, ``yes`` as a boolean."""
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower())
    if kind in ("number", "integer"):
        if re.fullmatch(r"-?(0|[1-9]\d{,300})", text):
            return int(text)
        return float(text) if kind == "number" and re.fullmatch(r"-?(0|[1-9]\d{,300})\.\d+", text) else None
    if kind not in ("array", "object"):
        return None
    try:
        value = strict_json(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, {"array": list, "object": dict}[kind]) else None
