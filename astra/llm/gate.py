"""How many requests are in flight at once: never more than allowed, fewer where the server pushes back.

Additive increase, multiplicative decrease (Chiu and Jain 1989): a 429 or 503 takes the limit down by a third, at most
once per round trip, and every round of successes gives one slot back. Latency counts only where it buys nothing: when
the median over a window is three times the best seen and no more replies a second come out, the limit shrinks too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from statistics import median

SHRINK = 0.7
SLOW = 3.0  # times the best median latency
GAIN = 1.1  # replies a second that more latency must buy
FEW = 16  # the smallest window of latencies that says anything


class Gate:
    """Admits requests of one event loop. ``most`` is the upper limit; the limit in force is ``limit``."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.in_flight = 0
        self.least = float(most)  # the lowest limit that was in force, for the metrics
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._open_at = 0.0
        self._shrunk_at = 0.0
        self._latencies: list[float] = []
        self._window_began = 0.0
        self._best: tuple[float, float] | None = None  # median latency in s, replies a second

    async def enter(self, again: bool = False) -> None:
        """Wait for a slot; a request that is tried again goes before those that were not tried yet."""
        while not self._has_room():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if again:
                self._waiting.appendleft(turn)
            else:
                self._waiting.append(turn)
            self._wake_later()
            try:
                await turn
            except asyncio.CancelledError:
                self._forget(turn)
                raise
        self.in_flight += 1

    def leave(self) -> None:
        self.in_flight -= 1
        self._wake()

    def succeeded(self, sent_at: float) -> None:
        """A reply came to the request that was sent at this time of the loop's clock."""
        now = asyncio.get_running_loop().time()
        self.limit = min(float(self.most), self.limit + 1 / self.limit)
        if not self._latencies:
            self._window_began = sent_at
        self._latencies.append(now - sent_at)
        if len(self._latencies) >= max(FEW, 2 * self.limit):
            self._judge_window(now)

    def pushed_back(self, sent_at: float, pause_s: float) -> None:
        """The server asked for less; ``pause_s`` from now nothing new is sent."""
        now = asyncio.get_running_loop().time()
        self._open_at = max(self._open_at, now + pause_s)
        if sent_at >= self._shrunk_at:
            self._shrink(now)

    def _shrink(self, now: float) -> None:
        self._shrunk_at = now
        self.limit = max(1.0, self.limit * SHRINK)
        self.least = min(self.least, self.limit)
        self._latencies.clear()

    def _judge_window(self, now: float) -> None:
        latency = median(self._latencies)
        rate = len(self._latencies) / max(1e-9, now - self._window_began)
        self._latencies.clear()
        if self._best is None or latency < self._best[0]:
            self._best = (latency, rate)
        elif latency > SLOW * self._best[0] and rate < GAIN * self._best[1]:
            self._shrink(now)

    def _has_room(self) -> bool:
        return self.in_flight < int(self.limit) and asyncio.get_running_loop().time() >= self._open_at

    def _wake(self) -> None:
        free = int(self.limit) - self.in_flight
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def _wake_later(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._open_at:
            loop.call_at(self._open_at + 0.001, self._wake)

    def _forget(self, turn: asyncio.Future[None]) -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.done() and not turn.cancelled():
            self._wake()  # the slot that was meant for this one
