"""Print one record as a person reads it.

``python -m astra.show trajectory`` prints the first trajectory, ``... trajectory 12`` the thirteenth, and
``python -m astra.show arena-3f9a0c1be2d4`` whatever record has that id. A trajectory comes turn by turn with its
scores; an arena with its question, steps, tools' code, golden calls and certificate.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import indent

from astra.records import Arena, Message, Record, Scorecard, Task, Trajectory
from astra.stage import StageError, read_records

FILES: dict[str, tuple[str, type[Record]]] = {
    "task": ("data/tasks/tasks.jsonl", Task),
    "trajectory": ("data/trajectories/trajectories.jsonl", Trajectory),
    "arena": ("data/merge/arenas.jsonl", Arena),
}


def show(record: Record, scorecards: Iterable[Scorecard] = ()) -> str:
    """The readable text of a record; scorecards are searched for a trajectory's own."""
    if isinstance(record, Trajectory):
        card = next((one for one in scorecards if one.trajectory_id == record.id), None)
        return "\n".join([*_trajectory(record), *(_scorecard(card) if card else [])])
    if isinstance(record, Arena):
        return "\n".join(_arena(record))
    return json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False)


def _trajectory(one: Trajectory) -> Iterator[str]:
    yield f"{one.id}  (task {one.task_id}, attempt {one.attempt}, {one.model}, ended: {one.stop})"
    yield f"tools: {', '.join(tool.name for tool in one.tools)}"
    yield ""
    for message in one.messages:
        yield from _message(message)


def _message(message: Message) -> Iterator[str]:
    if message.role == "tool":
        flag = f", {message.fault} injected" if message.fault else ", error" if message.is_error else ""
        yield f"  <- {message.content}   [{message.executed_by}{flag}]"
        return
    if message.reasoning:
        yield f"{message.role} (thinks): {message.reasoning}"
    if message.content:
        yield f"{message.role}: {message.content}"
    for call in message.tool_calls:
        yield f"  -> {call.function.name} {call.function.arguments}"


def _scorecard(card: Scorecard) -> Iterator[str]:
    yield ""
    yield f"overall {card.overall:.3f}"
    for name, verdict in card.dimensions.items():
        yield f"  {name:4} {verdict.score if verdict.score is not None else 'none'}  {verdict.reason}"


def _arena(one: Arena) -> Iterator[str]:
    yield f"{one.id}  ({one.shape}, split {one.split}, domain {one.domain}, from {one.decomposition_id})"
    yield f"question: {one.question}"
    yield f"answer:   {json.dumps(one.answer.value, ensure_ascii=False)} ({one.answer.kind})"
    yield ""
    for step in one.steps:
        after = f" after {', '.join(map(str, step.depends_on))}" if step.depends_on else ""
        how = "tool" if step.needs_tool else "language only"
        yield f"step {step.id}{after} ({how}): {step.question} = {json.dumps(step.answer.value, ensure_ascii=False)}"
    for probe in one.probes:
        expected = json.dumps(probe.expected.value, ensure_ascii=False)
        arguments = json.dumps(probe.arguments, ensure_ascii=False)
        yield f"golden call for step {probe.step}: {probe.tool}({arguments}) = {expected}"
    for tool in one.tools:
        yield ""
        yield f"tool {tool.spec.name}, serves steps {list(tool.serves)}: {tool.spec.description}"
        yield indent(tool.code.rstrip(), "    ")
    yield ""
    passed = ", ".join(name for name, ok in one.certificate.checks.items() if ok)
    yield f"certificate ({one.certificate.backend}, artifact {one.certificate.artifact[:12]}): {passed}"


def find(what: str, index: int = 0) -> Record:
    """The record with that id, or the record at that index of a kind's file. Raises StageError where there is none."""
    if what in FILES:
        path, kind = FILES[what]
        for number, record in enumerate(read_records(path, kind)):
            if number == index:
                return record
        raise StageError(f"{path} has no record {index}")
    for path, kind in FILES.values():
        if Path(path).is_file():
            for record in read_records(path, kind):
                if getattr(record, "id", None) == what:
                    return record
    raise StageError(f"no record {what!r}. Give a kind ({', '.join(FILES)}) or an id found in: {_places()}")


def _places() -> str:
    return ", ".join(path for path, _ in FILES.values())


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2 or (len(arguments) == 2 and not arguments[1].isdigit()):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        record = find(arguments[0], int(arguments[1]) if len(arguments) == 2 else 0)
    except StageError as error:
        print(f"show: {error}", file=sys.stderr)
        return 2
    cards = Path("data/score/scorecards.jsonl")
    print(show(record, read_records(cards, Scorecard) if cards.is_file() else ()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
