"""Tools of which only the document is there, answered by a model that plays their server.

Paper section 3.2.3. The model sees the state of the world (``world``) and every earlier call of the session with its
result. What can be held mechanically is: arguments are checked before and results after the model; a reading that is
repeated with nothing written in between returns what it returned; a thing that was deleted is not found; an answer that
contradicts the state is asked for again with what is wrong, and a conversation in which it stays so is a reject.
Failures of the network come from a plan that is drawn before the conversation (``faults``) and stand in
``Observation.fault``. None of them changes the state: a call that fails never reached the server, and what the client
gets of a ``partial`` or ``stale`` answer is not what the history holds.

Departures: the authors' emulator sees the last five calls only, takes prose for a result, is shown the user's question
in half of the conversations (ours never is: a server does not know why it is called), and has no stream of failures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from astra.environments.arguments import refused, validator
from astra.environments.base import Observation
from astra.environments.faults import TRANSPORT, Fault, FaultPlan, broken_off, out_of_date
from astra.environments.naming import reads_only
from astra.environments.world import Exchange, World
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


class EmulatorReplyInvalid(Exception):
    """The model gave no usable result for a call, however often it was asked: this conversation did not work out."""


class EmulatorContradiction(EmulatorReplyInvalid):
    """Its last reply contradicted what it had said of the same world before."""


class Asks(Protocol):
    """What an emulator needs of ``astra.llm``'s client."""

    async def ask(self, request: Request) -> Completion: ...


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
    plan: FaultPlan = field(init=False)
    world: World = field(init=False, default_factory=World)
    history: list[Exchange] = field(init=False, default_factory=list)
    _n_calls: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.plan = FaultPlan.drawn(f"{self.key}:{self.server.id}", self.fault_rate)

    async def call(self, call: ToolCall) -> Observation:
        """Execute one call. Raises EmulatorContradiction or EmulatorReplyInvalid, or what the client raises."""
        tool = next(one for one in self.tools if one.name == call.function.name)
        arguments = json.loads(call.function.arguments)
        wrong = refused(tool, arguments)
        if wrong is not None:
            return wrong
        fault, self._n_calls = self.plan.at(self._n_calls), self._n_calls + 1
        if fault is None:
            return _observed(await self._answer(tool, arguments))
        return await self._failing(fault, tool, arguments)

    def note(self, call: ToolCall, seen: Observation) -> None:
        """Take into the history what another executor answered for the same server."""
        outcome: dict[str, Any] = {"error": seen.content} if seen.is_error else {"result": _as_json(seen.content)}
        self._take(Exchange(call.function.name, json.loads(call.function.arguments), **outcome))

    # ----------------------------------------------------- failures of the network

    async def _failing(self, fault: Fault, tool: ToolSpec, arguments: dict[str, Any]) -> Observation:
        """What the client gets of a call that the plan lets fail."""
        if fault.kind not in TRANSPORT and reads_only(tool.name):
            seen = await self._spoiled(fault, tool, arguments)
            if seen is not None:
                return seen
        kind = fault.kind if fault.kind in TRANSPORT else fault.otherwise
        return Observation(TRANSPORT[kind], True, "emulator", kind)

    async def _spoiled(self, fault: Fault, tool: ToolSpec, arguments: dict[str, Any]) -> Observation | None:
        """A reading's answer, cut or from a cache; None where there is none. Only the whole, true one is kept."""
        before = self._earlier(tool, arguments)
        truth = await self._answer(tool, arguments)
        if truth.error is not None:
            return None
        if fault.kind == "partial":
            return Observation(broken_off(_text(truth.result)), True, "emulator", fault.kind)
        cached = [self.world.earlier(truth), before.result if before is not None else None]
        valid = validator(tool.returns or {}).is_valid
        stale = next((one for one in cached if one is not None and valid(one)), truth.result)
        return Observation(out_of_date(_text(stale), fault.age_min), False, "emulator", fault.kind)

    def _earlier(self, tool: ToolSpec, arguments: dict[str, Any]) -> Exchange | None:
        """The same reading's last answer."""
        return next(
            (
                one
                for one in reversed(self.history)
                if (one.tool, one.arguments) == (tool.name, arguments) and one.error is None
            ),
            None,
        )

    # ----------------------------------------------------- the server

    async def _answer(self, tool: ToolSpec, arguments: dict[str, Any]) -> Exchange:
        """What the server returns, taken into the world."""
        missing = self.world.missing(tool.name, arguments)
        exchange = Exchange(tool.name, arguments, error=missing) if missing else self._repeated(tool.name, arguments)
        exchange = exchange or await self._ask(tool, arguments)
        self._take(exchange)
        return exchange

    def _take(self, exchange: Exchange) -> None:
        self.history.append(exchange)
        self.world.take(exchange)

    def _repeated(self, tool: str, arguments: dict[str, Any]) -> Exchange | None:
        """The exchange that this call repeats, where nothing since can have changed its result."""
        for earlier in reversed(self.history):
            if not reads_only(earlier.tool):
                return None
            if (earlier.tool, earlier.arguments) == (tool, arguments):
                return earlier
        return None

    async def _ask(self, tool: ToolSpec, arguments: dict[str, Any]) -> Exchange:
        """What the model says that the server returns; an unusable reply is answered with what is wrong with it."""
        messages = (Message(role="user", content=self._prompt(tool, arguments)),)
        request = Request(model=self.model, messages=messages, seed=self.seed, json_schema=REPLY)
        ended: type[EmulatorReplyInvalid] = EmulatorReplyInvalid

        def read(reply: Completion) -> Exchange:
            nonlocal ended
            ended = EmulatorReplyInvalid
            exchange = read_reply(tool, arguments, reply.content or "")
            contradiction = self.world.contradiction(exchange)
            if contradiction is not None:
                ended = EmulatorContradiction
                raise ReplyInvalid(f"it contradicts this session: {contradiction}")
            return exchange

        try:
            return await ask_structured(self.client, request, read, self.reasks)
        except RequestRefused as refusal:
            if refusal.reason not in ("reply_invalid", "reply_truncated"):
                raise
            where = f"{self.server.name}.{tool.name}"
            ended = ended if refusal.reason == "reply_invalid" else EmulatorReplyInvalid
            raise ended(f"{where}: {self.reasks + 1} replies, the last: {refusal.detail}") from refusal

    def _prompt(self, tool: ToolSpec, arguments: dict[str, Any]) -> str:
        shown = {
            "server": {"title": self.server.title, "description": self.server.description},
            "tool": tool.model_dump(include={"name", "description", "parameters", "returns"}),
            "arguments": arguments,
            "state": self.world.shown(),
            "history": [exchange.shown() for exchange in self.history],
        }
        return render("trajectories/emulate", input=json.dumps(shown, ensure_ascii=False))


def _observed(exchange: Exchange) -> Observation:
    if exchange.error is not None:
        return Observation(exchange.error, True, "emulator")
    return Observation(_text(exchange.result), False, "emulator")


def _text(result: Any) -> str:
    return json.dumps(result, ensure_ascii=False)


def _as_json(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content


def read_reply(tool: ToolSpec, arguments: dict[str, Any], text: str) -> Exchange:
    """The exchange in a model's reply. Raises ReplyInvalid where it is not one or breaks the tool's schema."""
    value = parse_json(text)
    if not isinstance(value, dict) or len(value.keys() & {"result", "error"}) != 1:
        raise ReplyInvalid('expected {"result": ...} or {"error": "..."}')
    if "error" in value:
        if not (isinstance(value["error"], str) and value["error"].strip()):
            raise ReplyInvalid("error must be a text")
        return Exchange(tool.name, arguments, error=value["error"])
    for error in validator(tool.returns or {}).iter_errors(value["result"]):
        raise ReplyInvalid(f"the result breaks the tool's schema at {error.json_path}: {error.message[:200]}")
    return Exchange(tool.name, arguments, result=value["result"])
