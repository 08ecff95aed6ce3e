"""What every stage script is made of: its files, its params, its rejects, its metrics, its closing line.

A stage declares a ``Contract`` at module level; ``tests/test_pipeline.py`` compares it with ``dvc.yaml``. ``main``
opens a ``Run``, reads records, writes records and closes. Everything an output holds appears at once: files are
written to a temporary name and renamed, so a killed stage leaves no half file behind.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from tqdm import tqdm

from astra.records import Record, Reject, Unavailable
from astra.yaml_files import YamlInvalid, read_yaml

R = TypeVar("R", bound=Record)
T = TypeVar("T")

PARAMS_FILE = Path("params.yaml")


class StageError(Exception):
    """Wrong input or configuration: the message names file, line or key, the value met and the remedy."""


class BadParams(StageError):
    """A key of params.yaml is missing, unknown, of the wrong type or out of range."""


class BadRecord(StageError):
    """A line of an artifact is not the record that it should be."""


@dataclass(frozen=True)
class Contract:
    """What a stage reads, writes and takes from params.yaml.

    ``params`` maps a dotted key of params.yaml to the type it must have: a ``Section`` or a plain type. ``reads`` and
    ``writes`` name files or folders by a short word. ``rejects``, ``metrics/<name>.json`` and, for a stage that asks
    models, the replies that it used are implied. ``settings`` maps keys that cannot change a byte of the outputs (how
    fast and how dearly endpoints are asked): read like params, but no part of what DVC tracks.
    """

    name: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    params: Mapping[str, type]
    plots: tuple[str, ...] = ()
    settings: Mapping[str, type] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def replies(self) -> str | None:
        """Where the kept replies that the stage used are written; none for a stage that asks no model."""
        asks = any(key.startswith("models.") for key in self.params)
        return f"data/{self.name}/replies.jsonl" if asks else None

    @property
    def rejects(self) -> str:
        return f"data/{self.name}/rejects.jsonl"

    @property
    def metrics(self) -> str:
        return f"metrics/{self.name}.json"


def read_records(path: Path | str, kind: type[R]) -> Iterator[R]:
    """The records of a JSONL file, validated one by one.

    Raises BadRecord with file, line, field and value on the first line that does not fit or repeats an id.
    """
    path = Path(path)
    if not path.is_file():
        raise BadRecord(f"{path}: no such file. Run the stage that writes it: dvc repro {path}")
    first_lines: dict[str, int] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = kind.model_validate_json(line)
                record_id = None if kind is Reject else getattr(record, "id", None)  # one thing can fail twice
                if record_id is not None and first_lines.setdefault(record_id, number) != number:
                    raise BadRecord(
                        f"{path}:{number}: id {record_id!r} is that of line {first_lines[record_id]} too. Rerun the "
                        f"stage that writes it: dvc repro -f {path}"
                    )
                yield record
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"]) or "the line"
                raise BadRecord(
                    f"{path}:{number}: not a {kind.__name__}: {where}: {first['msg']} "
                    f"(got {str(first.get('input'))[:80]!r}). Rerun the stage that writes it: dvc repro -f {path}"
                ) from None


def write_records(path: Path | str, records: Iterable[Record]) -> int:
    """Write records as strict UTF-8 JSONL, all or nothing; the number written."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    count = 0
    try:
        with partial.open("w", encoding="utf-8") as out:
            for record in records:
                text = json.dumps(record.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)
                out.write(text + "\n")
                count += 1
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    os.replace(partial, path)
    return count


