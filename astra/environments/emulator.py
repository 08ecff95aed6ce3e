"""Tools of which only the document is there, answered by a model that plays their server.

Paper section 3.2.3. The model sees every earlier call of the session with its result, so that there is one world; what
can be held mechanically is: arguments are checked before and results after the model, and a reading that is repeated
with nothing written in between returns what it returned. Failures of the network are drawn from a seeded stream per
call and stand in ``Observation.fault``; such a call never reached the server and changes nothing.

Departures: the authors' emulator sees the last five calls only, takes prose for a result, is shown the user's question
in half of the conversations (ours never is: a server does not know why it is called), and has no stream of failures.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import jsonschema

from astra.environments.base import Observation
from astra.llm.errors import RequestRefused
from astra.llm.reply import ReplyInvalid, parse_json
from astra.llm.structured import ask_structured
from astra.llm.types import Completion, ModelParams, Request
from astra.prompts import render
from astra.records import Message, Server, ToolCall, ToolSpec

REPLY = {
    "type": "object",
    "anyOf": [
        {"properties": {"result": {}}, "required": ["result"]},
        {"properties": {"error": {"type": "string"}}, "required": ["error"]},
    ],
}
FAULTS = {
    "timeout": "Request timed out after 30 s.",
    "unreachable": "Could not connect to the server.",
    "rate_limit": "Too many requests (429). Try again later.",
    "server_error": "Internal server error (500).",
}

READING_VERBS = frozenset({
    "browse", "calculate", "check", "compare", "compute", "convert", "count", "describe", "detect", "download",
    "estimate", "explain", "export", "fetch", "find", "get", "inspect", "list", "look", "lookup", "preview",
    "query", "read", "resolve", "search", "show", "summarize", "track", "translate", "validate", "verify",
    "view",
})  # fmt: skip


class EmulatorReplyInvalid(Exception):
    """The model gave no usable result for a call, however often it was asked: this conversation did not work out."""


class Asks(Protocol):
    """What an emulator needs of ``astra.llm``'s client."""

    async def ask(self, request: Request) -> Completion: ...


@dataclass(frozen=True)
class Exchange:
    """A call that reached the server, and what it returned."""

    tool: str
    arguments: dict[str, Any]
    result: Any = None
    error: str | None = None

    def shown(self) -> dict[str, Any]:
        outcome = {"result": self.result} if self.error is None else {"error": self.error}
        return {"tool": self.tool, "arguments": self.arguments, **outcome}


