"""The folder of knowledge: every file is recognised by what it holds, or is an error that says what may lie there.

Tables are described in YAML files, with CSV files that those name. Text and Markdown files are documents; JSON, JSONL
and CSV rows are documents (``text``) or given questions (``question``). The domain of a row is its own, else the name
of the sub-folder that it lies in, else that of its file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from astra.decomposition.draft import SourceError
from astra.decomposition.layouts import LAYOUTS, Given, Layout, Reading, layout_of
from astra.decomposition.quotes import Document
from astra.knowledge import Knowledge, KnowledgeError, table_files
from astra.llm.reply import clean_value, strict_json

TEXTS = (".txt", ".md", ".markdown")
ROWS = (".jsonl", ".json", ".csv")
TEXT_KEYS = ("text", "contents", "content", "body")
IGNORED = (".dvc",)


class Raw(NamedTuple):
    """All that a folder holds."""

    knowledge: Knowledge
    documents: tuple[Document, ...]
    given: tuple[Given, ...]


def read_folder(folder: Path) -> Raw:
    """What lies in the folder. Raises SourceError naming file, line or key, the value met and the remedy."""
    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder; put tables, texts or questions there")
    try:
        knowledge, taken = Knowledge.load(folder), {path.resolve() for path in table_files(folder)}
    except KnowledgeError as error:
        raise SourceError(str(error)) from None
    documents: list[Document] = []
    given: list[Given] = []
    seen: dict[tuple[str, str], str] = {}
    for path in _files(folder):
        if path.resolve() in taken:
            continue
        for one in _read(path, _domain(path, folder)):
            if isinstance(one, Given):
                _check_new(seen, "questions", one.id, one.where)
                given.append(one)
            else:
                _check_new(seen, "documents", one.id, path.as_posix())
                documents.append(one)
    if not (knowledge.tables or documents or given):
        raise SourceError(f"{folder}: holds no tables, texts or questions")
    return Raw(knowledge, tuple(documents), tuple(given))


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in IGNORED]
    hidden = (".", "_", "README")
    return sorted(path for path in found if not any(part.startswith(hidden) for part in path.relative_to(folder).parts))


def _domain(path: Path, folder: Path) -> str:
    inner = path.relative_to(folder).parts
    return inner[0] if len(inner) > 1 else path.stem


def _check_new(seen: dict[tuple[str, str], str], kind: str, name: str, where: str) -> None:
    if (kind, name) in seen:
        raise SourceError(
            f"{where}: two {kind} have the id {name!r}; the other is in {seen[kind, name]}. Give each an id of its own"
        )
    seen[kind, name] = where


def _read(path: Path, domain: str) -> Iterator[Document | Given]:
    if path.suffix in TEXTS:
        yield _document(path, _text(path), domain)
    elif path.suffix in ROWS:
        yield from _from_rows(path, domain)
    else:
        raise SourceError(
            f"{path}: no source reads {path.suffix or 'files without an ending'}; there may lie: YAML files of tables, "
            f"{', '.join((*TEXTS, *ROWS))}"
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: {error}. Save it as UTF-8") from None


def _document(path: Path, text: str, domain: str) -> Document:
    if not text.strip():
        raise SourceError(f"{path}: the document is empty")
    heading = text.lstrip().splitlines()[0]
    title = heading.lstrip("# ").strip() if heading.startswith("#") else path.stem.replace("_", " ")
    return Document(path.as_posix(), title, text, domain)


def _from_rows(path: Path, domain: str) -> Iterator[Document | Given]:
    """The rows of a file; one of no layout is read in that of the first row, so that what it lacks is named."""
    reads: Layout | None = None
    number = 0
    for number, (where, row) in enumerate(_rows(path), 1):
        own, is_document = layout_of(row), bool(set(TEXT_KEYS) & row.keys())
        if number == 1:
            if own is None and not is_document:
                raise _unknown(where, row, path)
            reads = own
        layout = own or (None if is_document else reads)
        reading = Reading(row, where, domain)
        yield _row_document(reading) if layout is None else layout.read(reading)
    if not number:
        raise SourceError(f"{path}: holds no rows")


def _unknown(where: str, row: dict[str, Any], path: Path) -> SourceError:
    layouts = "; ".join(f"{name} ({', '.join(sorted(one.has))})" for name, one in LAYOUTS.items())
    table = ". A table needs an entry in knowledge.yaml" if path.suffix == ".csv" else ""
    return SourceError(
        f"{where}: neither a document ({', '.join(TEXT_KEYS)}) nor a question; its keys are: "
        f"{', '.join(map(str, row))}. Layouts of questions: {layouts}{table}"
    )


def _row_document(reading: Reading) -> Document:
    name = reading.first("id", "_id", "doc_id")
    domain = reading.row.get("domain")
    return Document(
        id=str(reading.row[name]) if name else reading.where,
        title=str(reading.row.get("title") or ""),
        text=reading.text(*TEXT_KEYS),
        domain=domain if isinstance(domain, str) and domain else reading.domain,
    )


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows with their places. Raises SourceError."""
    if path.suffix == ".csv":
        yield from _csv_rows(path)
        return
    if path.suffix == ".json":
        whole = _json(_text(path), str(path))
        items = whole.get("data") if isinstance(whole, dict) and isinstance(whole.get("data"), list) else whole
        named = [(f"{path}:[{place}]", one) for place, one in enumerate(items if isinstance(items, list) else [items])]
    else:
        lines = _text(path).split("\n")
        named = [(f"{path}:{number}", _json(line, f"{path}:{number}")) for number, line in enumerate(lines, 1)
                 if line.strip()]  # fmt: skip
    for where, row in named:
        if not isinstance(row, dict):
            raise SourceError(f"{where}: an object is needed here (got {str(row)[:80]!r})")
        yield where, row


def _json(text: str, where: str) -> Any:
    try:
        return clean_value(strict_json(text))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{where}: not JSON: {error} (got {text[:80]!r})") from None


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    # Only line ends separate rows: str.splitlines would cut at a form feed or U+2028 inside a cell, too.
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    try:
        names = list(reader.fieldnames or ())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SourceError(f"{path}:1: more than one column called {', '.join(twice)}. Name each column differently")
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise SourceError(f"{where}: a row has another number of cells than the header: {row}")
            yield where, row
    except csv.Error as error:
        raise SourceError(
            f"{path}: after line {reader.line_num}: {error}. Save it as a UTF-8 CSV, or as JSONL where cells are long"
        ) from None
