r"""The language that the built-in task writer and the built-in agent share. Rules:

1. A step is its tool's clause: the first sentence of the description as an imperative, without full stop.
2. What the user gives stands after the clause as ``with <parameter's label> "value"``, joined by commas and ``and``.
   Quotes inside a value are written ``\"``. Values that are no text are written as JSON inside the quotes, lists too.
3. Steps are joined by a link. A DEPENDENT link says that the step needs an earlier result; a FREE link does not.
4. A request is ``<opening><step><link><step>...<.>``; sentences before the opening (a persona) and after the first full
   stop are not steps.
5. Required parameters that the user does not give come from earlier results.
6. Tools in knowledge form (one required parameter named as an entity type, described as "Host city of an airport.")
   are asked for by label: forward ``For airport LHR, find the host city, then its home country. Also for country Spain,
   find the capital.`` or nested ``What is the home country of the host city of airport LHR and the capital of country
   Spain?``
7. A later turn of the user asks for further steps with an opening of its own (DEPENDENT_FOLLOW_UPS need what was found
   before, FREE_FOLLOW_UPS do not), for a look-up on what was found (``And what is the currency of that country?``), or
   gives a value that was asked for (``Here it is: town "Lyme".``). Only a turn's first paragraph is in this language.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

OPENINGS = ("Please ", "I need you to ", "Can you help me? First ", "For a job today: ", "Here is what I want: ")
DEPENDENT_LINKS = (", then use that result to ", ", and with what that gives ", "; from the outcome, ")
FREE_LINKS = (", then ", "; after that, ", "; also ")

DEPENDENT_FOLLOW_UPS = ("Thanks. Now use that result to ", "Good. From what you found, ")
FREE_FOLLOW_UPS = ("Thanks. Next, I want you to ", "Good. Now ")
WISHES = {  # for the answer's form; each stands after the steps
    "two_sentences": "Keep the answer to two sentences.",
    "one_sentence": "Answer in one sentence.",
    "list": "Give the answer as a list, one line for each step.",
    "json": "Answer in JSON only.",
    "stop": "If a step fails for good, tell me which one and stop there.",
    "identifiers": "Repeat every identifier exactly as you got it.",
    "nothing_else": "Do not change anything that I did not ask for.",
}
VALUE_LEADS = ("Here it is: ", "Sorry, I forgot that: ")
TOOL_IS_THERE = ("A tool for that was just added. Go on with it.", "There is a new tool for that now, try again.")

FORWARD_LEADS = ("find", "look up", "get", "give me")
NESTED_LEADS = (("What is ", "?"), ("Tell me ", "."), ("Please find ", "."), ("I want to know ", "."))


class StepText(NamedTuple):
    """One step as it stands in a request: its clause, whether it needs an earlier result, and what the user gives."""

    clause: str
    dependent: bool
    given: dict[str, str]  # parameter words -> value text


class Branch(NamedTuple):
    """One path of a knowledge question: the entity it starts from, and the labels in the order they are read."""

    table: str
    key: str
    labels: tuple[str, ...]


# ---------------------------------------------------------------- tools


def words(name: str) -> str:
    """``fromPort`` or ``from_port`` -> ``from port``."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)).lower() or name


UNITS = {
    "eur": "EUR", "usd": "USD", "gbp": "GBP", "kg": "kg", "g": "g", "cm": "cm", "mm": "mm", "m": "m", "km": "km",
    "c": "°C", "kcal": "kcal", "percent": "percent", "w": "W", "kwh": "kWh", "ms": "ms", "s": "s", "l": "l", "ml": "ml",
    "years": "years", "hours": "hours", "minutes": "minutes", "min": "minutes",
}  # fmt: skip
_SHORT = {"no": "number", "ref": "reference", "qty": "quantity", "addr": "address"}


@lru_cache(maxsize=65536)
def label(name: str) -> str:
    """A parameter's name as people say it: ``n_pieces`` -> number of pieces, ``weight_kg`` -> weight in kg.

    The label of a label is itself.
    """
    if "³" in name:
        return name
    spoken = words(name).split(" ")
    if len(spoken) > 3 and spoken[-3:] == ["m", "3", "s"]:
        return " ".join([*spoken[:-3], "in", "m³/s"])
    if len(spoken) > 2 and spoken[-2:] == ["m", "3"]:
        return " ".join([*spoken[:-2], "per", "m³"])
    if len(spoken) > 1 and spoken[0] == "n":
        return " ".join(["number", "of", *spoken[1:]])
    if len(spoken) > 1 and spoken[-1] in UNITS:
        named = spoken[:-2] if spoken[-2] == "in" else spoken[:-1]
        return " ".join([*named, "in", UNITS[spoken[-1]]])
    return " ".join([*spoken[:-1], _SHORT.get(spoken[-1], spoken[-1]) if len(spoken) > 1 else spoken[-1]])


