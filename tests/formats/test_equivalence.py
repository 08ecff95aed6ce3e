"""A cleaned schema accepts what the document's schema accepts: exactly where there is no note, and as the note says
elsewhere (the table in ``astra.formats.schema``)."""

from __future__ import annotations

import json

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from astra.formats.schema import LOOSER, SchemaInvalid, clean, clean_parameters

SAME = {"null_only", "default_dropped", "default_coerced"}

NAMES = st.sampled_from(["a", "b", "ab"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, -1, 7, "", "a", "ab", "abab", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
KINDS = ["string", "integer", "number", "boolean", "null", "object", "array"]
PATTERNS = st.sampled_from(["^a", "b$", "^ab$"])
COUNTS = st.integers(0, 2)
NUMBERS = st.sampled_from([0, 1, 2.5, -1])
LEAVES = st.sampled_from(["#leaf", "urn:leaf"])
RECURSIVE = st.fixed_dictionaries(
    {"$ref": st.sampled_from(["#/$defs/A", "#/$defs/B", "#"])}, optional={"minLength": st.just(1)}
)


def keywords(inner):
    part = inner | RECURSIVE  # below a property or an item: a reference to itself in place would mean nothing
    named = st.dictionaries(NAMES, part, max_size=2)
    several = st.lists(inner, min_size=1, max_size=3)
    return {
        "type": st.sampled_from(KINDS) | st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "properties": named,
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=1),
        "additionalProperties": part,
        "propertyNames": inner,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=1),
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
        "unevaluatedProperties": inner,
        "items": part,
        "prefixItems": several,
        "contains": inner,
        "minContains": COUNTS,
        "maxContains": COUNTS,
        "unevaluatedItems": inner,
        "uniqueItems": st.booleans(),
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "$ref": LEAVES,
        "minimum": NUMBERS,
        "exclusiveMaximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": PATTERNS,
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "title": st.just("T"),
        "description": st.just("D"),
        "default": VALUES,
        "$comment": st.just("c"),
    }


def schemas(inner):
    known = keywords(inner)

    @st.composite
    def some(draw):
        keys = draw(st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True))
        return {key: draw(known[key]) for key in keys}

    return some()


SCHEMAS = st.recursive(
    st.booleans() | st.builds(lambda kind: {"type": kind}, st.sampled_from(KINDS)), schemas, max_leaves=5
)


@st.composite
def documents(draw):
    schema = draw(SCHEMAS)
    if isinstance(schema, bool):
        return schema
    leaf = {"Leaf": {"$anchor": "leaf", "type": ["string", "integer"]}, "Named": {"$id": "urn:leaf", "type": "array"}}
    return {**schema, "$defs": {"A": draw(SCHEMAS), "B": draw(SCHEMAS), **leaf}}


def accepts(schema, value):
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def words(notes):
    return {note.split(" ")[0] for note in notes}


@settings(max_examples=400, deadline=None)
@given(documents(), st.lists(VALUES, min_size=4, max_size=12))
def test_without_a_note_both_accept_the_same_and_with_one_the_result_accepts_more(document, values):
    jsonschema.Draft202012Validator.check_schema(document)
    try:
        result = clean(document, None, 2)
    except SchemaInvalid:
        return
    found = words(result.notes) - SAME
    jsonschema.Draft202012Validator.check_schema(result.schema)
    assert "$ref" not in json.dumps(result.schema)
    again = clean(result.schema, None, 2)
    assert json.dumps(again.schema) == json.dumps(result.schema)
    if not found <= LOOSER:
        return
    for value in values:
        before, after = accepts(document, value), accepts(result.schema, value)
        assert before == after or (found and after), (value, result)


@settings(max_examples=300, deadline=None)
@given(documents(), st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=4, max_size=10))
def test_the_same_holds_for_the_arguments_of_a_call(document, calls):
    try:
        result = clean_parameters(document, None, 2)
    except SchemaInvalid:
        return
    jsonschema.Draft202012Validator.check_schema(result.schema)
    found = words(result.notes) - SAME
    assert not result.schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "const"}
    assert json.dumps(clean_parameters(result.schema, None, 2).schema) == json.dumps(result.schema)
    if not found <= LOOSER:
        return
    for arguments in calls:
        before, after = accepts(document, arguments), accepts(result.schema, arguments)
        assert before == after or (found and after), (arguments, result)


@settings(max_examples=60, deadline=None)
@given(st.integers(7, 10), st.data())
def test_what_a_crowd_of_definitions_that_contain_each_other_takes_the_cut_schema_takes_too(n, data):
    kinds = st.sampled_from(["properties", "items", "anyOf", "additionalProperties"])
    defs = {}
    for one in range(n):
        links = [{"$ref": f"#/$defs/D{m}"} for m in range(n)]
        kind = data.draw(kinds)
        plain = {"type": "object", "properties": dict(zip(["a", "b", "ab", "d", "e", "f", "g"], links, strict=False))}
        defs[f"D{one}"] = {
            "properties": plain,
            "items": {"type": ["array", "object"], "items": {"anyOf": links}, "properties": {"a": links[0]}},
            "anyOf": {"type": "object", "properties": {"a": {"anyOf": links}, "b": {"not": links[0]}}},
            "additionalProperties": {
                "type": "object",
                "properties": plain["properties"],
                "additionalProperties": links[1],
            },
        }[kind]
    document = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/D0"}, "b": {"$ref": "#/$defs/D1"}},
        "$defs": defs,
    }
    result = clean_parameters(document, None, 2)
    assert len(json.dumps(result.schema)) < 200_000
    for arguments in data.draw(st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=4, max_size=10)):
        assert accepts(result.schema, arguments) or not accepts(document, arguments)
