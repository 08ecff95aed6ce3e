"""The loop of one conversation: a policy writes turns, an environment answers its calls, and the user goes on.

Paper section 3.2.3. The loop takes a model's reply as it comes: thoughts are told from text, arguments are decoded by
the tool's schema (what was mended is noted on the tool message), calls of tools that are not offered are answered with
the names that are, arguments that the schema does not take with what is wrong with them, before any tool runs; a reply
that was cut is asked for once more with twice the tokens and never executed. A turn may hold several calls: they are
executed and answered in its order. After a final answer the user may say more, and bring tools.

Departures: the authors' code keeps a conversation that its machinery broke; here EnvironmentUnavailable and
EndpointUnavailable pass through, so that a broken server can never become a tool result.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from astra.environments.arguments import argument_errors
from astra.environments.base import Environment
from astra.llm.arguments import ArgumentsInvalid, breaks_off, decode_arguments
from astra.llm.reply import split_thought
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, LateTools, Message, ToolCall, ToolSpec, Usage
from astra.records.trajectory import Stop
from astra.user import User

SAME_WRONG_CALLS = 3  # the same call of a tool that is not offered, this often, is a loop
CALL_PREFIXES = ("functions.", "tools.")  # what some models put before every name


class Policy(Protocol):
    """Whoever writes the assistant's turns."""

    async def reply(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], sample: int, max_tokens: int
    ) -> Completion:
        """One turn. ``sample`` tells repeated questions apart. Raises EndpointUnavailable or RequestRefused."""
        ...


class Asks(Protocol):
    """What the loop needs of ``astra.llm``'s client."""

    async def ask(self, request: Request) -> Completion: ...


@dataclass(frozen=True)
class ModelPolicy:
    """A policy behind the model seam."""

    client: Asks
    model: ModelParams
    seed: int

    async def reply(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], sample: int, max_tokens: int
    ) -> Completion:
        model = self.model.model_copy(update={"max_tokens": max_tokens})
        return await self.client.ask(
            Request(model=model, messages=messages, tools=tools, seed=self.seed, sample=sample)
        )


@dataclass(frozen=True)
class Limits:
    """How far one conversation may go."""

    max_turns: int  # of the assistant
    max_tokens: int  # in one turn
    max_conversation_tokens: int | None = None  # prompt and reply of one turn together


class Conversation(NamedTuple):
    """What came of it. ``detail`` names the kind of an unfinished end, e.g. truncated_call, loop_unknown_tool."""

    messages: tuple[Message, ...]
    stop: Stop
    detail: str | None
    usage: Usage
    late: tuple[LateTools, ...] = ()


class _Turn(NamedTuple):
    message: Message
    cut: str | None  # truncated_reasoning, truncated_call, truncated_answer
    tokens: int = 0  # that the conversation has with this turn

    @property
    def empty(self) -> bool:
        return not self.message.tool_calls and not (self.message.content or "").strip()


async def converse(
    policy: Policy,
    environment: Environment,
    opening: tuple[Message, ...],
    limits: Limits,
    sample: int = 0,
    user: User | None = None,
    offer: tuple[ToolSpec, ...] | None = None,
) -> Conversation:
    """Play one conversation from its opening (system and user) to an end.

    ``offer`` is what the policy may call at first, all of the environment's tools where none is given; ``user`` says
    what comes after an answer. Raises EnvironmentUnavailable and EndpointUnavailable (the machinery) and RequestRefused
    (this conversation), and what the user raises.
    """
    tools = environment.tools if offer is None else offer
    return await _Loop(policy, environment, list(opening), limits, sample, user, tools).run()


