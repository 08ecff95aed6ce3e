"""Arguments as a model wrote them: read where they are a JSON object that every package can take, else shown as they are."""

from __future__ import annotations

import pytest

from astra.benchmarks.types import CallText
from astra.benchmarks.worker.arguments import DEEPEST, UNREAD, arguments_of, shown_arguments


def call(text: str) -> CallText:
    return CallText(id="1", name="tool", arguments=text)


def nested(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{}", {}),
        ("", {}),
        (" \n", {}),
        ('{"a": 1, "b": [null, "x"]}', {"a": 1, "b": [None, "x"]}),
        ('{"a": "\\u00e9 \\ud83d\\ude00"}', {"a": "é 😀"}),
        ('{"tool_name": 1, "self": 2}', {"tool_name": 1, "self": 2}),
    ],
)
def test_a_json_object_is_read(text, read):
    assert arguments_of(call(text)) == shown_arguments(call(text)) == read


@pytest.mark.parametrize(
    "text",
    [
        "{'a': 1}", '{"a": 1', "null", "1", '"a"', "[1]", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}',
        '{"a": "\\ud83d"}', '{"a": ' + "9" * 5000 + "}", nested(DEEPEST + 1), nested(100_000), "[" * 100_000, '{"a": 1} x',
    ],
)  # fmt: skip
def test_what_is_no_json_object_or_would_break_a_package_is_shown_and_not_read(text):
    assert arguments_of(call(text)) is None
    assert shown_arguments(call(text)) == {UNREAD: text}


def test_an_object_of_the_allowed_depth_is_read():
    assert arguments_of(call(nested(DEEPEST - 1))) is not None
