"""The worker's trusted part: one benchmark, loaded once, and a process for each run that is open.

A request is a line ``{"id", "verb", ...}``, an answer a line with the same id, in the order in which they are ready:

    list    -> {"cases": [{id, category}, ...]}
    start   {case, trial}  -> {"run": n, "ask": ...} or {"run": n, "over": true}
    step    {run, reply}   -> {"ask": ...} or {"over": true}
    score   {run}          -> {"verdict": ...}; the run is gone
    drop    {run}          -> {}; the run is gone

or ``{"error": {"reason", "detail"}}``: ``harness_error``, ``run_hung``, ``run_died``, ``bad_request``. A run that makes
no answer in time is killed; that concerns no other.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import time
from dataclasses import dataclass
from typing import Any

from astra.benchmarks.types import Bench
from astra.benchmarks.worker.channel import Lines, TooLong, line_of, write_all
from astra.benchmarks.worker.confinement import Confinement
from astra.benchmarks.worker.play import become_run

HIGHEST_FD = 1 << 20
LAST_ANSWERS = (b'{"verdict":', b'{"error":')
ANSWERS = (b'{"ask":', b'{"over":', *LAST_ANSWERS)


@dataclass
class OpenRun:
    """The server's end of one run."""

    number: int
    pid: int
    requests: int
    answers: Lines
    waiting: int | None = None
    """The request that it has to answer."""
    deadline: float = 0.0


class Server:
    """Answers until ``incoming`` ends."""

    def __init__(self, bench: Bench, confinement: Confinement, timeout_s: float, incoming: int, outgoing: int) -> None:
        self.bench = bench
        self.cases = bench.cases()
        self.ids = {one.id for one in self.cases}
        self.confinement = confinement
        self.timeout_s = timeout_s
        self.incoming, self.outgoing = Lines(incoming), outgoing
        self.runs: dict[int, OpenRun] = {}
        self.died: dict[int, str] = {}
        """Runs that died while nobody waited for them, and how."""
        self.started = 0

    def serve(self) -> None:
        gc.collect()
        gc.freeze()  # so that a fork copies no page for the collector
        self._send({"ready": self.bench.version, "confinement": self.confinement.kind})
        while not self.incoming.ended:
            self._serve_some()
        for run in list(self.runs.values()):
            self._end(run)

    def _serve_some(self) -> None:
        """Wait for whatever comes first: a request, a run's answer, the end of a run's time."""
        by_fd = {run.answers.fd: run for run in self.runs.values()}
        poll = select.poll()
        for fd in (self.incoming.fd, *by_fd):
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(self._wait_ms()):
            if fd == self.incoming.fd:
                for line in self.incoming.read():
                    self._take(json.loads(line))
            elif by_fd[fd].number in self.runs:
                self._hear(by_fd[fd])
        for run in [one for one in self.runs.values() if one.waiting and one.deadline <= time.monotonic()]:
            self._fail(run, "run_hung", f"no answer within {self.timeout_s:g} s")

    def _wait_ms(self) -> float | None:
        deadlines = [run.deadline for run in self.runs.values() if run.waiting]
        return max(0.0, min(deadlines) - time.monotonic()) * 1000 + 1 if deadlines else None

    # ------------------------------------------------------------ requests

    def _take(self, request: dict[str, Any]) -> None:
        verb = request["verb"]
        if verb == "list":
            self._send({"id": request["id"], "cases": [one.model_dump() for one in self.cases]})
        elif verb == "start":
            self._start(request)
        elif (number := request["run"]) in self.died:
            self._refuse(request, "run_died", self.died.pop(number))
        elif (run := self.runs.get(number)) is None or run.waiting:
            detail = "is not open" if run is None else "has not answered yet"
            self._refuse(request, "bad_request", f"{verb}: run {number} {detail}")
        elif verb == "drop":
            self._end(run)
            self._send({"id": request["id"]})
        else:
            self._pass_on(run, request)

    def _refuse(self, request: dict[str, Any], reason: str, detail: str) -> None:
        self._send({"id": request["id"], "error": {"reason": reason, "detail": detail}})

    def _start(self, request: dict[str, Any]) -> None:
        if request["case"] not in self.ids:
            known = f"the first of {len(self.cases)} is {self.cases[0].id!r}" if self.cases else "there is none"
            self._refuse(request, "bad_request", f"no case {request['case']!r}; {known}")
            return
        self.started += 1
        try:
            run = self._forked(request["case"], request["trial"])
        except OSError as error:
            self._refuse(request, "run_died", f"there is no process for it: {error}")
            return
        self.runs[run.number] = run
        self._pass_on(run, request)

    def _forked(self, case: str, trial: int) -> OpenRun:
        requests, requests_end = os.pipe()
        answers_end, answers = os.pipe()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:

            def confine() -> None:
                _close_all_but(requests, answers, self.confinement.rules)
                os.setsid()
                self.confinement.apply(server)

            become_run(self.bench, case, trial, requests, answers, confine)
        os.close(requests)
        os.close(answers)
        return OpenRun(self.started, pid, requests_end, Lines(answers_end))

    def _pass_on(self, run: OpenRun, request: dict[str, Any]) -> None:
        run.waiting, run.deadline = request["id"], time.monotonic() + self.timeout_s
        try:
            write_all(run.requests, line_of(request))
        except BrokenPipeError:
            self._fail(run, "run_died", _how(self._end(run)))

    # ------------------------------------------------------------ answers

    def _hear(self, run: OpenRun) -> None:
        try:
            lines = run.answers.read()
        except TooLong as error:
            self._fail(run, "run_died", str(error))
            return
        if run.answers.ended:
            self._fail(run, "run_died", _how(self._end(run)))
            return
        for line in lines:
            if run.number in self.runs:
                self._answer(run, line)

    def _answer(self, run: OpenRun, line: bytes) -> None:
        """Hand an answer on as it came, with the request's id before it."""
        if not line.startswith(ANSWERS) or not run.waiting:
            self._fail(run, "run_died", f"it said {line[:100]!r}")
            return
        head = line_of({"id": run.waiting, "run": run.number})[: -len(b"}\n")]
        write_all(self.outgoing, head + b"," + line[1:] + b"\n")
        run.waiting = None
        if line.startswith(LAST_ANSWERS):
            self._end(run)

    def _fail(self, run: OpenRun, reason: str, detail: str) -> None:
        self._end(run)
        if run.waiting:
            self._send({"id": run.waiting, "error": {"reason": reason, "detail": detail}})
            run.waiting = None
        else:
            self.died[run.number] = detail

    def _end(self, run: OpenRun) -> int:
        """Kill and reap it; its wait status, 0 where that was done before."""
        if self.runs.pop(run.number, None) is None:
            return 0
        os.close(run.requests)
        os.close(run.answers.fd)
        for kill in (os.killpg, os.kill):  # it may not have made its group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(run.pid, signal.SIGKILL)
        return os.waitpid(run.pid, 0)[1]

    def _send(self, message: dict[str, Any]) -> None:
        write_all(self.outgoing, line_of(message))


def _how(status: int) -> str:
    signalled = os.WIFSIGNALED(status)
    return f"signal {os.WTERMSIG(status)}" if signalled else f"exit status {os.waitstatus_to_exitcode(status)}"


def _close_all_but(*kept: int | None) -> None:
    """A run sees no other run's pipes and not the server's own."""
    stops = sorted({0, 1, 2, *(fd for fd in kept if fd is not None)})
    for low, high in zip(stops, [*stops[1:], HIGHEST_FD], strict=True):
        os.closerange(low + 1, high)
