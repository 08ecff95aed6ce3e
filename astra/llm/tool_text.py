"""Tool calls that a model wrote as text, where the server has no parser for its form.

Read only where tools were offered and the server reported no call. Forms: Hermes, Qwen, Granite, Nemotron, Hunyuan,
Cohere, Phi, InternLM (tags of their own around JSON), Qwen Coder and Llama (``<function=name>``), GLM (``<arg_key>``),
MiniMax, DeepSeek 3.2 (``<invoke name=...>``), DeepSeek, Kimi (a name, a mark, JSON), Harmony (messages
``to=functions.name``), Mistral (``[TOOL_CALLS]`` before JSON, or before names and ``[ARGS]``), Llama (a whole reply
that is ``{"name": ..., "parameters": ...}``, with or without ``<|python_tag|>``), and lists of Python calls with
literal arguments, which are parsed and never run. Thoughts are not calls. A form that breaks off is a cut reply.
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
    names = {tool.name for tool in request.tools}
    text, thought, is_open = split_thought(completion.content)
    try:
        found = _harmony(completion.content)
        if found is None and (is_open or not text):
            return completion
        found = found or _read(text.removesuffix("</s>").strip(), names)
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
    text = text.replace("｜DSML｜", "")
    for opening, closing in TAGS:
        if opening in text:
            return _tagged(text, opening, closing, names)
    if "<function=" in text:
        return _tagged(text, "<function=", "</function>", names, keep_opening=True)
    if "[TOOL_CALLS]" in text:
        return _mistral(text)
    if _CALL_MARK.search(text):  # in a form that we do not know: no answer, and the loop says which tools there are
        return _Found("", [("", text)])
    return _whole(text, names)


TAGS = (
    ("<tool_call>", "</tool_call>"), ("<longcat_tool_call>", "</longcat_tool_call>"),
    ("<|tool_call|>", "<|/tool_call|>"), ("<tool_calls>", "</tool_calls>"), ("<TOOLCALL>", "</TOOLCALL>"),
    ("<minimax:tool_call>", "</minimax:tool_call>"), ("<function_calls>", "</function_calls>"),
    ("<|START_ACTION|>", "<|END_ACTION|>"), ("<|action_start|><|plugin|>", "<|action_end|>"),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"), ("<|tool_call_begin|>", "<|tool_call_end|>"),
    ("<|python_start|>", "<|python_end|>"), ("```tool_code\n", "```"), ("functools[", "\0"),
)  # fmt: skip
_AROUND = re.compile(r"<[｜|]tool[▁_]calls(?:[▁_]section)?[▁_](?:begin|end)[｜|]>|</tool_call>")
_CALL_MARK = re.compile(r"<[|｜][^|｜<>]*(?:tool|function|action)[^|｜<>]*[|｜]>|✿FUNCTION✿", re.IGNORECASE)


def _tagged(text: str, opening: str, closing: str, names: set[str], keep_opening: bool = False) -> _Found | None:
    """Calls between tags; the last closing tag may be missing, as servers cut it off as a stop word."""
    rest, *parts = text.split(opening)
    calls: list[tuple[str, Any]] = []
    for part in parts:
        inner, closed, after = part.partition(closing)
        if opening == "functools[":
            inner = "[" + inner
        if not closed and not keep_opening and not _BEGINS.match(inner):
            return None  # a text about the tag
        calls += _inner((opening if keep_opening else "") + inner, bool(closed), names)
        rest += after
    return _Found(_AROUND.sub("", rest).strip(), calls)


_BEGINS = re.compile(r"\s*(?:[{\[<]|\Z|[\w.:-]+\s*(?:[\n<(]|\Z))")
_MARK = re.compile(r"\s*(?P<kind>[^<]*?)\s*(?:<｜tool▁sep｜>|<\|tool_call_argument_begin\|>)(?P<rest>.*)", re.DOTALL)
_CODE = re.compile(r"([\w.-]+)\s*\n```(?:json)?\s*\n(.*)", re.DOTALL)
_KEYED = re.compile(r"\s*([\w.-]+)\s*<(?:longcat_)?arg_key>")
_KEY_VALUE = re.compile(r"<arg_key>\s*(.*?)\s*</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _inner(inner: str, closed: bool, names: set[str]) -> list[tuple[str, Any]]:
    """The calls within one pair of tags. Raises _Cut."""
    if "<function=" in inner:
        return _function_tags(inner, closed)
    if "<invoke " in inner:
        return _invoked(inner)
    marked = _MARK.fullmatch(inner)
    if marked:
        return [_marked(marked.group("kind"), marked.group("rest"), closed)]
    keyed = _KEYED.match(inner)
    if keyed:
        plain = inner.replace("<longcat_", "<").replace("</longcat_", "</")
        if not closed and plain.count("<arg_key>") != plain.count("</arg_value>"):
            raise _Cut
        return [(keyed.group(1), {key: value.strip("\n") for key, value in _KEY_VALUE.findall(plain)})]
    code = inner.strip()
    python = _python(code, names) or _python("[" + ",".join(code.splitlines()) + "]", names)
    if python is not None:
        return python.calls
    if inner.strip() in names and closed:
        return [(inner.strip(), {})]
    return _named(inner, closed)


def _marked(kind: str, rest: str, closed: bool) -> tuple[str, Any]:
    """DeepSeek's ``function`` SEP name and a fence, or name SEP JSON; Kimi's ``functions.name:0`` SEP JSON."""
    fenced = _CODE.match(rest)
    if kind == "function" and (fenced or not rest.lstrip().startswith("{")):
        if fenced is None:
            raise _Cut
        return fenced.group(1), _arguments(fenced.group(2).strip().removesuffix("```"), closed)
    name = re.sub(r":\d+\Z", "", kind).removeprefix("functions.")
    return name, _arguments(rest, closed)


_INVOKE = re.compile(r"<invoke name=[\"']?([^\"'>]+)[\"']?[^>]*>(.*?)</invoke>", re.DOTALL)
_NAMED_PARAMETER = re.compile(r"<parameter name=[\"']?([^\"'>]+)[\"']?[^>]*>(.*?)</parameter>", re.DOTALL)


def _invoked(inner: str) -> list[tuple[str, Any]]:
    if inner.count("<invoke ") != inner.count("</invoke>"):
        raise _Cut
    return [
        (name, {key: value.strip("\n") for key, value in _NAMED_PARAMETER.findall(body)})
        for name, body in _INVOKE.findall(inner)
    ]


_TO_NAME = r"\bto=(?:functions\.)?(?P<name>[\w.-]+)"
_TO = re.compile(
    rf"(?:<\|start\|>\s*assistant|<\|channel\|>)[^<{{]*?{_TO_NAME}[^<{{]*(?:<\|channel\|>[^<{{]*)?"
    r"(?:<\|constrain\|>[^<{]*)?<\|message\|>"
    r"(?P<arguments>.*?)(?:<\|call\|>|<\|end\|>|<\|return\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)
_BARE_TO = re.compile(
    rf"\s*(?:assistant\s*)?(?:commentary|analysis)\s+{_TO_NAME}\s+(?:(?:json|code)\s*)?(?P<arguments>\{{.*)", re.DOTALL
)


def _harmony(content: str) -> _Found | None:
    """Calls in OpenAI's Harmony form, also where its special tokens were dropped; None where there are none."""
    if "to=" not in content:
        return None
    bare = _BARE_TO.fullmatch(content)
    found = [bare] if bare else list(_TO.finditer(content))
    calls = [(one.group("name"), _arguments(one.group("arguments"), closed=False)) for one in found]
    rest = _TO.sub("", content)
    return _Found(split_thought(rest).text if "<|channel|>" in rest else "", calls) if calls else None


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


