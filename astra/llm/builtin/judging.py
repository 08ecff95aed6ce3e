"""The rule-based judge of tasks: each rule looks for something that can be wrong and says what it found."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from astra.llm.builtin import phrases
from astra.llm.builtin.graph_tasks import fed, read_tools, required
from astra.llm.builtin.phrases import words

Tool = Mapping[str, Any]
Shown = Mapping[str, Any]


class Finding(NamedTuple):
    """A score and what it rests on."""

    score: float
    reason: str

    def reply(self) -> dict[str, Any]:
        return {"score": round(min(1.0, max(0.0, self.score)), 4), "reason": self.reason}


# ---------------------------------------------------------------- tasks

PLACEHOLDER = re.compile(r"<\w+>|\{\w+\}|\[[A-Za-z_ ]+\]|\b(TODO|XXX|N/A)\b")
DUMMY = re.compile(r"\b(foo|bar|baz|test|dummy|example|sample|string|lorem|12345)\b", re.IGNORECASE)
ASKS = re.compile(r"\?|\b(please|need|want|find|tell|get|show|help)\b", re.IGNORECASE)
FEW_WORDS, MANY_WORDS = 5, 120


def question_quality(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Named tools, placeholders, brevity and missing values."""
    question, tools = shown["question"], shown["target_tools"]
    named = [tool["name"] for tool in (*tools, *shown["other_tools"]) if _names_code(tool["name"], question)]
    if named:
        return Finding(0.0, f"it names the tool {named[0]}").reply()
    hole = PLACEHOLDER.search(question)
    if hole:
        return Finding(0.0, f"it has an unfilled placeholder: {hole.group()}").reply()
    if len(question.split()) < FEW_WORDS:
        return Finding(0.3, "it is too short to act on").reply()
    missing = list(_missing(question, tools))
    if missing:
        return Finding(1 - 0.5 * len(missing), f"it does not give the {', '.join(missing[:3])}").reply()
    if question.rstrip()[-1] not in ".?!":
        return Finding(0.8, "it breaks off").reply()
    return Finding(1.0, "it is clear and gives every value that no result gives").reply()


def _names_code(name: str, question: str) -> bool:
    """Whether a name that no person would write stands in the text."""
    return name != words(name) and re.search(rf"\b{re.escape(name)}\b", question) is not None


def _missing(question: str, tools: Sequence[Tool]) -> Iterator[str]:
    """What the target tools require that neither the request states nor an earlier target tool returns."""
    branches = phrases.read_knowledge(question, tools)
    for n, tool in enumerate(tools):
        from_results = {parameter for one in tools[:n] for parameter in fed(one, tool)}
        for parameter in required(tool):
            stated = phrases.read_given(question, parameter) is not None or f"{words(parameter)} " in question
            if parameter not in from_results and not stated and not branches:
                yield words(parameter)


def scenario_realism(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Dummy values, values that contradict each other, repetition, length."""
    question = shown["question"]
    steps = phrases.read_steps(question)
    values = [value for step in steps for value in step.given.values()]
    dummy = next((value for value in values if DUMMY.fullmatch(value.strip())), None)
    if dummy is not None:
        return Finding(0.4, f"{dummy!r} is a dummy value").reply()
    for step in steps:
        clash = _clash(step.given)
        if clash:
            return Finding(0.3, clash).reply()
    clauses = Counter((step.clause, *sorted(step.given.items())) for step in steps)
    if clauses and max(clauses.values()) > 1:
        return Finding(0.4, "it asks for the same thing twice").reply()
    branches = phrases.read_knowledge(question, [*shown["target_tools"], *shown["other_tools"]])
    if len(set(branches)) < len(branches):
        return Finding(0.4, "it asks for the same thing twice").reply()
    if not (steps or branches or ASKS.search(question)):
        return Finding(0.2, "it asks for nothing").reply()
    if len(question.split()) > MANY_WORDS:
        return Finding(0.6, "nobody writes that long a request").reply()
    return Finding(1.0, "plausible values and a purpose").reply()


def _clash(given: Mapping[str, str]) -> str | None:
    """Two values of one step that cannot both be meant: the same end twice, or a period that ends before it begins."""
    for start, end in (("from", "to"), ("source", "target"), ("start", "end")):
        for name, value in given.items():
            other = given.get(re.sub(rf"\b{start}\b", end, name)) if re.search(rf"\b{start}\b", name) else None
            if other is not None and other == value:
                return f"{name} and its counterpart are both {value}"
            if other is not None and re.match(r"\d{4}-\d\d-\d\d", value) and other < value:
                return f"it ends on {other}, before {value}"
    return None


def tool_necessity(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Whether the request asks for each target tool, in order, and for nothing that the server lacks."""
    question, targets = shown["question"], shown["target_tools"]
    if not targets:
        return Finding(0.0, "no tool is needed").reply()
    everything = [*targets, *shown["other_tools"]]
    wanted = list(dict.fromkeys(tool["name"] for tool in targets))
    asked = list(dict.fromkeys(read_tools(question, everything)))
    if not asked:
        asked = [tool["name"] for tool in targets if overlap(tool, question) >= 0.6]
        return Finding(len(asked) / len(targets), f"it asks for {len(asked)} of {len(targets)} tools").reply()
    unasked = [name for name in wanted if name not in asked]
    beyond = [name for name in asked if name not in wanted]
    if unasked or beyond:
        share = (len(wanted) - len(unasked)) / (len(wanted) + len(beyond))
        return Finding(share, f"not asked for: {unasked}; asked for beside the targets: {beyond}").reply()
    steps = phrases.read_steps(question)
    n_known = len(read_tools(question, everything))
    if len(steps) > n_known:
        return Finding(0.5, f"{len(steps) - n_known} of its steps are for no tool").reply()
    if asked != wanted:
        return Finding(0.8, "it asks for the tools in another order").reply()
    return Finding(1.0, "it needs each target tool, in this order").reply()


_WORD = re.compile(r"[a-z]{3,}")
_STOP = {"the", "and", "for", "with", "that", "its", "get", "from", "all", "are", "has", "which"}


def _content(text: str) -> set[str]:
    return {word.rstrip("s") for word in _WORD.findall(text.lower())} - _STOP


def _purpose(tool: Tool) -> str:
    form = phrases.knowledge_form({"parameters": {}, **tool})
    return form.label if form is not None else phrases.clause(tool)


def overlap(tool: Tool, text: str) -> float:
    """The share of a tool's content words that a text has."""
    purpose = _content(_purpose(tool))
    return len(purpose & _content(text)) / len(purpose) if purpose else 0.0


HANDLERS: dict[str, Callable[[Any, random.Random], dict[str, Any]]] = {
    "Tasks: rate question quality": question_quality,
    "Tasks: rate scenario realism": scenario_realism,
    "Tasks: rate tool necessity": tool_necessity,
}
