"""Our adapter, case after case, driven over HTTP as bfcl_handler.py drives the package's: same lines in, same lines out.

python bfcl_ours.py FOLDER VERSION BASE_URL
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from astra.benchmarks.types import Ask, CallText, Reply
from astra.benchmarks.worker import load
from astra.benchmarks.worker.bfcl import BfclPlaying
from astra.benchmarks.worker.packages import take_from

FOLDER, VERSION, BASE_URL = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def asked(ask: Ask) -> Reply:
    body = {"model": "package", "messages": ask.messages, "tools": ask.tools, **ask.options}
    request = urllib.request.Request(
        f"{BASE_URL}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        message: dict[str, Any] = json.load(response)["choices"][0]["message"]
    calls = [CallText(id=one["id"], **one["function"]) for one in message.get("tool_calls", [])]
    return Reply(content=message["content"], tool_calls=calls)


def main() -> None:
    answers_to, sys.stdout = sys.stdout, sys.stderr
    take_from(FOLDER)
    bench = load("bfcl", FOLDER, {"version": VERSION})
    for line in sys.stdin:
        case = json.loads(line)["case"]
        playing = bench.start(case, 0)
        assert isinstance(playing, BfclPlaying)
        while (ask := playing.turn()) is not None:
            playing.take(asked(ask))
        turns = playing.turns[: len(playing.case.answer)] if playing.over else playing.turns
        decoded = [[[call.text for call in step] for step in turn] for turn in turns]
        note = ":".join(playing.verdict().note.split(":")[:2])
        _forget(playing)
        print(json.dumps({"case": case, "decoded": decoded, "note": note}), file=answers_to, flush=True)


def _forget(playing: BfclPlaying) -> None:
    """What a worker gets by a process for each run."""
    executor = playing.package.executor
    for name in [one for one in vars(executor) if one.endswith("_instance")]:
        delattr(executor, name)


if __name__ == "__main__":
    main()
