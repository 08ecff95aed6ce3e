"""ACEBench's agent split, from a checkout of the user's: prompting, calls as text, states of phone and travel classes.

The repository (chenchen0103/ACEBench, seen at 56dd66c) supplies prompts, roles, executable classes and the check of a
class's state; its two loops, at most 40 messages, are written again here because its own write files. ``multi_step``
has no user; in ``multi_turn`` a second model plays the user. ``accuracy`` is its end-to-end accuracy: the saved
attributes of all classes equal the answer's after a round trip through JSON.

As in the repository: the multi-step agent gets the Chinese system prompt in English runs too, and classes that the
answers misspell are not compared. Its milestones are no full script, so replaying them does not solve every case.

Departures: the executor gives the model's text to ``eval``; here a message reaches it only when it is calls of plain
names with literal arguments, and any other is as unreadable as one that does not parse. Process accuracy is not
computed.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from astra.benchmarks.types import Ask, Bench, CaseInfo, Playing, Verdict
from astra.benchmarks.worker.blocking import Blocking, Requests, Stopped
from astra.benchmarks.worker.checkout import checkout
from astra.benchmarks.worker.standins import stand_in

KINDS = ("multi_step", "multi_turn")
LANGUAGES = ("en", "zh")
MAX_MESSAGES = 40
AGENT, USER = "gpt-agent", "gpt-user"  # the roles take no name without the name of a vendor in it
LITERALS = (ast.Constant, ast.UnaryOp, ast.USub, ast.List, ast.Tuple, ast.Dict, ast.Name, ast.Load)


class Case(NamedTuple):
    """A record of the data, and its answer."""

    kind: str
    entry: dict[str, Any]
    truth: list[dict[str, Any]]


class Package(NamedTuple):
    """What is used of the repository."""

    modules: Mapping[str, Any]
    check: Any
    saved: Mapping[str, list[str]]
    language: str


def bench(folder: Path, options: Mapping[str, Any]) -> Bench:
    """Options: ``path``, the checkout; ``language``, en or zh."""
    if unknown := sorted(set(options) - {"path", "language"}):
        raise ValueError(f"acebench has the options path and language; got {', '.join(unknown)}")
    language = options.get("language", "en")
    if language not in LANGUAGES:
        raise ValueError(f"acebench.language {language!r}: one of {', '.join(LANGUAGES)}")
    root = checkout(options, "data_all", "model_inference/multi_step", "model_inference/multi_turn", "model_eval")
    cases = {one.entry["id"]: one for kind in KINDS for one in _cases(root / "data_all" / f"data_{language}", kind)}
    return AceBench(cases, _imported(root, language))


def _cases(data: Path, kind: str) -> list[Case]:
    def records(file: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]

    name = f"data_agent_{kind}.json"
    truths = {one["id"]: one["ground_truth"] for one in records(data / "possible_answer" / name)}
    found = [(one, truths[one["id"]]) for one in records(data / name)]
    return [Case(kind, entry, truth if isinstance(truth, list) else [truth]) for entry, truth in found]


def _imported(root: Path, language: str) -> Package:
    for name in ("openai", "dotenv", "wcwidth", "tqdm"):
        stand_in(name)
    sys.path.insert(1, str(root))
    names = [f"multi_step.{one}" for one in ("APIModel_agent", "execution_role_step", "multi_step_scene")]
    names += [f"multi_turn.{one}" for one in ("APIModel_agent", "APIModel_user", "execution_role", "multi_turn_scene")]
    modules = {name: importlib.import_module(f"model_inference.{name}") for name in names}
    inference = ast.parse((root / "model_inference" / "apimodel_inference.py").read_text(encoding="utf-8"))
    [saved] = [
        one.value
        for one in inference.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "SAVED_CLASS"
    ]
    return Package(modules, _agent_checker(root), ast.literal_eval(saved), language)


def _agent_checker(root: Path) -> Any:
    """The repository's check of one class's state; the file around it imports what makes tables."""
    tree = ast.parse((root / "model_eval" / "checker.py").read_text(encoding="utf-8"))
    tree.body = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "agent_checker"]
    namespace: dict[str, Any] = {}
    exec(compile(tree, "checker.py", "exec"), namespace)
    return namespace["agent_checker"]


class AceBench:
    """Implements ``Bench``."""

    def __init__(self, cases: dict[str, Case], package: Package) -> None:
        self.version = f"ACEBench agent split, {len(cases)} cases, {package.language}"
        self._cases = cases
        self._package = package

    def cases(self) -> list[CaseInfo]:
        language = self._package.language
        return [CaseInfo(id=name, category=f"{one.kind}_{language}") for name, one in self._cases.items()]

    def start(self, case: str, trial: int) -> Playing:
        return Blocking(partial(_play, self._package, self._cases[case]), failed={"accuracy": 0.0})


def _play(package: Package, case: Case, request: Requests) -> Verdict:
    for module in package.modules.values():
        if hasattr(module, "OpenAI"):
            module.OpenAI = partial(_Client, request)
    scene = _MultiStep(package, case) if case.kind == "multi_step" else _MultiTurn(package, case)
    states = scene.played()
    right = len(states) == len(case.truth) and all(_equal(package, one, states) for one in case.truth)
    return request.verdict({"accuracy": float(right)}, note="" if right else f"{len(states)} classes used")


def _equal(package: Package, truth: dict[str, Any], states: list[dict[str, Any]]) -> bool:
    """One class's answer; true where no class of that name was used, as in the repository."""
    same = [one for one in states if one.keys() == truth.keys()]
    return not same or bool(package.check(same[0], truth)["valid"])


