"""Rules of the arena line: composing a question from evidence, checking its steps, writing a table tool's code.

Questions come in two word orders. Forward: ``For airport LHR, find the host city, then its home country.`` Nested:
``What is the home country of the host city of airport LHR?``
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from astra.llm.builtin import phrases


def compose(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A question over the branches of evidence, with its steps."""
    branches: list[list[dict[str, Any]]] = shown["branches"]
    paths = [
        phrases.Branch(branch[0]["table"], branch[0]["subject"], tuple(fact["label"] for fact in branch))
        for branch in branches
    ]
    word = phrases.forward_question if rng.random() < 0.5 else phrases.nested_question
    question = word(paths, rng)
    steps: list[dict[str, Any]] = []
    last: list[int] = []
    for branch in branches:
        for place, fact in enumerate(branch):
            steps.append({
                "id": len(steps) + 1,
                "question": f"What is the {fact['label']} of {fact['table']} {fact['subject']}?",
                "answer": fact["value"],
                "depends_on": [len(steps)] if place else [],
                "needs_tool": True,
                "relation": fact["relation"],
                "subject": fact["subject"],
            })  # fmt: skip
        last.append(len(steps))
    answers = [branch[-1]["value"] for branch in branches]
    if len(branches) == 1:
        return {"question": question, "answer": answers[0], "steps": steps}
    closing = {"id": len(steps) + 1, "question": "State the answers together.", "answer": answers, "depends_on": last,
               "needs_tool": False, "relation": None, "subject": None}  # fmt: skip
    return {"question": question, "answer": answers, "steps": [*steps, closing]}


def verify(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """DC, SA, SR per step and TC for the whole, read from the words: a step needs an answer that its question names."""
    steps: list[dict[str, Any]] = shown["steps"]
    answers = {step["id"]: step["answer"] for step in steps}
    verdicts, faults = [], []
    for step in steps:
        closing = not step["needs_tool"]
        before = [one for one in answers if one < step["id"]]
        used = {one for one in before if _names(step["question"], answers[one])}
        declared = set(step["depends_on"])
        right = bool(declared) if closing else declared == used
        atomic = closing or (step["question"].count("?") == 1 and " and the " not in step["question"])
        rational = closing or declared <= used
        verdict = {"dependency": int(right), "atomicity": int(atomic), "rationality": int(rational)}
        faults += [f"step {step['id']}: {name}" for name, score in verdict.items() if not score]
        verdicts.append({"id": step["id"], **verdict})
    wanted = shown["answer"] if isinstance(shown["answer"], list) else [shown["answer"]]
    given = [step["answer"] for step in steps if step["needs_tool"]]
    complete = all(value in given for value in wanted)
    return {"steps": verdicts, "completeness": int(complete), "reason": "; ".join(faults) or "the steps hold"}


def _names(text: str, value: object) -> bool:
    """True where the text has the value as whole words."""
    return re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text) is not None


# ---------------------------------------------------------------- tools

VALUES: dict[str, dict[str, Any]] = {
    "entity": {"type": "string"},
    "text": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "number": {"type": "number"},
}


def document(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The document of a look-up."""
    relation = shown["relation"]
    entity, label = relation["entity"], relation["label"]
    article = "an" if entity[0] in "aeiou" else "a"
    value = {**VALUES[relation["kind"]], **({"description": f"In {relation['unit']}."} if relation["unit"] else {})}
    parameter = {"type": "string", "description": f"Key of the {entity}."}
    return {
        "name": relation["name"],
        "description": f"{label[0].upper()}{label[1:]} of {article} {entity}.",
        "parameters": {"type": "object", "properties": {entity: parameter}, "required": [entity]},
        "returns": {"type": "object", "properties": {"result": value}, "required": ["result"]},
    }


def write_call(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The call that answers a sub-question."""
    tool = shown["tool"]
    (parameter,) = tool["parameters"]["required"]
    _, _, subject = shown["question"].rstrip("?").partition(f" of {parameter} ")
    return {"name": tool["name"], "arguments": {parameter: subject}}


def write_code(shown: dict[str, Any], rng: random.Random) -> str:
    """A function over a table, in a fenced block."""
    tool = shown["tool"]
    (parameter,) = tool["parameters"]["required"]
    rows = "".join(f"    {_literal(key)}: {_literal(value)},\n" for key, value in shown["rows"])
    return (
        "```python\n"
        f"TABLE = {{\n{rows}}}\n\n\n"
        f"def {tool['name']}({parameter}):\n"
        f'    """{tool["description"]}"""\n'
        f"    if {parameter} not in TABLE:\n"
        f'        raise ValueError(f"unknown {parameter}: {{{parameter}}}")\n'
        f'    return {{"result": TABLE[{parameter}]}}\n'
        "```\n"
    )


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


HANDLERS: dict[str, Callable[[dict[str, Any], random.Random], dict[str, Any] | str]] = {
    "Decompose: compose a question": compose,
    "Decompose: verify the steps": verify,
    "Envsynth: document a tool": document,
    "Envsynth: write the call": write_call,
    "Envsynth: write the code": write_code,
}
