"""The rule-based agent: one turn from the request's text, the tools' documents and the conversation so far.

It makes a plan (``plan.py``), sees from the conversation how far that has come (``progress.py``), and makes the next
call, tries a failed one again, reads again what came from a cache, asks for a value that the user left out, or answers
(``speech.py``) with what the results hold and what could not be done. Where the system prompt says so, calls that need
no result of each other are made in one turn. With a temperature it sometimes slips as people do: a wrong tool first, a
call made twice, a mistyped or forgotten argument; at most once in a conversation. More seldom it ends a turn wrongly:
it guesses instead of asking, claims what no tool did, says again that there is no tool when there is one by now,
answers a further question without a call, gives up at the first part that fails, or forgets a form that was wished for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from astra.llm.builtin import phrases, speech
from astra.llm.builtin.graph_tasks import reads
from astra.llm.builtin.plan import Plan, Tool, plan
from astra.llm.builtin.progress import (
    PASSING,
    Call,
    Exchange,
    Progress,
    Ready,
    Stuck,
    beside,
    exchanges,
    progress,
)
from astra.llm.builtin.samples import sample_value
from astra.llm.types import Completion, Request
from astra.records import FunctionCall, Message, ToolCall, Usage

SLIP_RATE = 0.06  # per turn at temperature 0.7, until the first slip
WRONG_END_RATE = 0.05  # the same for each way of ending a turn wrongly
TOGETHER = "go into one turn"  # a system prompt that says so wants calls that need no other made together


class Said(NamedTuple):
    """What a turn says and calls."""

    content: str
    calls: tuple[Call, ...] = ()


def turn(request: Request, rng: random.Random) -> Completion:
    """The next assistant turn."""
    tools = [tool.model_dump(include={"name", "description", "parameters"}) for tool in request.tools]
    said = [(one.content or "").split("\n\n")[0] for one in request.messages if one.role == "user"]
    together = any(one.role == "system" and TOGETHER in (one.content or "") for one in request.messages)
    intended = plan(said or [""], tools)
    wishes = frozenset(name for name, text in phrases.WISHES.items() if any(text in one for one in said))
    heat = request.model.temperature / 0.7
    talk = _Talk(intended, exchanges(request.messages), tools, heat, together, wishes, rng)
    repeated = _no_tool_said(request.messages) if len(said) > 1 else None
    if repeated is not None and intended.steps and intended.turn < len(said) - 1 and talk.ends_wrongly():
        return _completion(request, Said(repeated))
    return _completion(request, talk.next())


def _no_tool_said(messages: Sequence[Message]) -> str | None:
    """The turn before the user's last one, where that said that no tool does it."""
    if messages[-1].role != "user" or len(messages) < 2 or messages[-2].role != "assistant":
        return None
    content = messages[-2].content or ""
    return content if content.startswith(speech.NO_TOOL) else None


@dataclass(frozen=True)
class _Talk:
    """A conversation at the assistant's turn."""

    intended: Plan
    earlier: Sequence[Exchange]
    tools: Sequence[Tool]
    heat: float  # 1 at the temperature that the rates are for
    together: bool
    wishes: frozenset[str]
    rng: random.Random

    def ends_wrongly(self) -> bool:
        return self.rng.random() < WRONG_END_RATE * self.heat

    def next(self) -> Said:
        intended = self.intended
        if not intended.steps:
            return Said("I could not tell from the request which tool it needs.")
        state = progress(intended, self.earlier, self.tools)
        if state.next is None:
            return self._end(state)
        if isinstance(state.next, Stuck):
            return self._stuck(state.next)
        if self._stops(state):
            return Said(speech.answer(intended, state, None, self.rng))
        slipped = self._slipped(state)
        if slipped is not None:
            return slipped
        if self._opens_a_further_turn(state) and self.ends_wrongly():
            told = intended._replace(steps=tuple(one.step for one in state.results))
            return Said(speech.answer(told, state, None, self.rng))
        more = beside(state, intended, self.earlier, self.tools) if self.together and not state.tried else []
        ready = [state.next, *more]
        thoughts = [speech.thought(one, state, intended.knowledge, self.rng) for one in ready]
        return Said(self._after_failure(state) + speech.together(thoughts), tuple(one.call for one in ready))

    def _after_failure(self, state: Progress) -> str:
        """What is said of a step that just failed for good, where another part goes on."""
        if not self.earlier:
            return ""
        last = self.earlier[-1]
        if any(one.age and one.call == last[:2] for one in state.results):
            return "A fresh answer cannot be had; the cached copy has to do. "
        given_up = any(one.call == last[:2] for one in state.failures.values())
        return f"That failed ({speech.told(last.content)}). " if given_up else ""

    def _end(self, state: Progress) -> Said:
        """The answer, or that no tool does it."""
        lacking = speech.lacks(self.intended, state)
        if lacking is not None:
            missing = next(step for step in self.intended.steps if step.tool is None)
            return Said(speech.claim(missing, self.intended) if self.ends_wrongly() else lacking)
        wish = next((one for one in ("two_sentences", "one_sentence", "list", "json") if one in self.wishes), None)
        if wish is not None and self.ends_wrongly():
            wish = None
        return Said(speech.answer(self.intended, state, wish, self.rng))

    def _stops(self, state: Progress) -> bool:
        """Whether to leave what is still to be done after a failure: as the user wished, or for no good reason."""
        assert isinstance(state.next, Ready)
        now = [one for one in state.failures.values() if one.why and one.step.turn == self.intended.turn]
        return bool(now) and ("stop" in self.wishes or (not state.tried and self.ends_wrongly()))

    def _stuck(self, stuck: Stuck) -> Said:
        """Ask for what only the user can give."""
        assert stuck.wants is not None
        assert stuck.known is not None
        if self.ends_wrongly():
            tool = next(tool for tool in self.tools if tool["name"] == stuck.step.tool)
            value = sample_value(stuck.wants, tool["parameters"]["properties"].get(stuck.wants, {}), self.rng)
            if value is not None:
                guess = Call(stuck.known.tool, {**stuck.known.arguments, stuck.wants: value})
                return Said(f"Next: {stuck.step.says}.", (guess,))
        return Said(speech.question(stuck.wants, stuck.step))

    def _opens_a_further_turn(self, state: Progress) -> bool:
        """Whether the next call is the first that a later turn of the user asks for."""
        assert isinstance(state.next, Ready)
        step = state.next.step
        own = [one for one in self.intended.steps if one.turn == step.turn]
        return step.turn > 0 and not state.tried and bool(state.results) and own[0] is step

    def _slipped(self, state: Progress) -> Said | None:
        assert isinstance(state.next, Ready)
        if state.tried or self.rng.random() >= SLIP_RATE * self.heat:
            return None
        return _slip(state.next, self.intended, state, self.earlier, self.tools, self.rng)