def write_json(path: Path | str, value: Any) -> None:
    """Write one JSON document, all or nothing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)


def load_params(wanted: Mapping[str, type[T]], file: Path = PARAMS_FILE) -> dict[str, Any]:
    """The wanted dotted keys of params.yaml, each as its type.

    Raises BadParams naming file, key, value and the allowed keys or range.
    """
    if not file.is_file():
        raise BadParams(f"{file}: no such file. Run from the repository root, as dvc does.")
    try:
        tree = read_yaml(file)
    except YamlInvalid as error:
        raise BadParams(str(error)) from None
    if tree is not None and not isinstance(tree, dict):
        raise BadParams(
            f"{file}: expected a mapping of sections, got {str(tree)[:80]!r}: the committed one shows its form"
        )
    return {key: _section(tree, key, kind, file) for key, kind in wanted.items()}


def _section(tree: Any, key: str, kind: type[T], file: Path) -> T:
    value = tree
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise BadParams(f"{file}: {key}: missing. Add it; the committed params.yaml shows its form.")
        value = value[part]
    if issubclass(kind, BaseModel):
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            raise BadParams("\n".join(_explain(file, key, kind, one) for one in error.errors())) from None
    if isinstance(value, bool) or not isinstance(value, kind):
        raise BadParams(f"{file}: {key}: expected {kind.__name__}, got {value!r}")
    return value


def _explain(file: Path, key: str, kind: type[BaseModel], error: Any) -> str:
    where = ".".join([key, *(str(part) for part in error["loc"])])
    if error["type"] == "extra_forbidden":
        return f"{file}: {where}: unknown key. Known keys of {key}: {', '.join(kind.model_fields)}"
    return f"{file}: {where}: {error['msg']} (got {error.get('input')!r})"


class Watch(Protocol):
    """What shows how far a long loop has come: it gives back the items that it is given."""

    def __call__(self, items: Iterable[T], total: int | None = None, unit: str = "it") -> Iterable[T]: ...


def unwatched(items: Iterable[T], total: int | None = None, unit: str = "it") -> Iterable[T]:
    """The items, and nothing is shown."""
    return items


@dataclass
class Run:
    """One execution of a stage, used as a context manager.

    On a clean exit it writes rejects and metrics and prints the closing line. On a StageError, or a file that cannot be
    read or written, it prints one message and exits with 2, on Unavailable with 3, on Ctrl-C with 130. Any other
    exception passes through: it is a bug or a stopped machine.
    """

    contract: Contract
    arguments: Sequence[str] = ()
    params: dict[str, Any] = field(init=False)
    settings: dict[str, Any] = field(init=False)
    flags: frozenset[str] = field(init=False)
    metrics: dict[str, Any] = field(default_factory=dict)
    n_in: int = 0
    n_out: int = 0
    usage: str = ""
    spent: Callable[[], str] | None = None  # what asking models has cost so far, for the bar
    _rejects: list[Reject] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Run:
        self.flags = self._flags()
        try:
            self.params = load_params(self.contract.params)
            self.settings = load_params(self.contract.settings)
        except StageError as error:
            self._fail(error)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, StageError | Unavailable):
            self._fail(error)
        if isinstance(error, KeyboardInterrupt):
            print(f"{self.contract.name}: interrupted; nothing was half written. To go on: dvc repro", file=sys.stderr)
            raise SystemExit(130)
        if isinstance(error, OSError) and error.filename is not None:
            self._fail(StageError(f"{error.filename}: {error.strerror}. Nothing was half written; to go on: dvc repro"))
        if kind is None:
            self._close()

    def _flags(self) -> frozenset[str]:
        """The flags on the command line: --estimate for a stage that asks models, and the contract's own."""
        known = dict(self.contract.flags)
        if self.contract.replies is not None:
            known["estimate"] = "say how many calls a run would make and what they would cost; ask and write nothing"
        parser = argparse.ArgumentParser(prog=f"python -m stages.{self.contract.name}")
        for flag, meaning in known.items():
            parser.add_argument(f"--{flag}", action="store_true", help=meaning)
        given = vars(parser.parse_args(self.arguments))
        return frozenset(flag for flag, on in given.items() if on)

    @property
    def estimating(self) -> bool:
        """Whether nothing may be asked or written."""
        return "estimate" in self.flags

    def _fail(self, error: StageError | Unavailable) -> NoReturn:
        print(f"{self.contract.name}: {error}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, StageError) else 3)

    def read(self, word: str, kind: type[R]) -> list[R]:
        """All records of the input called ``word`` in the contract. Raises StageError where there is none."""
        return list(self.stream(word, kind))

    def stream(self, word: str, kind: type[R]) -> Iterator[R]:
        """The records of an input one by one. Raises StageError where there is none."""
        path = Path(self.contract.reads[word])
        found = False
        for record in read_records(path, kind):
            found = True
            yield record
        if not found:
            raise StageError(
                f"{path}: holds no records, so there is nothing to do; why: {path.with_name('rejects.jsonl')}"
            )

    def write(self, word: str, records: Iterable[Record]) -> int:
        """Write the output called ``word`` in the contract; the number of records. An estimate only counts them."""
        if self.estimating:
            return sum(1 for _ in records)
        return write_records(self.contract.writes[word], records)

    def path(self, word: str) -> Path:
        """The path of an input or output called ``word``."""
        return Path({**self.contract.reads, **self.contract.writes}[word])

    def write_replies(self, replies: Iterable[Record]) -> None:
        """Write the kept replies that the stage used, as an output of its own."""
        assert self.contract.replies is not None
        if not self.estimating:
            write_records(self.contract.replies, replies)

    def need_folders(self, *words: str) -> None:
        """Raises StageError for an input folder that is not there: a loader would take its path for a hub id."""
        for word in words:
            folder = self.contract.reads[word]
            if not Path(folder).is_dir():
                raise StageError(f"{folder}: no such folder. Run the stage that writes it: dvc repro {folder}")

    def reject(self, record_id: str, reason: str, detail: str) -> None:
        """Note a record that did not work out; it is written to rejects.jsonl and counted in the metrics."""
        self._rejects.append(Reject(id=record_id, reason=reason, detail=detail))

    @property
    def n_rejected(self) -> int:
        return len(self._rejects)

    def progress(self, items: Iterable[T], total: int | None = None, unit: str = "it") -> Iterator[T]:
        """The items, with a bar on a terminal (rate, time left, cost where models are asked), silence elsewhere."""
        bar = tqdm(items, desc=self.contract.name, total=total, unit=unit, disable=None, leave=False)
        for item in bar:
            if self.spent is not None and not bar.disable:
                bar.set_postfix_str(self.spent(), refresh=False)
            yield item

    def _close(self) -> None:
        if self.n_in != self.n_out + self.n_rejected:
            raise AssertionError(
                f"{self.contract.name} lost records: {self.n_in} in, {self.n_out} out, {self.n_rejected} rejected"
            )
        if self.estimating:
            print(self.usage, file=sys.stderr)
            return
        write_records(self.contract.rejects, self._rejects)
        reasons = Counter(reject.reason for reject in self._rejects)
        counts = {"in": self.n_in, "out": self.n_out, "rejected": self.n_rejected}
        rejects = {"rejects": dict(sorted(reasons.items()))} if reasons else {}
        write_json(self.contract.metrics, {**counts, **rejects, **self.metrics})
        why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        parts = [f"{self.n_in} in", f"{self.n_out} out", f"{self.n_rejected} rejected" + (f" ({why})" if why else "")]
        parts += [self.usage] if self.usage else []
        parts.append(f"{time.monotonic() - self._started:.0f} s")
        print(f"{self.contract.name}: {', '.join(parts)}", file=sys.stderr)
