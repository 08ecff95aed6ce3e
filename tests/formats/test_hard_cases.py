"""Documents that broke other clients, and what they become here. The number is the case's in the project's list."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from astra.formats import READERS, format_of
from tests.formats.documents import RAPIDAPI

LEG = {
    "type": "object",
    "properties": {
        "depart_port": {"type": "string"},
        "arrive_port": {"type": "string"},
        "cabin": {"$ref": "#/$defs/Cabin"},
    },
    "required": ["depart_port", "arrive_port"],
}
CABIN = {"type": "string", "enum": ["inside", "outside"]}
LONG = "get_port_authority_weather_observation_station_daily_summary_by_station_id_"
NO_ARGUMENTS = {"type": "object", "properties": {}, "required": []}


def server(document, uri="folder/case.json"):
    (found,) = READERS[format_of(document)].servers(document, uri, 2)
    return found


def tools(document):
    return {tool.wire_name or tool.name: tool for tool in server(document).tools}


def accepts(tool, **arguments):
    return jsonschema.Draft202012Validator(tool.parameters).is_valid(arguments)


@pytest.mark.parametrize("block", ["$defs", "definitions"])
def test_hc_001_references_inside_references_are_followed_and_keep_what_stands_beside_them(block):
    schema = {
        "type": "object",
        "properties": {
            "leg": {"$ref": f"#/{block}/Leg", "description": "The leg to book"},
            "pax": {"type": "integer", "minimum": 1},
        },
        "required": ["leg"],
        block: {
            "Leg": {**LEG, "properties": {**LEG["properties"], "cabin": {"$ref": f"#/{block}/Cabin"}}},
            "Cabin": CABIN,
        },
    }
    tool = tools({"tools": [{"name": "book_ferry", "description": "Book one ferry leg.", "inputSchema": schema}]})[
        "book_ferry"
    ]
    assert tool.parameters["properties"]["leg"] == {
        "type": "object",
        "description": "The leg to book",
        "properties": {"depart_port": {"type": "string"}, "arrive_port": {"type": "string"}, "cabin": CABIN},
        "required": ["depart_port", "arrive_port"],
    }
    assert not re.search(r"\$ref|\$defs|definitions", json.dumps(tool.parameters))
    assert tool.notes == ()


def shelf(items):
    rule = {
        "type": "object",
        "properties": {"op": {"enum": ["all", "any"]}, "parts": {"type": "array", "items": items}},
    }
    leaf = {"type": "object", "properties": {"tag": {"type": "string"}, "under": {"$ref": "#/components/schemas/Rule"}}}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Rule"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shelf", "version": "1"},
        "paths": {
            "/search": {
                "post": {"operationId": "searchShelf", "requestBody": body, "responses": {"200": {"description": "ok"}}}
            },
            "/ping": {"get": {"operationId": "ping", "responses": {"200": {"description": "ok"}}}},
        },
        "components": {"schemas": {"Rule": rule, "Leaf": leaf}},
    }


RULE, LEAF = {"$ref": "#/components/schemas/Rule"}, {"$ref": "#/components/schemas/Leaf"}


@pytest.mark.parametrize("items", [{"anyOf": [RULE, LEAF]}, RULE, LEAF])
def test_hc_003_definitions_that_contain_themselves_or_each_other_are_cut_to_an_open_object(items):
    found = tools(shelf(items))
    assert list(found) == ["searchShelf", "ping"]
    assert any(note.startswith("truncated_recursion ") for note in found["searchShelf"].notes)
    assert '{"type": "object"}' in json.dumps(found["searchShelf"].parameters)
    assert found["searchShelf"] == tools(shelf(items))["searchShelf"]
    assert found["ping"].parameters == NO_ARGUMENTS


def test_hc_003_a_reference_to_the_whole_schema_is_cut_too():
    schema = {"type": "object", "properties": {"parts": {"type": "array", "items": {"$ref": "#"}}}}
    tool = tools({"tools": [{"name": "a", "inputSchema": schema}]})["a"]
    inner = tool.parameters["properties"]["parts"]["items"]["properties"]["parts"]
    assert inner == {"type": "array", "items": {"type": "object"}}


def test_hc_004_type_lists_with_an_enum_stay_unions():
    size = {"type": ["string", "null"], "enum": ["S", "M", None], "default": None}
    properties = {"size": size, "count": {"type": ["integer", "string"]}, "note": {"type": ["null"]}}
    parameters = {"type": "object", "properties": properties, "required": ["size"]}
    tool = tools([{"type": "function", "function": {"name": "order_mug", "parameters": parameters}}])["order_mug"]
    assert tool.parameters["properties"] == {**properties, "note": {"type": "null"}}
    assert "null_only /properties/note" in tool.notes
    assert accepts(tool, size=None)
    assert accepts(tool, size="S", count="2")
    assert not accepts(tool, size="L")


def test_hc_004_the_null_that_yaml_reads_in_a_type_list_is_the_type_null():
    parameters = {"type": "object", "properties": {"size": {"type": ["string", None]}}}
    tool = tools([{"name": "order_mug", "parameters": parameters}])["order_mug"]
    assert tool.parameters["properties"]["size"] == {"type": ["string", "null"]}
    assert tool.notes == ("no_description",)


def test_hc_006_a_tool_without_arguments_takes_an_empty_object():
    document = {
        "tools": [
            {"name": "a_bare", "inputSchema": {"type": "object"}},
            {"name": "b_closed", "inputSchema": {"type": "object", "additionalProperties": False}},
            {"name": "c_empty", "inputSchema": {}},
            {"name": "d_null", "inputSchema": None},
            {"name": "e_missing"},
            {"name": "f_required_ghost", "inputSchema": {"type": "object", "required": ["x"]}},
        ]
    }
    found = tools(document)
    for name in ("a_bare", "c_empty", "d_null", "e_missing"):
        assert found[name].parameters == NO_ARGUMENTS
        assert accepts(found[name])
    assert found["b_closed"].parameters == {**NO_ARGUMENTS, "additionalProperties": False}
    assert found["f_required_ghost"].parameters == {"type": "object", "properties": {"x": {}}, "required": ["x"]}
    assert "ghost_required /properties/x" in found["f_required_ghost"].notes


def test_hc_007_names_become_legal_and_stay_apart_in_any_order():
    wire = ["harbour.tide/now", "harbour_tide_now", LONG + "metric", LONG + "imperial", "天气.查询", "天气.预报", "9lives",
            " spaced name ", ""]  # fmt: skip

    def named(names):
        found = server({"tools": [{"name": name} for name in names]})
        return {tool.wire_name or tool.name: tool.name for tool in found.tools}, found.problems

    names, problems = named(wire)
    assert list(names) == wire[:-1]
    assert len(set(names.values())) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names.values())
    assert [problem.reason for problem in problems] == ["empty_name"]
    assert named(wire[::-1])[0] == names


def test_hc_009_enum_values_keep_their_json_types_and_win_over_a_type_that_contradicts_them():
    level = {"enum": ["low", 1, True, 2.5, None, "1"]}
    mode = {"type": "string", "enum": [0, 1, 3]}
    tool = tools(
        {
            "tools": [
                {"name": "set_heat", "inputSchema": {"type": "object", "properties": {"level": level, "mode": mode}}}
            ]
        }
    )["set_heat"]
    found = tool.parameters["properties"]
    assert [json.dumps(value) for value in found["level"]["enum"]] == ['"low"', "1", "true", "2.5", "null", '"1"']
    assert set(found["level"]["type"]) == {"string", "number", "boolean", "null"}
    assert found["mode"] == {"type": "integer", "enum": [0, 1, 3]}
    assert any(note.startswith("enum_type_mismatch /properties/mode") for note in tool.notes)
    assert accepts(tool, level=True)
    assert not accepts(tool, level=False)
    assert not accepts(tool, mode="1")


def test_hc_010_python_type_names_are_read_and_parameters_may_be_called_like_keywords():
    bracket = {
        "type": {"type": "string", "description": "L or U"},
        "properties": {"type": "any"},
        "items": {"type": "integer"},
    }
    properties = {
        "board": {"type": "dict", "properties": {"w": {"type": "float"}, "h": {"type": "float"}}},
        "bracket": {"type": "dict", "properties": bracket},
        "rgb": {"type": "tuple", "items": {"type": "integer"}},
        "when": {"type": "Optional[str]"},
        "raw": {"type": "str"},
        "odd": {"type": "Gadget"},
    }
    function = {"name": "shelf_plan", "description": "Plan one shelf.",
                "parameters": {"type": "dict", "properties": properties, "required": ["board"]}}  # fmt: skip
    for document in ([function], [{"id": "simple_1", "question": [[]], "function": [function]}]):
        tool = tools(document)["shelf_plan"]
        assert tool.parameters["properties"] == {
            "board": {"type": "object", "properties": {"w": {"type": "number"}, "h": {"type": "number"}}},
            "bracket": {"type": "object", "properties": {**bracket, "properties": {}}},
            "rgb": {"type": "array", "items": {"type": "integer"}},
            "when": {"type": ["string", "null"]},
            "raw": {"type": "string"},
            "odd": {},
        }
        assert tool.parameters["required"] == ["board"]
        assert "unknown_type /properties/odd/type (Gadget)" in tool.notes


def test_hc_011_a_hub_keeps_wire_names_and_honest_defaults():
    hub = {**RAPIDAPI, "api_list": [{**RAPIDAPI["api_list"][0], "template_response": {"slots": ["str"]}}]}
    (api,) = hub["api_list"]
    query = {
        "api_list": [{**api, "tool_name": "Harbour Data (Free)", "category_name": "Logistics"}],
        "query": "Which slots?",
    }
    for document in (hub, [hub], [query, query]):
        found = server(document)
        (tool,) = found.tools
        assert (found.title, found.domain) == ("Harbour Data (Free)", "Logistics")
        assert (tool.name, tool.wire_name) == ("berths_port_id_slots_for_harbour_data_free", "/berths/:port_id/slots")
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
        assert [note.split(" ")[0] for note in tool.notes] == ["no_description", "default_dropped", "duplicate_param"]


@pytest.mark.parametrize(
    ("kind", "default", "kept", "note"),
    [
        ("STRING", 5, "5", "default_coerced"),
        ("STRING", True, "true", "default_coerced"),
        ("STRING", 2.5, "2.5", "default_coerced"),
        ("STRING", ["a"], None, "default_dropped"),
        ("STRING", "", None, None),
        ("STRING", "00120", "00120", None),
        ("NUMBER", True, None, "default_dropped"),
        ("NUMBER", "yes", None, "default_dropped"),
        ("NUMBER", "1,5", None, "default_dropped"),
        ("NUMBER", 5, 5, None),
        ("NUMBER", "2.5", 2.5, None),
        ("INTEGER", 2.5, None, "default_dropped"),
        ("INTEGER", "7", 7, None),
        ("BOOLEAN", 1, None, "default_dropped"),
        ("BOOLEAN", "yes", None, "default_dropped"),
        ("BOOLEAN", "True", True, None),
        ("DATE (YYYY-MM-DD)", 20240101, "20240101", "default_coerced"),
        ("ARRAY", {"a": 1}, None, "default_dropped"),
        ("ARRAY", '["a"]', ["a"], None),
        ("Optional[str]", 5, "5", "default_coerced"),
    ],
)
def test_hc_011_a_default_has_the_type_of_its_parameter_or_a_note_says_what_became_of_it(kind, default, kept, note):
    api = {"api_name": "Get", "optional_parameters": [{"name": "a", "type": kind, "default": default}]}
    (tool,) = server({"tool_name": "Hub", "api_list": [api]}).tools
    assert tool.parameters["properties"]["a"].get("default") == kept
    assert type(tool.parameters["properties"]["a"].get("default")) is type(kept)
    found = [one.split(" ")[0] for one in tool.notes if one.startswith("default_")]
    assert found == ([note] if note else [])


@pytest.mark.parametrize(
    ("kind", "default"),
    [("NUMBER", "9" * 5000), ("NUMBER", "9" * 400 + ".5"), ("OBJECT", '{"a": NaN}'), ("ARRAY", "[" * 5000)],
)
def test_hc_011_a_default_that_no_json_number_can_hold_is_dropped_with_a_note(kind, default):
    api = {"api_name": "Get", "optional_parameters": [{"name": "a", "type": kind, "default": default}]}
    (tool,) = server({"tool_name": "Hub", "api_list": [api]}).tools
    assert "default" not in tool.parameters["properties"]["a"]
    assert any(note.startswith("default_dropped /optional_parameters/0/default") for note in tool.notes)


def test_numbers_of_thousands_of_digits_in_types_and_references_cost_no_neighbour():
    long = "9" * 5000
    odd = {"a": {"type": f"Literal[{long}]"}, "b": {"$ref": f"#/required/{long}"}}
    parameters = {"type": "object", "properties": odd, "required": ["a"]}
    found = tools([{"name": "odd", "parameters": parameters}, {"name": "next", "parameters": {}}])
    assert found["odd"].parameters["properties"]["b"] == {}
    assert list(found) == ["odd", "next"]


@pytest.mark.parametrize("levels", [250, 450])
def test_a_value_nested_without_end_costs_its_tool_only(levels):
    deep = 1
    for _ in range(levels):
        deep = [deep]
    parameters = {"type": "object", "properties": {"a": {"default": deep, "enum": [deep]}}}
    found = server({"tools": [{"name": "deep", "inputSchema": parameters}, {"name": "next"}]})
    assert [tool.name for tool in found.tools] == ["next"]
    assert [(one.reason, one.pointer) for one in found.problems] == [("bad_schema", "/tools/0")]
    assert "nested more than 200 deep" in found.problems[0].detail
