"""What the built-in agent says: before a call, and at the end of a turn.

An answer states what each step gave, in the request's words, and names every part that could not be done, with the
reason. Where the user wished for a form (``phrases.WISHES``) it takes that form.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from astra.llm.builtin import phrases
from astra.llm.builtin.plan import Earlier, Given, Plan, Planned
from astra.llm.builtin.progress import Call, Done, Failure, Progress, Ready

FACTS_PER_STEP = 4
NO_TOOL = ("I cannot answer: no tool gives the ", "I could not do this: none of the tools can ")
_PERIODS = ("minutes", "hours", "days", "weeks")
OPENINGS = ("Done.", "Here is what I found.", "All steps are done.", "That is everything.", "")


def entity(call: Call) -> str:
    return str(next(iter(call.arguments.values())))


# ---------------------------------------------------------------- before a call


def thought(ready: Ready, state: Progress, knowledge: bool, rng: random.Random) -> str:
    if state.tried and ready is state.next:
        return _again(ready, state, knowledge, rng)
    if knowledge:
        return f"Next: {ready.step.says} of {entity(ready.call)}."
    from_results = [name for name, source in ready.step.arguments.items() if isinstance(source, Earlier)]
    using = (
        f", using the {phrases.label(from_results[0])} {_short(ready.call.arguments[from_results[0]])}"
        if from_results
        else ""
    )
    return f"Next: {ready.step.says}{using}."


def _again(ready: Ready, state: Progress, knowledge: bool, rng: random.Random) -> str:
    says = f"{ready.step.says} of {entity(ready.call)}" if knowledge else ready.step.says
    last = state.tried[-1]
    if last.age:
        return f"That is a cached copy, {last.age} old. Reading again: {says}."
    if last.content.startswith("Incomplete response"):
        return f"Only a part of the answer came. Trying again: {says}."
    why = told(last.content)
    return rng.choice((f"That failed ({why}). Trying again: {says}.", f"{why}. Once more: {says}."))


def together(thoughts: Sequence[str]) -> str:
    return " Together with that: ".join([thoughts[0], *(one.removeprefix("Next: ") for one in thoughts[1:])])


def told(error: str) -> str:
    """An error as it is repeated: without the part of an answer that came with it."""
    return error.partition(" Received: ")[0].rstrip(".")


# ---------------------------------------------------------------- what cannot be done


def refusal(step: Planned, knowledge: bool) -> str:
    return f"{NO_TOOL[0 if knowledge else 1]}{step.says}."


def claim(step: Planned, intended: Plan) -> str:
    """A step that nothing did, said to be done."""
    if intended.knowledge:
        source = next(iter(intended.steps[0].arguments.values()))
        return f"The answer is {source.value if isinstance(source, Given) else step.says}."
    return f"Done. To {verb_phrase(step)}: done."


def lacks(intended: Plan, state: Progress) -> str | None:
    """The end of a conversation in which a part needs a tool that is not offered and nothing else is to be told."""
    missing = next((step for step in intended.steps if step.tool is None), None)
    if missing is None or any(one.step.turn == intended.turn for one in state.results):
        return None
    others = any(one.why for one in state.failures.values())
    return None if others else refusal(missing, intended.knowledge)


def question(wants: str, step: Planned) -> str:
    return f"Which {phrases.label(wants)} should I use to {verb_phrase(step)}?"


def verb_phrase(step: Planned) -> str:
    first = step.says.split(" ")[0]
    return step.says if phrases.imperative(first) == first or first == "use" else f"find the {step.says}"


def _failed(one: Failure, knowledge: bool) -> str:
    """One part that could not be done, as a sentence."""
    if one.step.tool is None:
        return f"No tool gives the {one.step.says}." if knowledge else f"None of the tools can {one.step.says}."
    of = f" of {entity(one.call)}" if knowledge and one.call else ""
    tries = f" I tried {one.tries} times." if one.tries > 1 else ""
    return f"I could not {verb_phrase(one.step)}{of}: {told(one.why)}.{tries}"


def _undone(failures: Sequence[Failure]) -> str:
    """The steps that rest on those that failed."""
    after = [one for n, one in enumerate(failures) if n and not one.why and one.step.tool is not None]
    rest = [verb_phrase(one.step) for one in after]
    return f"So I did not {_listed(rest)}." if rest else ""


# ---------------------------------------------------------------- the answer


def answer(intended: Plan, state: Progress, wish: str | None, rng: random.Random) -> str:
    """The answer to the last of the user's turns that asks for something."""
    results = [one for one in state.results if one.step.turn == intended.turn]
    failures = [one for one in state.failures.values() if one.step.turn == intended.turn]
    if failures:
        return _partly(results, failures, intended.knowledge)
    if intended.knowledge:
        values = [_plain(one.result.get("result")) for one in results if one.step.last]
        return f"The answer is {_listed(values)}.{_ages(results)}"
    if wish is not None:
        return _as_wished(results, wish)
    opening = rng.choice(OPENINGS)
    form = rng.choice(("To {}: {}.", "To {}: {}.", "{}: {}."))
    lines = (form.format(verb_phrase(one.step), facts(one)) for one in results)
    return " ".join([opening, *(line[0].upper() + line[1:] for line in lines)]).strip()


