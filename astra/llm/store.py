"""Replies on disk, by the content of the request: what a stopped stage resumes from. Outside every DVC output.

One SQLite file (write-ahead log) in ``$ASTRA_CACHE``, else ``$DVC_ROOT/.cache/llm``, else ``.cache/llm``. DVC sets
DVC_ROOT to the original repository in the workspaces of its queue too, so all experiments share one store. Before a
request is sent its key is claimed, so that two processes never pay for one reply; a claim counts as long as its owner
lives, which a lock on the owner's file shows. Write-ahead logs need a local disk: on a network file system give each
host its own folder and carry replies over with ``python -m astra.llm import``.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from astra.caches import cache_root
from astra.llm.types import Completion, Request
from astra.records import KeptReply, ToolCall, Unavailable, Usage, canonical

BUSY_S = 60.0
TABLES = """
CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS kept AFTER INSERT ON replies BEGIN DELETE FROM claims WHERE key = NEW.key; END;
CREATE TABLE IF NOT EXISTS servers (address TEXT PRIMARY KEY, dialect TEXT NOT NULL) WITHOUT ROWID;
"""
CLAIM = "INSERT OR IGNORE INTO claims SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM replies WHERE key = ?)"


class StoreUnusable(Unavailable):
    """The file with the replies cannot be opened or read; the message says which and what to do."""


def store_folder() -> Path:
    """Where replies are kept."""
    return cache_root() if os.environ.get("ASTRA_CACHE") else cache_root() / "llm"


class ReplyStore:
    """Replies, claims on replies that are being asked for, and what servers were found to take."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or store_folder()
        self.file = self.folder / "replies.sqlite"
        self.asking: dict[str, asyncio.Future[None]] = {}  # what this process is asking for
        try:
            (self.folder / "owners").mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(self.file, timeout=BUSY_S, isolation_level=None)
            self._sql.execute("PRAGMA journal_mode=WAL")
            self._sql.execute("PRAGMA synchronous=NORMAL")  # a killed process loses nothing; a power cut may
            self._sql.execute("PRAGMA wal_autocheckpoint=10000")  # pages; copying back each thousand costs throughput
            self._sql.executescript(TABLES)
        except (sqlite3.Error, OSError) as error:
            raise StoreUnusable(
                f"{self.file}: the kept replies cannot be opened: {error}. Move the file away, or set ASTRA_CACHE"
            ) from None
        self._owner = secrets.token_hex(8)
        self._lock: int | None = None

    def get(self, key: str) -> Completion | None:
        """The kept reply."""
        row = self._one("SELECT reply FROM replies WHERE key = ?", key)
        if row is None:
            return None
        try:
            return read_reply(row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreUnusable(
                f"{self.file}: the kept reply {key[:16]} is damaged ({type(error).__name__}). Delete the row, or "
                "move the file away"
            ) from None

    def put(self, key: str, completion: Completion) -> None:
        """Keep a reply; a claim on it ends. Raises StoreUnusable: a reply that cannot be kept must not be used."""
        self._changed("INSERT OR REPLACE INTO replies VALUES (?, ?)", key, written_reply(completion))

    def claim(self, key: str, renew: bool = False) -> bool:
        """Whether this process may ask for the reply: it is not kept (or to be renewed), nobody alive asks for it."""
        self._be_alive()
        if renew:
            claimed = self._changed("INSERT OR IGNORE INTO claims VALUES (?, ?)", key, self._owner)
        else:
            claimed = self._changed(CLAIM, key, self._owner, key)
        if claimed:
            return True
        owner = self._one("SELECT owner FROM claims WHERE key = ?", key)
        if owner == self._owner:
            return True
        if owner is None or self._is_alive(owner):
            return False
        return self._changed("UPDATE claims SET owner = ? WHERE key = ? AND owner = ?", self._owner, key, owner)

    def release(self, key: str) -> None:
        """Give up a claim of ours."""
        self._changed("DELETE FROM claims WHERE key = ? AND owner = ?", key, self._owner)

    def dialect(self, address: str) -> dict[str, Any] | None:
        """What a server was found to take."""
        row = self._one("SELECT dialect FROM servers WHERE address = ?", address)
        return None if row is None else dict(json.loads(row))

    def remember_dialect(self, address: str, dialect: dict[str, Any]) -> None:
        self._changed("INSERT OR REPLACE INTO servers VALUES (?, ?)", address, json.dumps(dialect))

    def rows(self, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Keys and their replies as text, in the order of the keys; keys without a reply are left out."""
        for key in keys:
            row = self._one("SELECT reply FROM replies WHERE key = ?", key)
            if row is not None:
                yield key, row

    def add(self, rows: Iterable[tuple[str, str]]) -> int:
        """Take in replies that are not kept yet; how many there were."""
        self._changed("BEGIN IMMEDIATE")
        try:
            added = self._sql.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?)", rows).rowcount
            self._sql.execute("COMMIT")
        except BaseException as error:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._unwritable(error) from None
            raise
        return added

    def export(self, file: Path) -> int:
        """Write all kept replies as KeptReply lines, in the order of their keys; how many there are."""
        partial = file.with_name(file.name + ".partial")
        count = 0
        try:
            with partial.open("w", encoding="utf-8") as out:
                for key, reply in self._sql.execute("SELECT key, reply FROM replies ORDER BY key"):
                    kept = KeptReply(key=key, **json.loads(reply))
                    out.write(json.dumps(kept.model_dump(mode="json"), ensure_ascii=False, allow_nan=False) + "\n")
                    count += 1
            os.replace(partial, file)
        except sqlite3.Error as error:
            raise StoreUnusable(
                f"{self.file}: the kept replies cannot be read: {str(error)[:100]}. Move it away"
            ) from None
        except OSError as error:
            raise StoreUnusable(f"{file}: cannot be written: {error.strerror}") from None
        return count

    def close(self) -> None:
        self._sql.close()
        if self._lock is not None:
            self._owner_file(self._owner).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _one(self, query: str, value: str) -> str | None:
        try:
            row = self._sql.execute(query, (value,)).fetchone()
        except sqlite3.Error as error:
            raise StoreUnusable(
                f"{self.file}: the kept replies cannot be read: {str(error)[:100]}. Move it away"
            ) from None
        return None if row is None else str(row[0])

    def _changed(self, query: str, *values: str) -> bool:
        """Whether a statement changed a row."""
        try:
            return bool(self._sql.execute(query, values).rowcount)
        except sqlite3.Error as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: sqlite3.Error) -> StoreUnusable:
        return StoreUnusable(
            f"{self.file}: cannot be written: {error}. Make room, or see to its rights; then: dvc repro"
        )

    def _owner_file(self, owner: str) -> Path:
        return self.folder / "owners" / f"{owner}.lock"

    def _be_alive(self) -> None:
        """Hold a lock that ends with this process, however it ends."""
        if self._lock is None:
            file = self._owner_file(self._owner)
            try:
                self._lock = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreUnusable(
                    f"{file}: cannot be locked: {error.strerror}. Make room, or set ASTRA_CACHE to a local folder "
                    "that can be written"
                ) from None

    def _is_alive(self, owner: str) -> bool:
        try:
            lock = os.open(self._owner_file(owner), os.O_RDWR)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreUnusable(
                f"{self._owner_file(owner)}: cannot be opened: {error.strerror}. A store belongs to one user: set "
                "ASTRA_CACHE to a folder of your own"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        self._owner_file(owner).unlink(missing_ok=True)
        return False


def request_key(request: Request) -> str:
    """The sha256 of everything that makes the reply what it is; never the address, the key or how it is asked."""
    model = request.model
    sampling = [model.name, model.temperature, model.max_tokens, model.top_p, model.extra]
    asked = [
        sampling,
        [message.openai() for message in request.messages],
        [tool.openai() for tool in request.tools],
        request.seed,
        request.sample,
        request.json_schema,
    ]
    return hashlib.sha256(canonical(asked).encode("utf-8", "surrogatepass")).hexdigest()


def written_reply(completion: Completion) -> str:
    """A reply as JSON text, the same for the same reply."""
    plain: dict[str, Any] = {
        "content": completion.content,
        "finish_reason": completion.finish_reason,
        "usage": completion.usage.model_dump(),
    }
    if completion.tool_calls:
        plain["tool_calls"] = [call.model_dump() for call in completion.tool_calls]
    if completion.reasoning is not None:
        plain["reasoning"] = completion.reasoning
    if completion.refusal is not None:
        plain["refusal"] = completion.refusal
    return json.dumps(plain)


def read_reply(text: str) -> Completion:
    """The reply in a text that ``written_reply`` made."""
    plain = json.loads(text)
    usage = plain.pop("usage")
    calls = tuple(ToolCall.model_validate(call) for call in plain.pop("tool_calls", ()))
    return Completion(**plain, usage=Usage.model_validate(usage), tool_calls=calls, cached=True)


def to_row(kept: KeptReply) -> tuple[str, str]:
    """Key and text of a reply that was exported."""
    plain = {name: getattr(kept, name) for name in type(kept).model_fields if name != "key"}
    return kept.key, written_reply(Completion(**plain))
