"""One model on all that is to be measured: arenas in batches where its weights are here, everything else ask by ask."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

import astra
from astra.benchmarks.imitation import Imitation
from astra.benchmarks.journal import Journal
from astra.benchmarks.models import Endpoint, Endpoints, Local, Model, purse_of
from astra.benchmarks.playing import Failure, InProcess, Outcome, Sitting, Worker, journal_of, play_all, sliced
from astra.benchmarks.process import open_worker
from astra.benchmarks.registry import Benchmark as Package
from astra.benchmarks.types import BenchmarkUnavailable
from astra.caches import digest_of
from astra.llm.loop import Loop
from astra.llm.meter import Purse
from astra.llm.types import Settings
from astra.records import Record, Sample, Trajectory
from astra.sandbox import Sandbox, open_sandbox
from astra.training.arena_cases import ArenaBench, Benchmark, measures
from astra.training.engines import HFEngine
from astra.training.episodes import Limits, SharedSandbox, play_cases
from astra.training.local_model import LocalModel
from astra.training.rollouts import Sampling

Mode = Literal["greedy", "sampled"]


class Note(Record):
    """How a case went beside its score: the benchmark's word for what was wrong, and what it took."""

    model: str
    benchmark: str
    case: str
    trial: int
    note: str
    n_asks: int
    n_steps: int
    n_calls: int
    prompt_tokens: int
    completion_tokens: int


class Broken(Record):
    """A case that has no result."""

    model: str
    benchmark: str
    case: str
    trial: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Chosen:
    """A benchmark of a package, or imitation, as params ask for it."""

    name: str
    package: Package | None  # None: imitation
    cases: int | None
    trials: int
    temperature: float | None
    top_p: float | None
    models: tuple[str, ...] | None  # None: all
    data: str  # hash of what its cases are made from


@dataclass(frozen=True)
class Job:
    """All that is to be measured, the same for every model."""

    sets: tuple[Benchmark, ...]  # of arenas
    trials: int  # at an arena, of a model that is asked turn by turn
    players: tuple[str, ...] | None  # of the arenas; None: all models
    chosen: tuple[Chosen, ...]
    recorded: tuple[Trajectory, ...]  # of imitation
    environments: Path
    user: Endpoint | None
    settings: Settings
    limits: Limits
    batch: int
    temperature: float
    threads: int
    seed: int
    arenas: str  # hash of the arenas and of how they are mixed


@dataclass
class Measured:
    """What came of one model."""

    samples: list[Sample] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    status: dict[str, dict[str, Any]] = field(default_factory=dict)  # by benchmark
    used: dict[str, Any] = field(default_factory=dict)
    user: dict[str, Any] = field(default_factory=dict)

    @property
    def n_planned(self) -> int:
        return len(self.samples) + len(self.broken)


def code_digest() -> str:
    """A hash of our own code: what was played by other code is played again."""
    return digest_of(Path(astra.__file__).parent)


def measure(label: str, how: Local | Endpoint, job: Job, purse: Purse | None = None) -> Measured:
    """Everything of one model, with a sandbox, workers and connections of its own. Raises Unavailable, ChatError."""
    torch.set_num_threads(job.threads)
    with Loop() as loop, _opened(job, loop, purse) as endpoints, open_sandbox() as sandbox:
        user = endpoints.open("user", job.user, is_user=True) if job.user is not None else None
        model = LocalModel.load(label, how) if isinstance(how, Local) else endpoints.open(label, how)
        found = Measured()
        code = code_digest()
        at_arenas = job.players is None or label in job.players
        if isinstance(model, LocalModel) and at_arenas:
            for one in _played_arenas(model, job, sandbox, code):
                (found.samples if isinstance(one, Sample) else found.broken).append(one)  # type: ignore[arg-type]
        table = _Table(model, user, job, loop, code, found)
        if not isinstance(model, LocalModel) and at_arenas:
            table.sit_at_arenas(sandbox)
        table.sit()
        found.used = model.identity | model.usage()
        found.user = user.identity | user.usage() if user is not None else {}
    return found


@contextmanager
def _opened(job: Job, loop: Loop, purse: Purse | None) -> Iterator[Endpoints]:
    endpoints = Endpoints(job.settings, loop, purse or purse_of(job.settings))
    try:
        yield endpoints
    finally:
        endpoints.close()


# ---------------------------------------------------------------- arenas, in batches


def _played_arenas(model: LocalModel, job: Job, sandbox: Sandbox, code: str) -> Iterator[Sample | Broken]:
    """One sample per case and mode, in the order of the benchmarks; whole batches are remembered."""
    engine = HFEngine(model.policy, model.chat.end, model.chat.pad)
    journal = Journal.of({
        "arenas": job.arenas, "sets": [one.name for one in job.sets], "model": model.content, "code": code,
        "batch": job.batch, "limits": job.limits.model_dump(), "temperature": job.temperature, "seed": job.seed,
        "threads": job.threads,
    })  # fmt: skip
    modes: tuple[tuple[Mode, float], ...] = (("greedy", 0.0), ("sampled", job.temperature))
    for mode, temperature in modes:
        for one in job.sets:
            for start in range(0, len(one.cases), job.batch):
                key = f"{one.name}:{mode}:{start}"
                kept = journal.get(key)
                if kept is None:
                    played = list(_batch(model, engine, job, one, mode, temperature, start, sandbox))
                    if all(isinstance(each, Sample) for each in played):
                        journal.add(key, [each.model_dump(mode="json", exclude={"model"}) for each in played])
                    yield from played
                else:
                    yield from (Sample(model=model.label, **each) for each in kept)


