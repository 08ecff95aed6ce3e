"""The rule-based judge: tasks on three dimensions, conversations on the paper's seven, from the prompt's text alone.

Each rule looks for something that can be wrong and says what it found. A value counts as grounded where its text stands
in the request or in a result.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from astra.llm.builtin import phrases
from astra.llm.builtin.graph_tasks import fed, read_tools, required
from astra.llm.builtin.phrases import words

Tool = Mapping[str, Any]
Shown = Mapping[str, Any]
Turn = Mapping[str, Any]


class Finding(NamedTuple):
    """A score and what it rests on."""

    score: float
    reason: str

    def reply(self) -> dict[str, Any]:
        return {"score": round(min(1.0, max(0.0, self.score)), 4), "reason": self.reason}


# ---------------------------------------------------------------- tasks

PLACEHOLDER = re.compile(r"<\w+>|\{\w+\}|\[[A-Za-z_ ]+\]|\b(TODO|XXX|N/A)\b")
DUMMY = re.compile(r"\b(foo|bar|baz|test|dummy|example|sample|string|lorem|12345)\b", re.IGNORECASE)
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
    if not steps and not branches and not re.search(r"\?|\b(please|need|want|find|tell|get|show|help)\b", question, re.I):
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
        asked = [tool["name"] for tool in targets if _overlap(tool, question) >= 0.6]
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


def _overlap(tool: Tool, text: str) -> float:
    """The share of a tool's content words that a text has."""
    purpose = _content(_purpose(tool))
    return len(purpose & _content(text)) / len(purpose) if purpose else 0.0


# ---------------------------------------------------------------- conversations

_ADMITS = re.compile(r"\b(could not|cannot|can't|unable|no tool|none of the tools|failed)\b", re.IGNORECASE)
_REACTS = re.compile(r"\b(fail|failed|error|again|once more|retry|unknown|missing|invalid|timed? ?out)", re.IGNORECASE)
_PASSING = re.compile(
    r"timed? ?out|could not connect|unreachable|too many requests|rate limit|internal server error|unavailable"
    r"|\b(429|50\d)\b",
    re.IGNORECASE,
)
_CLAIM = re.compile(r"[^\s,;:()\"']*\d[^\s,;:()\"']*|(?<![.!?:] )(?<!^)\b[A-Z][\w'-]+")


def _values(value: Any) -> Iterator[str]:
    """The plain values of arguments or a result, as text."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _values(one)
    elif isinstance(value, list):
        for one in value:
            yield from _values(one)
    elif value is not None:
        yield value if isinstance(value, str) else json.dumps(value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _stands_in(values: Iterable[str], text: str) -> float:
    """The share of values whose text stands in the lower-case text; 1 of none."""
    found = [value.lower() in text for value in values]
    return sum(found) / len(found) if found else 1.0


def _answerable(question: str, tools: Sequence[Tool]) -> bool | None:
    """Whether the tools do all that is asked; None where the request is in no language known here."""
    steps = phrases.read_steps(question)
    branches = phrases.read_knowledge(question, tools)
    if branches:
        asked = sum(len(branch.labels) for branch in branches)
    elif steps:
        asked = len(steps)
    else:
        return None
    return len(read_tools(question, tools)) >= asked


def _refusal(shown: Shown) -> Finding:
    """What an opening turn without a call is worth."""
    if not (shown["turn"]["content"] or "").strip():
        return Finding(0.0, "the turn is empty")
    answerable = _answerable(shown["question"], shown["tools"])
    if answerable is None:
        return Finding(0.5, "no call, and it cannot be told whether the tools would do")
    if answerable:
        return Finding(0.0, "the tools could do it, and none is called")
    return Finding(1.0, "no tool does what is asked, and the turn says so")


def query_understanding(shown: Shown, rng: random.Random) -> dict[str, Any]:
    turn = shown["turn"]
    if not turn["calls"]:
        return _refusal(shown).reply()
    tools = {tool["name"]: tool for tool in shown["tools"]}
    question = shown["question"].lower().replace("\\", "")
    share = sum(_stands_in(_values(call["arguments"]), question) for call in turn["calls"]) / len(turn["calls"])
    fitting = all(
        call["name"] in tools and _overlap(tools[call["name"]], question) >= 0.5 for call in turn["calls"]
    )
    if not fitting:
        return Finding(0.5 * share, "the first call is not what was asked for").reply()
    if share < 1:
        return Finding(share, "some values of the first call are not the user's").reply()
    return Finding(1.0, "the turn begins what was asked, with the user's values").reply()


def query_planning(shown: Shown, rng: random.Random) -> dict[str, Any]:
    turn = shown["turn"]
    if not turn["calls"]:
        return _refusal(shown).reply()
    tools = {tool["name"]: tool for tool in shown["tools"]}
    for call in turn["calls"]:
        tool = tools.get(call["name"])
        if tool is None:
            return Finding(0.0, f"there is no tool {call['name']}").reply()
        lacking = [name for name in required(tool) if name not in call["arguments"]]
        if lacking:
            return Finding(0.25, f"the call lacks {lacking[0]}").reply()
    said = turn["content"] or ""
    if not said.strip():
        return Finding(0.5, "a call without a stated plan").reply()
    if all(_overlap(tools[call["name"]], said) >= 0.5 for call in turn["calls"]):
        return Finding(1.0, "the turn says what comes first and does that").reply()
    return Finding(0.0, "the call is not what the turn says").reply()


class Read(NamedTuple):
    """A conversation as far as one turn sees it."""

    results: list[Turn]  # tool messages before the turn
    latest: list[Turn]  # those right before it
    calls: list[Mapping[str, Any]]  # calls before the turn
    text: str  # request and results so far, lower case


def _seen(shown: Shown) -> Iterator[tuple[Turn, Read]]:
    """The assistant turns, each with what it could see."""
    results: list[Turn] = []
    latest: list[Turn] = []
    calls: list[Mapping[str, Any]] = []
    text = shown["question"].lower().replace("\\", "")
    for message in shown["messages"]:
        if message["role"] == "assistant":
            yield message, Read(list(results), latest, list(calls), text)
            calls += message["calls"]
            latest = []
        else:
            results.append(message)
            latest = [*latest, message]
            text += "\n" + message["content"].lower()
    return


def _by_turn(shown: Shown, rule: Callable[[Turn, Read, Shown], Finding]) -> dict[str, Any]:
    """A rule's scores for the turns in ``keys``, and the reason of the worst."""
    scores: dict[str, Any] = {}
    worst = Finding(2.0, "")
    for turn, read in _seen(shown):
        key = f"turn_{turn['n']}"
        if key in shown["keys"]:
            finding = rule(turn, read, shown)
            scores[key] = finding.score
            worst = min(worst, finding, key=lambda one: one.score)
    return {**scores, "reason": worst.reason}


