"""The rule-based judge of conversations: one marked turn or call at a time, from the prompt's text alone.

A value counts as grounded where its text stands in what the user said or in a result that the turn could see. What the
stage's own rules found (``evidence`` in the prompt) is not looked at: the two are to be independent.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

from astra.llm.builtin import phrases
from astra.llm.builtin.graph_tasks import read_tools, reads
from astra.llm.builtin.judging import Finding, overlap
from astra.llm.builtin.progress import PASSING

Tool = Mapping[str, Any]
Shown = Mapping[str, Any]

_ADMITS = re.compile(r"\b(could not|cannot|can't|unable|no tool|none of the tools|failed)\b", re.IGNORECASE)
_REACTS = re.compile(r"\b(fail|failed|error|again|once more|retry|unknown|missing|invalid|timed? ?out)", re.IGNORECASE)
_WHICH = re.compile(r"\b(?:which|what)(?: is| are)?(?: the| your)? (?P<what>[^.?!]+)\?", re.IGNORECASE)
_DATED = re.compile(r"\b(cached|stale|outdated|out of date|as of)\b", re.IGNORECASE)
_MISTAKE = re.compile(r"\b(missing|invalid|unknown) (parameter|argument|tool|name)", re.IGNORECASE)
_STOPS = re.compile(r"\bstop there\b", re.IGNORECASE)  # where a step fails: nothing else is to be tried
_CLAIM = re.compile(r"[^\s,;:()\"']*\d[^\s,;:()\"']*|(?<![.!?:] )(?<!^)\b[A-Z][\w'-]+")


class Call(NamedTuple):
    """A call with its outcome."""

    name: str
    arguments: Any
    content: str
    failed: bool
    injected: bool = False

    def same(self, other: Call) -> bool:
        return self.name == other.name and self.arguments == other.arguments

    @property
    def passing(self) -> bool:
        """Whether it failed by no fault of its own."""
        return self.failed and (self.injected or PASSING.search(self.content) is not None)

    @property
    def dated(self) -> bool:
        """Whether its answer came from a cache: to ask again is no repetition."""
        return self.injected and not self.failed

    @property
    def answered(self) -> bool:
        return not self.failed and not self.dated


class Turn(NamedTuple):
    said: str
    calls: tuple[Call, ...]
    n_requests: int = 1  # how often the user has spoken before it

    @property
    def text(self) -> str:
        """All that the assistant wrote, lower case."""
        return " ".join([self.said, *(value for call in self.calls for value in values(call.arguments))]).lower()


@dataclass(frozen=True)
class Conversation:
    """A conversation and the marked turn's place in it."""

    requests: tuple[str, ...]  # what the user says before the marked turn
    tools: tuple[Tool, ...]  # what is offered at the marked turn
    turns: tuple[Turn, ...]
    marked: int

    @cached_property
    def question(self) -> str:
        """The request that the marked turn works on: the user's last words, or of a mere value what it is for."""
        asking = [one for one in self.requests if _understood(one, self.offers).n_steps]
        return asking[-1] if asking else self.requests[-1] if self.requests else ""

    @cached_property
    def asked(self) -> list[str]:
        """The tools that all requests so far ask for."""
        return [name for one in self.requests for name in _understood(one, self.offers).tools]

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        return tuple(Offer(tool["name"], tool["description"]) for tool in self.tools)

    @cached_property
    def since(self) -> list[Call]:
        """The calls before the marked turn that were made since the user spoke last."""
        now = self.turn.n_requests
        return [call for turn in self.turns[: self.marked] if turn.n_requests == now for call in turn.calls]

    @property
    def turn(self) -> Turn:
        return self.turns[self.marked]

    @cached_property
    def before(self) -> list[Call]:
        return [call for turn in self.turns[: self.marked] for call in turn.calls]

    @property
    def latest(self) -> tuple[Call, ...]:
        """The calls whose results stand right before the marked turn."""
        return self.turns[self.marked - 1].calls if self.marked else ()

    @cached_property
    def known(self) -> str:
        """The user's words and the results that the marked turn could see, lower case."""
        said = [one.replace("\\", "") for one in self.requests]
        return "\n".join([*said, *(call.content for call in self.before)]).lower()

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool["name"] == name), None)


