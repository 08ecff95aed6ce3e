"""Write certified arenas for another framework.

    python -m astra.exports.arenas --format verifiers --out exports/verifiers [--split train]

``verifiers`` and ``openenv`` are packages to install, ``trl`` are rows with an environment class for each arena,
``verl`` is Parquet with a reward function. Every folder holds the arenas with their certificates; tools run in the
sandbox of this package only. Written beside them: rejects.jsonl, and export.json with what was left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from astra.exports import arena_files, arena_trl, arena_verl
from astra.exports.playing import SYSTEM
from astra.records import Arena, Reject
from astra.stage import StageError, read_records, write_json, write_records


def _no_fault(arena: Arena) -> str | None:
    return None


def _write_nothing(folder: Path, arenas: Sequence[Arena]) -> None:
    """Arenas are all."""


def _write_trl(folder: Path, arenas: Sequence[Arena]) -> None:
    lines = [json.dumps(arena_trl.row(one, SYSTEM), ensure_ascii=False) + "\n" for one in arenas]
    _replace(folder / "train.jsonl", "".join(lines).encode())


def _write_verl(folder: Path, arenas: Sequence[Arena]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [arena_verl.row(one, SYSTEM, place) for place, one in enumerate(arenas)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet.partial")
    os.replace(folder / "train.parquet.partial", folder / "train.parquet")


class Form(NamedTuple):
    """How arenas are written: files that are always the same, files made of the arenas, arenas that cannot be."""

    files: Mapping[str, str]
    write: Callable[[Path, Sequence[Arena]], None] = _write_nothing
    fault: Callable[[Arena], str | None] = _no_fault


FORMS: dict[str, Form] = {
    "verifiers": Form(arena_files.VERIFIERS),
    "openenv": Form(arena_files.OPENENV),
    "trl": Form(arena_files.TRL, _write_trl, arena_trl.fault),
    "verl": Form(arena_files.VERL, _write_verl),
}


def export(folder: Path, name: str, arenas: Sequence[Arena]) -> dict[str, Any]:
    """Write a folder of that form; its manifest."""
    form = FORMS[name]
    faults = {one.id: why for one in arenas if (why := form.fault(one)) is not None}
    kept = [one for one in arenas if one.id not in faults]
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in form.files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        _replace(folder / file, text.encode())
    write_records(folder / "arenas.jsonl", kept)
    form.write(folder, kept)
    write_records(
        folder / "rejects.jsonl", [Reject(id=one, reason="not_exportable", detail=why) for one, why in faults.items()]
    )
    splits = Counter(one.split for one in kept)
    manifest = {"format": name, "in": len(arenas), "out": len(kept), "rejected": len(faults), "splits": dict(splits)}
    write_json(folder / "export.json", manifest)
    return manifest


def _replace(file: Path, data: bytes) -> None:
    partial = file.with_name(file.name + ".partial")
    partial.write_bytes(data)
    os.replace(partial, file)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m astra.exports.arenas", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--format", required=True, choices=sorted(FORMS))
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--arenas", default="data/merge/arenas.jsonl", metavar="FILE")
    parser.add_argument("--split", default="train", help="train, a held-out split, or all")
    given = parser.parse_args(arguments)
    try:
        arenas = [one for one in read_records(given.arenas, Arena) if given.split in ("all", one.split)]
        if not arenas:
            raise StageError(f"{given.arenas} holds no arena of split {given.split!r}; take another, or all")
        manifest = export(given.out, given.format, arenas)
    except StageError as error:
        raise SystemExit(f"exports: {error}") from None
    except OSError as error:
        raise SystemExit(f"exports: --out {given.out}: {error}; take a folder that can be written") from None
    print(
        f"exports: {manifest['in']} in, {manifest['out']} out, {manifest['rejected']} rejected -> {given.out}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
