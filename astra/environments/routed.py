"""Several servers in one conversation: each tool goes to its own."""

from __future__ import annotations

from collections.abc import Sequence

from astra.environments.base import Environment, Observation
from astra.records import ToolCall, ToolSpec


class ToolNameTaken(Exception):
    """Two servers of one conversation offer a tool of one name; which was meant cannot be told."""


class Routed:
    """Environments side by side, with the tools of all of them.

    Raises ToolNameTaken.
    """

    def __init__(self, environments: Sequence[Environment], tools: tuple[ToolSpec, ...]) -> None:
        self.tools = tools
        self._owner: dict[str, Environment] = {}
        for environment in environments:
            for tool in environment.tools:
                if tool.name in self._owner:
                    raise ToolNameTaken(f"two servers offer {tool.name}")
                self._owner[tool.name] = environment

    async def call(self, call: ToolCall) -> Observation:
        return await self._owner[call.function.name].call(call)
