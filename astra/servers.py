"""Servers by name in params, and the tools of several servers side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from astra.records import Server, ToolSpec
from astra.stage import StageError


def check_names(key: str, named: Iterable[str], servers: Iterable[Server]) -> None:
    """Raises StageError where a key of params.yaml names servers that are not there."""
    known = {server.name for server in servers}
    unknown = sorted(set(named) - known)
    if unknown:
        raise StageError(
            f"params.yaml: {key}: no server {unknown}; servers are: {sorted(known)}. "
            "If it is a live server that did not start, data/normalize/rejects.jsonl says why"
        )


def pool(servers: Sequence[Server], wanted: Iterable[str]) -> tuple[ToolSpec, ...]:
    """The tools of all servers; of those of one name only the first, and only if wanted: two cannot be told apart."""
    counts = Counter(tool.name for server in servers for tool in server.tools)
    needed = set(wanted)
    found: dict[str, ToolSpec] = {}
    for tool in (tool for server in servers for tool in server.tools):
        if counts[tool.name] == 1 or tool.name in needed:
            found.setdefault(tool.name, tool)
    return tuple(found.values())
