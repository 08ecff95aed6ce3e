"""A package that calls the model itself, from within its own loop, turned into a run that is asked and replied to.

The package's loop runs in a thread that waits at every request. Only one of the two threads ever runs: the run waits
for the next request or the end, the loop waits for a reply. So what the package does is what it does at home.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from astra.benchmarks.types import Ask, Reply, Verdict


class Stopped(BaseException):
    """The run ends here, within a request: it was stopped from outside, or the model has failed for good.

    Not an Exception: the packages catch those of their tools.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Ended(NamedTuple):
    """The loop's last event: a verdict, or what the package raised."""

    verdict: Verdict | None
    raised: BaseException | None


CONTEXT = "context: the model could not take the prompt"


class Requests:
    """The loop's end of the line, with what has passed through it."""

    def __init__(self) -> None:
        self.events: SimpleQueue[Ask | Ended] = SimpleQueue()
        self.replies: SimpleQueue[Reply | None] = SimpleQueue()
        self.n_steps = 0
        self.n_calls = 0

    def __call__(self, ask: Ask) -> Reply:
        """The reply to a request. Raises Stopped where there is none and will be none."""
        self.events.put(ask)
        reply = self.replies.get()
        if reply is None:
            raise Stopped("stopped before the end")
        if ask.role == "agent":
            self.n_steps += 1
            self.n_calls += len(reply.tool_calls)
            if reply.stop == "context":
                raise Stopped(CONTEXT)
        elif reply.stop == "context":
            raise RuntimeError("the model that plays the user could not take the prompt")
        return reply

    def verdict(self, scores: dict[str, float], note: str = "") -> Verdict:
        return Verdict(scores=scores, note=note, n_steps=self.n_steps, n_calls=self.n_calls)


class Blocking:
    """Implements ``Playing`` over ``play``, which gets the line and returns the verdict, or lets Stopped pass.

    ``failed`` are the scores of a run that ends with Stopped. What ``play`` raises beside it, ``turn`` and ``verdict``
    raise.
    """

    def __init__(self, play: Callable[[Requests], Verdict], failed: dict[str, float]) -> None:
        self._line = Requests()
        self._play = play
        self._failed = failed
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._last: Ask | Ended | None = None

    def _run(self) -> None:
        try:
            ended = Ended(self._play(self._line), None)
        except Stopped as stopped:
            ended = Ended(self._line.verdict(self._failed, stopped.why), None)
        except BaseException as raised:  # foreign code: whatever it is, the waiting side has to hear of it
            ended = Ended(None, raised)
        self._line.events.put(ended)

    def turn(self) -> Ask | None:
        if self._last is None:
            self._thread.start()
            self._last = self._line.events.get()
        if isinstance(self._last, Ask):
            return self._last
        self._verdict(self._last)
        return None

    def take(self, reply: Reply) -> None:
        assert isinstance(self._last, Ask), "a reply to nothing"
        self._line.replies.put(reply)
        self._last = self._line.events.get()

    def verdict(self) -> Verdict:
        self.turn()
        while isinstance(self._last, Ask):
            self._line.replies.put(None)
            self._last = self._line.events.get()
        assert self._last is not None
        return self._verdict(self._last)

    def _verdict(self, ended: Ended) -> Verdict:
        if ended.raised is not None:
            raise ended.raised
        assert ended.verdict is not None
        return ended.verdict
