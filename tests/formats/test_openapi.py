"""Any OpenAPI or Swagger document gives tools or problems; what a call may say is what the operation takes."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astra.formats import READERS, format_of
from tests.formats.test_equivalence import NAMES, SCHEMAS, VALUES


def only(document):
    (server,) = READERS[format_of(document)].servers(document, "folder/case.json", 2)
    return server


def operation(parameters=(), body=None, version="3.1.0", **more):
    content = (
        {} if body is None else {"requestBody": {"content": {"application/json": {"schema": body}}, "required": True}}
    )
    one = {"operationId": "do", "parameters": list(parameters), **content, **more}
    (tool,) = only({"openapi": version, "paths": {"/x": {"post": one}}}).tools
    return tool


def test_a_parameter_of_the_operation_overrides_its_paths_and_one_of_another_place_gets_a_name_of_its_own():
    one = {"name": "id", "in": "query", "schema": {"type": "integer"}}
    same, other = {**one, "schema": {"type": "string"}}, {"name": "id", "in": "header", "schema": {"type": "boolean"}}
    document = {
        "openapi": "3.0.0",
        "paths": {"/x": {"parameters": [one], "get": {"operationId": "a", "parameters": [other, same]}}},
    }
    (tool,) = only(document).tools
    assert tool.parameters["properties"] == {"id": {"type": "string"}, "header_id": {"type": "boolean"}}
    assert "renamed_parameter /parameters/id (header_id)" in tool.notes


def test_fields_that_only_the_server_sets_are_no_arguments():
    inner = {"type": "object", "properties": {"id": {"type": "integer", "readOnly": True}, "town": {"type": "string"}}}
    body = {
        "type": "object",
        "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}, "at": inner},
        "required": ["id", "name"],
    }
    parameters = operation(body=body).parameters
    assert list(parameters["properties"]) == ["name", "at"]
    assert list(parameters["properties"]["at"]["properties"]) == ["town"]
    assert parameters["required"] == ["name"]


@pytest.mark.parametrize(
    "more", [{"minProperties": 1}, {"anyOf": [{"required": ["a"]}]}, {"additionalProperties": {"type": "string"}}]
)
def test_a_body_that_says_more_than_its_fields_stays_whole(more):
    body = {"type": "object", "properties": {"a": {"type": "string"}}, **more}
    assert operation(body=body).parameters["properties"]["body"] == body


def test_a_closed_body_gives_a_closed_call():
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    assert operation(body=closed).parameters["additionalProperties"] is False


def test_a_reference_to_another_file_is_not_looked_up_in_this_one():
    document = {"openapi": "3.0.0", "paths": {"/x": {"get": {
        "operationId": "a", "requestBody": {"$ref": "other.yaml#/components/x"}, "parameters": [{"$ref": "other.yaml#/components/p"}],
    }}}, "components": {"p": {"name": "p", "in": "query", "schema": {}}, "x": {}}}  # fmt: skip
    (tool,) = only(document).tools
    assert tool.parameters["properties"] == {}
    assert {note.split(" ")[0] for note in tool.notes} == {"no_description", "bad_parameter", "unresolved_ref"}


def test_extensions_among_the_paths_are_no_tools():
    assert only({"openapi": "3.0.0", "paths": {"x-internal": "yes", "/a": {"get": {}}}}).problems == ()


@pytest.mark.parametrize("key", ["nullable", "x-nullable"])
def test_what_openapi_3_0_and_swagger_call_nullable_may_be_null(key):
    schema = {"type": "string", "enum": ["a"], key: True}
    tool = operation([{"name": "a", "in": "query", "schema": schema}], version="3.0.3")
    assert tool.parameters["properties"]["a"] == {"type": ["string", "null"], "enum": ["a", None]}


JUNK = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
PARAMETERS = st.fixed_dictionaries(
    {"name": NAMES | JUNK, "in": st.sampled_from(["query", "path", "header", "body", "formData", "cookie"]) | JUNK},
    optional={
        "schema": SCHEMAS | JUNK,
        "required": st.booleans(),
        "type": st.sampled_from(["string", "file", "array"]),
        "description": JUNK,
        "content": JUNK
        | st.dictionaries(st.just("application/json"), JUNK | st.fixed_dictionaries({"schema": SCHEMAS}), max_size=1),
    },
)
MEDIA = st.dictionaries(
    st.sampled_from(["application/json", "text/plain", "multipart/form-data", "application/x+json"]),
    st.fixed_dictionaries({}, optional={"schema": SCHEMAS | JUNK}) | JUNK,
    max_size=2,
)
REFERENCES = st.builds(
    lambda name: {"$ref": f"#/components/{name}"}, st.sampled_from(["schemas/A", "x/A", "schemas", "", "a/b/c"])
)
OPERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "operationId": NAMES | JUNK,
        "summary": JUNK,
        "parameters": st.lists(PARAMETERS | REFERENCES | JUNK, max_size=3) | JUNK,
        "requestBody": st.fixed_dictionaries({"content": MEDIA | JUNK}) | REFERENCES | JUNK,
        "responses": st.dictionaries(
            st.sampled_from(["200", "201", "default"]),
            st.fixed_dictionaries({}, optional={"content": MEDIA, "schema": SCHEMAS}) | REFERENCES | JUNK,
            max_size=2,
        )
        | JUNK,
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "paths": st.dictionaries(st.sampled_from(["/a", "/b/{id}", "x-y"]), st.dictionaries(st.sampled_from(["get", "post", "parameters", "$ref"]), OPERATIONS | JUNK, max_size=3) | JUNK, max_size=3) | JUNK,
    },
    optional={"info": JUNK | st.fixed_dictionaries({}, optional={"title": JUNK, "x-domain": JUNK}), "tags": JUNK, "components": st.fixed_dictionaries({"schemas": st.dictionaries(st.just("A"), SCHEMAS, max_size=1)}) | JUNK},
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.sampled_from([{"openapi": "3.0.3"}, {"openapi": "3.1.0"}, {"swagger": "2.0"}]))
def test_any_document_gives_tools_with_valid_schemas_or_problems(document, version):
    server = only({**version, **document})
    for tool in server.tools:
        for schema in filter(None, (tool.parameters, tool.returns)):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert "$ref" not in json.dumps(schema)
        assert tool.parameters["type"] == "object"


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, st.booleans(), st.lists(VALUES, min_size=3, max_size=6))
def test_a_parameter_takes_what_its_schema_takes(schema, required, values):
    tool = operation([{"name": "a", "in": "query", "required": required, "schema": schema}])
    if {note.split(" ")[0] for note in tool.notes} - {"no_description", "null_only"}:
        return
    for value in values:
        before = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert jsonschema.Draft202012Validator(tool.parameters).is_valid({"a": value}) == before
    assert jsonschema.Draft202012Validator(tool.parameters).is_valid({}) != required
