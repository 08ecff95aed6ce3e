"""Tool calls that a model wrote as text, where the server has no parser for its form.

Read only where tools were offered and the server reported no call. Forms: Hermes, Qwen (``<tool_call>`` around JSON),
Qwen Coder and Llama (``<function=name>``), Mistral (``[TOOL_CALLS]`` before JSON, or before names and ``[ARGS]``),
Llama (a whole reply that is ``{"name": ..., "parameters": ...}``, with or without ``<|python_tag|>``), and lists of
Python calls with literal arguments, which are parsed and never run. Thoughts are not calls. A form that breaks off is a
cut reply, not a call.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from astra.llm.reply import ReplyInvalid, read_json, split_thought
from astra.llm.types import Completion, Request
from astra.records import FunctionCall, ToolCall


class _Cut(Exception):
    """The text breaks off within a call."""


class _Found(NamedTuple):
    text: str  # what is no call
    calls: list[tuple[str, Any]]  # name and arguments


def with_calls(completion: Completion, request: Request) -> Completion:
    """The completion with the calls that stand in its text; as it is where there are none."""
    if not request.tools or completion.tool_calls or not completion.content:
        return completion
    text, thought, is_open = split_thought(completion.content)
    if is_open or not text:
        return completion
    try:
        found = _read(text, {tool.name for tool in request.tools})
    except _Cut:
        return dataclasses.replace(completion, finish_reason="length")
    if found is None or not found.calls:
        return completion
    calls = tuple(
        ToolCall(id=f"call_{n}", function=FunctionCall(name=name, arguments=_text(arguments)))
        for n, (name, arguments) in enumerate(found.calls)
    )
    reasoning = "\n".join(part for part in (completion.reasoning, thought) if part) or None
    finish = completion.finish_reason if completion.finish_reason == "length" else "tool_calls"
    return dataclasses.replace(
        completion, content=found.text, tool_calls=calls, reasoning=reasoning, finish_reason=finish
    )


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _read(text: str, names: set[str]) -> _Found | None:
    if "<tool_call>" in text:
        return _tagged(text, "<tool_call>", "</tool_call>")
    if "<function=" in text:
        return _tagged(text, "<function=", "</function>", keep_opening=True)
    if "[TOOL_CALLS]" in text:
        return _mistral(text)
    return _whole(text, names)


def _tagged(text: str, opening: str, closing: str, keep_opening: bool = False) -> _Found:
    """Calls between tags; the last closing tag may be missing, as servers cut it off as a stop word."""
    rest, *parts = text.split(opening)
    calls: list[tuple[str, Any]] = []
    for part in parts:
        inner, closed, after = part.partition(closing)
        inner = (opening if keep_opening else "") + inner
        calls += _function_tags(inner, bool(closed)) if "<function=" in inner else [_named(inner, bool(closed))]
        rest += after
    return _Found(rest.replace("</tool_call>", "").strip(), calls)


_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


def _function_tags(inner: str, closed: bool) -> list[tuple[str, Any]]:
    found = _FUNCTION.search(inner)
    if found is None:
        raise _Cut
    body = found.group(2).partition("</function>")[0]
    if "<parameter=" not in body:
        text = body.strip()
        if not text:
            return [(found.group(1), {})]
        return [(found.group(1), _arguments(text, closed))]
    if not closed and body.count("<parameter=") != body.count("</parameter>"):
        raise _Cut
    return [(found.group(1), dict(_PARAMETER.findall(body)))]


def _named(inner: str, closed: bool) -> tuple[str, Any]:
    value = _arguments(inner, closed)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return ("", inner.strip())  # no tool has this name: the loop answers with the names there are
    return value["name"], value.get("arguments", value.get("parameters", {}))


def _arguments(text: str, closed: bool) -> Any:
    """The JSON value in a call; as text where it cannot be read, so that the loop says what is wrong with it."""
    try:
        return read_json(text).value
    except ReplyInvalid as error:
        if not closed or "breaks off" in str(error):
            raise _Cut from None
        return text.strip()


_ARGS = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w+)?\[ARGS\]", re.DOTALL)


def _mistral(text: str) -> _Found:
    rest, *parts = text.split("[TOOL_CALLS]")
    calls: list[tuple[str, Any]] = []
    for part in parts:
        named = _ARGS.match(part)
        if named:
            calls.append((named.group(1), _arguments(part[named.end() :], closed=False)))
            continue
        value = _arguments(part, closed=False)
        entries = value if isinstance(value, list) else [value]
        calls += [(one["name"], one.get("arguments", {})) for one in entries if _is_call(one)]
    return _Found(rest.strip(), calls)


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _whole(text: str, names: set[str]) -> _Found | None:
    """A reply that is nothing but calls of offered tools; anything else is an answer."""
    marked = text.startswith("<|python_tag|>")
    text = text.removeprefix("<|python_tag|>").removesuffix("<|eom_id|>").strip()
    if text.startswith("{"):
        calls = _llama(text.split(";") if _count_objects(text) else [text], names, marked)
        return _Found("", calls) if calls else None
    if text.startswith("[") or marked:
        return _python(text, names)
    return None


def _count_objects(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def _llama(parts: Sequence[str], names: set[str], marked: bool) -> list[tuple[str, Any]]:
    joined, calls, rest = "", [], list(parts)
    while rest:  # a semicolon may stand within a string
        joined += (";" if joined else "") + rest.pop(0)
        try:
            value = json.loads(joined)
        except ValueError:
            continue
        if not _is_call(value) or value["name"] not in names or not value.keys() & {"parameters", "arguments"}:
            return []
        calls.append((value["name"], value.get("parameters", value.get("arguments"))))
        joined = ""
    if joined.strip() and (calls or marked):
        raise _Cut
    return [] if joined.strip() else calls


def _python(text: str, names: set[str]) -> _Found | None:
    try:
        tree = ast.parse(text, mode="eval").body
        nodes: Iterable[ast.expr] = tree.elts if isinstance(tree, ast.List) else [tree]
        calls = [_literal_call(node) for node in nodes]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not calls or not {name for name, _ in calls} <= names:
        return None
    return _Found("", calls)


def _literal_call(node: ast.expr) -> tuple[str, Any]:
    """A call whose arguments are named literals. Raises ValueError."""
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("not a call with named arguments")
    arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    json.dumps(arguments, allow_nan=False)
    return ast.unparse(node.func), arguments
