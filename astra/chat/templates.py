"""Which template a tokenizer is trained, sampled and served with; and what that template makes of a turn.

One template does all three: the saved tokenizer carries it, so that a server renders the bytes that were trained. In
front of each stands a guard (``guard.jinja``): a control token in what a user, a tool or a tool's document says is
broken up by a zero-width space, and stays text wherever the template is applied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template
from trl.chat_template_utils import get_training_chat_template

TINY = Path(__file__).with_name("tiny.jinja").read_text(encoding="utf-8")
_TURNS = Path(__file__).with_name("turns.jinja").read_text(encoding="utf-8")
_LLAMA3 = Path(__file__).with_name("llama3.jinja").read_text(encoding="utf-8")
_GUARD = Path(__file__).with_name("guard.jinja").read_text(encoding="utf-8")

_GUARD_HEAD = _GUARD.partition("\n")[0]

BREAK = "\u200b"
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_MARK = re.compile(r"</?[a-z_]+>|<[|｜][^<>|｜\s]+[|｜]>|\[/?[A-Z_]+\]|</?s>")
_GENERATION = re.compile(r"\{%-?\s*generation")

Choice = Literal["auto", "own", "plain"]


class ChatError(Exception):
    """A tokenizer or template cannot be used for training: the message names it and the remedy."""


class Family(NamedTuple):
    """A template of ours for a family of models, and the token that ends a turn in it (None: the tokenizer's own)."""

    template: str
    end: str | None


def _turns(start: str, end: str) -> str:
    return f"{{%- set START, END = {start}, {end} -%}}\n{_TURNS}"


CHATML = Family(_turns("'<|im_start|>'", "'<|im_end|>'"), "<|im_end|>")
LLAMA3 = Family(_LLAMA3, "<|eot_id|>")
PLAIN = Family(_turns("''", "eos_token"), None)


def prepare(tokenizer: PreTrainedTokenizerFast, choice: Choice) -> str:
    """Give the tokenizer the guarded template that ``choice`` means, and the token that ends a turn; the template.

    ``own`` is the tokenizer's as it is. ``plain`` is our generic format. ``auto`` is the tokenizer's own where it marks
    what the assistant generates; else ours for its family or TRL's training variant; ``plain`` for one that has none.
    Raises ChatError.
    """
    family = _family(tokenizer, choice)
    if family.end in tokenizer.get_vocab():
        tokenizer.eos_token = family.end
    if tokenizer.eos_token is None:
        raise ChatError("the tokenizer has no eos_token, and a turn needs an end: set one in tokenizer_config.json")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = guarded(family.template, control_tokens(tokenizer, family.template))
    return str(tokenizer.chat_template)


def _family(tokenizer: PreTrainedTokenizerFast, choice: Choice) -> Family:
    own = tokenizer.chat_template
    if choice == "plain" or (choice == "auto" and not own):
        return PLAIN
    if not isinstance(own, str):
        raise ChatError(
            "the tokenizer has no chat template of its own: set sft.template to plain"
            if not own
            else f"the tokenizer has several chat templates ({', '.join(own)}): leave one, or set sft.template to plain"
        )
    if choice == "own" or is_marked(own) or own.startswith(_GUARD_HEAD):
        return Family(own, None)
    if "<|start_header_id|>" in own and "<|eot_id|>" in own:
        return LLAMA3  # TRL's variants render no calls, or one call a turn and no words beside it
    return _training_variant(tokenizer) or _by_marks(own)


def _training_variant(tokenizer: PreTrainedTokenizerFast) -> Family | None:
    try:
        template = get_training_chat_template(tokenizer)
    except ValueError:
        return None
    return Family(template, None) if template else None


def _by_marks(own: str) -> Family:
    if "<|im_start|>" in own and "<tool_call>" in own and "<function=" not in own:
        return CHATML
    raise ChatError(
        "the chat template gives no assistant mask: it has no {% generation %} marks, TRL knows no training variant of "
        "it, and it is of no family that has one here (Qwen3, Llama 3). Add the marks to the template, or set "
        "sft.template to plain, our own format, or to own, which trains one turn a sample. "
        f"The template begins: {own[:80]!r}"
    )


def is_marked(template: str) -> bool:
    """Whether a template marks what the assistant generates."""
    return _GENERATION.search(template) is not None


def control_tokens(tokenizer: PreTrainedTokenizerFast, template: str) -> list[str]:
    """The texts that must not be control tokens where somebody says them: special tokens and the template's marks."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    added = {text for text in tokenizer.get_added_vocab() if _MARK.fullmatch(text)}
    return sorted(text for text in special | added | {*MARKS, *_MARK.findall(template)} if len(text) > 1)


def guarded(template: str, tokens: Sequence[str]) -> str:
    """The template behind its guard; one that has a guard is returned as it is."""
    if template.startswith(_GUARD_HEAD):
        return template
    return _GUARD.rstrip().replace("CONTROL_TOKENS", json.dumps(list(tokens))) + template


def restored(text: str, tokens: Sequence[str]) -> str:
    """A text with the control tokens whole again that the guard had broken up."""
    if BREAK not in text:
        return text
    for token in tokens:
        text = text.replace(token[0] + BREAK + token[1:], token)
    return text


# ---------------------------------------------------------------- what a template makes of a turn


class Carried(NamedTuple):
    """What a template renders of an assistant's turns, found by rendering made-up ones."""

    calls: bool
    calls_as_text: bool
    past_reasoning: bool
    inner_reasoning: bool
    last_reasoning: bool


class Form(NamedTuple):
    """The texts around the parts of an assistant's turn: what a parser has to take away again."""

    opening: str = "<think>\n"  # before a thought
    closing: str = "\n</think>\n"  # behind it
    blank: str = ""  # before the words of a turn without a thought
    joint: str = "\n"  # between the words and the first call
    calls: Literal["hermes", "llama", "unknown"] = "hermes"


class Rendered(NamedTuple):
    """A conversation's text, and from where to where the template marks it as generated, in characters."""

    text: str
    spans: list[tuple[int, int]]


def render(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] = (),
    generate: bool = False,
) -> Rendered:
    """What the tokenizer's template makes of a conversation. Raises jinja2's TemplateError, TypeError, ValueError."""
    template = str(tokenizer.chat_template)
    marked = is_marked(template) and not generate
    texts, spans = render_jinja_template(  # type: ignore[no-untyped-call,unused-ignore]
        conversations=[list(messages)],
        tools=list(tools) or None,
        chat_template=template,
        return_assistant_tokens_mask=marked,
        add_generation_prompt=generate,
        **tokenizer.special_tokens_map,
    )
    return Rendered(texts[0], spans[0] if marked else [])


