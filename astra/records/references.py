"""Where a local reference of a schema leads: ``{"$ref": "#/$defs/Leg"}`` and the schema that holds the definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

MAX_HOPS = 8


def dereferenced(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, or the one that its local reference stands for; what is no object says nothing."""
    for _ in range(MAX_HOPS):
        if not (isinstance(schema, Mapping) and str(schema.get("$ref", "")).startswith("#/")):
            return schema if isinstance(schema, Mapping) else {}
        here: Any = root
        for part in schema["$ref"][2:].split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            here = here.get(name, {}) if isinstance(here, Mapping) else {}
        schema = here
    return {}  # it leads round in a circle
