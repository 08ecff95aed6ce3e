"""Asking models: one client for every stage, any transport behind it."""

from __future__ import annotations

from collections.abc import Callable

from astra.llm.builtin import BuiltinTransport
from astra.llm.client import Client
from astra.llm.errors import EndpointUnavailable, RequestRefused
from astra.llm.openai import OpenAITransport
from astra.llm.types import Completion, ModelParams, Request, Transport

TRANSPORTS: dict[str, Callable[[], Transport]] = {
    "builtin": BuiltinTransport,
    "openai": OpenAITransport.from_environment,
}

CONCURRENCY = 16
RETRIES = 5


def open_client(model: ModelParams, concurrency: int = CONCURRENCY, retries: int = RETRIES) -> Client:
    """A client for one role's model. Raises EndpointUnavailable where the environment names no endpoint."""
    return Client(TRANSPORTS[model.transport](), concurrency, retries)


__all__ = [
    "TRANSPORTS",
    "Client",
    "Completion",
    "EndpointUnavailable",
    "ModelParams",
    "Request",
    "RequestRefused",
    "Transport",
    "open_client",
]
