"""The rule-based agent: one turn from the request's text, the tools' documents and the conversation so far.

It makes a plan (``plan.py``), sees from the conversation how far that has come, and makes the next call, tries a failed
one again, asks for a value that the user left out, gives up honestly, or answers with what the results hold. With a
temperature it sometimes slips as people do: a wrong tool first, a call made twice, a mistyped or forgotten argument; at
most once in a conversation. More seldom it ends a turn wrongly: it guesses instead of asking, claims what no tool did,
says again that there is no tool when there is one by now, or answers a further question without a call.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from astra.llm.builtin import phrases
from astra.llm.builtin.plan import Earlier, Given, Plan, Planned, Tool, found_in, plan, read_result
from astra.llm.builtin.samples import sample_value
from astra.llm.types import Completion, Request
from astra.records import FunctionCall, Message, ToolCall, Usage

ATTEMPTS = 3  # how often a call is made that fails without its own fault
SLIP_RATE = 0.06  # per turn at temperature 0.7, until the first slip
WRONG_END_RATE = 0.1  # the same for each way of ending a turn wrongly
FACTS_PER_STEP = 4
TOGETHER = "go into one turn"  # a system prompt that says so wants calls that need no other made together
_PASSING = re.compile(
    r"timed? ?out|could not connect|unreachable|too many requests|rate limit|internal server error|unavailable"
    r"|\b(429|50\d)\b",
    re.IGNORECASE,
)


class Exchange(NamedTuple):
    """An earlier call of this conversation with its answer."""

    tool: str
    arguments: Any
    content: str
    failed: bool


class Call(NamedTuple):
    tool: str
    arguments: dict[str, Any]


class Ready(NamedTuple):
    """A step whose arguments are known."""

    step: Planned
    call: Call


class Stuck(NamedTuple):
    """A step that cannot be made, and why, in words; ``wants`` is the parameter that only the user can give."""

    step: Planned
    why: str
    wants: str | None = None
    known: Call | None = None  # the call without that


@dataclass(frozen=True)
class Progress:
    """How far a conversation has come with its plan."""

    results: tuple[tuple[Planned, Call, Any], ...]
    next: Ready | Stuck | None  # None: all is done
    n_failures: int  # of the next call
    last_error: str


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
    talk = _Talk(intended, exchanges(request.messages), tools, request.model.temperature / 0.7, together, rng)
    repeated = _no_tool_said(request.messages) if len(said) > 1 else None
    if repeated is not None and intended.steps and intended.turn < len(said) - 1 and talk.ends_wrongly():
        return _completion(request, Said(repeated))
    return _completion(request, talk.next())


def _no_tool_said(messages: Sequence[Message]) -> str | None:
    """The turn before the user's last one, where that said that no tool does it."""
    if messages[-1].role != "user" or len(messages) < 2 or messages[-2].role != "assistant":
        return None
    content = messages[-2].content or ""
    return content if content.startswith(NO_TOOL) else None


