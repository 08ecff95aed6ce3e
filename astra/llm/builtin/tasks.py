"""The rule-based author of requests: written for chains and servers, reworded, and made into the unusual kinds.

Requests are written in the language of ``phrases.py``, with values from ``samples.py``, or with the example keys that
the schemas of a knowledge server show. Beside each request stand the values that it states.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from astra.llm.builtin import phrases
from astra.llm.builtin.graph_tasks import ENDING_VERBS, Shown, Tool, fed, read_tools, required, verb
from astra.llm.builtin.phrases import Branch, label
from astra.llm.builtin.samples import sample_value

FORMS = ("forward", "nested")


# ---------------------------------------------------------------- requests


def write_chain(shown: Shown, rng: random.Random) -> dict[str, Any]:
    question = _request(shown, rng)
    return {"question": question, "values": stated([question], _named(shown["chain"], shown["tools"]))}


def _named(names: Sequence[str], tools: Sequence[Tool]) -> list[Tool]:
    by_name = {tool["name"]: tool for tool in tools}
    return [by_name[name] for name in dict.fromkeys(names)]


def stated(texts: Sequence[str], tools: Sequence[Tool]) -> list[dict[str, str]]:
    """The values that the user's turns give for what these tools require."""
    found: dict[tuple[str, str], str] = {}
    by_clause = {phrases.clause(tool): tool for tool in reversed(tools)}
    forms = {(form.table, form.label): tool for tool in reversed(tools) if (form := phrases.knowledge_form(tool))}
    for text in texts:
        for branch in phrases.read_knowledge(text, tools):
            first = forms.get((branch.table, branch.labels[0]))
            if first is not None:
                found.setdefault((first["name"], branch.table), branch.key)
        for step in phrases.read_steps(text):
            tool = by_clause.get(step.clause)
            for name in required(tool) if tool is not None else ():
                if tool is not None and label(name) in step.given:
                    found.setdefault((tool["name"], name), step.given[label(name)])
    return [{"tool": tool, "parameter": name, "value": value} for (tool, name), value in found.items()]


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
        others = [tool for tool in tools if tool not in chain and verb(tool) not in ENDING_VERBS]
        options = flowing or others
        if not options or any(verb(one) in ENDING_VERBS for one in chain):
            break
        chain.append(rng.choice(options))
    bound = {n: {p for one in chain[:n] for p in fed(one, tool)} for n, tool in enumerate(chain)}
    names = [tool["name"] for tool in chain]
    question = _steps_text(chain, bound, rng)
    return {"question": question, "target_tools": names, "values": stated([question], chain)}


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
    question = _knowledge_text(branches, rng)
    return {"question": question, "target_tools": names, "values": stated([question], _named(names, tools))}


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
    return _rewritten(_reworded(shown, rng), shown)


def _rewritten(question: str, shown: Shown) -> dict[str, Any]:
    """A rewriting with the tools that it asks for, the request's own first, and the values that it states."""
    asked = list(dict.fromkeys(read_tools(question, shown["tools"])))
    kept = [name for name in shown["target_tools"] if name in asked]
    tools = _named(shown["target_tools"], shown["tools"])
    return {
        "question": question,
        "target_tools": [*kept, *(name for name in asked if name not in kept)],
        "values": stated([question], tools),
    }


def _reworded(shown: Shown, rng: random.Random) -> str:
    question, tools = shown["question"], shown["tools"]
    branches = phrases.read_knowledge(question, tools)
    if branches:
        forward = re.search(r"\b[Ff]or (?:\w+ )+?[^,]+, (?:find|look up|get|give me) the ", question) is not None
        rewrite = phrases.nested_question if forward else phrases.forward_question
        return rewrite(branches, rng)
    steps = phrases.read_steps(question)
    if not steps:
        return str(question)
    schemas = {label(name): (name, one) for tool in tools for name, one in tool["parameters"]["properties"].items()}
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
    return phrases.request_text(texts, [step.dependent for step in steps], rng)


def _joined(clause: str, told: Sequence[str]) -> str:
    if not told:
        return clause
    return f"{clause} with {told[0] if len(told) == 1 else ', '.join(told[:-1]) + ' and ' + told[-1]}"


WISH_RATE = 0.4  # of harder requests, where more could be asked of a tool, too


