"""Playing a benchmark's cases with a model: side by side, each case remembered when it is done, errors apart.

Who plays a case does not matter to who scores it: a ``Worker`` (the process of a package, or one of our own benches in
this process) gives what to ask, the model replies, the worker judges. A case ends in an ``Outcome``, or in a
``Failure`` where the machinery broke: that is no score, and the case is played again when the stage is run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from astra.benchmarks.journal import Journal
from astra.benchmarks.models import NOTHING, Answer, Draw, Model, message_of, reply_message
from astra.benchmarks.types import Ask, Bench, BenchmarkUnavailable, CaseInfo, Playing, Reply, RunError, Verdict
from astra.environments import EnvironmentUnavailable
from astra.llm.loop import Loop
from astra.records import Message, Record, Usage


class CaseRun(Protocol):
    """One run of a case under way."""

    @property
    def ask(self) -> Ask | None: ...

    def reply(self, reply: Reply) -> Ask | None: ...

    def verdict(self) -> Verdict: ...

    def close(self) -> None: ...


class Worker(Protocol):
    """Where a benchmark's cases are."""

    version: str

    def cases(self) -> list[CaseInfo]: ...

    def start(self, case: str, trial: int = 0) -> CaseRun: ...


class Outcome(Record):
    """A case that has a result; a model's own failure is one."""

    case: str
    trial: int
    scores: dict[str, float]
    note: str = ""
    n_asks: int = 0
    n_steps: int = 0
    n_calls: int = 0
    usage: Usage = NOTHING
    user_usage: Usage = NOTHING
    messages: tuple[Message, ...] = ()


class Failure(Record):
    """A case without a result, by no fault of the model; ``reason`` is short, stable and counted."""

    case: str
    trial: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Sitting:
    """What is played of one benchmark with one model."""

    benchmark: str
    cases: Sequence[str]
    trials: int
    seed: int
    temperature: float | None = None
    top_p: float | None = None

    def draw(self, case: str, trial: int, turn: int, again: int = 0) -> Draw:
        return Draw(
            seed=self.seed, benchmark=self.benchmark, case=case, trial=trial, turn=turn, again=again,
            temperature=self.temperature, top_p=self.top_p,
        )  # fmt: skip


def journal_of(
    sitting: Sitting, worker: Worker, model: Model, user: Model | None, decides: Mapping[str, Any]
) -> Journal:
    """The journal of these runs. ``decides`` is what else does: the benchmark's data and options, and our own code."""
    return Journal.of({
        "benchmark": sitting.benchmark, "version": worker.version, "seed": sitting.seed,
        "temperature": sitting.temperature, "top_p": sitting.top_p, "model": model.identity,
        "user": user.identity if user is not None else None, **decides,
    })  # fmt: skip


def play_all(
    sitting: Sitting, worker: Worker, model: Model, user: Model | None, journal: Journal, loop: Loop
) -> Iterator[Outcome | Failure]:
    """Every trial of every case, in order. Raises Unavailable where nothing may be asked any more (the budget)."""

    async def one(pair: tuple[str, int]) -> Outcome | Failure:
        case, trial = pair
        kept = journal.get(f"{case}#{trial}")
        if kept is not None:
            outcome = Outcome.model_validate(kept)
            model.recall(outcome.usage)
            if user is not None:
                user.recall(outcome.user_usage)
            return outcome
        try:
            outcome = await _Table(sitting, worker, model, user).play(case, trial)
        except RunError as error:
            return Failure(case=case, trial=trial, reason=error.reason, detail=error.detail)
        except BenchmarkUnavailable as error:
            return Failure(case=case, trial=trial, reason="benchmark_unavailable", detail=str(error))
        journal.add(f"{case}#{trial}", outcome.model_dump(mode="json"))
        return outcome

    runs = [(case, trial) for case in sitting.cases for trial in range(sitting.trials)]
    return loop.map(runs, one, model.at_once)


