"""The rule-based judge of tasks: each rule looks for something that can be wrong and says what it found."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from astra.llm.builtin import phrases
from astra.llm.builtin.graph_tasks import fed, read_tools, required
from astra.llm.builtin.phrases import label, words
from astra.llm.builtin.plan import Earlier, plan

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
VAGUE = re.compile(
    r"\b(nice|interesting|fun|some ideas|something|anything|whatever|surprise me|inspire me|you like|best)\b",
    re.IGNORECASE,
)
RELATIVE = re.compile(
    r"\b(now|today|tonight|tomorrow|yesterday|currently|current|latest|(?:this|next|last) (?:week|month|year|hour))\b",
    re.IGNORECASE,
)


def said(shown: Shown) -> list[str]:
    """What the user says, turn by turn."""
    return [shown["question"], *(turn["says"] for turn in shown.get("later_turns", []))]


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
    left_out = {name.partition(".")[2] for name in shown.get("missing", []) if shown["kind"] == "missing_value"}
    missing = [name for name in _missing(" ".join(said(shown)), tools) if name not in map(label, left_out)]
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
            stated = phrases.read_given(question, parameter) is not None or f"{label(parameter)} " in question
            if parameter not in from_results and not stated and not branches:
                yield label(parameter)


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
    read = [name for text in said(shown) for name in read_tools(text, everything)]
    asked = list(dict.fromkeys(read))
    if not asked:
        asked = [tool["name"] for tool in targets if overlap(tool, question) >= 0.6]
        return Finding(len(asked) / len(targets), f"it asks for {len(asked)} of {len(targets)} tools").reply()
    unasked = [name for name in wanted if name not in asked]
    beyond = [name for name in asked if name not in wanted]
    if unasked or beyond:
        share = (len(wanted) - len(unasked)) / (len(wanted) + len(beyond))
        return Finding(share, f"not asked for: {unasked}; asked for beside the targets: {beyond}").reply()
    n_steps = sum(len(phrases.read_steps(text)) for text in said(shown))
    if n_steps > len(read):
        return Finding(0.5, f"{n_steps - len(read)} of its steps are for no tool").reply()
    if asked != wanted:
        return Finding(0.8, "it asks for the tools in another order").reply()
    return Finding(1.0, "it needs each target tool, in this order").reply()


def verifiability(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Whether an answer could be checked: no matter of taste, and tools that say what they return."""
    asked = _own_words(shown)
    taste = VAGUE.search(asked)
    if taste:
        return Finding(0.3, f"whether an answer fits {taste.group()!r} is a matter of taste").reply()
    silent = [tool["name"] for tool in shown["target_tools"] if not tool.get("returns")]
    share = len(silent) / max(1, len(shown["target_tools"]))
    if silent:
        return Finding(1 - 0.2 * share, f"what {silent[0]} returns is not documented").reply()
    return Finding(1.0, "each step has a result that can be held against the answer").reply()


def stability(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Whether the same answer is right on another day: no words that hang on when they are said."""
    relative = RELATIVE.search(_own_words(shown))
    if relative:
        return Finding(0.3, f"{relative.group()!r} means something else on another day").reply()
    moving = [tool["name"] for tool in shown["target_tools"] if RELATIVE.search(phrases.clause(tool))]
    if moving:
        return Finding(0.75, f"what {moving[0]} reads changes by itself").reply()
    return Finding(1.0, "the answer does not hang on when it is asked").reply()


def _own_words(shown: Shown) -> str:
    """What the user asks for in words of their own: values, not what a tool does; all, in no language known here."""
    own: list[str] = []
    requests = [shown["question"], *(turn["says"] for turn in shown.get("later_turns", []) if turn["target_tools"])]
    for text in requests:
        steps = phrases.read_steps(text)
        clauses = {phrases.clause(tool) for tool in (*shown["target_tools"], *shown["other_tools"])}
        if steps:
            own += [step.clause for step in steps if step.clause not in clauses]
            own += [value for step in steps for value in step.given.values()]
        elif not phrases.read_knowledge(text, [*shown["target_tools"], *shown["other_tools"]]):
            own.append(text)
    return " ".join(own)


def kind_fit(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Whether a request of an unusual kind is what that kind says."""
    kind: str = shown["kind"]
    return KINDS[kind](shown).reply()


def _lacks_a_tool(shown: Shown) -> Finding:
    """Missing and later tool: nothing else that is offered does it; with it all can be done."""
    tools = [*shown["target_tools"], *shown["other_tools"]]
    offered = [tool for tool in tools if tool["name"] not in shown["missing"]]
    if all(step.tool for step in plan([shown["question"]], offered).steps):
        return Finding(0.0, f"without {', '.join(shown['missing'])} it can be done all the same")
    if not all(step.tool for step in plan(said(shown), tools).steps):
        return Finding(0.3, "it asks for what no tool of the server does")
    return Finding(1.0, f"it cannot be done without {', '.join(shown['missing'])}")


def _lacks_a_value(shown: Shown) -> Finding:
    """The value is not there, can come from nowhere else, and the user's next turn gives it."""
    tools = [*shown["target_tools"], *shown["other_tools"]]
    names = {one.partition(".")[2] for one in shown["missing"]}
    first = plan([shown["question"]], tools).steps
    free = [step for step in first if not step.dependent]
    if not any(step.arguments.get(name) == Earlier(None) for step in free for name in names):
        return Finding(0.0, "no step wants the value that was left out")
    filled = plan(said(shown), tools).steps
    if any(step.arguments.get(name) == Earlier(None) and not step.dependent for step in filled for name in names):
        return Finding(0.3, "the user's next turn does not give the value")
    return Finding(1.0, f"only the user can give the {', '.join(map(label, sorted(names)))}")


def _has_further_turns(shown: Shown) -> Finding:
    """Each further turn asks for its tools, and starts from what was found before."""
    tools = [*shown["target_tools"], *shown["other_tools"]]
    for turn in shown["later_turns"]:
        if read_tools(turn["says"], tools) != turn["target_tools"]:
            return Finding(0.0, f"a further turn does not ask for {', '.join(turn['target_tools'])}")
        steps = phrases.read_steps(turn["says"])
        if not (steps and steps[0].dependent) and phrases.read_look_up_follow_up(turn["says"]) is None:
            return Finding(0.5, "a further turn uses nothing of what was found")
    return Finding(1.0, "each further turn goes on from what was found")


KINDS: dict[str, Callable[[Shown], Finding]] = {
    "missing_tool": _lacks_a_tool,
    "later_tool": _lacks_a_tool,
    "missing_value": _lacks_a_value,
    "several_turns": _has_further_turns,
}

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
    "Tasks: rate verifiability": verifiability,
    "Tasks: rate stability": stability,
    "Tasks: rate the kind": kind_fit,
}
