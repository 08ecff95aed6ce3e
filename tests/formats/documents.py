"""One small document a format, as the contract suite and the stage's tests use them."""

from __future__ import annotations

from typing import Any

PORT = {"type": "string", "description": "Code of a port."}

MCP: dict[str, Any] = {
    "serverInfo": {"name": "harbour", "title": "Harbour"},
    "instructions": "Ports and tides.",
    "_meta": {"domain": "transport", "licence": "MIT"},
    "tools": [
        {
            "name": "find_port",
            "description": " Find a port. ",
            "inputSchema": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
            "outputSchema": {"type": "object", "properties": {"port": PORT}},
        },
        {"name": "read.tide", "description": "Read the tide of a port.", "inputSchema": {"properties": {"port": PORT}}},
        {"name": "ping"},
    ],
}
OPENAI: dict[str, Any] = {
    "name": "shelf",
    "title": "Shelf",
    "description": "Boards and brackets.",
    "domain": "tools",
    "licence": "MIT",
    "functions": [
        {"type": "function", "function": {"name": "plan_shelf", "description": "Plan a shelf.",
                                          "parameters": {"type": "object", "properties": {"w": {"type": "number"}}}}},
        {"name": "cut_board", "description": "Cut a board.", "parameters": {"type": "dict", "properties": {}},
         "response": {"type": "dict", "properties": {"board": {"type": "string"}}}},
        {"name": "mount", "description": "Mount it.", "parameters": {}},
    ],
}  # fmt: skip
OPENAPI: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Berth Book", "description": "Berths.", "license": {"name": "MIT"}, "x-domain": "sailing"},
    "paths": {
        "/berths/{berth_id}": {
            "parameters": [{"$ref": "#/components/parameters/Berth"}],
            "get": {
                "operationId": "getBerth",
                "summary": "Get a berth",
                "description": "Its length and who lies there.",
                "responses": {"200": {"$ref": "#/components/responses/Berth"}},
            },
            "delete": {"responses": {"204": {"description": "gone"}}},
        },
        "/berths": {
            "post": {
                "operationId": "addBerth",
                "parameters": [
                    {"name": "dry_run", "in": "query", "schema": {"type": "boolean"}},
                    {"name": "Authorization", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}},
                "responses": {
                    "201": {"content": {"application/vnd.berth+json": {"schema": {"$ref": "#/components/schemas/New"}}}}
                },
            }
        },
    },
    "components": {
        "parameters": {"Berth": {"name": "berth_id", "in": "path", "description": "Id.", "schema": {"type": "string"}}},
        "responses": {
            "Berth": {"content": {"application/json": {"schema": {"type": "object", "properties": {"boat": {}}}}}}
        },
        "schemas": {
            "New": {
                "type": "object",
                "properties": {"length_m": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
                "required": ["length_m"],
            }
        },
    },
}
RAPIDAPI: dict[str, Any] = {
    "tool_name": "Harbour Data (Free)",
    "tool_description": "Berth slots.",
    "category_name": "Logistics",
    "api_list": [
        {
            "api_name": "/berths/:port_id/slots",
            "api_description": " ",
            "method": "GET",
            "required_parameters": [
                {"name": "port_id", "type": "STRING", "description": "Port code", "default": ""},
                {"name": "post code", "type": "NUMBER", "description": "", "default": "00120"},
            ],
            "optional_parameters": [
                {"name": "day", "type": "DATE (YYYY-MM-DD)", "description": "", "default": ""},
                {"name": "max", "type": "NUMBER", "description": "", "default": "10"},
                {"name": "raw", "type": "BOOLEAN", "description": "", "default": "false"},
                {"name": "mode", "type": "ENUM", "description": "one of: slow, fast", "default": "Slow"},
                {"name": "port_id", "type": "NUMBER", "description": "dup", "default": "7"},
            ],
            "template_response": {"slots": ["str"], "n": 3, "_list_length": 1},
        },
        {"api_name": "find_ports", "api_description": "Find ports.", "schema": {"type": "object"}},
    ],
}
RELEASE: list[Any] = [
    {
        "base_info": {
            "group_info": {
                "server_title": "Lighthouse Log",
                "server_name": "lighthouse.log",
                "server_description": "Lamps and watches.",
                "domain": "Shipping",
            },
            "tool_list": [
                {"name": "find_lamp", "description": "Find a lamp.",
                 "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}},
                {"name": "read-watch", "description": "Read a watch.", "parameters": {"type": "object"}},
            ],
        },
        "features": {"n": 2},
        "call_info": {"url": "https://example.org/mcp?api_key=not-for-you", "headers": {"Authorization": "not for you"}},
    },
]  # fmt: skip
DOCUMENTS = {"mcp": MCP, "openai": OPENAI, "openapi": OPENAPI, "rapidapi": RAPIDAPI, "astra": RELEASE}
