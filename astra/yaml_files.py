"""YAML files that people write for us: mappings, lists, texts, numbers and flags; anything else is named by its line.

Dates stay text. What YAML could make besides (sets, binaries, objects of a language), a key that stands twice, and an
anchor that contains itself are refused: readers of such a file would disagree about it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MAX_VALUES = 1_000_000  # aliases may stand for any number of values
MERGE = "tag:yaml.org,2002:merge"
PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")


class YamlInvalid(Exception):
    """A file is no YAML that can be read. The message names file, line, what stands there and the remedy."""


def read_yaml(path: Path | str) -> Any:
    """The file's value. Raises YamlInvalid, and OSError for a file that cannot be opened."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlInvalid(f"{path}: not valid YAML: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    try:
        value = yaml.load(text, Loader=_Plain)
        _check_tree(value, path)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        what = getattr(error, "problem", None) or str(error)
        raise YamlInvalid(f"{where}: not valid YAML: {what}{_shown(text, mark)}: mend that line") from None
    except RecursionError:
        raise YamlInvalid(f"{path}: not valid YAML: nested too deep: flatten it") from None
    return value


def _shown(text: str, mark: Any) -> str:
    """The line that is meant."""
    lines = text.splitlines()
    return f" (got {lines[mark.line].strip()[:80]!r})" if mark and mark.line < len(lines) else ""


class _Plain(yaml.SafeLoader):
    """YAML with plain values only; everything else is an error with its place."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        known: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refused("a key must be a text, not a list or mapping", key)
            if key.tag != MERGE and key.value in known:
                raise _refused(f"the key {key.value!r} stands twice in one mapping", key)
            known.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # a tag's own reading of a text: !!int x
            raise _refused(f"{node.tag.rpartition(':')[2]}: {str(error)[:100]}", node) from None


def _refused(problem: str, node: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


_Plain.yaml_constructors = {
    tag: make
    for tag, make in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in PLAIN
}
_Plain.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in (*PLAIN, "merge")]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _check_tree(value: Any, path: Path) -> None:
    """Raises YamlInvalid for an anchor that contains itself, or aliases that stand for more than can be read."""
    n_values, waiting = 0, [(value, frozenset[int]())]
    while waiting:
        here, above = waiting.pop()
        n_values += 1
        if id(here) in above:
            raise YamlInvalid(f"{path}: not valid YAML: an anchor contains itself: write its value out")
        if n_values > MAX_VALUES:
            raise YamlInvalid(f"{path}: not valid YAML: its aliases stand for too many values: write them out")
        if isinstance(here, dict | list):
            inner = here.values() if isinstance(here, dict) else here
            waiting += [(one, above | {id(here)}) for one in inner]
