"""Playing arenas: a case is an arena with the tools that are shown, an episode is one way a policy went through it.

Token in, token out: what was sampled is what is trained on; only tool results are tokenised in between.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import Field

from astra.answers import in_text
from astra.chat import Chat
from astra.environments import Observation
from astra.environments.arena import ArenaWorld
from astra.records import Arena, CodeTool, Message, Section
from astra.sandbox import Sandbox
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
    solved: int
    n_required: int
    n_calls: int
    answer_correct: bool
    refused: bool

    @property
    def stop(self) -> Stop:
        return self.played.stop


@dataclass
class _Going:
    """An episode under way."""

    world: ArenaWorld
    messages: list[Message] = field(default_factory=list)
    final: str | None = None


def open_prompt(chat: Chat, case: Case) -> list[int]:
    """Ids of the case's tools and question, up to the first turn."""
    return chat.prompt([Message(role="user", content=case.arena.question)], [tool.spec for tool in case.tools])


def play_cases(
    engine: Engine, chat: Chat, cases: Sequence[Case], sampling: Sampling, sandbox: Sandbox, max_calls: int
) -> list[Episode]:
    """One episode per case, in order. Raises EnvironmentUnavailable: infrastructure is never a reward."""
    going = [_Going(ArenaWorld(case.tools, case.arena.steps, case.arena.probes, sandbox)) for case in cases]
    prompts = [open_prompt(chat, case) for case in cases]

    def respond(turns: Sequence[Turn]) -> list[Sequence[int] | Stop]:
        return [_turn(chat, going[turn.episode], turn.ids, max_calls) for turn in turns]

    played = engine.play(prompts, respond, sampling)
    return [_episode(*one) for one in zip(cases, prompts, played, going, strict=True)]


def _turn(chat: Chat, episode: _Going, ids: Sequence[int], max_calls: int) -> Sequence[int] | Stop:
    """What follows a reply: the results' ids, or why the episode is over."""
    message = chat.parse(ids, episode.world.n_calls + 1)
    episode.messages.append(message)
    if not message.tool_calls:
        episode.final = message.content or ""
        return "answered"
    results: list[Observation] = []
    for call in message.tool_calls:
        observation = episode.world.step(call.function.name, call.function.arguments)
        results.append(observation)
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
    final = going.final or ""
    return Episode(
        case=case,
        prompt=prompt,
        played=played,
        messages=(Message(role="user", content=case.arena.question), *going.messages),
        solved=len(going.world.solved),
        n_required=going.world.n_required,
        n_calls=going.world.n_calls,
        answer_correct=bool(final) and in_text(case.arena.answer, final).ok,
        refused=bool(_REFUSAL.search(final)),
    )
