"""Live MCP servers over stdio: what the standard ``mcpServers`` configuration names, started, listed and called.

A session lives and dies in one task of one thread of its own: entering and leaving it elsewhere is what breaks stdio
clients (cancel scopes belong to a task). Callers are synchronous (``call_tool``) or await (``call``); several may call
at once.

    with LiveServer(read_config("live.mcp.json")["time"], start_timeout_s=60, call_timeout_s=10) as server:
        text, is_error = server.call_tool("convert_time", {...})

LiveError
 ├ LiveConfigInvalid   a configuration or notes file is wrong: file, key, value, remedy
 ├ LiveServerDied      the process ended, or never started: exit code and last words
 ├ LiveTimeout         it runs but did not answer in time
 └ LiveProtocolBroken  it answered something that is not MCP
None of the last three is ever a tool's answer: the machinery failed, not the call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar

import anyio
import jsonschema
import yaml
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession, MCPError, types
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from astra.records import Section

T = TypeVar("T")

log = logging.getLogger(__name__)

GRACE_S = 1.0
POLL_S = 0.01
MAX_LINE_BYTES = 64 * 2**20
MAX_STDERR_BYTES = 8192
N_STDERR_LINES = 20
MAX_PAGES = 1000
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class LiveError(Exception):
    """Something about a live server went wrong that is not a tool's answer."""


class LiveConfigInvalid(LiveError):
    """A configuration or notes file is wrong."""


class LiveServerDied(LiveError):
    """The server's process ended or could not be started."""

    def __init__(self, name: str, exit_code: int | None, stderr: str, what: str = "died") -> None:
        code = "" if exit_code is None else f" with exit code {exit_code}"
        super().__init__(f"MCP server {name} {what}{code}" + (f"; its last words: {stderr}" if stderr else ""))
        self.name, self.exit_code, self.stderr = name, exit_code, stderr


class LiveTimeout(LiveError):
    """The server runs but did not answer in time."""

    def __init__(self, name: str, what: str, seconds: float, setting: str, heard: str = "") -> None:
        more = f"; it said: {heard}" if heard else ""
        super().__init__(f"MCP server {name} did not answer {what} in {seconds:g} s ({setting}){more}")
        self.name = name


class LiveProtocolBroken(LiveError):
    """The server answered something that is not MCP."""


# ------------------------------------------------------------------ configuration


class LiveConfig(BaseModel):
    """One server of a ``mcpServers`` file. ``python`` as a command is the interpreter that runs us."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    command: str = Field(min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        command = sys.executable if self.command in ("python", "python3") else self.command
        return (command, *self.args)

    def environment(self) -> dict[str, str]:
        """All that the process sees: a path, a locale, and what the configuration names, ``${NAME}`` filled in.

        Raises LiveConfigInvalid for a name that our own environment lacks.
        """
        base = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        return base | {name: re.sub(r"\$\{(\w+)\}", self._from_ours, value) for name, value in self.env.items()}

    def _from_ours(self, match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise LiveConfigInvalid(
                f"MCP server {self.name}: its env wants ${{{match[1]}}}, which is not set: export it"
            )
        return os.environ[match[1]]

    def secrets(self) -> tuple[str, ...]:
        """Values that no message may show."""
        known = self.environment()
        return tuple(known[name] for name, raw in self.env.items() if "${" in raw or SECRET_NAME.search(name))


def server_config(name: str, entry: Any, where: str) -> LiveConfig:
    """One entry of ``mcpServers``. Raises LiveConfigInvalid."""
    if isinstance(entry, dict) and "url" in entry and "command" not in entry:
        raise LiveConfigInvalid(
            f"{where}: mcpServers.{name}: only stdio servers (command, args) are supported, got a url"
        )
    try:
        return LiveConfig.model_validate({**entry, "name": name} if isinstance(entry, dict) else entry)
    except ValidationError as error:
        raise LiveConfigInvalid(f"{where}: mcpServers.{name}{_first(error)}") from None


def read_config(path: Path | str) -> dict[str, LiveConfig]:
    """The servers of a ``mcpServers`` file, by name. Raises LiveConfigInvalid on the first that is wrong."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LiveConfigInvalid(f"{path}: {error}") from None
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise LiveConfigInvalid(f'{path}: expected {{"mcpServers": {{name: {{"command": ..., "args": [...]}}}}}}')
    return {name: server_config(name, entry, str(path)) for name, entry in servers.items()}


class Notes(Section):
    """What we say of a server beyond its document: an entry of ``<document>.notes.yaml``."""

    title: str | None = None
    description: str | None = None
    domain: str | None = None
    licence: str | None = None
    min_tools: int | None = Field(default=None, ge=1)
    min_tools_reason: str | None = None
    deterministic_tools: Literal["all"] | tuple[str, ...] = ()

    @model_validator(mode="after")
    def _a_lower_minimum_says_why(self) -> Notes:
        if self.min_tools is not None and not self.min_tools_reason:
            raise ValueError("min_tools needs min_tools_reason")
        return self

    def is_deterministic(self, tool: str) -> bool:
        """Whether equal calls of a tool (by its wire name) answer equal bytes on any day, in any checkout."""
        return self.deterministic_tools == "all" or tool in self.deterministic_tools


