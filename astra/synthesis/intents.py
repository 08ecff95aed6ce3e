"""Tools of one intent made one, with a model's help: it groups them and writes one function over the data of all.

The model sees documents, questions and functions, never an answer or its row. Data and golden calls are moved by rule,
as the model's mapping of parameters says; every golden call must still give its answer, and follow its data, or the
tools stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import Field

from astra.llm.reply import ReplyInvalid, parse_json, validate
from astra.prompts import render
from astra.records import Answer, CodeTool, Environment, Probe, Record, Step, ToolSpec, canonical
from astra.synthesis import tryout
from astra.synthesis.code import without_table
from astra.synthesis.documents import Document, check_document, words
from astra.synthesis.lost import Lost
from astra.synthesis.merging import Merged, reads
from astra.synthesis.rows import Row, is_other, program
from astra.synthesis.tryout import Case
from astra.synthesis.writing import Order, Wanted, Writer
from astra.tables import cells, table_of

N_EXAMPLES = 4


class Source(Record):
    """Where a new parameter comes from: one of the member's, or what it holds fast."""

    parameter: str | None = None
    value: str | None = Field(default=None, min_length=1)


class GroupReply(Record):
    tools: tuple[str, ...] = Field(min_length=2)
    document: Document
    arguments: dict[str, dict[str, Source]]


class GroupsReply(Record):
    groups: tuple[GroupReply, ...]


class Group(NamedTuple):
    """Tools that are to become one: its document, the data of all, their golden calls as calls of it."""

    members: tuple[CodeTool, ...]
    document: Document
    rows: tuple[Row, ...]
    probes: tuple[Probe, ...]


# ---------------------------------------------------------------- which tools


def candidates(environment: Environment, new: Merged) -> tuple[CodeTool, ...]:
    """The tools that a model is asked about: those that may do the same and that no rule made one.

    Tools of knowledge tables do the same only where they read one relation; others are told apart by a model.
    """
    steps = {step.id: step for step in environment.steps}
    known = [tool for tool in new.tools if tool.serves and _is_plain(tool)]
    if environment.origin != "tables":
        return tuple(known) if len(known) > 1 else ()
    read = [reads(tool, steps) for tool in known]
    return tuple(tool for tool, one in zip(known, read, strict=True) if read.count(one) > 1)


def _is_plain(tool: CodeTool) -> bool:
    """Whether a tool has a table and required parameters only, so that its data can be moved."""
    required, table = tool.spec.parameters.get("required", []), table_of(tool.code)
    is_whole = bool(required) and set(required) == set(tool.spec.parameters.get("properties", {}))
    return table is not None and is_whole and bool(cells(table.rows, len(required)))


def group_prompt(environment: Environment, tools: Sequence[CodeTool]) -> str:
    asked = {step.id: step.question for step in environment.steps}
    shown = [
        {**tool.spec.model_dump(include={"name", "description", "parameters", "returns"}),
         "questions": [asked[step] for step in tool.serves]}
        for tool in tools
    ]  # fmt: skip
    return render("merge/group", input=canonical({"tools": shown}))


def read_groups(text: str, environment: Environment, new: Merged, tools: Sequence[CodeTool]) -> list[Group]:
    """The groups in a reply, with their data. Raises ReplyInvalid, which never tells an answer."""
    by_name = {tool.spec.name: tool for tool in tools}
    found: list[Group] = []
    names = {tool.spec.name for tool in new.tools}  # of members too: a group may not work out
    for one in validate(GroupsReply, parse_json(text)).groups:
        unknown = [name for name in one.tools if name not in by_name]
        if unknown:
            raise ReplyInvalid(f"{unknown[0]}: no such tool, or in two groups; tools are {', '.join(by_name)}")
        members = tuple(by_name.pop(name) for name in dict.fromkeys(one.tools))
        if len(members) < 2:
            raise ReplyInvalid(f"{one.tools[0]} is alone in its group")
        if one.document.name in names - set(one.tools) | {group.document.name for group in found}:
            raise ReplyInvalid(f"the name {one.document.name} is taken by another tool")
        found.append(_group(one, members, environment, new))
    return found


def _group(one: GroupReply, members: tuple[CodeTool, ...], environment: Environment, new: Merged) -> Group:
    check_document(one.document)
    if one.document.options:
        raise ReplyInvalid(f"{one.document.name}: all parameters are required")
    _check_silent(one.document, environment.steps)
    rows: dict[tuple[str, ...], Row] = {}
    probes: list[Probe] = []
    for tool in members:
        sources = one.arguments.get(tool.spec.name, {})
        _check_sources(tool, sources, one.document)
        table = table_of(tool.code)
        assert table is not None
        keys = tool.spec.parameters["required"]
        for old, value in cells(table.rows, len(keys)):
            row = Row(tuple(_filled(sources, one.document, dict(zip(keys, old, strict=True))).values()), value)
            if rows.setdefault(row.keys, row).value != value:
                raise ReplyInvalid(f"{', '.join(one.tools)} have different results for the same arguments")
        for probe in new.probes:
            if probe.tool == tool.spec.name:
                arguments = _filled(sources, one.document, probe.arguments)
                probes.append(probe.model_copy(update={"tool": one.document.name, "arguments": arguments}))
    kinds = {probe.expected.kind for probe in probes}
    if len(kinds) > 1 or not all(one.document.takes(probe.expected.value) for probe in probes):
        raise ReplyInvalid(f"{one.document.name}: the members' results are of kinds {', '.join(sorted(kinds))}")
    return Group(members, one.document, tuple(rows.values()), tuple(probes))