def read(shown: Shown) -> Conversation:
    """The conversation in a prompt's input; a call that nothing answers has failed."""
    messages, place_marked = shown["messages"], shown["marked"]["turn"]
    turns: list[Turn] = []
    requests: list[str] = []
    marked = n_requests = 0
    for place, message in enumerate(messages):
        if message["role"] == "user":
            n_requests += 1
            if place < place_marked:
                requests.append(message["content"])
        if message["role"] != "assistant":
            continue
        marked = len(turns) if place == place_marked else marked
        answers: list[Mapping[str, Any]] = messages[place + 1 :]
        calls = []
        for n, call in enumerate(message.get("calls", [])):
            answer: Mapping[str, Any] = answers[n] if n < len(answers) else {"content": "no answer", "failed": True}
            arguments = _parsed(call["arguments"])
            calls.append(Call(call["name"], arguments, answer["content"], answer["failed"], "injected" in answer))
        turns.append(Turn(message["content"], tuple(calls), n_requests))
    tools = tuple(tool for tool in shown["tools"] if tool.get("from", 0) < place_marked)
    return Conversation(tuple(requests), tools, tuple(turns), marked)


def values(value: Any) -> Iterator[str]:
    """The plain values of arguments or a result, as text."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from values(one)
    elif isinstance(value, list):
        for one in value:
            yield from values(one)
    elif value is not None:
        yield value if isinstance(value, str) else json.dumps(value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _share_in(found: Iterable[str], text: str) -> float:
    """The share of values whose text stands in the lower-case text; 1 of none."""
    hits = [value.lower() in text for value in found]
    return sum(hits) / len(hits) if hits else 1.0


class Offer(NamedTuple):
    """What a judge sees of a tool."""

    name: str
    description: str


class Understood(NamedTuple):
    """The tools that a request asks for, and how many steps; 0 where it is in no language known here."""

    tools: tuple[str, ...]
    n_steps: int


@lru_cache(maxsize=256)
def _understood(request: str, offers: tuple[Offer, ...]) -> Understood:
    """A request as it is read; kept, since each place of a conversation asks for it again."""
    documents = [_document(offer._asdict()) for offer in offers]
    tools = tuple(read_tools(request, documents))
    branches = phrases.read_knowledge(request, documents)
    follow_up = phrases.read_look_up_follow_up(request)
    n_labels = sum(len(branch.labels) for branch in branches) + (len(follow_up.labels) if follow_up else 0)
    return Understood(tools, n_labels or len(phrases.read_steps(request)))


def _answerable(one: Conversation) -> bool | None:
    """Whether the tools do all that is asked; None where the request is in no language known here."""
    understood = _understood(one.question, one.offers)
    return len(understood.tools) >= understood.n_steps if understood.n_steps else None


class Part(NamedTuple):
    """What a request asks for that rests on no other part: its tools in order, None where no tool does it."""

    tools: tuple[str | None, ...]
    key: str = ""  # what the first look-up is about


@lru_cache(maxsize=256)
def _parts(request: str, offers: tuple[Offer, ...]) -> tuple[Part, ...]:
    """The parts of a request; none where it is in no language known here."""
    documents = [_document(offer._asdict()) for offer in offers]
    forms = [
        (offer.name, form)
        for offer, tool in zip(offers, documents, strict=True)
        if (form := phrases.knowledge_form(tool))
    ]
    by_label = {(form.table, form.label): name for name, form in reversed(forms)}
    alone = {label: name for (_, label), name in by_label.items()}
    branches = phrases.read_knowledge(request, documents)
    follow_up = phrases.read_look_up_follow_up(request)
    if follow_up is not None:
        branches = [phrases.Branch(follow_up.table, "", follow_up.labels)]
    if branches:
        return tuple(
            Part((by_label.get((one.table, one.labels[0])), *(alone.get(label) for label in one.labels[1:])), one.key)
            for one in branches
        )
    by_clause = {phrases.clause(tool): str(tool["name"]) for tool in reversed(documents)}
    found: list[Part] = []
    for step in phrases.read_steps(request):
        before = found.pop().tools if step.dependent and found else ()
        found.append(Part((*before, by_clause.get(step.clause))))
    return tuple(found)


class Fate(NamedTuple):
    """What became of a part: how much of it an answer could tell, why, and its last call."""

    state: Literal["answered", "failed", "lacking", "untried"]
    why: str
    last: Call | None = None


def _fates(one: Conversation) -> list[Fate]:
    """What became of each part of the request by the marked turn; each call counts for one part."""
    left = list(one.before)
    return [_fate(part, left, one) for part in _parts(one.question, one.offers)]


def _fate(part: Part, left: list[Call], one: Conversation) -> Fate:
    failed: Call | None = None
    last: Call | None = None
    if None in part.tools:
        return Fate("lacking", "no tool does a part of it")
    for n, name in enumerate(part.tools):
        key = part.key if n == 0 else ""
        mine = [call for call in left if call.name == name and (not key or key in values(call.arguments))]
        good = next((call for call in (*filter(_is_fresh, mine), *mine) if not call.failed), None)
        if good is None:
            failed = mine[-1] if mine else None
            break
        left.remove(good)
        last = good
    else:
        return Fate("answered", f"{part.tools[-1]} was answered", last)
    if failed is not None:
        return Fate("failed", _why_failed(failed, one), failed)
    return Fate("untried", f"{part.tools[len(part.tools) - 1] if last else part.tools[0]} was never tried", last)


def _is_fresh(call: Call) -> bool:
    return call.answered


def _why_failed(call: Call, one: Conversation) -> str:
    return (
        f"{call.name} failed: {call.content[:80]}" if not _is_mistake(call, one) else f"{call.name} was called wrongly"
    )


def _is_mistake(call: Call, one: Conversation) -> bool:
    """Whether a call failed by the caller's fault: not in passing, nor since the tool has no answer to give."""
    if not call.failed or call.passing:
        return False
    return _MISTAKE.search(call.content) is not None or _share_in(values(call.arguments), one.known) < 1


