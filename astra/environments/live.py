"""Live MCP servers as environments: one session a server, shared by all conversations, restarted a few times.

Paper section 3.2.3. Only tools that are marked deterministic are called for real, because a run must be repeatable; the
other tools of a live server are emulated, and their emulator is told of what the live ones answered.

No failures are injected into live calls; arguments that break a tool's schema are refused before it runs.

Departures: the authors' code lets a timeout or a dead server become the tool's answer. Here it ends the conversation
(LiveCallFailed). A server whose fresh session fails too before it answered anything, or that was started ``MAX_STARTS``
times, is lost: every further conversation that calls it ends at once, those of other servers go on. Only where no live
server could be opened at all is the machinery not there (EnvironmentUnavailable); how many conversations may be lost is
the stage's to say.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from astra.environments.arguments import refused
from astra.environments.base import EnvironmentUnavailable, Observation
from astra.environments.emulator import Emulator
from astra.environments.recording import CallsLive
from astra.live import CallResult, LiveConfig, LiveError, LiveServer, LiveTimeout
from astra.records import ToolCall, ToolSpec, canonical

STARTS = 2  # of one server without an answer between them: the first, and once more after a failure
MAX_STARTS = 10  # of one server in all


class LiveCallFailed(Exception):
    """A live call got no answer; its conversation did not work out, the next one gets a fresh session."""


class LiveSessions:
    """Sessions by server name, started at the first call and ended on exit; equal calls are made once."""

    def __init__(self, configs: Mapping[str, LiveConfig], start_timeout_s: float, call_timeout_s: float) -> None:
        self.configs = configs
        self.start_timeout_s = start_timeout_s
        self.call_timeout_s = call_timeout_s
        self._sessions: dict[str, LiveServer] = {}
        self._starts: Counter[str] = Counter()
        self._fruitless: Counter[str] = Counter()  # starts since the server answered last
        self._opened: set[str] = set()
        self._lost: set[str] = set()
        self._last_error: dict[str, str] = {}
        self._known: dict[tuple[str, str, str], CallResult] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __enter__(self) -> LiveSessions:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for session in self._sessions.values():
            session.close()

    async def call(self, server: str, tool: str, text: str) -> CallResult:
        """What a deterministic tool answers. Raises LiveCallFailed or EnvironmentUnavailable."""
        arguments = json.loads(text)
        key = (server, tool, canonical(arguments))
        if key not in self._known:
            session = await self._session(server)
            try:
                self._known[key] = await session.call(tool, arguments)
                self._fruitless[server] = 0
            except asyncio.CancelledError:
                if self._sessions.get(server) is session:
                    raise  # this conversation is cancelled, not the call
                raise LiveCallFailed(f"live server {server}: its session ended during a call") from None
            except LiveError as error:
                await self._drop(server, session, error)
                raise LiveCallFailed(str(error)) from error
        return self._known[key]

    async def _session(self, server: str) -> LiveServer:
        async with self._locks[server]:
            if server not in self._sessions:
                self._sessions[server] = await self._started(server)
            return self._sessions[server]

    async def _started(self, server: str) -> LiveServer:
        """A new session, while the server has starts left; one that starts too slowly is not tried again at once."""
        while server not in self._lost and self._may_start(server):
            self._starts[server] += 1
            self._fruitless[server] += 1
            session = LiveServer(self.configs[server], self.start_timeout_s, self.call_timeout_s)
            try:
                await asyncio.to_thread(session.__enter__)
            except LiveError as error:
                self._last_error[server] = str(error)
                if isinstance(error, LiveTimeout):  # it may be downloading: ending it again would lose that again
                    break
            else:
                self._opened.add(server)
                return session
        self._lost.add(server)
        gone = f"live server {server}: failed {self._starts[server]} times, the last: {self._last_error[server]}"
        if not self._opened and self._lost >= self.configs.keys():
            raise EnvironmentUnavailable(
                f"{gone}. No live server could be opened. Finished model replies are kept; when they work again: dvc "
                f"repro trajectories"
            )
        raise LiveCallFailed(gone)

    def _may_start(self, server: str) -> bool:
        return self._fruitless[server] < STARTS and self._starts[server] < MAX_STARTS

    async def _drop(self, server: str, session: LiveServer, error: LiveError) -> None:
        """End a session that failed; the next call starts another."""
        async with self._locks[server]:
            if self._sessions.get(server) is session:
                del self._sessions[server]
                self._last_error[server] = str(error)
                await asyncio.to_thread(session.close)


@dataclass
class Live:
    """A conversation's view of a live server: deterministic tools live, the others emulated."""

    server: str
    live_tools: frozenset[str]
    tools: tuple[ToolSpec, ...]
    sessions: CallsLive
    emulator: Emulator

    async def call(self, call: ToolCall) -> Observation:
        """Execute one call. Raises LiveCallFailed, EmulatorReplyInvalid or EnvironmentUnavailable."""
        name = call.function.name
        if name not in self.live_tools:
            return await self.emulator.call(call)
        spec = next(tool for tool in self.tools if tool.name == name)
        wrong = refused(spec, json.loads(call.function.arguments))
        if wrong is not None:
            return wrong
        result = await self.sessions.call(self.server, spec.wire_name or name, call.function.arguments)
        seen = Observation(result.text, result.is_error, "live")
        self.emulator.note(call, seen)
        return seen