class _Client:
    """In the place of OpenAI's client: what its ``create`` is given is the run's request."""

    def __init__(self, request: Requests, **_: Any) -> None:
        self._request = request
        self.chat = SimpleNamespace(completions=self)

    def create(self, messages: list[dict[str, Any]], model: str, **options: Any) -> Any:
        role: Any = "user" if model == USER else "agent"
        reply = self._request(Ask(role=role, messages=messages, options=options))
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=reply.content or ""))])


class _Scene:
    """What both loops have: the dialogue, the executor, and the classes that it has used."""

    def __init__(self, package: Package, case: Case, execution: Any) -> None:
        entry, self._package = case.entry, package
        self.used: list[dict[str, Any]] = []
        self.about = {"model_name": AGENT, "functions": entry["function"], "time": ""}
        self.execution = execution(
            agent_model_name=AGENT,
            initial_config=entry["initial_config"],
            involved_classes=entry["involved_classes"],
            test_id=entry["id"].split("_")[-1],
            language=package.language,
        )
        self._decode = self.execution.decode_function_list
        self.execution.decode_function_list = self._guarded

    def _guarded(self, message: str) -> Any:
        if not is_plain(message):
            raise self.unreadable("no list of plain calls")
        return self._decode(message)

    unreadable: type[BaseException] = ValueError

    def executed(self, history: list[dict[str, Any]]) -> dict[str, Any]:
        message, instances = self.execution.respond(history)
        if isinstance(instances, dict) and instances not in self.used:  # after an error it is a list of names
            self.used.append(instances)
        return dict(message)

    def states(self) -> list[dict[str, Any]]:
        saved = [
            {name: {key: value for key, value in vars(one).items() if key in self._package.saved[name]}}
            for instances in self.used
            for name, one in instances.items()
        ]
        return list(json.loads(json.dumps(saved)))


class _MultiStep(_Scene):
    def __init__(self, package: Package, case: Case) -> None:
        super().__init__(package, case, package.modules["multi_step.execution_role_step"].EXECUTION_STEP)
        self.agent = package.modules["multi_step.APIModel_agent"].APIAgent_step(**self.about)
        self.scene = package.modules["multi_step.multi_step_scene"].Mulit_Step_Scene(
            question=case.entry["question"],
            initial_state=case.entry["initial_config"],
            functions=case.entry["function"],
            agent_role=self.agent,
            language=package.language,
        )

    def played(self) -> list[dict[str, Any]]:
        history = self.scene.dialogue_history
        for number in range(MAX_MESSAGES):
            if number == 0 or history[-1]["sender"] == "execution":
                message = self.agent.respond(self.scene.get_inference_message())
            else:
                message = self.executed(history)
            self.scene.add_dialogue(message)
            if number > 1 and "finish conversation" in message["message"]:
                break
        return self.states()


class _MultiTurn(_Scene):
    unreadable = Stopped  # the repository breaks off here

    def __init__(self, package: Package, case: Case) -> None:
        super().__init__(package, case, package.modules["multi_turn.execution_role"].EXECUTION)
        spoken = {"involved_class": case.entry["involved_classes"], "language": package.language}
        self.agent = package.modules["multi_turn.APIModel_agent"].APIAgent_turn(**self.about, **spoken)
        self.user = package.modules["multi_turn.APIModel_user"].APIUSER(model_name=USER, **spoken)
        self.scene = package.modules["multi_turn.multi_turn_scene"].Scene(
            initial_state=case.entry["initial_config"],
            functions=case.entry["function"],
            agent_role=self.agent,
            user_role=self.user,
            init_message=self.user.get_init_prompt(case.entry["question"]),
            language=package.language,
        )

    def played(self) -> list[dict[str, Any]]:
        history = self.scene.dialogue_history
        for number in range(MAX_MESSAGES):
            told = self.scene.get_inference_message()
            if history[-1]["recipient"] == "user":
                self.user.step(history[-1]["message"])
                message = self.user.respond()
            elif history[-1]["recipient"] == "agent":
                message = self.agent.respond(told)
            else:
                message = self.executed(history)
            self.scene.add_dialogue(message)
            if number > 1 and "finish conversation" in message["message"]:
                break
        return self.states()


def is_plain(message: str) -> bool:
    """Whether a message is ``[name(key=literal, ...), ...]`` and nothing that could be computed, in any part of it."""
    try:
        body = ast.parse(re.sub(r"^ ", "", message).strip("[]'"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = body.elts if isinstance(body, ast.Tuple | ast.List) else [body]
    return bool(calls) and all(isinstance(one, ast.Call) and _is_plain_call(one) for one in calls)


def _is_plain_call(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Name) or call.args:
        return False
    for one in call.keywords:
        # the executor reads a mapping as a call of its first key
        if one.arg is None or isinstance(one.value, ast.Dict):
            return False
        if not all(isinstance(part, LITERALS) for part in ast.walk(one.value)):
            return False
    return True