def _understood(turn: Turn, read: Read, shown: Shown) -> Finding:
    said = turn["content"] or ""
    failed = [one for one in read.latest if one["is_error"]]
    if failed:
        names = {one["name"] for one in failed}
        if _REACTS.search(said) or _ADMITS.search(said) or any(call["name"] in names for call in turn["calls"]):
            return Finding(1.0, "the error is taken for an error")
        return Finding(0.0, "an error is passed over")
    fresh = [value for one in read.latest for value in _values(_parsed(one["content"]))]
    used = " ".join([said, *(value for call in turn["calls"] for value in _values(call["arguments"]))]).lower()
    if any(value.lower() in used for value in fresh):
        return Finding(1.0, "the turn uses what the result says")
    given = [value for call in turn["calls"] for value in _values(call["arguments"])]
    if turn["calls"] and _stands_in(given, read.text) == 1:
        return Finding(1.0, "the next step does not need that result")
    if turn["calls"]:
        return Finding(0.0, "the call holds what neither the request nor a result says")
    return Finding(0.5, "the answer does not take up the last result")


def _planned(turn: Turn, read: Read, shown: Shown) -> Finding:
    tools = {tool["name"]: tool for tool in shown["tools"]}
    outcome = _outcomes(shown)
    for call in turn["calls"]:
        same = [one for one in read.calls if _same(one, call)]
        errors = [outcome[one["n"]]["content"] for one in same if outcome[one["n"]]["is_error"]]
        if len(errors) < len(same):
            return Finding(0.0, "it repeats a call that had succeeded")
        if errors and not _PASSING.search(errors[-1]):
            return Finding(0.0, "it repeats a call that cannot succeed")
        if call["name"] not in tools or any(name not in call["arguments"] for name in required(tools[call["name"]])):
            return Finding(0.0, "the call lacks what the tool requires")
        if _stands_in(_values(call["arguments"]), read.text) < 1:
            return Finding(0.0, "an argument stands in neither the request nor a result")
    if turn["calls"]:
        return Finding(1.0, "the step follows from what is known")
    return _stopped(turn, read, shown)


def _stopped(turn: Turn, read: Read, shown: Shown) -> Finding:
    """Whether it was time to answer."""
    failed = [one for one in read.latest if one["is_error"]]
    admits = _ADMITS.search(turn["content"] or "") is not None
    if failed and not admits:
        return Finding(0.0, "it answers although the last call failed")
    if failed and _PASSING.search(failed[-1]["content"]):
        tried = sum(_same(read.calls[-1], one) for one in read.calls)
        return Finding(1.0 if tried > 1 else 0.5, f"it gives up after {tried} tries")
    if admits:
        return Finding(1.0, "it says what could not be done")
    wanted = len(read_tools(shown["question"], shown["tools"]))
    made = sum(not one["is_error"] for one in read.results)
    if made < wanted:
        return Finding(0.5, f"it answers after {made} of {wanted} steps")
    return Finding(1.0, "everything is there")


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["name"] == other["name"] and one["arguments"] == other["arguments"])


