"""Tools that are the same under other names: what two servers offer when one copies, wraps or renames the other.

Same means: the same description, word for word, and parameters of the same names, types and limits, whatever the tool
is called and however the parameters are described. Where there is no description, the name's words must agree instead,
and a tool without parameters is then never called a copy: every server has a ``ping``.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from astra.formats.keywords import ANNOTATIONS, LISTS, MAPS, SINGLES
from astra.records import ToolSpec, canonical

_WORD = re.compile(r"[^\W_]+")


def fingerprint(tool: ToolSpec) -> bytes | None:
    """Equal for tools that are the same; None for one that says too little of itself."""
    words = _WORD.findall(tool.description.casefold())
    if not words:
        words = ["", *sorted(_WORD.findall(tool.name.casefold()))]
        if not tool.parameters["properties"]:
            return None
    text = " ".join(words) + canonical(_bare(tool.parameters))
    return hashlib.sha256(text.encode()).digest()[:16]


def _bare(schema: Any) -> Any:
    """The schema without what only people read; the order of names says nothing either."""
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Any] = {}
    for key, value in schema.items():
        if key in MAPS:
            bare[key] = {name: _bare(one) for name, one in value.items()}
        elif key in LISTS:
            bare[key] = [_bare(one) for one in value]
        elif key in SINGLES:
            bare[key] = _bare(value)
        elif key == "required":
            bare[key] = sorted(value)
        elif key not in ANNOTATIONS:
            bare[key] = value
    return bare
