"""The built-in policy's chat, whose tokenizer is made from a run's own tools, knowledge and words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from astra.chat import BUILTIN_PHRASES, Chat, build_tokenizer
from astra.records import Arena
from astra.training.demonstrations import label_of
from astra.training.rows import Row


def make_chat(rows: Sequence[Row], arenas: Sequence[Arena], pieces: int) -> Chat:
    """The built-in policy's chat: a tokenizer over this run's tools and entities, and words of its conversations."""
    tools = [tool.spec for arena in arenas if arena.split == "train" for tool in arena.tools]
    entities = {str(value) for arena in arenas for probe in arena.probes for value in probe.arguments.values()}
    names = (
        entities
        | {spec.name for spec in tools}
        | {spec.description for spec in tools}
        | {label_of(spec) for spec in tools}
    )
    plain = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)))
    texts = [
        piece
        for row in rows[:: max(1, len(rows) // 2000)]
        for message in row.messages
        for piece in plain.split(message.content or "")
    ]
    schemas = [
        f"{spec.name}({', '.join(spec.parameters.get('properties', {}))}): {spec.description}"
        for row in rows[:200]
        for spec in row.tools
    ]
    return Chat(build_tokenizer([*texts, *schemas], names, BUILTIN_PHRASES, pieces))
