"""Records of a run found by the bytes that their lines hold, so that a question reads no more than it must parse."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from astra.records import (
    Arena,
    Chain,
    Decomposition,
    Difficulty,
    Environment,
    Record,
    Reject,
    Rollout,
    Sample,
    Scorecard,
    Server,
    Task,
    ToolGraph,
    ToolTry,
    Trajectory,
)
from astra.stage import StageError

R = TypeVar("R", bound=Record)
T = TypeVar("T")
Wanted = Callable[[T], bool]

FILES: dict[type[Record], tuple[str, str]] = {  # which stage writes it, and where
    Server: ("normalize", "data/normalize/servers.jsonl"),
    ToolGraph: ("graph", "data/graph/graphs.jsonl"),
    Chain: ("chains", "data/chains/chains.jsonl"),
    Task: ("tasks", "data/tasks/tasks.jsonl"),
    Trajectory: ("trajectories", "data/trajectories/trajectories.jsonl"),
    Scorecard: ("score", "data/score/scorecards.jsonl"),
    Decomposition: ("decompose", "data/decompose/decompositions.jsonl"),
    Environment: ("envsynth", "data/envsynth/environments.jsonl"),
    Arena: ("merge", "data/merge/arenas.jsonl"),
    Rollout: ("rl", "data/rl/rollouts.jsonl"),
    Difficulty: ("rl", "data/rl/difficulty.jsonl"),
    Sample: ("eval", "data/eval/samples.jsonl"),
}
STAGES = (*dict.fromkeys(stage for stage, _ in list(FILES.values())[:9]), "sft", "rl", "eval")
TRIES = {"envsynth": "data/envsynth/tries.jsonl", "merge": "data/merge/tries.jsonl"}
ROWS = "data/sft/train.parquet"
HELD = "data/sft/heldout.parquet"  # of the same conversations, what the loss is measured on


def _always(_: object) -> bool:
    return True


class Found(NamedTuple, Generic[R]):
    """A record, and the line that it stands in."""

    record: R
    path: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


class RowPlace(NamedTuple):
    """A training row without its tokens."""

    id: str
    origin: str
    parent: str
    turn: int
    tokens: int
    path: str
    number: int

    @property
    def where(self) -> str:
        return f"{self.path} row {self.number}"


def quoted(text: str) -> bytes:
    """How a text stands in a JSON line."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")


@dataclass
class Files:
    """The artifacts of a run below ``root``; what a stage has not written yet is empty."""

    root: Path = field(default_factory=Path)

    def find(
        self, kind: type[R], needle: bytes, wanted: Wanted[R] = _always, may_be: Wanted[bytes] = _always
    ) -> Iterator[Found[R]]:
        """The records of a kind that are wanted, in file order; only lines that may be one are parsed."""
        yield from self._in_file(FILES[kind][1], kind, needle, wanted, may_be)

    def get(self, kind: type[R], record_id: str) -> Found[R] | None:
        """The record of that kind with that id."""
        return next(self.find(kind, quoted(record_id), lambda one: getattr(one, "id", None) == record_id), None)

    def rejects(self, stage: str, needle: bytes = b"{") -> Iterator[Found[Reject]]:
        """A stage's rejects whose line holds the needle."""
        yield from self._in_file(f"data/{stage}/rejects.jsonl", Reject, needle)

    def tries(self, stage: str, needle: bytes) -> Iterator[Found[ToolTry]]:
        """Replies about tools that were not taken, whose line holds the needle."""
        yield from self._in_file(TRIES[stage], ToolTry, needle)

    def lines(self, path: str, needle: bytes) -> Iterator[tuple[int, bytes]]:
        """Number and text of the lines that hold the needle."""
        file = self.root / path
        if not file.is_file() or file.stat().st_size == 0:
            return
        with file.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as text:
            counted, number, at = 0, 1, text.find(needle)
            while at != -1:
                start = text.rfind(b"\n", 0, at) + 1
                end = text.find(b"\n", at)
                end = len(text) if end == -1 else end
                number += text[counted:start].count(b"\n")
                counted = start
                yield number, text[start:end]
                at = text.find(needle, end)

    def _in_file(
        self, path: str, kind: type[R], needle: bytes, wanted: Wanted[R] = _always, may_be: Wanted[bytes] = _always
    ) -> Iterator[Found[R]]:
        for number, line in self.lines(path, needle):
            if not may_be(line):
                continue
            try:
                record = kind.model_validate_json(line)
            except ValidationError as error:
                what = error.errors()[0]
                raise StageError(
                    f"{path}:{number}: not a {kind.__name__}: {'.'.join(map(str, what['loc']))}: {what['msg']}. "
                    f"Rerun the stage that writes it: dvc repro -f {path}"
                ) from None
            if wanted(record):
                yield Found(record, path, number)

    @cached_property
    def rows(self) -> list[RowPlace]:
        """All training rows, and those that the loss is measured on."""
        return [row for path in (ROWS, HELD) for row in self._rows_of(path)]

    def _rows_of(self, path: str) -> Iterator[RowPlace]:
        if not (self.root / path).is_file():
            return
        from pyarrow.compute import list_value_length  # not at the top: most questions are answered without it
        from pyarrow.parquet import ParquetFile

        table = ParquetFile(self.root / path).read(columns=["id", "origin", "parent", "turn", "input_ids"])
        tokens_of = table["input_ids"]
        lengths = list_value_length(tokens_of).to_pylist() if len(tokens_of) else []  # of no rows there is no type
        columns = [table[name].to_pylist() for name in ("id", "origin", "parent", "turn")]
        for number, (row_id, origin, parent, turn, tokens) in enumerate(zip(*columns, lengths, strict=True)):
            yield RowPlace(row_id, origin, parent, turn, tokens, path, number)

    def digest(self, path: str) -> str | None:
        """SHA-256 of a file; None where it is not there."""
        file = self.root / path
        if not file.is_file():
            return None
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()

    def ids(self, path: str) -> list[str]:
        """The ids that the lines of a file begin with."""
        file = self.root / path
        if not file.is_file():
            return []
        return [one.decode() for one in re.findall(rb'^\{"id":\s*"([^"\\]+)"', file.read_bytes(), re.MULTILINE)]
