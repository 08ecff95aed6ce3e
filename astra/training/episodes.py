"""Playing arenas: a case is an arena with the tools that are shown, an episode is one way a policy went through it.

Token in, token out: what was sampled is what is trained on; only tool results are tokenised in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple

from pydantic import Field

from astra.chat import Chat
from astra.environments import EnvironmentUnavailable
from astra.environments.arena import ArenaWorld
from astra.records import Arena, CodeTool, Message, Section
from astra.rewards import Tally
from astra.sandbox import TIMEOUT_S, Job, Result, Sandbox, Session
from astra.training.rollouts import Engine, Played, Sampling, Stop, Turn

_REFUSAL = re.compile(r"\b(cannot answer|can't answer|could not|unable to|no tool)\b", re.IGNORECASE)


class Limits(Section):
    """Where an episode ends."""

    max_calls: int = Field(ge=1, description="Tool calls an episode (paper: 32 turns).")
    max_new_tokens: int = Field(ge=8, description="Tokens a turn.")
    max_response_tokens: int = Field(ge=32, description="Tokens an episode, prompt apart (paper: 49,152).")


@dataclass(frozen=True)
class Case:
    """An arena with the tools shown, in order: its own (but a missing one) and distractors."""

    arena: Arena
    tools: tuple[CodeTool, ...]
    missing: str | None = None


class Episode(NamedTuple):
    """One finished play of a case."""

    case: Case
    prompt: list[int]
    played: Played
    messages: tuple[Message, ...]
    tally: Tally  # what its reward is computed from
    n_calls: int
    refused: bool  # said that it cannot be done, whether that is true or not
    honest: bool = False  # the true end of an arena that cannot be done

    @property
    def stop(self) -> Stop:
        return self.played.stop

    @property
    def failed(self) -> bool:
        """Whether the machinery failed: such an episode has no reward and stands for nothing."""
        return self.played.stop == "failed"


class SharedSandbox:
    """Several workers behind one sandbox, for callers in several threads: each call takes the next free worker."""

    def __init__(self, workers: Sequence[Sandbox]) -> None:
        self.backend = workers[0].backend
        self.n_workers = len(workers)
        self._free: SimpleQueue[Sandbox] = SimpleQueue()
        for worker in workers:
            self._free.put(worker)

    def call(self, code: str, function: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Result:
        worker = self._free.get()
        try:
            return worker.call(code, function, arguments, timeout_s)
        finally:
            self._free.put(worker)

    def run(self, job: Job) -> list[Result]:
        worker = self._free.get()
        try:
            return worker.run(job)
        finally:
            self._free.put(worker)

    @contextmanager
    def session(self, code: str) -> Iterator[Session]:
        worker = self._free.get()
        try:
            with worker.session(code) as session:
                yield session
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """The workers belong to who started them."""


@dataclass
class _Going:
    """An episode under way."""

    world: ArenaWorld
    messages: list[Message] = field(default_factory=list)
    final: str | None = None
    failure: str = ""


def absent_of(arena: Arena) -> CodeTool | None:
    """The tool that a variant lacks on purpose."""
    return arena.variant.tool if arena.variant is not None else None


def open_prompt(chat: Chat, case: Case) -> list[int]:
    """Ids of the case's tools and question, up to the first turn."""
    return chat.prompt([Message(role="user", content=case.arena.question)], [tool.spec for tool in case.tools])


def play_cases(
    engine: Engine, chat: Chat, cases: Sequence[Case], sampling: Sampling, sandbox: Sandbox, max_calls: int
) -> list[Episode]:
    """One episode per case, in order; tools run side by side where the sandbox is shared.

    Where the environment or the engine failed, the episode has stop ``failed`` and gets no reward: the caller decides.
    """
    going = [_Going(ArenaWorld.of(case.arena, case.tools, sandbox)) for case in cases]
    prompts = [open_prompt(chat, case) for case in cases]
    n_workers = sandbox.n_workers if isinstance(sandbox, SharedSandbox) else 1

    def one(turn: Turn) -> Sequence[int] | Stop:
        return _turn(chat, going[turn.episode], turn.ids, max_calls)

    if n_workers == 1:
        played = engine.play(prompts, lambda turns: [one(turn) for turn in turns], sampling)
    else:
        with ThreadPoolExecutor(n_workers, thread_name_prefix="tools") as threads:
            played = engine.play(prompts, lambda turns: list(threads.map(one, turns)), sampling)
    return [_episode(*one) for one in zip(cases, prompts, played, going, strict=True)]


def _turn(chat: Chat, episode: _Going, ids: Sequence[int], max_calls: int) -> Sequence[int] | Stop:
    """What follows a reply: the results' ids, or why the episode is over."""
    message = chat.parse(ids, episode.world.n_calls + 1)
    episode.messages.append(message)
    if not message.tool_calls:
        episode.final = message.content or ""
        return "answered"
    try:
        results = episode.world.turn(message.tool_calls)
    except EnvironmentUnavailable as error:
        episode.failure = str(error)
        return "failed"
    for call, observation in zip(message.tool_calls, results, strict=True):
        episode.messages.append(
            Message(
                role="tool",
                tool_call_id=call.id,
                name=call.function.name or None,
                content=observation.content,
                executed_by=observation.executed_by,
                is_error=observation.is_error,
            )
        )
    if episode.world.n_calls >= max_calls:
        return "max_turns"
    return chat.results(tuple(result.content for result in results))


def _episode(case: Case, prompt: list[int], played: Played, going: _Going) -> Episode:
    played.failure = played.failure or going.failure
    ended = going.world.honest(going.final)
    return Episode(
        case=case,
        prompt=prompt,
        played=played,
        messages=(Message(role="user", content=case.arena.question), *going.messages),
        tally=going.world.tally(going.final)._replace(n_faults=sum(one.is_error or False for one in going.messages)),
        n_calls=going.world.n_calls,
        refused=bool(_REFUSAL.search(going.final or "")),
        honest=ended is not None and ended.ok,
    )
