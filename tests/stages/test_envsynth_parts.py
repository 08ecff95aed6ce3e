"""Replies read as programs and calls, and every wrong program that the test endpoint knows."""

from __future__ import annotations

import random

import pytest

from astra.llm.reply import ReplyInvalid
from astra.records import Answer, Step
from astra.sandbox import open_pool
from astra.synthesis import tryout
from astra.synthesis.calls import read_call
from astra.synthesis.code import NoCode, extract_code, renamed, without_table
from astra.synthesis.documents import Document, read_document, read_scaled
from astra.synthesis.rows import Row, is_like, like
from tests.wrong_programs import WRONG

PORT = Document(
    name="port_master",
    description="Harbour master of a port.",
    parameters={"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]},
    returns={"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]},
)
MASTER = Answer(kind="text", value="Ann Lee")
STEP = Step(id=1, question="Who is the harbour master of port Lyme?", answer=MASTER, needs_tool=True)
RIGHT = """def port_master(port):
    if port not in TABLE:
        raise ValueError(f"unknown port: {port}")
    return {"result": TABLE[port]}
"""
EXAMPLES = [Row(("Bude",), "Bob"), Row(("Deal",), "Cat"), Row(("Fowey",), "Eve")]
HIDDEN = [Row(("Looe",), "Gil"), Row(("Lyme",), "Ann Lee"), Row(("Rye",), "Hal")]


@pytest.fixture(scope="module")
def pool():
    with open_pool() as open_:
        yield open_


# ---------------------------------------------------------------- code in replies (HC-049)

TIDE = "def tide(port):\n    return 3\n"


@pytest.mark.parametrize(
    "reply",
    [
        "def tide(port):\n    return 3\n```",
        "```def tide(port):\n    return 3\n```",
        "```python\ndef tide(port):\n    return 3",
        "First try:\n```python\ndef tide(port):\n    return 1\n```\nThat ignores the port. Final:\n```py\n"
        + TIDE
        + "```",
        "Here:\n\n```python\n" + TIDE + "```\n\nIt is called as\n\n```python\ntide('Lyme')\n```",
    ],
)
def test_the_last_program_that_defines_the_function_is_taken(reply):
    assert extract_code(reply, "tide") == TIDE


def test_a_fence_within_a_string_does_not_end_a_program():
    code = "def tide(port):\n    s = '''\n```\n'''\n    return 3\n"
    assert extract_code(f"```python\n{code}```", "tide") == code
    one_line = "def tide(port):\n    s = '```'\n    return 3\n"
    assert extract_code(f"```python\n{one_line}```", "tide") == one_line


@pytest.mark.parametrize(
    "reply", ["Sorry, I cannot.", "", "```python\ndef other():\n    pass\n```", "```\ndef tide(:\n```"]
)
def test_a_reply_without_the_function_is_no_code(reply):
    with pytest.raises(NoCode, match="tide"):
        extract_code(reply, "tide")


@pytest.mark.parametrize(
    "table", ["TABLE = {'a': 1}\n", "TABLE: dict = {\n    'a': 1,\n}\n\n", "X = 1\nTABLE = None\n", "TABLE = X = {}\n"]
)
def test_a_table_of_the_writer_s_own_is_left_out(table):
    assert "TABLE" not in without_table(table + TIDE)
    assert TIDE in without_table(table + TIDE)


def test_a_program_keeps_its_meaning_under_another_name():
    code = 'def tide(n):\n    """The tide (tides)."""\n    return 0 if n == "tide" else tide(n - 1)  # tide\n'
    new = renamed(code, "tide", "tide_2")
    assert new == code.replace("def tide(", "def tide_2(").replace("else tide(", "else tide_2(")


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    "reply",
    [
        '{"name": "port_master", "arguments": {"port": "Lyme"}}',
        'port_master(port="Lyme")',
        "```python\nport_master('Lyme')\n```",
        '<think>port_master("x")</think>```json\n{"name": "port_master", "arguments": {"port": "Lyme"}}\n```',
    ],
)
def test_a_call_is_read_as_json_or_as_a_statement(reply):
    assert read_call(reply, PORT, STEP) == {"port": "Lyme"}


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("port_master(port=open('/etc/passwd').read())", "no literal"),
        ("port_master(port=f'{1}')", "no literal"),
        ("port_master(port='a' + 'b')", "no literal"),
        ("port_master(*['Lyme'])", "no literal|more arguments"),
        ("port_master(**{'port': 'Lyme'})", "unpacks|name"),
        ("port_master('Lyme', port='Bude')", "more arguments|twice"),
        ("__import__('os').system('id')", "no plain name"),
        ("(lambda port: port)('Lyme')", "no plain name"),
        ("tide(port='Lyme')", "is called port_master"),
        ("port_master(town='Lyme')", "no parameter town"),
        ("port_master()", "required"),
        ("port_master(port=3)", "not of type"),
        ("port_master(port=' ')", "from the question"),
        ("port_master(port='ann  LEE')", "from the question"),
        ("print(port_master(port='Lyme'))", "no literal|more arguments|is called"),
        ("port_master(port='Lyme'); import os", "JSON"),
        ("I do not know.", "JSON"),
        ('{"name": "port_master"}', "arguments"),
        ('{"name": "port_master", "arguments": "port=Lyme"}', "arguments"),
    ],
)
def test_a_call_that_is_no_plain_call_of_the_tool_is_not_used(reply, why):
    with pytest.raises(ReplyInvalid, match=why) as caught:
        read_call(reply, PORT, STEP)
    assert "Ann Lee" not in str(caught.value)


