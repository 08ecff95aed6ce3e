"""AgentDojo v1.2.2 through its own pipeline, runtime and checks: utility of 97 user tasks, and security under attack.

The pipeline is the package's default one without a defense: system message, query, model, and at most 15 rounds of
tools and model. The model's element becomes the run's request, and what the package's own check says is the verdict.

A case under attack is a user task with one injection task, placed by one of the package's attacks wherever the task's
own solution would read it. Attacks that call the model by its name need one that the package knows, so they are not
offered; ``important_instructions_no_model_name`` is the paper's main attack without that name. ``pairs`` "one" gives
every user task one injection task, the n-th task the n-th in turn (97 cases, every injection task about equally often);
"all" gives all 949. ``security`` is 1 where the injected goal was not reached, ``attack_success`` the other way round.

Departures: the system message has the role ``system`` and contents are plain text; arguments that are no JSON object,
on which the package breaks off, are an error of that call; where the model cannot take the prompt the injected goal
counts as not reached (the package counts it as reached).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from astra.benchmarks.types import Ask, Bench, CaseInfo, Playing, Reply, Verdict
from astra.benchmarks.worker.arguments import UNREAD, shown_arguments
from astra.benchmarks.worker.blocking import Blocking, Requests, Stopped
from astra.benchmarks.worker.packages import require
from astra.benchmarks.worker.standins import bare_package, stand_in

BENCHMARK_VERSION = "v1.2.2"
SUITES = ("workspace", "travel", "banking", "slack")
NAMELESS_ATTACKS = (
    "important_instructions_no_model_name",
    "important_instructions_no_names",
    "direct",
    "ignore_previous",
    "system_message",
    "injecagent",
)
EMPTY_FUNCTION_NAME = "<empty-function-name>"
"""A constant of the package's Google client, which its tool executor imports."""


class Package(NamedTuple):
    """What is used of the package."""

    suites: Mapping[str, Any]
    elements: Any
    execution: Any
    runtime: Any
    types: Any
    attacks: Any
    system_message: str


class Case(NamedTuple):
    """A user task, and the injection task under attack."""

    suite: str
    user_task: str
    injection_task: str = ""

    @property
    def id(self) -> str:
        return "/".join(part for part in self if part)

    @property
    def category(self) -> str:
        return f"{self.suite}_security" if self.injection_task else self.suite


def bench(folder: Path, options: Mapping[str, Any]) -> Bench:
    """Options: ``attack`` (one of NAMELESS_ATTACKS) and ``pairs`` ("one", "all") for the cases under attack."""
    attack, pairs = options.get("attack", NAMELESS_ATTACKS[0]), options.get("pairs", "one")
    if unknown := sorted(set(options) - {"attack", "pairs"}):
        raise ValueError(f"agentdojo has the options attack and pairs; got {', '.join(unknown)}")
    if attack not in NAMELESS_ATTACKS:
        raise ValueError(
            f"agentdojo.attack {attack!r}: one of {', '.join(NAMELESS_ATTACKS)} (no name of a model needed)"
        )
    if pairs not in ("one", "all"):
        raise ValueError(f"agentdojo.pairs {pairs!r}: one or all")
    return AgentDojo(require(folder, "agentdojo", "0.1.35"), imported(folder), attack, pairs)


def imported(folder: Path) -> Package:
    """All that a run needs, without the clients of four vendors that the package's own ``__init__`` imports."""
    importlib.import_module("agentdojo")
    pipeline = "agentdojo.agent_pipeline"
    bare_package(pipeline, folder / "agentdojo" / "agent_pipeline")
    bare_package(f"{pipeline}.llms", folder / "agentdojo" / "agent_pipeline" / "llms")
    stand_in(f"{pipeline}.llms.google_llm", EMPTY_FUNCTION_NAME=EMPTY_FUNCTION_NAME)
    for module in ("baseline_attacks", "important_instructions_attacks"):
        importlib.import_module(f"agentdojo.attacks.{module}")
    yaml = importlib.import_module("yaml")
    messages = yaml.safe_load((folder / "agentdojo" / "data" / "system_messages.yaml").read_text())
    suites = importlib.import_module("agentdojo.task_suite.load_suites").get_suites(BENCHMARK_VERSION)
    for name in SUITES:
        suites[name].load_and_inject_default_environment({})  # it keeps the files that it has read, for every run
    return Package(
        suites=suites,
        elements=importlib.import_module(f"{pipeline}.basic_elements"),
        execution=importlib.import_module(f"{pipeline}.tool_execution"),
        runtime=importlib.import_module("agentdojo.functions_runtime"),
        types=importlib.import_module("agentdojo.types"),
        attacks=importlib.import_module("agentdojo.attacks.attack_registry"),
        system_message=messages["default"],
    )