def _document(tool: Tool) -> Tool:
    """A tool of which a judge sees name and description only, with the parameter that a look-up's description names."""
    table = re.search(r" of an? ([a-z][a-z_ ]*)\.$", tool["description"])
    names = [table.group(1)] if table else []
    return {**tool, "parameters": {"properties": {name: {} for name in names}, "required": names}}


# ---------------------------------------------------------------- the first turn


def _without_call(one: Conversation) -> Finding:
    """What an opening turn without a call is worth: nothing, where the tools could have done it."""
    if not one.turn.said.strip():
        return Finding(0.0, "the turn is empty")
    wanted = _asked_value(one)
    if wanted is not None:
        return wanted
    answerable = _answerable(one)
    admits = _ADMITS.search(one.turn.said) is not None
    if answerable is None and admits:
        return Finding(0.5, "it says that it cannot, and it cannot be told whether the tools would do")
    if answerable or not admits:
        return Finding(0.0, "nothing is called, and the turn does not say rightly that no tool does it")
    return Finding(1.0, "no tool does what is asked, and the turn says so")


def _asked_value(one: Conversation) -> Finding | None:
    """What it is worth to ask the user for a value; None for a turn that asks for none."""
    asked = set(one.asked)
    needs = {phrases.label(name) for tool in one.tools if tool["name"] in asked for name in tool.get("needs", ())}
    found = _WHICH.search(one.turn.said)
    wanted = [name for name in needs if found and re.match(rf"{re.escape(name)}\b", found["what"], re.IGNORECASE)]
    if not wanted:
        return None
    name = max(wanted, key=len)
    if any(phrases.read_given(request, name) is not None for request in one.requests):
        return Finding(0.0, f"it asks for the {name}, which the user had said")
    return Finding(1.0, f"it asks for the {name}, which the user had left out")


def query_understanding(one: Conversation) -> Finding:
    if not one.turn.calls:
        return _without_call(one)
    share = _share_in((value for call in one.turn.calls for value in values(call.arguments)), one.known)
    if not all(_asked_for(call, one) for call in one.turn.calls):
        return Finding(0.5 * share, "the first call is not what was asked for")
    if share < 1:
        return Finding(share, "some values of the first call are not the user's")
    return Finding(1.0, "the turn begins what was asked, with the user's values")


def _asked_for(call: Call, one: Conversation) -> bool:
    """Whether the request asks for the call's tool; by words in common where it is in no language known here."""
    tool = one.tool(call.name)
    asked = one.asked
    return call.name in asked if asked else tool is not None and overlap(_document(tool), " ".join(one.requests)) >= 0.5