@dataclass(frozen=True)
class _Talk:
    """A conversation at the assistant's turn."""

    intended: Plan
    earlier: Sequence[Exchange]
    tools: Sequence[Tool]
    heat: float  # 1 at the temperature that the rates are for
    together: bool
    rng: random.Random

    def ends_wrongly(self) -> bool:
        return self.rng.random() < WRONG_END_RATE * self.heat

    def next(self) -> Said:
        intended, rng = self.intended, self.rng
        if not intended.steps:
            return Said("I could not tell from the request which tool it needs.")
        missing = next((step for step in intended.steps if step.tool is None), None)
        if missing is not None:
            return Said(_claim(missing, intended) if self.ends_wrongly() else _refusal(missing, intended.knowledge))
        state = progress(intended, self.earlier, self.tools)
        if state.next is None:
            return Said(_answer(intended, state, rng))
        if isinstance(state.next, Stuck):
            return self._stuck(state, state.next)
        if state.n_failures and (state.n_failures >= ATTEMPTS or not _PASSING.search(state.last_error)):
            return Said(_giving_up(state, state.next.step, state.last_error))
        if not state.n_failures and rng.random() < SLIP_RATE * self.heat:
            slipped = _slip(state.next, intended, state, self.earlier, self.tools, rng)
            if slipped is not None:
                return slipped
        if self._opens_a_further_turn(state) and self.ends_wrongly():
            told = intended._replace(steps=tuple(step for step, _, _ in state.results))
            return Said(_answer(told, state, rng))
        ready = [state.next, *(self._beside(state) if self.together and not state.n_failures else [])]
        thoughts = [_thought(one, state, intended.knowledge, rng) for one in ready]
        content = " Together with that: ".join([thoughts[0], *(one.removeprefix("Next: ") for one in thoughts[1:])])
        return Said(content, tuple(one.call for one in ready))

    def _stuck(self, state: Progress, stuck: Stuck) -> Said:
        """Ask for what only the user can give; without that, say what cannot be done."""
        if stuck.wants is None or stuck.known is None:
            return Said(_giving_up(state, stuck.step, stuck.why))
        if self.ends_wrongly():
            tool = next(tool for tool in self.tools if tool["name"] == stuck.step.tool)
            value = sample_value(stuck.wants, tool["parameters"]["properties"].get(stuck.wants, {}), self.rng)
            if value is not None:
                guess = Call(stuck.known.tool, {**stuck.known.arguments, stuck.wants: value})
                return Said(f"Next: {stuck.step.says}.", (guess,))
        return Said(f"Which {phrases.words(stuck.wants)} should I use to {_verb_phrase(stuck.step)}?")

    def _opens_a_further_turn(self, state: Progress) -> bool:
        """Whether the next call is the first that a later turn of the user asks for."""
        assert isinstance(state.next, Ready)
        step = state.next.step
        own = [one for one in self.intended.steps if one.turn == step.turn]
        return step.turn > 0 and not state.n_failures and bool(state.results) and own[0] is step

    def _beside(self, state: Progress) -> list[Ready]:
        """Further calls of this turn that need no result and were not made yet."""
        assert isinstance(state.next, Ready)
        first = state.next.step
        place = next(n for n, step in enumerate(self.intended.steps) if step is first)
        free: list[Ready] = []
        for step in self.intended.steps[place + 1 :]:
            if step.dependent or any(isinstance(source, Earlier) for source in step.arguments.values()):
                continue
            call = _resolved(step, state.results, self.tools, self.intended.knowledge)
            new = isinstance(call, Call) and not any((one.tool, one.arguments) == call for one in self.earlier)
            if isinstance(call, Call) and new and call not in [one.call for one in (state.next, *free)]:
                free.append(Ready(step, call))
        return free


def exchanges(messages: Sequence[Message]) -> list[Exchange]:
    """The calls of a conversation with their answers, in order."""
    answers = {message.tool_call_id: message for message in messages if message.role == "tool"}
    made = []
    for call in (call for message in messages for call in message.tool_calls):
        answer = answers.get(call.id)
        if answer is not None:
            arguments = read_result(call.function.arguments)
            made.append(Exchange(call.function.name, arguments, answer.content or "", answer.is_error))
    return made


# ---------------------------------------------------------------- where the conversation stands


def progress(intended: Plan, earlier: Sequence[Exchange], tools: Sequence[Tool]) -> Progress:
    """Walk the plan along the conversation up to the first step that has no result."""
    results: list[tuple[Planned, Call, Any]] = []
    for step in intended.steps:
        call = _resolved(step, results, tools, intended.knowledge)
        if isinstance(call, Stuck):
            call = _guessed(call, earlier) or call
        if isinstance(call, Stuck):
            return Progress(tuple(results), call, 0, "")
        mine = [one for one in earlier if (one.tool, one.arguments) == call]
        good = next((one for one in mine if not one.failed), None)
        if good is None:
            last = mine[-1].content if mine else ""
            return Progress(tuple(results), Ready(step, call), len(mine), last)
        results.append((step, call, read_result(good.content)))
    return Progress(tuple(results), None, 0, "")


