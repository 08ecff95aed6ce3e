"""Reading JSON out of replies (hard cases HC-013 and HC-019): lenient in form, never in content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from astra.llm.reply import Parsed, ReplyInvalid, json_objects, parse_json, read_json, split_thought, validate


@pytest.mark.parametrize(
    ("text", "value", "repaired"),
    [
        (
            'Here:\n```json\n{"answer": "wrap it in ```sh and close with ```", "steps": [1, 2,],}\n```\nHope that helps!',
            {"answer": "wrap it in ```sh and close with ```", "steps": [1, 2]},
            True,
        ),
        (
            "```JSON\r\n{'port': 'Lyme', 'open': True, 'fee': None}\r\n```",
            {"port": "Lyme", "open": True, "fee": None},
            True,
        ),
        ('```\n{"a": 1} // note\n```', {"a": 1}, False),
        ('{"a": "line one\nline two"}', {"a": "line one\nline two"}, True),
        ('```bash\nls {"b": 1}\n```\n{"a": 3}', {"a": 3}, False),
        ('<think>{"a": 1}?</think>{"a": 2}', {"a": 2}, False),
        ('so {"a": 1}? no.</think>\n{"a": 2}', {"a": 2}, False),
        ('As [1] says: {"a": {"b": [1, 2]}} and so on', {"a": {"b": [1, 2]}}, False),
        ('{"a": "<think>"}', {"a": "<think>"}, False),
        ('<thinking>{"a": 1}?</thinking>{"a": 2}', {"a": 2}, False),
        ('[THINK]{"a": 1}?[/THINK]{"a": 2}', {"a": 2}, False),
        ('◁think▷{"a": 1}?◁/think▷{"a": 2}', {"a": 2}, False),
        ('<seed:think>{"a": 1}?</seed:think>{"a": 2}', {"a": 2}, False),
        (
            '<|channel|>analysis<|message|>{"a": 1}?<|end|><|start|>assistant<|channel|>final<|message|>{"a": 2}',
            {"a": 2},
            False,
        ),
        ('analysisMaybe {"a": 1}?assistantfinal{"a": 2}', {"a": 2}, False),
        ('\ufeff{"a": 1}', {"a": 1}, False),
        ("[1, 2]", [1, 2], False),
    ],
)
def test_json_is_found_whatever_it_is_wrapped_in(text, value, repaired):
    assert read_json(text) == Parsed(value, repaired)


@pytest.mark.parametrize(
    "text",
    [
        "", "fine, 10 out of 10", "[ERROR] HTTP 503 after 3 attempts", '{"a": 1', '{"outer": {"b": 1}', '```json\n{"a": "cut',
        '<think>{"a": 1}', '{"a": NaN}', '{"a": Infinity}', "{a: 1}", '{"a": __import__("os")}', "[" * 5000,
        '{"a": 1e400}', 'So: {"a": 1e400}', '{"a": ' + "9" * 5000 + "}", 'So: {"a": ' + "9" * 5000 + "}", '{"a":' * 3000,
        '[THINK]{"a": 1}', '<|channel|>analysis<|message|>{"a": 1}',
    ],
)  # fmt: skip
def test_what_is_cut_or_no_json_is_not_guessed_at(text):
    with pytest.raises(ReplyInvalid):
        parse_json(text)


def test_surrogates_are_joined_or_replaced_and_nul_is_removed():
    value = parse_json('{"note": "wave \\ud83c\\udf0a ok", "cut": "half \\ud83c", "nul": "a\\u0000b",}')
    assert value == {"note": "wave 🌊 ok", "cut": "half \ufffd", "nul": "ab"}
    json.dumps(value, ensure_ascii=False).encode()


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_the_lenient_reader_agrees_with_the_strict_one(value):
    text = json.dumps(value)
    assert parse_json(text) == value
    assert parse_json(f"Sure! {text} Anything else?") == value


@pytest.mark.parametrize("mark", ["<|im_end|>", "<|eot_id|>\n", "<|endoftext|><|im_end|>", "<｜end▁of▁sentence｜>"])
def test_the_mark_of_its_end_is_no_part_of_an_answer(mark):
    assert split_thought(f"<think>hm</think>The tide is 4 m.{mark}") == ("The tide is 4 m.", "hm", False)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("[THINK]look", ("", "look", True)), ("<thinking>look", ("", "look", True)), ("hm</thinking>4 m", ("4 m", "hm", False)),
        ("<|channel|>analysis<|message|>look", ("", "look", True)), ("In Mistral [THINK] opens one.", ("In Mistral [THINK] opens one.", "", False)),
        ("<|start|>assistant<|channel|>analysis<|message|>look<|end|><|start|>assistant<|channel|>final<|message|>4 m<|return|>",
         ("4 m", "look", False)),
    ],
)  # fmt: skip
def test_thoughts_are_told_from_text_in_the_form_of_each_model(text, split):
    assert split_thought(text) == split


class Port(BaseModel):
    name: str
    depth_m: float


def test_validation_names_the_first_field_that_does_not_fit():
    assert validate(Port, {"name": "Lyme", "depth_m": 4}) == Port(name="Lyme", depth_m=4)
    with pytest.raises(ReplyInvalid, match=r"depth_m: .*got 'deep'"):
        validate(Port, {"name": "Lyme", "depth_m": "deep"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"score": 1, "draft": {"score": 0}}', [{"score": 1, "draft": {"score": 0}}]),
        ('[{"score": 1}, 2, {"score": 0}]', [{"score": 1}, {"score": 0}]),
        ('{"score": 1,}', [{"score": 1}]),
        ('First {"score": 0}, then {"score": 1}.', [{"score": 0}, {"score": 1}]),
        ('{"said": "a <think> in a text"}', [{"said": "a <think> in a text"}]),
        ("0.5", []),
        ("", []),
    ],
)
def test_the_objects_of_a_reply_are_those_within_no_other_however_the_reply_is_read(text, found):
    assert list(json_objects(text)) == found
    if "<think>" not in text:
        assert list(json_objects(f"So: {text}")) == found
