"""Reading a reply's text back: thought, words and calls, in the forms that the supported families write."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from astra.chat.templates import Form
from astra.records import FunctionCall

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_THINK = re.compile(r"\A\s*<think>\n?(.*?)\n?</think>\s*", re.DOTALL)
PYTHON_TAG = "<|python_tag|>"
_DECODER = json.JSONDecoder()


class Reply(NamedTuple):
    """What an assistant's turn says."""

    reasoning: str
    content: str
    calls: tuple[FunctionCall, ...]


def read(text: str, form: Form) -> Reply:
    """A turn's text without its end token. A call that is no call becomes one of the empty name with the raw text."""
    reasoning, text = _thought(text, form)
    content, calls = _llama(text) if form.calls == "llama" else _hermes(text)
    return Reply(reasoning, content.removesuffix(form.joint) if calls else content, calls)


def _thought(text: str, form: Form) -> tuple[str, str]:
    """The thought, and the text behind it."""
    if form.blank and text.startswith(form.blank):
        return "", text[len(form.blank) :]
    if form.closing and text.startswith(form.opening) and form.closing in text:
        reasoning, _, rest = text[len(form.opening) :].partition(form.closing)
        return reasoning, rest
    loose = _THINK.match(text)
    return (loose[1], text[loose.end() :]) if loose else ("", text)


def _hermes(text: str) -> tuple[str, tuple[FunctionCall, ...]]:
    """JSON objects between tags; one that is not closed still counts."""
    start = text.find("<tool_call>")
    if start < 0:
        return text, ()
    return text[:start], tuple(_function(found[1], ("arguments",)) for found in _CALL.finditer(text, start))


def _llama(text: str) -> tuple[str, tuple[FunctionCall, ...]]:
    """JSON objects behind the python tag, or a whole reply that is one; a semicolon between several."""
    content, tag, rest = text.partition(PYTHON_TAG)
    if tag:
        return content, tuple(_function(one, ("parameters", "arguments")) for one in _objects(rest))
    whole = text.lstrip().startswith('{"name"') and '"parameters"' in text
    bare = [_function(one, ("parameters",)) for one in _objects(text)] if whole else []
    named = [one for one in bare if one.name]
    return ("", tuple(named)) if named and len(named) == len(bare) else (text, ())


def _objects(text: str) -> list[str]:
    """The JSON values that stand behind each other; what is none is one piece."""
    found, place = [], 0
    while text[place:].strip(" ;\n"):
        start = len(text) - len(text[place:].lstrip(" ;\n"))
        try:
            _, place = _DECODER.raw_decode(text, start)
        except ValueError:
            place = len(text)
        found.append(text[start:place].strip())
    return found or [""]


def _function(text: str, keys: tuple[str, ...]) -> FunctionCall:
    try:
        call = json.loads(text)
        name = call["name"]
        arguments: Any = next((call[key] for key in keys if key in call), {})
    except (ValueError, TypeError, KeyError, RecursionError):
        return FunctionCall(name="", arguments=text)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return FunctionCall(name="", arguments=text)
    return FunctionCall(name=name, arguments=written(arguments))


def written(arguments: dict[str, Any]) -> str:
    """Arguments as the templates write them."""
    return json.dumps(arguments, ensure_ascii=False)
