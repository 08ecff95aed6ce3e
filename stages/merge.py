"""data/envsynth/environments.jsonl -> data/merge/arenas.jsonl: like tools made one, then certified (section 3.3.2).

Tools of one question that read the same relation become one tool over all their rows, where their functions are the
same but for the name and the data; else they stay apart under names of their own. Then the arena as a whole, as it will
be played, is accepted only if in the sandbox

- every golden call returns the expected answer under a typed comparison (``golden``);
- every call gives the same twice, byte for byte: fresh processes of two servers, with different hash and random
  seeds and clocks, in opposite order, so that state between calls shows too (``repeatable``);
- other valid arguments, the other rows, never return the golden answer (``other_arguments``): a tool that ignores its
  arguments fails, and so does one that tells another step's answer (``no_leak``);
- arguments that no row has, and missing ones, give an error that names them (``bad_arguments``);
- tool names are unique (``unique_names``), and no answer stands in the question (``question_silent``).

Departures: the paper extends the data of one implementation by a model; here it is done by rule. It keeps what still
passes; here the final bytes are tested, and a certificate with their hash goes with the arena.

    python -m stages.merge
    python -m stages.merge --verify data/merge/arenas.jsonl     # recompute all certificates from the file alone
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from astra.answers import folded, matches, result_value
from astra.records import Arena, Certificate, CodeTool, Environment, Probe, Section, Step, ToolSpec, canonical
from astra.sandbox import Job, Pool, Result, open_pool
from astra.stage import Contract, Run, StageError, read_records


class Params(Section):
    backend: str = Field(description="Sandbox: auto, or a key of BACKENDS.")
    workers: int = Field(ge=2, le=64, description="Sandbox workers; as many as cores.")


CONTRACT = Contract(
    name="merge",
    reads={"environments": "data/envsynth/environments.jsonl"},
    writes={"arenas": "data/merge/arenas.jsonl"},
    params={"merge": Params},
)

NOWHERE = "no such entry"  # an argument that no table has


# ---------------------------------------------------------------- programs with tables


class Table(NamedTuple):
    """A dictionary literal at the top level of a program: its name, its rows, and its lines (from, until)."""

    name: str
    rows: dict[str, Any]
    first_line: int
    last_line: int


def table_of(code: str) -> Table | None:
    """The program's only top-level dictionary of plain text keys; None where there is none, or several."""
    found = []
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                rows = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(rows, dict) and rows and all(isinstance(key, str) for key in rows):
                found.append(Table(node.targets[0].id, rows, node.lineno, node.end_lineno or node.lineno))
    return found[0] if len(found) == 1 else None