def complexity(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """A second entity for look-ups; for requests in steps a value for an optional parameter, else a further wish."""
    return _rewritten(_harder(shown, rng), shown)


def _harder(shown: Shown, rng: random.Random) -> str:
    question, tools = shown["question"], shown["tools"]
    branches = phrases.read_knowledge(question, tools)
    if branches:
        first = branches[0]
        keys = [key for key in example_keys(first.table, tools) if key not in {one.key for one in branches}]
        if not keys:
            return str(question)
        return _knowledge_text([*branches, first._replace(key=rng.choice(keys))], rng)
    steps = phrases.read_steps(question)
    by_clause = {phrases.clause(tool): tool for tool in tools}
    open_choices = [
        (n, name, schema)
        for n, step in enumerate(steps)
        if step.clause in by_clause
        for name, schema in by_clause[step.clause]["parameters"]["properties"].items()
        if name not in required(by_clause[step.clause]) and label(name) not in step.given
    ]
    texts = [_joined(step.clause, [phrases.given(name, text) for name, text in step.given.items()]) for step in steps]
    if open_choices and rng.random() >= WISH_RATE:
        n, name, schema = rng.choice(open_choices)
        value = sample_value(name, schema, rng)
        if value is not None:
            told = [phrases.given(one, text) for one, text in steps[n].given.items()]
            texts[n] = _joined(steps[n].clause, [*told, phrases.given(name, value)])
            return phrases.request_text(texts, [step.dependent for step in steps], rng)
    return f"{question} {rng.choice(list(phrases.WISHES.values()))}"


INTRODUCTIONS: dict[str, tuple[str, ...]] = {
    "polite": ("Good day, I am {who}; {because}.", "Hello, this is {who}. If it is no trouble: {because}."),
    "brief": ("I am {who}, {because}.",),
    "casual": ("Hi, {who} here, {because}.", "Hey! I am {who} and {because}."),
}


def persona(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """An introduction in the person's voice before the request."""
    person = shown["persona"]
    texts = INTRODUCTIONS[person["voice"]]
    introduction = rng.choice(texts).format(who=person["who"], because=person["because"])
    return _rewritten(f"{introduction} {shown['question']}", shown)


# ---------------------------------------------------------------- unusual kinds


def missing_tool(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The request in other words; what it lacks is the offer's matter."""
    return _rewritten(_reworded(shown, rng), shown)


def later_tool(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The request in other words, and what the user says when the tool is there."""
    return {**_rewritten(_reworded(shown, rng), shown), "later": rng.choice(phrases.TOOL_IS_THERE)}


def missing_value(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The request without the value, wherever it stands, and the turn that gives it."""
    question, left_out = shown["question"], shown["missing"]
    spoken = label(left_out["parameter"])
    steps = phrases.read_steps(question)
    texts = [
        _joined(step.clause, [phrases.given(name, text) for name, text in step.given.items() if name != spoken])
        for step in steps
    ]
    without = phrases.request_text(texts, [step.dependent for step in steps], rng) if steps else question
    return {
        "question": without,
        "values": stated([without], _named(shown["target_tools"], shown["tools"])),
        "answer": phrases.value_text(left_out["parameter"], left_out["value"], rng),
    }


def several_turns(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The first steps as the request, the others as further turns of one step or more."""
    question, tools, names = shown["question"], shown["tools"], shown["target_tools"]
    branches = phrases.read_knowledge(question, tools)
    if len(branches) == 1:
        first, turns = _look_up_turns(branches[0], names, tools, rng)
    else:
        first, turns = _step_turns(phrases.read_steps(question), names, rng)
    values = stated([first, *(turn["says"] for turn in turns)], _named(names, tools))
    return {"question": first, "turns": turns, "values": values}


Turns = tuple[str, list[dict[str, Any]]]


def _look_up_turns(branch: Branch, names: Sequence[str], tools: Sequence[Tool], rng: random.Random) -> Turns:
    """Cut after one of the look-ups but the last; the further turn goes on from what they gave."""
    if len(branch.labels) != len(names) or len(names) < 2:
        return "", []
    cut = rng.randint(1, len(names) - 1)
    by_name = {tool["name"]: tool for tool in tools}
    table = _target(by_name[names[cut - 1]])
    if table is None:
        return "", []
    says = phrases.look_up_follow_up(phrases.FollowUp(table, branch.labels[cut:]))
    question = _knowledge_text([branch._replace(labels=branch.labels[:cut])], rng)
    return question, [{"says": says, "target_tools": list(names[cut:])}]


def _step_turns(steps: Sequence[phrases.StepText], names: Sequence[str], rng: random.Random) -> Turns:
    """Cut before a step that needs an earlier result, and sometimes before another one."""
    cuts = [n for n in range(1, len(steps)) if steps[n].dependent]
    if len(steps) != len(names) or not cuts:
        return "", []
    chosen = sorted(rng.sample(cuts, rng.randint(1, min(2, len(cuts)))))
    parts = list(zip([0, *chosen], [*chosen, len(steps)], strict=True))
    said = []
    for begin, end in parts:
        part = steps[begin:end]
        texts = [_joined(one.clause, [phrases.given(name, text) for name, text in one.given.items()]) for one in part]
        write = phrases.follow_up_text if begin else phrases.request_text
        said.append(write(texts, [one.dependent for one in part], rng))
    turns = [
        {"says": text, "target_tools": list(names[begin:end])}
        for text, (begin, end) in zip(said[1:], parts[1:], strict=True)
    ]
    return said[0], turns


def play_user(shown: Shown, rng: random.Random) -> dict[str, Any]:
    """The user's next turn, word for word as it was written."""
    return {"says": shown["next"]}


HANDLERS: dict[str, Callable[[Any, random.Random], dict[str, Any]]] = {
    "Tasks: write for a chain": write_chain,
    "Tasks: write for a server": write_server,
    "Tasks: diversity": diversity,
    "Tasks: complexity": complexity,
    "Tasks: persona": persona,
    "Tasks: missing tool": missing_tool,
    "Tasks: missing value": missing_value,
    "Tasks: later tool": later_tool,
    "Tasks: several turns": several_turns,
    "Trajectories: play the user": play_user,
}