def _named(inner: str, closed: bool) -> list[tuple[str, Any]]:
    """The calls in the JSON within tags: one object, several, or a list of them. Raises _Cut."""
    if not inner.strip() and not closed:
        raise _Cut
    values, rest = [], inner.strip()
    decoder = json.JSONDecoder()
    try:
        while rest:
            value, end = decoder.raw_decode(rest)
            values += value if isinstance(value, list) else [value]
            rest = rest[end:].lstrip(", ;\r\n\t")
    except (ValueError, RecursionError):
        value = _arguments(inner, closed)
        values = value if isinstance(value, list) else [value]
    found = [_call(one) for one in values]
    if not found or None in found:
        return [("", inner.strip())]  # no tool has this name: the loop answers with the names there are
    return [one for one in found if one is not None]


def _call(value: Any) -> tuple[str, Any] | None:
    """The call that a JSON object is, under whatever names; None where it is none."""
    if not isinstance(value, dict):
        return None
    value = value["function"] if isinstance(value.get("function"), dict) else value
    name = next((value[key] for key in ("name", "tool_name", "function") if isinstance(value.get(key), str)), None)
    arguments: Any = next((value[key] for key in ARGUMENTS if key in value), None)
    return None if name is None else (name, {} if arguments is None else arguments)


ARGUMENTS = ("arguments", "parameters", "args", "input", "kwargs")


