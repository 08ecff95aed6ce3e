"""The client of every stage: bounded concurrency, bounded retries, replies in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import tenacity

from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.types import Completion, Request, Transport

MAX_WAIT_S = 60.0  # the longest pause before asking again, whatever Retry-After says
FEW = 10  # of fewer requests than this, any number may be refused


@dataclass
class Client:
    """Asks a transport. ``retries`` is how often a failed attempt is repeated; a transport does not repeat."""

    transport: Transport
    concurrency: int
    retries: int
    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    _loop: asyncio.AbstractEventLoop | None = None
    _gate: asyncio.Semaphore | None = None

    async def ask(self, request: Request) -> Completion:
        """One reply. Raises RequestRefused (this request) or EndpointUnavailable (the machinery)."""
        async with self._limit():
            try:
                completion = await self._attempts(request)
            except RequestRefused as refusal:
                self.refused[refusal.reason] += 1
                raise
        self.calls += completion.usage.calls
        self.cached += completion.usage.calls if completion.cached else 0
        self.prompt_tokens += completion.usage.prompt_tokens
        self.completion_tokens += completion.usage.completion_tokens
        return completion

    def ask_all(self, requests: Iterable[Request]) -> list[Completion | RequestRefused]:
        """The replies, or why there is none, in the order of the requests.

        Raises EndpointUnavailable for the machinery, and where more than half of at least ten requests were refused.
        """
        return asyncio.run(self._all(list(requests)))

    async def _all(self, requests: Sequence[Request]) -> list[Completion | RequestRefused]:
        replies = await asyncio.gather(*(self._ask_or_refusal(request) for request in requests))
        refusals = Counter(reply.reason for reply in replies if isinstance(reply, RequestRefused))
        if len(replies) >= FEW and refusals.total() > len(replies) / 2:
            last = next(reply for reply in reversed(replies) if isinstance(reply, RequestRefused))
            counts = ", ".join(f"{reason} {count}" for reason, count in refusals.most_common())
            raise EndpointUnavailable(
                f"model {requests[0].model.name}: {refusals.total()} of {len(replies)} requests refused ({counts}); "
                f"the last: {last.detail}. Change the prompts or the model, then: dvc repro"
            )
        return list(replies)

    async def _ask_or_refusal(self, request: Request) -> Completion | RequestRefused:
        try:
            return await self.ask(request)
        except RequestRefused as refusal:
            return refusal

    async def _attempts(self, request: Request) -> Completion:
        attempts = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.retries + 1),
            wait=_pause,
            retry=tenacity.retry_if_exception_type(Transient),
            reraise=True,
        )
        try:
            completion: Completion = await attempts(self.transport.send, request)
        except Transient as failure:
            if failure.becomes is not None:
                raise RequestRefused(failure.becomes, f"{failure} ({self.retries + 1} attempts)") from failure
            raise EndpointUnavailable(
                f"model {request.model.name} over {request.model.transport}: no reply after {self.retries + 1} "
                f"attempts, the last: {failure}. Replies so far are kept; when the endpoint is back: dvc repro"
            ) from failure
        return completion

    def _limit(self) -> asyncio.Semaphore:
        """The gate of the running event loop: ``ask_all`` runs a loop of its own each time."""
        loop = asyncio.get_running_loop()
        if self._gate is None or self._loop is not loop:
            self._loop, self._gate = loop, asyncio.Semaphore(self.concurrency)
        return self._gate

    def metrics(self) -> dict[str, int]:
        """What the calls used, for the stage's metrics; the same whether a reply came from the cache or not."""
        tokens = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens}
        refused = {f"refused_{reason}": count for reason, count in sorted(self.refused.items())}
        return {"calls": self.calls, **tokens, **refused}

    @property
    def summary(self) -> str:
        """For the closing line: ``340 calls (310 cached), 52100 tokens``."""
        cached = f" ({self.cached} cached)" if self.cached else ""
        return f"{self.calls} calls{cached}, {self.prompt_tokens + self.completion_tokens} tokens"


_BACKOFF = tenacity.wait_exponential_jitter(initial=1, max=MAX_WAIT_S)


def _pause(state: tenacity.RetryCallState) -> float:
    """Seconds before the next attempt: what the server asked for, at most MAX_WAIT_S, else exponential with jitter."""
    failure = state.outcome.exception() if state.outcome is not None else None
    if isinstance(failure, Transient) and failure.retry_after_s is not None:
        return min(failure.retry_after_s, MAX_WAIT_S)
    return float(_BACKOFF(state))
