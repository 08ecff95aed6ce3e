"""The rule-based author of the imitation line: chains from the flow of values, requests for them, and rewritings.

What one tool returns can fill what another requires where the names say so. Requests are written in the language of
``phrases.py``, with values from ``samples.py``, or with the example keys that the schemas of a knowledge server show.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from astra.llm.builtin import phrases
from astra.llm.builtin.phrases import Branch, words
from astra.llm.builtin.samples import sample_value

Tool = Mapping[str, Any]
Shown = Mapping[str, Any]

WALKS = 3  # starts per tool in one reply
GENERIC = {"id", "name", "status", "result", "type", "date", "time", "count", "total", "message", "title"}
ENDING_VERBS = {"cancel", "delete", "withdraw", "drop", "end", "close", "remove"}
FORMS = ("forward", "nested")


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
    noun = (words(source["name"]).split() or [""])[-1]
    names = {name for name in result_names(source.get("returns"), noun) if name not in GENERIC}
    found = []
    for parameter in required(target):
        spoken = words(parameter)
        ends_alike = any(" " in name and spoken.endswith(" " + name) for name in names)
        if spoken in names or ends_alike:
            found.append(parameter)
    return found


def _verb(tool: Tool) -> str:
    return words(tool["name"]).split()[0]


# ---------------------------------------------------------------- graph and chains


def propose(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Chains along the flow of values, drawn at random, each with the task that it serves."""
    tools: list[Tool] = shown["tools"]
    follows = {a["name"]: [b for b in tools if b is not a and fed(a, b)] for a in tools}
    by_name = {tool["name"]: tool for tool in tools}
    chains: dict[tuple[str, ...], None] = {}
    for start in tools:
        for _ in range(WALKS):
            chain = _walk(start["name"], follows, rng, shown["max_length"])
            if len(chain) > 1:
                chains[tuple(chain)] = None
    drawn = rng.sample(list(chains), min(len(chains), shown["max_proposals"]))
    return {"proposals": [_proposal([by_name[name] for name in chain]) for chain in drawn]}


def _walk(start: str, follows: Mapping[str, list[Tool]], rng: random.Random, most: int) -> list[str]:
    chain = [start]
    length = rng.randint(2, most)
    while len(chain) < length:
        options = [tool["name"] for tool in follows[chain[-1]] if tool["name"] not in chain]
        if not options:
            break
        chain.append(rng.choice(options))
    return chain


def _proposal(chain: Sequence[Tool]) -> dict[str, Any]:
    """A chain that goes on after its thing was ended is not plausible."""
    ended = any(_verb(tool) in ENDING_VERBS for tool in chain[:-1])
    task = ", then ".join(phrases.clause(tool) for tool in chain)
    return {"task": task, "chain": [tool["name"] for tool in chain], "plausible": "no" if ended else "yes"}


