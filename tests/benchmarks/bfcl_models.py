"""Models for BFCL that need no weights: one that knows the answers, and several that are broken in one way each."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from astra.benchmarks.process import Run
from astra.benchmarks.types import Ask, CallText, Reply

PREFIX = {"v4": "bfcl_eval/data", "v3": "bfcl/data"}
ENVIRONMENT = {"v4": "bfcl", "v3": "bfcl_v3"}


def answers(environments: Path, version: str, category: str) -> dict[str, list[list[str]]]:
    """Case -> the calls of each turn, in Python, as the package's answers give them."""
    folder = environments / ENVIRONMENT[version] / PREFIX[version] / "possible_answer"
    lines = (folder / f"BFCL_{version}_{category}.json").read_text().splitlines()
    return {one["id"]: one["ground_truth"] for one in map(json.loads, lines)}


def parameters(ask: Ask) -> dict[str, list[str]]:
    """Tool -> its parameters in the order of its document."""
    return {one["function"]["name"]: list(one["function"]["parameters"]["properties"]) for one in ask.tools}


def as_call(text: str, parameters: dict[str, list[str]], number: int) -> CallText:
    """A call of the answers as a model would write it. Positional arguments get the names of the tool's document."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    values = [ast.literal_eval(one) for one in call.args]
    named = dict(zip(parameters.get(call.func.id, []), values, strict=False))
    named |= {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return CallText(id=f"call_{number}", name=call.func.id, arguments=json.dumps(named))


Model = Callable[[Ask], Reply]
SAY = Reply(content="Done.")
MORE_TOOLS = "I have updated some more functions you can choose from. What about now?"


def oracle(turns: list[list[str]], change: Callable[[CallText], CallText] = lambda call: call) -> Model:
    """All right calls of a turn at once, then a text; ``change`` is what it gets wrong."""
    left = iter(turns)
    number = 0

    def model(ask: Ask) -> Reply:
        nonlocal number
        if ask.messages[-1]["role"] != "user":
            return SAY
        known = parameters(ask)
        calls = [change(as_call(text, known, number + n)) for n, text in enumerate(next(left))]
        number += len(calls)
        return Reply(tool_calls=calls, stop="tool_calls") if calls else SAY

    return model


def knowing(environments: Path, version: str, category: str) -> Model:
    """The oracle of a whole category: it knows a case by what its user has said so far, as an endpoint has to."""
    questions = environments / ENVIRONMENT[version] / PREFIX[version] / f"BFCL_{version}_{category}.json"
    gold = answers(environments, version, category)
    known: dict[tuple[str, ...], list[str]] = {}
    for entry in map(json.loads, questions.read_text().splitlines()):
        said: tuple[str, ...] = ()
        for turn, messages in enumerate(entry["question"]):
            said += tuple(one["content"] for one in messages) or (MORE_TOOLS,)
            known[said] = gold[entry["id"]][turn]

    def model(ask: Ask) -> Reply:
        if ask.messages[-1]["role"] != "user":
            return SAY
        said = tuple(one["content"] for one in ask.messages if one["role"] == "user")
        calls = [as_call(text, parameters(ask), 100 * len(said) + n) for n, text in enumerate(known[said])]
        return Reply(tool_calls=calls, stop="tool_calls") if calls else SAY

    return model


def one_by_one(turns: list[list[str]]) -> Model:
    """The right calls of a turn, one a step."""
    left = iter(turns)
    calls: Iterator[str] = iter(())
    number = 0

    def model(ask: Ask) -> Reply:
        nonlocal calls, number
        if ask.messages[-1]["role"] == "user":
            calls = iter(next(left))
        text = next(calls, None)
        number += 1
        return SAY if text is None else Reply(tool_calls=[as_call(text, parameters(ask), number)], stop="tool_calls")

    return model


def wrong_arguments(call: CallText) -> CallText:
    def spoilt(value: Any) -> Any:
        if isinstance(value, str):
            return f"wrong {value}"
        if isinstance(value, list):
            return [spoilt(one) for one in value]
        return {key: spoilt(one) for key, one in value.items()} if isinstance(value, dict) else value

    return call.model_copy(update={"arguments": json.dumps(spoilt(json.loads(call.arguments)))})


def once_a_turn(*calls: CallText) -> Model:
    """The same calls in every turn, then a text."""

    def model(ask: Ask) -> Reply:
        return Reply(tool_calls=list(calls), stop="tool_calls") if ask.messages[-1]["role"] == "user" else SAY

    return model


UNKNOWN_TOOL = once_a_turn(CallText(id="a", name="no_such_tool", arguments='{"x": 1}'))
ODD_CALLS = once_a_turn(
    CallText(id="a", name="GorillaFileSystem.ls", arguments="{}"),
    CallText(id="b", name="ls", arguments='{"a": true, "from": 1}'),
    CallText(id="c", name="ls", arguments='{"no_such": null}'),
    CallText(id="d", name="ls", arguments='{"two words": 1}'),
    CallText(id="e", name="mean", arguments='{"numbers": [NaN, 1e999, -1]}'),
    CallText(id="f", name="touch", arguments='{"file_name": "\\n it\'s ls(\\"x\\") cd (y) \u00e9 \\\\"}'),
)
"""Calls that real models make: classes as prefixes, arguments that are no names or not known, NaN, calls in texts."""
BAD_JSON = once_a_turn(CallText(id="a", name="ls", arguments='{"a": '))


def text_only(_: Ask) -> Reply:
    return SAY


def silent(_: Ask) -> Reply:
    return Reply()


def for_ever(_: Ask) -> Reply:
    return Reply(tool_calls=[CallText(id="a", name="no_such_tool", arguments="{}")], stop="tool_calls")


def played(run: Run, model: Model) -> Run:
    """The run, played to its end."""
    while run.ask is not None:
        run.reply(model(run.ask))
    return run
