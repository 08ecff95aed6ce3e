"""Models that are measured: one ``ask`` for an endpoint and, in ``astra.training.local_model``, for local weights.

An endpoint is asked through the client that all stages use: bounded retries, and a store of replies, so that what was
paid survives a kill. What the model itself does badly (a prompt that it cannot take, a refusal, calls that are none) is
its reply; what the machinery does badly is a RunError, which is no reply and no score.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import Discriminator, Field, Tag

from astra.benchmarks.types import Ask, CallText, Reply, RunError
from astra.llm.client import Client
from astra.llm.dialect import Dialect
from astra.llm.errors import BudgetSpent, EndpointUnavailable, RequestRefused
from astra.llm.loop import Loop
from astra.llm.meter import Meter, Purse, others_usd, price_of
from astra.llm.models import Replay, is_replay
from astra.llm.openai import Address, OpenAITransport
from astra.llm.store import ReplyStore
from astra.llm.types import Completion, ModelParams, Request, Settings, Transport
from astra.records import FunctionCall, Message, Section, ToolCall, ToolSpec, Usage

PASSED_ON = ("tool_choice", "parallel_tool_calls", "response_format", "stop")  # of a benchmark's options, as they are
OWN_FAILURES = ("refused", "filtered")  # what a model that is served with a filter answers


class Endpoint(ModelParams):
    """A model behind an address: ASTRA_EVAL_<LABEL>_BASE_URL, ASTRA_EVAL_BASE_URL or OPENAI_BASE_URL, and its key."""

    transport: Literal["openai"] = Field(description="An endpoint of OpenAI chat completions.")


class Local(Section):
    """Weights in a folder or on a hub, played in this process; a large model is better served and asked as endpoint."""

    transport: Literal["local"] = Field(description="Weights that are loaded here.")
    name: str = Field(min_length=1, description="A folder, e.g. models/sft, or a hub id.")
    temperature: float = Field(default=0.0, ge=0, le=2, description="Of benchmarks; arenas have both modes. 0: greedy.")
    max_tokens: int = Field(ge=8, description="Tokens of one reply.")
    context: int = Field(
        ge=256, description="Tokens of prompt and reply that it is asked for at most; more is the model's failure."
    )


def _transport(value: Any) -> Any:
    return value.get("transport") if isinstance(value, dict) else getattr(value, "transport", None)


Named = Annotated[
    Annotated[Local, Tag("local")] | Annotated[Endpoint, Tag("openai")],
    Discriminator(
        _transport, custom_error_type="transport", custom_error_message="transport must be local or openai",
        custom_error_context=None,
    ),
]  # fmt: skip
"""A model that params name."""


class Draw(Section):
    """Which reply is drawn: the same one gives the same reply."""

    seed: int
    benchmark: str
    case: str
    trial: int
    turn: int
    again: int = 0  # times that the same was asked just before: some benchmarks ask again after an empty reply
    temperature: float | None = None  # where the benchmark is run at another than the model's
    top_p: float | None = None

    @property
    def run(self) -> str:
        return f"{self.benchmark}:{self.case}:{self.trial}"

    @property
    def number(self) -> int:
        """A seed of its own for every run, in 31 bits: some servers take no more."""
        digest = hashlib.sha256(f"{self.seed}:{self.run}".encode()).digest()
        return int.from_bytes(digest[:4]) >> 1


class Answer(NamedTuple):
    """A reply, and what it used."""

    reply: Reply
    usage: Usage


NOTHING = Usage(calls=0, prompt_tokens=0, completion_tokens=0)


class Model(Protocol):
    """Whoever replies."""

    label: str

    @property
    def at_once(self) -> int:
        """Runs that are worth playing side by side."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """Everything of the model and its sampling that decides a reply; no address, no key."""
        ...

    async def ask(self, ask: Ask, draw: Draw) -> Answer:
        """One reply. Raises RunError for this run, and Unavailable where nothing can go on."""
        ...

    def recall(self, usage: Usage) -> None:
        """Count what a case used that was played before: it was paid, and the totals do not depend on a kill."""
        ...

    def usage(self) -> dict[str, Any]:
        """What was asked and used so far."""
        ...


class SentMessage(Message):
    """A message that reaches the model word for word as the benchmark wrote it."""

    document: dict[str, Any]

    def openai(self) -> dict[str, Any]:
        return self.document


class SentTool(ToolSpec):
    """A tool's document that reaches the model as the benchmark wrote it, with whatever else stands in it."""

    document: dict[str, Any]

    def openai(self) -> dict[str, Any]:
        return self.document


def sent_message(document: dict[str, Any]) -> SentMessage:
    """A message of a benchmark; its role and what it says are read, nothing is changed."""
    return SentMessage.model_construct(
        role=document["role"], content=text_of(document.get("content")), document=document
    )


def sent_tool(document: dict[str, Any]) -> SentTool:
    """A tool of a benchmark; a name that we would not give passes too, since the benchmark chose it."""
    function = document["function"]
    return SentTool.model_construct(
        name=function["name"],
        description=function.get("description", ""),
        parameters=function.get("parameters", {}),
        document=document,
    )


