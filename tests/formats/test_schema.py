"""Whatever a document calls a schema comes out as valid JSON Schema 2020-12, or as an error with a place."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astra.formats.schema import SchemaInvalid, clean, clean_parameters

NO_ARGUMENTS = {"type": "object", "properties": {}, "required": []}
CABIN = {"type": "string", "enum": ["inside", "outside"]}
LEG = {
    "type": "object",
    "properties": {"depart_port": {"type": "string"}, "arrive_port": {"type": "string"}},
    "required": ["depart_port", "arrive_port"],
}


def cleaned(schema, root=None, depth=2):
    return clean(schema, root, depth).schema


def noted(schema, root=None, depth=2):
    return [note.split(" ")[0] for note in clean(schema, root, depth).notes]


# ------------------------------------------------------------------ references


@pytest.mark.parametrize("block", ["$defs", "definitions"])
def test_references_are_inlined_with_the_keywords_beside_them(block):
    leg = {**LEG, "properties": {**LEG["properties"], "cabin": {"$ref": f"#/{block}/Cabin"}}}
    schema = {
        "type": "object",
        "properties": {"leg": {"$ref": f"#/{block}/Leg", "description": "The leg to book"}},
        "required": ["leg"],
        block: {"Leg": leg, "Cabin": CABIN},
    }
    result = clean_parameters(schema, None, 2)
    assert result.schema["properties"]["leg"] == {
        "type": "object",
        "description": "The leg to book",
        "properties": {**LEG["properties"], "cabin": CABIN},
        "required": LEG["required"],
    }
    assert "$" not in json.dumps(result.schema)
    assert "definitions" not in json.dumps(result.schema)
    assert result.notes == ()


def test_a_reference_may_point_into_the_whole_document_and_through_escapes():
    root = {"components": {"schemas": {"a/b~c d": {"type": "integer"}}}}
    assert cleaned({"$ref": "#/components/schemas/a~1b~0c%20d"}, root) == {"type": "integer"}


@pytest.mark.parametrize("reference", ["#/$defs/None", "other.json#/x", "#anchor", 7])
def test_a_reference_that_leads_nowhere_is_noted_and_takes_anything(reference):
    result = clean({"$ref": reference, "description": "A thing."}, None, 2)
    assert result.schema == {"description": "A thing."}
    assert result.notes[0].startswith("unresolved_ref /")


def test_references_by_anchor_and_by_identifier_are_followed():
    defs = {
        "A": {"$anchor": "leg", "type": "string"},
        "B": {"$id": "https://example.org/b.json", "$defs": {"C": {"type": "integer"}}},
    }
    for reference, kind in (("#leg", "string"), ("https://example.org/b.json#/$defs/C", "integer")):
        assert cleaned({"properties": {"a": {"$ref": reference}}, "$defs": defs})["properties"]["a"] == {"type": kind}


@pytest.mark.parametrize(
    ("tree", "cut"),
    [
        ({"type": "array", "items": {"$ref": "#/$defs/T"}}, {"type": "array"}),
        ({"type": ["object", "null"], "properties": {"sub": {"$ref": "#/$defs/T"}}}, {"type": ["object", "null"]}),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/T"}}]}, {}),
    ],
)
def test_what_stands_for_a_cut_recursion_takes_whatever_the_definition_could_be(tree, cut):
    schema = cleaned({"$ref": "#/$defs/T", "$defs": {"T": tree}}, depth=1)
    inner = schema["anyOf"][1]["items"] if "anyOf" in schema else schema.get("items") or schema["properties"]["sub"]
    assert inner == cut


def test_a_schema_that_is_too_large_at_the_stated_depth_is_unrolled_once():
    defs = {
        f"N{n}": {"type": "object", "properties": {f"p{m}": {"$ref": f"#/$defs/N{m}"} for m in range(4)}}
        for n in range(4)
    }
    result = clean({"$ref": "#/$defs/N0", "$defs": defs}, None, 2)
    assert result == clean({"$ref": "#/$defs/N0", "$defs": defs}, None, 1)


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"allOf": [{"additionalProperties": False}, {"properties": {"a": {}}}]}, [{"a": 1}, {}]),
        (
            {"anyOf": [{"type": "object", "anyOf": [{"type": "object", "required": ["a"]}]}, {"type": "null"}]},
            [None, {}, {"a": 1}],
        ),
        (
            {"$ref": "#/$defs/P", "unevaluatedProperties": False, "$defs": {"P": {"properties": {"a": {}}}}},
            [{"a": 1}, {"b": 1}],
        ),
        (
            {"required": ["x"], "properties": {"x": {}}, "additionalProperties": {"type": "string"}},
            [{"x": 1}, {"x": 1, "y": 1}],
        ),
        ({"type": "array", "items": [{"type": "string"}], "additionalItems": False}, [["a"], ["a", "b"], [1]]),
    ],
)
def test_plainer_words_mean_the_same(schema, values):
    draft = jsonschema.Draft201909Validator if "additionalItems" in schema else jsonschema.Draft202012Validator
    for value in values:
        assert jsonschema.Draft202012Validator(cleaned(schema)).is_valid(value) == draft(schema).is_valid(value)


def test_a_definition_that_contains_itself_is_cut_at_the_stated_depth():
    schema = {
        "$ref": "#/$defs/Rule",
        "$defs": {"Rule": {"type": "object", "properties": {"sub": {"$ref": "#/$defs/Rule"}}}},
    }
    once = {"type": "object", "properties": {"sub": {"type": "object"}}}
    assert cleaned(schema, depth=1) == once
    assert cleaned(schema, depth=2) == {"type": "object", "properties": {"sub": once}}
    assert noted(schema) == ["truncated_recursion"]


def test_definitions_that_contain_each_other_are_cut_too():
    rule = {"properties": {"leaf": {"$ref": "#/$defs/Leaf"}}}
    leaf = {"properties": {"rule": {"$ref": "#/$defs/Rule"}}}
    schema = {"$ref": "#/$defs/Rule", "$defs": {"Rule": rule, "Leaf": leaf}}
    assert "truncated_recursion" in noted(schema)
    assert clean(schema, None, 2) == clean(schema, None, 2)


def test_a_reference_to_the_whole_schema_is_cut():
    schema = {"type": "object", "properties": {"parts": {"type": "array", "items": {"$ref": "#"}}}}
    assert cleaned(schema, depth=1)["properties"]["parts"] == {"type": "array", "items": {"type": "object"}}


def test_a_reference_to_itself_ends():
    assert cleaned({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}) == {}


def clique(n):
    """Definitions each of which contains all of them."""
    return {
        f"N{one}": {
            "type": "object",
            "properties": {f"p{m}": {"$ref": f"#/$defs/N{m}"} for m in range(n)},
            "required": ["p0"],
        }
        for one in range(n)
    }


def n_subschemas(schema):
    return 1 + sum(map(n_subschemas, schema.get("properties", {}).values()))


@pytest.mark.parametrize("n", [7, 8, 20, 60])
def test_definitions_that_contain_each_other_are_cut_to_open_objects_where_all_of_them_would_be_too_much(n):
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/N0"}}, "required": ["a"], "$defs": clique(n)}
    result = clean_parameters(schema, None, 2)
    assert "truncated_definition" in {note.split(" ")[0] for note in result.notes}
    assert n_subschemas(result.schema) <= 1000
    assert len(result.notes) < 100
    assert result.schema["properties"]["a"]["properties"]["p1"]["type"] == "object"
    assert clean_parameters(result.schema, None, 2).schema == result.schema
    assert clean_parameters(schema, None, 2) == result


def test_of_many_places_that_were_cut_the_first_are_told_and_the_rest_counted():
    notes = clean({"$ref": "#/$defs/N0", "$defs": clique(7)}, None, 2).notes
    for what in ("truncated_recursion", "truncated_definition"):
        told = [note for note in notes if note.startswith(what)]
        assert len(told) == 21
        assert re.fullmatch(rf"{what} in \d+ more places", told[-1])


@pytest.mark.parametrize(
    "defs",
    [
        {f"L{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/L{n + 1}"} for m in range(10)}} for n in range(8)},
        {f"L{n}": {"$ref": f"#/$defs/L{n + 1}"} for n in range(300)},
        {f"L{n}": {"type": "object", "properties": {"next": {"$ref": f"#/$defs/L{(n + 1) % 80}"}}} for n in range(80)},
        {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{m}"} for m in range(9)]} for n in range(9)},
        {
            f"L{n}": {"type": "array", "items": {"oneOf": [{"$ref": f"#/$defs/L{m}"} for m in range(9)]}}
            for n in range(9)
        },
    ],
)
def test_references_that_multiply_or_never_end_are_cut_too(defs):
    result = clean({"$ref": "#/$defs/L0", "$defs": {**defs, "L8": defs.get("L8", {"type": "string"})}}, None, 2)
    assert {note.split(" ")[0] for note in result.notes} & {"truncated_definition", "unresolved_ref"}
    jsonschema.Draft202012Validator.check_schema(result.schema)


def test_a_schema_that_is_too_large_without_any_definition_is_refused():
    with pytest.raises(SchemaInvalid, match="more than 5000 subschemas"):
        clean({"properties": {f"p{n}": {} for n in range(6000)}}, None, 2)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": {"$ref": "#/$defs/T"}}, {"sub": {"sub": {"sub": 5}}}),
        ({"if": {"$ref": "#/$defs/T"}, "then": False}, {"sub": {"sub": {"sub": 5}}}),
        ({"oneOf": [{"$ref": "#/$defs/T"}, {"type": "object", "required": ["sub"]}]}, {"sub": {"sub": {"sub": 5}}}),
        ({"allOf": [{"$ref": "elsewhere.json"}], "unevaluatedProperties": False}, {}),
        ({"$ref": "elsewhere.json", "unevaluatedProperties": False}, {"a": 1}),
        ({"contains": {"$ref": "#/$defs/T"}, "maxContains": 1}, [{}, {"sub": {"sub": {"sub": 5}}}]),
        ({"patternProperties": {r"^\p{L}+$": {}}, "additionalProperties": False}, {"name": 1}),
        ({"not": {"type": "Gadget"}}, 5),
    ],
)
def test_what_was_made_looser_never_makes_what_stands_around_it_refuse_more(schema, value):
    tree = {"type": "object", "properties": {"sub": {"$ref": "#/$defs/T"}}}
    result = clean({**schema, "$defs": {"T": tree}}, None, 1)
    jsonschema.Draft202012Validator(result.schema).validate(value)
    assert "loosened" in {note.split(" ")[0] for note in result.notes}


def test_a_schema_nested_without_end_is_refused():
    schema = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaInvalid, match="nested"):
        clean(schema, None, 2)


# ----------------------------------------------------------------------- types


def test_type_lists_keep_every_type_and_null():
    schema = {"type": ["string", "null"], "enum": ["S", "M", None], "default": None}
    assert cleaned(schema) == schema
    jsonschema.Draft202012Validator(cleaned(schema)).validate(None)
    assert cleaned({"type": ["integer", "string"]}) == {"type": ["integer", "string"]}


def test_a_parameter_that_can_only_be_null_is_marked():
    result = clean_parameters({"type": "object", "properties": {"note": {"type": ["null"]}}}, None, 2)
    assert result.schema["properties"]["note"] == {"type": "null"}
    assert result.notes == ("null_only /properties/note",)


@pytest.mark.parametrize(
    ("schema", "result"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            {"type": ["string", "null"], "default": None},
        ),
        (
            {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
            {"type": ["string", "null"], "format": "date"},
        ),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, {"type": ["integer", "string"]}),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"oneOf": [{"type": "integer"}, {"type": "number"}]}),
        ({"allOf": [LEG], "description": "x"}, {"type": "object", "description": "x", **LEG}),
        (
            {"allOf": [LEG, {"properties": {"pax": {"type": "integer"}}, "required": ["pax"]}]},
            {
                "type": "object",
                "properties": {**LEG["properties"], "pax": {"type": "integer"}},
                "required": ["depart_port", "arrive_port", "pax"],
            },
        ),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    ],
)
def test_unions_and_merges_have_one_plain_form(schema, result):
    assert cleaned(schema) == result


def test_a_nullable_reference_may_be_null():
    assert cleaned({"$ref": "#/x", "nullable": True}, {"x": {"type": "string"}}) == {"type": ["string", "null"]}


def test_python_types_are_read_and_parameters_called_like_keywords_survive():
    bracket = {
        "type": {"type": "string", "description": "L or U"},
        "properties": {"type": "any"},
        "items": {"type": "int"},
    }
    result = clean_parameters(
        {"type": "dict", "properties": {"bracket": {"type": "dict", "properties": bracket}}}, None, 2
    )
    assert result.schema["properties"]["bracket"]["properties"] == {
        "type": {"type": "string", "description": "L or U"},
        "properties": {},
        "items": {"type": "integer"},
    }


def test_an_unknown_type_takes_anything_and_is_noted_with_its_place():
    result = clean({"type": "object", "properties": {"w": {"type": "Widget", "description": "A widget."}}}, None, 2)
    assert result.schema["properties"]["w"] == {"description": "A widget."}
    assert result.notes == ("unknown_type /properties/w/type (Widget)",)


def test_boolean_schemas_are_spelled_out_where_only_a_schema_fits():
    schema = {"properties": {"a": True, "b": False}, "additionalProperties": False}
    assert cleaned(schema) == {
        "type": "object",
        "properties": {"a": {}, "b": {"not": {}}},
        "additionalProperties": False,
    }


# ----------------------------------------------------------------------- enums


def test_enum_values_keep_their_json_types():
    level = cleaned({"enum": ["low", 1, True, 2.5, None, "1", 1, 1.0]})
    assert [json.dumps(value) for value in level["enum"]] == ['"low"', "1", "true", "2.5", "null", '"1"']
    assert set(level["type"]) == {"string", "number", "boolean", "null"}
    for value in ("low", 1, True, None, "1"):
        jsonschema.Draft202012Validator(level).validate(value)


def test_where_type_and_enum_disagree_the_values_win():
    result = clean({"type": "string", "enum": [0, 1, 3]}, None, 2)
    assert result.schema == {"type": "integer", "enum": [0, 1, 3]}
    assert result.notes == ("enum_type_mismatch /type (string)",)


# -------------------------------------------------------------------- keywords


@pytest.mark.parametrize(
    ("schema", "result"),
    [
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 0}),
        ({"type": "number", "maximum": 9, "exclusiveMaximum": False}, {"type": "number", "maximum": 9}),
        ({"type": "string", "example": "FR-204"}, {"type": "string", "examples": ["FR-204"]}),
        (
            {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
            {"type": "array", "items": False, "prefixItems": [{"type": "string"}]},
        ),
        ({"type": "object", "dependencies": {"a": ["b"]}}, {"type": "object", "dependentRequired": {"a": ["b"]}}),
        ({"$schema": "x", "$id": "y", "x-note": 1, "xml": {}, "type": "string"}, {"type": "string"}),
        ({"properties": {"a": {"type": "string", "required": True}}},
         {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
    ],
)  # fmt: skip
def test_older_drafts_are_translated(schema, result):
    assert cleaned(schema) == result


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"type": "string", "minLength": "3"}, "bad_keyword"),
        ({"type": "string", "pattern": r"\p{L}+("}, "bad_keyword"),
        ({"type": "object", "patternProperties": {"(": {}}}, "bad_pattern"),
        ({"type": "string", "enum": []}, "bad_keyword"),
        ({"anyOf": {}}, "bad_keyword"),
        ({"properties": ["a"]}, "bad_keyword"),
        ({"required": [1, "a"]}, "bad_keyword"),
        ({"items": 7}, "bad_schema"),
    ],
)
def test_a_keyword_that_means_nothing_is_dropped_with_a_note(schema, what):
    assert what in noted(schema)


# ------------------------------------------------------------------ parameters


@pytest.mark.parametrize("schema", [{"type": "object"}, {}, None, {"type": "object", "properties": None}, True])
def test_a_tool_without_arguments_has_an_empty_object(schema):
    assert clean_parameters(schema, None, 2).schema == NO_ARGUMENTS


def test_a_closed_object_stays_closed():
    closed = clean_parameters({"type": "object", "additionalProperties": False}, None, 2).schema
    assert closed == {**NO_ARGUMENTS, "additionalProperties": False}


def test_a_required_name_without_a_property_becomes_one_that_takes_anything():
    result = clean_parameters({"type": "object", "required": ["x"]}, None, 2)
    assert result.schema == {"type": "object", "properties": {"x": {}}, "required": ["x"]}
    assert result.notes == ("ghost_required /properties/x",)


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "array"}, False, {"enum": ["a"]}])
def test_parameters_that_are_no_object_are_refused(schema):
    with pytest.raises(SchemaInvalid, match="must be an object"):
        clean_parameters(schema, None, 2)


def test_arrays_say_what_they_hold_since_endpoints_ask_for_it():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array"}, "b": {"anyOf": [{"type": "array"}, {"minLength": 1}]}},
    }
    found = clean_parameters(schema, None, 2).schema["properties"]
    assert found["a"] == {"type": "array", "items": {}}
    assert found["b"]["anyOf"][0] == {"type": "array", "items": {}}


@pytest.mark.parametrize(
    ("schema", "properties", "required"),
    [
        (  # a choice between required names: which ones go together is lost
            {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": {"type": "string"}, "b": {"type": "string"}}, [],
        ),
        (  # a tagged union of two kinds of arguments
            {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "card"}, "number": {"type": "string"}}, "required": ["kind", "number"]},
                {"type": "object", "properties": {"kind": {"const": "cash"}}, "required": ["kind"]},
                {"type": "null"},
            ]},
            {"kind": {"anyOf": [{"const": "card"}, {"const": "cash"}]}, "number": {"type": "string"}}, ["kind"],
        ),
        (  # parts that cannot be merged into one schema
            {"allOf": [{"properties": {"a": {"minimum": 0}}, "required": ["a"]}, {"properties": {"a": {"minimum": 1}}, "additionalProperties": False}]},
            {"a": {"allOf": [{"minimum": 0}, {"minimum": 1}]}}, ["a"],
        ),
        ({"properties": {"a": {}}, "not": {"required": ["a"]}}, {"a": {}}, []),
        ({"enum": [{"a": 1}]}, {}, []),
    ],
)  # fmt: skip
def test_alternatives_at_the_top_become_one_plain_object_with_a_note(schema, properties, required):
    result = clean_parameters({"type": "object", **schema}, None, 2)
    assert result.schema["properties"] == properties
    assert result.schema["required"] == required
    assert not result.schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum"}
    assert result.notes[0] == "top_level_union /"


def test_each_alternative_at_the_top_is_still_callable():
    card = {
        "type": "object",
        "properties": {"card": {"type": "string"}},
        "required": ["card"],
        "additionalProperties": False,
    }
    cash = {
        "type": "object",
        "properties": {"coins": {"type": "integer"}},
        "required": ["coins"],
        "additionalProperties": False,
    }
    schema = clean_parameters({"oneOf": [card, cash]}, None, 2).schema
    for arguments in ({"card": "4711"}, {"coins": 3}):
        jsonschema.Draft202012Validator(schema).validate(arguments)


# ------------------------------------------------------------------ any document

NAMES = st.sampled_from(["a", "type", "items", "properties", "b/c"])
LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["string", "object", "dict", "x", "#", "#/a"])
WORDS = (
    "type properties required items enum anyOf oneOf allOf not nullable default const $ref minimum exclusiveMinimum"
    " additionalProperties description pattern prefixItems dependencies examples if format title"
)
KEYWORDS = st.sampled_from(WORDS.split())
TYPES = st.sampled_from(
    ["string", "object", "integer", ["string", "null"], "array", "Optional[int]", "odd", ["object"]]
)


def schemas(inner):
    named = st.dictionaries(NAMES, inner, max_size=2)
    free = st.dictionaries(KEYWORDS, inner | st.lists(inner, max_size=2) | named | LEAVES, max_size=3)
    return free | st.builds(
        lambda rest, kind, props, branches: {**rest, "type": kind, "properties": props, "anyOf": branches},
        free, TYPES, named, st.lists(inner, max_size=2),
    ) | st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}, optional={"description": st.just("d")})  # fmt: skip


ANY_SCHEMA = st.recursive(LEAVES | st.builds(lambda kind: {"type": kind}, TYPES), schemas, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(ANY_SCHEMA)
def test_any_json_is_cleaned_to_a_valid_schema_that_cleaning_does_not_change(schema):
    try:
        first = clean(schema, {"a": schema}, 2)
    except SchemaInvalid:
        return
    jsonschema.Draft202012Validator.check_schema(first.schema)
    again = clean(first.schema, None, 2)
    assert json.dumps(again.schema) == json.dumps(first.schema)


@settings(max_examples=150, deadline=None)
@given(ANY_SCHEMA)
def test_any_json_as_parameters_is_an_object_or_an_error(schema):
    try:
        first = clean_parameters(schema, {"a": schema}, 2).schema
    except SchemaInvalid:
        return
    assert first["type"] == "object"
    assert set(first["required"]) <= set(first["properties"])
    assert json.dumps(clean_parameters(first, None, 2).schema) == json.dumps(first)


# ------------------------------------------------------------------ values that cannot be


@pytest.mark.parametrize(
    ("schema", "result", "what"),
    [
        ({"type": "string", "default": 5}, {"type": "string", "default": "5"}, "default_coerced"),
        ({"type": "string", "default": True}, {"type": "string", "default": "true"}, "default_coerced"),
        ({"type": "integer", "default": "5"}, {"type": "integer", "default": 5}, "default_coerced"),
        ({"type": "boolean", "default": "False"}, {"type": "boolean", "default": False}, "default_coerced"),
        ({"type": "array", "default": "[1]"}, {"type": "array", "default": [1]}, "default_coerced"),
        ({"type": ["integer", "null"], "default": "7"}, {"type": ["integer", "null"], "default": 7}, "default_coerced"),
        ({"type": "string", "enum": ["1", "2"], "default": 1}, {"type": "string", "enum": ["1", "2"], "default": "1"}, "default_coerced"),
        ({"type": "number", "default": True}, {"type": "number"}, "default_dropped"),
        ({"type": "boolean", "default": 1}, {"type": "boolean"}, "default_dropped"),
        ({"type": "integer", "default": 2.5}, {"type": "integer"}, "default_dropped"),
        ({"type": "number", "default": "00120"}, {"type": "number"}, "default_dropped"),
        ({"type": "string", "default": None}, {"type": "string"}, "default_dropped"),
        ({"type": "string", "default": ["a"]}, {"type": "string"}, "default_dropped"),
        ({"type": "string", "enum": ["slow", "fast"], "default": "Slow"}, {"type": "string", "enum": ["slow", "fast"]}, "default_dropped"),
        ({"type": "integer", "minimum": 1, "default": 0}, {"type": "integer", "minimum": 1}, "default_dropped"),
        ({"type": "string", "pattern": "^a", "default": "b"}, {"type": "string", "pattern": "^a"}, "default_dropped"),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "boolean"}], "default": "x"},
         {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "boolean"}]}, "default_dropped"),
        ({"type": "integer", "minimum": 10, "maximum": 1}, {"type": "integer"}, "empty_range"),
        ({"type": "number", "minimum": 1, "exclusiveMaximum": 1}, {"type": "number"}, "empty_range"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, {"type": "string"}, "empty_range"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, {"type": "array"}, "empty_range"),
        ({"type": "string", "format": "one of: a b"}, {"type": "string"}, "bad_keyword"),
        ({"type": "string", "format": ""}, {"type": "string"}, "bad_keyword"),
        ({"type": "string", "format": 7}, {"type": "string"}, "bad_keyword"),
    ],
)  # fmt: skip
def test_a_value_that_its_schema_refuses_is_read_as_what_it_spells_or_dropped_with_a_note(schema, result, what):
    assert cleaned(schema) == result
    assert what in noted(schema)
    assert noted(result) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"], "default": None}, {"type": "number", "default": 3}, {"type": "integer", "default": 3.0},
        {"default": 5}, {"type": "string", "default": ""}, {"type": "integer", "minimum": 1, "maximum": 1, "default": 1},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "default": {"a": 1}},
    ],
)  # fmt: skip
def test_an_honest_default_stays_as_it_is(schema):
    assert cleaned(schema) == schema
    assert noted(schema) == []
