"""The server list of ASTRA's release (``mcp_servers.jsonl``): one server a line, under ``base_info``.

``group_info`` holds title, name, description and domain, ``tool_list`` the tools. ``call_info``, which says how to
reach the server and may hold keys, is never read; neither are the free ``features``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from astra.formats.document import (
    PARAMETERS,
    Draft,
    FoundServer,
    Problem,
    first_of,
    listing,
    mapping,
    no_object,
    no_server,
    one_text,
    server_name,
    text_or_none,
    tools_of,
)


def recognises(document: Any) -> bool:
    return any(_is_server(one) for _, one in listing(document))


def servers(document: Any, uri: str, max_ref_depth: int) -> Iterator[FoundServer]:
    for place, line in listing(document):
        if not _is_server(line):
            yield no_server(uri, no_object(line, place, "a server with base_info.tool_list"))
            continue
        base = line["base_info"]
        group = mapping(base.get("group_info"))
        drafts = (_draft(one, f"{place}/base_info/tool_list/{index}") for index, one in enumerate(base["tool_list"]))
        found = tools_of(drafts, base, max_ref_depth)
        name = server_name(group.get("server_name") or group.get("server_title"), uri)
        yield FoundServer(
            name=name,
            title=one_text(group.get("server_title")) or name,
            description=one_text(group.get("server_description")),
            domain=text_or_none(group.get("domain")),
            licence=None,
            tools=found.tools,
            problems=found.problems,
        )


def _is_server(line: Any) -> bool:
    return isinstance(mapping(mapping(line).get("base_info")).get("tool_list"), list)


def _draft(tool: Any, pointer: str) -> Draft | Problem:
    if not isinstance(tool, dict):
        return no_object(tool, pointer, "a tool")
    parameters = first_of(tool, PARAMETERS)
    return Draft(
        pointer=pointer,
        wire_name=tool.get("name"),
        description=tool.get("description"),
        parameters=tool.get(parameters),
        places={"parameters": f"/{parameters}"},
    )
