"""BFCL's four multi-turn categories, by the protocol of its own function-calling handler.

The package supplies questions, tool documents, executable classes and the checker; this is its handler's loop with the
model taken out. Two versions, whose scores are not comparable: v4 (bfcl-eval), the maintained set, and v3
(nvidia-bfcl), frozen with the errors that v4 has corrected.

A case's turns are the user's messages in order. In each the model is asked, its calls are executed and their results
told to it, until a reply has no call that can be read. A step more than the limit ends the whole case. In one turn of
``miss_func`` the user offers tools that were held back instead.

Departures: the package gives a call to ``eval`` as text. Here a call reaches it only when its tool is a public method
of the case's classes and its arguments have names; what it would say of an unknown name is said for it. So a model
cannot call Python's own functions, which the package allows.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from astra.benchmarks.types import Ask, CallText, CaseInfo, Reply, Verdict
from astra.benchmarks.worker.packages import require

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
RUN_NAME = "play"
"""Part of a Python name in the package, which gets into texts that look like calls; there, ``\\p`` is no escape."""
UNKNOWN = "unknown_tool_()"
"""What the checker executes in place of a call that is refused: as void as an unknown name, and no name of anything."""


@dataclass(frozen=True)
class Version:
    """Where one version of the package keeps what it has."""

    distribution: str
    number: str
    module: str
    prefix: str
    documents: str
    prompts: str
    types: str
    hints_again: bool
    """Whether all tools get the note on Python's syntax once more when tools are added: v3 does, v4 does not."""


VERSIONS = {
    "v4": Version(
        "bfcl-eval", "2026.3.23", "bfcl_eval", "BFCL_v4", "constants.executable_backend_config",
        "constants.default_prompts", "constants.type_mappings", hints_again=False,
    ),
    "v3": Version(
        "nvidia-bfcl", "26.3", "bfcl", "BFCL_v3", "constant", "model_handler.constant", "model_handler.constant",
        hints_again=True,
    ),
}  # fmt: skip
HINT = " Note that the provided function is in Python 3 syntax."


class Package(NamedTuple):
    """What is used of the installed package."""

    version: Version
    folder: Path
    documents: dict[str, str]
    """Class -> the file of its tools' documents."""
    types: dict[str, str]
    more_tools_prompt: str
    max_steps: int
    executor: Any
    checker: Any

    def records(self, *path: str) -> list[dict[str, Any]]:
        """A data file: one JSON object a line, whatever its name says."""
        text = self.folder.joinpath("data", *path).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def package(folder: Path, version: Version) -> Package:
    def module(name: str) -> Any:
        return importlib.import_module(f"{version.module}.{name}")

    prompts = module(version.prompts)
    return Package(
        version=version,
        folder=folder / version.module,
        documents=module(version.documents).MULTI_TURN_FUNC_DOC_FILE_MAPPING,
        types=module(version.types).GORILLA_TO_OPENAPI,
        more_tools_prompt=prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC,
        max_steps=prompts.MAXIMUM_STEP_LIMIT,
        executor=module("eval_checker.multi_turn_eval.multi_turn_utils"),
        checker=module("eval_checker.multi_turn_eval.multi_turn_checker"),
    )


# ---------------------------------------------------------------- tools


def tools_of(documents: list[dict[str, Any]], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """Tool documents as a chat completion takes them; the package's types in JSON Schema's words."""
    tools = copy.deepcopy(documents)
    for one in tools:
        one["name"] = one["name"].replace(".", "_")
        one["parameters"]["type"] = "object"
        _translate(one["parameters"]["properties"], types)
    return [{"type": "function", "function": one} for one in tools]


def _translate(properties: dict[str, Any], types: Mapping[str, str]) -> None:
    for one in properties.values():
        if one.get("type") == "float":
            one["format"] = "float"
            one["description"] += " This is a float type value."
        one["type"] = types.get(one["type"], "string") if "type" in one else "string"
        if one["type"] not in ("array", "object"):
            continue
        if "properties" in one:
            _translate(one["properties"], types)
        elif "items" in one:
            _translate_items(one["items"], types)


def _translate_items(items: dict[str, Any], types: Mapping[str, str]) -> None:
    items["type"] = types[items["type"]]
    if items["type"] == "array" and "items" in items:
        items["items"]["type"] = types[items["items"]["type"]]
    elif items["type"] == "object" and "properties" in items:
        _translate(items["properties"], types)


def with_hint(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "description": one["description"] + HINT} for one in documents]