def _partly(results: Sequence[Done], failures: Sequence[Failure], knowledge: bool) -> str:
    """What could not be done, why, what rests on it, and what was found all the same."""
    said = [_failed(one, knowledge) for one in failures if one.why or one.step.tool is None]
    said = said or [f"I could not {verb_phrase(failures[0].step)}, since what it needs is not there."]
    rest = "" if knowledge else _undone(failures)
    done = (
        [_looked_up(one) for one in results]
        if knowledge
        else [f"{verb_phrase(one.step)}: {facts(one)}" for one in results]
    )
    so_far = [" ".join(done)] if knowledge and done else [f"Done before that: {'; '.join(done)}."] if done else []
    return " ".join([*said, *([rest] if rest else []), *so_far])


def _looked_up(one: Done) -> str:
    text = f"The {one.step.says} of {entity(one.call)} is {_plain(one.result.get('result'))}"
    return f"{text}{f' (as of a cached copy, {one.age} old)' if one.age else ''}."


def _ages(results: Sequence[Done]) -> str:
    ages = [one.age for one in results if one.age]
    return f" That rests on a cached copy, {ages[0]} old." if ages else ""


def _as_wished(results: Sequence[Done], wish: str) -> str:
    """The answer in the form that the user wished for."""
    told_of = [(verb_phrase(one.step), facts(one)) for one in results]
    if wish == "json":
        return json.dumps(
            {step: one.result for (step, _), one in zip(told_of, results, strict=True)}, ensure_ascii=False
        )
    if wish == "list":
        return "\n".join(f"- {step[0].upper()}{step[1:]}: {found}" for step, found in told_of)
    said = "; ".join(f"to {step}: {found}" for step, found in told_of)
    return f"Done: {said}." if wish == "one_sentence" else f"All of it is done. What came of it: {said}."


def facts(one: Done) -> str:
    """The first few values of a result, each with its name, as they stand in it; of a list, length and first item."""
    age = f" (as of a cached copy, {one.age} old)" if one.age else ""
    return _facts(one.result, one.step) + age


def _facts(result: Any, step: Planned) -> str:
    if isinstance(result, Mapping):
        said = list(_fields(result))
        inner = [value for value in result.values() if isinstance(value, Mapping)]
        return ", ".join(said[:FACTS_PER_STEP]) or (_facts(inner[0], step) if inner else "done")
    if isinstance(result, list):
        return f"{len(result)} found{_first_of(result, step)}" if result else "nothing found"
    return _short(result)


def _fields(result: Mapping[str, Any]) -> Iterator[str]:
    """The plain values of a result with their names and units, then its lists."""
    for name, value in result.items():
        if isinstance(value, str | int | float):
            yield field(name, value)
    for name, value in result.items():
        if isinstance(value, list):
            noun = phrases.words(name)
            few = noun.removesuffix("s") if len(value) == 1 and not noun.endswith("ss") else noun
            yield f"{len(value) or 'no'} {few}{_first_of(value, None)}"


def field(name: str, value: Any) -> str:
    """``price_eur`` 12.5 -> price 12.5 EUR; ``n_bikes`` 3 -> 3 bikes; ``is_on`` -> on: yes."""
    label = phrases.label(name)
    if isinstance(value, bool):
        return f"{label.removeprefix('is ').removeprefix('has ')}: {'yes' if value else 'no'}"
    if isinstance(value, int | float) and label.startswith("number of "):
        return f"{_plain(value)} {label.removeprefix('number of ')}"
    if isinstance(value, int | float) and label in _PERIODS:
        return f"{_plain(value)} {label}"
    before, is_unit, unit = label.rpartition(" in ")
    if isinstance(value, int | float) and is_unit and (unit in phrases.UNITS.values() or unit == "m³/s"):
        return f"{before} {_plain(value)} {unit}"
    return f"{label} {_short(value)}"


def _first_of(items: Sequence[Any], step: Planned | None) -> str:
    if not items:
        return ""
    first = items[0]
    said = ", ".join(list(_fields(first))[:FACTS_PER_STEP]) if isinstance(first, Mapping) else _short(first)
    return f" ({'' if len(items) == 1 else 'the first: '}{said or 'done'})"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = " ".join(_plain(value).split())
    return text if len(text) <= 120 else text[:117] + "..."
