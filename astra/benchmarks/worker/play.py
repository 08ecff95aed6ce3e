"""The life of one run: a process of its own, forked from the server when the benchmark is loaded there.

Each line that comes in is answered by one line: ``{"ask": ...}``, ``{"over": true}``, ``{"verdict": ...}``, or
``{"error": {...}}`` after which there is nothing more to come.
"""

from __future__ import annotations

import json
import os
import random
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from astra.benchmarks.types import Bench, Playing, Reply
from astra.benchmarks.worker.channel import Lines, line_of, write_all


def become_run(
    bench: Bench, case: str, trial: int, incoming: int, outgoing: int, confine: Callable[[], None]
) -> NoReturn:
    """Play until the server closes its end or takes the verdict; the process ends here, whatever happens."""
    try:
        playing = None
        for line in Lines(incoming):
            try:
                if playing is None:
                    confine()
                    random.seed(f"{case}:{trial}")
                    playing = bench.start(case, trial)
                answer = _answer(playing, json.loads(line))
            except BaseException as error:  # foreign code: whatever it raises is this run's error
                answer = {"error": {"reason": "harness_error", "detail": described(error)}}
            write_all(outgoing, line_of(answer))
            if "verdict" in answer or "error" in answer:
                break
    finally:
        os._exit(0)


def _answer(playing: Playing, request: dict[str, Any]) -> dict[str, Any]:
    if request["verb"] == "score":
        return {"verdict": playing.verdict().model_dump()}
    if request["verb"] == "step":
        playing.take(Reply.model_validate(request["reply"]))
    ask = playing.turn()
    return {"over": True} if ask is None else {"ask": ask.model_dump()}


def described(error: BaseException) -> str:
    """Type, message and where in the code it was raised."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(places[-1].filename)}:{places[-1].lineno}, in {places[-1].name})" if places else ""
    return f"{type(error).__name__}: {str(error)[:500]}{where}"
