"""The knowledge tables as an MCP server over stdio, one tool a relation: the example for bringing your own server.

    python -m astra.knowledge_server [data/raw/knowledge/knowledge.yaml]

Answers depend on the tables only, so calls may be repeated byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from astra.knowledge import Knowledge, Relation

DEFAULT_FILE = Path("data/raw/knowledge/knowledge.yaml")
N_EXAMPLES = 24
VALUE_SCHEMAS: dict[str, dict[str, Any]] = {
    "entity": {"type": "string"},
    "text": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "number": {"type": "number"},
}


class ToolFailed(Exception):
    """What the caller did wrong, in the words of the tool's error."""


def tool_of(relation: Relation, knowledge: Knowledge) -> types.Tool:
    """The relation's tool: one parameter, called as its table, and one ``result``.

    A result that is a key of a table says so in its title and shows some keys: what a task writer can ask about.
    """
    parameter = {"type": "string", "description": f"Key of the {relation.table}."}
    value = VALUE_SCHEMAS[relation.kind]
    unit = {"description": f"In {relation.unit}."} if relation.unit else {}
    if relation.target is not None:
        keys = sorted(set(map(str, knowledge.facts(relation.name).values())))
        value = {**value, "title": relation.target, "examples": keys[:: max(1, len(keys) // N_EXAMPLES)][:N_EXAMPLES]}
    return types.Tool(
        name=relation.name,
        description=relation.description,
        input_schema={"type": "object", "properties": {relation.table: parameter}, "required": [relation.table]},
        output_schema={"type": "object", "properties": {"result": {**value, **unit}}, "required": ["result"]},
    )


def answer(knowledge: Knowledge, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a call. Raises ToolFailed."""
    relation = knowledge.relations.get(name)
    if relation is None:
        raise ToolFailed(f"unknown tool: {name}")
    table = relation.table
    for other in sorted(arguments.keys() - {table}):
        raise ToolFailed(f"unknown parameter: {other}")
    if table not in arguments:
        raise ToolFailed(f"missing parameter: {table}")
    key = arguments[table]
    if not isinstance(key, str):
        raise ToolFailed(f"invalid parameter {table}: expected a string")
    try:
        return {"result": knowledge.value(name, key)}
    except KeyError:
        known = key in knowledge.keys(table)
        raise ToolFailed(
            f"no {relation.label} known for {table}: {key}" if known else f"unknown {table}: {key}"
        ) from None


def serve(knowledge: Knowledge, version: str) -> Server[dict[str, Any]]:
    """The server over these tables."""

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool_of(relation, knowledge) for relation in knowledge.relations.values()])

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            result = answer(knowledge, params.name, params.arguments or {})
        except ToolFailed as error:
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(error))], is_error=True)
        text = types.TextContent(type="text", text=json.dumps(result, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=result)

    return Server("knowledge", version=version, on_list_tools=list_tools, on_call_tool=call_tool)


async def run(file: Path) -> None:
    knowledge = Knowledge.load(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    server = serve(knowledge, digest)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    anyio.run(run, Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FILE)


if __name__ == "__main__":
    main()
