"""Clients for tests: any transport, no store unless one is given, short pauses."""

from __future__ import annotations

from typing import Any

from astra.llm import Client, Settings, Transport
from astra.llm.meter import Meter, Purse
from astra.llm.store import ReplyStore
from astra.llm.types import Budget, Price

FREE = Price(prompt=0, completion=0)


def settings(**changes: Any) -> Settings:
    plain = {
        "concurrency": 4, "attempts": 1, "timeout_s": 20, "deadline_s": 30, "max_wait_s": 0.01,
        "budget": {"stage_usd": None, "run_usd": None}, "prices": {},
    }  # fmt: skip
    return Settings.model_validate(plain | changes)


def client_of(
    transport: Transport, store: ReplyStore | None = None, price: Price = FREE, budget: Budget | None = None,
    **changes: Any,
) -> Client:  # fmt: skip
    chosen = settings(**changes)
    return Client(transport, chosen, Meter(price, Purse("judge", budget or chosen.budget)), store=store)
