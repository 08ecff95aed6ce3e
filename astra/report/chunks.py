"""Records in scripts beside the page, a few hundred kilobytes each, so that a page loads only what is looked at.

A page opened from disk may not fetch, but it may run a script that lies beside it. So each chunk is a script of one
call, ``astra.take(name, function(){/*text*/})``, whose text is JSON: parsed as data, a key called ``__proto__`` is only
a key. It stands in a comment because the page can then read it out of the script's own source: of a string a browser
would keep a second copy. What a model wrote can hold anything, so that JSON is ASCII without angle brackets, and never
ends a comment.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

Role = Literal["text", "id", "facet", "tags", "number"]

CHARACTERS = 300_000  # of one chunk of records, about
ROWS = 250  # of one chunk of an index, and ids of one chunk of places, about
CHOICES = 200  # of a filter; the commonest


class Column(NamedTuple):
    """One column of a list. Facets and tags (several at once) can be chosen from; all but numbers is searched."""

    name: str
    label: str
    role: Role


class Kind(NamedTuple):
    """A kind of record that the report shows, and the columns of its list after the id."""

    name: str
    title: str
    columns: tuple[Column, ...]


class Entry(NamedTuple):
    """A record for the report: its line in the list, all of it, and its tools as safe JSON, which others share."""

    id: str
    row: tuple[Any, ...]
    record: dict[str, Any]
    tools: Sequence[str] = ()


def safe_json(value: Any) -> str:
    """JSON that may stand in a script, a comment of a script and an element of a page."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\x7f", "\\u007f")
    return text.replace("*/", "*\\/")  # only a string can hold it


def script(name: str, text: str) -> str:
    """A script that hands the value of that safe JSON to the page under the name."""
    return f"astra.take({safe_json(name)},function(){{/*{text}*/}});\n"


@dataclass
class Shelf:
    """The entries of one kind, written as they come; never more than two chunks are held."""

    folder: Path
    kind: Kind
    n: int = 0
    starts: list[int] = field(default_factory=list)
    _rows: list[list[Any]] = field(default_factory=list)
    _records: list[str] = field(default_factory=list)
    _tools: dict[str, int] = field(default_factory=dict)
    _length: int = 0
    _n_lists: int = 0
    _ids: list[str] = field(default_factory=list)
    _choices: dict[int, Counter[str]] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Put an entry after those before."""
        assert len(entry.row) == len(self.kind.columns), (self.kind.name, entry.row)
        places = [self._place(tool) for tool in entry.tools]
        record = safe_json({**entry.record, "offered": places} if entry.tools else entry.record)
        if not self._records:
            self.starts.append(self.n)
        self._records.append(record)
        self._length += len(record)
        self._rows.append([entry.id, *entry.row])
        self._count(entry.row)
        self._ids.append(entry.id)
        self.n += 1
        if self._length >= CHARACTERS:
            self._write_records()
        if len(self._rows) == ROWS:
            self._write_rows()

    def close(self) -> dict[str, Any]:
        """Write what is left; what the page must know to find its way."""
        if self._records:
            self._write_records()
        if self._rows:
            self._write_rows()
        n_places = self._write_places()
        choices = {self.kind.columns[n].name: counts.most_common(CHOICES) for n, counts in self._choices.items()}
        columns = [column._asdict() for column in self.kind.columns]
        return {
            "kind": self.kind.name, "title": self.kind.title, "columns": columns, "n": self.n, "lists": self._n_lists,
            "rows": ROWS, "places": n_places, "starts": self.starts, "choices": choices,
        }  # fmt: skip

    def _place(self, tool: str) -> int:
        if tool not in self._tools:
            self._length += len(tool)
        return self._tools.setdefault(tool, len(self._tools))

    def _count(self, row: Sequence[Any]) -> None:
        for n, (column, value) in enumerate(zip(self.kind.columns, row, strict=True)):
            if column.role in ("facet", "tags"):
                self._choices.setdefault(n, Counter()).update(value if column.role == "tags" else [value])

    def _write_records(self) -> None:
        text = f'{{"tools":[{",".join(self._tools)}],"records":[{",".join(self._records)}]}}'
        self._write(f"{self.kind.name}-records-{len(self.starts) - 1}", text)
        self._records, self._tools, self._length = [], {}, 0

    def _write_rows(self) -> None:
        self._write(f"{self.kind.name}-list-{self._n_lists}", safe_json(self._rows))
        self._rows = []
        self._n_lists += 1

    def _write_places(self) -> int:
        """Where each id stands, in chunks that are found by the id alone; how many chunks."""
        n_chunks = max(1, round(self.n / ROWS))
        places: list[dict[str, int]] = [{} for _ in range(n_chunks)]
        for place, record_id in enumerate(self._ids):
            places[spread(record_id) % n_chunks].setdefault(record_id, place)
        for n, some in enumerate(places):
            self._write(f"{self.kind.name}-places-{n}", safe_json(list(some.items())))
        return n_chunks

    def _write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.js").write_text(script(name, text), encoding="ascii")


def spread(text: str) -> int:
    """A number of a text, the same as the page's own ``spread`` gives: over its UTF-16 units."""
    units = text.encode("utf-16-le", "surrogatepass")
    number = 7
    for low, high in zip(units[::2], units[1::2], strict=True):
        number = (number * 31 + low + 256 * high) % 1_000_003
    return number


def shortened(text: str | None, most: int = 240) -> str:
    """The beginning of a text on one line."""
    cut = " ".join((text or "")[: 4 * most].split())
    return cut if len(cut) <= most else cut[: most - 1] + "…"


def compact(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what says nothing: none, empty and false."""
    return {key: value for key, value in record.items() if value not in (None, "", [], (), {}, False)}
