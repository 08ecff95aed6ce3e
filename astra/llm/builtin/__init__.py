"""The built-in teacher: rules behind the same seam as an endpoint. Text in, text out; it is given the Request only.

A request with tools is an agent's turn. Any other is told by the title line of its first message (``# Graph: propose
chains``) and carries its input as JSON in the fenced block under ``## Input``. Randomness is drawn from the request.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from typing import Any

from astra.llm.builtin import agent, arenas, emulate, graph_tasks, judging, retelling, scoring, tasks
from astra.llm.errors import RequestRefused
from astra.llm.types import Completion, Request
from astra.records import Usage

Handler = Callable[[Any, random.Random], Any]

HANDLERS: dict[str, Handler] = {
    "Trajectories: emulate a tool": lambda shown, rng: emulate.emulate(shown),
    **graph_tasks.HANDLERS,
    **retelling.HANDLERS,
    **tasks.HANDLERS,
    **judging.HANDLERS,
    **scoring.HANDLERS,
    **arenas.HANDLERS,
}

_TITLE = re.compile(r"^# (.+?)[ \t]*$", re.MULTILINE)
_INPUT = re.compile(r"^## Input\s*\n+```(?:json)?\n(.*?)\n```", re.MULTILINE | re.DOTALL)


class BuiltinTransport:
    """Answers at once, by rules."""

    async def send(self, request: Request) -> Completion:
        """One reply. Raises RequestRefused for a prompt that no rule is for."""
        await asyncio.sleep(0)
        if request.tools:
            return agent.turn(request, random.Random(f"{request.seed}:{request.sample}:{_conversation(request)}"))
        title, payload = _read(request)
        if title not in HANDLERS:
            raise RequestRefused("bad_request", f"no rule for {title!r}; rules are for: {', '.join(sorted(HANDLERS))}")
        rng = random.Random(f"{request.seed}:{request.sample}:{payload}")
        said = HANDLERS[title](json.loads(payload), rng)
        reply = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        return Completion(content=reply, finish_reason="stop", usage=_usage(request, reply))


def _read(request: Request) -> tuple[str, str]:
    """Title and input of a prompt. Raises RequestRefused where it has none."""
    text = request.messages[0].content or ""
    title, found = _TITLE.search(text), _INPUT.search(text)
    if title is None or found is None:
        raise RequestRefused("bad_request", f"the built-in teacher reads '# title' and '## Input', not: {text[:80]!r}")
    return title.group(1), found.group(1)


def _conversation(request: Request) -> str:
    return json.dumps([[message.role, message.content] for message in request.messages])


def _usage(request: Request, reply: str) -> Usage:
    """Tokens as four characters each."""
    asked = sum(len(message.content or "") for message in request.messages)
    return Usage(calls=1, prompt_tokens=asked // 4, completion_tokens=len(reply) // 4)