def _batch(
    model: LocalModel, engine: Any, job: Job, benchmark: Benchmark, mode: Mode, temperature: float, start: int,
    sandbox: Sandbox,
) -> Iterator[Sample | Broken]:  # fmt: skip
    limits = job.limits
    draw = random.Random(f"{job.seed}:{benchmark.name}:{mode}:{start}").getrandbits(62)
    sampling = Sampling(temperature, limits.max_new_tokens, limits.max_response_tokens, draw)
    some = benchmark.cases[start : start + job.batch]
    for episode in play_cases(engine, model.chat, some, sampling, sandbox, limits.max_calls):
        case = episode.case.arena.id
        about: dict[str, Any] = {"model": model.label, "benchmark": benchmark.name, "case": case, "trial": 0}
        if episode.failed:
            yield Broken(**about, reason="environment_unavailable", detail=episode.played.failure)
        else:
            yield Sample(**about, mode=mode, scores=measures(episode), messages=episode.messages)


# ---------------------------------------------------------------- everything else, ask by ask


@dataclass
class _Table:
    """One model before one benchmark after the other."""

    model: Model
    user: Model | None
    job: Job
    loop: Loop
    code: str
    found: Measured

    def sit_at_arenas(self, sandbox: Sandbox) -> None:
        """The arenas for a model that is asked turn by turn."""
        shared = SharedSandbox([sandbox])
        for one in self.job.sets:
            chosen = Chosen(one.name, None, None, self.job.trials, None, None, None, self.job.arenas)
            self._play(chosen, InProcess(ArenaBench(one, shared, self.job.limits)), None)

    def sit(self) -> None:
        """All that was chosen; what cannot be run here is skipped, and the reason kept."""
        with ExitStack() as opened:
            workers: dict[tuple[str, str, str], Worker] = {}
            for one in self.job.chosen:
                if one.models is not None and self.model.label not in one.models:
                    continue
                try:
                    self._check(one)
                    worker = self._worker(one, workers, opened)
                    self._play(one, worker, one.package.category if one.package is not None else None)
                except BenchmarkUnavailable as error:
                    self.found.status[one.name] = {"status": f"skipped: {error}"}

    def _check(self, one: Chosen) -> None:
        package = one.package
        if package is not None and package.needs_user and self.user is None:
            raise BenchmarkUnavailable(f"{one.name}: a model has to play the user; name one in eval.user")
        if package is not None and package.needs_path and not package.options.get("path"):
            raise BenchmarkUnavailable(f"{one.name}: {package.needs_path}; name it in its options as path")

    def _worker(self, one: Chosen, workers: dict[tuple[str, str, str], Worker], opened: ExitStack) -> Worker:
        if one.package is None:
            return InProcess(Imitation(self.job.recorded))
        key = one.package.worker_key
        if key not in workers:
            workers[key] = opened.enter_context(open_worker(one.package, self.job.environments))
        return workers[key]

    def _play(self, one: Chosen, worker: Worker, category: str | None) -> None:
        cases = sliced(worker.cases(), category, one.cases)
        if not cases:
            raise BenchmarkUnavailable(f"{one.name}: there are no cases" + (f" of {category}" if category else ""))
        sitting = Sitting(one.name, cases, one.trials, self.job.seed, one.temperature, one.top_p)
        decides = {
            "data": one.data, "code": self.code, "limits": self.job.limits.model_dump(),
            "options": dict(one.package.options) if one.package is not None else {},
        }  # fmt: skip
        journal = journal_of(sitting, worker, self.model, self.user if _asks_user(one) else None, decides)
        mode = self._mode(one)
        for outcome in play_all(sitting, worker, self.model, self.user, journal, self.loop):
            self._note(one.name, mode, outcome)
        self.found.status[one.name] = {
            "status": "ran", "version": worker.version, "data": one.data, "cases": len(cases), "trials": one.trials,
            "form": one.package.mode if one.package is not None else "function_calling",
            **({"temperature": one.temperature} if one.temperature is not None else {}),
            **({"top_p": one.top_p} if one.top_p is not None else {}),
        }  # fmt: skip

    def _mode(self, one: Chosen) -> Mode:
        own = self.model.identity["temperature"]
        return "sampled" if (own if one.temperature is None else one.temperature) > 0 else "greedy"

    def _note(self, benchmark: str, mode: Mode, one: Outcome | Failure) -> None:
        model = self.model.label
        about: dict[str, Any] = {"model": model, "benchmark": benchmark, "case": one.case, "trial": one.trial}
        if isinstance(one, Failure):
            self.found.broken.append(Broken(**about, reason=one.reason, detail=one.detail))
            return
        self.found.samples.append(Sample(**about, mode=mode, scores=one.scores, messages=one.messages))
        self.found.notes.append(
            Note(**about, note=one.note, n_asks=one.n_asks, n_steps=one.n_steps, n_calls=one.n_calls,
                 prompt_tokens=one.usage.prompt_tokens, completion_tokens=one.usage.completion_tokens)
        )  # fmt: skip


def _asks_user(one: Chosen) -> bool:
    return one.package is not None and one.package.needs_user


def with_options(package: Package, options: Mapping[str, Any]) -> Package:
    """A benchmark with further options of its worker; one whose data the user names needs no environment."""
    environment = "" if options.get("path") else package.environment
    return replace(package, environment=environment, options={**package.options, **options})


def hash_of(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:20]
