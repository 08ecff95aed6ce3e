"""A tool call's arguments, read from the text that the model wrote."""

from __future__ import annotations

import json
from typing import Any

from astra.benchmarks.types import CallText

DEEPEST = 32
"""Levels; the packages copy arguments by recursion, and one that broke there would be no fault of theirs."""

UNREAD = "not a JSON object"
"""The name under which a history shows arguments that could not be read: no tool has a parameter of this name."""


def arguments_of(call: CallText) -> dict[str, Any] | None:
    """The arguments, or None where the text is no JSON object. Blank text is none, as for a tool without parameters."""
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(call.arguments)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # neither NaN nor half a character is JSON
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _depth(value) <= DEEPEST else None


def shown_arguments(call: CallText) -> dict[str, Any]:
    """The arguments as the run's history tells them, also those that could not be read."""
    read = arguments_of(call)
    return {UNREAD: call.arguments} if read is None else read


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            below
            for one in level
            if isinstance(one, dict | list)
            for below in (one.values() if isinstance(one, dict) else one)
        ]
    return depth