def vote(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Whether each step is bound to an earlier one, nothing is ended midway and no step is said twice."""
    tools = {tool["name"]: tool for tool in shown["tools"]}
    chain = [tools[name] for name in shown["chain"]]
    bound = {one["step"] for one in shown["bindings"] if one["origin"] == "result"}
    loose = [n for n in range(1, len(chain)) if n not in bound]
    if loose:
        return {"coherent": False, "reason": f"step {loose[0] + 1} uses nothing of the steps before it"}
    ended = [tool for tool in chain[:-1] if _verb(tool) in ENDING_VERBS]
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


def describe(shown: Shown, rng: random.Random) -> dict[str, Any]:
    return {"request": _request(shown, rng)}


def rebuild(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The tools whose clause or label the request holds, in its order."""
    return {"chain": read_tools(shown["request"], shown["tools"])}


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
    by_clause = {phrases.clause(tool): tool["name"] for tool in reversed(tools)}
    return [by_clause[step.clause] for step in phrases.read_steps(question) if step.clause in by_clause]


# ---------------------------------------------------------------- requests


def write_chain(shown: Shown, rng: random.Random) -> dict[str, Any]:
    return {"question": _request(shown, rng)}


def _request(shown: Shown, rng: random.Random) -> str:
    tools = {tool["name"]: tool for tool in shown["tools"]}
    chain = [tools[name] for name in shown["chain"]]
    from_result: dict[int, set[str]] = {}
    for one in shown["bindings"]:
        if one["origin"] == "result":
            from_result.setdefault(one["step"], set()).add(one["parameter"])
    branch = _branch(chain, shown["tools"], rng)
    if branch is not None:
        return _knowledge_text([branch], rng)
    return _steps_text(chain, from_result, rng)


def _steps_text(chain: Sequence[Tool], from_result: Mapping[int, set[str]], rng: random.Random) -> str:
    told: dict[str, Any] = {}
    texts = []
    for n, tool in enumerate(chain):
        values = {}
        for name in required(tool):
            if name not in from_result.get(n, set()):
                values[name] = told.setdefault(name, sample_value(name, tool["parameters"]["properties"][name], rng))
        texts.append(phrases.step_text(tool, {name: value for name, value in values.items() if value is not None}))
    return phrases.request_text(texts, [bool(from_result.get(n)) for n in range(len(chain))], rng)


def _branch(chain: Sequence[Tool], tools: Sequence[Tool], rng: random.Random) -> Branch | None:
    """The chain as one path of look-ups that starts from an example key; None where it is not one."""
    forms = [phrases.knowledge_form(tool) for tool in chain]
    if not all(forms):
        return None
    targets = [_target(tool) for tool in chain]
    if any(form and form.table != target for form, target in zip(forms[1:], targets[:-1], strict=True)):
        return None
    first = forms[0]
    assert first is not None
    keys = example_keys(first.table, tools)
    if not keys:
        return None
    return Branch(first.table, rng.choice(keys), tuple(form.label for form in forms if form))


def _target(tool: Tool) -> str | None:
    properties = (tool.get("returns") or {}).get("properties", {})
    title = properties.get("result", {}).get("title")
    return title if isinstance(title, str) else None


def example_keys(table: str, tools: Sequence[Tool]) -> list[str]:
    """Keys of a table that the schemas show: results that are titled with its name."""
    found = [
        str(key)
        for tool in tools
        for one in (tool.get("returns") or {}).get("properties", {}).values()
        if isinstance(one, dict) and one.get("title") == table
        for key in one.get("examples", [])
    ]
    return [key for key in dict.fromkeys(found) if not re.search(r'[,."]| and ', key)]


def _knowledge_text(branches: Sequence[Branch], rng: random.Random) -> str:
    if rng.choice(FORMS) == "forward":
        return phrases.forward_question(branches, rng)
    return phrases.nested_question(branches, rng)


def write_server(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """A request for ``n_tools`` tools of the server, bound by the flow of values where there is one."""
    tools: list[Tool] = shown["tools"]
    if all(phrases.knowledge_form(tool) for tool in tools):
        return _knowledge_request(shown, rng)
    first = tools[(shown["number"] + rng.randrange(len(tools))) % len(tools)]
    chain = [first]
    for _ in range(shown["n_tools"] - 1):
        flowing = [tool for tool in tools if tool not in chain and any(fed(one, tool) for one in chain)]
        others = [tool for tool in tools if tool not in chain and _verb(tool) not in ENDING_VERBS]
        options = flowing or others
        if not options or any(_verb(one) in ENDING_VERBS for one in chain):
            break
        chain.append(rng.choice(options))
    bound = {n: {p for one in chain[:n] for p in fed(one, tool)} for n, tool in enumerate(chain)}
    names = [tool["name"] for tool in chain]
    return {"question": _steps_text(chain, bound, rng), "target_tools": names}


def _knowledge_request(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Branches of look-ups: one path, or two beside each other, with ``n_tools`` look-ups in all."""
    tools: list[Tool] = shown["tools"]
    n = shown["n_tools"]
    lengths = [n] if n == 1 or rng.random() < 0.5 else [n - n // 2, n // 2]
    branches: list[Branch] = []
    names: list[str] = []
    for length in lengths:
        chain = _path(length, tools, rng)
        branch = _branch(chain, tools, rng)
        if branch is not None:
            branches.append(branch)
            names += [tool["name"] for tool in chain]
    return {"question": _knowledge_text(branches, rng), "target_tools": names}


def _path(length: int, tools: Sequence[Tool], rng: random.Random) -> list[Tool]:
    """A walk of look-ups from a table with example keys, each reading what the one before gave."""
    starts = [tool for tool in tools if (f := phrases.knowledge_form(tool)) and example_keys(f.table, tools)]
    chain = [rng.choice(starts)]
    while len(chain) < length:
        options = [
            t for t in tools if (f := phrases.knowledge_form(t)) and f.table == _target(chain[-1]) and t not in chain
        ]
        if not options:
            break
        chain.append(rng.choice(options))
    return chain


# ---------------------------------------------------------------- rewriting


def diversity(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """Another wording, and for requests in steps other values of the same kind."""
    question, tools = shown["question"], shown["tools"]
    branches = phrases.read_knowledge(question, tools)
    if branches:
        forward = re.search(r"\b[Ff]or (?:\w+ )+?[^,]+, (?:find|look up|get|give me) the ", question) is not None
        rewrite = phrases.nested_question if forward else phrases.forward_question
        return {"question": rewrite(branches, rng)}
    steps = phrases.read_steps(question)
    if not steps:
        return {"question": question}
    schemas = {words(name): (name, one) for tool in tools for name, one in tool["parameters"]["properties"].items()}
    changed: dict[tuple[str, str], str] = {}
    texts = []
    for step in steps:
        told = []
        for spoken, text in step.given.items():
            if (spoken, text) not in changed:
                name, schema = schemas.get(spoken, (spoken, {}))
                value = sample_value(name, schema, rng)
                changed[spoken, text] = phrases.given(spoken, text if value is None else value)
            told.append(changed[spoken, text])
        texts.append(_joined(step.clause, told))
    return {"question": phrases.request_text(texts, [step.dependent for step in steps], rng)}


def _joined(clause: str, told: Sequence[str]) -> str:
    if not told:
        return clause
    return f"{clause} with {told[0] if len(told) == 1 else ', '.join(told[:-1]) + ' and ' + told[-1]}"


WISHES = (
    "Keep the answer to two sentences.",
    "If a step fails for good, tell me which one and stop there.",
    "Repeat every identifier exactly as you got it.",
    "Do not change anything that I did not ask for.",
)


def complexity(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """A second entity for look-ups; for requests in steps a value for an optional parameter, else a further wish."""
    question, tools = shown["question"], shown["tools"]
    branches = phrases.read_knowledge(question, tools)
    if branches:
        first = branches[0]
        keys = [key for key in example_keys(first.table, tools) if key not in {one.key for one in branches}]
        if not keys:
            return {"question": question}
        return {"question": _knowledge_text([*branches, first._replace(key=rng.choice(keys))], rng)}
    steps = phrases.read_steps(question)
    by_clause = {phrases.clause(tool): tool for tool in tools}
    open_choices = [
        (n, name, schema)
        for n, step in enumerate(steps)
        if step.clause in by_clause
        for name, schema in by_clause[step.clause]["parameters"]["properties"].items()
        if name not in required(by_clause[step.clause]) and words(name) not in step.given
    ]
    texts = [_joined(step.clause, [phrases.given(name, text) for name, text in step.given.items()]) for step in steps]
    if open_choices:
        n, name, schema = rng.choice(open_choices)
        value = sample_value(name, schema, rng)
        if value is not None:
            told = [phrases.given(one, text) for one, text in steps[n].given.items()]
            texts[n] = _joined(steps[n].clause, [*told, phrases.given(name, value)])
            return {"question": phrases.request_text(texts, [step.dependent for step in steps], rng)}
    return {"question": f"{question} {rng.choice(WISHES)}"}


INTRODUCTIONS: dict[str, tuple[str, ...]] = {
    "polite": ("Good day, I am {who}; {because}.", "Hello, this is {who}. If it is no trouble: {because}."),
    "brief": ("I am {who}, {because}.",),
    "casual": ("Hi, {who} here, {because}.", "Hey! I am {who} and {because}."),
}
STYLES = {"polite": "polite", "warm": "polite", "careful": "polite", "precise": "polite", "exact": "polite",
          "cheerful": "casual", "casual": "casual", "chatty": "casual", "curious": "casual",
          "unsure": "casual"}  # fmt: skip


def persona(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """An introduction in the person's voice before the request."""
    person = shown["persona"]
    texts = INTRODUCTIONS[STYLES.get(person["style"], "brief")]
    introduction = rng.choice(texts).format(who=person["who"], because=person["because"])
    return {"question": f"{introduction} {shown['question']}"}


HANDLERS: dict[str, Callable[[Any, random.Random], dict[str, Any]]] = {
    "Graph: propose chains": propose,
    "Chains: vote": vote,
    "Chains: describe": describe,
    "Chains: rebuild": rebuild,
    "Tasks: write for a chain": write_chain,
    "Tasks: write for a server": write_server,
    "Tasks: diversity": diversity,
    "Tasks: complexity": complexity,
    "Tasks: persona": persona,
}