def _guessed(stuck: Stuck, earlier: Sequence[Exchange]) -> Call | None:
    """The call that was made with a guess for what only the user can give."""
    if stuck.wants is None or stuck.known is None:
        return None
    for one in earlier:
        known = isinstance(one.arguments, dict) and stuck.known.arguments.items() <= one.arguments.items()
        if one.tool == stuck.known.tool and known and stuck.wants in one.arguments:
            return Call(one.tool, one.arguments)
    return None


def _resolved(
    step: Planned, results: Sequence[tuple[Planned, Call, Any]], tools: Sequence[Tool], knowledge: bool
) -> Call | Stuck:
    """The step's call, or what is missing where a source does not hold it."""
    assert step.tool is not None
    properties = next(tool for tool in tools if tool["name"] == step.tool)["parameters"].get("properties", {})
    arguments: dict[str, Any] = {}
    open_names: list[str] = []
    for name, source in step.arguments.items():
        if isinstance(source, Given):
            arguments[name] = source.value
        elif knowledge:
            assert source.step is not None
            value = results[source.step][2]
            value = value.get("result") if isinstance(value, dict) else None
            if not isinstance(value, str):
                return Stuck(step, f"the {results[source.step][0].says} is no {name}")
            arguments[name] = value
        else:
            value = _looked_up(name, properties.get(name, {}), results, step.dependent)
            if value is None:
                open_names.append(name)
            else:
                arguments[name] = value
    if open_names:
        why = f"neither the request nor a result gives the {phrases.words(open_names[0])}"
        wants = open_names[0] if len(open_names) == 1 and not step.dependent else None
        return Stuck(step, why, wants, Call(step.tool, arguments))
    return Call(step.tool, arguments)


def _looked_up(
    name: str, schema: Mapping[str, Any], results: Sequence[tuple[Planned, Call, Any]], dependent: bool
) -> Any:
    """The value that fits a parameter best by its name, of the latest results first, then of what calls were given.

    A value whose name says nothing is taken only where the request says that the step needs the last result.
    """
    best: tuple[int, Any] | None = None
    for age, (step, call, result) in enumerate(reversed(results)):
        noun = phrases.words(step.tool or "").split()[-1]
        for place in (result, call.arguments):
            found = found_in(place, name, schema, noun)
            named = found is not None and (found[0] > 0 or (dependent and age == 0 and place is result))
            if found is not None and named and (best is None or found[0] > best[0]):
                best = found
    return None if best is None else best[1]


# ---------------------------------------------------------------- words


def _entity(call: Call) -> str:
    return str(next(iter(call.arguments.values())))


def _thought(ready: Ready, state: Progress, knowledge: bool, rng: random.Random) -> str:
    if knowledge:
        return f"Next: {ready.step.says} of {_entity(ready.call)}."
    if state.n_failures:
        why = _told(state.last_error)
        return rng.choice(
            (f"That failed ({why}). Trying again: {ready.step.says}.", f"{why}. Once more: {ready.step.says}.")
        )
    from_results = [name for name, source in ready.step.arguments.items() if isinstance(source, Earlier)]
    using = (
        f", using the {phrases.words(from_results[0])} {_short(ready.call.arguments[from_results[0]])}"
        if from_results
        else ""
    )
    return f"Next: {ready.step.says}{using}."


NO_TOOL = ("I cannot answer: no tool gives the ", "I could not do this: none of the tools can ")


def _refusal(step: Planned, knowledge: bool) -> str:
    return f"{NO_TOOL[0 if knowledge else 1]}{step.says}."


def _claim(step: Planned, intended: Plan) -> str:
    """A step that nothing did, said to be done."""
    if intended.knowledge:
        source = next(iter(intended.steps[0].arguments.values()))
        return f"The answer is {source.value if isinstance(source, Given) else step.says}."
    return f"Done. To {_verb_phrase(step)}: done."


