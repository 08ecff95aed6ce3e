"""What a lineage is made of: records, the gates that each passed or failed, and what they were made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Gate:
    """One test that a record passed, failed or was only noted by, with what it found."""

    name: str
    outcome: Literal["passed", "failed", "noted"]
    reason: str


@dataclass(frozen=True)
class Made:
    """What a stage's output rests on besides its inputs, as dvc.lock has it for the file that was read."""

    stage: str
    seed: int | None = None
    models: dict[str, str] = field(default_factory=dict)
    prompts: str | None = None  # md5 of the stage's prompt folder
    code: str | None = None  # sha256 over the md5s of all its code
    current: bool = True  # whether the file is the one that dvc.lock speaks of
    replies: tuple[str, ...] = ()  # keys of the kept replies that the record's text stands in


@dataclass(frozen=True)
class Node:
    """One record, where it stands, how it was made, and its parents."""

    kind: str
    id: str
    where: str
    says: str = ""
    made: Made | None = None
    gates: tuple[Gate, ...] = ()
    parents: tuple[Node, ...] = ()
    missing: bool = False  # it is named by another record, and nowhere to be found

    def walk(self) -> Iterator[Node]:
        """The node and all above it."""
        yield self
        for parent in self.parents:
            yield from parent.walk()


@dataclass(frozen=True)
class Item:
    """A record that a forward lineage came to."""

    id: str
    says: str
    parents: tuple[str, ...] = ()  # of those that the lineage came through
    reason: str | None = None  # why it went no further, for a reject
    rejected_by: str | None = None


@dataclass(frozen=True)
class Level:
    """All records of one kind that came of the start, and those that did not get there."""

    kind: str
    stage: str
    items: tuple[Item, ...]
    rejects: tuple[Item, ...] = ()
    note: str = ""


def as_json(value: Node | Level) -> dict[str, Any]:
    return asdict(value)