def query_planning(one: Conversation) -> Finding:
    if not one.turn.calls:
        return _without_call(one)
    for call in one.turn.calls:
        if one.tool(call.name) is None:
            return Finding(0.0, f"there is no tool {call.name}")
        if _is_mistake(call, one):
            return Finding(0.25, f"the call cannot be made like that: {call.content[:80]}")
    if not one.turn.said.strip():
        return Finding(0.5, "a call without a stated plan")
    tools = [_document(tool) for call in one.turn.calls if (tool := one.tool(call.name)) is not None]
    if all(overlap(tool, one.turn.said) >= 0.5 for tool in tools):
        return Finding(1.0, "the turn says what comes first and does that")
    return Finding(0.0, "the call is not what the turn says")


# ---------------------------------------------------------------- turns after results


def result_understanding(one: Conversation) -> Finding:
    failed = {call.name for call in one.latest if call.failed}
    if failed:
        reacts = _REACTS.search(one.turn.said) or _ADMITS.search(one.turn.said)
        if reacts or any(call.name in failed for call in one.turn.calls):
            return Finding(1.0, "the error is taken for an error")
        return Finding(0.0, "an error is passed over")
    dated = [call for call in one.latest if call.dated]
    if dated:
        again = any(call.same(old) for call in one.turn.calls for old in dated)
        if again or _DATED.search(one.turn.said):
            return Finding(1.0, "a cached answer is taken for one")
        return Finding(0.5, "a cached answer is taken for a fresh one")
    fresh = [value for call in one.latest for value in values(_parsed(call.content))]
    if any(value.lower() in one.turn.text for value in fresh):
        return Finding(1.0, "the turn uses what the result says")
    given = [value for call in one.turn.calls for value in values(call.arguments)]
    if one.turn.calls and _share_in(given, one.known) == 1:
        return Finding(1.0, "the next step does not need that result")
    if one.turn.calls:
        return Finding(0.0, "the call holds what neither the request nor a result says")
    return Finding(0.5, "the answer does not take up the last result")


def result_planning(one: Conversation) -> Finding:
    for call in one.turn.calls:
        same = [earlier for earlier in one.before if earlier.same(call)]
        if any(earlier.answered for earlier in same):
            return Finding(0.0, "it repeats a call that had succeeded")
        if same and not (same[-1].passing or same[-1].dated):
            return Finding(0.0, "it repeats a call that cannot succeed")
        if one.tool(call.name) is None:
            return Finding(0.0, f"there is no tool {call.name}")
        if _share_in(values(call.arguments), one.known) < 1:
            return Finding(0.0, "an argument stands in neither the request nor a result")
    if one.turn.calls:
        return Finding(1.0, "the step follows from what is known")
    return _stopping(one)


def _stopping(one: Conversation) -> Finding:
    """Whether it was time to answer."""
    failed = [call for call in one.latest if call.failed]
    admits = _ADMITS.search(one.turn.said) is not None
    untried = [fate for fate in _fates(one) if fate.state == "untried"]
    if untried and not _may_stop(one):
        return Finding(0.5, f"it ends although a part was left: {untried[0].why}")
    if failed and not admits:
        return Finding(0.0, "it answers although the last call failed")
    if failed and failed[-1].passing:
        tried = sum(call.same(failed[-1]) for call in one.before)
        return Finding(1.0 if tried > 1 else 0.5, f"it gives up after {tried} tries")
    if admits:
        return Finding(1.0, "it says what could not be done")
    wanted = len(one.asked)
    made = sum(not call.failed for call in one.before)
    if made < wanted:
        return Finding(0.5, f"it answers after {made} of {wanted} steps")
    return Finding(1.0, "everything is there")


# ---------------------------------------------------------------- calls and the answer


def conciseness(one: Conversation, number: int) -> Finding:
    """One call: no repetition, no mistake, and its result is asked for or used."""
    call = one.turn.calls[number]
    earlier = [*one.before, *one.turn.calls[:number]]
    if any(other.same(call) and other.answered for other in earlier):
        return Finding(0.0, f"{call.name} was called again with the same arguments")
    if call.passing:
        return Finding(1.0, "it failed in passing")
    if _is_mistake(call, one):
        return Finding(0.0, f"{call.name} was called wrongly: {call.content[:80]}")
    if _asked_for(call, one):
        return Finding(1.0, f"asked for; {call.name} has no answer to it" if call.failed else "asked for")
    if one.asked and not reads(call.name):
        return Finding(0.0, f"nobody asked for what {call.name} does")
    later = " ".join(turn.text for turn in one.turns[one.marked + 1 :])
    if any(value.lower() in later for value in values(_parsed(call.content))):
        return Finding(1.0, "used")
    return Finding(0.0, f"nothing uses what {call.name} returned, and nobody asked for it")


