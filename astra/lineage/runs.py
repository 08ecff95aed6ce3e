"""What dvc.lock says of the stage that wrote a file: seed, models, prompts, code."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from astra.lineage.files import FILES, Files, quoted
from astra.lineage.nodes import Made
from astra.records import KeptReply, Record

READER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
BIG = 256 * 2**20
LONG = 24  # characters from which on a text is hardly in two replies by chance


@dataclass
class Runs:
    """The stages of a run, as dvc.lock has them; without it nothing but the stage's name is known."""

    files: Files
    _md5s: dict[str, str] = field(default_factory=dict)
    _entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def _blocks(self) -> dict[str, str]:
        """The text of each stage in dvc.lock: of thousands of lines only those asked for are parsed."""
        file = self.files.root / "dvc.lock"
        text = file.read_text("utf-8") if file.is_file() else ""
        parts = re.split(r"^  ([\w-]+):\n", text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def _locked(self, stage: str) -> dict[str, Any] | None:
        if stage in self._blocks and stage not in self._entries:
            self._entries[stage] = yaml.load(self._blocks[stage], Loader=READER)
        return self._entries.get(stage)

    def params(self, stage: str) -> dict[str, Any]:
        """The params that the stage ran with, by their keys in dvc.lock."""
        found: dict[str, Any] = (self._locked(stage) or {}).get("params", {}).get("params.yaml", {})
        return found

    def made(self, kind: type[Record], *texts: str | None) -> Made:
        """How a record of that kind was made; ``texts`` are looked for in the replies that its stage kept."""
        stage, path = FILES[kind]
        return self.made_by(stage, path, *texts)

    def made_by(self, stage: str, path: str, *texts: str | None) -> Made:
        """The same for a stage and one of its outputs."""
        entry = self._locked(stage)
        if entry is None:
            return Made(stage, current=False, replies=self._replies(stage, texts))
        params = self.params(stage)
        return Made(
            stage,
            seed=params.get("seed"),
            models={
                key.removeprefix("models."): f"{one['name']} ({one['transport']}, temperature {one['temperature']})"
                for key, one in params.items()
                if key.startswith("models.")
            },
            prompts=next((one["md5"] for one in entry["deps"] if one["path"] == f"astra/prompts/{stage}"), None),
            code=_code(entry["deps"]),
            current=self._is_current(entry, path),
            replies=self._replies(stage, texts),
        )

    def _is_current(self, entry: dict[str, Any], path: str) -> bool:
        """Whether the file is the one that the lock names; of a big one the length says so."""
        out = next((one for one in entry["outs"] if one["path"] == path), None)
        file = self.files.root / path
        if out is None or not file.is_file() or file.stat().st_size != out["size"]:
            return False
        return bool(out["size"] > BIG or self._md5(path) == out["md5"])

    def _md5(self, path: str) -> str:
        if path not in self._md5s:
            with (self.files.root / path).open("rb") as content:
                self._md5s[path] = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        return self._md5s[path]

    def _replies(self, stage: str, texts: Iterable[str | None]) -> tuple[str, ...]:
        """Keys (sha256 of the request, its prompt included) of kept replies that one of the texts stands in."""
        found = (key for text in texts if text and len(text) >= LONG for key in self._keys(stage, text))
        return tuple(dict.fromkeys(found))

    def _keys(self, stage: str, text: str) -> Iterator[str]:
        once = quoted(text)[1:-1]
        twice = quoted(once.decode("utf-8", "surrogatepass"))[1:-1]  # a reply in JSON is JSON in JSON
        for needle in {once, twice}:
            for _, line in self.files.lines(f"data/{stage}/replies.jsonl", needle):
                yield KeptReply.model_validate_json(line).key


def _code(deps: list[dict[str, Any]]) -> str:
    """One hash of all code that the lock names."""
    named = [(one["path"], one["md5"]) for one in deps if re.match(r"(astra|stages|launch)\b", one["path"])]
    return hashlib.sha256(json.dumps(sorted(named)).encode()).hexdigest()