# ---------------------------------------------------------------- slips


def _slip(
    ready: Ready,
    intended: Plan,
    state: Progress,
    earlier: Sequence[Exchange],
    tools: Sequence[Tool],
    rng: random.Random,
) -> Said | None:
    """A turn that goes wrong in a way that people know; None where none applies or one was already made."""
    spare = sum(one.failed or bool(one.age) for one in earlier)
    if len(earlier) > len(state.results) + spare or any(
        one.failed and not PASSING.search(one.content) for one in earlier
    ):
        return None
    thought = speech.thought(ready, state, intended.knowledge, rng)
    options: list[Call] = []
    options += _mistyped(ready.call, rng) if intended.knowledge else _forgotten(ready)
    options += _wrong_tool(ready, intended, tools, rng) if intended.knowledge else []
    if state.results and (intended.knowledge or reads(state.results[-1].call.tool)):
        options.append(state.results[-1].call)
    if not options:
        return None
    slip = rng.choice(options)
    if slip.tool != ready.call.tool and intended.knowledge:
        form = next(form for tool in tools if tool["name"] == slip.tool and (form := phrases.knowledge_form(tool)))
        thought = f"Next: {form.label} of {speech.entity(slip)}."
    elif slip in [one.call for one in state.results]:
        step = next(one.step for one in state.results if one.call == slip)
        thought = f"Next: {step.says} of {speech.entity(slip)}." if intended.knowledge else f"Next: {step.says}."
    return Said(thought, (slip,))


def _mistyped(call: Call, rng: random.Random) -> list[Call]:
    name, value = next(iter(call.arguments.items()))
    if not isinstance(value, str) or len(value) < 3:
        return []
    places = [n for n in range(1, len(value) - 1) if value[n : n + 2].isalnum()]
    if not places:
        return []
    at = rng.choice(places)
    wrong = value[:at] + value[at + 1] + value[at] + value[at + 2 :]
    return [Call(call.tool, {name: wrong})] if wrong != value else []


def _forgotten(ready: Ready) -> list[Call]:
    names = list(ready.call.arguments)
    if len(names) < 2:
        return []
    return [Call(ready.call.tool, {name: ready.call.arguments[name] for name in names[:-1]})]


def _wrong_tool(ready: Ready, intended: Plan, tools: Sequence[Tool], rng: random.Random) -> list[Call]:
    """Another look-up for the same kind of entity, which the request does not ask for."""
    table = next(iter(ready.call.arguments))
    planned = {step.tool for step in intended.steps}
    forms = [(tool["name"], phrases.knowledge_form(tool)) for tool in tools]
    others = [name for name, form in forms if form and form.table == table and name not in planned]
    return [Call(rng.choice(sorted(others)), dict(ready.call.arguments))] if others else []


# ---------------------------------------------------------------- the reply


def _completion(request: Request, said: Said) -> Completion:
    made = tuple(
        ToolCall(
            id=f"call_{n}",
            function=FunctionCall(name=one.tool, arguments=json.dumps(one.arguments, ensure_ascii=False)),
        )
        for n, one in enumerate(said.calls, 1)
    )
    written = len(said.content) + sum(len(one.function.arguments) + len(one.function.name) for one in made)
    read = sum(len(message.content or "") for message in request.messages)
    usage = Usage(calls=1, prompt_tokens=read // 4, completion_tokens=written // 4)
    return Completion(said.content, "tool_calls" if made else "stop", usage, made)
