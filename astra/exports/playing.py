"""An exported arena being played in another framework: its tools run in our sandbox, its reward is ours.

Nothing of an arena's code is ever executed in the caller's process: without a sandbox that works here, a play cannot be
opened, and what breaks raises SandboxUnavailable or EnvironmentUnavailable, never a reward.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from astra.environments.arena import ArenaWorld
from astra.records import Arena, FunctionCall, ToolCall
from astra.rewards import REWARDS
from astra.sandbox import Result, open_sandbox
from astra.sandbox.worker import Worker

SYSTEM = (
    "Answer the user's request with the tools that you are given. Make only the calls that you need. If something that "
    "you need is not there, say what it is."
)
_ONE_AT_A_TIME = Lock()
Called = tuple[str, str]  # a tool's name, and arguments as JSON text


@cache
def _worker() -> Worker:
    """The one sandbox of this process, opened at first use."""
    worker = open_sandbox()
    atexit.register(worker.close)
    return worker


class SharedSandbox:
    """The process's sandbox for callers in any thread. Raises SandboxUnavailable."""

    def call(self, code: str, function: str, arguments: Mapping[str, Any], timeout_s: float = 2.0) -> Result:
        with _ONE_AT_A_TIME:
            return _worker().call(code, function, arguments, timeout_s)


class Play:
    """One episode of one arena. Calls of one assistant message go into one ``turn``."""

    def __init__(self, arena: Arena | str, reward: str = "f1") -> None:
        if reward not in REWARDS:
            raise ValueError(f"no reward is called {reward!r}; rewards are: {', '.join(REWARDS)}")
        self.arena = Arena.model_validate_json(arena) if isinstance(arena, str) else arena
        self._reward = REWARDS[reward]
        self._world = ArenaWorld.of(self.arena, self.arena.tools, SharedSandbox())

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as chat endpoints take them."""
        return [tool.openai() for tool in self._world.tools]

    @property
    def n_calls(self) -> int:
        return self._world.n_calls

    @property
    def solved(self) -> list[int]:
        """The steps that were earned so far."""
        return sorted(self._world.solved)

    def turn(self, calls: Sequence[Called]) -> list[str]:
        """What the calls of one message give, in their order; a tool's error is its text."""
        made = [
            ToolCall(id=f"call_{place}", function=FunctionCall(name=name, arguments=arguments))
            for place, (name, arguments) in enumerate(calls)
        ]
        return [one.content for one in self._world.turn(made)]

    def call(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """What one call gives, alone in its message."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return self.turn([(name, text)])[0]

    def reward(self, final: str | None) -> float:
        """What the episode pays, in [0, 1], once it ended with this message or (None) without one."""
        return self._reward(*self._world.tally(final))


def golden(arena: Arena) -> Iterator[Called]:
    """The calls that earn every step, in an order in which each can be made."""
    for probe in sorted(arena.probes, key=lambda one: one.step):
        yield probe.tool, json.dumps(probe.arguments, ensure_ascii=False)


def read_arenas(file: Path | str) -> list[str]:
    """The arenas of an exported JSONL file, each as its JSON text."""
    return [line for line in Path(file).read_text(encoding="utf-8").split("\n") if line]
