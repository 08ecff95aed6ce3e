"""Like tools of one question made one, by rule: the same function over the rows of all (section 3.3.2).

Functions are the same where they differ in their name, their parameters' names and their documentation only. The tool
that stays is the first; the calls of the others are rewritten. The same key with another value keeps tools apart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from astra.records import CodeTool, Environment, Probe, Step, canonical
from astra.tables import cells, table_of, with_cell, with_rows


class Merged(NamedTuple):
    """The tools of an environment after merging, and the golden calls of them."""

    tools: tuple[CodeTool, ...]
    probes: tuple[Probe, ...]


def merge(environment: Environment) -> Merged:
    """The environment's tools with those that read the same merged, in the order of their first."""
    tools: list[CodeTool] = []
    probes = environment.probes
    for group in groups(environment):
        whole = merged(group) if len(group) > 1 else None
        tools += group if whole is None else [whole]
        if whole is not None:
            probes = tuple(_moved(probe, group, whole) for probe in probes)
    return Merged(tuple(tools), probes)


def groups(environment: Environment) -> list[list[CodeTool]]:
    """The tools by what they read, in the order of the first of each."""
    steps = {step.id: step for step in environment.steps}
    found: dict[str, list[CodeTool]] = {}
    for tool in environment.tools:
        found.setdefault(reads(tool, steps), []).append(tool)
    return list(found.values())


def reads(tool: CodeTool, steps: Mapping[int, Step]) -> str:
    """The relation that a tool reads, else its name without the number that made it unique."""
    relation = steps[tool.serves[0]].relation if tool.serves else None
    return relation or re.sub(r"_\d+$", "", tool.spec.name)


def merged(tools: Sequence[CodeTool]) -> CodeTool | None:
    """One tool for several; None where they differ in more than rows and names."""
    first, rows = tools[0], dict[str, Any]()
    if len({_form(tool) for tool in tools}) > 1 or _form(first) is None:
        return None
    depth = len(first.spec.parameters["required"])
    for tool in tools:
        table = table_of(tool.code)
        assert table is not None
        known = dict(cells(rows, depth))
        for keys, value in cells(table.rows, depth):
            if known.get(keys, value) != value:
                return None
            rows = with_cell(rows, keys, value)
    table = table_of(first.code)
    assert table is not None
    serves = tuple(sorted(step for tool in tools for step in tool.serves))
    return CodeTool(spec=first.spec, code=with_rows(first.code, table, dict(sorted(rows.items()))), serves=serves)


def _moved(probe: Probe, group: Sequence[CodeTool], whole: CodeTool) -> Probe:
    """The golden call of a merged tool, under the whole's name and parameters."""
    old = next((tool for tool in group if tool.spec.name == probe.tool), None)
    if old is None:
        return probe
    names = dict(zip(_parameters(old), _parameters(whole), strict=True))
    arguments = {names[name]: value for name, value in probe.arguments.items()}
    return probe.model_copy(update={"tool": whole.spec.name, "arguments": arguments})


# ---------------------------------------------------------------- what a function does, without its names


def _form(tool: CodeTool) -> str | None:
    """Equal for tools that do the same with their tables; None for one without a table."""
    table = table_of(tool.code)
    required = tool.spec.parameters.get("required", [])
    if table is None or not required or not cells(table.rows, len(required)):
        return None
    names = {name: f"_{place}" for place, name in enumerate(_parameters(tool))}
    properties = tool.spec.parameters.get("properties", {})
    schemas = [_plain(properties[name]) for name in _parameters(tool)]
    tree = ast.parse(tool.code)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.Assign) and node.lineno == table.first_line)]
    tree = _Plain(tool.spec.name, names).visit(tree)
    return canonical([table.name, schemas, len(required), _plain(tool.spec.returns or {}), ast.unparse(tree)])


def _parameters(tool: CodeTool) -> list[str]:
    """The parameters: required ones in their order, then the others."""
    required = tool.spec.parameters.get("required", [])
    return [*required, *(name for name in tool.spec.parameters.get("properties", {}) if name not in required)]


def _plain(schema: Any) -> Any:
    """A schema without what is only said in it."""
    if isinstance(schema, dict):
        return {name: _plain(one) for name, one in schema.items() if name not in ("description", "title", "examples")}
    return [_plain(one) for one in schema] if isinstance(schema, list) else schema


class _Plain(ast.NodeTransformer):
    """Puts numbers for a function's parameters and leaves its name and docstring out."""

    def __init__(self, function: str, names: Mapping[str, str]) -> None:
        self.function = function
        self.names = names

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        node.name = "_" if node.name == self.function else node.name
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.names.get(node.arg, node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, "_" if node.id == self.function else node.id)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = re.sub(r"\w+", lambda word: self.names.get(word.group(), word.group()), node.value)
        return node
