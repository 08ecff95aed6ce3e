"""The models of one stage run: a client per role, one event loop, one store of replies, one purse."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from types import TracebackType
from typing import Any, NoReturn, Protocol

from astra.llm.builtin import BuiltinTransport
from astra.llm.client import Client
from astra.llm.dialect import Dialect
from astra.llm.errors import EndpointUnavailable
from astra.llm.loop import Loop
from astra.llm.meter import FREE, Meter, Purse, others_usd, price_of
from astra.llm.openai import Address, OpenAITransport
from astra.llm.store import ReplyStore, request_key
from astra.llm.types import Budget, Completion, ModelParams, Request, Role, Settings, Transport
from astra.records import KeptReply

REPLAY = "ASTRA_REPLAY"


def _builtin(role: Role, store: ReplyStore | None) -> Transport:
    return BuiltinTransport()


def _openai(role: Role, store: ReplyStore | None) -> Transport:
    """The endpoint that the environment names for a role, with what it was found to take before."""
    address = Address.from_environment(role)
    if store is None:
        return OpenAITransport(address)
    known = store.dialect(address.shown)
    return OpenAITransport(
        address,
        dialect=Dialect(**known) if known else Dialect(),
        settled=known is not None,
        remember=lambda found: store.remember_dialect(address.shown, asdict(found)),
    )


def is_replay() -> bool:
    """Whether only kept replies count: ASTRA_REPLAY is set, and not to a word for no."""
    return os.environ.get(REPLAY, "").strip().lower() not in ("", "0", "no", "off", "false")


TRANSPORTS: dict[str, Callable[[Role, ReplyStore | None], Transport]] = {"builtin": _builtin, "openai": _openai}


class Replay:
    """Stands where an endpoint would: only kept replies count."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    async def send(self, request: Request) -> Completion:
        """Raises EndpointUnavailable: this reply is not kept."""
        self._missing(request)

    def _missing(self, request: Request) -> NoReturn:
        raise EndpointUnavailable(
            f"{REPLAY} is set and model {request.model.name} has no kept reply for request {request_key(request)[:16]} "
            f"of {self.stage}. Bring the replies in: dvc pull, then python -m astra.llm import FILES. Or "
            f"unset {REPLAY} to ask"
        )


class Named(Protocol):
    @property
    def name(self) -> str: ...


class StageRun(Protocol):
    """What is needed of a stage's run."""

    params: dict[str, Any]
    settings: dict[str, Any]
    metrics: dict[str, Any]
    usage: str
    spent: Callable[[], str] | None

    @property
    def contract(self) -> Named: ...

    @property
    def estimating(self) -> bool: ...

    def write_replies(self, replies: Iterator[KeptReply]) -> None: ...


class Models:
    """Opens clients by role; at a clean end the run gets their metrics and the kept replies that were used.

    An estimate asks nobody: replies that are not kept come from the built-in rules, priced as the model that params
    name, and nothing is kept or written.
    """

    def __init__(self, run: StageRun) -> None:
        self.run = run
        self.stage = run.contract.name
        self.settings: Settings = run.settings["llm"]
        self.loop = Loop()
        self.purse = Purse(self.stage, self.settings.budget, others_usd(self.stage))
        self.clients: dict[Role, Client] = {}
        self._store: ReplyStore | None = None
        self._open = ExitStack()
        run.spent = lambda: self.summary

    def params_of(self, role: Role) -> ModelParams:
        """What params.yaml says of a role's model."""
        found = self.run.params[f"models.{role}"]
        assert isinstance(found, ModelParams)
        return found

    def client(self, role: Role) -> Client:
        """The client of a role. Raises EndpointUnavailable where the environment names no endpoint for it."""
        if role not in self.clients:
            self.clients[role] = self._client(role)
        return self.clients[role]

    def _client(self, role: Role) -> Client:
        model = self.params_of(role)
        store = None if model.transport == "builtin" else self.store()
        meter = Meter(price_of(model, self.settings.prices, self.settings.budget), self.purse)
        if self.run.estimating:
            free = Purse(self.stage, self.settings.budget.model_copy(update={"stage_usd": None, "run_usd": None}))
            meter = Meter(meter.price, free)
            return Client(BuiltinTransport(), self.settings, meter, self.loop, store, keeps=False)
        if store is not None and is_replay():
            return Client(Replay(self.stage), self.settings, meter, self.loop, store)
        transport = TRANSPORTS[model.transport](role, store)
        if isinstance(transport, OpenAITransport):
            transport.check(model.name)
        return Client(transport, self.settings, meter, self.loop, store)

    def store(self) -> ReplyStore:
        """The kept replies."""
        if self._store is None:
            self._store = ReplyStore()
            self._open.callback(self._store.close)
        return self._store

    def kept(self) -> Iterator[KeptReply]:
        """The kept replies that this run used, in the order of their keys."""
        if self._store is None:
            return
        keys = sorted(set().union(*(client.used for client in self.clients.values())))
        for key, reply in self._store.rows(one.hex() for one in keys):
            yield KeptReply(key=key, **json.loads(reply))

    def metrics(self) -> dict[str, Any]:
        """What each role asked and cost, for the stage's metrics."""
        return {role: client.metrics() for role, client in sorted(self.clients.items())}

    @property
    def summary(self) -> str:
        """For the closing line: ``340 calls (310 cached), 52100 tokens, 0.41 USD``."""
        meters = [client.meter for client in self.clients.values()]
        calls, cached = sum(one.calls for one in meters), sum(one.cached for one in meters)
        tokens = sum(one.prompt_tokens + one.completion_tokens for one in meters)
        retries, cost = sum(one.retries for one in meters), sum(one.cost_usd for one in meters)
        parts = [f"{calls} calls" + (f" ({cached} cached)" if cached else ""), f"{tokens} tokens"]
        parts += [f"{retries} retries"] if retries else []
        parts += [f"{cost:.2f} USD"] if cost else []
        return ", ".join(parts)

    def estimated(self) -> str:
        """What a run would ask for and cost, from what an estimate counted."""
        lines = [f"estimate for {self.stage}: simulated with the built-in rules; nothing was asked or written"]
        for role, client in sorted(self.clients.items()):
            one, model = client.meter, self.params_of(role)
            lines.append(
                f"  {role} ({model.name}): {one.calls} calls, {one.cached} of them kept already; "
                f"{one.prompt_tokens} prompt and {one.completion_tokens} completion tokens; {one.cost_usd:.4f} USD, "
                f"{one.new_usd:.4f} of it still to pay"
            )
        return "\n".join(lines)

    def __enter__(self) -> Models:
        self._open.enter_context(self.loop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self.run.write_replies(self.kept())
                self.run.metrics["models"] = self.metrics()
                self.run.usage = self.estimated() if self.run.estimating else self.summary
            for client in self.clients.values():
                close = getattr(client.transport, "aclose", None)
                if close is not None:
                    self.loop.run(close())
        finally:
            self._open.close()


def builtin_client(concurrency: int = 16, loop: Loop | None = None) -> Client:
    """A client of the built-in rules outside a stage."""
    budget = Budget(stage_usd=None, run_usd=None)
    settings = Settings(
        concurrency=concurrency, attempts=1, timeout_s=600, deadline_s=600, max_wait_s=1, budget=budget, prices={}
    )
    return Client(BuiltinTransport(), settings, Meter(FREE, Purse("", budget)), loop)
