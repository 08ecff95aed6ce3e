"""A file is read as JSON values, or refused with its position and a remedy."""

from __future__ import annotations

import pytest

from astra.formats.parsing import Unreadable, parse


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("a.json", '\ufeff{"a": 1}', {"a": 1}),
        ("a.jsonl", '{"a": 1}\n\n[2]\n', [{"a": 1}, [2]]),
        ("a.json", '{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("a.json", '{"a": 1, "a": 1}', {"a": 1}),
        ("a.yaml", "200: no\nday: 2026-01-02\nflag: true\nn: 1.5\non: y", {
            "200": "no", "day": "2026-01-02", "flag": True, "n": 1.5, "on": "y"}),
        ("a.yml", "a: null\nb: ~\nc:\nd: 12:30\ne: 007\nf: -3\ng: 1e3\nh: {<<: {x: 1}}\ni: Nina", {
            "a": None, "b": None, "c": None, "d": "12:30", "e": "007", "f": -3, "g": 1000.0, "h": {"x": 1}, "i": "Nina"}),
    ],
)  # fmt: skip
def test_a_file_becomes_json_values(tmp_path, name, content, value):
    assert parse(write(tmp_path, name, content)) == value


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", '{"a":\n 1,}', "line 2 column 4: not JSON"),
        ("a.json", b'{"a": "\xff"}', "byte 7 is not UTF-8: save the file as UTF-8"),
        ("a.json", '{"a": NaN}', "NaN is no JSON number"),
        ("a.json", '{"a": 1e999}', "1e999 is no JSON number"),
        ("a.json", "[" * 100_000, "nested too deep"),
        ("a.jsonl", '{"b"\n{"c"\n', "line 1 column 5"),
        ("a.json", '{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice in one object, with different values"),
        ("a.yaml", "a: 1\nb: 2\na: 1", "line 3 column 1: not YAML: the key 'a' stands twice"),
        ("a.yaml", "a: [1\nb: 2", "line 2 column 2: not YAML"),
        ("a.yaml", "a: .nan", "has no JSON form"),
        ("a.yaml", "a: !!python/object:os.system {}", "not YAML"),
        ("a.yaml", "&a [*a]", "nested too deep"),
        ("a.json", "[" * 500 + "]" * 500, "nested too deep"),
        ("a.yaml", "a: " + "9" * 5000, "not YAML: Exceeds the limit"),
        ("a.yaml", "a: !!int x", "not YAML: invalid literal"),
        ("a.yaml", "a: !!bool maybe", "not YAML"),
        ("a.yaml", "? !!timestamp 2026-01-02\n: a", "not YAML"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_what_to_do(tmp_path, name, content, says):
    with pytest.raises(Unreadable, match=f"{name}: ") as error:
        parse(write(tmp_path, name, content))
    assert says in str(error.value)


def test_a_bad_line_of_json_lines_costs_that_line_only(tmp_path):
    good, bad, last = parse(write(tmp_path, "a.jsonl", '{"a": 1}\n{"b"\n{"c": 3}\n'))
    assert (good, last) == ({"a": 1}, {"c": 3})
    assert "line 2 column 5" in bad.detail


@pytest.mark.parametrize("inner", ["[*a{0}, *a{0}]", "{{l: *a{0}, r: *a{0}}}"])
def test_aliases_that_multiply_are_refused_in_little_time(tmp_path, inner):
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} {inner.format(n - 1)}\n" for n in range(1, 60))
    with pytest.raises(Unreadable, match="its aliases stand for more values than can be read: write them out"):
        parse(write(tmp_path, "bomb.yaml", text))


def test_an_alias_that_is_used_a_few_times_stands_for_its_value(tmp_path):
    assert parse(write(tmp_path, "a.yaml", "a: &a {x: [1]}\nb: *a\nc: {<<: *a, y: 2}")) == {
        "a": {"x": [1]}, "b": {"x": [1]}, "c": {"x": [1], "y": 2},
    }  # fmt: skip