def _arguments(text: str, closed: bool) -> Any:
    """The JSON value in a call; as text where it cannot be read, so that the loop says what is wrong with it."""
    try:
        return read_json(text).value
    except ReplyInvalid as error:
        if not closed or "breaks off" in str(error):
            raise _Cut from None
        return text.strip()


_ARGS = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\]|(?=\s*\{))", re.DOTALL)


def _mistral(text: str) -> _Found:
    rest, *parts = text.split("[TOOL_CALLS]")
    calls: list[tuple[str, Any]] = []
    for part in parts:
        named = _ARGS.match(part)
        if named:
            calls.append((named.group(1), _arguments(part[named.end() :], closed=False)))
            continue
        value = _arguments(part, closed=False)
        found = [_call(one) for one in (value if isinstance(value, list) else [value])]
        calls += [("", part.strip()) if one is None else one for one in found]
    return _Found(rest.strip(), calls)


def _whole(text: str, names: set[str]) -> _Found | None:
    """A reply that is nothing but calls of offered tools; anything else is an answer."""
    marked = text.startswith("<|python_tag|>")
    text = text.removeprefix("<|python_tag|>").strip()
    fenced = _WHOLE_FENCE.fullmatch(text)
    text = fenced.group(1).strip() if fenced else text
    if text.startswith("{"):
        calls = _llama([text] if _is_json(text) else text.split(";"), names, marked)
        return _Found("", calls) if calls else None
    if text.startswith("[") or marked:
        return _listed(text, names) or _python(text, names)
    return None


_WHOLE_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n```", re.DOTALL)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _offered(value: Any, names: set[str]) -> tuple[str, Any] | None:
    """The call of an offered tool, with arguments, that an object plainly is."""
    found = _call(value)
    if found is None or found[0] not in names:
        return None
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    return found if inner.keys() & {"parameters", "arguments"} else None


def _listed(text: str, names: set[str]) -> _Found | None:
    """A JSON list of calls."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    calls = [_offered(one, names) for one in values] if isinstance(values, list) else []
    kept = [one for one in calls if one is not None]
    return _Found("", kept) if kept and len(kept) == len(calls) else None


def _llama(parts: Sequence[str], names: set[str], marked: bool) -> list[tuple[str, Any]]:
    joined, calls, rest = "", [], list(parts)
    while rest:  # a semicolon may stand within a string
        joined += (";" if joined else "") + rest.pop(0)
        try:
            value = json.loads(joined)
        except (ValueError, RecursionError):
            continue
        several = value.get("tool_calls") if isinstance(value, dict) and len(value) == 1 else [value]
        found = [_offered(one, names) for one in several] if isinstance(several, list) else []
        if not found or None in found:
            return []
        calls += [one for one in found if one is not None]
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
