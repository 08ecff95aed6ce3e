"""OpenAI function lists, wrapped (``{"type": "function", "function": ...}``) or flat, as BFCL writes them too.

A list, or an object whose ``functions`` or ``tools`` is one, beside ``name``, ``title``, ``description``, ``domain``
and ``licence``. The result's schema, which the OpenAI form has no place for, is read from ``returns`` or ``response``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from astra.formats.document import Draft, FoundServer, Problem, one_text, server_name, text_or_none, tools_of


def recognises(document: Any) -> bool:
    functions, _ = _functions(document)
    return any(isinstance(one, dict) and ("function" in one or "parameters" in one) for one in functions)


def servers(document: Any, uri: str, max_ref_depth: int) -> Iterator[FoundServer]:
    functions, place = _functions(document)
    about = document if isinstance(document, dict) else {}
    found = tools_of((_draft(one, f"{place}/{index}") for index, one in enumerate(functions)), document, max_ref_depth)
    name = server_name(about.get("name"), uri)
    yield FoundServer(
        name=name,
        title=one_text(about.get("title")) or name,
        description=one_text(about.get("description")),
        domain=text_or_none(about.get("domain")),
        licence=text_or_none(about.get("licence")),
        tools=found.tools,
        problems=found.problems,
    )


def _functions(document: Any) -> tuple[list[Any], str]:
    """The list of functions and its pointer; empty where the document has none."""
    if isinstance(document, list):
        return document, ""
    for key in ("functions", "tools"):
        if isinstance(document, dict) and isinstance(document.get(key), list):
            return document[key], f"/{key}"
    return [], ""


def _draft(one: Any, pointer: str) -> Draft | Problem:
    function, inner = (one["function"], "/function") if isinstance(one, dict) and "function" in one else (one, "")
    if not isinstance(function, dict):
        return Problem("bad_tool", pointer + inner, f"a function must be an object, not {type(function).__name__}")
    returns = "returns" if "returns" in function else "response"
    return Draft(
        pointer=pointer,
        wire_name=function.get("name"),
        description=function.get("description"),
        parameters=function.get("parameters"),
        returns=function.get(returns),
        places={"parameters": f"{inner}/parameters", "returns": f"{inner}/{returns}"},
    )
