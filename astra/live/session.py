"""A session with one server: opened, listed, called and closed, whatever the server does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import anyio
import jsonschema
from mcp import ClientSession, MCPError, types
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import ValidationError

from astra.live.config import LiveConfig
from astra.live.endpoint import Endpoint, connected
from astra.live.errors import LiveError, LiveProtocolBroken, LiveServerDied, LiveTimeout
from astra.live.process import Child, started

T = TypeVar("T")

log = logging.getLogger(__name__)

GRACE_S = 1.0
MAX_PAGES = 1000


class CallResult(NamedTuple):
    """What a tool answered. ``is_error`` is the server's flag; the text's wording decides nothing."""

    text: str
    is_error: bool


class LiveServer:
    """A session with one server, used as a context manager. Entering starts it or connects; leaving ends that."""

    def __init__(self, config: LiveConfig, start_timeout_s: float, call_timeout_s: float) -> None:
        self.config = config
        self.start_timeout_s = start_timeout_s
        self.call_timeout_s = call_timeout_s
        self.version = ""
        self.instructions = ""
        self.warnings: Counter[str] = Counter()
        self.broken = False
        self._output_schemas: dict[str, dict[str, Any] | None] = {}
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._begun = threading.Event()
        self._lock = threading.Lock()
        self._over = False
        self._calls: dict[concurrent.futures.Future[Any], Coroutine[Any, Any, Any]] = {}
        self._thread = threading.Thread(target=self._run, name=f"mcp-{config.name}", daemon=True)

    def __enter__(self) -> LiveServer:
        """Raises LiveServerDied, LiveTimeout, LiveProtocolBroken or LiveConfigInvalid; then nothing is left running."""
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session and its process. Closing twice is fine, from any thread."""
        if self._thread.ident is None:
            return
        self._begun.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the session ended by itself
            self._loop.call_soon_threadsafe(self._give_up)
        self._thread.join()

    def list_tools(self) -> tuple[Any, ...]:
        """All tools of every page as the server wrote them, but for secrets; a malformed one is the reader's business.

        Raises LiveError.
        """
        listed = self._here(self._list_tools())
        return tuple(self.config.public_value(one) for one in listed) if self.config.secrets() else listed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """Call one tool by its wire name. A tool's own failure is a result; raises LiveError for the machinery."""
        return self._here(self._call(name, arguments))

    async def call(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """``call_tool`` for a caller that has an event loop."""
        return await asyncio.wrap_future(self._submit(self._call(name, arguments)))

    @property
    def n_noise(self) -> int:
        """Lines on stdout that were not MCP."""
        return self._link.n_noise

    # ----------------------------------------------------- in the owner's thread

    def _here(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._submit(work).result()
        except concurrent.futures.CancelledError:
            raise LiveServerDied(self.config.name, None, "", "was closed during a call") from None

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._lock:
            if not self._over:
                with contextlib.suppress(RuntimeError):  # the loop is closed, and the thread is about to say so
                    future = asyncio.run_coroutine_threadsafe(work, self._loop)
                    self._calls[future] = work
                    future.add_done_callback(lambda done: self._calls.pop(done, None))
                    return future
        work.close()
        raise LiveServerDied(self.config.name, None, self._last_words(), "is closed")

    def _settle(self) -> None:
        """Tell each call that came too late for the loop to take it up; nobody else would."""
        with self._lock:
            self._over = True
        for future, work in list(self._calls.items()):
            work.close()
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                future.set_exception(LiveServerDied(self.config.name, None, self._last_words(), "is closed"))

    def _last_words(self) -> str:
        link = getattr(self, "_link", None)
        return self.config.public(link.failure) if isinstance(link, Endpoint) else ""

    def _give_up(self) -> None:
        self._stop.set()
        self._starting.cancel()

    def _run(self) -> None:
        try:
            asyncio.run(self._own())
        except BaseException as error:  # foreign code runs here; whoever waits must hear of it
            if self._ready.done():
                log.warning("MCP server %s: closing the session: %s", self.config.name, error)
            else:
                self._ready.set_exception(error)
        finally:
            self._settle()

    async def _own(self) -> None:
        """The owner task: all of the session's life."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._starting = anyio.CancelScope()
        self._begun.set()
        failure: LiveError | None = None
        async with self._link_to() as self._link:
            self._dispatcher = JSONRPCDispatcher[Any](self._link.read, self._link.write)
            async with ClientSession(dispatcher=self._dispatcher) as self._session:
                with self._starting:
                    failure = await self._handshake()
                if self._starting.cancelled_caught:
                    failure = LiveServerDied(self.config.name, None, "", "was closed while it started")
                if failure is None:
                    self._ready.set_result(None)
                    await self._stop.wait()
        if failure is None and self._link.is_gone():
            self.broken = True
            failure = await self._link.death()
        await self._answered()
        if not self._ready.done():  # whoever waits must hear of it, though the link may have ended without a word
            self._ready.set_exception(failure or await self._link.death())

    def _link_to(self) -> AbstractAsyncContextManager[Child | Endpoint]:
        return connected(self.config) if self.config.url else started(self.config)

    async def _answered(self) -> None:
        """Take no more calls, and wait until each in flight has heard that the session is over."""
        with self._lock:
            self._over = True
        await asyncio.sleep(0)  # calls that were handed over just before are tasks now
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        if calls:
            await asyncio.wait(calls, timeout=GRACE_S)

    async def _handshake(self) -> LiveError | None:
        """Initialize; what went wrong, if something did."""
        try:
            info = await self._answer(self._session.initialize(), "initialize", self.start_timeout_s, "start_timeout_s")
        except LiveError as error:
            return error
        except MCPError as error:
            said = self.config.public(error.error.message)
            return LiveProtocolBroken(f"MCP server {self.config.name} refused initialize: {said}")
        self.version = f"{info.server_info.name} {info.server_info.version}"
        self.instructions = self.config.public(info.instructions or "")
        return None

    async def _answer(self, question: Coroutine[Any, Any, T], what: str, seconds: float, setting: str) -> T:
        """The answer to one request. Raises LiveError; an MCPError passes where the server itself sent it."""
        if self._link.is_gone():
            question.close()
            raise await self._link.death()
        try:
            with anyio.fail_after(seconds):
                return await question
        except TimeoutError:
            self.broken = True
            raise LiveTimeout(self.config.name, what, seconds, setting, self._link.heard) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self.broken = True
            raise await self._link.death() from None
        except MCPError as error:
            if error.error.code == types.CONNECTION_CLOSED:
                self.broken = True
                raise await self._link.death() from None
            if error.error.code in self._link.broken_codes:
                detail = self.config.public(error.error.message)
                raise LiveProtocolBroken(f"MCP server {self.config.name}: {what}: {detail}") from None
            raise
        except (ValidationError, RuntimeError) as error:
            detail = self.config.public(str(error))[:500]
            raise LiveProtocolBroken(f"MCP server {self.config.name}: {what}: {detail}") from None

    async def _list_tools(self) -> tuple[Any, ...]:
        tools: list[Any] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await self._page(cursor)
            listed, cursor = page.get("tools"), page.get("nextCursor")
            if not isinstance(listed, list) or not isinstance(cursor, str | None):
                raise self._broken_list("it holds no list of tools" if cursor is None else "nextCursor must be text")
            tools += listed
            if not cursor:
                self._output_schemas = {name: schema for name, schema in map(_output_schema, tools) if name}
                return tuple(tools)
            if cursor in seen:
                raise self._broken_list(f"it did not end: the cursor {cursor[:80]!r} came twice")
            seen.add(cursor)
        raise self._broken_list(f"it did not end after {MAX_PAGES} pages")

    async def _page(self, cursor: str | None) -> dict[str, Any]:
        """One page, unchecked: the SDK's own list refuses all tools for one that is malformed."""
        question = self._dispatcher.send_raw_request("tools/list", {"cursor": cursor} if cursor else None)
        try:
            return await self._answer(question, "tools/list", self.call_timeout_s, "call_timeout_s")
        except MCPError as error:
            raise self._broken_list(f"refused: {self.config.public(error.error.message)}") from None

    def _broken_list(self, why: str) -> LiveProtocolBroken:
        return LiveProtocolBroken(f"MCP server {self.config.name}: tools/list: {why}")

    async def _call(self, name: str, arguments: dict[str, Any]) -> CallResult:
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        question = self._session.send_request(request, types.CallToolResult)  # unlike call_tool: no schema exceptions
        try:
            result = await self._answer(question, f"tools/call {name}", self.call_timeout_s, "call_timeout_s")
        except MCPError as error:  # unknown tool, invalid arguments: the server's word on this call
            return CallResult(self.config.public(error.error.message), True)
        if not result.is_error:
            self._compare(name, result)
        return CallResult(self.config.public(text_of(result)), result.is_error)

    def _compare(self, name: str, result: types.CallToolResult) -> None:
        """Count results that do not keep what the tool's output schema promises; the text counts all the same."""
        promised = self._output_schemas.get(name)
        if promised is None:
            return
        if result.structured_content is None:
            self.warnings["no_structured_content"] += 1
        elif not _fits(result.structured_content, promised):
            self.warnings["structured_content_mismatch"] += 1


def _output_schema(tool: Any) -> tuple[str, dict[str, Any] | None]:
    """The tool's name, empty where it has none, and what its results promise to be."""
    name, schema = (tool.get("name"), tool.get("outputSchema")) if isinstance(tool, dict) else (None, None)
    return name if isinstance(name, str) else "", schema if isinstance(schema, dict) else None


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    try:
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    except Exception:  # a schema of a foreign server: it may not even be one
        return False


def text_of(result: types.CallToolResult) -> str:
    """What a model reads of a result: its text parts, else the structured content as JSON; other parts are named."""
    parts = [_part(one) for one in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _part(part: types.ContentBlock) -> str:
    if isinstance(part, types.TextContent):
        return part.text
    if isinstance(part, types.EmbeddedResource) and isinstance(part.resource, types.TextResourceContents):
        return part.resource.text
    if isinstance(part, types.ImageContent | types.AudioContent):
        return f"[{part.type} {part.mime_type}]"
    return f"[{part.type}]"