_NOT_VERBS = {
    "access", "address", "as", "details", "is", "its", "news", "results", "statistics", "status", "this",
}  # fmt: skip
_VERBS = {
    "access", "add", "analyze", "apply", "approve", "archive", "assign", "attach", "authenticate", "book",
    "broadcast", "browse", "build", "calculate", "cancel", "capture", "change", "check", "classify", "clear",
    "close", "collect", "commit", "compare", "compute", "configure", "connect", "convert", "copy", "count",
    "create", "decode", "delegate", "delete", "deploy", "describe", "detect", "disable", "display", "download",
    "drop", "edit", "enable", "encode", "end", "enqueue", "enrol", "enroll", "enumerate", "estimate",
    "evaluate", "execute", "explain", "export", "extend", "extract", "fetch", "file", "filter", "find", "flag",
    "follow", "forecast", "format", "forward", "generate", "geocode", "get", "give", "identify", "import",
    "initialize", "insert", "inspect", "install", "invite", "invoke", "issue", "join", "lend", "list", "load",
    "lock", "log", "look", "lookup", "make", "mark", "measure", "merge", "modify", "monitor", "move",
    "normalize", "notify", "obtain", "open", "optimize", "order", "parse", "pay", "perform", "ping", "place",
    "plan", "play", "post", "predict", "preview", "print", "process", "provide", "publish", "purchase", "push",
    "put", "query", "quote", "rank", "read", "recall", "recommend", "record", "redirect", "refund", "register",
    "remove", "rename", "render", "replace", "reply", "report", "request", "reserve", "reset", "resolve",
    "restore", "retrieve", "return", "route", "run", "save", "scale", "scan", "schedule", "score", "search",
    "select", "send", "set", "share", "show", "sign", "simulate", "sort", "split", "stage", "start", "stop",
    "store", "submit", "subscribe", "suggest", "summarize", "switch", "sync", "tag", "take", "test", "toggle",
    "track", "transfer", "translate", "trigger", "turn", "unarchive", "unlock", "unstage", "unsubscribe",
    "update", "upload", "use", "validate", "verify", "view", "vote", "watch", "withdraw", "write",
}  # fmt: skip


def imperative(word: str) -> str | None:
    """``Returns`` -> ``return``; None for a word that is no verb known here."""
    low = word.lower()
    if low in _VERBS:
        return low
    for ending, stem in (("ies", "y"), ("es", ""), ("s", "")):
        if low.endswith(ending) and low.removesuffix(ending) + stem in _VERBS and low not in _NOT_VERBS:
            return low.removesuffix(ending) + stem
    return None


def clause(tool: Mapping[str, Any]) -> str:
    """What a tool does, as the words of a request: ``get the forecast for a city``."""
    text = " ".join(str(tool.get("description") or "").split())
    first = re.split(r"(?<=[^.\s]{2}[.!?])\s|\n|[;:]|\s\(| - ", text, maxsplit=1)[0].strip().rstrip(".!?:;,")
    first = re.sub(r"[`\"“”*]", "", first).replace(", then ", " and ")
    if not first:
        return "use " + words(str(tool["name"]))
    head, _, rest = first.partition(" ")
    verb = imperative(head)
    if verb is not None:
        return f"{verb} {rest}".strip()
    if head.lower() in ("a", "an", "the"):
        return f"get {head.lower()} {rest}"
    return f"get the {head if _is_name(head) else head.lower()} {rest}".strip()


def _is_name(word: str) -> bool:
    return len(word) > 1 and any(letter.isupper() for letter in word[1:])


class KnowledgeForm(NamedTuple):
    table: str
    label: str


_KNOWLEDGE = re.compile(r"^(\S.*?) of an? ([a-z][a-z_ ]*)\.$")


def knowledge_form(tool: Mapping[str, Any]) -> KnowledgeForm | None:
    """Entity type and label of a tool that reads one value of one entity; None for any other tool."""
    found = _KNOWLEDGE.match(str(tool.get("description") or ""))
    required = tool["parameters"].get("required", [])
    if found is None or required != [found.group(2)] or len(tool["parameters"].get("properties", {})) != 1:
        return None
    label = found.group(1)
    head = label.split(" ")[0]
    return KnowledgeForm(found.group(2), label if _is_name(head) else label[0].lower() + label[1:])


# ---------------------------------------------------------------- values


