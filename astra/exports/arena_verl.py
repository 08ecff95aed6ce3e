"""Arenas for verl: Parquet rows, and the reward function that is named in its configuration.

    reward_model.custom_reward_function: {path: astra_reward.py, name: compute_score}

A row's ``extra_info`` holds the tools as JSON text, ``reward_model.ground_truth`` the arena as JSON text. The reward
function reads the calls in the response (turns in ChatML, calls in whatever form of text the model writes them), makes
them again in our sandbox and pays for them by F1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from astra.exports.playing import Called, Play
from astra.llm.tool_text import with_calls
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Arena, Usage

DATA_SOURCE = "astra_arenas"
_TURN = re.compile(
    r"<\|im_start\|>assistant\s*|<\|im_end\|>|<\|im_start\|>(?:user|tool|system)\b.*?<\|im_end\|>", re.DOTALL
)
_NOBODY = ModelParams(transport="builtin", name="response", temperature=0, max_tokens=16)


def row(arena: Arena, system: str, place: int) -> dict[str, Any]:
    """One row of the Parquet file."""
    tools = [tool.spec.openai() for tool in arena.tools]
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "system", "content": system}, {"role": "user", "content": arena.question}],
        "ability": "tool_use",
        "reward_model": {"style": "rule", "ground_truth": arena.model_dump_json()},
        "extra_info": {
            "index": place,
            "split": arena.split,
            "arena_id": arena.id,
            "tools": json.dumps(tools, ensure_ascii=False),
        },
    }


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None
) -> float:
    """What a response pays, in [0, 1]. Raises SandboxUnavailable, never a number, where the tools cannot be run."""
    if data_source != DATA_SOURCE:
        raise ValueError(f"data_source is {data_source!r}, this pays for {DATA_SOURCE!r} only")
    play = Play(ground_truth)
    final: str | None = None
    for text in turns(solution_str):
        calls, said = _calls(text, play)
        if calls:
            play.turn(calls)
        final = None if calls else said
    return play.reward(final)


def turns(response: str) -> list[str]:
    """The assistant's own messages in a response that holds tool results between them."""
    return [text for part in _TURN.split(response) if (text := part.strip())]


def _calls(text: str, play: Play) -> tuple[Sequence[Called], str]:
    request = Request(model=_NOBODY, messages=(), tools=tuple(tool.spec for tool in play.arena.tools))
    usage = Usage(calls=1, prompt_tokens=0, completion_tokens=0)
    read = with_calls(Completion(text, "stop", usage), request)
    return [(one.function.name, one.function.arguments) for one in read.tool_calls], read.content or ""
