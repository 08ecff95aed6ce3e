"""What each format says of its tools, and what becomes of the tools that are wrong."""

from __future__ import annotations

import pytest

from astra.formats import READERS, format_of
from tests.formats.documents import DOCUMENTS, MCP


def only(document, uri="folder/case.json"):
    (server,) = READERS[format_of(document)].servers(document, uri, 2)
    return server


def tools(document):
    return {tool.name: tool for tool in only(document).tools}


def test_mcp_tells_its_server_and_keeps_the_wire_name():
    server = only(MCP)
    assert (server.name, server.title, server.description) == ("harbour", "Harbour", "Ports and tides.")
    assert (server.domain, server.licence) == ("transport", "MIT")
    assert [(tool.name, tool.wire_name) for tool in server.tools] == [
        ("find_port", None), ("read_tide", "read.tide"), ("ping", None),
    ]  # fmt: skip
    assert server.tools[0].description == "Find a port."
    assert server.tools[2].notes == ("no_description",)


def test_mcp_is_read_from_a_json_rpc_reply_too():
    assert len(only({"jsonrpc": "2.0", "id": 1, "result": {"tools": MCP["tools"]}}).tools) == 3


@pytest.mark.parametrize("more", [{"inputSchema": {"type": "object"}}, {"inputSchema": {}}, {"inputSchema": None}, {}])
def test_a_tool_without_arguments_takes_an_empty_object(more):
    assert only({"tools": [{"name": "bare", **more}]}).tools[0].parameters == {
        "type": "object", "properties": {}, "required": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "reason", "pointer"),
    [
        ({"name": ""}, "empty_name", "/tools/1"),
        ({"name": "  "}, "empty_name", "/tools/1"),
        ({}, "empty_name", "/tools/1"),
        ({"name": 7}, "bad_name", "/tools/1"),
        ("find_port", "bad_tool", "/tools/1"),
        ({"name": "odd", "inputSchema": {"type": "string"}}, "bad_schema", "/tools/1/inputSchema"),
        ({"name": "good"}, "duplicate_name", "/tools/1"),
        ({"name": "half", "description": "\ud83d"}, "bad_text", "/tools/1"),
    ],
)
def test_a_bad_tool_is_a_problem_with_its_place_and_its_neighbours_stay(tool, reason, pointer):
    server = only({"tools": [{"name": "good"}, tool, {"name": "other"}]})
    assert [one.name for one in server.tools] == ["good", "other"]
    assert [(one.reason, one.pointer) for one in server.problems] == [(reason, pointer)]


def test_a_result_that_cannot_be_read_costs_the_tool_only_that():
    deep = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    tool = only({"tools": [{"name": "a", "outputSchema": deep}]}).tools[0]
    assert tool.returns is None
    assert tool.notes[1].startswith("bad_returns /outputSchema/items")


def test_openai_functions_may_be_wrapped_or_flat_and_a_bare_list():
    assert list(tools(DOCUMENTS["openai"])) == ["plan_shelf", "cut_board", "mount"]
    assert tools(DOCUMENTS["openai"])["cut_board"].returns == {
        "type": "object",
        "properties": {"board": {"type": "string"}},
    }
    assert only(DOCUMENTS["openai"]["functions"]).name == "case"


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"name": "one", "parameters": {}}, ["one"]),
        ({"type": "function", "function": {"name": "one"}}, ["one"]),
        (
            [
                {"function": [{"name": "a", "parameters": {}}]},
                {"function": [{"name": "a", "parameters": {}}, {"name": "b"}]},
            ],
            ["a", "b"],
        ),
        ([{"messages": [], "tools": [{"type": "function", "function": {"name": "a"}}]}], ["a"]),
        ({"id": "simple_1", "function": [{"name": "a", "parameters": {}}]}, ["a"]),
    ],
)
def test_openai_functions_may_stand_alone_or_in_the_records_of_a_dataset(document, names):
    server = only(document)
    assert [tool.name for tool in server.tools] == names
    assert server.problems == ()


