"""The knowledge server's tools have the form that the default arenas speak; its refusals say what is wrong."""

from __future__ import annotations

import jsonschema
import pytest

from astra.knowledge import Knowledge, Relation
from astra.knowledge_server import ToolFailed, answer, tool_of

KNOWLEDGE = Knowledge(
    {
        "river_length": Relation("river_length", "river", "length", "number", None, "km"),
        "river_mouth": Relation("river_mouth", "river", "mouth", "entity", "sea", None),
        "inlet_name": Relation("inlet_name", "inlet", "old name", "text", None, None),
    },
    {
        "river_length": {"Elbe": 1094, "Spree": 400},
        "river_mouth": {"Elbe": "North Sea"},
        "inlet_name": {"Jade": "Jade"},
    },
)


def test_a_tool_has_the_relations_name_one_parameter_and_one_result():
    tool = tool_of(KNOWLEDGE.relations["river_length"], KNOWLEDGE)
    assert (tool.name, tool.description) == ("river_length", "Length of a river.")
    assert tool.input_schema["required"] == list(tool.input_schema["properties"]) == ["river"]
    assert tool.output_schema == {
        "type": "object", "properties": {"result": {"type": "number", "description": "In km."}}, "required": ["result"],
    }  # fmt: skip
    assert tool_of(KNOWLEDGE.relations["inlet_name"], KNOWLEDGE).description == "Old name of an inlet."


def test_a_result_that_is_a_key_names_its_table_and_shows_some_keys():
    result = tool_of(KNOWLEDGE.relations["river_mouth"], KNOWLEDGE).output_schema["properties"]["result"]
    assert result == {"type": "string", "title": "sea", "examples": ["North Sea"]}


def test_every_answer_keeps_the_tools_schema():
    for relation in KNOWLEDGE.relations.values():
        for key in KNOWLEDGE.facts(relation.name):
            result = answer(KNOWLEDGE, relation.name, {relation.table: key})
            jsonschema.validate(result, tool_of(relation, KNOWLEDGE).output_schema)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("river_length", {"river": "Styx"}, "unknown river: Styx"),
        ("river_length", {}, "missing parameter: river"),
        ("river_length", {"river": 3}, "invalid parameter river: expected a string"),
        ("river_length", {"river": "Elbe", "unit": "mi"}, "unknown parameter: unit"),
        ("river_mouth", {"river": "Spree"}, "no mouth known for river: Spree"),
        ("river_depth", {"river": "Elbe"}, "unknown tool: river_depth"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(name, arguments, says):
    with pytest.raises(ToolFailed) as error:
        answer(KNOWLEDGE, name, arguments)
    assert str(error.value) == says
