"""WorkBench from a checkout of the user's: 690 requests of an office, judged by the state of five tables.

The repository (olly-styles/WorkBench at 42f1b6d, the layout with ``src/evals/utils.py``) supplies requests, tools,
tables and its own ``is_correct``: the model's actions and the true ones are executed on fresh tables, which must be
equal. A request that needs no action is right when nothing is done: an agent that does nothing gets 124 of 690.

Departures: the repository asks by a ReAct prompt, here the tools are offered for function calling, by their own
documentation and with a "_" for the "." in their names; values are passed as text, as the repository's actions are
written; and an action's text is built from a known tool, named arguments and quoted values only. Twenty rounds are the
limit, and a run that reaches it is wrong, as there.
"""

from __future__ import annotations

import ast
import builtins
import csv
import importlib
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from astra.benchmarks.types import Ask, Bench, CallText, CaseInfo, Playing, Reply, Verdict
from astra.benchmarks.worker.arguments import UNREAD, arguments_of, shown_arguments
from astra.benchmarks.worker.checkout import checkout
from astra.benchmarks.worker.standins import stand_in

QUERIES = "data/processed/queries_and_answers"
DOMAINS = ("analytics", "calendar", "customer_relationship_manager", "email", "multi_domain", "project_management")
MAX_ROUNDS = 20
CLIENTS = (
    "langchain.agents",
    "langchain_openai",
    "langchain_community.chat_models.anthropic",
    "langchain_community.chat_models.anyscale",
)


class Query(NamedTuple):
    """A request, and the actions that the repository gives as its answer."""

    text: str
    answer: list[str]


class Tool:
    """In the place of LangChain's: what its decorator makes of a function."""

    def __init__(self, name: str, func: Callable[..., Any]) -> None:
        self.name = name
        self.func = func
        self.description = inspect.getdoc(func) or ""

    @property
    def document(self) -> dict[str, Any]:
        parameters = {one: {"type": "string"} for one in inspect.signature(self.func).parameters}
        description = self.description.replace("{{", "{").replace("}}", "}")
        schema = {"type": "object", "properties": parameters, "required": []}
        named = {"name": self.name.replace(".", "_"), "description": description, "parameters": schema}
        return {"type": "function", "function": named}


class Package(NamedTuple):
    """What is used of the repository."""

    tools: Mapping[str, Tool]
    """By the name that the model is offered."""
    is_correct: Any
    reset: Callable[[], None]
    now: Any


def bench(folder: Path, options: Mapping[str, Any]) -> Bench:
    """Option: ``path``, the checkout."""
    if unknown := sorted(set(options) - {"path"}):
        raise ValueError(f"workbench has the option path; got {', '.join(unknown)}")
    root = checkout(options, QUERIES, "src/evals/utils.py", "src/tools/toolkits.py")
    os.chdir(root)  # its modules read their tables by relative paths, whenever they are reset
    return WorkBench(_queries(root), _imported(root))


def _queries(root: Path) -> dict[str, Query]:
    found = {}
    for domain in DOMAINS:
        file = root / QUERIES / f"{domain}_queries_and_answers.csv"
        if file.exists():
            rows = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))
            for number, row in enumerate(rows):
                found[f"{domain}/{number}"] = Query(row["query"], ast.literal_eval(row["answer"]))
    return found


def _imported(root: Path) -> Package:
    for name in CLIENTS:
        stand_in(name)
    stand_in("langchain.tools", tool=lambda name, **_: partial(Tool, name))
    importlib.import_module("pandas").set_option("future.infer_string", False)  # the tables hold times beside texts
    sys.path.insert(1, str(root))
    with _no_keys():
        evals: Any = importlib.import_module("src.evals.utils")
        toolkits: Any = importlib.import_module("src.tools.toolkits")
        times: Any = importlib.import_module("src.data_generation.data_generation_utils")
    tools = {one.name.replace(".", "_"): one for one in vars(toolkits)["all_tools"]}
    return Package(tools, evals.is_correct, partial(_reset, evals.DOMAINS), times.HARDCODED_CURRENT_TIME)


def _reset(domains: list[Any]) -> None:
    for one in domains:
        one.reset_state()


@contextmanager
def _no_keys() -> Iterator[None]:
    """While it imports, the repository reads keys of vendors from files; here they are empty, whatever lies there."""
    real = builtins.open

    def opened(file: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(file, str) and file.endswith("_key.txt"):
            return io.StringIO("")
        return real(file, *arguments, **named)

    builtins.open = opened
    try:
        yield
    finally:
        builtins.open = real


class WorkBench:
    """Implements ``Bench``."""

    def __init__(self, queries: dict[str, Query], package: Package) -> None:
        self.version = f"WorkBench, {len(queries)} requests"
        self._queries = queries
        self._package = package

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=name, category="workbench") for name in self._queries]

    def start(self, case: str, trial: int) -> Playing:
        return Office(self._package, self._queries[case])


class Office:
    """One request. Implements ``Playing``."""

    def __init__(self, package: Package, query: Query) -> None:
        self._package, self._query = package, query
        package.reset()
        day = f"{package.now:%A}, {package.now.date()}"
        rules = (
            f"Today's date is {day} and the current time is {package.now.time()}. Remember the current date and time "
            "when answering queries. Meetings must not start before 9am or end after 6pm."
        )
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": rules},
            {"role": "user", "content": query.text},
        ]
        self._tools = [one.document for one in package.tools.values()]
        self._actions: list[str] = []
        self._n_rounds = 0
        self._n_calls = 0
        self._ended = ""

    def turn(self) -> Ask | None:
        return None if self._ended else Ask(messages=self._messages, tools=self._tools, options={"temperature": 0.0})

    def take(self, reply: Reply) -> None:
        self._n_rounds += 1
        if not reply.tool_calls:
            self._ended = "context" if reply.stop == "context" else "answered"
            return
        shown = [
            {
                "id": one.id,
                "type": "function",
                "function": {"name": one.name, "arguments": json.dumps(shown_arguments(one))},
            }
            for one in reply.tool_calls
        ]
        self._messages = [*self._messages, {"role": "assistant", "content": reply.content, "tool_calls": shown}]
        for call in reply.tool_calls:
            self._n_calls += 1
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": self._result(call)})
        if self._n_rounds >= MAX_ROUNDS:
            self._ended = "round limit"

    def _result(self, call: CallText) -> str:
        """What the tool says; the action is noted, whatever comes of it, when it is one of a known tool."""
        tool, read = self._package.tools.get(call.name), arguments_of(call)
        if tool is None:
            return f"{call.name} is not a valid tool, try one of {', '.join(self._package.tools)}."
        if read is None:
            return f"The arguments are {UNREAD}."
        if wrong := [one for one in read if not one.isidentifier()]:
            return f"{wrong[0]!r} is no name of an argument."
        given = {name: str(value) for name, value in read.items() if value is not None}
        self._actions.append(f"{tool.name}.func({', '.join(f'{name}={value!r}' for name, value in given.items())})")
        try:
            return str(tool.func(**given))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def verdict(self) -> Verdict:
        broken_off = "" if self._ended == "answered" else self._ended or "stopped before the end"
        right = bool(self._package.is_correct(list(self._actions), list(self._query.answer), broken_off))
        note = "" if right else broken_off or f"{len(self._actions)} actions, {len(self._query.answer)} in the answer"
        return Verdict(scores={"accuracy": float(right)}, note=note, n_steps=self._n_rounds, n_calls=self._n_calls)
