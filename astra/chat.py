"""Messages and tools <-> token ids and loss mask, for training, rollouts and evaluation alike.

``Chat`` wraps a tokenizer and its chat template. The same object renders training conversations, opens prompts,
appends tool results behind sampled ids without ever tokenising model output again, and parses a reply's ids back to a
message. Hub models bring their own tokenizer and template; the built-in tiny policy gets a tokenizer that is built from
the run's own texts (``build_tokenizer``) and the template in ``chat.jinja``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from trl.chat_template_utils import get_training_chat_template

from astra.records import FunctionCall, Message, ToolCall, ToolSpec

TEMPLATE = Path(__file__).with_name("chat.jinja")
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
BUILTIN_PHRASES = ("The answer is ", " and ", "Next: ", "I cannot answer: no tool gives the ")
# What every conversation of the built-in format repeats, as single tokens: the tiny policy decides names and values,
# not punctuation. None crosses the border of what the model writes, so sampled ids and rendered ids agree.
_SCAFFOLD = (
    f"{START}system\n",
    f"{START}user\n",
    f"\n{START}user\n",
    f"\n{START}assistant\n",
    f"\n{START}user\n<tool_response>\n",
    f"\n</tool_response>{END}\n{START}assistant\n",
    '\n<tool_call>\n{"name": "',
    '<tool_call>\n{"name": "',
    '", "arguments": {"',
    '": "',
    '"}}\n</tool_call>',
    '{"result": "',
    '{"result": ',
    '"}',
    "): ",
)
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_THINK = re.compile(r"\A\s*<think>\n?(.*?)\n?</think>\s*", re.DOTALL)


class ChatError(Exception):
    """A tokenizer or template cannot be used for training: the message names it and the remedy."""


class NotTrainable(Exception):
    """A conversation that cannot become a training sample; ``reason`` is short and stable."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Encoded(NamedTuple):
    """Token ids and, per token, 1 where the model is trained (assistant turns, end token included)."""

    ids: list[int]
    mask: list[int]


class Carried(NamedTuple):
    """What a template renders of an assistant's turns, found by rendering made-up ones."""

    calls: bool
    calls_as_text: bool
    past_reasoning: bool
    inner_reasoning: bool
    last_reasoning: bool