def test_two_records_that_differ_about_one_function_are_a_problem():
    first, second = (
        {"name": "a", "parameters": {}},
        {"name": "a", "parameters": {"type": "dict", "properties": {"x": {"type": "str"}}}},
    )
    server = only([{"function": [first]}, {"function": [second]}, "text"])
    assert [(one.reason, one.pointer) for one in server.problems] == [
        ("duplicate_name", "/1/function/0"),
        ("bad_tool", "/2"),
    ]


def test_the_release_says_how_a_server_is_called_and_we_do_not_read_it():
    server = only(DOCUMENTS["astra"])
    assert (server.name, server.title, server.domain) == ("lighthouse_log", "Lighthouse Log", "Shipping")
    assert "not for you" not in repr(server)


@pytest.mark.parametrize("name", ["astra", "rapidapi"])
def test_what_is_no_server_in_a_list_of_servers_is_a_problem_with_its_place(name):
    document = DOCUMENTS[name] if isinstance(DOCUMENTS[name], list) else [DOCUMENTS[name]]
    _, second, third = READERS[name].servers([*document, {"a": 1}, 7], "folder/case.json", 2)
    assert [(one.reason, one.pointer) for one in (*second.problems, *third.problems)] == [
        ("bad_tool", "/1"),
        ("bad_tool", "/2"),
    ]


def test_toolbench_queries_are_gathered_by_hub():
    def api(hub, name, **more):
        return {"tool_name": hub, "category_name": "Sea", "api_name": name, **more}

    queries = [
        {"query": "?", "api_list": [api("A", "x"), api("B", "y")]},
        {"query": "!", "api_list": [api("A", "x"), api("A", "z"), 3]},
    ]
    found = list(READERS["rapidapi"].servers(queries, "folder/case.json", 2))
    assert [(server.title, [tool.wire_name for tool in server.tools]) for server in found] == [
        ("A", ["x", "z"]),
        ("B", ["y"]),
        ("case", []),
    ]
    assert [(one.reason, one.pointer) for server in found for one in server.problems] == [("bad_tool", "/1/api_list/2")]


def test_an_openapi_operation_is_one_flat_function():
    found = tools(DOCUMENTS["openapi"])
    assert list(found) == ["getBerth", "delete_berths_berth_id", "addBerth"]
    assert found["getBerth"].description == "Get a berth. Its length and who lies there."
    assert found["getBerth"].parameters == {
        "type": "object",
        "properties": {"berth_id": {"type": "string", "description": "Id."}},
        "required": ["berth_id"],
    }
    assert found["getBerth"].returns == {"type": "object", "properties": {"boat": {}}}
    assert found["delete_berths_berth_id"].wire_name == "delete /berths/{berth_id}"
    assert found["addBerth"].parameters == {
        "type": "object",
        "properties": {"dry_run": {"type": "boolean"}, "length_m": {"type": "number", "exclusiveMinimum": 0}},
        "required": ["length_m"],
    }
    assert found["addBerth"].returns == {
        "type": "object", "properties": {"length_m": {"type": "number", "exclusiveMinimum": 0}}, "required": ["length_m"],
    }  # fmt: skip


def test_an_openapi_server_names_itself():
    server = only(DOCUMENTS["openapi"])
    assert (server.name, server.title, server.domain, server.licence) == ("berth_book", "Berth Book", "sailing", "MIT")


def rule(components):
    rule = {
        "type": "object",
        "properties": {"op": {"enum": ["all", "any"]}, "parts": {"type": "array", "items": components}},
    }
    leaf = {"type": "object", "properties": {"tag": {"type": "string"}, "under": {"$ref": "#/components/schemas/Rule"}}}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Rule"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shelf"},
        "paths": {"/search": {"post": {"operationId": "searchShelf", "requestBody": body}},
                  "/ping": {"get": {"operationId": "ping"}}},
        "components": {"schemas": {"Rule": rule, "Leaf": leaf}},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["Rule", "Leaf"])
