"""JSON out of a model's reply, however it is wrapped; never ``eval``, never a guess at what a cut text would have said.

Accepted: JSON text; JSON after thoughts (``<think>`` blocks and what stands for them elsewhere); JSON in a fence or
within prose. Mended, and reported as mended: trailing commas, comments, single quotes, raw line breaks in strings,
Python's True, False and None. The end of a value is where its grammar ends, so a fence inside a string does not cut it.
Lone surrogates become U+FFFD, NUL is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

MAX_DEPTH = 100
MAX_STARTS = 200  # places in a reply at which a value is looked for


class ReplyInvalid(Exception):
    """The reply is not what was asked for; the message can be shown to the model."""


class Parsed(NamedTuple):
    value: Any
    repaired: bool


def parse_json(text: str) -> Any:
    """The JSON value in a reply: the first object, else the first array. Raises ReplyInvalid."""
    return read_json(text).value


def read_json(text: str) -> Parsed:
    """The JSON value in a reply, and whether it had to be mended. Raises ReplyInvalid."""
    try:
        return Parsed(clean_value(strict_json(text)), False)
    except (ValueError, RecursionError):
        pass
    found: Parsed | None = None
    for start in islice(_starts(split_thought(text).text), MAX_STARTS):
        parsed = _value_at(*start)
        if parsed is not None and isinstance(parsed.value, dict):
            return parsed
        found = found or parsed
    if found is None:
        raise ReplyInvalid("no JSON value in the reply")
    return found


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects in a reply that stand within no other, as far as they can be read."""
    if not _is_mended(text):  # nothing but JSON: the common case
        value = strict_json(text)
        yield from (
            clean_value(one) for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)
        )
        return
    text, reached = split_thought(text).text, 0
    for found in islice(re.finditer(r"\{", text), MAX_STARTS):
        if found.start() < reached:
            continue
        reader = _Reader(text, found.start())
        try:
            value = reader.value(0)
        except ReplyInvalid:
            continue
        reached = reader.at
        yield clean_value(value)


def is_repaired(text: str) -> bool:
    """Whether a reply holds JSON that has to be mended. A reply that is nothing but JSON is not walked for it."""
    try:
        return _is_mended(text) and read_json(text).repaired
    except ReplyInvalid:
        return False


def validate(model: type[M], value: Any) -> M:
    """The value as a model. Raises ReplyInvalid with the first field that does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the value"
        raise ReplyInvalid(f"{where}: {first['msg']} (got {str(first.get('input'))[:80]!r})") from None


_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


_OTHER_OPENING = re.compile(r"\s*(?:<(?:thinking|thought|seed:think)>|\[THINK\]|◁think▷|<\|START_THINKING\|>)")
_OTHER_CLOSING = re.compile(r"</(?:thinking|thought|seed:think)>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>")


_ENDS = re.compile(  # marks of a reply's end that a server left in
    r"(?:\s|<\|(?:eot_id|eom_id|eot|eom|im_end|end|endoftext|end_of_text|return|call)\|>|<｜end▁of▁sentence｜>)+\Z"
)


class Split(NamedTuple):
    text: str
    thought: str
    is_open: bool


def split_thought(content: str) -> Split:
    """Text and thoughts of a reply; a block that was opened before the reply or never closed counts."""
    found = _channels(content)
    if found is not None:
        return found
    if _OTHER_OPENING.match(content) or _OTHER_CLOSING.search(content):
        content = _OTHER_CLOSING.sub("</think>", _OTHER_OPENING.sub("<think>", content))
    if "</think>" in content and "<think>" not in content.split("</think>", 1)[0]:
        content = "<think>" + content  # the template put the opening tag into the prompt
    thoughts = [found.group(1).strip() for found in _THOUGHT.finditer(content)]
    text = _ENDS.sub("", _THOUGHT.sub("", content)).strip()
    return Split(text, "\n".join(one for one in thoughts if one), content.count("<think>") > content.count("</think>"))


_CHANNEL = re.compile(
    r"<\|channel\|>(?P<header>[^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"(?P<said>.*?)(?P<end><\|end\|>|<\|return\|>|<\|call\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)
_BARE_CHANNELS = re.compile(r"analysis(?P<thought>.*?)assistant\s*final(?P<text>.*)", re.DOTALL)


def _channels(content: str) -> Split | None:
    """A reply in OpenAI's Harmony form, whose server did not read it; None for any other."""
    bare = _BARE_CHANNELS.fullmatch(content.strip())  # its special tokens were dropped
    if bare:
        return Split(bare.group("text").strip(), bare.group("thought").strip(), False)
    if not re.match(r"\s*(?:<\|start\|>[^<]*)?<\|channel\|>", content):
        return None
    messages = list(_CHANNEL.finditer(content))
    thoughts = [one.group("said").strip() for one in messages if one.group("header").startswith("analysis")]
    texts = [one.group("said").strip() for one in messages if not one.group("header").startswith("analysis")]
    is_open = not messages or (messages[-1].group("header").startswith("analysis") and not messages[-1].group("end"))
    return Split("\n".join(one for one in texts if one), "\n".join(one for one in thoughts if one), is_open)


