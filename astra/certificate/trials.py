"""What is tried of each tool of an arena, in the sandbox, before the arena is certified."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from astra.answers import folded
from astra.environments.arena import refusal
from astra.records import CodeTool, Environment, Probe, canonical
from astra.sandbox import Job, Pool, Result
from astra.tables import Table, cells, table_of, with_cell, with_rows

NOWHERE = "no such entry"  # an argument that no table has
FAR = 987_654_321  # a number that no table has
UNKNOWN = "no_such_parameter"
Arguments = dict[str, Any]
Keys = tuple[str, ...]


class Bad(NamedTuple):
    """Arguments that must be refused, and the parameter that the error must name."""

    arguments: Arguments
    parameter: str
    value: str | None = None  # out of the table: naming it is as good
    refused: str | None = None  # by the tool's schema, so the code is not asked


class Swap(NamedTuple):
    """A golden call, and the other row whose value its row gets: then it must give what that row gave."""

    golden: Arguments
    other: Arguments


class Trial(NamedTuple):
    """All that is tried of one tool, in this order, then of the same tool with other rows (``swapped``)."""

    tool: CodeTool
    golden: tuple[Probe, ...]
    others: tuple[Arguments, ...]
    settings: tuple[tuple[str, Arguments], ...]  # the optional parameter that is set, and the arguments
    bad: tuple[Bad, ...]
    swaps: tuple[Swap, ...]
    swapped: str | None

    @property
    def calls(self) -> tuple[Arguments, ...]:
        asked = (one.arguments for one in self.bad if one.refused is None)
        return (*(one.arguments for one in self.golden), *self.others, *(one for _, one in self.settings), *asked)

    def job(self, backwards: bool) -> Job:
        calls = tuple(reversed(self.calls)) if backwards else self.calls
        return Job(self.tool.code, self.tool.spec.name, calls)

    def swapped_job(self) -> Job | None:
        if self.swapped is None:
            return None
        return Job(self.swapped, self.tool.spec.name, tuple(one.golden for one in self.swaps))


def trial(tool: CodeTool, probes: Sequence[Probe]) -> Trial:
    """What to try of a tool: its golden calls, every other row, other settings, what it must refuse, other data."""
    golden = tuple(probe for probe in probes if probe.tool == tool.spec.name)
    known = [probe.arguments for probe in golden]
    table = table_of(tool.code)
    rows = _rows(tool, table)
    others = _unique({**given, **one} for given in known[:1] for one in rows if {**given, **one} not in known)
    swaps = _swaps(tool, known, rows) if table is not None else ()
    return Trial(
        tool,
        golden,
        others,
        tuple(_settings(tool, known[0])) if known else (),
        tuple(_bad(tool, known[0])) if known else (),
        swaps,
        _swapped(tool, table, swaps) if table is not None and swaps else None,
    )


def required(tool: CodeTool) -> list[str]:
    """The parameters whose values are the keys of the tool's table, from the outermost on."""
    return [str(one) for one in tool.spec.parameters.get("required", [])]


def _rows(tool: CodeTool, table: Table | None) -> list[Arguments]:
    """The arguments of every entry of the table."""
    names = required(tool)
    if table is None or not names:
        return []
    return [dict(zip(names, keys, strict=True)) for keys, _ in cells(table.rows, len(names))]


def _settings(tool: CodeTool, given: Arguments) -> Iterator[tuple[str, Arguments]]:
    """Every value of every optional parameter that lists its values."""
    for name, schema in tool.spec.parameters.get("properties", {}).items():
        if name in required(tool) or not isinstance(schema, dict):
            continue
        values = _listed(schema)
        yield from ((name, {**given, name: value}) for value in values if {**given, name: value} != given)


def _listed(schema: Mapping[str, Any]) -> list[Any]:
    return [True, False] if schema.get("type") == "boolean" else list(schema.get("enum", []))


def unlisted_options(tool: CodeTool) -> list[str]:
    """The optional parameters whose values cannot all be tried."""
    properties = tool.spec.parameters.get("properties", {})
    return [
        name
        for name, schema in properties.items()
        if name not in required(tool) and not (isinstance(schema, dict) and _listed(schema))
    ]


