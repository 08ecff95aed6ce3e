"""Who plays the user after the first request: a script that the task stores, or a model that keeps to it.

Tools that come with a turn are shown in its second paragraph as JSON, so that any chat template carries them into
training; the loop offers them from there on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from astra import wording
from astra.llm.errors import RequestRefused
from astra.llm.reply import ReplyInvalid, parse_json
from astra.llm.structured import TEXT, ask_structured, object_schema
from astra.llm.types import Completion, ModelParams, Request
from astra.prompts import render
from astra.records import Message, Task, ToolSpec, UserTurn


class Said(NamedTuple):
    """A turn of the user, and the tools that are offered from it on."""

    content: str
    tools: tuple[ToolSpec, ...] = ()


class User(Protocol):
    """Whoever writes the user's turns after the first."""

    async def reply(self, messages: Sequence[Message]) -> Said | None:
        """The next turn; None where the user has nothing more to say."""
        ...


class UserReplyInvalid(Exception):
    """The model that plays the user said nothing usable: this conversation did not work out."""


@dataclass
class ScriptedUser:
    """The task's turns, word for word. A value that was left out is given only while its tool was not called yet:

    who guessed it has not asked.
    """

    task: Task
    tools: Mapping[str, ToolSpec]  # by name, of all servers of the task
    _next: int = field(default=0, init=False)

    async def reply(self, messages: Sequence[Message]) -> Said | None:
        turn = self._turn(messages)
        return None if turn is None else self._said(turn, turn.says)

    def _turn(self, messages: Sequence[Message]) -> UserTurn | None:
        """The next turn of the script, where it is still due."""
        if self._next >= len(self.task.turns):
            return None
        turn = self.task.turns[self._next]
        self._next += 1
        wanting = {name.partition(".")[0] for name in self.task.missing} if turn.gives is not None else set()
        called = {call.function.name for message in messages for call in message.tool_calls}
        return None if wanting & called else turn

    def _said(self, turn: UserTurn, says: str) -> Said:
        new = tuple(self.tools[name] for name in turn.brings)
        if not new:
            return Said(says)
        documents = "\n".join(json.dumps(tool.openai(), ensure_ascii=False) for tool in new)
        return Said(render("trajectories/new_tools", says=says, tools=documents).strip(), new)


class Asks(Protocol):
    """What a user's model needs of ``astra.llm``'s client."""

    async def ask(self, request: Request) -> Completion: ...


@dataclass
class ModelUser(ScriptedUser):
    """A model in the user's place: it is told what the next turn of the script wants and words it to fit the talk."""

    client: Asks
    model: ModelParams
    seed: int
    sample: int
    reasks: int

    async def reply(self, messages: Sequence[Message]) -> Said | None:
        """Raises UserReplyInvalid, EndpointUnavailable or RequestRefused."""
        turn = self._turn(messages)
        if turn is None:
            return None
        shown = {
            "persona": self.task.persona,
            "messages": [{"role": one.role, "content": one.content} for one in messages if _is_heard(one)],
            "next": turn.says,
        }
        prompt = render("trajectories/user", input=json.dumps(shown, ensure_ascii=False))
        request = Request(
            model=self.model, messages=(Message(role="user", content=prompt),), seed=self.seed, sample=self.sample,
            json_schema=object_schema(says=TEXT),
        )  # fmt: skip
        try:
            says = await ask_structured(self.client, request, lambda reply: read_says(reply, turn), self.reasks)
        except RequestRefused as refusal:
            if refusal.reason not in ("reply_invalid", "reply_truncated"):
                raise
            raise UserReplyInvalid(f"{self.reasks + 1} replies, the last: {refusal.detail}") from refusal
        return self._said(turn, says)


def _is_heard(message: Message) -> bool:
    """Whether a user reads a message: calls and their results stay with the assistant."""
    return message.role == "user" or (message.role == "assistant" and not message.tool_calls)


def read_says(reply: Completion, turn: UserTurn) -> str:
    """What the user says in a reply. Raises ReplyInvalid for nothing, or without the value that it has to give."""
    value = parse_json(reply.content or "")
    says = value.get("says") if isinstance(value, dict) else None
    if not isinstance(says, str) or not says.strip():
        raise ReplyInvalid("no says in the reply")
    if turn.gives is not None and not wording.states(says, turn.gives):
        raise ReplyInvalid(f"it does not state the value {turn.gives!r}")
    return " ".join(says.split())