def spoken(value: Any) -> str:
    """A value as it stands between the quotes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("\\", "\\\\").replace('"', '\\"')


def given(parameter: str, value: Any) -> str:
    """``from port "Lyme"``."""
    return f'{label(parameter)} "{spoken(value)}"'


_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LABEL = r"[A-Za-z0-9°³/]"  # its letters; and spaces between


def read_given(question: str, parameter: str) -> str | None:
    """The text that a request, or one step of it, gives for a parameter; None where it gives none."""
    found = re.search(rf"(?:with|and|,) {re.escape(label(parameter))} {_QUOTED}", question)
    return None if found is None else _unquoted(found.group(1))


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def value_of(text: str, schema: Mapping[str, Any]) -> Any:
    """The value that a given text stands for, by the parameter's type."""
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else list(kind or [])
    if "string" in kinds or not (kinds or "anyOf" in schema or "oneOf" in schema or "$ref" in schema):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


# ---------------------------------------------------------------- requests


def step_text(tool: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """A step: the clause and what the user gives for it."""
    told = [given(name, value) for name, value in values.items()]
    if not told:
        return clause(tool)
    listed = told[0] if len(told) == 1 else ", ".join(told[:-1]) + " and " + told[-1]
    return f"{clause(tool)} with {listed}"


def request_text(steps: Sequence[str], dependent: Sequence[bool], rng: random.Random) -> str:
    """A request of these steps; ``dependent[i]`` says that step i needs an earlier result."""
    fitting = OPENINGS if len(steps) > 1 else [one for one in OPENINGS if not one.endswith("First ")]
    return _linked(fitting, steps, dependent, rng)


def follow_up_text(steps: Sequence[str], dependent: Sequence[bool], rng: random.Random) -> str:
    """A later turn that asks for these further steps."""
    return _linked(DEPENDENT_FOLLOW_UPS if dependent[0] else FREE_FOLLOW_UPS, steps, dependent, rng)


def _linked(openings: Sequence[str], steps: Sequence[str], dependent: Sequence[bool], rng: random.Random) -> str:
    free = rng.choice(FREE_LINKS)
    needs = rng.choice(DEPENDENT_LINKS)
    text = rng.choice(openings) + steps[0]
    for step, depends in zip(steps[1:], dependent[1:], strict=True):
        text += (needs if depends else free) + step
    return text + "."


_OPENING = re.compile(
    "|".join(re.escape(one) for one in sorted(OPENINGS + DEPENDENT_FOLLOW_UPS + FREE_FOLLOW_UPS, key=len, reverse=True))
)
_LINK = re.compile("|".join(re.escape(one) for one in sorted(DEPENDENT_LINKS + FREE_LINKS, key=len, reverse=True)))
_GIVEN = re.compile(rf"(?:^|, | and )({_LABEL}(?:{_LABEL}| )*?) {_QUOTED}")


def read_steps(question: str) -> list[StepText]:
    """The steps of a request, in order; empty where it is not in this language."""
    masked = re.sub(_QUOTED, lambda found: '"' + "\0" * (len(found.group()) - 2) + '"', question)
    opening = _OPENING.search(masked)
    if opening is None:
        return []
    end = re.search(r"\.(?:\s|$)", masked[opening.end() :])
    stop = len(masked) if end is None else opening.end() + end.start()
    cuts = [(opening.end(), opening.end(), opening.group() in DEPENDENT_FOLLOW_UPS)]
    for link in _LINK.finditer(masked, opening.end(), stop):
        cuts.append((link.start(), link.end(), link.group() in DEPENDENT_LINKS))
    ends = [start for start, _, _ in cuts[1:]] + [stop]
    return [_step(question[begin:until], depends) for (_, begin, depends), until in zip(cuts, ends, strict=True)]


def _step(text: str, dependent: bool) -> StepText:
    where = re.search(rf" with ((?:(?! with )(?:{_LABEL}| ))+ {_QUOTED}.*)$", text)  # the last before the first value
    if where is None:
        return StepText(text.strip(), dependent, {})
    told = {label(name): _unquoted(value) for name, value in _GIVEN.findall(where.group(1))}
    return StepText(text[: where.start()].strip(), dependent, told)


def value_text(parameter: str, value: Any, rng: random.Random) -> str:
    """A turn that gives the value that was asked for."""
    return f"{rng.choice(VALUE_LEADS)}{given(parameter, value)}."


_VALUE_GIVEN = re.compile(rf"(?:{'|'.join(map(re.escape, VALUE_LEADS))})({_LABEL}(?:{_LABEL}| )*?) {_QUOTED}")


def read_value(text: str) -> dict[str, str]:
    """The value that a turn gives, by its parameter's words; empty where it gives none."""
    return {label(name): _unquoted(value) for name, value in _VALUE_GIVEN.findall(text)}


def forward_question(branches: Sequence[Branch], rng: random.Random) -> str:
    """``For airport LHR, find the host city, then its home country. Also for country Spain, find the capital.``"""
    lead = rng.choice(FORWARD_LEADS)
    texts = []
    for branch in branches:
        first, *later = branch.labels
        texts.append(f"or {branch.table} {branch.key}, {lead} the {first}" + "".join(f", then its {x}" for x in later))
    return "F" + texts[0] + "." + "".join(f" Also f{text}." for text in texts[1:])


def nested_question(branches: Sequence[Branch], rng: random.Random) -> str:
    """``What is the home country of the host city of airport LHR and the capital of country Spain?``"""
    lead, end = rng.choice(NESTED_LEADS)
    paths = ["the " + " of the ".join(reversed(one.labels)) + f" of {one.table} {one.key}" for one in branches]
    return lead + " and ".join(paths) + end


CLOSING = {
    "sum": "Add the answers up.",
    "difference": "By how much do the answers differ?",
    "which_max": "Which of them has the larger value?",
    "which_min": "Which of them has the smaller value?",
}
_COMPUTED = {
    "sum": ("What is the sum of {paths}?", "Add up {paths}."),
    "difference": ("By how much do {paths} differ?", "What is the difference between {paths}?"),
    "which_max": ("Which has the larger {label}, {keys}?", "Of {entities}, which has the larger {label}?"),
    "which_min": ("Which has the smaller {label}, {keys}?", "Of {entities}, which has the smaller {label}?"),
}


def computed_question(operation: str, branches: Sequence[Branch], rng: random.Random) -> str:
    """``What is the sum of the land area of country Peru and the land area of country Chad?``"""
    paths = ["the " + " of the ".join(reversed(one.labels)) + f" of {one.table} {one.key}" for one in branches]
    entities = [f"{one.table} {one.key}" for one in branches]
    label = branches[0].labels[-1]
    template = rng.choice(_COMPUTED[operation])
    return template.format(
        paths=" and ".join(paths), keys=" or ".join(entities), entities=" and ".join(entities), label=label
    )


def read_knowledge(question: str, tools: Sequence[Mapping[str, Any]]) -> list[Branch]:
    """The branches of a knowledge question about these tools; empty where it is not one.

    Labels and tables are those of the tools, so that an entity's name may hold any words. A label that no tool has is
    kept as it stands, and so is a table of which there is no tool: the caller sees that it cannot be answered.
    """
    forms = [form for form in map(knowledge_form, tools) if form is not None]
    tables = sorted({form.table for form in forms}, key=len, reverse=True)
    if not tables:
        return []
    entity = "(" + "|".join(map(re.escape, tables)) + ")"
    path = rf", (?:{'|'.join(FORWARD_LEADS)}) the ([^.]+)\."
    forward = re.findall(rf"(?:For|Also for) {entity} ([^,]+?){path}", question)
    of_any_table = re.findall(rf'(?:For|Also for) {_ANY_TABLE} ([^,:"]+?){path}', question)
    if len(of_any_table) > len(forward):
        forward = of_any_table
    if forward:
        return [Branch(table, key, tuple(path.split(", then its "))) for table, key, path in forward]
    for lead, end in NESTED_LEADS:
        begin = question.find(lead + "the ")
        if begin >= 0 and question.rstrip().endswith(end):
            text = question[begin + len(lead) :].rstrip().removesuffix(end)
            return _nested(text, entity) or _nested(text, _ANY_TABLE)
    return []


_ANY_TABLE = r"((?!an? |the )[a-z][a-z_]*)"


def _nested(text: str, entity: str) -> list[Branch]:
    paths = re.split(rf" and the (?=[^\"]* of {entity} )", " and " + text)
    parts = [part for part in paths if part and part not in (" and",)]
    branches = []
    for part in parts:
        found = re.fullmatch(rf"(.+?) of {entity} (.+)", part)
        if found:
            labels = found.group(1).split(" of the ")
            branches.append(Branch(found.group(2), found.group(3), tuple(reversed(labels))))
    return branches


class FollowUp(NamedTuple):
    """A later turn's look-ups, which start from what was found: the kind of entity, and the labels as they are read."""

    table: str
    labels: tuple[str, ...]


def look_up_follow_up(follow_up: FollowUp) -> str:
    """``And what is the currency of the home country of that city?``"""
    return f"And what is the {' of the '.join(reversed(follow_up.labels))} of that {follow_up.table}?"


def read_look_up_follow_up(text: str) -> FollowUp | None:
    """The look-ups that a later turn asks for; None where it asks for none."""
    found = re.fullmatch(r"And what is the (.+) of that ([a-z][a-z_ ]*)\?", text.strip())
    return found and FollowUp(found.group(2), tuple(reversed(found.group(1).split(" of the "))))
