"""A conversation as a judge reads it: bounded, without system messages and without what only training needs."""

from __future__ import annotations

from typing import Any

from astra.evidence import own_words
from astra.records import Message, ToolSpec, Trajectory


def shown(trajectory: Trajectory, max_shown: int) -> dict[str, Any]:
    """The conversation as the judge reads it; places are counted without the system messages."""
    late = {one.message: one.tools for one in trajectory.late}
    n_system, offered, lines = 0, [_offered(tool, 0, max_shown) for tool in trajectory.tools], []
    for place, message in enumerate(trajectory.messages):
        if message.role == "system":
            n_system += 1
            continue
        offered += [_offered(tool, place - n_system, max_shown) for tool in late.get(place, ())]
        lines.append(_line(message, place in late, max_shown))
    return {"tools": offered, "messages": lines}


def _offered(tool: ToolSpec, start: int, max_shown: int) -> dict[str, Any]:
    """A tool; ``from`` is the place of the message that brings it."""
    line: dict[str, Any] = {"name": tool.name, "description": clipped(tool.description, max_shown)}
    needs = tool.parameters.get("required", [])
    return line | ({"needs": needs} if needs else {}) | ({"from": start} if start else {})


def _line(message: Message, brings_tools: bool, max_shown: int) -> dict[str, Any]:
    line: dict[str, Any] = {"role": message.role, "content": clipped(own_words(message, brings_tools), max_shown)}
    if message.tool_calls:
        calls = [call.function for call in message.tool_calls]
        line["calls"] = [{"name": call.name, "arguments": clipped(call.arguments, max_shown)} for call in calls]
    if message.role == "tool":
        line["failed"] = message.is_error
        if message.fault is not None:
            line["injected"] = message.fault
    return line


def clipped(text: str, limit: int) -> str:
    """A text of bounded length: of a longer one its beginning and its end."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 3 // 4]} [... {len(text) - limit} characters left out ...] {text[-(limit // 4) :]}"
