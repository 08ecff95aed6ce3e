"""A benchmark's worker seen from the main process: a process that is started anew when it is lost, and runs in it.

    with open_worker(BENCHMARKS["bfcl_v4_multi_turn_base"], environments) as worker:
        run = worker.start(worker.cases()[0].id, trial=0)
        while run.ask is not None:
            run.reply(model(run.ask))
        verdict = run.verdict()

Several threads may drive several runs of one worker; each run is a process of its own there, so they use all cores.
A run is repeatable given its replies: one whose process died, or whose worker did, is played again with the replies
that it has had, and no model is asked twice.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import astra
from astra.benchmarks.registry import Benchmark
from astra.benchmarks.types import Ask, BenchmarkUnavailable, CaseInfo, HarnessError, Reply, RunLost, Verdict
from astra.benchmarks.worker.channel import MAX_LINE, Lines, TooLong, line_of
from astra.llm.reply import clean_value

log = logging.getLogger(__name__)

ROOT = Path(astra.__file__).parents[1]
START_S = 120.0
GRACE_S = 30.0  # beyond a run's own time, before the whole worker counts as lost
N_STDERR_LINES = 20
END_S = 5.0
MAX_TRIES = 3


@dataclass(frozen=True)
class Limits:
    """Of one run in a worker."""

    timeout_s: float = 120.0
    """For the answer to one request: all calls of one reply, or the whole verdict."""
    memory_mib: int = 4096
    cpu_s: int = 1200


class WorkerGone(Exception):
    """The worker's process ended, says nothing, or talks nonsense; all its runs are lost with it."""


class _Failed(Exception):
    """An error that a worker reports of one run."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class Link:
    """One running worker process. Raises BenchmarkUnavailable where it does not start."""

    def __init__(self, settings: Mapping[str, Any], name: str) -> None:
        self.name = name
        self.timeout_s = settings["timeout_s"] + GRACE_S
        self._temporary = tempfile.TemporaryDirectory(prefix="astra-bench-", ignore_cleanup_errors=True)
        self.folder = self._temporary.name
        self._process = _started(settings, self.folder)
        self._waiting: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._asked = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # its own: the reader must get on while a writer waits for room in the pipe
        self._gone: str | None = None
        self._said: deque[str] = deque(maxlen=N_STDERR_LINES)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._read, self._read_stderr)]
        for thread in self._threads:
            thread.start()
        self.ready = self._wait_until_ready()

    def _wait_until_ready(self) -> dict[str, Any]:
        try:
            said = self._waiting[0].result(START_S)
        except (WorkerGone, FutureTimeoutError) as error:
            self.close()
            heard = self._said[-1] if self._said else "it said nothing"
            why = str(error) or f"it was not ready within {START_S:g} s"
            raise BenchmarkUnavailable(f"{self.name}: its worker does not start: {why}: {heard}") from None
        if "failed" in said:
            self.close()
            raise BenchmarkUnavailable(f"{self.name}: {said['failed']}")
        return said

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request. Raises WorkerGone; _Failed where the worker reports an error."""
        answer: Future[dict[str, Any]] = Future()
        line = line_of(request)
        if len(line) > MAX_LINE - 100:
            raise _Failed("harness_error", f"a reply of {len(line)} bytes, more than the worker takes")
        with self._lock:
            if self._gone is not None:
                raise WorkerGone(self._gone)
            self._asked += 1
            number = self._asked
            self._waiting[number] = answer
        self._write(b'{"id":%d,%b' % (number, line[1:]))
        try:
            said = answer.result(self.timeout_s)
        except FutureTimeoutError:
            self._lose(f"no answer within {self.timeout_s:g} s")
            raise WorkerGone(str(self._gone)) from None
        if error := said.get("error"):
            raise _Failed(error["reason"], error["detail"])
        return said

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        # where it is gone its stdout ends too, which is where that is noticed
        with self._writing, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        why = "its process ended"
        try:
            for line in Lines(self._process.stdout.fileno()):
                self._hand_out(_parsed(line))
        except (TooLong, WorkerGone) as error:
            why = str(error)
        except OSError:
            why = "its output was closed"
        self._lose(why)

    def _hand_out(self, said: dict[str, Any]) -> None:
        with self._lock:
            waiting = self._waiting.pop(said.get("id", 0), None)
        if waiting is None:
            raise WorkerGone(f"an answer that nobody asked for: {str(said)[:200]}")
        waiting.set_result(said)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if text := line[-2000:].decode("utf-8", "replace").strip():
                self._said.append(text)

    def _lose(self, why: str) -> None:
        """Nothing more comes from it: tell everyone who waits."""
        self._process.kill()
        with self._lock:
            self._gone = self._gone or why
            waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.set_exception(WorkerGone(why))

    @property
    def gone(self) -> bool:
        return self._gone is not None

    def close(self) -> None:
        """End the process and all its runs."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a broken pipe: it is gone already
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(END_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._temporary.cleanup()


def _started(settings: Mapping[str, Any], folder: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-s", "-P", "-B", "-m", "astra.benchmarks.worker", json.dumps(settings)],
        stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=_environment(folder), start_new_session=True,
    )  # fmt: skip


def _environment(folder: str) -> dict[str, str]:
    """All that the worker inherits: no key and no address is among it."""
    return {
        "PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip


def _parsed(line: bytes) -> dict[str, Any]:
    """A line from the worker; half a surrogate pair in a tool's result becomes U+FFFD. Raises WorkerGone."""
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise WorkerGone(f"it said what is no answer: {line[:100]!r}")
    return clean_value(said) if b"\\ud" in line or b"\\u0000" in line else said


