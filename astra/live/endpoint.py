"""A server at an address (MCP's streamable HTTP transport).

The SDK speaks the protocol; what it would hand on as a tool's error although no tool ever spoke (a refused connection,
an HTTP status without a JSON-RPC body, an expired session) ends the session here instead, with the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp import types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from astra.live.config import LiveConfig
from astra.live.errors import LiveServerLost

GRACE_S = 1.0
CONNECT_TIMEOUT_S = 30.0
MAX_EVENT_BYTES = 64 * 2**20
MAX_REASON = 200
HINTS = {
    401: "its headers lack the right key",
    403: "its headers lack the right key",
    404: "no MCP endpoint there, or the session has ended",
    405: "no streamable HTTP there; SSE alone is not supported",
}


class Refused(Exception):
    """An HTTP answer that is no MCP."""


class Endpoint:
    """A server's address with what went wrong there, if something did."""

    broken_codes = frozenset({types.PARSE_ERROR, types.INVALID_REQUEST})
    n_noise = 0
    heard = ""

    def __init__(self, config: LiveConfig) -> None:
        self.config = config
        self.failure = ""
        self.read: ReadStream[SessionMessage | Exception]
        self.write: WriteStream[SessionMessage]

    def is_gone(self) -> bool:
        return bool(self.failure)

    async def death(self) -> LiveServerLost:
        """The error for an address that stopped talking."""
        why = self.config.public(self.failure) or "it ended the connection"
        return LiveServerLost(self.config.name, self.config.public_address(), why)


class _Client(httpx2.AsyncClient):
    """An HTTP client that keeps why a message could not be delivered."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(headers=endpoint.config.sent_headers(), timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=None))
        self._endpoint = endpoint

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":  # the session's end is a courtesy that may not hold us up
            with anyio.fail_after(GRACE_S):
                return await super().send(request, **options)
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            self._endpoint.failure = ": ".join(filter(None, (type(error).__name__, str(error))))
            raise
        if response.status_code >= 400 and not await _is_protocol(response):
            self._endpoint.failure = _reason(response)
            await response.aclose()
            raise Refused(self._endpoint.failure)
        return response


async def _is_protocol(response: httpx2.Response) -> bool:
    """Whether an HTTP error carries a JSON-RPC error, which is the server's own word."""
    try:
        body = await response.aread()
        return isinstance(types.jsonrpc_message_adapter.validate_json(body, by_name=False), types.JSONRPCError)
    except (httpx2.HTTPError, ValidationError):
        return False


def _first_said(error: BaseException) -> str:
    """What the first of a group of errors says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _reason(response: httpx2.Response) -> str:
    status = f"HTTP {response.status_code} {response.reason_phrase}".strip()
    hint = HINTS.get(response.status_code)
    said = " ".join(response.text.split())[:MAX_REASON]
    return status + (f": {hint}" if hint else "") + (f"; it said: {said}" if said else "")


@asynccontextmanager
async def connected(config: LiveConfig) -> AsyncIterator[Endpoint]:
    """The server's address, in touch with it until exit. Swallows what is kept as the endpoint's failure."""
    endpoint = Endpoint(config)
    try:
        async with (
            _Client(endpoint) as client,
            streamable_http_client(config.address(), http_client=client, max_sse_event_size=MAX_EVENT_BYTES) as streams,
        ):
            endpoint.read, endpoint.write = streams
            yield endpoint
    except* (httpx2.HTTPError, httpx2.InvalidURL, Refused) as group:  # said by whoever waits for an answer
        endpoint.failure = endpoint.failure or _first_said(group)
