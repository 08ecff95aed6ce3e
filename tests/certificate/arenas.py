"""Arenas for certification: a sound one of two hops to plant faults in, and any number of generated sound ones."""

from __future__ import annotations

import json
import random
from typing import Any

from astra.certificate import Failures, Playable, certify
from astra.records import Answer, Arena, CodeTool, Environment, Probe, Step, ToolSpec
from astra.tables import literal

MASTERS = {"Lyme": "Ann Hale", "Bude": "Bob Ives", "Deal": "Cat Jory", "Fowey": "Dan Kerr"}
TOWNS = {"Ann Hale": "Truro", "Bob Ives": "Penryn", "Eve Lane": "Bodmin", "Flo Moss": "Wadebridge"}


def schema(*names: str, **types: Any) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names} | types
    return {"type": "object", "properties": properties, "required": list(names)}


def look_up(name: str, parameter: str, rows: dict[str, Any], lookup: str | None = None, before: str = "") -> str:
    """A program that reads a table, as a good writer would write it."""
    lines = [
        literal("TABLE", rows), "", "", f"def {name}({parameter}):",
        *([f"    {before}"] if before else []),
        f"    if {parameter} not in TABLE:",
        f'        raise ValueError(f"unknown {parameter}: {{{parameter}}}")',
        f"    {lookup or f'return {{{chr(34)}result{chr(34)}: TABLE[{parameter}]}}'}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def tool(name: str, parameter: str, code: str, serves: tuple[int, ...], about: str, **more: Any) -> CodeTool:
    parameters = more.get("parameters") or schema(parameter)
    return CodeTool(spec=ToolSpec(name=name, description=about, parameters=parameters), code=code, serves=serves)


def master_tool(code: str | None = None, **more: Any) -> CodeTool:
    about = more.pop("about", "Harbour master of a port.")
    code = code or look_up("port_master", "port", MASTERS)
    return tool(more.pop("name", "port_master"), "port", code, more.pop("serves", (1,)), about, **more)


def town_tool(code: str | None = None, **more: Any) -> CodeTool:
    about = more.pop("about", "Home town of a master.")
    code = code or look_up("master_town", "master", TOWNS)
    return tool(more.pop("name", "master_town"), "master", code, more.pop("serves", (2,)), about, **more)


def text(value: Any) -> Answer:
    return Answer(kind="text", value=value)


def step(number: int, question: str, answer: Answer, *depends_on: int, needs_tool: bool = True) -> Step:
    return Step(id=number, question=question, answer=answer, depends_on=depends_on, needs_tool=needs_tool)


STEPS = (
    step(1, "Who is the harbour master of port Lyme?", text("Ann Hale")),
    step(2, "What is the home town of master Ann Hale?", text("Truro"), 1),
)
PROBES = (
    Probe(step=1, tool="port_master", arguments={"port": "Lyme"}, expected=text("Ann Hale")),
    Probe(step=2, tool="master_town", arguments={"master": "Ann Hale"}, expected=text("Truro")),
)


def sound(**changed: Any) -> Environment:
    """The sound arena of two hops, with what is to be changed."""
    parts: dict[str, Any] = {
        "id": "environment-lyme", "decomposition_id": "decomposition-lyme", "domain": "port", "shape": "multi_hop",
        "question": "For port Lyme, find the harbour master, then the home town.", "answer": text("Truro"),
        "steps": STEPS, "tools": (master_tool(), town_tool()), "probes": PROBES, "split": "train",
    }  # fmt: skip
    return Environment.model_validate({**parts, **changed})


def failures(pool: Any, arena: Environment, variant: Any = None) -> dict[str, str]:
    (outcome,) = certify([Playable(arena, variant)], pool)
    return outcome.found if isinstance(outcome, Failures) else {}


def certified(pool: Any, *arenas: Any) -> list[Arena]:
    """Arenas with their certificates; each must get one."""
    played = [one if isinstance(one, Playable) else Playable(one) for one in arenas]
    found = []
    for (arena, variant), outcome in zip(played, certify(played, pool), strict=True):
        assert not isinstance(outcome, Failures), outcome.found
        parts = {name: getattr(arena, name) for name in Environment.model_fields}
        found.append(Arena.model_validate({**parts, "certificate": outcome, "variant": variant}))
    return found


def generated(number: int) -> Environment:
    """A sound arena drawn by its number: one to three hops, one or two branches, answers of every kind."""
    rng = random.Random(f"good:{number}")
    branches = rng.choice((1, 1, 2))
    steps: list[Step] = []
    tools: list[CodeTool] = []
    probes: list[Probe] = []
    ends: list[Step] = []
    said = []
    for branch in range(branches):
        names = iter(_names(rng, 60))
        subject, hops = next(names), rng.randint(1, 3)
        said.append(f"table{branch}0 {subject}")
        for hop in range(hops):
            last = hop == hops - 1
            key = subject if hop == 0 else str(steps[-1].answer.value)
            answer, others = _values(rng, names, last)
            keys = [key, *(next(names) for _ in others)]
            rows = list(zip(keys, [answer.value, *others], strict=True))
            rng.shuffle(rows)
            parameter, name = f"table{branch}{hop}", f"read_{branch}_{hop}"
            number_ = len(steps) + 1
            depends = (number_ - 1,) if hop else ()
            steps.append(step(number_, f"What does {name} say of {key}?", answer, *depends))
            tools.append(
                tool(
                    name,
                    parameter,
                    look_up(name, parameter, dict(rows)),
                    (number_,),
                    f"Sign {branch}{hop} of a {parameter}.",
                )
            )
            probes.append(Probe(step=number_, tool=name, arguments={parameter: key}, expected=answer))
        ends.append(steps[-1])
    answer = ends[0].answer
    if branches > 1:
        answer = Answer(kind="list", value=[one.answer.value for one in ends])
        steps.append(step(len(steps) + 1, "State both.", answer, *(one.id for one in ends), needs_tool=False))
    return Environment(
        id=f"environment-{number}", decomposition_id=f"decomposition-{number}", domain="generated",
        shape="parallel_multi_hop" if branches > 1 else "multi_hop", question=f"Follow the entries of {' and of '.join(said)}.",
        answer=answer, steps=tuple(steps), tools=tuple(tools), probes=tuple(probes), split="train",
    )  # fmt: skip


SYLLABLES = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zé", "ñu", "ør", "北", "ая"]


def _names(rng: random.Random, count: int) -> list[str]:
    found = dict.fromkeys("".join(rng.choices(SYLLABLES, k=4)).title() for _ in range(count * 3))
    return list(found)[:count]


def _values(rng: random.Random, names: Any, last: bool) -> tuple[Answer, list[Any]]:
    """An answer and the values of other rows; what a further hop asks for is a text."""
    kind = rng.choice(("text", "number", "date", "units")) if last else "text"
    if kind == "number":
        values: list[Any] = rng.sample(range(1000, 999_999), 6)
        return Answer(kind="number", value=values[0]), values[1:]
    if kind == "units":
        values = [number / 10 for number in rng.sample(range(10_000, 99_999), 6)]
        return Answer(kind="number", value=values[0], unit="km"), values[1:]
    if kind == "date":
        values = [f"{year}-{month:02}-{day:02}" for year, month, day in
                  {(rng.randint(1900, 2020), rng.randint(1, 12), rng.randint(1, 28)) for _ in range(8)}]  # fmt: skip
        return Answer(kind="date", value=values[0]), values[1:]
    values = [next(names) for _ in range(6)]
    return text(values[0]), values[1:]


def line(arena: Arena) -> str:
    return json.dumps(arena.model_dump(mode="json"), ensure_ascii=False)
