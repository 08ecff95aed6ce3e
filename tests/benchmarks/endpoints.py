"""Playing the sums over an endpoint: as a function for tests, and as a program that can be killed.

python -m tests.benchmarks.endpoints COUNT TRIALS    (the address is in the environment)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from astra.benchmarks.models import Endpoint, Endpoints, purse_of
from astra.benchmarks.playing import Failure, InProcess, Outcome, Sitting, journal_of, play_all
from astra.llm.loop import Loop
from astra.llm.types import Budget, Price, Settings
from tests.benchmarks.sums import Sums

MODEL = Endpoint(transport="openai", name="m", temperature=0.6, max_tokens=64, top_p=0.95)


def settings(concurrency: int = 4, attempts: int = 2, stage_usd: float | None = None) -> Settings:
    return Settings(
        concurrency=concurrency, attempts=attempts, timeout_s=20, deadline_s=40, max_wait_s=0.05,
        budget=Budget(stage_usd=stage_usd, run_usd=None), prices={"m": Price(prompt=1000, completion=0)},
    )  # fmt: skip


def played(bench: Sums, how: Settings, trials: int = 1, model: Endpoint = MODEL) -> Sequence[Outcome | Failure]:
    """What comes of all cases; printed figures of the model are left in ``played.usage``."""
    with Loop() as loop:
        endpoints = Endpoints(how, loop, purse_of(how))
        try:
            asked = endpoints.open("mine", model)
            sitting = Sitting("sums", [one.id for one in bench.cases()], trials, seed=3)
            worker = InProcess(bench)
            journal = journal_of(sitting, worker, asked, None, {})
            found = list(play_all(sitting, worker, asked, None, journal, loop))
            usage.clear()
            usage.update(asked.usage())
            return found
        finally:
            endpoints.close()


usage: dict[str, object] = {}

if __name__ == "__main__":
    for one in played(Sums(int(sys.argv[1])), settings(), int(sys.argv[2])):
        print(one.model_dump_json())
