"""Golden calls: a call statement in a reply, parsed and never executed; its arguments are literals."""

from __future__ import annotations

import ast
from typing import Any

from jsonschema import Draft202012Validator

from astra.answers import folded
from astra.llm.reply import ReplyInvalid, parse_json, split_thought, validate
from astra.prompts import render
from astra.records import Record, Step, canonical
from astra.synthesis.documents import Document, words

MAX_STATEMENT = 4000  # characters


class Call(Record):
    name: str
    arguments: dict[str, Any]


def call_prompt(document: Document, step: Step) -> str:
    tool = document.model_dump(include={"name", "description", "parameters"})
    return render("envsynth/call", input=canonical({"tool": tool, "question": step.question}))


def read_call(text: str, document: Document, step: Step) -> dict[str, str]:
    """The required arguments of the call in a reply. Raises ReplyInvalid, which never tells the answer."""
    found = parse_call(text, document)
    if found.name != document.name:
        raise ReplyInvalid(f"the tool is called {document.name}, not {found.name}")
    unknown = found.arguments.keys() - document.parameters["properties"].keys()
    if unknown:
        raise ReplyInvalid(f"{document.name} has no parameter {sorted(unknown)[0]}")
    for error in Draft202012Validator(document.parameters).iter_errors(found.arguments):
        raise ReplyInvalid(f"{'.'.join(map(str, error.absolute_path)) or 'arguments'}: {error.message[:200]}")
    for name, option in document.options.items():
        if found.arguments.get(name, option["default"]) != option["default"]:
            raise ReplyInvalid(f"leave {name} out: the answer is wanted as it is under the default")
    keys = {name: found.arguments[name] for name in document.keys}
    for name, value in keys.items():
        told = folded(value) == folded(str(step.answer.value)) and words(value) not in words(step.question)
        if not value.strip() or told:
            raise ReplyInvalid(f"{name}: take the value from the question, as it stands there")
    return keys


def parse_call(text: str, document: Document) -> Call:
    """A call as JSON or as a Python statement. Raises ReplyInvalid."""
    try:
        return validate(Call, parse_json(text))
    except ReplyInvalid as error:
        statement = _statement(split_thought(text).text)
        if statement is None:
            raise error from None
    return _of_statement(statement, document)


def _statement(text: str) -> ast.Call | None:
    """The call that a reply consists of, but for fences around it."""
    lines = [line for line in text[:MAX_STATEMENT].strip().splitlines() if not line.lstrip().startswith("```")]
    try:
        tree = ast.parse("\n".join(lines).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree.body if isinstance(tree.body, ast.Call) else None


def _of_statement(call: ast.Call, document: Document) -> Call:
    if not isinstance(call.func, ast.Name):
        raise ReplyInvalid("the statement calls no plain name")
    names = list(document.parameters["properties"])
    if len(call.args) > len(names) or any(one.arg is None for one in call.keywords):
        raise ReplyInvalid("the statement has more arguments than the tool, or unpacks some")
    given = [*zip(names, call.args, strict=False), *((str(one.arg), one.value) for one in call.keywords)]
    arguments: dict[str, Any] = {}
    for name, value in given:
        if name in arguments:
            raise ReplyInvalid(f"{name} is given twice")
        try:
            arguments[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise ReplyInvalid(f"{name} is no literal; a call statement holds values, no expressions") from None
    return Call(name=call.func.id, arguments=arguments)