# ---------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """One entry, with the documents of its tools."""

    entry: dict[str, Any]
    answer: list[list[str]]
    documents: list[dict[str, Any]]
    held_back: dict[int, list[dict[str, Any]]]
    """Turn -> the tools that are offered only then."""

    @property
    def long_context(self) -> bool:
        return "long_context" in self.entry["id"]


def case_of(entry: dict[str, Any], answer: list[list[str]], by_class: Mapping[str, list[dict[str, Any]]]) -> Case:
    documents = [one for name in entry["involved_classes"] for one in by_class[name]]
    held_back: dict[int, list[dict[str, Any]]] = {}
    for turn, names in entry.get("missed_function", {}).items():
        held_back[int(turn)] = [next(one for one in documents if one["name"] == name) for name in names]
        for one in held_back[int(turn)]:
            documents.remove(one)  # the first, should two classes have it
    return Case(entry, answer, documents, held_back)


# ---------------------------------------------------------------- calls


class Unreadable(Exception):
    """A reply's calls that are not what the protocol can execute: the turn ends, and nothing of the reply is done."""


class Call(NamedTuple):
    """A tool call as the package writes it down, ``name(key=value, ...)`` in Python, and what it is made of."""

    text: str
    name: str
    keys: tuple[str, ...]


def decoded(calls: list[CallText]) -> list[Call]:
    """Raises Unreadable where one call's arguments are no JSON object."""
    try:
        return [_decoded(one) for one in calls]
    except (ValueError, AttributeError, RecursionError, MemoryError) as error:
        raise Unreadable(str(error)) from None


def _decoded(call: CallText) -> Call:
    arguments = json.loads(call.arguments)
    shown = ",".join(f"{key}={value!r}" for key, value in arguments.items())
    return Call(f"{call.name}({shown})", call.name, tuple(arguments))


def refusal(call: Call, methods: frozenset[str]) -> str | None:
    """What the model is told of a call that must not be evaluated; None where it is a call of a method by keywords.

    The values are JSON, so their text is only literals: no name and no call can be in them.
    """
    try:
        compile(call.text, "<string>", "eval")  # not run: for Python's own words on what is wrong
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return f"Error during execution: {error}"
    if call.name in methods and all(key.isidentifier() for key in call.keys):
        return None
    parts = call.name.split(".")
    unknown = parts[0] if all(one.isidentifier() for one in parts) and parts[0] not in methods else call.name
    return f"Error during execution: name '{unknown}' is not defined"


# ---------------------------------------------------------------- one run


