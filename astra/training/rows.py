"""Conversations to imitate, encoded: what is said in one, on which side of the hold-out it lies, and their file."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from astra.chat import Encoded
from astra.records import Message, ToolSpec


class Row(NamedTuple):
    """A conversation to imitate."""

    id: str
    origin: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    parent: str = ""  # the conversation, where the row is its beginning up to one turn
    turn: int | None = None


def question_of(messages: Sequence[Message]) -> str:
    return next((message.content or "" for message in messages if message.role == "user"), "")


def text_of(messages: Sequence[Message]) -> str:
    """All that is said, called and answered."""
    calls = (call.function.arguments for message in messages for call in message.tool_calls)
    return "\n".join([*(message.content or "" for message in messages), *calls])


def write_rows(path: Path, kept: Iterable[tuple[Row, Encoded]]) -> None:
    """Token arrays as Parquet: id, origin, input_ids (int32), mask (int8), and the parent and turn of a split one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = ["id", "origin", "input_ids", "mask", "parent", "turn"]
    frame = pd.DataFrame(
        [(row.id, row.origin, one.ids, one.mask, row.parent, row.turn or 0) for row, one in kept], columns=columns
    )
    frame.to_parquet(path, index=False)


def summary(kept: Sequence[tuple[Row, Encoded]], losses: Sequence[dict[str, float]]) -> dict[str, Any]:
    lengths = [len(one.ids) for _, one in kept]
    trained = [sum(one.mask) for _, one in kept]
    return {
        "imitation": sum(row.origin == "imitation" for row, _ in kept),
        "demonstrations": sum(row.origin == "demonstration" for row, _ in kept),
        "demonstration_share": round(fmean(row.origin == "demonstration" for row, _ in kept), 4),
        "tokens": sum(lengths),
        "trained_tokens": sum(trained),
        "mean_length": round(fmean(lengths), 2),
        "trained_tokens_a_row": {"min": min(trained), "mean": round(fmean(trained), 2), "max": max(trained)},
        "final_loss": round(fmean(one["loss"] for one in losses[-5:]), 4),
    }


def set_apart(
    kept: Sequence[tuple[Row, Encoded]], share: float, seed: int
) -> tuple[list[tuple[Row, Encoded]], list[tuple[Row, Encoded]]]:
    """What is trained on and what its loss is measured on; all attempts at one question are on one side."""
    sides: tuple[list[tuple[Row, Encoded]], list[tuple[Row, Encoded]]] = ([], [])
    for row, encoded in kept:
        about = (
            (row.parent or row.id).rpartition(":")[0] if row.origin == "demonstration" else question_of(row.messages)
        )
        sides[random.Random(f"{seed}:apart:{about}").random() < share].append((row, encoded))
    return sides if sides[0] else (list(kept), [])
