"""Several workers side by side: jobs in, results in the order of the jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from astra.sandbox.types import Job, Result
from astra.sandbox.worker import Conditions, Worker

# Two settings of everything that a tool's answer must not depend on; the second is about eleven years later.
CONDITIONS = (Conditions(), Conditions(hash_seed=4_242, random_seed=97, clock_s=350_000_000))


class Pool:
    """Workers under alternating conditions; at least two, so that every job can be run under both."""

    def __init__(self, start: Callable[[Conditions, int], Worker], workers: int) -> None:
        if workers < 2:
            raise ValueError(f"a pool has at least two workers, got {workers}")
        self.workers = [start(CONDITIONS[slot % len(CONDITIONS)], slot) for slot in range(workers)]
        self.backend = self.workers[0].backend

    def map(self, jobs: Sequence[Job]) -> list[list[Result]]:
        """Every job once, on whichever worker is free. Raises SandboxUnavailable."""
        return self._on(self.workers, jobs)

    def both(self, first: Sequence[Job], second: Sequence[Job]) -> tuple[list[list[Result]], list[list[Result]]]:
        """Two lists of jobs, each under one of the two conditions, on different servers. Raises SandboxUnavailable."""
        groups = [self.workers[slot :: len(CONDITIONS)] for slot in range(len(CONDITIONS))]
        with ThreadPoolExecutor(len(groups)) as threads:
            results = list(threads.map(self._on, groups, (first, second)))
        return results[0], results[1]

    def _on(self, workers: Sequence[Worker], jobs: Sequence[Job]) -> list[list[Result]]:
        results: list[list[Result]] = [[] for _ in jobs]
        following = count()

        def work(worker: Worker) -> None:
            while (one := next(following)) < len(jobs):
                results[one] = worker.run(jobs[one])

        with ThreadPoolExecutor(len(workers)) as threads:
            for done in [threads.submit(work, worker) for worker in workers]:
                done.result()
        return results

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