def skeleton(code: str, table: Table, function: str) -> str:
    """The program without its rows, its function's name and its comments: equal for functions that do the same."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.name = "_"
        if isinstance(node, ast.Assign) and node.lineno == table.first_line:
            node.value = ast.Constant(None)
    return ast.unparse(tree)


def with_rows(code: str, table: Table, rows: Mapping[str, Any]) -> str:
    """The program with other rows in its table."""
    lines = code.split("\n")
    literal = [f"    {_literal(key)}: {_literal(value)}," for key, value in rows.items()]
    lines[table.first_line - 1 : table.last_line] = [f"{table.name} = {{", *literal, "}"]
    return "\n".join(lines)


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


# ---------------------------------------------------------------- merging


def merged(tools: Sequence[CodeTool]) -> CodeTool | None:
    """One tool for several that read the same relation; None where they differ in more than their rows.

    It is called like the first. The same key with another value in two tables keeps them apart.
    """
    first = tools[0]
    rows: dict[str, Any] = {}
    skeletons = set()
    for tool in tools:
        table = table_of(tool.code)
        if table is None or _signature(tool.spec) != _signature(first.spec):
            return None
        skeletons.add((table.name, skeleton(tool.code, table, tool.spec.name)))
        for key, value in table.rows.items():
            if rows.setdefault(key, value) != value:
                return None
    table = table_of(first.code)
    if table is None or len(skeletons) > 1:
        return None
    serves = tuple(sorted(step for tool in tools for step in tool.serves))
    code = with_rows(first.code, table, dict(sorted(rows.items())))
    return CodeTool(spec=first.spec, code=code, serves=serves)


def _signature(spec: ToolSpec) -> str:
    return canonical([spec.description, spec.parameters, spec.returns])


class Merged(NamedTuple):
    tools: tuple[CodeTool, ...]
    probes: tuple[Probe, ...]


def merge(environment: Environment) -> Merged:
    """The environment's tools with like ones merged, and the probes that call them."""
    relation_of = {step.id: step.relation for step in environment.steps}
    groups: dict[str, list[CodeTool]] = {}
    for tool in environment.tools:
        relation = relation_of[tool.serves[0]] or tool.spec.name
        groups.setdefault(relation, []).append(tool)
    tools: list[CodeTool] = []
    renamed: dict[str, str] = {}
    for group in groups.values():
        whole = merged(group) if len(group) > 1 else None
        tools += [whole] if whole is not None else group
        if whole is not None:
            renamed |= {tool.spec.name: whole.spec.name for tool in group}
    probes = tuple(
        probe.model_copy(update={"tool": renamed.get(probe.tool, probe.tool)}) for probe in environment.probes
    )
    return Merged(tuple(tools), probes)


# ---------------------------------------------------------------- certification


class Trial(NamedTuple):
    """All that is tried of one tool: golden calls first, then other rows, then arguments that it must refuse."""

    tool: CodeTool
    golden: tuple[Probe, ...]
    others: tuple[dict[str, Any], ...]
    bad: tuple[dict[str, Any], ...]

    @property
    def calls(self) -> tuple[dict[str, Any], ...]:
        return (*(probe.arguments for probe in self.golden), *self.others, *self.bad)

    def job(self, backwards: bool) -> Job:
        calls = tuple(reversed(self.calls)) if backwards else self.calls
        return Job(self.tool.code, self.tool.spec.name, calls)


def trial(tool: CodeTool, probes: Sequence[Probe]) -> Trial:
    """What to try of a tool: its probes, each probe's first text argument replaced by every other row, and bad ones."""
    golden = tuple(probe for probe in probes if probe.tool == tool.spec.name)
    table = table_of(tool.code)
    known = [probe.arguments for probe in golden]
    others: list[dict[str, Any]] = []
    bad: list[dict[str, Any]] = []
    for arguments in known:
        for name, value in arguments.items():
            if isinstance(value, str):
                rows = table.rows if table is not None else {}
                changed = [{**arguments, name: key} for key in rows]
                others += [one for one in changed if one not in known and one not in others]
                bad.append({**arguments, name: NOWHERE})
            bad.append({other: one for other, one in arguments.items() if other != name})
    return Trial(tool, golden, tuple(others), tuple(one for n, one in enumerate(bad) if one not in bad[:n]))


class Tried(NamedTuple):
    """A trial with its results, both in the order of its calls."""

    trial: Trial
    first: list[Result]
    second: list[Result]

    @property
    def golden(self) -> list[tuple[Probe, Result]]:
        return list(zip(self.trial.golden, self.first, strict=False))

    @property
    def others(self) -> list[Result]:
        start = len(self.trial.golden)
        return self.first[start : start + len(self.trial.others)]

    @property
    def bad(self) -> list[tuple[dict[str, Any], Result]]:
        return list(zip(self.trial.bad, self.first[len(self.trial.golden) + len(self.trial.others) :], strict=True))


def artifact(tools: Sequence[CodeTool], probes: Sequence[Probe]) -> str:
    """The hash of what a certificate is about."""
    content = {"tools": [one.model_dump() for one in tools], "probes": [one.model_dump() for one in probes]}
    return hashlib.sha256(canonical(content).encode()).hexdigest()