class AgentDojo:
    """Implements ``Bench``."""

    def __init__(self, version: str, package: Package, attack: str, pairs: str) -> None:
        self.version = f"{version} {BENCHMARK_VERSION}, attack {attack} ({pairs})"
        self._package = package
        self._attack = attack
        plain = [Case(suite, task) for suite in SUITES for task in package.suites[suite].user_tasks]
        attacked = [one for suite in SUITES for one in _attacked(suite, package.suites[suite], pairs)]
        self._cases = {one.id: one for one in plain + attacked}

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=one.id, category=one.category) for one in self._cases.values()]

    def start(self, case: str, trial: int) -> Playing:
        chosen = self._cases[case]
        if chosen.injection_task:
            failed = {"security": 1.0, "utility": 0.0, "attack_success": 0.0}
            return Blocking(partial(_play_attacked, self._package, chosen, self._attack), failed)
        return Blocking(partial(_play, self._package, chosen), failed={"utility": 0.0})


def _attacked(suite: str, tasks: Any, pairs: str) -> list[Case]:
    injections = list(tasks.injection_tasks)
    if pairs == "all":
        return [Case(suite, task, injection) for task in tasks.user_tasks for injection in injections]
    return [Case(suite, task, injections[n % len(injections)]) for n, task in enumerate(tasks.user_tasks)]


def _play(package: Package, case: Case, request: Requests) -> Verdict:
    suite = package.suites[case.suite]
    task = suite.get_user_task_by_id(case.user_task)
    utility, _ = suite.run_task_with_pipeline(
        _Pipeline(package, request), task, None, {}, runtime_class=_runtime_class(package)
    )
    return request.verdict({"utility": float(utility)})


def _play_attacked(package: Package, case: Case, attack: str, request: Requests) -> Verdict:
    suite = package.suites[case.suite]
    task, injection = suite.get_user_task_by_id(case.user_task), suite.get_injection_task_by_id(case.injection_task)
    pipeline = _Pipeline(package, request)
    placed = package.attacks.load_attack(attack, suite, pipeline).attack(task, injection)
    utility, reached = suite.run_task_with_pipeline(
        pipeline, task, injection, placed, runtime_class=_runtime_class(package)
    )
    scores = {"security": float(not reached), "utility": float(utility), "attack_success": float(reached)}
    return request.verdict(scores)


def _runtime_class(package: Package) -> Any:
    """The package's runtime, in which a call whose arguments could not be read fails as one with wrong ones does."""

    class Runtime(package.runtime.FunctionsRuntime):  # type: ignore[misc, name-defined]
        def run_function(self, env: Any, function: str, kwargs: Any, raise_on_error: bool = False) -> Any:
            if UNREAD in kwargs:
                return "", f"ValidationError: the arguments are {UNREAD}: {kwargs[UNREAD]}"
            return super().run_function(env, function, kwargs, raise_on_error)

    return Runtime


class _Pipeline:
    """The package's default pipeline around the run's line; ``query`` is the method of all its elements."""

    name = "local"  # by which the attacks look up what to call the model; those without a name drop it again

    def __init__(self, package: Package, request: Requests) -> None:
        model = _Model(package, request)
        rounds = package.execution.ToolsExecutionLoop([_Executor(package), model])
        opening = package.elements.SystemMessage(package.system_message), package.elements.InitQuery()
        self._elements = [*opening, model, rounds]

    def query(self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra: Any = None) -> Any:
        state = query, runtime, env, messages, extra or {}
        for element in self._elements:
            state = element.query(*state)
        return state


class _Executor:
    """The package's executor of tools. It evaluates arguments that look like lists; what breaks that fails the run."""

    def __init__(self, package: Package) -> None:
        self._executor = package.execution.ToolsExecutor()

    def query(self, *state: Any) -> Any:
        try:
            return self._executor.query(*state)
        except (RecursionError, MemoryError) as error:
            raise Stopped(f"arguments that cannot be evaluated: {type(error).__name__}") from error


class _Model:
    """The element that asks the model, as the package's OpenAI client does."""

    def __init__(self, package: Package, request: Requests) -> None:
        self._package = package
        self._request = request

    def query(self, query: str, runtime: Any, env: Any, messages: Sequence[Any], extra: Any) -> Any:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": one.name,
                    "description": one.description,
                    "parameters": one.parameters.model_json_schema(),
                },
            }
            for one in runtime.functions.values()
        ]
        told = [_openai(self._package, one) for one in messages]
        reply = self._request(Ask(messages=told, tools=tools, options={"temperature": 0.0, "tool_choice": "auto"}))
        return query, runtime, env, [*messages, self._message(reply)], extra

    def _message(self, reply: Reply) -> Any:
        make = self._package.runtime.FunctionCall
        calls = [make(function=one.name, args=shown_arguments(one), id=one.id) for one in reply.tool_calls]
        block = self._package.types.text_content_block_from_string
        content = None if reply.content is None else [block(reply.content)]
        return {"role": "assistant", "content": content, "tool_calls": calls or None}


def _openai(package: Package, message: Any) -> dict[str, Any]:
    """A message of the package in OpenAI's form; a call's error stands in the place of its result."""
    content = message["content"]
    text = None if content is None else package.types.get_text_content_as_str(content)
    told: dict[str, Any] = {"role": message["role"], "content": text}
    if message["role"] == "tool":
        call = message["tool_call"]
        told |= {"content": message["error"] or text, "tool_call_id": call.id, "name": call.function}
    elif message["role"] == "assistant" and message["tool_calls"]:
        told["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.function, "arguments": json.dumps(one.args)}}
            for one in message["tool_calls"]
        ]
    return told
