"""An endpoint that knows all of BFCL's answers; it tells the categories apart by the seed of a case's requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from astra.benchmarks.models import Draw
from astra.benchmarks.registry import BENCHMARKS
from astra.benchmarks.types import Ask, Reply
from tests.benchmarks import bfcl_models
from tests.benchmarks.chat_server import completion

CATEGORIES = [name for name in BENCHMARKS if name.startswith("bfcl_v4_")]


def oracle(environments: Path, seed: int) -> Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]:
    """The right calls of every first trial, as a ``ChatServer`` wants them."""
    turns: dict[int, list[list[str]]] = {}
    for name in CATEGORIES:
        for case, calls in bfcl_models.answers(environments, "v4", BENCHMARKS[name].category).items():
            turns[Draw(seed=seed, benchmark=name, case=case, trial=0, turn=0).number] = calls

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        messages = body["messages"]
        texts = turns[body["seed"]][sum(one["role"] == "user" for one in messages) - 1]
        if messages[-1]["role"] != "user" or not texts:
            return completion(bfcl_models.SAY)
        known = bfcl_models.parameters(Ask(messages=messages, tools=body["tools"]))
        calls = [bfcl_models.as_call(text, known, len(messages) + n) for n, text in enumerate(texts)]
        return completion(Reply(tool_calls=calls, stop="tool_calls"))

    return answer