_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n", re.MULTILINE)
_LANGUAGES = {"", "json", "jsonc", "json5", "python"}


def _starts(text: str) -> Iterator[tuple[str, int]]:
    """Where a value may begin: in fences of JSON first, then anywhere that no fence of another language covers."""
    position = 0
    covered: list[tuple[int, int]] = []
    for fence in _FENCE.finditer(text):
        if fence.start() < position:
            continue
        if fence.group(1).lower() in _LANGUAGES:
            yield text, fence.end()
            continue
        closing = text.find("```", fence.end())
        position = len(text) if closing < 0 else closing + 3
        covered.append((fence.start(), position))
    for bracket in re.finditer(r"[{\[]", text):
        if not any(start <= bracket.start() < end for start, end in covered):
            yield text, bracket.start()


def _value_at(text: str, start: int) -> Parsed | None:
    reader = _Reader(text, start)
    try:
        reader.space()
        if text[reader.at : reader.at + 1] not in ("{", "["):
            return None
        value = reader.value(0)
    except ReplyInvalid:
        if reader.at >= len(text):
            raise ReplyInvalid("the JSON value breaks off") from None
        return None
    return Parsed(clean_value(value), _is_mended(text[start : reader.at]))


def _is_mended(text: str) -> bool:
    try:
        strict_json(text)
    except (ValueError, RecursionError):
        return True
    return False


def strict_json(text: str) -> Any:
    """What the standard says; numbers beyond all floats are none. Raises ValueError, or RecursionError if too deep."""
    return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant, parse_float=_finite)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if abs(value) == float("inf"):
        raise ValueError(f"{digits[:20]} is beyond all numbers")
    return value


_LONE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """A text that every file and socket takes: lone surrogates become U+FFFD, NUL is removed."""
    return _LONE.sub("\ufffd", text).replace("\0", "")


def clean_value(value: Any) -> Any:
    """A JSON value whose texts are clean."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_value(one) for one in value]
    if isinstance(value, dict):
        return {clean_value(key): clean_value(one) for key, one in value.items()}
    return value


_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_WORD = re.compile(r"(?:true|false|null|True|False|None)\b")
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Reader:
    """A recursive-descent reader of JSON and the mendings above."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def space(self) -> None:
        blank = _BLANK.match(self.text, self.at)
        self.at = blank.end() if blank else self.at

    def fail(self) -> NoReturn:
        raise ReplyInvalid(f"not JSON at character {self.at}")

    def value(self, depth: int) -> Any:
        self.space()
        here = self.text[self.at : self.at + 1]
        if depth > MAX_DEPTH:
            self.fail()
        if here == "{":
            return dict(self.items("}", depth, self.pair))
        if here == "[":
            return list(self.items("]", depth, self.value))
        if here in ('"', "'") and here:
            return self.string(here)
        return self.plain()

    def items(self, closing: str, depth: int, item: Any) -> Iterator[Any]:
        self.at += 1
        self.space()
        while not self.text.startswith(closing, self.at):
            yield item(depth + 1)
            self.space()
            if self.text.startswith(",", self.at):
                self.at += 1
                self.space()
            elif not self.text.startswith(closing, self.at):
                self.fail()
        self.at += 1

    def pair(self, depth: int) -> tuple[str, Any]:
        quote = self.text[self.at : self.at + 1]
        if quote not in ('"', "'") or not quote:
            self.fail()
        name = self.string(quote)
        self.space()
        if not self.text.startswith(":", self.at):
            self.fail()
        self.at += 1
        return name, self.value(depth)

    def plain(self) -> Any:
        word = _WORD.match(self.text, self.at)
        if word:
            self.at = word.end()
            return _WORDS[word.group()]
        number = _NUMBER.match(self.text, self.at)
        if not number:
            self.fail()
        self.at = number.end()
        try:
            return strict_json(number.group())
        except ValueError:  # beyond all floats, or with thousands of digits
            self.fail()

    def string(self, quote: str) -> str:
        parts: list[str] = []
        self.at += 1
        while True:
            letter = self.text[self.at : self.at + 1]
            if not letter:
                self.fail()
            self.at += 1
            if letter == quote:
                return "".join(parts)
            parts.append(self.escape() if letter == "\\" else letter)

    def escape(self) -> str:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        unit = self.unit() if letter == "u" else self.fail()
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.at):
            back = self.at
            self.at += 2
            low = self.unit()
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
            self.at = back
        return chr(unit)

    def unit(self) -> int:
        digits = self.text[self.at : self.at + 4]
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            self.fail()
        self.at += 4
        return int(digits, 16)
