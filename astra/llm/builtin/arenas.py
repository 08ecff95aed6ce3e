"""Rules of the arena line: composing a question from evidence, checking its steps, writing a table tool's code.

Questions come in two word orders. Forward: ``For airport LHR, find the host city, then its home country.`` Nested:
``What is the home country of the host city of airport LHR?``
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from astra.llm.builtin import phrases


def compose(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A question over the branches of evidence, with its steps."""
    branches: list[list[dict[str, Any]]] = shown["branches"]
    paths = [
        phrases.Branch(branch[0]["table"], branch[0]["subject"], tuple(fact["label"] for fact in branch))
        for branch in branches
    ]
    operation = shown.get("operation")
    if operation is not None:
        question = phrases.computed_question(operation, paths, rng)
    else:
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
    puts = "State the answers together." if operation is None else phrases.CLOSING[operation]
    answer = answers if operation is None else shown["answer"]
    closing = {"id": len(steps) + 1, "question": puts, "answer": answer, "depends_on": last, "needs_tool": False,
               "relation": None, "subject": None}  # fmt: skip
    return {"question": question, "answer": answer, "steps": [*steps, closing]}


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
    computed = [step["answer"] for step in steps if step.get("operation")]
    complete = all(value in given for value in wanted) or shown["answer"] in computed
    return {"steps": verdicts, "completeness": int(complete), "reason": "; ".join(faults) or "the steps hold"}


_FACT = re.compile(r"The ([a-z][a-z ]*?) of ([A-Z][\w ]*?) (?:is|was) ([A-Z][\w ]*|\d[\d.,]*)(?=[.;])")