class Failures(NamedTuple):
    """The checks that failed, each with what was seen; a certificate is refused."""

    found: dict[str, str]


class Playable(NamedTuple):
    """An arena before it is certified."""

    question: str
    steps: tuple[Step, ...]
    tools: tuple[CodeTool, ...]
    probes: tuple[Probe, ...]


def playable(environment: Environment) -> Playable:
    """What is certified of an environment or an arena, as it stands in its file."""
    return Playable(environment.question, environment.steps, environment.tools, environment.probes)


def certify(arenas: Sequence[Playable], pool: Pool) -> list[Certificate | Failures]:
    """A certificate for each arena, or what failed; from the arenas alone. Raises SandboxUnavailable."""
    trials = [[trial(tool, arena.probes) for tool in arena.tools] for arena in arenas]
    flat = [one for many in trials for one in many]
    first, second = pool.both([one.job(False) for one in flat], [one.job(True) for one in flat])
    results = iter(zip(first, second, strict=True))
    outcomes: list[Certificate | Failures] = []
    for arena, many in zip(arenas, trials, strict=True):
        tried = [Tried(one, ahead, back[::-1]) for one, (ahead, back) in zip(many, results, strict=False)]
        found = {name: why for name, check in CHECKS.items() if (why := check(arena, tried)) is not None}
        outcomes.append(
            Failures(found)
            if found
            else Certificate(
                artifact=artifact(arena.tools, arena.probes),
                checks=dict.fromkeys(CHECKS, True),
                backend=pool.backend,
            )
        )
    return outcomes


def unique_names(arena: Playable, tried: Sequence[Tried]) -> str | None:
    names = [tool.spec.name for tool in arena.tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"more than one tool called {', '.join(twice)}" if twice else None


def golden(arena: Playable, tried: Sequence[Tried]) -> str | None:
    needed = {step.id for step in arena.steps if step.needs_tool}
    probed = {probe.step for one in tried for probe in one.trial.golden}
    if needed != probed:
        return f"steps {sorted(needed)} need tools, golden calls reach {sorted(probed)}"
    expected = {step.id: step.answer for step in arena.steps}
    for one in tried:
        for probe, result in one.golden:
            right = probe.expected == expected[probe.step] and matches(probe.expected, result_value(result.value))
            if not (result.ok and right):
                return f"step {probe.step}: {probe.tool} gives {_told(result)}, expected {probe.expected.value!r}"
    return None


def repeatable(arena: Playable, tried: Sequence[Tried]) -> str | None:
    for one in tried:
        for arguments, first, second in zip(one.trial.calls, one.first, one.second, strict=True):
            if _bytes(first) != _bytes(second):
                return f"{one.trial.tool.spec.name} with {arguments}: {_told(first)}, then {_told(second)}"
    return None


def other_arguments(arena: Playable, tried: Sequence[Tried]) -> str | None:
    for one in tried:
        name = one.trial.tool.spec.name
        if not one.trial.golden:
            return f"{name} is called by no golden call"
        answering = [result for result in one.others if result.ok]
        if not answering:
            return f"{name} has no other row to try"
        for probe in one.trial.golden:
            if any(matches(probe.expected, result_value(result.value)) for result in answering):
                return f"{name} gives {probe.expected.value!r} for other arguments too"
    return None


def bad_arguments(arena: Playable, tried: Sequence[Tried]) -> str | None:
    for one in tried:
        for arguments, result in one.bad:
            named = [NOWHERE, *(name for probe in one.trial.golden for name in probe.arguments)]
            if result.status != "tool_error" or not any(name in result.error for name in named):
                return f"{one.trial.tool.spec.name} with {arguments}: {_told(result)}"
    return None


def no_leak(arena: Playable, tried: Sequence[Tried]) -> str | None:
    for one in tried:
        for step in arena.steps:
            if step.needs_tool and step.id not in one.trial.tool.serves:
                for result in (*one.others, *(result for _, result in one.golden)):
                    if result.ok and matches(step.answer, result_value(result.value)):
                        return f"{one.trial.tool.spec.name} tells the answer of step {step.id}"
    printed = [one.trial.tool.spec.name for one in tried if any(result.printed for result in one.first)]
    return f"{', '.join(printed)} prints" if printed else None


def question_silent(arena: Playable, tried: Sequence[Tried]) -> str | None:
    words = f" {_words(arena.question)} "
    for step in arena.steps:
        if step.needs_tool and f" {_words(str(step.answer.value))} " in words:
            return f"the question tells the answer of step {step.id}"
    return None


def _words(text: str) -> str:
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded(text)).split())