def _outcomes(shown: Shown) -> dict[int, Turn]:
    """The tool message of each call, by the call's number."""
    return {message["call"]: message for message in shown["messages"] if message["role"] == "tool"}


def result_understanding(shown: Shown, rng: random.Random) -> dict[str, Any]:
    return _by_turn(shown, _understood)


def result_planning(shown: Shown, rng: random.Random) -> dict[str, Any]:
    return _by_turn(shown, _planned)


def conciseness(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """A call counts where it was no repetition, no mistake, and its result is used or its effect was wanted."""
    outcome = _outcomes(shown)
    question = shown["question"]
    tools = {tool["name"]: tool for tool in shown["tools"]}
    scores: dict[str, Any] = {}
    reason = "every call was needed"
    earlier: list[Mapping[str, Any]] = []
    for call, later in _calls_with_later(shown):
        finding = _needed(call, later, earlier, outcome, tools, question)
        scores[f"call_{call['n']}"] = finding.score
        if finding.score < 1:
            reason = finding.reason
        earlier.append(call)
    return {**scores, "reason": reason}


def _calls_with_later(shown: Shown) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each call, with the text of all that the assistant wrote after it."""
    turns = [message for message in shown["messages"] if message["role"] == "assistant"]
    written = [
        " ".join([turn["content"] or "", *(value for call in turn["calls"] for value in _values(call["arguments"]))])
        for turn in turns
    ]
    for n, turn in enumerate(turns):
        for call in turn["calls"]:
            yield call, " ".join(written[n + 1 :]).lower()


def _needed(
    call: Mapping[str, Any],
    later: str,
    earlier: Sequence[Mapping[str, Any]],
    outcome: Mapping[int, Turn],
    tools: Mapping[str, Tool],
    question: str,
) -> Finding:
    result = outcome[call["n"]]
    if any(_same(one, call) and not outcome[one["n"]]["is_error"] for one in earlier):
        return Finding(0.0, f"{call['name']} was called again with the same arguments")
    if result["is_error"]:
        passing = _PASSING.search(result["content"]) is not None
        return Finding(1.0 if passing else 0.0, f"{call['name']} was called wrongly: {result['content'][:80]}")
    if call["name"] in tools and _overlap(tools[call["name"]], question) >= 0.5:
        return Finding(1.0, "asked for")
    if any(value.lower() in later for value in _values(_parsed(result["content"]))):
        return Finding(1.0, "used")
    return Finding(0.0, f"nothing uses what {call['name']} returned, and nobody asked for it")


def final_answer(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Relevance: it takes up results, or says rightly that it cannot. Faithfulness: the share of its claims that stand
    in a result or in the request.
    """
    last = shown["messages"][-1]
    said = (last["content"] or "") if last["role"] == "assistant" else ""
    if not said.strip() or last["calls"]:
        return {"relevance": 0.0, "faithfulness": 0.0, "reason": "there is no final answer"}
    results = [one for one in shown["messages"] if one["role"] == "tool"]
    text = "\n".join([shown["question"], *(one["content"] for one in results)]).lower().replace("\\", "")
    claims = [claim.strip(".'") for claim in _CLAIM.findall(said)]
    claims = [claim for claim in claims if claim and not re.fullmatch(r"\d", claim)]
    faithful = _stands_in(claims, text)
    relevance, reason = _relevance(said, results, shown)
    if faithful < 1:
        reason = f"not in any result: {next(claim for claim in claims if claim.lower() not in text)}"
    return {"relevance": relevance, "faithfulness": round(faithful, 4), "reason": reason}


def _relevance(said: str, results: Sequence[Turn], shown: Shown) -> tuple[float, str]:
    if _ADMITS.search(said):
        if results and results[-1]["is_error"]:
            return 1.0, "it says what failed"
        if _answerable(shown["question"], shown["tools"]) is False:
            return 1.0, "no tool does what is asked, and it says so"
        return 0.25, "it gives up without need"
    good = [one for one in results if not one["is_error"]]
    if not good:
        return 0.0, "it answers without any result"
    if any(value.lower() in said.lower() for value in _values(_parsed(good[-1]["content"]))):
        return 1.0, "it answers from the last result"
    return 0.5, "it does not state the last result"


HANDLERS: dict[str, Callable[[Any, random.Random], dict[str, Any]]] = {
    "Tasks: rate question quality": question_quality,
    "Tasks: rate scenario realism": scenario_realism,
    "Tasks: rate tool necessity": tool_necessity,
    "Score: query understanding": query_understanding,
    "Score: query planning": query_planning,
    "Score: understanding of tool results": result_understanding,
    "Score: planning on tool results": result_planning,
    "Score: tool conciseness": conciseness,
    "Score: final answer": final_answer,
}