def read(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A question over sentences like ``The capital of Peru is Lima.``, joined where a value is another's subject.

    Where there are none, one about a document's first words. Estimates and the tests' endpoint are answered with this;
    the stage does not take it for a teacher that reads.
    """
    facts = list(_stated(shown["documents"])) or [_beginning(shown["documents"][0])]
    path = [rng.choice(facts)]
    while len(path) < shown["max_hops"] and "multi" in shown["shape"]:
        following = [one for one in facts if one["subject"] == path[-1]["value"] and one not in path]
        if not following:
            break
        path.append(rng.choice(following))
    labels = " of the ".join(one["label"] for one in reversed(path))
    steps = [_reading_step(place, one) for place, one in enumerate(path, 1)]
    return {"question": f"What is the {labels} of {path[0]['subject']}?", "answer": path[-1]["value"], "steps": steps}


def _stated(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in documents:
        for found in _FACT.finditer(one["text"]):
            label, subject, value = found.groups()
            yield {"label": label, "subject": subject, "value": value, "document": one["id"], "quote": found.group()}


def _beginning(document: dict[str, Any]) -> dict[str, Any]:
    words = " ".join(document["text"].split()[:8])
    return {"label": "beginning", "subject": document["id"], "value": words, "document": document["id"], "quote": words}


def _reading_step(place: int, fact: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": place, "question": f"What is the {fact['label']} of {fact['subject']}?", "answer": fact["value"],
        "unit": None, "depends_on": [place - 1] if place > 1 else [], "needs_tool": True, "hop": place,
        "subject": fact["subject"], "operation": None,
        "evidence": [{"document": fact["document"], "quote": fact["quote"]}],
    }  # fmt: skip


def divide(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The question as its own only step: what an estimate is answered with."""
    step = {"id": 1, "question": shown["question"], "answer": shown["answer"], "unit": None, "depends_on": [],
            "needs_tool": True, "hop": 1, "subject": None, "operation": None, "evidence": []}  # fmt: skip
    return {"steps": [step]}


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
    tool, question = shown["tool"], shown["question"].rstrip("?.! ")
    keys = tool["parameters"]["required"]
    if len(keys) == 2:
        found = _TWO.search(question)
        given = [found.group("first"), found.group("second")] if found else ["", ""]
    else:
        _, _, subject = question.partition(f" of {keys[0]} ")
        given = [subject or _subject(question)]
    return {"name": tool["name"], "arguments": dict(zip(keys, given, strict=True))}


def write_code(shown: dict[str, Any], rng: random.Random) -> str:
    """A function over the table, in a fenced block."""
    tool, keys = shown["tool"], shown["data"]["keys"]
    options = {name: one for name, one in tool["parameters"]["properties"].items() if name not in keys}
    signature = [*keys, *(f"{name}={one['default']!r}" for name, one in options.items())]
    lines = [f"def {tool['name']}({', '.join(signature)}):", f'    """{tool["description"]}"""']
    place = "TABLE"
    for key in keys:
        lines += [f"    if {key} not in {place}:", f'        raise ValueError(f"unknown {key}: {{{key}}}")']
        place += f"[{key}]"
    value = place
    for name, one in options.items():
        lines += [
            f"    if {name} not in {tuple(one['enum'])!r}:",
            f'        raise ValueError(f"invalid {name}: {{{name}}}")',
        ]
        value = f"({_RICHER[name].code} if {name} == {one['enum'][1]!r} else {value})".replace("VALUE", place)
    return "\n".join(["```python", *lines, f'    return {{"result": {value}}}', "```", ""])


# ---------------------------------------------------------------- tools for a sub-question that reads no table

_TWO = re.compile(r"(?:between|from) (?P<first>.+?) (?:and|to) (?P<second>.+)$")
_OF = re.compile(
    r"^(?:what|who|which|when|where) (?:is|are|was|were) the (?P<label>.+?) (?:of|in|for) (?:the )?(?P<rest>.+)$", re.I
)


def _subject(question: str) -> str:
    """What a question is about: what is quoted, or what follows ``of``, else its last words."""
    quoted = re.search(r'"([^"]+)"', question)
    found = _OF.match(question)
    return quoted.group(1) if quoted else found.group("rest") if found else " ".join(question.split()[-3:])


def document_question(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The document of a tool that answers questions like this one, of whatever subject."""
    question = shown["question"].rstrip("?.! ")
    two, found = _TWO.search(question), _OF.match(question)
    about = question[: two.start()] if two else found.group("label") if found else question.split()[0]
    label = " ".join(re.findall(r"[a-z]+", re.sub(r"^(what|who) (is|was) the ", "", about.lower()))) or "fact"
    keys = ["first", "second"] if two else ["subject"]
    properties = {key: {"type": "string", "description": f"The {key} that is asked about."} for key in keys}
    value = {"type": shown["kind"]} if shown["kind"] in ("number", "boolean") else {"type": "string"}
    if shown["kind"] == "list":
        value = {"type": "array"}
    return {
        "name": label.replace(" ", "_")[:50],
        "description": f"{label[0].upper()}{label[1:]} of what is asked about.",
        "parameters": {"type": "object", "properties": properties, "required": keys},
        "returns": {"type": "object", "properties": {"result": value}, "required": ["result"]},
    }


class _Option(NamedTuple):
    """An optional parameter: its values, the default first, and what the second makes of VALUE."""

    values: tuple[str, str]
    code: str
    description: str
    result: dict[str, Any]


_RICHER: dict[str, _Option] = {
    "length": _Option(
        ("whole", "initials"),
        "''.join(word[0] for word in VALUE.split())",
        "The words, or their initials.",
        {"type": "string"},
    ),
    "form": _Option(
        ("iso", "day_first"), "'.'.join(reversed(VALUE.split('-')))", "Year first, or day first.", {"type": "string"}
    ),
    "scale": _Option(("one", "thousand"), "VALUE / 1000", "In units, or in thousands.", {"type": "number"}),
    "wording": _Option(
        ("boolean", "words"), "('yes' if VALUE else 'no')", "A boolean, or a word.", {"type": ["boolean", "string"]}
    ),
    "order": _Option(
        ("given", "counted"), "[len(VALUE), *VALUE]", "The items, or their number before them.", {"type": "array"}
    ),
}
_OPTION_OF = {"date": "form", "number": "scale", "boolean": "wording", "list": "order"}


def scale(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The document with one optional parameter that suits the kind of its result."""
    tool, name = shown["tool"], _OPTION_OF.get(shown["kind"], "length")
    option = _RICHER[name]
    schema = {
        "type": "string",
        "enum": list(option.values),
        "default": option.values[0],
        "description": option.description,
    }
    parameters = {**tool["parameters"], "properties": {**tool["parameters"]["properties"], name: schema}}
    return {**tool, "parameters": parameters, "returns": {**tool["returns"], "properties": {"result": option.result}}}


def invent_rows(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Entries beside the one that is taken; every other one shares its first argument where there are several."""
    keys = shown["tool"]["parameters"]["required"]
    rows = []
    for number in range(1, shown["rows"] + 1):
        arguments = {key: f"{_WORDS[rng.randrange(len(_WORDS))]} {number}" for key in keys}
        if len(keys) > 1 and number % 2:
            arguments[keys[0]] = shown["taken"][keys[0]]
        rows.append({"arguments": arguments, "result": _INVENTED[shown["kind"]](number, rng)})
    return {"rows": rows}


def group_tools(shown: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Tools that say the same of themselves, or are called the same but for a number; parameters go by their order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for tool in shown["tools"]:
        place = len(tool["parameters"]["required"])
        found.setdefault(f"{re.sub(r'_[0-9]+$', '', tool['name'])} {place}", []).append(tool)
    groups = []
    for tools in found.values():
        document = {name: tools[0][name] for name in ("name", "description", "parameters", "returns")}
        keys = document["parameters"]["required"]
        arguments = {
            tool["name"]: {
                key: {"parameter": old} for key, old in zip(keys, tool["parameters"]["required"], strict=True)
            }
            for tool in tools
        }
        if len(tools) > 1:
            groups.append({"tools": list(arguments), "document": document, "arguments": arguments})
    return {"groups": groups}


_WORDS = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Gorse", "Hazel", "Ivy", "Juniper")
_INVENTED: dict[str, Callable[[int, random.Random], Any]] = {
    "text": lambda number, rng: f"{_WORDS[rng.randrange(len(_WORDS))]} {_WORDS[number % len(_WORDS)]}",
    "number": lambda number, rng: rng.randrange(10, 100_000) + number,
    "date": lambda number, rng: f"{1900 + rng.randrange(120)}-{1 + number % 12:02}-{1 + rng.randrange(28):02}",
    "boolean": lambda number, rng: bool(number % 2),
    "list": lambda number, rng: [_WORDS[(number + n) % len(_WORDS)] for n in range(2 + rng.randrange(2))],
}


HANDLERS: dict[str, Callable[[dict[str, Any], random.Random], dict[str, Any] | str]] = {
    "Decompose: compose a question": compose,
    "Decompose: compose from documents": read,
    "Decompose: divide a question": divide,
    "Decompose: verify the steps": verify,
    "Envsynth: document a tool": document,
    "Envsynth: document a tool for a question": document_question,
    "Envsynth: scale the document": scale,
    "Envsynth: invent other rows": invent_rows,
    "Envsynth: write the call": write_call,
    "Envsynth: write the code": write_code,
    "Merge: group the tools": group_tools,
    "Merge: write the code": write_code,
}
