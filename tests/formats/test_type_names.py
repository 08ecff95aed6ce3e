"""Type words of other worlds mean what their authors meant, and an unknown one is an error."""

from __future__ import annotations

import pytest

from astra.formats.type_names import UnknownTypeName, named_type


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("dict", {"type": "object"}),
        ("float", {"type": "number"}),
        ("tuple", {"type": "array"}),
        ("any", {}),
        ("str", {"type": "string"}),
        ("STRING", {"type": "string"}),
        ("DATE (YYYY-MM-DD)", {"type": "string", "format": "date"}),
        ("Optional[str]", {"type": ["string", "null"]}),
        ("typing.Optional[int]", {"type": ["integer", "null"]}),
        ("list[int]", {"type": "array", "items": {"type": "integer"}}),
        ("Dict[str, float]", {"type": "object", "additionalProperties": {"type": "number"}}),
        ("int | str | None", {"type": ["integer", "string", "null"]}),
        ("Union[int, List[int]]", {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
        ("Optional[Any]", {}),
        ("Literal['a', 1, True, None]", {"enum": ["a", 1, True, None]}),
    ],
)
def test_a_type_word_becomes_its_schema(text, schema):
    assert named_type(text) == schema


@pytest.mark.parametrize("text", ["Widget", "", "list[Widget]", "int,str", "[]"])
def test_an_unknown_word_is_an_error(text):
    with pytest.raises(UnknownTypeName):
        named_type(text)
