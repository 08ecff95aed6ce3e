"""Parameters that documents write without the schema around them are read with a note; schemas stay what they are."""

from __future__ import annotations

import json

import pytest

from astra.formats import READERS, format_of
from astra.formats.schema import SchemaInvalid, clean_parameters

TEXT = {"type": "string"}


def read(parameters):
    return clean_parameters(parameters, parameters, 2)


@pytest.mark.parametrize(
    ("parameters", "properties", "required"),
    [
        ({"city": TEXT}, {"city": TEXT}, []),
        ({"city": TEXT, "required": ["city"]}, {"city": TEXT}, ["city"]),
        ({"city": {**TEXT, "required": True}, "unit": {**TEXT, "required": False}}, {"city": TEXT, "unit": TEXT}, ["city"]),
        ({"city": {**TEXT, "required": "yes"}, "unit": {**TEXT, "optional": True}}, {"city": TEXT, "unit": TEXT}, ["city"]),
        ({"city": {**TEXT, "optional": False}}, {"city": TEXT}, ["city"]),
        ({"city": "string", "days": "int"}, {"city": TEXT, "days": {"type": "integer"}}, []),
        ({"city": "string - the town", "days": "int (how many days)"},
         {"city": {**TEXT, "description": "the town"}, "days": {"type": "integer", "description": "how many days"}}, []),
        ({"city": "The name of the city."}, {"city": {"description": "The name of the city."}}, []),
        ({"city": {"description": "The town."}}, {"city": {"description": "The town."}}, []),
        ({"city": {}}, {"city": {}}, []),
        ({"city": ["string", "null"]}, {"city": {"type": ["string", "null"]}}, []),
        ({"unit": {"enum": ["C", "F"]}}, {"unit": {**TEXT, "enum": ["C", "F"]}}, []),
        ({"type": "object", "city": TEXT, "required": ["city"], "description": "Where."}, {"city": TEXT}, ["city"]),
        ({"type": "object", "properties": {}, "city": TEXT}, {"city": TEXT}, []),
        ({"type": "dict", "city": {"type": "str"}}, {"city": TEXT}, []),
        ({"city": TEXT, "additionalProperties": False}, {"city": TEXT}, []),
        ([{"name": "city", "type": "string", "required": True}, {"name": "days", "type": "int"}],
         {"city": TEXT, "days": {"type": "integer"}}, ["city"]),
        ([{"name": "city", "in": "query", "required": True, "schema": TEXT}], {"city": TEXT}, ["city"]),
        ([{"city": TEXT}, {"unit": TEXT}], {"city": TEXT, "unit": TEXT}, []),
        (["city", "unit"], {"city": {}, "unit": {}}, []),
        ({"type": "object", "properties": [{"name": "city", "type": "string", "required": True}]}, {"city": TEXT}, ["city"]),
        (json.dumps({"type": "object", "properties": {"city": TEXT}, "required": ["city"]}), {"city": TEXT}, ["city"]),
        (json.dumps({"city": TEXT}), {"city": TEXT}, []),
        # parameters that are called like keywords
        ({"type": TEXT, "name": TEXT}, {"type": TEXT, "name": TEXT}, []),
        ({"type": TEXT}, {"type": TEXT}, []),
        ({"title": TEXT, "description": TEXT, "format": TEXT}, {"title": TEXT, "description": TEXT, "format": TEXT}, []),
        ({"title": "string", "description": "string"}, {"title": TEXT, "description": TEXT}, []),
        ({"items": {"type": "array", "items": TEXT}}, {"items": {"type": "array", "items": TEXT}}, []),
        ({"name": TEXT, "properties": {"type": "object"}}, {"name": TEXT, "properties": {"type": "object"}}, []),
        ({"required": {"type": "boolean"}, "default": TEXT, "enum": TEXT}, {"required": {"type": "boolean"}, "default": TEXT, "enum": TEXT}, []),
        # objects inside that are written so
        ({"address": {"street": TEXT, "zip": TEXT}},
         {"address": {"type": "object", "properties": {"street": TEXT, "zip": TEXT}}}, []),
        ({"type": "object", "properties": {"address": {"type": "object", "street": TEXT}}},
         {"address": {"type": "object", "properties": {"street": TEXT}}}, []),
        ({"type": "object", "properties": {"address": {"type": "object", "properties": [{"name": "street", "type": "string", "required": True}]}}},
         {"address": {"type": "object", "properties": {"street": TEXT}, "required": ["street"]}}, []),
    ],
)  # fmt: skip
def test_names_and_types_that_stand_where_a_schema_should_become_its_properties_with_a_note(
    parameters, properties, required
):
    result = read(parameters)
    assert result.schema["properties"] == properties
    assert result.schema["required"] == required
    assert result.notes[0].startswith("flat_parameters ")
    assert read(result.schema) == (result.schema, ())


