"""Certificates that this code gave before, by the hash of the arena: one SQLite file outside every output.

It only saves time. An entry counts for the code, the sandbox backend and the bytes that it was made of; ``--verify``
never reads it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from astra import answers, records, rewards, sandbox, tables
from astra.environments import arena, endings
from astra.records import Certificate

FOLDER = Path(".cache/certificates")
BUSY_S = 60.0
AT_ONCE = 500  # names in one question to SQLite


class Kept:
    """Certificates on disk. A file that cannot be read or written is as good as an empty one."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.n_used = 0
        self._sql: sqlite3.Connection | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(folder / "certificates.sqlite", timeout=BUSY_S, isolation_level=None)
            self._sql.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, certificate TEXT) WITHOUT ROWID")
        except (OSError, sqlite3.Error):
            self.close()

    def get(self, names: Sequence[str], backend: str) -> dict[str, Certificate]:
        """The certificates that are there, by the artifact's hash."""
        keys = {_key(name, backend): name for name in names}
        found: dict[str, Certificate] = {}
        for key, text in self._rows(list(keys)):
            try:
                certificate = Certificate.model_validate_json(text)
            except ValidationError:
                continue
            if (certificate.artifact, certificate.backend) == (keys[key], backend) and _is_whole(certificate):
                found[keys[key]] = certificate
        self.n_used += len(found)
        return found

    def put(self, certificates: Iterable[Certificate]) -> None:
        rows = [(_key(one.artifact, one.backend), one.model_dump_json()) for one in certificates]
        if self._sql is not None and rows:
            try:
                self._sql.execute("BEGIN")
                self._sql.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
                self._sql.execute("COMMIT")
            except sqlite3.Error:
                self.close()

    def close(self) -> None:
        if self._sql is not None:
            self._sql.close()
            self._sql = None

    def _rows(self, keys: Sequence[str]) -> Iterable[tuple[str, str]]:
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            if self._sql is None:
                return
            try:
                marks = ",".join("?" * len(some))
                yield from self._sql.execute(
                    f"SELECT key, certificate FROM kept WHERE key IN ({marks})", some
                ).fetchall()
            except sqlite3.Error:
                self.close()


def _is_whole(certificate: Certificate) -> bool:
    from astra.certificate.certifying import seal

    return all(certificate.checks.values()) and certificate.seal == seal(certificate)


def _key(artifact: str, backend: str) -> str:
    return hashlib.sha256(f"{code_version()} {backend} {artifact}".encode()).hexdigest()


@cache
def code_version() -> str:
    """The hash of the code that a certificate rests on."""
    own = sorted(Path(__file__).parent.glob("*.py"))
    parts = [Path(str(one.__file__)) for one in (answers, rewards, tables, arena, endings)]
    folders = [Path(str(one.__file__)).parent for one in (sandbox, records)]
    files = [*own, *parts, *(file for folder in folders for file in sorted(folder.glob("*.py")))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
