"""A tokenizer with its template: renders training conversations and prompts, and reads replies back.

The same object renders training conversations, opens prompts, appends tool results behind sampled ids without ever
tokenising model output again, and parses a reply's ids back to a message. Hub models bring their own tokenizer and
template; the built-in tiny policy gets a tokenizer that is built from the run's own texts, and ``tiny.jinja``.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from astra.chat.calls import Reply, read, written
from astra.chat.templates import (
    Carried,
    ChatError,
    Choice,
    Rendered,
    carried_by,
    control_tokens,
    form_of,
    is_marked,
    made_up_call,
    prefilled,
    prepare,
    render,
    restored,
)
from astra.records import FunctionCall, Message, Refused, ToolCall, ToolSpec


class NotTrainable(Refused):
    """A conversation that cannot become a training sample; ``reason`` is short and stable."""


class Encoded(NamedTuple):
    """Token ids and, per token, 1 where the model is trained (assistant turns, end token included)."""

    ids: list[int]
    mask: list[int]


class Chat:
    """A tokenizer with the template that training, rollouts and serving share."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, template: Choice = "auto") -> None:
        self.template = prepare(tokenizer, template)
        self.tokenizer = tokenizer
        self.end = int(tokenizer.eos_token_id)
        self.pad = int(tokenizer.pad_token_id)
        self.control = control_tokens(tokenizer, self.template)
        self.is_marked = is_marked(self.template)
        self.carried: Carried = carried_by(tokenizer)
        self.form = form_of(tokenizer, self.carried)
        self.prefill = prefilled(tokenizer)
        self.results = lru_cache(maxsize=65536)(self._results)

    @classmethod
    def load(cls, name: str | Path, template: Choice = "auto") -> Chat:
        """The tokenizer and template of a folder or a hub model. Raises ChatError."""
        try:
            return cls(AutoTokenizer.from_pretrained(str(name)), template)
        except ChatError as error:
            raise ChatError(f"{name}: {error}") from None

    def save(self, folder: Path | str) -> None:
        """Write tokenizer and template where ``load``, transformers and servers find them."""
        self.tokenizer.save_pretrained(str(folder))

    # ---------------------------------------------------------------- training

    def encode(self, conversations: Sequence[Sequence[Message]], tools: Sequence[Sequence[ToolSpec]]) -> list[Encoded]:
        """Each conversation as the template renders it, with the template's generation mask.

        Raises NotTrainable for one that the template refuses, or renders without its reasoning or its calls.
        """
        return [self._whole(*one) for one in zip(conversations, tools, strict=True)]

    def _whole(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Encoded:
        self._refuse_lost_calls(messages)
        lost, thought = self.lost_reasoning(messages)
        if lost:
            raise NotTrainable(
                "reasoning_lost",
                f"the chat template drops the reasoning of {lost} of {thought} turns: take a template that keeps it, "
                "sft.split: auto, or trajectories without reasoning",
            )
        rendered = self._rendered(messages, tools)
        return self._tokenised(rendered.text, [self._sampled(rendered.text, *span) for span in rendered.spans])

    def encode_last_turn(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Encoded:
        """A conversation up to an assistant's turn, which alone is trained: as it is rendered when it is generated.

        Needs no generation marks. Raises NotTrainable where the turn loses its reasoning or its calls, or where the
        template writes something else before it than the prompt that asks for it.
        """
        self._refuse_lost_calls(messages[-1:])
        if self.lost_reasoning(messages, last_only=True)[0]:
            raise NotTrainable("reasoning_lost", "the chat template drops the reasoning of a last turn too")
        text, marked = self._rendered(messages, tools)
        prompt = self._rendered(messages[:-1], tools, generate=True).text
        if not text.startswith(prompt):
            raise NotTrainable("prompt_differs", "the template writes other text before a turn than the prompt for it")
        start = max([len(prompt), *(self._sampled(text, *one)[0] for one in marked[-1:])])
        span = self._until_end(text, start, len(text))
        return self._tokenised(text[: span[1]], [span])

    def check(self, encoded: Encoded, turns: Sequence[Message]) -> None:
        """That what is trained reads back as these turns, each ended by one end token. Raises NotTrainable."""
        spans = spans_of(encoded)
        if len(spans) != len(turns):
            raise NotTrainable("mask_differs", f"{len(spans)} trained stretches for {len(turns)} assistant turns")
        for span, turn in zip(spans, turns, strict=True):
            if span[-1] != self.end or self.end in span[:-1]:
                raise NotTrainable("mask_differs", "a trained turn does not end with the end token, or holds another")
            if turn.tool_calls and self.form.calls == "unknown":
                raise NotTrainable("calls_unreadable", "calls of this template cannot be read back, nor used in rl")
            if _told(self.parse(span, 1)) != _told(turn):
                raise NotTrainable("not_read_back", f"a turn reads back differently: {self.text(span)[:200]!r}")

    def _refuse_lost_calls(self, messages: Sequence[Message]) -> None:
        if not self.carried.calls and any(message.tool_calls for message in messages):
            raise NotTrainable("calls_lost", "the chat template renders no tool calls: take a model that has tool use")

    def lost_reasoning(self, messages: Sequence[Message], last_only: bool = False) -> tuple[int, int]:
        """Turns whose reasoning the template drops, of all turns that have some; or of the last message alone."""
        asked = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
        thought = [place for place, message in enumerate(messages) if message.role == "assistant" and message.reasoning]
        if last_only:
            thought = [place for place in thought if place == len(messages) - 1]
        kept = (
            self.carried.past_reasoning if place < asked else
            self.carried.last_reasoning if place == len(messages) - 1 or not messages[place].tool_calls else
            self.carried.inner_reasoning
            for place in thought
        )  # fmt: skip
        return sum(not one for one in kept), len(thought)

    # ---------------------------------------------------------------- rollouts

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Ids up to where the assistant's next turn begins."""
        return self._ids([self._plain(message) for message in messages], tools, generate=True)

    def _ids(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec], generate: bool) -> list[int]:
        return self._split(render(self.tokenizer, messages, [spec.openai() for spec in tools], generate).text)

    def _results(self, contents: tuple[str, ...]) -> tuple[int, ...]:
        """Ids that follow an assistant turn's end token: these tool results and the opening of the next turn.

        Taken as the difference of two renderings of a dummy conversation, so that what the model wrote is never
        tokenised again.
        """
        call = made_up_call("{}" if self.carried.calls_as_text else {})
        opening: list[dict[str, Any]] = [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "a", "tool_calls": [call]},
        ]
        before = self._ids(opening, (), generate=False)
        results = [{"role": "tool", "name": "f", "tool_call_id": "c", "content": content} for content in contents]
        after = self._ids(opening + results, (), generate=True)
        cut = max((place for place, token in enumerate(before) if token == self.end), default=-1) + 1
        if not cut or before[:cut] != after[:cut]:
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
        reply = self._whole_again(read(self.text(ids[:-1] if ids and ids[-1] == self.end else ids), self.form))
        return Message(
            role="assistant",
            content=reply.content or None,
            reasoning=reply.reasoning or None,
            tool_calls=tuple(
                ToolCall(id=f"call_{number}", function=call) for number, call in enumerate(reply.calls, first_call)
            ),
        )

    def _whole_again(self, reply: Reply) -> Reply:
        """A reply with control tokens that it quotes, broken up, written as they were."""

        def mend(text: str) -> str:
            return restored(text, self.control)

        calls = (FunctionCall(name=mend(call.name), arguments=mend(call.arguments)) for call in reply.calls)
        return Reply(mend(reply.reasoning), mend(reply.content), tuple(calls))

    # ---------------------------------------------------------------- text and tokens

    def _plain(self, message: Message) -> dict[str, Any]:
        """The message for the template: arguments as an object, so that ``tojson`` does not encode a string again.

        A template that prints arguments as they are gets them as JSON text: it would print an object as Python does.
        """
        plain = message.openai()
        for call in plain.get("tool_calls", ()):
            arguments = _arguments(call["function"]["arguments"])
            call["function"]["arguments"] = written(arguments) if self.carried.calls_as_text else arguments
        return plain

    def _rendered(self, messages: Sequence[Message], tools: Sequence[ToolSpec], generate: bool = False) -> Rendered:
        plain = [self._plain(message) for message in messages]
        try:
            return render(self.tokenizer, plain, [spec.openai() for spec in tools], generate)
        except TemplateError as error:
            raise NotTrainable("template_refuses", str(error)) from None

    def _sampled(self, text: str, start: int, stop: int) -> tuple[int, int]:
        """A marked stretch without what nobody samples: what prompts end with, and what stands behind the end token."""
        opened = len(self.prefill) if text.startswith(self.prefill, start) else 0
        return self._until_end(text, start + opened, stop)

    def _until_end(self, text: str, start: int, stop: int) -> tuple[int, int]:
        end = str(self.tokenizer.eos_token)
        found = text.find(end, start, stop)
        return start, found + len(end) if found >= 0 else stop

    def _tokenised(self, text: str, spans: Sequence[tuple[int, int]]) -> Encoded:
        """Ids of the whole text and 1 on the spans; piece by piece where a token would lie across a span's border."""
        whole = self.tokenizer(text, add_special_tokens=False)
        ids, mask = list(whole["input_ids"]), [0] * len(whole["input_ids"])
        for start, stop in spans:
            first, last = (whole.char_to_token(place) for place in (start, stop - 1)) if stop > start else (None, None)
            if first is None or last is None or not _alike(self.text(ids[first : last + 1]), text[start:stop]):
                return self._in_pieces(text, spans)
            mask[first : last + 1] = [1] * (last + 1 - first)
        return Encoded(ids, mask)

    def _in_pieces(self, text: str, spans: Sequence[tuple[int, int]]) -> Encoded:
        """As a rollout has it: a prompt or results, then what was generated, each tokenised by itself."""
        encoded = Encoded([], [])
        place = 0
        for start, stop in [*(span for span in spans if span[1] > span[0]), (len(text), len(text))]:
            for piece, flag in ((text[place:start], 0), (text[start:stop], 1)):
                ids = self._split(piece) if piece else []
                if flag and not _alike(self.text(ids), piece):
                    raise NotTrainable("tokens_differ", f"the tokenizer does not keep this text: {piece[:80]!r}")
                encoded.ids.extend(ids)
                encoded.mask.extend([flag] * len(ids))
            place = stop
        return encoded

    def _split(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def spans_of(encoded: Encoded) -> list[list[int]]:
    """The ids of each trained stretch."""
    spans: list[list[int]] = []
    before = 0
    for token, flag in zip(encoded.ids, encoded.mask, strict=True):
        if flag and not before:
            spans.append([])
        if flag:
            spans[-1].append(token)
        before = flag
    return spans


def _alike(one: str, other: str) -> bool:
    """Whether two texts are the same but for Unicode's forms, which some tokenizers normalise."""
    return one == other or unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)


def _told(message: Message) -> tuple[str, ...]:
    """What a turn says, in a form to compare: outer white space, Unicode's forms and spaces in JSON do not count."""
    parts = [(message.reasoning or "").strip(), (message.content or "").strip()]
    for call in message.tool_calls:
        try:
            arguments = json.dumps(json.loads(call.function.arguments))
        except ValueError:
            arguments = call.function.arguments
        parts += [call.function.name, arguments]
    return tuple(unicodedata.normalize("NFC", part) for part in parts)


def _arguments(text: str) -> dict[str, Any]:
    """Arguments as an object. Raises NotTrainable for what is none, or holds what JSON or UTF-8 cannot."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise NotTrainable("bad_arguments", f"arguments are not JSON: {text[:80]!r} ({error})") from None
    if not isinstance(value, dict):
        raise NotTrainable("bad_arguments", f"arguments are not an object: {text[:80]}")
    return value