_THOUGHTS = ("zeroth idea", "later idea")
_USER = {"role": "user", "content": "u"}
_CALLED = {"key": "probed value"}


def carried_by(tokenizer: PreTrainedTokenizerFast) -> Carried:
    """Render made-up conversations and look what is there."""
    said = [{"role": "assistant", "content": "a", "reasoning_content": thought} for thought in _THOUGHTS]
    past = _tried(tokenizer, [_USER, said[0], _USER, said[1]])
    as_object, as_text = (
        _tried(
            tokenizer,
            [
                _USER,
                {**said[0], "content": "", "tool_calls": [made_up_call(arguments)]},
                {"role": "tool", "name": "f", "tool_call_id": "c", "content": "r"},
                said[1],
            ],
        )
        for arguments in (_CALLED, json.dumps(_CALLED))
    )
    printed_as_python = "{'key':" in as_object
    calls_as_text = (printed_as_python or "probed value" not in as_object) and json.dumps(_CALLED) in as_text
    inner = as_text if calls_as_text else as_object
    return Carried(
        calls="probed value" in inner,
        calls_as_text=calls_as_text,
        past_reasoning=_THOUGHTS[0] in past,
        inner_reasoning=_THOUGHTS[0] in inner,
        last_reasoning=_THOUGHTS[1] in past,
    )


def form_of(tokenizer: PreTrainedTokenizerFast, carried: Carried) -> Form:
    """The texts around the parts of a turn, read off made-up turns; the usual ones where a template shows none."""
    form = Form()
    words = _turn(tokenizer, {"role": "assistant", "content": "plain words"})
    if "plain words" in words:
        form = form._replace(blank=words.partition("plain words")[0])
    thought = _turn(tokenizer, {"role": "assistant", "content": "plain words", "reasoning_content": _THOUGHTS[0]})
    if _THOUGHTS[0] in thought and "plain words" in thought:
        opening, _, rest = thought.partition(_THOUGHTS[0])
        form = form._replace(opening=opening, closing=rest.partition("plain words")[0])
    call = made_up_call(json.dumps(_CALLED) if carried.calls_as_text else _CALLED)
    called = _turn(tokenizer, {"role": "assistant", "content": "plain words", "tool_calls": [call]})
    start = re.search(r"plain words(\s*)(<tool_call>|<\|python_tag\|>)", called)
    if start:
        form = form._replace(joint=start[1])
    written = json.dumps(_CALLED)
    for name, text in (("hermes", f'"arguments": {written}'), ("llama", f'"parameters": {written}')):
        if text in called or text in _turn(tokenizer, {"role": "assistant", "content": "", "tool_calls": [call]}):
            return form._replace(calls=name)  # type: ignore[arg-type]
    return form._replace(calls="unknown")


def prefilled(tokenizer: PreTrainedTokenizerFast) -> str:
    """What a prompt ends with that the template marks as generated all the same, such as an opened thought."""
    said = {"role": "assistant", "content": "a", "reasoning_content": _THOUGHTS[0]}
    try:
        text, spans = render(tokenizer, [_USER, said])
        prompt = render(tokenizer, [_USER], generate=True).text
    except (TemplateError, TypeError, ValueError):
        return ""
    return text[spans[0][0] : len(prompt)] if spans and text.startswith(prompt) else ""


def made_up_call(arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def _turn(tokenizer: PreTrainedTokenizerFast, message: dict[str, Any]) -> str:
    """What follows the prompt when this message is the reply; nothing where the prompt is not kept."""
    text, prompt = _tried(tokenizer, [_USER, message]), _tried(tokenizer, [_USER], generate=True)
    return text[len(prompt) :] if text.startswith(prompt) else ""


def _tried(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]], generate: bool = False) -> str:
    """The text of a made-up conversation; nothing where the template refuses it."""
    document = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
    try:
        return render(tokenizer, messages, [{"type": "function", "function": document}], generate).text
    except (TemplateError, TypeError, ValueError):  # TypeError, ValueError: a filter that wants arguments otherwise
        return ""
