"""JSON lines over file descriptors: between the main process and the server, and between the server and a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

MAX_LINE = 64 << 20  # the longest conversation of a benchmark has 0.2 MB


class TooLong(Exception):
    """A line of more than MAX_LINE bytes."""


def line_of(message: Mapping[str, Any]) -> bytes:
    """ASCII, so that the line has no other newline and even half a surrogate pair gets through."""
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


class Lines:
    """The lines that come in on a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._parts: list[bytes] = []
        self._length = 0

    def read(self) -> list[bytes]:
        """The lines that one reading completes, maybe none; ``ended`` is set at the end. Raises TooLong."""
        part = os.read(self.fd, 1 << 18)
        self.ended = not part
        self._length += len(part)
        if self._length > MAX_LINE:
            raise TooLong(f"a line of more than {MAX_LINE} bytes")
        self._parts.append(part)
        if b"\n" not in part:
            return []
        *whole, rest = b"".join(self._parts).split(b"\n")
        self._parts, self._length = [rest], len(rest)
        return whole

    def __iter__(self) -> Iterator[bytes]:
        """All lines to the end. Raises TooLong."""
        while not self.ended:
            yield from self.read()