class Answer(NamedTuple):
    relevance: float
    faithfulness: float
    reason: str


def final_answer(one: Conversation) -> Answer:
    """Faithfulness is the share of the answer's claims (names, numbers, ids) that stand in a result or the request.

    An answer that states nothing is as faithful as it is relevant, and one that rests on no result is neither.
    """
    said = one.turn.said
    if not said.strip() or one.turn.calls:
        return Answer(0.0, 0.0, "there is no final answer")
    relevance, reason = _relevance(one)
    if relevance == 0:
        return Answer(0.0, 0.0, reason)
    claims = [claim.strip(".'") for claim in _CLAIM.findall(said)]
    claims = [claim for claim in claims if claim and not re.fullmatch(r"\d", claim)]
    known = one.known
    faithful = _share_in(claims, known)
    if faithful < 1:
        reason = f"not in any result: {next(claim for claim in claims if claim.lower() not in known)}"
    return Answer(relevance, round(faithful, 4), reason)


def _relevance(one: Conversation) -> tuple[float, str]:
    """Each part of the request is to be answered or declined with the reason after a try; the worst one gives ours."""
    wanted = _asked_value(one)
    if wanted is not None:
        return wanted.score, wanted.reason
    fates = _fates(one)
    if not fates:
        return _relevance_unread(one)
    stops = _may_stop(one)
    worths = [Finding(1.0, "left as the user wished") if stops and fate.state == "untried" else _worth(fate, one)
              for fate in fates]  # fmt: skip
    worst = min(worths, key=lambda worth: worth.score)
    return round(sum(worth.score for worth in worths) / len(worths), 4), worst.reason


def _worth(fate: Fate, one: Conversation) -> Finding:
    """What the marked turn says of one part."""
    admits = _ADMITS.search(one.turn.said) is not None
    if fate.state == "answered" and fate.last is not None:
        said = one.turn.said.lower()
        if any(value.lower() in said for value in values(_parsed(fate.last.content))):
            return Finding(1.0, "it answers from the last result")
        return Finding(0.5, f"it does not state what {fate.last.name} returned")
    if fate.state == "untried":
        return Finding(0.0, f"a part is left out: {fate.why}")
    if not admits:
        return Finding(0.0, f"it passes over what could not be done: {fate.why}")
    if fate.state == "lacking":
        return Finding(1.0, "no tool does what is asked, and it says so")
    assert fate.last is not None
    if _is_mistake(fate.last, one):
        return Finding(0.25, f"it gives up after a mistake of its own: {fate.why}")
    tries = sum(call.same(fate.last) for call in one.before)
    if fate.last.passing and tries < 2:
        return Finding(0.5, f"it gives up after one try: {fate.why}")
    return Finding(0.75, f"it says what failed: {fate.why}")


def _may_stop(one: Conversation) -> bool:
    """Whether the user wished to stop where a step fails, and one did."""
    return _STOPS.search(" ".join(one.requests)) is not None and any(call.failed for call in one.before)


def _relevance_unread(one: Conversation) -> tuple[float, str]:
    """The same of a request in no language known here."""
    since = one.since
    if _ADMITS.search(one.turn.said):
        return (0.5, "it says what failed") if since and since[-1].failed else (0.25, "it gives up without need")
    good = [call for call in since if not call.failed]
    if not good:
        return 0.0, "it answers without any result"
    if any(value.lower() in one.turn.said.lower() for value in values(_parsed(good[-1].content))):
        return 1.0, "it answers from the last result"
    return 0.5, "it does not state the last result"


Handler = Callable[[Any, random.Random], dict[str, Any]]


def _by(rule: Callable[[Conversation], Finding]) -> Handler:
    return lambda shown, rng: rule(read(shown)).reply()


HANDLERS: dict[str, Handler] = {
    "Score: query understanding": _by(query_understanding),
    "Score: query planning": _by(query_planning),
    "Score: understanding of tool results": _by(result_understanding),
    "Score: planning on tool results": _by(result_planning),
    "Score: tool conciseness": lambda shown, rng: conciseness(read(shown), shown["marked"]["call"]).reply(),
    "Score: final answer": lambda shown, rng: final_answer(read(shown))._asdict(),
}