def notes_file(document: Path) -> Path:
    """``data/raw/tools/live.mcp.json`` -> ``data/raw/tools/live.notes.yaml``."""
    return document.with_name(document.name.partition(".")[0] + ".notes.yaml")


def read_notes(document: Path | str) -> dict[str, Notes]:
    """The notes beside a document, by server name; empty where there are none. Raises LiveConfigInvalid."""
    path = notes_file(Path(document))
    if not path.is_file():
        return {}
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LiveConfigInvalid(f"{path}: not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise LiveConfigInvalid(f"{path}: expected a mapping of server names to notes")
    found = {}
    for name, entry in tree.items():
        try:
            found[str(name)] = Notes.model_validate(entry)
        except ValidationError as error:
            known = ", ".join(Notes.model_fields)
            raise LiveConfigInvalid(f"{path}: {name}{_first(error)}. Known keys: {known}") from None
    return found


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = "".join(f".{part}" for part in first["loc"])
    return f"{where}: {first['msg']} (got {str(first.get('input'))[:80]!r})"


# ------------------------------------------------------------------------ process


@dataclass
class _Child:
    """A server's process with its pipes: JSON-RPC lines to and from the session, the rest is kept short."""

    config: LiveConfig
    process: asyncio.subprocess.Process
    said: MemoryObjectSendStream[SessionMessage | Exception]
    told: MemoryObjectReceiveStream[SessionMessage]
    n_noise: int = 0
    first_noise: str = ""
    _stderr: bytes = b""
    _stderr_ended: anyio.Event = field(default_factory=anyio.Event)

    async def read_stdout(self) -> None:
        """Hand messages on and skip what is none: stdout is reserved, but banners and log lines do land there."""
        assert self.process.stdout is not None
        async with self.said:
            while line := await self._line(self.process.stdout):
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self._noise(line)
                    continue
                try:
                    await self.said.send(SessionMessage(message))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        try:
            return await stdout.readline()
        except ValueError:
            self._noise(f"a line of more than {MAX_LINE_BYTES} bytes".encode())
            return b""

    def _noise(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if not text:
            return
        self.n_noise += 1
        if self.n_noise == 1:
            self.first_noise = text[:200]
            log.warning("MCP server %s writes to stdout what is not MCP: %r", self.config.name, self.public(text[:200]))

    async def write_stdin(self) -> None:
        assert self.process.stdin is not None
        async with self.told:
            async for message in self.told:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    self.process.stdin.write(text.encode() + b"\n")
                    await self.process.stdin.drain()
                except OSError:
                    return  # its stdout ends too, which is where a death is noticed

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(4096):
            self._stderr = (self._stderr + chunk)[-MAX_STDERR_BYTES:]
        self._stderr_ended.set()

    def public(self, text: str) -> str:
        """The text without the configuration's secrets."""
        for secret in sorted(self.config.secrets(), key=len, reverse=True):
            text = text.replace(secret, "***") if secret else text
        return text

    async def death(self, what: str = "died") -> LiveServerDied:
        """The error for a process that stopped talking, with all that can still be learnt of it."""
        if await self._ends():
            with anyio.move_on_after(GRACE_S):
                await self._stderr_ended.wait()
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()[-N_STDERR_LINES:]
        return LiveServerDied(self.config.name, self.process.returncode, self.public("\n".join(lines)), what)

    async def stop(self) -> None:
        """End the process and whatever it started: stdin closed, then SIGTERM, then SIGKILL for the group."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if not await self._ends():
            self._signal(signal.SIGTERM)
            await self._ends()
        self._signal(signal.SIGKILL)
        await self._ends()
        # A descendant outside the group may hold the pipes open; asyncio offers no public way to close them.
        self.process._transport.close()  # type: ignore[attr-defined]

    async def _ends(self) -> bool:
        """Whether the process ends within the grace time; ``wait`` would also wait for whoever holds its pipes."""
        with anyio.move_on_after(GRACE_S):
            while self.process.returncode is None:
                await anyio.sleep(POLL_S)
        return self.process.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            return


# ------------------------------------------------------------------------ session


class CallResult(NamedTuple):
    """What a tool answered. ``is_error`` is the server's flag; the text's wording decides nothing."""

    text: str
    is_error: bool


class LiveServer:
    """A session with one server, used as a context manager. Entering starts the process; leaving ends it."""

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

    def list_tools(self) -> tuple[types.Tool, ...]:
        """All tools, every page. Raises LiveError."""
        return self._here(self._list_tools())

    def call_tool(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """Call one tool by its wire name. A tool's own failure is a result; raises LiveError for the machinery."""
        return self._here(self._call(name, arguments))

    async def call(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """``call_tool`` for a caller that has an event loop."""
        return await asyncio.wrap_future(self._submit(self._call(name, arguments)))

    @property
    def n_noise(self) -> int:
        """Lines on stdout that were not MCP."""
        return self._child.n_noise

    # ----------------------------------------------------- in the owner's thread

    def _here(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._submit(work).result()
        except concurrent.futures.CancelledError:
            raise LiveServerDied(self.config.name, None, "", "was closed during a call") from None

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._loop.is_closed():
            work.close()
            raise LiveServerDied(self.config.name, None, "", "is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

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

    async def _own(self) -> None:
        """The owner task: all of the session's life."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._starting = anyio.CancelScope()
        self._begun.set()
        process = await self._spawn()
        said, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, told = anyio.create_memory_object_stream[SessionMessage](0)
        failure: LiveError | None = None
        async with said, read, write, told:
            self._child = child = _Child(self.config, process, said, told)
            async with anyio.create_task_group() as pipes:
                pipes.start_soon(child.read_stdout)
                pipes.start_soon(child.write_stdin)
                pipes.start_soon(child.read_stderr)
                try:
                    async with ClientSession(read, write) as self._session:
                        with self._starting:
                            failure = await self._handshake()
                        if self._starting.cancelled_caught:
                            failure = LiveServerDied(self.config.name, None, "", "was closed while it started")
                        if failure is None:
                            self._ready.set_result(None)
                            await self._stop.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        await child.stop()
                    pipes.cancel_scope.cancel()
        if failure is not None:
            self._ready.set_exception(failure)

    async def _spawn(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *self.config.argv, stdin=pipe, stdout=pipe, stderr=pipe, env=self.config.environment(),
                cwd=self.config.cwd, start_new_session=True, limit=MAX_LINE_BYTES,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            command = self.config.argv[0]
            raise LiveServerDied(self.config.name, None, f"{command}: {error}", "could not be started") from None

    async def _handshake(self) -> LiveError | None:
        """Initialize; what went wrong, if something did."""
        try:
            info = await self._answer(self._session.initialize(), "initialize", self.start_timeout_s, "start_timeout_s")
        except LiveError as error:
            return error
        except MCPError as error:
            return LiveProtocolBroken(f"MCP server {self.config.name} refused initialize: {error.error.message}")
        self.version = f"{info.server_info.name} {info.server_info.version}"
        self.instructions = info.instructions or ""
        return None

    async def _answer(self, question: Coroutine[Any, Any, T], what: str, seconds: float, setting: str) -> T:
        """The answer to one request. Raises LiveError; an MCPError passes where the server itself sent it."""
        if self._child.process.returncode is not None:
            question.close()
            raise await self._child.death()
        try:
            with anyio.fail_after(seconds):
                return await question
        except TimeoutError:
            self.broken = True
            heard = self._child.public(self._child.first_noise)
            raise LiveTimeout(self.config.name, what, seconds, setting, heard) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self.broken = True
            raise await self._child.death() from None
        except MCPError as error:
            if error.error.code != types.CONNECTION_CLOSED:
                raise
            self.broken = True
            raise await self._child.death() from None
        except (ValidationError, RuntimeError) as error:
            detail = self._child.public(str(error))[:500]
            raise LiveProtocolBroken(f"MCP server {self.config.name}: {what}: {detail}") from None

    async def _list_tools(self) -> tuple[types.Tool, ...]:
        tools: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            question = self._session.list_tools(params=params)
            try:
                page = await self._answer(question, "tools/list", self.call_timeout_s, "call_timeout_s")
            except MCPError as error:
                raise LiveProtocolBroken(
                    f"MCP server {self.config.name} refused tools/list: {error.error.message}"
                ) from None
            tools += page.tools
            if not page.next_cursor:
                self._output_schemas = {tool.name: tool.output_schema for tool in tools}
                return tuple(tools)
            cursor = page.next_cursor
        raise LiveProtocolBroken(f"MCP server {self.config.name}: tools/list did not end after {MAX_PAGES} pages")

    async def _call(self, name: str, arguments: dict[str, Any]) -> CallResult:
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        question = self._session.send_request(request, types.CallToolResult)  # unlike call_tool: no schema exceptions
        try:
            result = await self._answer(question, f"tools/call {name}", self.call_timeout_s, "call_timeout_s")
        except MCPError as error:  # unknown tool, invalid arguments: the server's word on this call
            return CallResult(error.error.message, True)
        if not result.is_error:
            self._compare(name, result)
        return CallResult(text_of(result), result.is_error)

    def _compare(self, name: str, result: types.CallToolResult) -> None:
        """Count results that do not keep what the tool's output schema promises; the text counts all the same."""
        promised = self._output_schemas.get(name)
        if promised is None:
            return
        if result.structured_content is None:
            self.warnings["no_structured_content"] += 1
        elif not _fits(result.structured_content, promised):
            self.warnings["structured_content_mismatch"] += 1


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