class Worker:
    """One benchmark's worker, for all that share its ``worker_key``."""

    def __init__(self, settings: Mapping[str, Any], name: str) -> None:
        self._settings, self._name = settings, name
        self._lock = threading.Lock()
        self._link: Link | None = None
        self.n_starts = 0
        ready = self.link().ready
        self.version: str = ready["ready"]
        self.confinement: str = ready["confinement"]
        if self.confinement != "landlock":
            log.warning("%s: this machine has no Landlock; its runs are held by %s", name, self.confinement)

    def link(self) -> Link:
        """A process that answers, started anew where the last one is gone. Raises BenchmarkUnavailable."""
        with self._lock:
            if self._link is None or self._link.gone:
                if self._link is not None:
                    self._link.close()
                self._link = Link(self._settings, self._name)
                self.n_starts += 1
            return self._link

    def cases(self) -> list[CaseInfo]:
        """All cases, in an order that stays. Raises BenchmarkUnavailable."""
        for _ in range(MAX_TRIES):
            try:
                return [CaseInfo(**one) for one in self.link().ask({"verb": "list"})["cases"]]
            except WorkerGone as error:
                why = error
        raise BenchmarkUnavailable(f"{self._name}: its worker was lost over the list of its cases: {why}")

    def start(self, case: str, trial: int = 0) -> Run:
        """A run of a case. Raises RunError, BenchmarkUnavailable; KeyError for a case that there is not."""
        return Run(self, case, trial)

    def close(self) -> None:
        with self._lock:
            if self._link is not None:
                self._link.close()
            self._link = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Run:
    """One run of a case; used by one thread at a time."""

    def __init__(self, worker: Worker, case: str, trial: int) -> None:
        self.case, self.trial = case, trial
        self._worker = worker
        self._link: Link | None = None
        self._number = 0
        self._replies: list[Reply] = []
        self._over = False
        self.ask: Ask | None = None
        """What to ask now; None when the case is over."""
        self.ask = _ask_in(self._said(None))

    def reply(self, reply: Reply) -> Ask | None:
        """What to ask after this reply to ``ask``. Raises RunError, BenchmarkUnavailable."""
        if self.ask is None:
            raise ValueError(f"{self.case}: a reply where nothing was asked: the case is over")
        self.ask = _ask_in(self._said({"verb": "step", "reply": reply.model_dump()}))
        self._replies.append(reply)
        return self.ask

    def verdict(self) -> Verdict:
        """The score, at the end or where the run is stopped before it; closes the run. Raises RunError and the like."""
        said = self._said({"verb": "score"})
        self._over, self.ask = True, None
        return Verdict(**said["verdict"])

    def close(self) -> None:
        """Give up a run without a verdict; nothing where it is over."""
        link, self._link = self._link, None
        if link is not None and not self._over:
            with contextlib.suppress(WorkerGone, _Failed):
                link.ask({"verb": "drop", "run": self._number})
        self._over = True

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _said(self, request: Mapping[str, Any] | None) -> dict[str, Any]:
        """The answer to a request about this run (None: to its start), on a new process where the last is lost."""
        if self._over:
            raise ValueError(f"{self.case}: this run is closed")
        for _ in range(MAX_TRIES):
            try:
                link, said = (self._link, None) if self._link else self._played_again()
                return said if request is None and said else link.ask({**(request or {}), "run": self._number})
            except WorkerGone as error:
                why = str(error)
            except _Failed as error:
                if error.reason != "run_died":
                    self._over = True
                    raise _run_error(error, self.case) from None
                why = error.detail
            self._link = None
        self._over = True
        raise RunLost("run_died", f"{self.case}, {MAX_TRIES} times: {why}")

    def _played_again(self) -> tuple[Link, dict[str, Any]]:
        """The run in a process that answers, at the point where it was; the last answer there."""
        link = self._worker.link()
        said = link.ask({"verb": "start", "case": self.case, "trial": self.trial})
        number = said["run"]
        for reply in self._replies:
            said = link.ask({"verb": "step", "run": number, "reply": reply.model_dump()})
        if self.ask is not None and _ask_in(said) != self.ask:
            raise RunLost("run_diverged", f"{self.case}: played again with the same replies it asked something else")
        self._link, self._number = link, number
        return link, said


def _ask_in(said: Mapping[str, Any]) -> Ask | None:
    return Ask(**said["ask"]) if "ask" in said else None


def _run_error(error: _Failed, case: str) -> Exception:
    if error.reason == "bad_request":
        return KeyError(error.detail)
    kind = HarnessError if error.reason == "harness_error" else RunLost
    return kind(error.reason, f"{case}: {error.detail}")


def open_worker(benchmark: Benchmark, environments: Path, limits: Limits = Limits()) -> Worker:
    """A worker for a benchmark and all that share its ``worker_key``. Raises BenchmarkUnavailable.

    ``environments`` has one folder an environment (``astra.wheels.unpacked``).
    """
    folder = (environments / benchmark.environment).resolve()
    if benchmark.environment and not folder.is_dir():
        raise BenchmarkUnavailable(
            f"{benchmark.name}: {folder} is not there. Name {benchmark.environment} in "
            "params.yaml, bench_env.packages, and: dvc repro bench_env"
        )
    about = {"bench": benchmark.bench, "folder": str(folder), "options": dict(benchmark.options)}
    return Worker({**about, **asdict(limits)}, benchmark.name)