def test_a_recursive_body_costs_no_tool(name):
    found = tools(rule({"$ref": f"#/components/schemas/{name}"}))
    assert list(found) == ["searchShelf", "ping"]
    assert any(note.startswith("truncated_recursion ") for note in found["searchShelf"].notes)
    assert list(found["searchShelf"].parameters["properties"]) == ["op", "parts"]


def test_a_body_that_clashes_or_is_no_object_stays_whole():
    def body(schema):
        content = {"application/json": {"schema": schema}}
        operation = {
            "operationId": "put",
            "parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}],
            "requestBody": {"required": True, "description": "All of it.", "content": content},
        }
        return tools({"openapi": "3.1.0", "paths": {"/x": {"put": operation}}})["put"].parameters

    clash = body({"type": "object", "properties": {"id": {"type": "integer"}}})
    assert clash["properties"]["id"] == {"type": "string"}
    assert clash["required"] == ["body"]
    listed = body({"type": "array", "items": {"type": "string"}})
    assert listed["properties"]["body"] == {
        "type": "array", "items": {"type": "string"}, "description": "All of it.",
    }  # fmt: skip


def test_swagger_2_is_read_too():
    operation = {
        "operationId": "addPier",
        "parameters": [
            {"name": "town", "in": "query", "type": "string", "required": True, "description": "Town."},
            {"name": "pier", "in": "body", "schema": {"$ref": "#/definitions/Pier"}},
        ],
        "responses": {"200": {"schema": {"$ref": "#/definitions/Pier"}}},
    }
    pier = {"type": "object", "properties": {"length_m": {"type": "number"}}}
    found = tools({"swagger": "2.0", "paths": {"/piers": {"post": operation}}, "definitions": {"Pier": pier}})
    assert found["addPier"].parameters["properties"] == {
        "town": {"type": "string", "description": "Town."}, "length_m": {"type": "number"},
    }  # fmt: skip
    assert found["addPier"].returns == pier


def test_one_bad_operation_is_a_problem_with_its_place():
    deep = {"type": "string"}
    for _ in range(150):
        deep = {"type": "array", "items": deep}
    broken = {"name": "a", "in": "query", "schema": deep}
    document = {
        "openapi": "3.1.0",
        "paths": {
            "/a": {"get": {"parameters": [broken]}, "post": "soon"},
            "/b": {"get": {"operationId": "b"}},
            "/c": [],
        },
    }
    server = only(document)
    assert [tool.name for tool in server.tools] == ["b"]
    assert [(one.reason, one.pointer.partition("/items")[0]) for one in server.problems] == [
        ("bad_schema", "/paths/~1a/get/parameters/a"), ("bad_tool", "/paths/~1a/post"), ("bad_tool", "/paths/~1c"),
    ]  # fmt: skip


def test_a_hub_keeps_each_parameter_once_with_honest_defaults():
    tool = tools(DOCUMENTS["rapidapi"])["berths_port_id_slots_for_harbour_data_free"]
    assert tool.wire_name == "/berths/:port_id/slots"
    assert tool.description == ""
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "port_id": {"type": "string", "description": "Port code"},
            "post code": {"type": "number"},
            "day": {"type": "string", "format": "date"},
            "max": {"type": "number", "default": 10},
            "raw": {"type": "boolean", "default": False},
            "mode": {"type": "string", "description": "one of: slow, fast", "default": "Slow"},
        },
        "required": ["port_id", "post code"],
    }
    assert tool.returns == {
        "type": "object", "properties": {"slots": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}},
    }  # fmt: skip
    assert [note.split(" ")[0] for note in tool.notes] == ["no_description", "default_dropped", "duplicate_param"]


def test_a_file_may_hold_several_hubs():
    hub = DOCUMENTS["rapidapi"]
    found = list(READERS["rapidapi"].servers([hub, {**hub, "tool_name": "Pier Data"}], "a.json", 2))
    assert [server.name for server in found] == ["harbour_data_free", "pier_data"]
