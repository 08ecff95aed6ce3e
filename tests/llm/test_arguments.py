"""Arguments of tool calls as models and servers write them: nothing of it crashes a run, nothing odd reaches a tool."""

from __future__ import annotations

import json

import pytest

from astra.llm.arguments import ArgumentsInvalid, decode_arguments

OPEN = {"type": "object"}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}', '{"a": 1e400}', '{"a": -1e400}', '{"a": ' + "9" * 5000 + "}", "[" * 100_000, '{"a":' * 3000 + "1" + "}" * 3000,
        "[]", "5", '"text"', '{"a": 1}{"b": 2}', "```json\n{}\n```",
    ],
)  # fmt: skip
def test_arguments_that_no_tool_can_take_are_told_to_the_model(text):
    with pytest.raises(ArgumentsInvalid):
        decode_arguments(text, OPEN)


@pytest.mark.parametrize(("text", "plain"), [("1e400", "1e400"), ("9" * 5000, "9" * 5000), ("NaN", "NaN")])
def test_a_text_that_holds_no_number_stays_a_text_for_the_schema_to_judge(text, plain):
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    assert decode_arguments(json.dumps({"a": text}), schema).arguments == {"a": plain}


def test_a_byte_order_mark_and_a_lone_surrogate_do_not_come_through():
    assert decode_arguments('\ufeff{"a": "half \\ud83c"}', OPEN).arguments == {"a": "half \ufffd"}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": None}, {"properties": {"a": {"anyOf": None}}}, {"properties": {"a": {"anyOf": []}}},
        {"properties": {"a": {"type": 5}}}, {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}},
        {"properties": {"a": {"type": ["integer", 5]}}}, {"properties": {"a": True}}, {"properties": {"a": {"items": [1]}}},
    ],
)  # fmt: skip
def test_a_schema_that_is_odd_or_refers_to_itself_takes_nothing_from_the_arguments(schema):
    assert decode_arguments('{"a": "x"}', schema).arguments == {"a": "x"}
