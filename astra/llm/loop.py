"""One event loop for all model calls of a stage: connections are reused, and stages stay plain synchronous code."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

from astra.records import Unavailable

A = TypeVar("A")
B = TypeVar("B")


class Loop:
    """Runs work, many items at a time, and hands results out in the order of the items.

    Opened as a context manager it keeps one event loop throughout; otherwise each call has one of its own.
    When the machinery fails, ``stopped`` says so: nothing new is sent, what is in flight is waited for and kept.
    """

    def __init__(self) -> None:
        self.stopped: Unavailable | None = None
        self._runner: asyncio.Runner | None = None
        self._begun: list[_Ordered[Any, Any]] = []  # maps that have not ended

    def run(self, work: Coroutine[Any, Any, A]) -> A:
        """The result of a coroutine."""
        with self._opened() as runner:
            return runner.run(work)

    def map(self, items: Iterable[A], work: Callable[[A], Awaitable[B]], at_once: int) -> Iterator[B]:
        """The results in the order of the items, which are taken from their source only as there is room.

        ``at_once`` items are worked on; at most eight times as many are held, finished ones included. The first
        Unavailable stops all: what is in flight ends first, since it is paid; so does Ctrl-C, and a second one cancels.
        Any other exception cancels the rest. What is not drawn to its end is ended where it is dropped, and at the
        latest when the loop is closed: an exception's traceback may hold it for longer than that.
        """
        ordered = _Ordered(self, items, work, at_once)
        with self._opened() as runner:
            self._begun.append(ordered)
            try:
                while batch := runner.run(ordered.batch()):
                    yield from batch
                self._begun.remove(ordered)
            except KeyboardInterrupt:
                if self.stopped is None:
                    print("waiting for what is in flight, to keep it; Ctrl-C again: stop at once", file=sys.stderr)
                    self.stopped = Unavailable("stopped by Ctrl-C")
                raise
            finally:
                self._end(ordered)

    def _end(self, ordered: _Ordered[Any, Any]) -> None:
        """Wait for what is in flight, or cancel it; nothing where this is done. Garbage collection may close a map
        while the loop works: it goes on with its tasks then.
        """
        if ordered not in self._begun:
            return
        assert self._runner is not None  # closing ends all of them
        if asyncio._get_running_loop() is not None:
            ordered.leave(cancel=self.stopped is None)
            return
        self._begun.remove(ordered)
        try:
            self._runner.run(ordered.end(cancel=self.stopped is None))
        except RuntimeError:  # a Ctrl-C just as a batch was done leaves the loop with an order to stop
            self._runner.run(ordered.end(cancel=self.stopped is None))

    @contextmanager
    def _opened(self) -> Iterator[asyncio.Runner]:
        if self._runner is not None:
            yield self._runner
            return
        with self:
            assert self._runner is not None
            yield self._runner

    def __enter__(self) -> Loop:
        self._runner = asyncio.Runner()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._runner is not None
        try:
            for ordered in list(self._begun):
                self._end(ordered)
        finally:
            self._runner.close()
            self._runner = None
            self._begun.clear()


class _Ordered(Generic[A, B]):
    """A window over the items: a pump starts work, the batches come out in order."""

    def __init__(self, loop: Loop, items: Iterable[A], work: Callable[[A], Awaitable[B]], at_once: int) -> None:
        self.loop = loop
        self.items = iter(items)
        self.work = work
        self.window: deque[asyncio.Task[B]] = deque()
        self.unfinished, self.at_once = 0, at_once
        self.held, self.most_held = 0, 8 * at_once
        self.exhausted = False
        self.failure: BaseException | None = None
        self.changed: asyncio.Event | None = None

    async def batch(self) -> list[B]:
        """The next results in order, at least one; none at the end."""
        if self.changed is None:
            self.changed = asyncio.Event()
        while True:
            self.changed.clear()
            self._fill()
            if self.failure is not None:
                await self.end(cancel=not isinstance(self.failure, Unavailable))
                raise self.failure
            done: list[B] = []
            while self.window and self.window[0].done() and self._failed(self.window[0]) is None:
                done.append(self.window.popleft().result())
            self.held -= len(done)
            if self.failure is not None:
                continue
            if done or (self.exhausted and not self.window):
                return done
            await self.changed.wait()

    def _fill(self) -> None:
        while not self.exhausted and self.failure is None:
            if self.unfinished >= self.at_once or self.held >= self.most_held:
                return
            try:
                item = next(self.items)
            except StopIteration:
                self.exhausted = True
                return
            task = asyncio.ensure_future(self._one(item))
            task.add_done_callback(self._ended)
            self.window.append(task)
            self.unfinished += 1
            self.held += 1

    async def _one(self, item: A) -> B:
        return await self.work(item)

    def _ended(self, task: asyncio.Task[B]) -> None:
        self.unfinished -= 1
        assert self.changed is not None
        self._failed(task)
        is_next = not self.window or task is self.window[0]
        if is_next or self.unfinished <= self.at_once // 2 or self.failure is not None:
            self.changed.set()

    def _failed(self, task: asyncio.Task[B]) -> BaseException | None:
        """Note how a finished task failed; the first failure is what the caller sees."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and self.failure is None:
            self.failure = error
            if isinstance(error, Unavailable) and self.loop.stopped is None:
                self.loop.stopped = error
        return error

    def leave(self, cancel: bool) -> None:
        """Start nothing new, and cancel what is in flight if so wished."""
        self.exhausted = True
        for task in self.window:
            if cancel:
                task.cancel()

    async def end(self, cancel: bool) -> None:
        """Wait for what is in flight, or cancel it."""
        self.leave(cancel)
        await asyncio.gather(*self.window, return_exceptions=True)
        self.window.clear()
