"""What answers tool calls: the seam shared by live servers, the emulator and sandboxed arenas."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from astra.records import ToolCall, ToolSpec, Unavailable


class EnvironmentUnavailable(Unavailable):
    """The machinery behind the tools is not there. Never a tool result, never a score."""


class Observation(NamedTuple):
    """What the model sees of one call."""

    content: str
    is_error: bool
    executed_by: Literal["live", "emulator", "sandbox", "agent"]
    fault: str | None = None


class Environment(Protocol):
    """A session of tools. ``call`` may be awaited concurrently by nobody: one conversation, one environment."""

    tools: tuple[ToolSpec, ...]

    async def call(self, call: ToolCall) -> Observation:
        """Execute one call. Tool errors are observations; raises EnvironmentUnavailable for infrastructure."""
        ...
