"""Local weights as a model that is measured: a benchmark's conversation by the chat template, the reply read back.

The key-value cache of a run is kept from one ask to the next, so that only what is new of a conversation is computed;
the longest common beginning decides, so a benchmark may change its tools or its history. One reply at a time: what a
case gives does not depend on what is played beside it. Large models are better served by vLLM and asked as an endpoint.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import DynamicCache, PreTrainedModel

from astra.benchmarks.models import NOTHING, Answer, Draw, Local, message_of, sent_tool
from astra.benchmarks.types import Ask, CallText, Reply, RunError
from astra.caches import digest_of
from astra.chat import Chat, ChatError, NotTrainable
from astra.records import Message, Usage
from astra.training.policy import load_policy

RUNS_KEPT = 4  # whose key-value caches lie in memory


class LocalModel:
    """A model of ``transformers`` in this process."""

    at_once = RUNS_KEPT

    def __init__(self, label: str, how: Local, chat: Chat, policy: PreTrainedModel, content: str) -> None:
        self.label = label
        self.how = how
        self.chat = chat
        self.policy = policy
        self.content = content
        self.counts: Counter[str] = Counter()
        self._runs: OrderedDict[str, tuple[list[int], DynamicCache]] = OrderedDict()
        self._device = next(policy.parameters()).device

    @classmethod
    def load(cls, label: str, how: Local) -> LocalModel:
        """The model of a folder or a hub id. Raises ChatError, also where there is none."""
        try:
            chat, policy = Chat.load(how.name), load_policy(how.name)
        except (OSError, ValueError) as error:  # transformers' words for no such model, and for one it cannot build
            raise ChatError(f"{how.name}: cannot be loaded: {' '.join(str(error).split())[:300]}") from error
        policy.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        folder = Path(how.name)
        revision = getattr(policy.config, "_commit_hash", None)
        return cls(label, how, chat, policy, digest_of(folder) if folder.is_dir() else f"{how.name}@{revision}")

    @property
    def identity(self) -> dict[str, Any]:
        return {"content": self.content, **self.how.model_dump(mode="json", exclude={"name"})}

    def recall(self, usage: Usage) -> None:
        self.counts += Counter(usage.model_dump())

    def usage(self) -> dict[str, Any]:
        return dict(self.counts)

    async def ask(self, ask: Ask, draw: Draw) -> Answer:
        """One reply, computed in the calling thread. Raises RunError where the template refuses the conversation."""
        n_calls = sum(len(one.get("tool_calls") or ()) for one in ask.messages)
        try:
            prompt = self.chat.prompt([_readable(one) for one in ask.messages], [sent_tool(one) for one in ask.tools])
        except (ChatError, NotTrainable, TemplateError, TypeError, ValueError) as error:
            raise RunError("template_refuses", f"{self.how.name}: {error}") from error
        most = min(self.how.max_tokens, int(ask.options.get("max_tokens") or self.how.max_tokens))
        if len(prompt) + most > self.how.context:
            return Answer(Reply(stop="context"), NOTHING)
        temperature = self.how.temperature if draw.temperature is None else draw.temperature
        generator = torch.Generator(self._device).manual_seed(draw.number * 1009 + draw.turn)
        ids = self._replied(draw.run, prompt, most, temperature, draw.top_p, generator)
        usage = Usage(calls=1, prompt_tokens=len(prompt), completion_tokens=len(ids))
        self.recall(usage)
        return Answer(self._reply(ids, n_calls), usage)

    def _reply(self, ids: list[int], n_calls: int) -> Reply:
        """The reply in these ids; one that was cut is text, its calls are not read."""
        if not ids or ids[-1] != self.chat.end:
            return Reply(content=self.chat.text(ids), stop="length")
        message = self.chat.parse(ids, n_calls + 1)
        calls = [
            CallText(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in message.tool_calls
        ]
        return Reply(content=message.content, tool_calls=calls, stop="tool_calls" if calls else "stop")

    @torch.no_grad()
    def _replied(
        self, run: str, prompt: Sequence[int], most: int, temperature: float, top_p: float | None,
        generator: torch.Generator,
    ) -> list[int]:  # fmt: skip
        """Ids up to the end token, that included, or ``most`` of them."""
        known, cache = self._runs.pop(run, ([], DynamicCache()))
        shared = _shared(known, prompt)
        if shared < len(known):
            cache = self._cut(cache, shared)
            shared = min(shared, cache.get_seq_length())
        logits = self._forward(prompt[shared:], cache)
        reply: list[int] = []
        while True:
            reply.append(_drawn(logits, temperature, top_p, generator))
            if reply[-1] == self.chat.end or len(reply) >= most:
                break
            logits = self._forward(reply[-1:], cache)
        self._runs[run] = ([*prompt, *reply[:-1]], cache)
        while len(self._runs) > RUNS_KEPT:
            self._runs.popitem(last=False)
        return reply

    @staticmethod
    def _cut(cache: DynamicCache, length: int) -> DynamicCache:
        """The cache of the first tokens only; a new one where a model's cache cannot be cut."""
        surplus = cache.get_seq_length() - length
        if not length or not cache.is_croppable:
            return DynamicCache()
        if surplus > 0:
            cache.crop(-surplus)  # the form that says how many go
        return cache

    def _forward(self, ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        """Logits behind the last of these ids, (V,)."""
        fed = torch.tensor([list(ids)], device=self._device)
        out = self.policy(input_ids=fed, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = out.logits[0, -1].float()
        return logits


def _shared(known: Sequence[int], prompt: Sequence[int]) -> int:
    """How many ids both begin with; the last of the prompt is always computed, since its logits are wanted."""
    count = 0
    for one, other in zip(known, prompt[:-1], strict=False):
        if one != other:
            break
        count += 1
    return count


def _drawn(logits: torch.Tensor, temperature: float, top_p: float | None, generator: torch.Generator) -> int:
    if temperature <= 0:
        return int(logits.argmax())
    chances = torch.softmax(logits / temperature, -1)
    if top_p is not None and top_p < 1:
        ordered, places = chances.sort(descending=True)
        outside = ordered.cumsum(-1) - ordered >= top_p  # the one that crosses top_p still counts
        chances = chances.index_fill(0, places[outside], 0.0)
    return int(torch.multinomial(chances, 1, generator=generator))


def _readable(document: dict[str, Any]) -> Message:
    """A message for the template, which wants arguments as an object: a call without one stays as the text it was."""
    message = message_of(document)
    kept = tuple(call for call in message.tool_calls if _is_object(call.function.arguments))
    if len(kept) == len(message.tool_calls):
        return message
    said = [call.function.arguments for call in message.tool_calls if call not in kept]
    content = "\n".join(one for one in (message.content or "", *said) if one)
    return message.model_copy(update={"tool_calls": kept, "content": content})


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