@dataclass
class _Table:
    """One case being played."""

    sitting: Sitting
    worker: Worker
    model: Model
    user: Model | None

    async def play(self, case: str, trial: int) -> Outcome:
        """Raises RunError, and Unavailable. The worker's side runs in threads: it may take its time."""
        run = await asyncio.to_thread(self.worker.start, case, trial)
        heard = Transcript()
        n_asks, again, spent = 0, 0, {"agent": NOTHING, "user": NOTHING}
        try:
            ask = run.ask
            while ask is not None:
                reply, usage = await self._reply(ask, self.sitting.draw(case, trial, n_asks, again))
                n_asks += 1
                spent[ask.role] = _added(spent[ask.role], usage)
                if ask.role == "agent":
                    heard.add(ask, reply)
                before, ask = ask, await asyncio.to_thread(run.reply, reply)
                again = again + 1 if ask == before else 0
            verdict = await asyncio.to_thread(run.verdict)
        finally:
            with suppress(RunError, BenchmarkUnavailable):  # what ended the run is already on its way
                await asyncio.to_thread(run.close)
        return Outcome(
            case=case, trial=trial, scores=verdict.scores, note=verdict.note, n_asks=n_asks,
            n_steps=verdict.n_steps, n_calls=verdict.n_calls, usage=spent["agent"], user_usage=spent["user"],
            messages=tuple(heard.messages),
        )  # fmt: skip

    async def _reply(self, ask: Ask, draw: Draw) -> Answer:
        if ask.role == "agent":
            return await self.model.ask(ask, draw)
        if self.user is None:
            raise RunError("no_user_model", f"{draw.benchmark} asks for a user's turn; name a model in eval.user")
        return await self.user.ask(ask, draw)


def _added(one: Usage, other: Usage) -> Usage:
    return Usage(
        calls=one.calls + other.calls,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
    )


class Transcript:
    """A conversation put together from what was asked and replied; where a benchmark shows another history than what
    was replied (each turn of ToolTalk), the replies are what is kept.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._seen: list[dict[str, Any]] = []

    def add(self, ask: Ask, reply: Reply) -> None:
        """One ask and its reply."""
        shared = 0
        for old, new in zip(self._seen, ask.messages, strict=False):
            if old != new:
                break
            shared += 1
        fresh = ask.messages[shared:]
        if self._seen and shared == len(self._seen) and fresh and fresh[0].get("role") == "assistant":
            fresh = fresh[1:]  # the last reply, as the benchmark writes it
        self.messages += [message_of(one) for one in fresh]
        self._seen = list(ask.messages)
        if reply.stop != "context":
            self.messages.append(reply_message(reply))


class InProcess:
    """A bench of our own, played in this process."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.version = bench.version

    def cases(self) -> list[CaseInfo]:
        return self.bench.cases()

    def start(self, case: str, trial: int = 0) -> CaseRun:
        return _OwnRun(self.bench.start(case, trial))


class _OwnRun:
    def __init__(self, playing: Playing) -> None:
        self.playing = playing
        self.ask = playing.turn()

    def reply(self, reply: Reply) -> Ask | None:
        """Raises RunError where the environment broke."""
        try:
            self.playing.take(reply)
        except EnvironmentUnavailable as error:
            raise RunError("environment_unavailable", str(error)) from error
        self.ask = self.playing.turn()
        return self.ask

    def verdict(self) -> Verdict:
        return self.playing.verdict()

    def close(self) -> None:
        """Nothing is held."""


def sliced(cases: Iterable[CaseInfo], category: str | None, count: int | None) -> list[str]:
    """Ids of that many cases of a category, evenly spread over the benchmark's own order; all of them for None.

    Benchmarks order their cases by domain, so that the first ones would be of one domain.
    """
    found = [one.id for one in cases if category is None or one.category == category]
    if count is None or count >= len(found):
        return found
    return [found[number * len(found) // count] for number in range(count)]