def _bytes(result: Result) -> str:
    return canonical([result.status, result.value, result.error_type, result.error, result.notes, result.printed])


def _told(result: Result) -> str:
    return f"{result.value!r}"[:100] if result.ok else f"{result.status} {result.error!r}"[:100]


Check = Callable[[Playable, Sequence[Tried]], str | None]
CHECKS: dict[str, Check] = {
    "unique_names": unique_names,
    "golden": golden,
    "repeatable": repeatable,
    "other_arguments": other_arguments,
    "bad_arguments": bad_arguments,
    "no_leak": no_leak,
    "question_silent": question_silent,
}


# ---------------------------------------------------------------- the stage


def verify(path: Path, backend: str, workers: int) -> list[str]:
    """What is wrong with the certificates of a written file, arena by arena; empty where all can be repeated."""
    arenas = list(read_records(path, Arena))
    with open_pool(backend, workers) as pool:
        outcomes = certify([playable(one) for one in arenas], pool)
    wrong = []
    for arena, outcome in zip(arenas, outcomes, strict=True):
        if isinstance(outcome, Failures):
            wrong.append(f"{arena.id}: {outcome.found}")
        elif (outcome.artifact, outcome.checks) != (arena.certificate.artifact, arena.certificate.checks):
            wrong.append(f"{arena.id}: the certificate is of other bytes")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="stages.merge")
    parser.add_argument("--verify", type=Path, metavar="ARENAS", help="recompute the certificates of a written file")
    options = parser.parse_args()
    if options.verify is not None:
        _verify(options.verify)
        return
    with Run(CONTRACT) as run:
        params: Params = run.params["merge"]
        environments = run.read("environments", Environment)
        merges = [merge(one) for one in environments]
        with open_pool(params.backend, params.workers) as pool:
            outcomes = certify(
                [Playable(one.question, one.steps, *new) for one, new in zip(environments, merges, strict=True)], pool
            )
        arenas = []
        for one, new, outcome in zip(environments, merges, outcomes, strict=True):
            if isinstance(outcome, Failures):
                reason, detail = next(iter(outcome.found.items()))
                run.reject(one.id, reason, detail[:500])
                continue
            parts = {**dict(one), "tools": new.tools, "probes": new.probes, "certificate": outcome}
            arenas.append(Arena.model_validate(parts))
        run.n_in, run.n_out = len(environments), run.write("arenas", arenas)
        run.metrics |= {
            "backend": pool.backend,
            "tools_before": sum(len(one.tools) for one in environments),
            "tools_after": sum(len(new.tools) for new in merges),
            "arenas_with_merged_tools": sum(
                len(new.tools) < len(one.tools) for one, new in zip(environments, merges, strict=True)
            ),
            "calls_made": 2 * sum(len(trial(tool, new.probes).calls) for new in merges for tool in new.tools),
            "splits": {split: sum(one.split == split for one in arenas) for split in sorted({a.split for a in arenas})},
        }


def _verify(path: Path) -> None:
    try:
        wrong = verify(path, "auto", 2)
    except StageError as error:
        raise SystemExit(str(error)) from None
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    print(f"merge: {path}: {len(wrong)} certificates wrong", file=sys.stderr)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