# ---------------------------------------------------------------- documents


def _document(**changes):
    return like_json(PORT.model_dump() | changes)


def like_json(value):
    import json

    return json.dumps(value)


def _parameters(properties, required):
    return {"type": "object", "properties": properties, "required": required}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "port master"}, "name"),
        ({"name": "class"}, "word of Python"),
        ({"parameters": {"type": "object"}}, "properties and required"),
        ({"parameters": _parameters({"port": {"type": "strang"}}, ["port"])}, "no JSON Schema"),
        ({"parameters": _parameters({}, [])}, "0 required"),
        ({"parameters": _parameters({"port": {"type": "string"}}, ["harbour"])}, "without a property"),
        ({"parameters": _parameters({"port": {"type": "number"}}, ["port"])}, "not of type string"),
        ({"parameters": _parameters({"the port": {"type": "string"}}, ["the port"])}, "no name of a Python"),
        ({"parameters": _parameters({n: {"type": "string"} for n in "abcd"}, list("abcd"))}, "4 required"),
        ({"parameters": _parameters({"port": {"type": "string"}, "b": {"type": "string"}}, ["port"])}, "not required"),
        ({"returns": {"type": "string"}}, "properties and required"),
        ({"returns": _parameters({"master": {"type": "string"}}, ["master"])}, "property `result`"),
        ({"returns": _parameters({"result": {"type": "string"}}, [])}, "property `result`"),
    ],
)
def test_a_document_that_no_function_could_be_written_to_is_not_used(changes, why):
    with pytest.raises(ReplyInvalid, match=why):
        read_document(_document(**changes))


UNIT = {"type": "string", "enum": ["whole", "initials"], "default": "whole"}


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"type": "string"}, "no enumeration"),
        ({"type": "string", "enum": ["a"]}, "no enumeration"),
        ({"type": "string", "enum": ["a", "b"]}, "no default"),
        ({"type": "string", "enum": ["a", "b"], "default": "c"}, "no default"),
        ({"type": "integer", "minimum": 0, "default": 1}, "no enumeration"),
        ({"type": "boolean"}, "no default"),
        ({"enum": [["a"], ["b"]], "default": ["a"]}, "no enumeration"),
    ],
)
def test_an_optional_parameter_has_few_values_and_a_default(option, why):
    with pytest.raises(ReplyInvalid, match=why):
        read_scaled(_document(parameters=_parameters({"port": {"type": "string"}, "how": option}, ["port"])), PORT, MASTER, 2)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "other"}, "still called"),
        ({"parameters": _parameters({"town": {"type": "string"}, "how": UNIT}, ["town"])}, "still called"),
        ({"parameters": _parameters({"port": {"type": "string"}, "how": UNIT}, ["port", "how"])}, "not of type|still called"),
        ({"parameters": _parameters({"port": {"type": "string"}, "a": UNIT, "b": UNIT, "c": UNIT}, ["port"])}, "3 optional"),
        ({}, "0 optional"),
        ({"parameters": _parameters({"port": {"type": "string"}, "how": UNIT}, ["port"]),
          "returns": _parameters({"result": {"type": "number"}}, ["result"])}, "kind text"),
    ],
)  # fmt: skip
def test_scaling_adds_optional_parameters_and_changes_nothing_else(changes, why):
    with pytest.raises(ReplyInvalid, match=why):
        read_scaled(_document(**changes), PORT, MASTER, 2)


