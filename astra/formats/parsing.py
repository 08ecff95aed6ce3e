"""Files -> JSON values: ``.json``, ``.jsonl`` (one list) and ``.yaml``; nothing that JSON cannot hold."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

import yaml

SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")


class Unreadable(Exception):
    """A file is not what its suffix says. The message names the position and the remedy."""


def parse(path: Path) -> Any:
    """The file's value, made of JSON types only. Raises Unreadable."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}: make it readable") from None
    try:
        if path.suffix == ".json":
            return _json(text, path, 0)
        if path.suffix == ".jsonl":
            lines = enumerate(text.split("\n"))
            return [_json(line, path, number) for number, line in lines if line.strip()]
        return _yaml(text, path)
    except RecursionError:
        raise Unreadable(f"{path}: nested too deep to be read: flatten it") from None


def _json(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        where = f"line {line + error.lineno} column {error.colno}"
        raise Unreadable(f"{path}: {where}: not JSON: {error.msg}: mend or remove the file") from None
    except ValueError as error:
        raise Unreadable(f"{path}: line {line + 1}: not JSON: {error}: mend or remove the file") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse(text)
    return number


class _JsonTypes(yaml.SafeLoader):
    """YAML with the scalars of JSON: no dates, no ``no`` that means false, no ``12:30`` that means 750."""


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
        return _with_text_keys(yaml.load(text, Loader=_JsonTypes), path)
    except yaml.YAMLError as error:
        at = getattr(error, "problem_mark", None)
        where = f"line {at.line + 1} column {at.column + 1}: " if at else ""
        what = getattr(error, "problem", None) or str(error)
        raise Unreadable(f"{path}: {where}not YAML: {what}: mend or remove the file") from None


def _with_text_keys(value: Any, path: Path) -> Any:
    """The same with every mapping key as text (a response code is a number to YAML); what JSON lacks is refused."""
    if isinstance(value, dict):
        return {_key(key): _with_text_keys(one, path) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(one, path) for one in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise Unreadable(f"{path}: {str(value)[:60]!r} has no JSON form: write it as text")


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)
