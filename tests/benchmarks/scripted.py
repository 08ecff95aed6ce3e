"""Models that play from a script, and models that are broken in one way, for the replays of every benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from astra.benchmarks.process import Run, Worker
from astra.benchmarks.types import Ask, CallText, Reply, Verdict

Model = Callable[[Ask], Reply]


def played(run: Run, agent: Model, user: Model | None = None, limit: int = 500) -> Verdict:
    """The run, replied to by these models until it is over."""
    for _ in range(limit):
        ask = run.ask
        if ask is None:
            return run.verdict()
        if ask.role == "user":
            assert user is not None, "a request to a user where none was expected"
            run.reply(user(ask))
        else:
            run.reply(agent(ask))
    raise AssertionError(f"not over after {limit} replies")


def verdicts(
    worker: Worker, cases: Iterable[str], models: Callable[[str], tuple[Model, Model | None]]
) -> dict[str, Verdict]:
    """Every case played by the models made for it, several at a time."""

    def one(case: str) -> Verdict:
        with worker.start(case) as run:
            return played(run, *models(case))

    names = list(cases)
    with ThreadPoolExecutor(3) as threads:
        return dict(zip(names, threads.map(one, names), strict=True))


def mean(found: dict[str, Verdict], measure: str) -> float:
    return sum(one.scores[measure] for one in found.values()) / len(found)


def text(content: str) -> Reply:
    return Reply(content=content)


def calls(*named: tuple[str, Any], content: str | None = None) -> Reply:
    """A reply with tool calls; arguments that are text are taken as the model's own."""
    told = [
        CallText(
            id=f"call_{number}_{name[:20]}",
            name=name,
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
        )
        for number, (name, arguments) in enumerate(named)
    ]
    return Reply(content=content, tool_calls=told, stop="tool_calls")


class Script:
    """Replies in order, whatever is asked; the last one again and again."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        self._replies: Iterator[Reply] = iter(replies)
        self._last = text("I am done.")

    def __call__(self, ask: Ask) -> Reply:
        self._last = next(self._replies, self._last)
        return self._last


def misspelt(value: Any) -> Any:
    """The value with every text and number in it another one."""
    match value:
        case bool():
            return not value
        case str():
            return f"{value[::-1]}?"
        case int() | float():
            return value + 7
        case list():
            return [misspelt(one) for one in value]
        case dict():
            return {name: misspelt(one) for name, one in value.items()}
    return value


def first_tool(ask: Ask) -> str:
    return str(ask.tools[0]["function"]["name"]) if ask.tools else "no_tool"


def text_only(ask: Ask) -> Reply:
    return text("I would rather not use tools.")


def nothing(ask: Ask) -> Reply:
    return Reply(content=None)


def unknown_tool(ask: Ask) -> Reply:
    return calls(("no_such_tool", {"a": 1}))


def bad_json(ask: Ask) -> Reply:
    return calls((first_tool(ask), "{'broken': "))


def no_object(ask: Ask) -> Reply:
    return calls((first_tool(ask), "[1, NaN]"))


BROKEN: dict[str, Model] = {
    "text_only": text_only,
    "nothing": nothing,
    "unknown_tool": unknown_tool,
    "bad_json": bad_json,
    "no_object": no_object,
}