class BfclPlaying:
    """One run: the conversation, what was executed, and where in the turns it is."""

    def __init__(self, package: Package, case: Case) -> None:
        self.package, self.case = package, case
        self.documents = with_hint(case.documents)
        self.messages: list[dict[str, Any]] = []
        self.turns: list[list[list[Call]]] = []
        self.failed = ""
        self.n_steps = 0
        self._tools = tools_of(self.documents, package.types)
        self._methods = self._public_methods()
        self._next_turn()

    # -------------------------------------------------------- the conversation

    def turn(self) -> Ask | None:
        return None if self.over else Ask(messages=self.messages, tools=self._tools)

    @property
    def over(self) -> bool:
        return bool(self.failed) or len(self.turns) > len(self.case.entry["question"])

    def take(self, reply: Reply) -> None:
        if reply.stop == "context":
            self.failed = "multi_turn:inference_error: the model could not take the prompt"
            return
        self.n_steps += 1
        self.messages.append(_message(reply))
        try:
            calls = decoded(reply.tool_calls)
        except Unreadable:
            calls = []
        if not calls:
            self._next_turn()
            return
        self.turns[-1].append(calls)
        for call, result in zip(reply.tool_calls, self._executed(calls), strict=True):
            self.messages.append({"role": "tool", "content": result, "tool_call_id": call.id})
        if len(self.turns[-1]) > self.package.max_steps:
            self._force_end()

    def _next_turn(self) -> None:
        """Open the next turn; behind the last one an empty one stands for the end."""
        number = len(self.turns)
        self.turns.append([])
        if self.over:
            return
        said = self.case.entry["question"][number]
        if number in self.case.held_back:
            self._offer(self.case.held_back[number])
            said = [{"role": "user", "content": self.package.more_tools_prompt}]
        self.messages.extend(said)

    def _offer(self, documents: list[dict[str, Any]]) -> None:
        self.documents = self.documents + documents
        if self.package.version.hints_again:
            self.documents = with_hint(self.documents)
        self._tools = tools_of(self.documents, self.package.types)

    def _force_end(self) -> None:
        """Too many steps in one turn: the rest is not asked, and what is missing fails the case."""
        if len(self.turns) == len(self.case.entry["question"]):
            self.turns.append([])
        else:
            self.failed = f"multi_turn:force_terminated: more than {self.package.max_steps} steps in a turn"

    # -------------------------------------------------------- calls

    def _public_methods(self) -> frozenset[str]:
        """Names that may be called: public methods of the case's classes, offered or held back."""
        _, instances = self._execute([])
        methods = (name for one in instances.values() for name, _ in inspect.getmembers(one, inspect.ismethod))
        return frozenset(name for name in methods if not name.startswith("_"))

    def _executed(self, calls: list[Call]) -> list[str]:
        results = []
        for call in calls:
            refused = refusal(call, self._methods)
            results.append(self._execute([call.text])[0][0] if refused is None else refused)
        return results

    def _execute(self, texts: list[str]) -> tuple[list[str], dict[str, Any]]:
        entry = self.case.entry
        found: tuple[list[str], dict[str, Any]] = self.package.executor.execute_multi_turn_func_call(
            texts, entry["initial_config"], entry["involved_classes"], RUN_NAME, entry["id"],
            long_context=self.case.long_context, is_evaL_run=False,
        )  # fmt: skip
        return found

    # -------------------------------------------------------- the verdict

    def verdict(self) -> Verdict:
        note = self.failed or self._mistake()
        n_calls = sum(len(step) for turn in self.turns for step in turn)
        return Verdict(scores={"accuracy": float(not note)}, note=note, n_steps=self.n_steps, n_calls=n_calls)

    def _mistake(self) -> str:
        """What the package's checker finds wrong; empty where the case is passed."""
        if not self.over:
            return f"multi_turn:force_terminated: stopped in turn {len(self.turns)} of {len(self.case.answer)}"
        entry = self.case.entry
        result = self.package.checker.multi_turn_checker(
            self.checkable(), self.case.answer, entry, entry["id"].rsplit("_", 1)[0], RUN_NAME
        )
        return "" if result["valid"] else f"{result['error_type']}: {result['error_message']}"

    def checkable(self) -> list[list[list[str]]]:
        """What was called, turn by turn and step by step, as text that may be evaluated."""
        return [[[self._safe(call) for call in step] for step in turn] for turn in self.turns[: len(self.case.answer)]]

    def _safe(self, call: Call) -> str:
        return call.text if refusal(call, self._methods) is None else UNKNOWN


def _message(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in reply.tool_calls
        ]
    return message


# ---------------------------------------------------------------- the benchmark


class Bfcl:
    """All cases of one version."""

    def __init__(self, package: Package) -> None:
        self.version = f"{package.version.distribution} {package.version.number}"
        self._package = package
        self._cases = {one.entry["id"]: one for category in CATEGORIES for one in self._read(category)}
        for name in {name for one in self._cases.values() for name in one.entry["involved_classes"]}:
            importlib.import_module(package.executor.CLASS_FILE_PATH_MAPPING[name])  # here once, else in every run

    def _read(self, category: str) -> list[Case]:
        package = self._package
        name = f"{package.version.prefix}_{category}.json"
        by_class = {
            one: package.records("multi_turn_func_doc", file)
            for one, file in package.documents.items()
            if (package.folder / "data" / "multi_turn_func_doc" / file).is_file()
        }
        answers = {one["id"]: one["ground_truth"] for one in package.records("possible_answer", name)}
        return [case_of(one, answers[one["id"]], by_class) for one in package.records(name)]

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=one, category=one.rsplit("_", 1)[0]) for one in self._cases]

    def start(self, case: str, trial: int) -> BfclPlaying:
        return BfclPlaying(self._package, self._cases[case])


def bench(folder: Path, options: Mapping[str, Any]) -> Bfcl:
    """Raises PackageMissing, KeyError for a version that there is not."""
    version = VERSIONS[options["version"]]
    require(folder, version.distribution, version.number)
    return Bfcl(package(folder, version))