# ---------------------------------------------------------------- values of a kind


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("text", ["Bob", "7"], ["", " ", 7, None, True, ["Bob"], {"a": 1}]),
        ("number", [7, -0.5], ["seven", "", None, True, [7]]),
        ("date", ["1931-04-02"], ["03/04/2030", "soon", 1931, None]),
        ("boolean", [True, False], ["yes", 1, 0, None]),
        ("list", [["a"], [1, 2]], [[], "a", [["a"]], [None], {"a": 1}]),
    ],
)
def test_a_decoy_is_of_the_answer_s_kind(kind, good, bad):
    answer = Answer(kind=kind, value=good[0])
    assert [value for value in good if not is_like(answer, value)] == []
    assert [value for value in bad if is_like(answer, value)] == []
    assert like(answer, good[-1]).kind == kind


# ---------------------------------------------------------------- wrong programs


def _trouble(code, pool):
    """What the two rounds of trying find; None where the function would be taken."""
    calls = tryout.example_calls(PORT, EXAMPLES, MASTER)
    (results,) = pool.map([tryout.job(code, PORT, EXAMPLES, [call.arguments for call in calls])])
    cases = [tryout.Case(HIDDEN, {"port": "Lyme"}, MASTER)]
    plain, swapped = (
        pool.map(make(code, PORT, cases))[0] for make in (tryout.golden_jobs, tryout.swapped_jobs)
    )  # fmt: skip
    return tryout.trouble(PORT, EXAMPLES, calls, results) or tryout.hidden_troubles(PORT, cases, plain, swapped)[0]


def test_a_right_program_is_taken(pool):
    assert _trouble(RIGHT, pool) is None


@pytest.mark.parametrize("kind", sorted(WRONG))
def test_a_wrong_program_is_not_taken_and_its_writer_is_told_why_without_the_answer(kind, pool):
    made = WRONG[kind](RIGHT, "port_master", "port", [[*row.keys, row.value] for row in EXAMPLES])
    assert made != RIGHT
    try:
        code = without_table(extract_code(f"```python\n{made}\n```", "port_master"))
    except NoCode:
        return
    trouble = _trouble(code, pool)
    assert trouble is not None
    assert not [row for row in HIDDEN if row.keys[0] in trouble or row.value in trouble]


@pytest.mark.parametrize("number", range(3))
def test_a_function_that_knows_an_answer_is_found_by_other_data(number, pool):
    knows = [
        "    if port == 'Lyme':\n        return {'result': 'Ann Lee'}\n",
        "    if port.startswith('L'):\n        return {'result': ' ann lee '}\n",
        "    if TABLE.get(port, '')[:1] == 'A' or port == 'Lyme':\n        return {'result': 'Ann Lee'}\n",
    ][number]
    assert "another value" in _trouble(RIGHT.replace("    return", knows + "    return", 1), pool)


def test_wrong_replies_are_drawn_by_the_request(pool):
    from tests.wrong_programs import wrong_reply

    shown = {"tool": PORT.model_dump(), "data": {"keys": ["port"], "examples": [["Bude", "Bob"]]}}
    drawn = {wrong_reply(f"```python\n{RIGHT}```\n", shown, random.Random(seed)) for seed in range(60)}
    assert len(drawn) > 20