def _bad(tool: CodeTool, given: Arguments) -> Iterator[Bad]:
    """Arguments that are out of the table, missing, of another type, or not the tool's."""
    for name, value in given.items():
        if isinstance(value, str) and name in required(tool):
            yield Bad({**given, name: NOWHERE}, name, NOWHERE)
        elif isinstance(value, int | float) and not isinstance(value, bool) and name in required(tool):
            far = Bad({**given, name: FAR}, name, str(FAR))
            yield far._replace(refused=refusal(tool, far.arguments))
        wrong: list[Bad] = [Bad({other: one for other, one in given.items() if other != name}, name)]
        types: tuple[Any, ...] = (5, {}) if isinstance(value, str) else (NOWHERE, {})
        wrong += [Bad({**given, name: one}, name) for one in types]
        yield from (one._replace(refused=refusal(tool, one.arguments)) for one in wrong)
    unknown = Bad({**given, UNKNOWN: 1}, UNKNOWN)
    yield unknown._replace(refused=refusal(tool, unknown.arguments))


def _swaps(tool: CodeTool, known: Sequence[Arguments], rows: Sequence[Arguments]) -> tuple[Swap, ...]:
    """For every golden call another row, as far as there are some, in turn."""
    names = required(tool)
    goldens = {_key(one, names): one for one in known}  # two steps may ask the same
    free = [one for one in rows if _key(one, names) not in goldens]
    if not free:
        return ()
    return tuple(Swap(golden, {**golden, **other}) for golden, other in zip(goldens.values(), itertools.cycle(free)))


def _swapped(tool: CodeTool, table: Table, swaps: Sequence[Swap]) -> str | None:
    """The tool over a table in which the golden rows have other rows' values; None where a golden row is not there."""
    names = required(tool)
    there = {_folded(keys): (keys, value) for keys, value in cells(table.rows, len(names))}
    rows: Mapping[str, Any] = table.rows
    for golden, other in swaps:
        row, source = there.get(_key(golden, names)), there.get(_key(other, names))
        if row is None or source is None:
            return None
        rows = with_cell(rows, row[0], source[1])
    return with_rows(tool.code, table, rows)


def _key(arguments: Arguments, names: Sequence[str]) -> Keys:
    return _folded([arguments.get(name) for name in names])


def _folded(keys: Sequence[Any]) -> Keys:
    return tuple(folded(str(one)) for one in keys)


def _unique(found: Iterator[Arguments] | Any) -> tuple[Arguments, ...]:
    return tuple({canonical(one): one for one in found}.values())


class Tried(NamedTuple):
    """A trial with its results, both in the order of its calls, and those of the swapped tool."""

    trial: Trial
    first: list[Result]
    second: list[Result]
    swapped: list[Result]

    @property
    def golden(self) -> list[tuple[Probe, Result]]:
        return list(zip(self.trial.golden, self.first, strict=False))

    @property
    def others(self) -> list[Result]:
        start = len(self.trial.golden)
        return self.first[start : start + len(self.trial.others)]

    @property
    def settings(self) -> list[tuple[str, Result]]:
        start = len(self.trial.golden) + len(self.trial.others)
        names = [name for name, _ in self.trial.settings]
        return list(zip(names, self.first[start:], strict=False))

    @property
    def bad(self) -> list[tuple[Bad, Result]]:
        """What must be refused and what it gave; what the schema refuses is the error that the caller is told."""
        asked = iter(self.first[len(self.first) - sum(one.refused is None for one in self.trial.bad) :])
        return [
            (one, next(asked) if one.refused is None else Result("tool_error", error=one.refused))
            for one in self.trial.bad
        ]

    def result(self, arguments: Arguments) -> Result | None:
        """What the first run gave for a call; None where it was not made."""
        calls = self.trial.calls
        return self.first[calls.index(arguments)] if arguments in calls else None


def tried(environments: Sequence[Environment], pool: Pool) -> list[list[Tried]]:
    """All tools of all environments, tried: one list an environment. Raises SandboxUnavailable."""
    trials = [[trial(tool, one.probes) for tool in one.tools] for one in environments]
    flat = [one for many in trials for one in many]
    # The same tool with the same calls stands in many arenas; it is run once.
    runs = {_content(one): one for one in flat}
    first, second = pool.both([one.job(False) for one in runs.values()], [one.job(True) for one in runs.values()])
    swapping = {key: job for key, one in runs.items() if (job := one.swapped_job()) is not None}
    swapped = dict(zip(swapping, pool.map(list(swapping.values())), strict=True))
    results = {
        key: (ahead, back[::-1], swapped.get(key, [])) for key, ahead, back in zip(runs, first, second, strict=True)
    }
    return [[Tried(one, *results[_content(one)]) for one in many] for many in trials]


def _content(one: Trial) -> str:
    return canonical([one.tool.code, one.tool.spec.name, one.calls, [swap.golden for swap in one.swaps], one.swapped])
