"""MCP ``tools/list`` documents: the bare result, the JSON-RPC reply, or a live server's list in the same form.

Beside ``tools`` a document may hold what ``initialize`` returns (``serverInfo``, ``instructions``), and ``domain`` and
``licence`` under ``_meta``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from astra.formats.document import (
    PARAMETERS,
    RETURNS,
    Draft,
    FoundServer,
    Problem,
    first_of,
    mapping,
    no_object,
    one_text,
    server_name,
    text_or_none,
    tools_of,
)


def recognises(document: Any) -> bool:
    tools = _result(document).get("tools")
    if not isinstance(tools, list):
        return False
    return not any(isinstance(tool, dict) and ("function" in tool or "parameters" in tool) for tool in tools)


def servers(document: Any, uri: str, max_ref_depth: int) -> Iterator[FoundServer]:
    result = _result(document)
    place = "/result" if result is not document else ""
    told = mapping(result.get("serverInfo"))
    meta = mapping(result.get("_meta"))
    found = tools_of(
        (_draft(tool, f"{place}/tools/{index}") for index, tool in enumerate(result["tools"])), document, max_ref_depth
    )
    name = server_name(told.get("name"), uri)
    yield FoundServer(
        name=name,
        title=one_text(told.get("title")) or name,
        description=one_text(result.get("instructions")) or one_text(told.get("description")),
        domain=text_or_none(meta.get("domain")),
        licence=text_or_none(meta.get("licence")),
        tools=found.tools,
        problems=found.problems,
    )


def _draft(tool: Any, pointer: str) -> Draft | Problem:
    if not isinstance(tool, dict):
        return no_object(tool, pointer, "a tool")
    parameters, returns = first_of(tool, PARAMETERS[1:]), first_of(tool, RETURNS[:2])
    return Draft(
        pointer=pointer,
        wire_name=tool.get("name"),
        description=tool.get("description"),
        parameters=tool.get(parameters),
        returns=tool.get(returns),
        places={"parameters": f"/{parameters}", "returns": f"/{returns}"},
    )


def _result(document: Any) -> dict[str, Any]:
    """The part that holds ``tools``; empty where there is none."""
    whole = mapping(document)
    return mapping(whole["result"]) if "jsonrpc" in whole and "result" in whole else whole
