"""Back-translation by rules: a chain told as a person would tell it, and the tools found again from that telling alone.

A telling keeps what each step is about, not the document's words: another verb, details left out. Whoever reads it
looks for the tool that shares the most telling words (those that few tools have), and among equals for one that goes
on from what the step before returns. Where two tools are about the same, the chain does not come back, as it should.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from astra.llm.builtin import phrases
from astra.llm.builtin.graph_tasks import Shown, Tool, fed

OTHER_VERB = 0.6  # of a step's telling
SHORTER = 0.3  # a step told without its last detail
VERBS: dict[str, tuple[str, ...]] = {
    "add": ("put",), "attach": ("link",), "book": ("reserve", "put down"), "cancel": ("call off",),
    "check": ("see", "look at"), "close": ("finish",), "count": ("tell the number of",), "create": ("make", "set up"),
    "delete": ("take away",), "enrol": ("sign up",), "estimate": ("work out",), "extend": ("prolong",),
    "fetch": ("bring me",), "find": ("look for", "search for", "tell me"), "forecast": ("predict",),
    "get": ("tell me", "I want", "give me"), "issue": ("make out",), "join": ("go on",), "list": ("see", "show me"),
    "look": ("see",), "measure": ("tell me",), "move": ("shift",), "open": ("begin",), "order": ("ask for",),
    "place": ("put",), "plan": ("arrange",), "print": ("make",), "put": ("set",), "quote": ("tell me",),
    "read": ("see", "tell me"), "redirect": ("send on",), "register": ("sign up",), "report": ("tell of",),
    "request": ("ask for",), "reserve": ("book",), "schedule": ("plan",), "search": ("look through",), "set": ("put",),
    "start": ("begin",), "suggest": ("name",), "track": ("follow",), "transfer": ("hand over",), "write": ("make",),
}  # fmt: skip
_PREPOSITION = r" (?:of|for|in|at|to|on|by|with|from|that|under) "
_DETAIL = re.compile(rf"{_PREPOSITION}(?!.*{_PREPOSITION})")  # the last one
_JOIN = (" and then ", "; after that ", ", and once I have it ")
_CUT = re.compile("|".join(re.escape(one) for one in _JOIN))
_SMALL = frozenset({
    "a", "an", "and", "at", "by", "find", "for", "from", "get", "give", "i", "in", "it", "its", "list", "me", "of",
    "on", "one", "or", "see", "show", "tell", "that", "the", "to", "want", "with",
})  # fmt: skip


# ---------------------------------------------------------------- telling


def describe(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The chain as a request in a person's words."""
    tools = {tool["name"]: tool for tool in shown["tools"]}
    told = [_told(tools[name], rng) for name in shown["chain"]]
    return {"request": f"I would like this done: {rng.choice(_JOIN).join(told)}."}


def _told(tool: Tool, rng: random.Random) -> str:
    form = phrases.knowledge_form(tool)
    clause = f"get the {form.label} of that {form.table}" if form else phrases.clause(tool)
    if rng.random() < SHORTER:
        shorter = _DETAIL.split(clause)[0]
        clause = shorter if len(shorter.split()) > 2 else clause
    verb, _, rest = clause.partition(" ")
    if rest and verb in VERBS and rng.random() < OTHER_VERB:
        return f"{rng.choice(VERBS[verb])} {rest}"
    return clause


# ---------------------------------------------------------------- reading


def rebuild(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The tools that fit each step of a request best."""
    tools: list[Tool] = shown["tools"]
    told = shown["request"].partition(": ")[2] or shown["request"]
    weights = _weights(tuple(_document(tool) for tool in tools))
    chain: list[Tool] = []
    for step in _CUT.split(told.rstrip(".")):
        asked = _content(step)
        scores = [_score(asked, tool, weights) for tool in tools]
        most = max(scores, default=0.0)
        best = [tool for tool, score in zip(tools, scores, strict=True) if score >= most - 1e-9]
        if most > 0:
            chain.append(next((tool for tool in best if chain and _goes_on(chain[-1], tool)), best[0]))
    return {"chain": [tool["name"] for tool in chain]}


def _goes_on(before: Tool, tool: Tool) -> bool:
    return tool is not before and bool(fed(before, tool))


def _score(asked: frozenset[str], tool: Tool, weights: Mapping[str, float]) -> float:
    """How much of what is asked a tool is about, less what it is about beside that."""
    about = _content(_document(tool))
    common = sum(weights.get(word, 0.0) for word in asked & about)
    beside = sum(weights.get(word, 0.0) for word in about - asked)
    return common - 0.2 * beside if common else 0.0


@lru_cache(maxsize=64)
def _weights(documents: tuple[str, ...]) -> dict[str, float]:
    """What a word tells: the fewer tools have it, the more."""
    counts = Counter(word for text in documents for word in _content(text))
    return {word: math.log(1 + len(documents) / count) for word, count in counts.items()}


def _document(tool: Tool) -> str:
    form = phrases.knowledge_form(tool)
    return f"{form.label} of {form.table}" if form else phrases.clause(tool)


@lru_cache(maxsize=8192)
def _content(text: str) -> frozenset[str]:
    """The telling words of a text, in the singular."""
    found = re.findall(r"[a-z]+|\d+", text.lower())
    return frozenset(
        word[:-1] if word.endswith("s") and len(word) > 3 else word for word in found if word not in _SMALL
    )


HANDLERS: dict[str, Callable[[Any, random.Random], dict[str, Any]]] = {
    "Chains: describe": describe,
    "Chains: rebuild": rebuild,
}
