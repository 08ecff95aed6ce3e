"""ToolTalk through its own executor: 50 conversations and 28 easy ones, whose user and assistant texts are scripted.

Each assistant turn is predicted from the true history before it: the model calls tools until it replies with text, and
the history goes on with what the script says was called and said. At the end the package matches all predicted calls
with the true ones. ``success`` is its measure: every true call was made, and no other action succeeded.

Departures: requests use today's ``tools`` in place of the abolished ``functions``, with ``required`` inside the
parameters' schema; calls of one reply are executed one after the other; a turn ends after 20 replies with calls (the
package would go on for ever); a predicted call on whose comparison the package fails is no match.

Free texts (mails, messages, reminders, events) the package compares by DistilBERT, thresholds 0.8 and 0.9. The option
``encoder`` names a local folder with that model. Without it, the share of words in common decides, which forgives a
rewording less; the version says which of the two it was, and scores of the two are not comparable.
"""

from __future__ import annotations

import copy
import importlib
import json
import re
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from astra.benchmarks.types import Ask, Bench, CaseInfo, Playing, Verdict
from astra.benchmarks.worker.arguments import arguments_of
from astra.benchmarks.worker.blocking import Blocking, Requests
from astra.benchmarks.worker.packages import require
from astra.benchmarks.worker.standins import stand_in

CATEGORIES = {"tooltalk": "full", "easy": "easy"}
"""The package's folder of conversations -> the category here."""
MAX_REPLIES = 20
COMPARING = ("calendar", "message", "reminder", "email")
"""The package's modules that compare free texts."""


class Package(NamedTuple):
    """What is used of the package."""

    executor: Any
    databases: Path
    tools: list[dict[str, Any]]
    system_prompt: str


def bench(folder: Path, options: Mapping[str, Any]) -> Bench:
    """Option: ``encoder``, a folder with DistilBERT; empty for the comparison by words."""
    if unknown := sorted(set(options) - {"encoder"}):
        raise ValueError(f"tooltalk has the option encoder; got {', '.join(unknown)}")
    encoder = str(options.get("encoder", ""))
    version = require(folder, "nvidia-tooltalk", "26.3")
    by = f"DistilBERT in {Path(encoder).name}" if encoder else "word overlap"
    return ToolTalk(f"{version}, texts by {by}", folder / "tooltalk" / "data", _imported(folder, encoder))


def _imported(folder: Path, encoder: str) -> Package:
    for name in ("openai",) if encoder else ("openai", "requests", "torch", "transformers"):
        stand_in(name)
    utils: Any = importlib.import_module("tooltalk.apis.utils")
    if encoder:
        utils._vectorize_text = utils.HFVectorizer(encoder)
    else:
        for name in COMPARING:
            module: Any = importlib.import_module(f"tooltalk.apis.{name}")
            module.semantic_str_compare = word_overlap
    documents = [_tool(api.to_openai_doc()) for api in importlib.import_module("tooltalk.apis").ALL_APIS]
    return Package(
        executor=importlib.import_module("tooltalk.evaluation.tool_executor").ToolExecutor,
        databases=folder / "tooltalk" / "data" / "databases",
        tools=documents,
        system_prompt=importlib.import_module("tooltalk.evaluation.evaluate_openai").OpenAIPredictor.system_prompt,
    )


def _tool(document: dict[str, Any]) -> dict[str, Any]:
    """The package's document as a tool; it lists the required parameters beside their schema."""
    required = document.pop("required")
    return {"type": "function", "function": document | {"parameters": {**document["parameters"], "required": required}}}


def word_overlap(one: Any, other: Any) -> float:
    """Twice the words in common by the words of both, from 0 to 1; case and punctuation don't count."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return 0.0
    words = [Counter(re.findall(r"\w+", text.lower())) for text in (one, other)]
    n_all = sum(count.total() for count in words)
    return 2 * (words[0] & words[1]).total() / n_all if n_all else float(one == other)


class ToolTalk:
    """Implements ``Bench``."""

    def __init__(self, version: str, data: Path, package: Package) -> None:
        self.version = version
        self._package = package
        self._conversations: dict[str, Any] = {}
        self._cases: list[CaseInfo] = []
        for folder, category in CATEGORIES.items():
            for file in sorted((data / folder).glob("*.json")):
                case = CaseInfo(id=f"{category}/{file.stem}", category=category)
                self._cases.append(case)
                self._conversations[case.id] = json.loads(file.read_text(encoding="utf-8"))

    def cases(self) -> list[CaseInfo]:
        return self._cases

    def start(self, case: str, trial: int) -> Playing:
        play = partial(_play, self._package, copy.deepcopy(self._conversations[case]))
        return Blocking(play, failed={"success": 0.0})


def _play(package: Package, conversation: Any, request: Requests) -> Verdict:
    executor = _executor_class(package)(init_database_dir=str(package.databases))
    executor.run_conversation(conversation, Predictor(package, request))
    found = executor.evaluate_predictions(conversation)["metrics"]
    missed = f"{found['matches']} of {found['ground_truths']} calls, {found['bad_actions']} bad actions"
    return request.verdict({"success": float(found["success"])}, note="" if found["success"] else missed)


def _executor_class(package: Package) -> Any:
    class Executor(package.executor):  # type: ignore[misc, name-defined]
        def compare_api_calls(self, prediction: Any, ground_truth: Any) -> bool:
            try:
                return bool(super().compare_api_calls(prediction, ground_truth))
            except (KeyError, TypeError, ValueError, AttributeError):  # a model's call can have any shape
                return False

    return Executor


class Predictor:
    """The package's ``predict_func``: the next call or text, from the model's last reply as long as it has calls."""

    def __init__(self, package: Package, request: Requests) -> None:
        self._package = package
        self._request = request
        self._calls: deque[dict[str, Any]] = deque()
        self._n_replies = 0

    def __call__(self, metadata: Mapping[str, Any], history: list[dict[str, Any]]) -> dict[str, Any]:
        if not self._calls and self._n_replies < MAX_REPLIES:
            reply = self._request(self._ask(metadata, history))
            self._calls.extend({"api_name": call.name, "parameters": arguments_of(call)} for call in reply.tool_calls)
            self._n_replies += 1
            if not self._calls:
                return self._ended(reply.content or "")
        if self._calls:
            return {"role": "api", "request": self._calls.popleft()}
        return self._ended("")

    def _ended(self, text: str) -> dict[str, Any]:
        self._n_replies = 0
        return {"role": "assistant", "text": text}

    def _ask(self, metadata: Mapping[str, Any], history: list[dict[str, Any]]) -> Ask:
        about = {name: metadata.get(name) for name in ("location", "timestamp", "username")}
        messages = [{"role": "system", "content": self._package.system_prompt.format(**about)}]
        for number, turn in enumerate(history):
            messages += _openai(turn, f"call_{number}")
        return Ask(messages=messages, tools=self._package.tools)


def _openai(turn: Mapping[str, Any], number: str) -> list[dict[str, Any]]:
    """A turn of the package's history: what someone said, or a call and its result."""
    if turn["role"] != "api":
        return [{"role": turn["role"], "content": turn["text"]}]
    named = {"name": turn["request"]["api_name"], "arguments": json.dumps(turn["request"]["parameters"] or {})}
    said = json.dumps({"response": turn["response"], "exception": turn["exception"]})
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": number, "type": "function", "function": named}]},
        {"role": "tool", "tool_call_id": number, "content": said},
    ]
