"""Which first-party files a module really uses, by walking its syntax tree; nothing is imported."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def file_of(module: str) -> Path | None:
    """``astra.llm`` -> astra/llm/__init__.py; None for what is not ours."""
    if module.split(".")[0] not in {"astra", "stages"}:
        return None
    path = ROOT / Path(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def direct_imports(file: Path) -> frozenset[str]:
    """Dotted names of the first-party modules that a file imports, packages on the way included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            found |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return frozenset(name for name in found if file_of(name))


@cache
def neighbours(file: Path) -> frozenset[Path]:
    """Files that a module opens beside itself: ``Path(__file__).with_name("runner.py")``."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "with_name":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    path = file.with_name(argument.value)
                    if path.is_file():
                        found.add(path)
    return frozenset(found)


def closure(file: Path) -> set[Path]:
    """The file, all first-party modules that it reaches, and the files that those open beside themselves.

    Package ``__init__`` files without code (only a docstring) are left out: nothing can depend on them.
    """
    seen: set[Path] = set()
    todo = [file]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.suffix != ".py":
            continue
        todo += [path for name in direct_imports(current) if (path := file_of(name))]
        todo += neighbours(current)
    return {path for path in seen if not is_bare(path)}


def is_bare(file: Path) -> bool:
    """True for an ``__init__.py`` that holds nothing but a docstring."""
    if file.name != "__init__.py":
        return False
    return all(isinstance(node, ast.Expr) for node in ast.parse(file.read_text(encoding="utf-8")).body)


def relative(paths: set[Path]) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in paths}
