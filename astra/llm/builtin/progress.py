"""Where a conversation stands: the plan of the built-in agent walked along the calls that were made.

A step that failed for good takes down what rests on it, and nothing else: whatever does not need it is still to be
done. Where a needed tool is not offered, the steps that lead to it and from it are not begun at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from astra.llm.builtin import phrases
from astra.llm.builtin.plan import Earlier, Given, Plan, Planned, Tool, found_in, read_result
from astra.records import Message

ATTEMPTS = 3  # how often a call is made that fails without its own fault
PASSING = re.compile(
    r"timed? ?out|could not connect|unreachable|too many requests|rate limit|internal server error|unavailable"
    r"|\b(429|50\d)\b",
    re.IGNORECASE,
)
_CACHED = re.compile(r"Stale response: a cached copy, (?P<age>\d+ \w+) old[^.]*\. Received: ")
_ENDS = re.compile(r"\b(target|destination|to|new)\b")  # a parameter for the other of two things of one kind


class Exchange(NamedTuple):
    """An earlier call of this conversation with its answer; ``age`` is that of a cached one."""

    tool: str
    arguments: Any
    content: str
    failed: bool
    age: str = ""

    @property
    def result(self) -> Any:
        return read_result(_CACHED.sub("", self.content, count=1) if self.age else self.content)


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


class Done(NamedTuple):
    """A step with its result; ``age``: that of the cached copy which is all there is."""

    step: Planned
    call: Call
    result: Any
    age: str = ""


class Failure(NamedTuple):
    """A step that will not be done, and why; no reason where it rests on another one that failed."""

    step: Planned
    why: str = ""
    tries: int = 0
    call: Call | None = None


@dataclass(frozen=True)
class Progress:
    """How far a conversation has come with its plan."""

    done: Mapping[int, Done]
    failures: Mapping[int, Failure]
    next: Ready | Stuck | None  # None: all that can be done is done
    place: int = 0  # of the next step in the plan
    tried: tuple[Exchange, ...] = ()  # the next call so far

    @property
    def results(self) -> tuple[Done, ...]:
        return tuple(self.done.values())

    @property
    def last_error(self) -> str:
        return self.tried[-1].content if self.tried else ""


def exchanges(messages: Sequence[Message]) -> list[Exchange]:
    """The calls of a conversation with their answers, in order."""
    answers = {message.tool_call_id: message for message in messages if message.role == "tool"}
    made = []
    for call in (call for message in messages for call in message.tool_calls):
        answer = answers.get(call.id)
        if answer is not None:
            arguments, content = read_result(call.function.arguments), answer.content or ""
            cached = _CACHED.match(content)
            age = cached["age"] if cached else ""
            made.append(Exchange(call.function.name, arguments, content, answer.is_error, age))
    return made


def progress(intended: Plan, earlier: Sequence[Exchange], tools: Sequence[Tool]) -> Progress:
    """Walk the plan along the conversation up to the first step that is still to be done."""
    done: dict[int, Done] = {}
    failures: dict[int, Failure] = {}
    part = parts(intended.steps, intended.knowledge)
    lacking = {part[n] for n, step in enumerate(intended.steps) if step.tool is None}
    for n, step in enumerate(intended.steps):
        if part[n] in lacking or _is_blocked(n, intended, part, failures):
            failures[n] = Failure(step)
            continue
        call: Call | Stuck | None = _resolved(step, done, tools, intended.knowledge)
        if isinstance(call, Stuck):
            stuck, call = call, _guessed(call, earlier)
            if call is None and any(part[k] == part[n] for k in failures):
                failures[n] = Failure(step)
                continue
            if call is None and (stuck.wants is None or stuck.known is None):
                failures[n] = Failure(step, stuck.why)
                continue
            if call is None:
                return Progress(done, failures, stuck, n)
        assert isinstance(call, Call)
        mine = tuple(one for one in earlier if (one.tool, one.arguments) == call)
        outcome = _outcome(step, call, mine)
        if outcome is None:
            return Progress(done, failures, Ready(step, call), n, mine)
        if isinstance(outcome, Failure):
            failures[n] = outcome
        else:
            done[n] = outcome
    return Progress(done, failures, None)


def parts(steps: Sequence[Planned], knowledge: bool) -> list[int]:
    """For each step the number of its part: steps that rest on each other are one part."""
    found: list[int] = []
    for n, step in enumerate(steps):
        sources = [source for source in step.arguments.values() if isinstance(source, Earlier)]
        if knowledge and sources and sources[0].step is not None:
            found.append(found[sources[0].step])
        elif n and not knowledge and (step.dependent or sources):
            found.append(found[-1])
        else:
            found.append(n)
    return found


def _is_blocked(n: int, intended: Plan, part: Sequence[int], failures: Mapping[int, Failure]) -> bool:
    """Whether a step rests on one that failed."""
    step = intended.steps[n]
    if intended.knowledge:
        return any(isinstance(source, Earlier) and source.step in failures for source in step.arguments.values())
    return step.dependent and n - 1 in failures and part[n - 1] == part[n]


def _outcome(step: Planned, call: Call, mine: Sequence[Exchange]) -> Done | Failure | None:
    """What became of a call; None where it is to be made, or made again."""
    good = next((one for one in mine if not one.failed and not one.age), None)
    if good is not None:
        return Done(step, call, good.result)
    if not mine:
        return None
    if mine[-1].failed and not PASSING.search(mine[-1].content):
        return Failure(step, mine[-1].content, len(mine), call)
    if len(mine) < ATTEMPTS:
        return None
    cached = next((one for one in reversed(mine) if one.age), None)
    return Done(step, call, cached.result, cached.age) if cached else Failure(step, mine[-1].content, len(mine), call)


def _guessed(stuck: Stuck, earlier: Sequence[Exchange]) -> Call | None:
    """The call that was made with a guess for what only the user can give."""
    if stuck.wants is None or stuck.known is None:
        return None
    for one in earlier:
        known = isinstance(one.arguments, dict) and stuck.known.arguments.items() <= one.arguments.items()
        if one.tool == stuck.known.tool and known and stuck.wants in one.arguments:
            return Call(one.tool, one.arguments)
    return None


def beside(state: Progress, intended: Plan, earlier: Sequence[Exchange], tools: Sequence[Tool]) -> list[Ready]:
    """Further calls that can be made in the next turn, since they need no result that is not there."""
    assert isinstance(state.next, Ready)
    free: list[Ready] = []
    for n in range(state.place + 1, len(intended.steps)):
        step = intended.steps[n]
        sources = [source for source in step.arguments.values() if isinstance(source, Earlier)]
        known = all(intended.knowledge and source.step in state.done for source in sources)
        if step.tool is None or step.dependent or not known:
            continue
        call = _resolved(step, state.done, tools, intended.knowledge)
        new = isinstance(call, Call) and not any((one.tool, one.arguments) == call for one in earlier)
        if isinstance(call, Call) and new and call not in [one.call for one in (state.next, *free)]:
            free.append(Ready(step, call))
    return free


# ---------------------------------------------------------------- arguments


def _resolved(step: Planned, done: Mapping[int, Done], tools: Sequence[Tool], knowledge: bool) -> Call | Stuck:
    """The step's call, or what is missing where a source does not hold it."""
    assert step.tool is not None
    properties = next(tool for tool in tools if tool["name"] == step.tool)["parameters"].get("properties", {})
    arguments: dict[str, Any] = {}
    open_names: list[str] = []
    other_end = False
    for name, source in step.arguments.items():
        if isinstance(source, Given):
            arguments[name] = source.value
        elif knowledge:
            assert source.step is not None
            before = done[source.step]
            value = before.result.get("result") if isinstance(before.result, dict) else None
            if not isinstance(value, str):
                return Stuck(step, f"the {before.step.says} is no {name}")
            arguments[name] = value
        else:
            taken = _ends_of(name, arguments)
            value = _looked_up(name, properties.get(name, {}), tuple(done.values()), step.dependent, taken)
            if value is None:
                open_names.append(name)
                other_end = other_end or bool(taken)
            else:
                arguments[name] = value
    if open_names:
        why = f"neither the request nor a result gives the {phrases.label(open_names[0])}"
        wants = open_names[0] if len(open_names) == 1 and (other_end or not step.dependent) else None
        return Stuck(step, why, wants, Call(step.tool, arguments))
    return Call(step.tool, arguments)


def _ends_of(name: str, arguments: Mapping[str, Any]) -> list[Any]:
    """What a parameter for the other end cannot be: ``target_bin_id`` is not the ``bin_id`` from which it goes."""
    spoken = phrases.words(name)
    if not _ENDS.search(spoken):
        return []
    bare = " ".join(_ENDS.sub(" ", spoken).split())
    return [value for other, value in arguments.items() if bare and phrases.words(other).endswith(bare)]


def _looked_up(
    name: str, schema: Mapping[str, Any], results: Sequence[Done], dependent: bool, taken: Sequence[Any] = ()
) -> Any:
    """The value that fits a parameter best by its name, of the latest results first, then of what calls were given.

    A value whose name says nothing is taken only where the request says that the step needs the last result.
    """
    best: tuple[int, Any] | None = None
    for age, one in enumerate(reversed(results)):
        noun = phrases.words(one.step.tool or "").split()[-1]
        for place in (one.result, one.call.arguments):
            found = found_in(place, name, schema, noun, taken)
            named = found is not None and (found[0] > 0 or (dependent and age == 0 and place is one.result))
            if found is not None and named and (best is None or found[0] > best[0]):
                best = found
    return None if best is None else best[1]