def text_of(content: Any) -> str | None:
    """A message's text, also where it stands in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return None if content is None else str(content)


def message_of(document: dict[str, Any]) -> Message:
    """A message of a benchmark as a record of ours."""
    calls = tuple(
        ToolCall(
            id=str(call.get("id", "")),
            function=FunctionCall(name=call["function"]["name"], arguments=call["function"]["arguments"]),
        )
        for call in document.get("tool_calls") or ()
    )
    return Message(
        role=document["role"],
        content=text_of(document.get("content")),
        tool_calls=calls,
        tool_call_id=document.get("tool_call_id"),
        name=document.get("name"),
    )


def reply_message(reply: Reply) -> Message:
    """A reply as a record of ours."""
    calls = tuple(
        ToolCall(id=one.id, function=FunctionCall(name=one.name, arguments=one.arguments)) for one in reply.tool_calls
    )
    return Message(role="assistant", content=reply.content, tool_calls=calls)


@dataclass
class EndpointModel:
    """An endpoint. As ``user`` its own failures are the machinery's: they say nothing of the model that is measured."""

    label: str
    model: Endpoint
    client: Client
    is_user: bool = False

    @property
    def at_once(self) -> int:
        return self.client.settings.concurrency

    @property
    def identity(self) -> dict[str, Any]:
        return self.model.model_dump(mode="json", exclude={"min_prompt_share"})

    def usage(self) -> dict[str, Any]:
        return self.client.metrics()

    def recall(self, usage: Usage) -> None:
        if usage.calls:
            self.client.meter.count(Completion(content=None, finish_reason="stop", usage=usage, cached=True))

    async def ask(self, ask: Ask, draw: Draw) -> Answer:
        """Raises RunError, and BudgetSpent, where nothing may be asked any more."""
        try:
            completion = await self.client.ask(self._request(ask, draw))
            return Answer(reply_of(completion), completion.usage)
        except RequestRefused as refusal:
            return Answer(self._refused(refusal), NOTHING)
        except BudgetSpent:
            raise
        except EndpointUnavailable as failure:
            raise RunError("endpoint_down", str(failure)) from None

    def _refused(self, refusal: RequestRefused) -> Reply:
        if self.is_user:
            raise RunError(f"user_{refusal.reason}", refusal.detail)
        if refusal.reason == "overlong":
            return Reply(stop="context")
        if refusal.reason in OWN_FAILURES:
            return Reply(content=refusal.detail if refusal.reason == "refused" else None)
        raise RunError(refusal.reason, refusal.detail)

    def _request(self, ask: Ask, draw: Draw) -> Request:
        passed = {name: ask.options[name] for name in PASSED_ON if name in ask.options}
        changed: dict[str, Any] = {"extra": {**passed, **self.model.extra}}
        if not self.is_user:
            changed |= {"temperature": draw.temperature} if draw.temperature is not None else {}
            changed |= {"top_p": draw.top_p} if draw.top_p is not None else {}
        most = ask.options.get("max_tokens")
        if isinstance(most, int):
            changed["max_tokens"] = min(most, self.model.max_tokens)
        return Request(
            model=self.model.model_copy(update=changed),
            messages=tuple(map(sent_message, ask.messages)),
            tools=tuple(map(sent_tool, ask.tools)),
            seed=draw.number,
            sample=draw.again,
        )


def reply_of(completion: Completion) -> Reply:
    """An endpoint's completion; calls keep the text that the model wrote."""
    calls = [
        CallText(id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in completion.tool_calls
    ]
    stop = "length" if completion.finish_reason == "length" else "tool_calls" if calls else "stop"
    return Reply(content=completion.content, tool_calls=calls, stop=stop)  # type: ignore[arg-type]


def purse_of(settings: Settings, stage: str = "eval") -> Purse:
    """What the stage may still pay; one for all its models."""
    return Purse(stage, settings.budget, others_usd(stage))


@dataclass
class Endpoints:
    """Opens endpoints that share a loop and a store of replies: a model that is measured, and the one that plays users.

    Another model wants a loop of its own, since an endpoint that is down stops its loop.
    """

    settings: Settings
    loop: Loop
    purse: Purse

    def __post_init__(self) -> None:
        self.opened: list[EndpointModel] = []
        self._store: ReplyStore | None = None

    def open(self, label: str, model: Endpoint, is_user: bool = False) -> EndpointModel:
        """Raises EndpointUnavailable where no address is named, or what it lists says that nothing can come of it."""
        if self._store is None:
            self._store = ReplyStore()
        meter = Meter(price_of(model, self.settings.prices, self.settings.budget), self.purse)
        client = Client(self._transport(label, model, self._store), self.settings, meter, self.loop, self._store)
        found = EndpointModel(label, model, client, is_user)
        self.opened.append(found)
        return found

    def _transport(self, label: str, model: Endpoint, store: ReplyStore) -> Transport:
        if is_replay():
            return Replay(self.purse.stage)
        address = Address.from_environment(_role(label))
        known = store.dialect(address.shown)
        transport = OpenAITransport(
            address,
            dialect=Dialect(**known) if known else Dialect(),
            settled=known is not None,
            remember=lambda found: store.remember_dialect(address.shown, dataclasses.asdict(found)),
        )
        transport.check(model.name)
        return transport

    def close(self) -> None:
        """Close connections and store; the loop must still be open."""
        for one in self.opened:
            close = getattr(one.client.transport, "aclose", None)
            if close is not None:
                self.loop.run(close())
        if self._store is not None:
            self._store.close()


def _role(label: str) -> str:
    """The part of the variables' names that finds a model's address: its own where one is set, else eval's."""
    own = "eval_" + "".join(letter if letter.isalnum() else "_" for letter in label)
    return own if os.environ.get(f"ASTRA_{own.upper()}_BASE_URL") else "eval"
