"""Conversations a second, against the models' own work: what the loop, the emulator's checks and the servers cost.

The tasks of the default are played as the stage plays them, live servers included. The same requests to policy and
emulator are then answered once more by the built-in rules with nothing around them: that time is the limit, since no
stage can be faster than the models it asks. Needs data/normalize and data/tasks (dvc repro tasks).

    python -m bench.trajectories [conversations]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from astra.llm import TRANSPORTS, Completion, Request
from astra.llm.builtin import BuiltinTransport
from astra.llm.store import ReplyStore
from astra.llm.types import Role
from astra.records import Task
from astra.stage import read_records, write_records
from stages import trajectories

LEAST = 50.0  # conversations a second on two cores


class Noting:
    """The built-in rules, with every request kept."""

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests
        self.rules = BuiltinTransport()

    async def send(self, request: Request) -> Completion:
        self.requests.append(request)
        return await self.rules.send(request)


async def answered(requests: Sequence[Request]) -> None:
    rules = BuiltinTransport()
    for request in requests:
        await rules.send(request)


class Played(NamedTuple):
    conversations: int
    took_s: float
    cpu_s: float  # of this process; on a busy machine the better measure


def played(n: int, requests: list[Request]) -> Played:
    """Play the first n tasks in a folder of its own."""
    tasks = list(read_records(trajectories.CONTRACT.reads["tasks"], Task))[:n]

    def noting(role: Role, store: ReplyStore | None) -> Noting:
        return Noting(requests)

    TRANSPORTS["builtin"] = noting
    contract = trajectories.CONTRACT
    root = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for path in (*contract.reads.values(), "params.yaml", "data/raw"):
            target = Path(folder) / path
            if not target.exists() and (root / path).exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(root / path)
        link = Path(folder) / contract.reads["tasks"]
        link.unlink()
        write_records(link, tasks)
        with contextlib.chdir(folder):
            begun, cpu = time.perf_counter(), time.process_time()
            trajectories.main()
            took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
            metrics = json.loads(Path(contract.metrics).read_text())
    return Played(int(metrics["in"]), took_s, cpu_s)


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    requests: list[Request] = []
    stage = played(n, requests)
    cpu = time.process_time()
    asyncio.run(answered(requests))
    limit_s = time.process_time() - cpu
    rate = stage.conversations / stage.took_s
    print(f"{stage.conversations} conversations, {len(requests)} model calls")
    print(f"stage: {stage.took_s:.1f} s, {rate:.0f} conversations a second (wanted: {LEAST:.0f})")
    print(f"its CPU time: {stage.cpu_s:.1f} s, {stage.conversations / stage.cpu_s:.0f} conversations a second")
    print(f"the models alone: {limit_s:.1f} s of CPU; the stage takes {stage.cpu_s / limit_s:.2f} times that")
    raise SystemExit(rate < LEAST)


if __name__ == "__main__":
    main()
