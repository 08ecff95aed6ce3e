"""Several workers side by side: jobs in, results in the order of the jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count

from astra.sandbox.types import Job, Result
from astra.sandbox.worker import Conditions, Worker

# Two settings of everything that a tool's answer must not depend on; the second is about eleven years later.
CONDITIONS = (
    Conditions(),
    Conditions(hash_seed=4_242, random_seed=97, clock_s=350_000_000, time_zone="<+0545>-5:45", locale="de_DE.UTF-8"),
)


class Pool:
    """Workers under alternating conditions; at least two, so that every job can be run under both."""

    def __init__(self, start: Callable[[Conditions, int], Worker], workers: int) -> None:
        if workers < 2:
            raise ValueError(f"a pool has at least two workers, got {workers}")
        self.workers = [start(CONDITIONS[slot % len(CONDITIONS)], slot) for slot in range(workers)]
        self.backend = self.workers[0].backend
        # For the pool's whole life: bubblewrap ends a server with the thread that started it.
        self._threads = ThreadPoolExecutor(workers)

    def map(self, jobs: Sequence[Job]) -> list[list[Result]]:
        """Every job once, on whichever worker is free. Raises SandboxUnavailable."""
        return self._all((self.workers, jobs))[0]

    def both(self, first: Sequence[Job], second: Sequence[Job]) -> tuple[list[list[Result]], list[list[Result]]]:
        """Two lists of jobs, each under one of the two conditions, on different servers. Raises SandboxUnavailable."""
        groups = [self.workers[slot :: len(CONDITIONS)] for slot in range(len(CONDITIONS))]
        under_one, under_other = self._all(*zip(groups, (first, second), strict=True))
        return under_one, under_other

    def _all(self, *shares: tuple[Sequence[Worker], Sequence[Job]]) -> list[list[list[Result]]]:
        """The results of each share of jobs, made by its workers; all shares at once."""
        found: list[list[list[Result]]] = [[[] for _ in jobs] for _, jobs in shares]
        working = []
        for (workers, jobs), results in zip(shares, found, strict=True):
            following = count()
            working += [self._threads.submit(_work, one, jobs, following, results) for one in workers]
        wait(working)  # all of them, so that no worker is in use when an error is raised
        for one in working:
            one.result()
        return found

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._threads.shutdown()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work(worker: Worker, jobs: Sequence[Job], following: Iterator[int], results: list[list[Result]]) -> None:
    while (one := next(following)) < len(jobs):
        results[one] = worker.run(jobs[one])