class Chat:
    """A tokenizer with the template that training and rollouts share."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.end = int(tokenizer.eos_token_id)
        self.pad = int(tokenizer.pad_token_id)
        self.template = _training_template(tokenizer)
        self.carried = _carried(tokenizer, self.template)
        self.results = lru_cache(maxsize=65536)(self._results)

    @classmethod
    def load(cls, name: str | Path) -> Chat:
        """The tokenizer and template of a folder or a hub model. Raises ChatError."""
        tokenizer = AutoTokenizer.from_pretrained(str(name))
        if not tokenizer.chat_template:
            raise ChatError(f"{name}: the tokenizer has no chat template; take an instruction-tuned model")
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return cls(tokenizer)

    def save(self, folder: Path | str) -> None:
        """Write tokenizer and template where ``load`` and transformers find them."""
        self.tokenizer.save_pretrained(str(folder))

    def encode(self, conversations: Sequence[Sequence[Message]], tools: Sequence[Sequence[ToolSpec]]) -> list[Encoded]:
        """Each conversation as the template renders it, with the template's generation mask.

        Raises NotTrainable for one that the template refuses, or renders without its reasoning or its calls.
        """
        encoded = []
        for messages, specs in zip(conversations, tools, strict=True):
            plain = [self._plain(message) for message in messages]
            self._refuse_losses(messages)
            try:
                out = self.tokenizer.apply_chat_template(
                    plain,
                    tools=[spec.openai() for spec in specs] or None,
                    chat_template=self.template,
                    tokenize=True,
                    return_dict=True,
                    return_assistant_tokens_mask=True,
                )
            except TemplateError as error:
                raise NotTrainable("template_refuses", str(error)) from None
            ids = list(out["input_ids"])
            encoded.append(Encoded(ids, _until_end(ids, out["assistant_masks"], self.end)))
        return encoded

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Ids up to where the assistant's next turn begins."""
        return self._ids([self._plain(message) for message in messages], tools, generate=True)

    def _plain(self, message: Message) -> dict[str, Any]:
        """The message for the template: arguments as an object, so that ``tojson`` does not encode a string again.

        A template that prints arguments as they are gets them as JSON text: it would print an object as Python does.
        """
        plain = message.openai()
        for call in plain.get("tool_calls", ()):
            arguments = _arguments(call["function"]["arguments"])
            call["function"]["arguments"] = _as_text(arguments) if self.carried.calls_as_text else arguments
        return plain

    def _refuse_losses(self, messages: Sequence[Message]) -> None:
        """Raises NotTrainable where the template would drop what the assistant thought or called."""
        if not self.carried.calls and any(message.tool_calls for message in messages):
            raise NotTrainable("calls_lost", "the chat template renders no tool calls: take a model that has tool use")
        lost, thought = _reasoning_lost(messages, self.carried)
        if lost:
            raise NotTrainable(
                "reasoning_lost",
                f"the chat template drops the reasoning of {lost} of {thought} turns: take a template that keeps it, "
                "or trajectories without reasoning",
            )

    def _ids(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec], generate: bool) -> list[int]:
        ids = self.tokenizer.apply_chat_template(
            messages,
            tools=[spec.openai() for spec in tools] or None,
            chat_template=self.template,
            add_generation_prompt=generate,
            tokenize=True,
            return_dict=False,
        )
        return list(ids)

    def _results(self, contents: tuple[str, ...]) -> tuple[int, ...]:
        """Ids that follow an assistant turn's end token: these tool results and the opening of the next turn.

        Taken as the difference of two renderings of a dummy conversation, so that what the model wrote is never
        tokenised again.
        """
        arguments: Any = "{}" if self.carried.calls_as_text else {}
        call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        opening: list[dict[str, Any]] = [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "a", "tool_calls": [call]},
        ]
        before = self._ids(opening, (), generate=False)
        results = [{"role": "tool", "name": "f", "content": content} for content in contents]
        after = self._ids(opening + results, (), generate=True)
        cut = max(place for place, token in enumerate(before) if token == self.end) + 1
        if before[:cut] != after[:cut]:
            raise ChatError("the chat template is not prefix-preserving: it rewrites a turn when a tool result follows")
        return tuple(after[cut:])

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def parse(self, ids: Sequence[int], first_call: int) -> Message:
        """A reply's ids as an assistant message; calls are numbered from ``first_call``.

        A tool call that is not the JSON it should be becomes a call of the empty name with the raw text as arguments:
        the environment answers it like any other unknown tool.
        """
        text = self.text(ids[:-1] if ids and ids[-1] == self.end else ids)
        reasoning = _THINK.match(text)
        if reasoning:
            text = text[reasoning.end() :]
        calls = tuple(
            ToolCall(id=f"call_{number}", function=_function(match.group(1)))
            for number, match in enumerate(_CALL.finditer(text), first_call)
        )
        start = text.find("<tool_call>")
        content = (text if start < 0 else text[:start]).strip()
        return Message(
            role="assistant",
            content=content or None,
            reasoning=reasoning.group(1) if reasoning and reasoning.group(1) else None,
            tool_calls=calls,
        )


def _until_end(ids: Sequence[int], mask: Sequence[int], end: int) -> list[int]:
    """The mask with every assistant turn cut behind its end token.

    Some templates mark the line break after it too, which no rollout ever samples.
    """
    kept: list[int] = []
    open_turn = True
    for token, flag in zip(ids, mask, strict=True):
        open_turn = open_turn or not flag
        kept.append(int(bool(flag) and open_turn))
        open_turn = open_turn and not (flag and token == end)
    return kept


