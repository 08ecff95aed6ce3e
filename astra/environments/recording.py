"""What live servers answered, kept in a file to be answered again: a run can be repeated where the servers are not.

``record`` makes a call once and keeps its answer for good: a call that the file holds is not made again. ``replay``
starts no server; a call that the file does not hold stops the stage, for nothing can stand in for the answer. Only
answers are kept, an error that a tool returns among them; a server that dies or is late answers nothing.

The file is an input (``data/raw/recordings/live.jsonl``), sorted by call, so that the same calls make the same bytes
in whatever order they were answered. Calls stand under the server's id, which its document makes: another version of a
server is another server, and none of its answers are taken from the old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from astra.environments.base import EnvironmentUnavailable
from astra.live import CallResult
from astra.records import Record, canonical
from astra.stage import read_records, write_records

Mode = Literal["live", "record", "replay"]


class CallsLive(Protocol):
    """Whoever answers the calls of live tools."""

    async def call(self, server: str, tool: str, text: str) -> CallResult:
        """What a tool (by its wire name) answers to arguments as JSON text."""
        ...


class LiveAnswer(Record):
    """One line of a recording."""

    server_id: str
    tool: str
    arguments: dict[str, Any]
    text: str
    is_error: bool

    @property
    def key(self) -> str:
        return canonical([self.server_id, self.tool, self.arguments])


class Recording:
    """The answers of a file, by call."""

    def __init__(self, file: Path | str) -> None:
        """Raises BadRecord for a line that is no answer. A file that is not there holds none."""
        self.file = Path(file)
        found = read_records(self.file, LiveAnswer) if self.file.is_file() else ()
        self._answers = {one.key: one for one in found}
        self._kept = len(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, server: str, tool: str, arguments: dict[str, Any]) -> CallResult | None:
        """The answer to a call, if it was recorded."""
        found = self._answers.get(canonical([server, tool, arguments]))
        return None if found is None else CallResult(found.text, found.is_error)

    def add(self, server: str, tool: str, arguments: dict[str, Any], answer: CallResult) -> None:
        """Keep an answer until ``save``."""
        line = LiveAnswer(server_id=server, tool=tool, arguments=arguments, text=answer.text, is_error=answer.is_error)
        self._answers.setdefault(line.key, line)

    def save(self) -> None:
        """Write the file, whole, where there is something new."""
        if len(self._answers) > self._kept:
            write_records(self.file, (self._answers[key] for key in sorted(self._answers)))
            self._kept = len(self._answers)


class Recorder:
    """Live calls, each made once for good."""

    def __init__(self, sessions: CallsLive, recording: Recording) -> None:
        self.sessions = sessions
        self.recording = recording

    async def call(self, server: str, tool: str, text: str) -> CallResult:
        """Raises what the sessions raise."""
        arguments = _arguments(text)
        found = self.recording.find(server, tool, arguments)
        if found is None:
            found = await self.sessions.call(server, tool, text)
            self.recording.add(server, tool, arguments, found)
        return found


class Replay:
    """Recorded answers, and nothing else."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    async def call(self, server: str, tool: str, text: str) -> CallResult:
        """Raises EnvironmentUnavailable for a call that was not recorded."""
        found = self.recording.find(server, tool, _arguments(text))
        if found is None:
            raise EnvironmentUnavailable(
                f"{self.recording.file}: {len(self.recording)} answers, none to {tool}({text[:200]}) of {server}. "
                f"Where the server can be reached: set trajectories.live to record, then: dvc repro trajectories"
            )
        return found


@contextmanager
def answered_live(sessions: CallsLive, mode: Mode, file: Path | str) -> Iterator[CallsLive]:
    """Who answers live calls. What was recorded is saved however the block ends.

    Raises BadRecord for a recording that cannot be read.
    """
    if mode == "live":
        yield sessions
        return
    recording = Recording(file)
    if mode == "replay":
        yield Replay(recording)
        return
    try:
        yield Recorder(sessions, recording)
    finally:
        recording.save()


def _arguments(text: str) -> dict[str, Any]:
    arguments = json.loads(text)
    assert isinstance(arguments, dict)  # the loop and the schema saw to that
    return arguments
