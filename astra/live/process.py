"""A server as a process of ours: JSON-RPC lines on its stdin and stdout (MCP's stdio transport)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.shared.message import SessionMessage

from astra.live.config import LiveConfig
from astra.live.errors import LiveServerDied

log = logging.getLogger(__name__)

GRACE_S = 1.0
POLL_S = 0.01
MAX_LINE_BYTES = 64 * 2**20
MAX_STDERR_BYTES = 8192
N_STDERR_LINES = 20


@dataclass
class Child:
    """A server's process with its pipes: JSON-RPC lines to and from the session, the rest is kept short."""

    config: LiveConfig
    process: asyncio.subprocess.Process
    said: MemoryObjectSendStream[SessionMessage | Exception]
    told: MemoryObjectReceiveStream[SessionMessage]
    read: MemoryObjectReceiveStream[SessionMessage | Exception]
    write: MemoryObjectSendStream[SessionMessage]
    n_noise: int = 0
    first_noise: str = ""
    broken_codes: frozenset[int] = frozenset()
    """JSON-RPC errors that the transport itself reports, not the server."""
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
            log.warning(
                "MCP server %s writes to stdout what is not MCP: %r", self.config.name, self.config.public(text[:200])
            )

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

    @property
    def heard(self) -> str:
        """What it said instead of MCP."""
        return self.config.public(self.first_noise)

    def is_gone(self) -> bool:
        return self.process.returncode is not None

    async def death(self) -> LiveServerDied:
        """The error for a process that stopped talking, with all that can still be learnt of it."""
        if await self._ends():
            with anyio.move_on_after(GRACE_S):
                await self._stderr_ended.wait()
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()[-N_STDERR_LINES:]
        return LiveServerDied(self.config.name, self.process.returncode, self.config.public("\n".join(lines)))

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


@asynccontextmanager
async def started(config: LiveConfig) -> AsyncIterator[Child]:
    """The server's process, ended on exit. Raises LiveServerDied where it cannot be started."""
    process = await _spawned(config)
    said, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, told = anyio.create_memory_object_stream[SessionMessage](0)
    async with said, read, write, told:
        child = Child(config, process, said, told, read, write)
        async with anyio.create_task_group() as pipes:
            pipes.start_soon(child.read_stdout)
            pipes.start_soon(child.write_stdin)
            pipes.start_soon(child.read_stderr)
            try:
                yield child
            finally:
                with anyio.CancelScope(shield=True):
                    await child.stop()
                pipes.cancel_scope.cancel()


async def _spawned(config: LiveConfig) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *config.argv, stdin=pipe, stdout=pipe, stderr=pipe, env=config.environment(),
            cwd=config.cwd, start_new_session=True, limit=MAX_LINE_BYTES,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise LiveServerDied(config.name, None, f"{config.argv[0]}: {error}", "could not be started") from None