@pytest.mark.parametrize(
    ("parameters", "properties"),
    [
        ({}, {}),
        ([], {}),
        ({"type": "object", "properties": {"type": "string"}}, {"type": TEXT}),
        ({"type": "object", "properties": {"type": TEXT, "properties": TEXT}}, {"type": TEXT, "properties": TEXT}),
        ({"properties": {"city": TEXT}}, {"city": TEXT}),
        ({"type": "object", "strict": True, "name": "get_weather", "version": 2}, {}),
        ({"type": "object", "x-ui": TEXT, "$comment": "c"}, {}),
        ({"type": "object", "definitions": {"a": TEXT}, "$defs": {"b": TEXT}}, {}),
        ({"type": "object", "properties": {"a": TEXT}, "discriminator": {"propertyName": "a"}}, {"a": TEXT}),
        ({"type": "object", "properties": {"a": TEXT}, "ui": {"type": "string"}}, {"a": TEXT}),
        ({"type": "object", "example": {"city": "Rome"}}, {}),
        ({"type": "object", "additionalProperties": TEXT, "propertyNames": {"pattern": "^a"}}, {}),
        ({"type": "object", "patternProperties": {"^a": TEXT}, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, {}),
        ({"title": "Arguments", "description": "None."}, {}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": TEXT}}}}, {"a": TEXT}),
        ({"type": "object", "properties": {"a": {**TEXT, "ui": {"type": "string"}}}}, {"a": TEXT}),
        ({"type": "object", "properties": {"a": {"description": "q", "check": {"type": "regex"}}}}, {"a": {"description": "q"}}),
        ({"type": "object", "properties": {"a": {"type": "object", "xml": {"name": "A"}, "example": TEXT}}},
         {"a": {"type": "object", "examples": [TEXT]}}),
    ],
)  # fmt: skip
def test_a_schema_stays_one_whatever_vendors_add_to_it(parameters, properties):
    result = read(parameters)
    assert result.schema["properties"] == properties
    assert not any(note.startswith("flat_parameters") for note in result.notes)


@pytest.mark.parametrize("parameters", [TEXT, {"type": "array", "items": TEXT}, {"enum": ["a"]}, "string"])
def test_a_schema_of_another_type_is_refused_as_before(parameters):
    with pytest.raises(SchemaInvalid, match="must be an object"):
        read(parameters)


WANTED = {"type": "object", "properties": {"city": TEXT}, "required": ["city"]}


@pytest.mark.parametrize(
    "document",
    [
        [{"name": "a", "parameters": {"city": {**TEXT, "required": True}}}],
        [{"type": "function", "function": {"name": "a", "parameters": {"city": TEXT, "required": ["city"]}}}],
        [{"type": "function", "function": {"name": "a"}, "parameters": WANTED}],
        [{"name": "a", "input_schema": WANTED}],
        [{"name": "a", "inputSchema": WANTED}],
        {"tools": [{"name": "a", "input_schema": WANTED}]},
        {"tools": [{"name": "a", "inputSchema": {"city": {**TEXT, "required": True}}}]},
        {"tools": [{"name": "a", "inputSchema": WANTED}, {"name": "b", "parameters": {}}]},
        {"base_info": {"tool_list": [{"name": "a", "parameters": {"city": {**TEXT, "required": True}}}]}},
        {"base_info": {"tool_list": [{"name": "a", "inputSchema": WANTED}]}},
    ],
)
def test_no_format_loses_parameters_that_are_written_another_way(document):
    (server,) = READERS[format_of(document)].servers(document, "folder/case.json", 2)
    assert server.tools[0].parameters == WANTED
