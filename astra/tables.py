"""Programs that read a table: finding the table in the source, and writing the program with other rows."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

TABLE = "TABLE"  # what envsynth calls a tool's data


class Table(NamedTuple):
    """A dictionary literal at the top level of a program: its name, its rows, and its lines (from, until)."""

    name: str
    rows: dict[str, Any]
    first_line: int
    last_line: int


def table_of(code: str) -> Table | None:
    """The program's top-level dictionary of plain text keys: the one called TABLE, else the only one."""
    found = []
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                rows = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(rows, dict) and rows and all(isinstance(key, str) for key in rows):
                found.append(Table(node.targets[0].id, rows, node.lineno, node.end_lineno or node.lineno))
    named = [table for table in found if table.name == TABLE]
    found = named if len(named) == 1 else found
    return found[0] if len(found) == 1 else None


def constants(code: str) -> Iterator[Any]:
    """The constants of a program that stand outside of its table."""
    table = table_of(code)
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for part in body:
        if table is None or part.lineno != table.first_line:
            yield from (node.value for node in ast.walk(part) if isinstance(node, ast.Constant))


def cells(rows: Mapping[str, Any], depth: int) -> list[tuple[tuple[str, ...], Any]]:
    """The table's entries with their keys, one for each of ``depth`` parameters: tables of several are nested."""
    if depth == 1:
        return [((key,), value) for key, value in rows.items()]
    inner = [(key, value) for key, value in rows.items() if isinstance(value, dict)]
    return [((key, *rest), value) for key, one in inner for rest, value in cells(one, depth - 1)]


def with_cell(rows: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """The rows with one entry set."""
    key, *rest = keys
    return {**rows, key: with_cell(rows.get(key, {}), rest, value) if rest else value}


def skeleton(code: str, table: Table, function: str) -> str:
    """The program without its rows, its function's name and its comments: equal for functions that do the same."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.name = "_"
        if isinstance(node, ast.Assign) and node.lineno == table.first_line:
            node.value = ast.Constant(None)
    return ast.unparse(tree)


def with_rows(code: str, table: Table, rows: Mapping[str, Any]) -> str:
    """The program with other rows in its table."""
    lines = code.split("\n")
    lines[table.first_line - 1 : table.last_line] = literal(table.name, rows).split("\n")
    return "\n".join(lines)


def literal(name: str, rows: Mapping[str, Any]) -> str:
    """The assignment of a table, one row a line."""
    lines = [f"    {_literal(key)}: {_literal(value)}," for key, value in rows.items()]
    return "\n".join([f"{name} = {{", *lines, "}"])


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
