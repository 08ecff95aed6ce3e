"""The rule-based agent: one turn from the request's text, the tools' documents and the conversation so far.

It makes a plan (``plan.py``), sees from the conversation how far that has come, and makes the next call, tries a failed
one again, gives up honestly, or answers with what the results hold. With a temperature it sometimes slips as people do:
a wrong tool first, a call made twice, a mistyped or forgotten argument; at most once in a conversation.
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
from astra.llm.types import Completion, Request
from astra.records import FunctionCall, Message, ToolCall, Usage

ATTEMPTS = 3  # how often a call is made that fails without its own fault
SLIP_RATE = 0.06  # per turn at temperature 0.7, until the first slip
FACTS_PER_STEP = 4
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
    """A step that cannot be made, and why, in words."""

    step: Planned
    why: str


@dataclass(frozen=True)
class Progress:
    """How far a conversation has come with its plan."""

    results: tuple[tuple[Planned, Call, Any], ...]
    next: Ready | Stuck | None  # None: all is done
    n_failures: int  # of the next call
    last_error: str


def turn(request: Request, rng: random.Random) -> Completion:
    """The next assistant turn."""
    tools = [tool.model_dump(include={"name", "description", "parameters"}) for tool in request.tools]
    question = next((one.content or "" for one in request.messages if one.role == "user"), "")
    earlier = exchanges(request.messages)
    intended = plan(question, tools)
    content, call = _decide(intended, earlier, tools, request.model.temperature, rng)
    return _completion(request, content, call)


def _decide(
    intended: Plan, earlier: Sequence[Exchange], tools: Sequence[Tool], temperature: float, rng: random.Random
) -> tuple[str, Call | None]:
    if not intended.steps:
        return "I could not tell from the request which tool it needs.", None
    missing = next((step for step in intended.steps if step.tool is None), None)
    if missing is not None:
        return _refusal(missing, intended.knowledge), None
    state = progress(intended, earlier, tools)
    if state.next is None:
        return _answer(intended, state, rng), None
    if isinstance(state.next, Stuck):
        return _giving_up(state, state.next.step, state.next.why), None
    if state.n_failures and (state.n_failures >= ATTEMPTS or not _PASSING.search(state.last_error)):
        return _giving_up(state, state.next.step, state.last_error), None
    if not state.n_failures and rng.random() < SLIP_RATE * temperature / 0.7:
        slipped = _slip(state.next, intended, state, earlier, tools, rng)
        if slipped is not None:
            return slipped
    return _thought(state.next, state, intended.knowledge, rng), state.next.call


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
        if isinstance(call, str):
            return Progress(tuple(results), Stuck(step, call), 0, "")
        mine = [one for one in earlier if (one.tool, one.arguments) == call]
        good = next((one for one in mine if not one.failed), None)
        if good is None:
            last = mine[-1].content if mine else ""
            return Progress(tuple(results), Ready(step, call), len(mine), last)
        results.append((step, call, read_result(good.content)))
    return Progress(tuple(results), None, 0, "")


def _resolved(
    step: Planned, results: Sequence[tuple[Planned, Call, Any]], tools: Sequence[Tool], knowledge: bool
) -> Call | str:
    """The step's call; a text that says what is missing where a source does not hold it."""
    assert step.tool is not None
    properties = next(tool for tool in tools if tool["name"] == step.tool)["parameters"].get("properties", {})
    arguments: dict[str, Any] = {}
    for name, source in step.arguments.items():
        if isinstance(source, Given):
            arguments[name] = source.value
        elif knowledge:
            assert source.step is not None
            value = results[source.step][2]
            value = value.get("result") if isinstance(value, dict) else None
            if not isinstance(value, str):
                return f"the {results[source.step][0].says} is no {name}"
            arguments[name] = value
        else:
            value = _looked_up(name, properties.get(name, {}), results, step.dependent)
            if value is None:
                return f"neither the request nor a result gives the {phrases.words(name)}"
            arguments[name] = value
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
        why = state.last_error.rstrip(".")
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


def _refusal(step: Planned, knowledge: bool) -> str:
    if knowledge:
        return f"I cannot answer: no tool gives the {step.says}."
    return f"I could not do this: none of the tools can {step.says}."


def _giving_up(state: Progress, step: Planned, why: str) -> str:
    tries = f" I tried {state.n_failures} times." if state.n_failures > 1 else ""
    done = "; ".join(_facts(one, result) for one, _, result in state.results)
    so_far = f" Before that: {done}." if done else ""
    return f"I could not {_verb_phrase(step)}: {why.rstrip('.')}.{tries}{so_far}"


def _verb_phrase(step: Planned) -> str:
    first = step.says.split(" ")[0]
    return step.says if phrases.imperative(first) == first or first == "use" else f"find the {step.says}"


def _answer(intended: Plan, state: Progress, rng: random.Random) -> str:
    if intended.knowledge:
        values = [_plain(result.get("result")) for step, _, result in state.results if step.last]
        told = values[0] if len(values) == 1 else ", ".join(values[:-1]) + " and " + values[-1]
        return f"The answer is {told}."
    opening = rng.choice(("Done.", "Here is what I found.", "All steps are done."))
    return (
        opening
        + " "
        + " ".join(f"To {_verb_phrase(step)}: {_facts(step, result)}." for step, _, result in state.results)
    )


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
) -> tuple[str, Call] | None:
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
    return thought, slip


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


def _completion(request: Request, content: str, call: Call | None) -> Completion:
    made: tuple[ToolCall, ...] = ()
    if call is not None:
        text = json.dumps(call.arguments, ensure_ascii=False)
        made = (ToolCall(id="call", function=FunctionCall(name=call.tool, arguments=text)),)
    written = len(content) + sum(len(one.function.arguments) + len(one.function.name) for one in made)
    read = sum(len(message.content or "") for message in request.messages)
    usage = Usage(calls=1, prompt_tokens=read // 4, completion_tokens=written // 4)
    return Completion(content, "tool_calls" if made else "stop", usage, made)
