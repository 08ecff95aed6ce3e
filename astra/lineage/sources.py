"""The ends of a lineage: the document that a server stands in, and the row or the words that an answer comes from."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from astra.lineage.files import Files, quoted
from astra.lineage.nodes import Gate, Node
from astra.records import Decomposition, Quote, Server, Step
from astra.yaml_files import YamlInvalid, read_yaml

KNOWLEDGE = Path("data/raw/knowledge")


@dataclass
class Sources:
    """What lies in data/raw."""

    files: Files

    def document(self, server: Server) -> Node:
        """The tool document or live server that a server was read from, and whether it is still the same."""
        source = server.source
        path, _, key = source.uri.partition("#")
        says = f"{source.format}, licence {source.licence}" + (f", entry {key}" if key else "")
        if source.format == "mcp_live":
            gate = Gate("revision", "noted", f"a live server said that it is {source.revision}")
            return Node("live server", source.uri, path, says, gates=(gate,), missing=not self._is_there(path))
        now = self.files.digest(path)
        is_same = now is not None and source.revision == f"sha256:{now}"
        what = (
            "the file is still the one that was read" if is_same else "another file lies there now" if now else "gone"
        )
        gate = Gate("revision", "passed" if is_same else "failed", f"{source.revision}: {what}")
        return Node("document", source.uri, path, says, gates=(gate,), missing=now is None)

    def _is_there(self, path: str) -> bool:
        return (self.files.root / path).is_file()

    def of_step(self, one: Decomposition, step: Step) -> Node:
        """What the answer of a sub-question rests on."""
        value = json.dumps(step.answer.value, ensure_ascii=False)
        if step.operation is not None:
            after = ", ".join(map(str, step.depends_on))
            return Node("computed", f"{one.id} step {step.id}", "", f"{step.operation} of steps {after} = {value}")
        if one.origin == "tables":
            if step.relation is None or step.subject is None:
                after = ", ".join(map(str, step.depends_on))
                return Node("computed", f"{one.id} step {step.id}", "", f"from steps {after} = {value}")
            return self.fact(step.relation, step.subject, f"{step.question} = {value}")
        quotes = tuple(self._quote(quote) for quote in step.evidence)
        return Node("sub-answer", f"{one.id} step {step.id}", "", f"{step.question} = {value}", parents=quotes)

    def fact(self, relation: str, subject: str, says: str) -> Node:
        """The row of a table that holds a fact."""
        described = self._relations.get(relation)
        if described is None:
            return Node(
                "fact", f"{relation}:{subject}", str(KNOWLEDGE), f"{says}; no table has {relation}", missing=True
            )
        file, name, table = described
        column = table["relations"][relation]["column"]
        source, key = table["source"], table["key"]
        if source != "csv":
            place = f"{_release(source)}, {key} {subject}, column {column}"
            return Node("fact", f"{relation}:{subject}", f"{file}: tables.{name}", f"{says}; {place}")
        path, line = self._csv_line(file, table["options"]["file"], key, subject)
        where = f"{path}:{line}" if line else str(path)
        return Node("fact", f"{relation}:{subject}", where, f"{says}; column {column}", missing=line is None)

    @cached_property
    def _relations(self) -> dict[str, tuple[str, str, Mapping[str, Any]]]:
        """File, table and description by relation."""
        found = {}
        for file in sorted((self.files.root / KNOWLEDGE).glob("*.y*ml")):
            try:
                tables = read_yaml(file)["tables"]
            except (YamlInvalid, KeyError, TypeError):
                continue  # decompose says what is wrong with it
            for name, table in tables.items():
                for relation in table["relations"]:
                    found[relation] = (file.relative_to(self.files.root).as_posix(), name, table)
        return found

    def relation_of(self, name: str) -> bool:
        """Whether a table has such a relation."""
        return name in self._relations

    def _csv_line(self, description: str, named: str, key: str, subject: str) -> tuple[str, int | None]:
        """Where the row of a CSV file stands, by its line."""
        beside = Path(description).parent / named
        path = beside if (self.files.root / beside).is_file() else Path(named)
        try:
            with (self.files.root / path).open(encoding="utf-8-sig", newline="") as content:
                rows = csv.DictReader(content)
                lines = [rows.line_num for row in rows if (row.get(key) or "").strip() == subject]
        except OSError:
            return path.as_posix(), None
        return path.as_posix(), lines[0] if lines else None

    def _quote(self, quote: Quote) -> Node:
        """The words of a document, held against it where it is a file of its own."""
        file = self.files.root / quote.document
        if file.is_file():
            words = file.read_text("utf-8-sig")[quote.start : quote.end]
            gate = Gate(
                "verbatim", "passed" if words == quote.text else "noted", f"characters {quote.start}-{quote.end}"
            )
            return Node("document", quote.document, quote.document, json.dumps(quote.text), gates=(gate,))
        where = next(self._naming(quote.document), str(KNOWLEDGE))
        return Node("document", quote.document, where, f"{quote.start}-{quote.end}: {json.dumps(quote.text)}")

    def question(self, one: Decomposition) -> Node:
        """Where a given question stands."""
        where = next(self._naming(one.question), None)
        return Node("given question", one.question, where or str(KNOWLEDGE), missing=where is None)

    def _naming(self, text: str) -> Iterator[str]:
        """Files and lines of data/raw/knowledge that hold the text."""
        for file in sorted((self.files.root / KNOWLEDGE).rglob("*")):
            if file.suffix in (".jsonl", ".json", ".csv", ".txt", ".md"):
                path = file.relative_to(self.files.root).as_posix()
                for needle in (quoted(text)[1:-1], json.dumps(text).encode()[1:-1], text.encode()):
                    yield from (f"{path}:{number}" for number, _ in self.files.lines(path, needle))


def _release(source: str) -> str:
    """A reader of a package with the release that is installed, e.g. airportsdata.airports (airportsdata 20260905)."""
    package = source.partition(".")[0]
    try:
        return f"{source} ({package} {version(package)})"
    except PackageNotFoundError:
        return source
