"""Programs in replies: the function that a model wrote, apart from the data that it reads."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence

from astra.prompts import render
from astra.records import Answer, canonical
from astra.synthesis.documents import Document
from astra.synthesis.rows import Row
from astra.tables import TABLE


class NoCode(Exception):
    """A reply without a usable function; the message can be shown to its writer."""


def code_prompt(document: Document, answer: Answer, examples: Sequence[Row]) -> str:
    """What the writer sees: the document, how its data are laid out, rows that are nobody's answer."""
    data = {
        "name": TABLE,
        "keys": document.keys,
        "kind": answer.kind,
        "unit": answer.unit,
        "examples": [[*row.keys, row.value] for row in examples],
    }
    return render("envsynth/code", input=canonical({"tool": document.model_dump(), "data": data}))


_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:(?:python3?|py)\b)?[ \t]*", re.MULTILINE | re.IGNORECASE)


def extract_code(reply: str, function: str) -> str:
    """The last whole program in a reply that compiles and defines the function at top level. Raises NoCode.

    A program is what stands between two fence lines, or between a fence line and the beginning or end of the reply;
    a fence inside a string does not end it, since what is cut there does not compile.
    """
    marks = [0, *(place for fence in _FENCE.finditer(reply) for place in (fence.start(), fence.end())), len(reply)]
    starts = marks[0::2]
    ends = marks[1::2]
    for start in reversed(starts):
        for end in reversed([end for end in ends if end > start]):
            code = reply[start:end].strip("\n")
            if _defines(code, function):
                return code + "\n"
    raise NoCode(f"the reply holds no Python program that defines {function}")


def _defines(code: str, function: str) -> bool:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)


def without_table(code: str) -> str:
    """The program without a table of its own: the data are the pipeline's. Raises NoCode where none is left."""
    lines = code.splitlines()
    for node in reversed(ast.parse(code).body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(one, ast.Name) and one.id == TABLE for one in targets):
            if lines[node.lineno - 1][: node.col_offset].strip():
                raise NoCode(f"{TABLE} is given; leave its assignment out")
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines).strip("\n") + "\n"


def renamed(code: str, old: str, new: str) -> str:
    """The program with another name for its function, wherever it is called."""
    if old == new:
        return code
    lines = code.splitlines(keepends=True)
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    found = [one for one in tokens if one.type == tokenize.NAME and one.string == old]
    for token in reversed(found):
        row, start = token.start
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new + line[start + len(old) :]
    return "".join(lines)