def _giving_up(state: Progress, step: Planned, why: str) -> str:
    tries = f" I tried {state.n_failures} times." if state.n_failures > 1 else ""
    done = "; ".join(_facts(one, result) for one, _, result in state.results)
    so_far = f" Before that: {done}." if done else ""
    return f"I could not {_verb_phrase(step)}: {_told(why)}.{tries}{so_far}"


def _told(error: str) -> str:
    """An error as it is repeated: without the part of an answer that came with it."""
    return error.partition(" Received: ")[0].rstrip(".")


def _verb_phrase(step: Planned) -> str:
    first = step.says.split(" ")[0]
    return step.says if phrases.imperative(first) == first or first == "use" else f"find the {step.says}"


def _answer(intended: Plan, state: Progress, rng: random.Random) -> str:
    """The answer to the last of the user's turns that asks for something."""
    results = [one for one in state.results if one[0].turn == intended.turn]
    if intended.knowledge:
        values = [_plain(result.get("result")) for step, _, result in results if step.last]
        told = values[0] if len(values) == 1 else ", ".join(values[:-1]) + " and " + values[-1]
        return f"The answer is {told}."
    opening = rng.choice(("Done.", "Here is what I found.", "All steps are done."))
    return opening + " " + " ".join(f"To {_verb_phrase(step)}: {_facts(step, result)}." for step, _, result in results)


def _facts(step: Planned, result: Any) -> str:
    """The first few values of a result, each with its name, as they stand in it; of a list, length and first item."""
    if isinstance(result, dict):
        told = [f"{phrases.words(name)} {_short(value)}" for name, value in result.items() if _is_plain(value)]
        lists = [(name, value) for name, value in result.items() if isinstance(value, list)]
        told += [f"{len(value)} {phrases.words(name)}{_first_of(step, value)}" for name, value in lists]
        inner = [value for value in result.values() if isinstance(value, dict)]
        return ", ".join(told[:FACTS_PER_STEP]) or (_facts(step, inner[0]) if inner else "done")
    if isinstance(result, list):
        return f"{len(result)} found{_first_of(step, result)}"
    return _short(result)


def _first_of(step: Planned, items: Sequence[Any]) -> str:
    return f" (the first: {_facts(step, items[0])})" if items else ""


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = " ".join(_plain(value).split())
    return text if len(text) <= 120 else text[:117] + "..."


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
    if len(earlier) > len(state.results) + sum(one.failed for one in earlier) or any(
        one.failed and not _PASSING.search(one.content) for one in earlier
    ):
        return None
    thought = _thought(ready, state, intended.knowledge, rng)
    options: list[Call] = []
    options += _mistyped(ready.call, rng) if intended.knowledge else _forgotten(ready)
    options += _wrong_tool(ready, intended, tools, rng) if intended.knowledge else []
    if state.results and (intended.knowledge or _reads(state.results[-1][1].tool)):
        options.append(state.results[-1][1])
    if not options:
        return None
    slip = rng.choice(options)
    if slip.tool != ready.call.tool and intended.knowledge:
        form = next(form for tool in tools if tool["name"] == slip.tool and (form := phrases.knowledge_form(tool)))
        thought = f"Next: {form.label} of {_entity(slip)}."
    elif slip in [call for _, call, _ in state.results]:
        step = next(step for step, call, _ in state.results if call == slip)
        thought = f"Next: {step.says} of {_entity(slip)}." if intended.knowledge else f"Next: {step.says}."
    return Said(thought, (slip,))


def _mistyped(call: Call, rng: random.Random) -> list[Call]:
    name, value = next(iter(call.arguments.items()))
    if not isinstance(value, str) or len(value) < 3:
        return []
    at = rng.randrange(1, len(value) - 1)
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


def _reads(tool: str) -> bool:
    return phrases.words(tool).split()[0] in {
        "get",
        "list",
        "search",
        "find",
        "read",
        "check",
        "lookup",
        "show",
        "view",
    }


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
