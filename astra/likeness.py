"""Which written tasks are one: the same question, or one too like an earlier question for the same tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from astra.drafts import Refusal
from astra.encoder import Encoder, open_encoder
from astra.records import Kind, Section, Task


class Likeness(Section):
    encoder: str = Field(min_length=1, description="builtin, or a sentence-transformers model.")
    most: float = Field(
        ge=0, le=1, description="Cosine to an earlier task for the same tools from which one is dropped."
    )


def sifted(written: Sequence[Task | Refusal], likeness: Likeness) -> tuple[list[Task], list[Refusal]]:
    """What is to be judged, and what was refused before."""
    once = list(without_duplicates(written))
    tasks = [one for one in once if isinstance(one, Task)]
    encoder = open_encoder(likeness.encoder, [one.question for one in tasks])
    single = list(without_near_duplicates(tasks, encoder, likeness.most))
    refusals = [one for one in (*once, *single) if isinstance(one, Refusal)]
    return [one for one in single if isinstance(one, Task)], refusals


def without_duplicates(tasks: Iterable[Task | Refusal]) -> Iterator[Task | Refusal]:
    """The same, with a task whose question its servers already have in this kind turned into a Refusal."""
    seen: dict[tuple[tuple[str, ...], Kind, str], str] = {}
    for one in tasks:
        if isinstance(one, Task):
            asked = (one.server_ids, one.kind, one.question.casefold())
            if asked in seen:
                yield Refusal(one.id, "duplicate", f"same question as {seen[asked]}")
                continue
            seen[asked] = one.id
        yield one


def without_near_duplicates(tasks: Sequence[Task], encoder: Encoder, most: float) -> Iterator[Task | Refusal]:
    """The same, with a task that is too like an earlier one of its kind, for the same tools, turned into a Refusal."""
    vectors = encoder.encode([" ".join([one.question, *(turn.says for turn in one.turns)]) for one in tasks])
    kept: dict[tuple[Any, ...], list[int]] = {}
    for row, one in enumerate(tasks):
        group = kept.setdefault((one.server_ids, one.kind, one.target_tools), [])
        cosines = vectors[group] @ vectors[row] if group else np.zeros(1, dtype=np.float32)
        nearest = int(cosines.argmax())
        if group and cosines[nearest] >= most:
            other = tasks[group[nearest]]
            yield Refusal(one.id, "near_duplicate", f"{cosines[nearest]:.3f} to {other.id}: {one.question[:200]}")
            continue
        group.append(row)
        yield one
