"""The rule-based reader of tool documents: chains from the flow of values, votes on them, and the tools of a request.

What one tool returns can fill what another requires where the names say so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from astra.llm.builtin import phrases
from astra.llm.builtin.phrases import words

Tool = Mapping[str, Any]
Shown = Mapping[str, Any]

WALKS = 3  # starts per tool in one reply
GENERIC = {"id", "name", "status", "result", "type", "date", "time", "count", "total", "message", "title"}
ENDING_VERBS = {"cancel", "delete", "withdraw", "drop", "end", "close", "remove"}


# ---------------------------------------------------------------- which result feeds which parameter


def result_names(schema: Any, noun: str = "", depth: int = 0) -> Iterator[str]:
    """The names of the plain values in a result schema, as words; those with a title also by that."""
    if not isinstance(schema, dict) or depth > 5:
        return
    for name, one in schema.get("properties", {}).items():
        if isinstance(one, dict) and ("properties" in one or "items" in one):
            yield from result_names(one, words(name).rstrip("s"), depth + 1)
        else:
            yield words(name)
            yield f"{noun} {words(name)}".strip()
            if isinstance(one, dict) and one.get("title"):
                yield str(one["title"]).lower()
    if isinstance(schema.get("items"), dict):
        yield from result_names(schema["items"], noun, depth + 1)


def required(tool: Tool) -> list[str]:
    return list(tool["parameters"].get("required", []))


def fed(source: Tool, target: Tool) -> list[str]:
    """The required parameters of the target that the source's result can fill."""
    return _filled(given_names(source), required_words(target))


def given_names(source: Tool) -> set[str]:
    """What the values that a tool returns are called; names that say nothing are left out."""
    noun = (words(source["name"]).split() or [""])[-1]
    return {name for name in result_names(source.get("returns"), noun) if name not in GENERIC}


def required_words(tool: Tool) -> dict[str, str]:
    """The required parameters, each with its name as words."""
    return {name: words(name) for name in required(tool)}


def _filled(names: set[str], parameters: Mapping[str, str]) -> list[str]:
    long = [" " + name for name in names if " " in name]
    return [
        parameter
        for parameter, spoken in parameters.items()
        if spoken in names or any(spoken.endswith(name) for name in long)
    ]


READING = frozenset({
    "check", "count", "describe", "fetch", "find", "forecast", "get", "list", "look", "lookup", "measure", "query",
    "quote", "read", "search", "show", "suggest", "track", "view",
})  # fmt: skip


def reads(name: str) -> bool:
    """Whether a tool changes nothing, by the first word of its name."""
    return words(name).split()[0] in READING


def verb(tool: Tool) -> str:
    return words(tool["name"]).split()[0]


# ---------------------------------------------------------------- graph and chains


def propose(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Chains along the flow of values, drawn at random, each with the task that it serves."""
    tools: list[Tool] = shown["tools"]
    names = {tool["name"]: given_names(tool) for tool in tools}
    takes = [(tool, required_words(tool)) for tool in tools]
    follows = {a["name"]: [b for b, taken in takes if b is not a and _filled(names[a["name"]], taken)] for a in tools}
    clauses = {tool["name"]: phrases.clause(tool) for tool in tools}
    ending = {tool["name"] for tool in tools if verb(tool) in ENDING_VERBS}
    chains: dict[tuple[str, ...], None] = {}
    for start in tools:
        for _ in range(WALKS):
            chain = _walk(start["name"], follows, rng, shown["max_length"])
            if len(chain) > 1:
                chains[tuple(chain)] = None
    drawn = rng.sample(list(chains), min(len(chains), shown["max_proposals"]))
    return {"proposals": [_proposal(chain, clauses, ending) for chain in drawn]}


def _walk(start: str, follows: Mapping[str, list[Tool]], rng: random.Random, most: int) -> list[str]:
    chain = [start]
    length = rng.randint(2, most)
    while len(chain) < length:
        options = [tool["name"] for tool in follows[chain[-1]] if tool["name"] not in chain]
        if not options:
            break
        chain.append(rng.choice(options))
    return chain


def _proposal(chain: Sequence[str], clauses: Mapping[str, str], ending: set[str]) -> dict[str, Any]:
    """A chain that goes on after its thing was ended is not plausible."""
    task = ", then ".join(clauses[name] for name in chain)
    return {"task": task, "chain": list(chain), "plausible": "yes" if ending.isdisjoint(chain[:-1]) else "no"}


def vote(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Whether each step is bound to an earlier one, nothing is ended midway and no step is said twice."""
    tools = {tool["name"]: tool for tool in shown["tools"]}
    chain = [tools[name] for name in shown["chain"]]
    bound = {one["step"] for one in shown["bindings"] if one["origin"] == "result"}
    loose = [n for n in range(1, len(chain)) if n not in bound]
    if loose:
        return {"coherent": False, "reason": f"step {loose[0] + 1} uses nothing of the steps before it"}
    ended = [tool for tool in chain[:-1] if verb(tool) in ENDING_VERBS]
    if ended:
        return {"coherent": False, "reason": f"{ended[0]['name']} ends what the later steps need"}
    clauses = [phrases.clause(tool) for tool in chain]
    if len(set(clauses)) < len(clauses):
        return {"coherent": False, "reason": "two steps do the same"}
    used = {one["from_step"] for one in shown["bindings"] if one["origin"] == "result"}
    idle = [n for n in range(len(chain) - 1) if n not in used]
    if idle and rng.random() < 0.8:
        return {"coherent": False, "reason": f"nothing uses the result of step {idle[0] + 1}"}
    return {"coherent": True, "reason": "every step uses an earlier result and serves the last"}


def read_tools(question: str, tools: Sequence[Tool]) -> list[str]:
    """The tools that a request asks for, in its order; a clause or label that several have goes to the first."""
    by_label = {(f.table, f.label): t["name"] for t in reversed(tools) if (f := phrases.knowledge_form(t))}
    by_label_alone = {label: name for (_, label), name in by_label.items()}
    names: list[str] = []
    for branch in phrases.read_knowledge(question, tools):
        first, *later = branch.labels
        found = [by_label.get((branch.table, first)), *(by_label_alone.get(label) for label in later)]
        names += [name for name in found if name is not None]
    if names:
        return names
    asked = phrases.read_look_up_follow_up(question)
    if asked is not None:
        later_labels = [by_label_alone.get(label) for label in asked.labels[1:]]
        return [name for name in (by_label.get((asked.table, asked.labels[0])), *later_labels) if name is not None]
    by_clause = {phrases.clause(tool): tool["name"] for tool in reversed(tools)}
    return [by_clause[step.clause] for step in phrases.read_steps(question) if step.clause in by_clause]


HANDLERS: dict[str, Callable[[Any, random.Random], dict[str, Any]]] = {
    "Graph: propose chains": propose,
    "Chains: vote": vote,
}