def _check_sources(tool: CodeTool, sources: Mapping[str, Source], document: Document) -> None:
    name, own = tool.spec.name, tool.spec.parameters["required"]
    if sources.keys() != set(document.keys):
        raise ReplyInvalid(f"arguments of {name} are for {sorted(sources)}, parameters are {list(document.keys)}")
    if any((one.parameter is None) == (one.value is None) for one in sources.values()):
        raise ReplyInvalid(f"arguments of {name}: each is either a parameter or a value")
    used = [one.parameter for one in sources.values() if one.parameter is not None]
    if sorted(used) != sorted(own):
        raise ReplyInvalid(f"arguments of {name} use {used}; its parameters, each once, are {list(own)}")


def _filled(sources: Mapping[str, Source], document: Document, old: Mapping[str, Any]) -> dict[str, Any]:
    """A member's arguments as those of the new tool."""
    by_name = {name: sources[name] for name in document.keys}
    return {name: one.value if one.parameter is None else old[one.parameter] for name, one in by_name.items()}


def _check_silent(document: Document, steps: Sequence[Step]) -> None:
    told = words(canonical(document.model_dump()))
    for step in steps:
        value = step.answer.value
        if isinstance(value, str) and len(value) > 2 and words(value) in told:
            raise ReplyInvalid("the document is about one case; it must fit all alike and give no example values")


# ---------------------------------------------------------------- one function for them


def code_prompt(group: Group, answer: Answer, examples: Sequence[Row]) -> str:
    """What the writer sees: the new document, rows that are nobody's answer, the members without their data."""
    data = {"name": "TABLE", "keys": group.document.keys, "kind": answer.kind, "unit": answer.unit,
            "examples": [[*row.keys, row.value] for row in examples]}  # fmt: skip
    functions = [_function(tool) for tool in group.members]
    return render(
        "merge/code", input=canonical({"tool": group.document.model_dump(), "data": data, "functions": functions})
    )


def _function(tool: CodeTool) -> str:
    """A member's program without its data, whatever they are called."""
    table = table_of(tool.code)
    assert table is not None
    lines = tool.code.split("\n")
    del lines[table.first_line - 1 : table.last_line]
    return without_table("\n".join(lines))


def order(about: str, group: Group, environment: Environment) -> Order:
    """The function that is to be written for a group."""
    answers = [step.answer for step in environment.steps]
    golden = {tuple(probe.arguments.values()) for probe in group.probes}
    free = [row for row in group.rows if row.keys not in golden and is_other(row.value, answers)][:N_EXAMPLES]
    answer = group.probes[0].expected
    examples = tryout.examples_or_placeholders(free, group.document.keys, answer)
    cases = [Case(group.rows, probe.arguments, probe.expected) for probe in group.probes]
    return Order(about, "merge", group.document, answer, examples, cases, code_prompt(group, answer, examples))


@dataclass
class Intents:
    """Merges what rules cannot, for all environments together."""

    writer: Writer

    def merge(self, environments: Sequence[Environment], ruled: Sequence[Merged]) -> list[Merged]:
        """What the rules gave, with tools of one intent made one where that works out."""
        wanted = {one.id: wish for one, new in zip(environments, ruled, strict=True) if (wish := _wish(one, new))}
        if not wanted:
            return list(ruled)
        replies = self.writer.asked("merge", wanted.values(), GroupsReply.model_json_schema())
        orders: dict[str, list[tuple[Group, Order]]] = {}
        for one in environments:
            groups = replies.get(one.id, [])
            if not isinstance(groups, Lost):
                orders[one.id] = [
                    (group, order(f"{one.id}: {', '.join(tool.spec.name for tool in group.members)}", group, one))
                    for group in groups
                ]
        self.writer.write([made for some in orders.values() for _, made in some])
        return [
            _with_groups(new, [pair for pair in orders.get(one.id, []) if pair[1].is_done])
            for one, new in zip(environments, ruled, strict=True)
        ]


def _wish(environment: Environment, new: Merged) -> Wanted | None:
    tools = candidates(environment, new)
    if not tools:
        return None
    return Wanted(environment.id, group_prompt(environment, tools), _reader(environment, new, tools))


def _reader(environment: Environment, new: Merged, tools: Sequence[CodeTool]) -> Callable[[str], list[Group]]:
    return lambda text: read_groups(text, environment, new, tools)


def _with_groups(new: Merged, made: Sequence[tuple[Group, Order]]) -> Merged:
    """The tools with every group that worked out as one, where its first member stood."""
    tools, probes = list(new.tools), list(new.probes)
    for group, written in made:
        whole = _whole(group, written)
        tools[tools.index(group.members[0])] = whole
        tools = [tool for tool in tools if tool not in group.members]
        moved = {probe.step: probe for probe in group.probes}
        probes = [moved.get(probe.step, probe) for probe in probes]
    return Merged(tuple(tools), tuple(probes))


def _whole(group: Group, written: Order) -> CodeTool:
    function = written.functions[0]
    assert function is not None
    serves = tuple(sorted(step for tool in group.members for step in tool.serves))
    rows = sorted(group.rows, key=lambda row: row.keys)
    spec = ToolSpec.model_validate(group.document.model_dump())
    return CodeTool(spec=spec, code=program(rows, function), serves=serves)