@dataclass
class _Loop:
    policy: Policy
    environment: Environment
    messages: list[Message]
    limits: Limits
    sample: int
    user: User | None
    tools: tuple[ToolSpec, ...]
    late: list[LateTools] = field(default_factory=list)
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)
    usage: Usage = field(default_factory=lambda: Usage(calls=0, prompt_tokens=0, completion_tokens=0))
    n_calls: int = 0

    async def run(self) -> Conversation:
        for _ in range(self.limits.max_turns):
            turn = await self._turn()
            if turn.cut is not None:
                return self._end("truncated", turn.cut)
            if turn.empty:
                return self._end("empty_answer", "empty_answer")
            if not turn.message.tool_calls:
                self.messages.append(turn.message)
                if not await self._user_goes_on():
                    return self._end("answered", None)
            else:
                await self._execute(turn.message)
            if self.wrong and max(self.wrong.values()) >= SAME_WRONG_CALLS:
                return self._end("loop", "loop_unknown_tool")
            if turn.tokens >= (self.limits.max_conversation_tokens or turn.tokens + 1):
                return self._end("max_tokens", "max_tokens")
        return self._end("max_turns", "max_turns")

    def _end(self, stop: Stop, detail: str | None) -> Conversation:
        return Conversation(tuple(self.messages), stop, detail, self.usage, tuple(self.late))

    async def _user_goes_on(self) -> bool:
        """Append the user's next turn and offer the tools that it brings; False where there is none."""
        said = None if self.user is None else await self.user.reply(tuple(self.messages))
        if said is None:
            return False
        if said.tools:
            self.late.append(LateTools(message=len(self.messages), tools=said.tools))
            self.tools += said.tools
        self.messages.append(Message(role="user", content=said.content))
        return True

    async def _turn(self) -> _Turn:
        """The next reply; a cut one is asked again with twice the tokens, an empty one is asked again, once each."""
        turn = await self._ask(again=0, max_tokens=self.limits.max_tokens)
        if turn.cut is not None:
            return await self._ask(again=1, max_tokens=2 * self.limits.max_tokens)
        if turn.empty:
            return await self._ask(again=1, max_tokens=self.limits.max_tokens)
        return turn

    async def _ask(self, again: int, max_tokens: int) -> _Turn:
        sample = 2 * self.sample + again
        completion = await self.policy.reply(tuple(self.messages), self.tools, sample, max_tokens)
        self.usage = Usage(
            calls=self.usage.calls + completion.usage.calls,
            prompt_tokens=self.usage.prompt_tokens + completion.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens + completion.usage.completion_tokens,
        )
        tokens = completion.usage.prompt_tokens + completion.usage.completion_tokens
        return read_turn(completion, max_tokens)._replace(tokens=tokens)

    async def _execute(self, turn: Message) -> None:
        """Append the turn in canonical form, then one tool message per call, in the order of the calls."""
        calls: list[ToolCall] = []
        answers: list[Message] = []
        for asked in turn.tool_calls:
            self.n_calls += 1
            call, answer = await self._answer(asked, call_id=f"call{self.n_calls:05d}")
            calls.append(call)
            answers.append(answer)
        self.messages.append(turn.model_copy(update={"tool_calls": tuple(calls)}))
        self.messages.extend(answers)

    async def _answer(self, asked: ToolCall, call_id: str) -> tuple[ToolCall, Message]:
        """The call as it is kept and executed (our id: models repeat theirs), and the tool message for it."""
        tool = offered(asked.function.name, self.tools)
        if tool is None:
            self.wrong[(asked.function.name, asked.function.arguments)] += 1
            names = ", ".join(one.name for one in self.tools)
            return _own_error(asked, call_id, f"unknown tool: {asked.function.name}. The tools are: {names}")
        try:
            decoded = decode_arguments(asked.function.arguments, tool.parameters)
        except ArgumentsInvalid as error:
            return _own_error(asked, call_id, str(error))
        text = json.dumps(decoded.arguments, ensure_ascii=False, allow_nan=False)
        call = ToolCall(id=call_id, function=FunctionCall(name=tool.name, arguments=text))
        renamed = (f"name: {asked.function.name}",) if asked.function.name != tool.name else ()
        wrong = argument_errors(tool, decoded.arguments)
        if wrong:
            _, answer = _own_error(asked, call_id, wrong)
            return call, answer.model_copy(update={"name": tool.name, "repairs": renamed + decoded.repairs})
        seen = await self.environment.call(call)
        answer = Message(
            role="tool", content=seen.content, tool_call_id=call_id, name=tool.name, executed_by=seen.executed_by,
            is_error=seen.is_error, fault=seen.fault, repairs=renamed + decoded.repairs,
        )  # fmt: skip
        return call, answer


def _own_error(asked: ToolCall, call_id: str, text: str) -> tuple[ToolCall, Message]:
    """A call that the loop answers itself because no environment may see it; it is kept as the model wrote it."""
    answer = Message(
        role="tool", content=text, tool_call_id=call_id, name=asked.function.name, executed_by="agent", is_error=True
    )
    return asked.model_copy(update={"id": call_id}), answer


# ---------------------------------------------------------------- reading a reply


def read_turn(completion: Completion, max_tokens: int) -> _Turn:
    """A reply as an assistant message, with thoughts told from text, and whether it was cut.

    A reply that used up its tokens was cut, whatever its finish reason says.
    """
    text, thought, is_open = split_thought(completion.content or "")
    reasoning = "\n".join(part for part in (completion.reasoning, thought) if part) or None
    message = Message(role="assistant", content=text, reasoning=reasoning, tool_calls=completion.tool_calls)
    at_limit = completion.finish_reason == "length" or completion.usage.completion_tokens >= max_tokens
    if any(breaks_off(call.function.arguments) for call in completion.tool_calls) or (
        at_limit and completion.tool_calls
    ):
        return _Turn(message, "truncated_call")
    if at_limit:
        return _Turn(message, "truncated_reasoning" if is_open or not text else "truncated_answer")
    return _Turn(message, None)


def offered(name: str, tools: tuple[ToolSpec, ...]) -> ToolSpec | None:
    """The tool that a call means: its name, or its name after a prefix that models put before every name."""
    by_name = {tool.name: tool for tool in tools}
    if name in by_name:
        return by_name[name]
    for prefix in CALL_PREFIXES:
        if name.startswith(prefix) and name.removeprefix(prefix) in by_name:
            return by_name[name.removeprefix(prefix)]
    return None
