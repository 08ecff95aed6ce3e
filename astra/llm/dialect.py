"""What a server takes, found out by asking: each 400 is answered with the next plainer form, and what worked is kept.

Structured output as ``json_schema``, ``json_object`` or not at all; the token limit under its newer name; no seed; tool
schemas without patterns and formats. When no form works, the server's own message is what the caller sees.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from astra.llm.types import Request
from astra.records import ToolSpec

FORMS = ("json_schema", "json_object", "plain")
GRAMMAR = ("grammar", "schema", "pattern", "regex")
STRUCTURED = (
    "response_format",
    "json_schema",
    "json_object",
    "structured",
    "grammar",
    "type",
    "schema",
    "json",
    "guided",
)
UNKNOWN_LIMIT = re.compile(r"max_completion_tokens|(?:not supported|unsupported|unknown|unrecognized)[^.]*\bmax_tokens|"
                           r"\bmax_tokens\W*(?:is )?(?:not supported|unsupported|unknown)")  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """One way to ask."""

    form: str = FORMS[0]
    limit_name: str = "max_tokens"
    seed: bool = True
    plain_tools: bool = False

    def plainer(self, request: Request, said: str, guess: bool = False) -> Dialect | None:
        """The next plainer way after a 400 with these words; None where nothing is left to try.

        ``guess``: nothing is known yet of the server's structured output, so it is tried whatever the words are.
        """
        said = said.lower()
        if self.limit_name == "max_tokens" and UNKNOWN_LIMIT.search(said):
            return dataclasses.replace(self, limit_name="max_completion_tokens")
        if self.seed and "seed" in said:
            return dataclasses.replace(self, seed=False)
        if (
            request.tools
            and not self.plain_tools
            and (any(word in said for word in GRAMMAR) or _is_rich(request.tools))
        ):
            return dataclasses.replace(self, plain_tools=True)
        is_said = guess or any(word in said for word in STRUCTURED)
        if request.json_schema is not None and self.form != FORMS[-1] and is_said:
            return dataclasses.replace(self, form=FORMS[FORMS.index(self.form) + 1])
        return None

    def body(self, request: Request) -> dict[str, Any]:
        """The body of a chat completion request."""
        model = request.model
        body: dict[str, Any] = {
            "model": model.name,
            "messages": [message.openai() for message in request.messages],
            "temperature": model.temperature,
            self.limit_name: model.max_tokens,
            **model.extra,
        }
        if model.top_p is not None:
            body["top_p"] = model.top_p
        if self.seed:
            body["seed"] = request.seed + request.sample
        if request.tools:
            tools = [tool.openai() for tool in request.tools]
            body["tools"] = [plain(tool) for tool in tools] if self.plain_tools else tools
        if request.json_schema is not None and self.form == "json_schema":
            schema = {"name": "reply", "schema": request.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif request.json_schema is not None and self.form == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body


_DROPPED = {"pattern", "format", "maxLength", "minLength", "maxItems", "minItems"}


def plain(value: Any, is_properties: bool = False) -> Any:
    """A schema without what some servers' grammar compilers refuse; property names stay, whatever they are."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: plain(one, is_properties=name == "properties" and not is_properties)
        for name, one in value.items()
        if is_properties or name not in _DROPPED
    }


def _is_rich(tools: Sequence[ToolSpec]) -> bool:
    """Whether a plain form would leave anything out."""
    return any(plain(tool.parameters) != tool.parameters for tool in tools)


def suspect(tools: Sequence[ToolSpec]) -> str:
    """The tool whose schema a server most likely choked on: one with a look-around, else the longest."""
    texts = {tool.name: json.dumps(tool.parameters, ensure_ascii=False) for tool in tools}
    looking = [name for name, text in texts.items() if any(mark in text for mark in ("(?=", "(?!", "(?<"))]
    return looking[0] if looking else max(texts, key=lambda name: len(texts[name]))
