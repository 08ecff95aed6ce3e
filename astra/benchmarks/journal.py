"""What was played so far, one line a finished case, so that a killed evaluation asks nothing twice.

A journal lies in the project's cache, outside every DVC output, under a hash of all that decides its cases' results;
whatever changes one of these is another journal. Lines are appended and synced one at a time, under a lock, since
several experiments may play the same cases. A line that was cut short by a kill or a power cut is no line.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from astra.caches import cache_root
from astra.records import canonical


class Journal:
    """Results by key, on disk. Open one journal per process and benchmark; results of other processes are not seen."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.kept = _read(file)

    @classmethod
    def of(cls, settings: Any) -> Journal:
        """The journal of what these settings decide; they must hold everything that does."""
        digest = hashlib.sha256(canonical(settings).encode()).hexdigest()[:20]
        return cls(cache_root() / "eval" / f"{digest}.jsonl")

    def get(self, key: str) -> Any | None:
        """The result of a key, as it was added; None where there is none."""
        return self.kept.get(key)

    def add(self, key: str, value: Any) -> None:
        """Keep a result: after this call a kill loses it no more."""
        line = (json.dumps({"key": key, "value": value}, ensure_ascii=False, allow_nan=False) + "\n").encode()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab+") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            end = out.seek(0, os.SEEK_END)
            if end and os.pread(out.fileno(), 1, end - 1) != b"\n":  # what was being written when its writer was killed
                line = b"\n" + line
            out.write(line)
            out.flush()
            os.fsync(out.fileno())
        self.kept[key] = value


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not file.is_file():
        return found
    for line in file.read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry["value"]
        except (ValueError, KeyError, TypeError):  # cut short: that case is played again
            continue
    return found
