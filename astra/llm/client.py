"""The client of every stage: adaptive concurrency, bounded retries, replies in the order of the requests."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NoReturn, TypeVar

from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.gate import Gate
from astra.llm.loop import Loop
from astra.llm.meter import Meter
from astra.llm.reply import is_repaired
from astra.llm.store import ReplyStore, request_key
from astra.llm.structured import Reader, ask_structured
from astra.llm.tool_text import with_calls
from astra.llm.types import Completion, Request, Settings, Transport
from astra.records import Unavailable

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

FEW = 10  # of fewer requests than this, any number may be refused
FIRST_PAUSE_S = 0.5
BELIEVED = 3  # pauses of next to nothing in a row
POLL_S = (0.02, 0.5)  # how often another process's claim is looked at, at first and at most


class Client:
    """Asks a transport for one role, from the kept replies first. ``store`` none: nothing is kept (built-in rules)."""

    def __init__(self, transport: Transport, settings: Settings, meter: Meter, loop: Loop | None = None,
                 store: ReplyStore | None = None, keeps: bool = True) -> None:  # fmt: skip
        self.transport = transport
        self.settings = settings
        self.meter = meter
        self.loop = loop or Loop()
        self.store = store
        self.keeps = keeps
        self.gate = Gate(settings.concurrency)
        self.used: set[bytes] = set()  # keys of the kept replies that were used
        self._asking: dict[str, asyncio.Future[None]] = {} if store is None else store.asking  # all roles share it
        self._answered_at = float("-inf")

    # ------------------------------------------------------------ one request

    async def ask(self, request: Request) -> Completion:
        """One reply. Raises RequestRefused (this request) or EndpointUnavailable (the machinery)."""
        try:
            completion = await self._reply(request)
            self.meter.count(completion)
            self.meter.repaired += request.json_schema is not None and is_repaired(completion.content or "")
            _check_answered(completion)
        except RequestRefused as refusal:
            self.meter.refused[refusal.reason] += 1
            raise
        except Unavailable as failure:
            if self.loop.stopped is None:
                self.loop.stopped = failure
            raise
        return with_calls(completion, request)

    async def _reply(self, request: Request) -> Completion:
        if self.store is None:
            return await self._attempts(request)
        key = request_key(request)
        if not request.renew:
            kept = self.store.get(key)
            if kept is not None:
                self.used.add(bytes.fromhex(key))
                return kept
        while key in self._asking:  # the same question is being asked here already
            await self._asking[key]
            kept = self.store.get(key)
            if kept is not None:
                self.used.add(bytes.fromhex(key))
                return kept
        self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            completion = await self._claimed(self.store, key, request)
        finally:
            self._asking.pop(key).set_result(None)
        if self.keeps:
            self.used.add(bytes.fromhex(key))
        return completion

    async def _claimed(self, store: ReplyStore, key: str, request: Request) -> Completion:
        """The reply, asked for by this process or by another one that was first."""
        if not self.keeps:
            return await self._attempts(request)
        wait_s = POLL_S[0]
        while not store.claim(key, request.renew):
            kept = store.get(key)
            if kept is not None:
                return kept
            if self.loop.stopped is not None:
                raise self.loop.stopped
            await asyncio.sleep(wait_s)
            wait_s = min(POLL_S[1], 2 * wait_s)
        try:
            completion = await self._attempts(request)
            store.put(key, completion)
        except BaseException:
            store.release(key)
            raise
        return completion

    # ------------------------------------------------------------ attempts

    async def _attempts(self, request: Request) -> Completion:
        """The reply to one of a bounded number of attempts, which pause for as long as the server asks."""
        begun = asyncio.get_running_loop().time()
        failures: list[float] = []
        kinds: Counter[tuple[str | None, int | None]] = Counter()  # some kinds are worth fewer attempts than others
        while True:
            try:
                return await self._attempt(request, begun, failures)
            except Transient as failure:
                kind = (failure.becomes, failure.attempts)
                kinds[kind] += 1
                pause_s = self._pause_s(failure, len(failures))
                if self._is_over(failure, failures, kinds[kind], begun, pause_s):
                    self._give_up(request, failure, failures)
            self.meter.retries += 1
            await asyncio.sleep(pause_s)

    async def _attempt(self, request: Request, begun: float, failures: list[float]) -> Completion:
        """One attempt in its slot. Raises what the transport raises, and Transient after ``timeout_s``."""
        await self.gate.enter(again=bool(failures))
        loop = asyncio.get_running_loop()
        try:
            if self.loop.stopped is not None:
                raise self.loop.stopped
            self.meter.purse.check()
            sent_at = loop.time()
            left_s = min(self.settings.timeout_s, max(0.001, begun + self.settings.deadline_s - sent_at))
            try:
                async with asyncio.timeout(left_s):
                    completion = await self.transport.send(request)
            except TimeoutError:
                raise Transient(None, f"no reply within {left_s:.0f} s", fault="timeout") from None
        except Transient as failure:
            failures.append(loop.time())
            if failure.is_pushback:
                pause_s = min(failure.retry_after_s or 0.0, self.settings.max_wait_s)
                self.gate.pushed_back(sent_at, pause_s)
            raise
        finally:
            self.gate.leave()
        self._answered_at = loop.time()
        self.gate.succeeded(sent_at)
        return completion

    def _is_over(self, failure: Transient, failures: list[float], n_alike: int, begun: float, pause_s: float) -> bool:
        """Whether a failed request is not tried again; a busy server that answers others costs no attempt."""
        now = asyncio.get_running_loop().time()
        if self.loop.stopped is not None or now + pause_s > begun + self.settings.deadline_s:
            return True
        if failure.status == 429 and self._answered_at > failures[0]:
            return False
        return len(failures) >= self.settings.attempts or n_alike == failure.attempts

    def _pause_s(self, failure: Transient, n_failures: int) -> float:
        """Seconds before the next attempt: what the server asked for, else doubling from a half, half of it random.

        A server that asks for no pause is believed a few times; after that it would be asked without end.
        """
        if failure.retry_after_s is not None:
            least = 0.0 if n_failures <= BELIEVED else min(FIRST_PAUSE_S, 0.01 * 2 ** min(n_failures, 30))
            return min(max(least, failure.retry_after_s), self.settings.max_wait_s)
        longest = min(self.settings.max_wait_s, float(FIRST_PAUSE_S * 2 ** min(n_failures, 30)))
        return longest * (0.5 + 0.5 * random.random())  # times, never contents, depend on it

    def _give_up(self, request: Request, failure: Transient, failures: list[float]) -> NoReturn:
        """Raise what the last failure means: this request's, where the endpoint answered others meanwhile."""
        said = f"{failure} ({len(failures)} attempts)"
        if self.loop.stopped is not None and failure.becomes is None:
            raise self.loop.stopped
        if failure.becomes is not None:
            raise RequestRefused(failure.becomes, said) from failure
        if failure.fault is not None and len(failures) > 1 and self._answered_at > failures[1]:
            raise RequestRefused(failure.fault, said) from failure
        raise EndpointUnavailable(
            f"model {request.model.name} over {request.model.transport}: no reply after {len(failures)} attempts, the "
            f"last: {failure}. Replies so far are kept; when the endpoint is back: dvc repro"
        ) from failure

    # ------------------------------------------------------------ many requests

    def map(self, items: Iterable[A], work: Callable[[A], Awaitable[B]]) -> Iterator[B]:
        """The results of work that asks this client, in the order of the items; memory is bounded."""
        return self.loop.map(items, work, 2 * self.settings.concurrency)

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion | RequestRefused]:
        """The replies, or why there is none, in the order of the requests, which are taken as there is room.

        Raises EndpointUnavailable for the machinery, and where more than half of at least ten requests were refused.
        """
        return self._checked(self.map(requests, self._ask_or_refusal))

    def ask_all(self, requests: Iterable[Request]) -> list[Completion | RequestRefused]:
        """What ``stream`` gives, as a list."""
        return list(self.stream(requests))

    def read_all(
        self, asked: Iterable[tuple[Request, Reader[T]]], reasks: int = 1
    ) -> Iterator[T | RequestRefused]:  # fmt: skip
        """What the readers make of the replies, in order; a reply that a reader cannot use is asked for again."""

        async def one(pair: tuple[Request, Reader[T]]) -> T | RequestRefused:
            try:
                return await ask_structured(self, *pair, reasks)
            except RequestRefused as refusal:
                return refusal

        return self._checked(self.map(asked, one))

    async def _ask_or_refusal(self, request: Request) -> Completion | RequestRefused:
        try:
            return await self.ask(request)
        except RequestRefused as refusal:
            return refusal

    def _checked(self, outcomes: Iterator[T | RequestRefused]) -> Iterator[T | RequestRefused]:
        """The outcomes; raises EndpointUnavailable at the end where most of them are refusals."""
        total, refusals, last = 0, Counter[str](), None
        for outcome in outcomes:
            total += 1
            if isinstance(outcome, RequestRefused):
                refusals[outcome.reason] += 1
                last = outcome
            yield outcome
        if last is not None and total >= FEW and refusals.total() > total / 2:
            counts = ", ".join(f"{reason} {count}" for reason, count in refusals.most_common())
            raise EndpointUnavailable(
                f"{refusals.total()} of {total} requests refused ({counts}); the last: {last.detail[:500]}. Change the "
                "prompts or the model, then: dvc repro"
            )

    def metrics(self) -> dict[str, Any]:
        """What the calls used, for the stage's metrics, and how structured output was asked for."""
        form = getattr(getattr(self.transport, "dialect", None), "form", None)
        return self.meter.metrics() | ({"structured_output": form} if form else {})


def _check_answered(completion: Completion) -> None:
    """Raises RequestRefused for a reply in which the model or a filter declines."""
    if completion.finish_reason == "content_filter":
        raise RequestRefused("filtered", "finish_reason content_filter")
    if completion.refusal:
        raise RequestRefused("refused", completion.refusal[:300])