@dataclass
class Emulator:
    """One session with an emulated server. ``key`` (seed:task:attempt) decides which calls fail and how."""

    server: Server
    tools: tuple[ToolSpec, ...]
    client: Asks
    model: ModelParams
    seed: int
    key: str
    fault_rate: float
    reasks: int
    _history: list[Exchange] = field(default_factory=list)
    _n_calls: int = 0

    async def call(self, call: ToolCall) -> Observation:
        """Execute one call. Raises EmulatorReplyInvalid, or what the client raises."""
        index, self._n_calls = self._n_calls, self._n_calls + 1
        fault = drawn_fault(self.key, index, self.fault_rate)
        if fault is not None:
            return Observation(FAULTS[fault], True, "emulator", fault)
        tool = next(one for one in self.tools if one.name == call.function.name)
        arguments = json.loads(call.function.arguments)
        wrong = argument_errors(tool, arguments)
        if wrong:
            return Observation(wrong, True, "emulator")
        exchange = self._repeated(tool.name, arguments) or await self._ask(tool, arguments)
        self._history.append(exchange)
        if exchange.error is not None:
            return Observation(exchange.error, True, "emulator")
        return Observation(json.dumps(exchange.result, ensure_ascii=False), False, "emulator")

    def note(self, call: ToolCall, seen: Observation) -> None:
        """Take into the history what another executor answered for the same server."""
        outcome: dict[str, Any] = {"error": seen.content} if seen.is_error else {"result": _as_json(seen.content)}
        self._history.append(Exchange(call.function.name, json.loads(call.function.arguments), **outcome))

    def _repeated(self, tool: str, arguments: dict[str, Any]) -> Exchange | None:
        """The exchange that this call repeats, where nothing since can have changed its result."""
        for earlier in reversed(self._history):
            if not reads_only(earlier.tool):
                return None
            if (earlier.tool, earlier.arguments) == (tool, arguments):
                return earlier
        return None

    async def _ask(self, tool: ToolSpec, arguments: dict[str, Any]) -> Exchange:
        """What the model says that the server returns; an unusable reply is answered with what is wrong with it."""
        messages = (Message(role="user", content=self._prompt(tool, arguments)),)
        request = Request(model=self.model, messages=messages, seed=self.seed, json_schema=REPLY)
        try:
            return await ask_structured(
                self.client, request, lambda reply: read_reply(tool, arguments, reply.content or ""), self.reasks
            )
        except RequestRefused as refusal:
            if refusal.reason not in ("reply_invalid", "reply_truncated"):
                raise
            where = f"{self.server.name}.{tool.name}"
            raise EmulatorReplyInvalid(f"{where}: {self.reasks + 1} replies, the last: {refusal.detail}") from refusal

    def _prompt(self, tool: ToolSpec, arguments: dict[str, Any]) -> str:
        shown = {
            "server": {"title": self.server.title, "description": self.server.description},
            "tool": tool.model_dump(include={"name", "description", "parameters", "returns"}),
            "arguments": arguments,
            "history": [exchange.shown() for exchange in self._history],
        }
        return render("trajectories/emulate", input=json.dumps(shown, ensure_ascii=False))


def _as_json(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content


def drawn_fault(key: str, index: int, rate: float) -> str | None:
    """The failure of the index-th call of a conversation, or none; one stream per (seed, task, attempt, call)."""
    draw = random.Random(f"{key}:{index}")
    return draw.choice(sorted(FAULTS)) if draw.random() < rate else None


def reads_only(tool: str) -> bool:
    """Whether a name says that the tool only reads: its first word is a reading verb. Doubt counts as writing."""
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in tool).replace("-", "_").split("_")
    first = next((word.lower() for word in words if word), "")
    return first in READING_VERBS


def argument_errors(tool: ToolSpec, arguments: dict[str, Any]) -> str:
    """What a server says of arguments that its schema does not take; empty where they fit."""
    errors = sorted(
        jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments), key=lambda one: one.json_path
    )
    return "; ".join(_argument_error(one) for one in errors[:3])


def _argument_error(error: jsonschema.ValidationError) -> str:
    where = error.json_path.removeprefix("$").removeprefix(".")
    if error.validator == "required":
        required, instance = cast("list[str]", error.validator_value), cast("dict[str, Any]", error.instance)
        missing = next(name for name in required if name not in instance)
        return f"missing parameter: {where}.{missing}".replace(": .", ": ")
    return f"invalid parameter {where or 'object'}: {error.message[:200]}"


def read_reply(tool: ToolSpec, arguments: dict[str, Any], text: str) -> Exchange:
    """The exchange in a model's reply. Raises ReplyInvalid where it is not one or breaks the tool's schema."""
    value = parse_json(text)
    if not isinstance(value, dict) or len(value.keys() & {"result", "error"}) != 1:
        raise ReplyInvalid('expected {"result": ...} or {"error": "..."}')
    if "error" in value:
        if not (isinstance(value["error"], str) and value["error"].strip()):
            raise ReplyInvalid("error must be a text")
        return Exchange(tool.name, arguments, error=value["error"])
    for error in jsonschema.Draft202012Validator(tool.returns or {}).iter_errors(value["result"]):
        raise ReplyInvalid(f"the result breaks the tool's schema at {error.json_path}: {error.message[:200]}")
    return Exchange(tool.name, arguments, result=value["result"])