def _function(text: str) -> FunctionCall:
    try:
        call = json.loads(text)
        name, arguments = call["name"], call.get("arguments", {})
    except (ValueError, TypeError, KeyError):
        return FunctionCall(name="", arguments=text)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return FunctionCall(name="", arguments=text)
    return FunctionCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise NotTrainable("bad_arguments", f"arguments are not JSON: {text[:80]}") from None
    if not isinstance(value, dict):
        raise NotTrainable("bad_arguments", f"arguments are not an object: {text[:80]}")
    return value


def _as_text(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _reasoning_lost(messages: Sequence[Message], carried: Carried) -> tuple[int, int]:
    """Turns whose reasoning the template drops, of all turns that have some."""
    asked = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
    thought = [place for place, message in enumerate(messages) if message.role == "assistant" and message.reasoning]
    kept = (
        carried.past_reasoning if place < asked else carried.inner_reasoning if messages[place].tool_calls
        else carried.last_reasoning
        for place in thought
    )  # fmt: skip
    return sum(not one for one in kept), len(thought)


_THOUGHTS = ("zeroth idea", "later idea")


def _carried(tokenizer: PreTrainedTokenizerFast, template: str) -> Carried:
    """Render made-up conversations and look what is there."""
    user = {"role": "user", "content": "u"}
    said = [{"role": "assistant", "content": "a", "reasoning_content": thought} for thought in _THOUGHTS]
    past = _rendered(tokenizer, template, [user, said[0], user, said[1]])
    as_object, as_text = (
        _rendered(
            tokenizer,
            template,
            [
                user,
                {**said[0], "content": "", "tool_calls": [_made_up_call(arguments)]},
                {"role": "tool", "name": "f", "tool_call_id": "c", "content": "r"},
                said[1],
            ],
        )
        for arguments in ({"key": "probed value"}, '{"key": "probed value"}')
    )
    printed_as_python = "{'key':" in as_object
    calls_as_text = (printed_as_python or "probed value" not in as_object) and '{"key": "probed value"}' in as_text
    inner = as_text if calls_as_text else as_object
    return Carried(
        calls="probed value" in inner,
        calls_as_text=calls_as_text,
        past_reasoning=_THOUGHTS[0] in past,
        inner_reasoning=_THOUGHTS[0] in inner,
        last_reasoning=_THOUGHTS[1] in past,
    )


def _made_up_call(arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def _rendered(tokenizer: PreTrainedTokenizerFast, template: str, messages: list[dict[str, Any]]) -> str:
    """The text of a made-up conversation; nothing where the template refuses it."""
    document = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": document}]
    try:
        return str(tokenizer.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=False))
    except (TemplateError, TypeError, ValueError):  # TypeError, ValueError: a filter that wants arguments otherwise
        return ""


def _training_template(tokenizer: PreTrainedTokenizerFast) -> str:
    """The tokenizer's template if it marks what the assistant generates, else TRL's training variant of it."""
    if re.search(r"\{%-?\s*generation", tokenizer.chat_template):
        return str(tokenizer.chat_template)
    try:
        template = get_training_chat_template(tokenizer)
    except ValueError as error:
        raise ChatError(
            "the chat template has no {% generation %} marks and TRL knows no training variant of it: add the marks to "
            f"the template, or take a model of a family that TRL knows ({error})"
        ) from None
    return str(template or tokenizer.chat_template)


def build_tokenizer(
    texts: Iterable[str], names: Iterable[str], phrases: Iterable[str], n_pieces: int
) -> PreTrainedTokenizerFast:
    """A BPE tokenizer over the run's own texts.

    ``names`` (tools, entities: whole words), ``phrases`` (anywhere) and the format's scaffolding become single tokens.
    Digits, capitals in a row and full stops stand alone; all else is split into at most ``n_pieces`` pieces that
    ``texts`` suggest, which may span several words.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|[.\n_]|[A-Z](?=[A-Z])|[A-Z][a-z]*"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_pieces,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    marks = (*_MARKS, *_SCAFFOLD, *sorted(set(phrases)))
    words = sorted(set(names))
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=PAD)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in marks])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False, single_word=True) for text in words])
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return tokenizer
