"""Files -> JSON values: ``.json``, ``.jsonl`` (one list) and ``.yaml``; nothing that JSON cannot hold.

A line of a JSON Lines file that cannot be read costs that line only: a ``BadLine`` stands in its place. A ``.json``
file whose lines are each a document (as BFCL's are) is read as such. A key that stands twice in one object with
different values is refused, since readers would disagree about it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

MAX_NESTING = 400
MAX_VALUES = 1_000_000  # of a YAML file whose aliases make it larger than its text; no document repeats itself as often
MERGE = "tag:yaml.org,2002:merge"
SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")


class Unreadable(Exception):
    """A file is not what its suffix says. The message names the position and the remedy."""


@dataclass(frozen=True)
class BadLine:
    """What stands in a list in place of a line that could not be read."""

    detail: str


def parse(path: Path) -> Any:
    """The file's value, made of JSON types only. Raises Unreadable."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}: make it readable") from None
    try:
        value = _value(text, path)
    except RecursionError:
        value = None
    else:
        if depth(value) <= MAX_NESTING:
            return value
    raise Unreadable(f"{path}: nested too deep to be read: flatten it")


def _value(text: str, path: Path) -> Any:
    if path.suffix == ".json":
        return _json_or_lines(text, path)
    return _lines(text, path) if path.suffix == ".jsonl" else _yaml(text, path)


def depth(value: Any) -> int:
    """How many lists and objects stand inside each other."""
    levels, here = 0, [value]
    while here := [one for one in here if isinstance(one, dict | list)]:
        levels += 1
        here = [inner for one in here for inner in (one.values() if isinstance(one, dict) else one)]
    return levels


def _json_or_lines(text: str, path: Path) -> Any:
    try:
        return _json(text, path, 0)
    except Unreadable:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2 or not all(line.startswith("{") and line.rstrip().endswith("}") for line in lines):
            raise
        return _lines(text, path)


def _lines(text: str, path: Path) -> list[Any]:
    """One value a line. Raises Unreadable where no line can be read."""
    found = [_json_or_bad(line, path, number) for number, line in enumerate(text.split("\n")) if line.strip()]
    if found and all(isinstance(one, BadLine) for one in found):
        raise Unreadable(found[0].detail)
    return found


def _json_or_bad(line: str, path: Path, number: int) -> Any:
    try:
        return _json(line, path, number)
    except Unreadable as error:
        return BadLine(str(error))
    except RecursionError:
        return BadLine(f"{path}: line {number + 1}: nested too deep to be read: flatten it")


def _json(text: str, path: Path, line: int) -> Any:
    try:
        return strict_json(text)
    except json.JSONDecodeError as error:
        where = f"line {line + error.lineno} column {error.colno}"
        raise Unreadable(f"{path}: {where}: not JSON: {error.msg}: mend or remove the file") from None
    except ValueError as error:
        raise Unreadable(f"{path}: line {line + 1}: not JSON: {error}: mend or remove the file") from None


def strict_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError; RecursionError for one that is nested too deep."""
    return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        for key, value in pairs:
            if found[key] != value:
                raise ValueError(f"the key {key!r} stands twice in one object, with different values")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse(text)
    return number


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _JsonTypes(_Loader):  # type: ignore[misc]
    """YAML with the scalars of JSON: no dates, no ``no`` that means false, no ``12:30`` that means 750."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        known = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            if key.value in known:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} stands twice in one mapping", problem_mark=key.start_mark
                )
            known.add(key.value)
        return super().construct_mapping(node, deep)


_JsonTypes.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+)|[-+]?\.(inf|nan)", [*"-+.0123456789"]),
    ("merge", r"<<", ["<"]),
):
    _JsonTypes.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def _yaml(text: str, path: Path) -> Any:
    try:
        return _Json(path, max(MAX_VALUES, len(text))).value(yaml.load(text, Loader=_JsonTypes))
    except yaml.YAMLError as error:
        at = getattr(error, "problem_mark", None)
        where = f"line {at.line + 1} column {at.column + 1}: " if at else ""
        what = getattr(error, "problem", None) or str(error)
        raise Unreadable(f"{path}: {where}not YAML: {what}: mend or remove the file") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a tag's own reading of a text: !!int x
        raise Unreadable(f"{path}: not YAML: {str(error)[:200]}: mend or remove the file") from None


@dataclass
class _Json:
    """The JSON form of what YAML gave, at most ``left`` values: an alias may stand for any number of them."""

    path: Path
    left: int

    def value(self, one: Any) -> Any:
        """The same with every mapping key as text (a response code is a number to YAML); what JSON lacks is refused."""
        self.left -= 1
        if self.left < 0:
            raise Unreadable(f"{self.path}: its aliases stand for more values than can be read: write them out")
        if isinstance(one, dict):
            return {_key(key): self.value(inner) for key, inner in one.items()}
        if isinstance(one, list):
            return [self.value(inner) for inner in one]
        if one is None or isinstance(one, str | bool | int) or (isinstance(one, float) and math.isfinite(one)):
            return one
        raise Unreadable(f"{self.path}: {str(one)[:60]!r} has no JSON form: write it as text")


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)
