"""The host's side of one fork server: frames out, frames in, a deadline of its own, a new server for a lost one."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from astra.sandbox.link import Link, WorkerLost
from astra.sandbox.types import TIMEOUT_S, Job, NotJson, Result, SandboxUnavailable, Status, strict_json

GRACE_S = 3.0  # beyond the tool's own time limit, before the server counts as lost
START_S = 20.0
MAX_FRAME = 8 << 20  # the largest frame of a child is 1 MiB, and JSON makes six bytes of some
MAX_REQUESTS = 20_000  # before a server is replaced by a new one

CUT = "\n[cut: more than 64 KiB were printed]"
LIMITS: dict[str, Status] = {
    "timeout": "timeout", "crash": "crash", "output_limit": "output_limit", "result_limit": "result_limit",
    "bad_result": "bad_result", "session_lost": "crash",
}  # fmt: skip


@dataclass(frozen=True)
class Conditions:
    """What a tool's answer must not depend on."""

    hash_seed: int = 0
    random_seed: int = 0
    clock_s: int = 0  # added to the time
    time_zone: str = "UTC"
    locale: str = "C.UTF-8"  # need not be there: a tool that asks for it then fails, which is another answer too


class Worker:
    """One fork server, started when first needed. Implements ``Sandbox``.

    ``start`` starts the runner with an environment, which is all that it gets. A call whose server is lost is made
    once more on a new one, then SandboxUnavailable is raised.
    """

    def __init__(self, backend: str, start: Callable[[Mapping[str, str]], Link], conditions: Conditions) -> None:
        self.backend = backend
        self.ready: dict[str, Any] = {}  # what the server said of itself when it started
        self.link: Link | None = None
        self._start = start
        self._environment = {
            "PYTHONHASHSEED": str(conditions.hash_seed),
            "PYTHONUTF8": "1",
            "TZ": conditions.time_zone,
            "LC_ALL": conditions.locale,
        }
        self._conditions = conditions
        self._requests = 0

    # ------------------------------------------------------------ calls

    def call(self, code: str, function: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Result:
        """One call in a fresh process. Raises SandboxUnavailable, never for what the tool does."""
        return self.run(Job(code, function, (arguments,), timeout_s))[0]

    def run(self, job: Job) -> list[Result]:
        """All calls of a job, one result each. Raises SandboxUnavailable."""
        request = {"op": "call", "code": job.code, **self._made(job)}
        for attempt in (1, 2):
            try:
                return self._results(self._ask(request, job.timeout_s), len(job.arguments))
            except WorkerLost as lost:
                self.close()
                if attempt == 2:
                    raise self._unavailable(lost) from lost
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def session(self, code: str) -> Iterator[WorkerSession]:
        """Fast repeated calls of one code: it runs once, each call is a fork of what it left."""
        yield WorkerSession(self, code)

    def _made(self, job: Job) -> dict[str, Any]:
        return {
            "function": job.function,
            "calls": [dict(one) for one in job.arguments],
            "timeout_s": job.timeout_s,
            "seed": self._conditions.random_seed,
            "clock_s": self._conditions.clock_s,
        }

    def _results(self, answer: dict[str, Any], count: int) -> list[Result]:
        """An answer as one result a call."""
        about: dict[str, Any] = {
            "backend": self.backend,
            "printed": answer.get("printed", ""),
            "cpu_ms": answer.get("cpu_ms", 0.0),
        }
        if answer["status"] == "output_limit":
            about["printed"] += CUT
        if answer["status"] != "answered":
            status = LIMITS[answer["status"]]
            how = answer.get("how") or answer["status"].replace("_", " ")
            return [Result(status, error=how, **about)] * count
        try:
            made = strict_json(answer["raw"])
            outcomes, left = made["outcomes"], _left_running(made)
            if left:
                return [Result("leaked_process", error=left, **about)] * count
            if len(outcomes) == 1 and "load" in outcomes[0]:
                outcomes = [{"error": outcomes[0]["load"]}] * count
            if len(outcomes) != count:
                raise NotJson(f"{len(outcomes)} outcomes of {count} calls")
            return [_result(outcome, about) for outcome in outcomes]
        except MADE_UP as error:
            return [Result("bad_result", error=f"not a result: {error}"[:200], **about)] * count

    # ------------------------------------------------------------ frames

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to one request. Raises WorkerLost, or SandboxUnavailable where no server starts."""
        if self._requests >= MAX_REQUESTS:
            self.close()
        if self.link is None:
            self.start()
        self._requests += 1
        body = json.dumps({**request, "id": self._requests}, allow_nan=False).encode()
        assert self.link is not None
        deadline = time.monotonic() + timeout_s + GRACE_S
        self.link.write(struct.pack(">I", len(body)) + body, deadline)
        answer = self._receive(self.link, deadline)
        if answer.get("id") != self._requests:
            raise WorkerLost(f"an answer to {answer.get('id')}, not to {self._requests}")
        if answer.get("status") == "infra_error":
            raise WorkerLost(str(answer.get("how")))
        return answer

    def _receive(self, link: Link, deadline: float) -> dict[str, Any]:
        length = struct.unpack(">I", link.read(4, deadline))[0]
        if length > MAX_FRAME:
            raise WorkerLost(f"a frame of {length} bytes")
        try:
            answer = json.loads(link.read(length, deadline))
        except ValueError as error:
            raise WorkerLost(f"a frame that is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise WorkerLost("a frame that is no object")
        return answer

    # ------------------------------------------------------------ the server's life

    def start(self) -> None:
        """Start the server. Raises SandboxUnavailable with what it said."""
        try:
            link = self._start(self._environment)
        except OSError as error:
            raise SandboxUnavailable(f"sandbox {self.backend}: does not start: {error}") from error
        try:
            self.ready = self._receive(link, time.monotonic() + START_S)
        except WorkerLost as lost:
            said = link.close() or "it said nothing"
            raise SandboxUnavailable(f"sandbox {self.backend}: {lost}: {said}") from lost
        self.link, self._requests = link, 0

    def _unavailable(self, lost: WorkerLost) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"sandbox {self.backend}: a worker was lost twice over one call: {lost}. Nothing was counted against the "
            "tool; check memory and process limits of this machine, then: dvc repro"
        )

    def close(self) -> None:
        """End the server; a later call starts a new one."""
        if self.link is not None:
            link, self.link = self.link, None
            link.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerSession:
    """Code that a worker holds loaded; loaded again whenever the holder was lost."""

    def __init__(self, worker: Worker, code: str) -> None:
        self._worker = worker
        self._code = code
        self._loaded = False

    def call(self, function: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Result:
        """One call in a fork of the loaded code. Raises SandboxUnavailable."""
        worker = self._worker
        request = {"op": "again", **worker._made(Job("", function, (arguments,), timeout_s))}
        for attempt in (1, 2):
            try:
                failed = None if self._loaded else self._load(timeout_s)
                if failed is not None:
                    return failed
                answer = worker._ask(request, timeout_s)
                if answer["status"] == "no_session":  # another caller used the worker in between
                    self._loaded = False
                    raise WorkerLost("the session was dropped")
                self._loaded = answer.get("session") != "lost"
                return worker._results(answer, 1)[0]
            except WorkerLost as lost:
                self._loaded = False
                worker.close()
                if attempt == 2:
                    raise worker._unavailable(lost) from lost
        raise AssertionError("unreachable")

    def _load(self, timeout_s: float) -> Result | None:
        """Load the code; a result where the code itself fails."""
        worker = self._worker
        answer = worker._ask({"op": "load", "code": self._code, "timeout_s": timeout_s}, timeout_s)
        if answer["status"] == "loaded":
            self._loaded = True
            return None
        if answer["status"] == "load_error":
            try:
                said = strict_json(answer["raw"])
                left = _left_running(said) if "threads" in said else ""
                if left:
                    return Result("leaked_process", error=left, backend=worker.backend)
                return _result({"error": said}, {"backend": worker.backend})
            except MADE_UP as error:
                return Result("bad_result", error=f"not a result: {error}"[:200], backend=worker.backend)
        return worker._results(answer, 1)[0]


# What reading a child's frame raises where the tool wrote it.
MADE_UP = (NotJson, KeyError, TypeError, ValueError, AttributeError)


def _left_running(made: Mapping[str, Any]) -> str:
    """What a child says that its code started and left, or would have left if the sandbox let it start processes."""
    if made["processes"]:
        return f"tried to start a process: {', '.join(map(str, made['processes']))}"[:200]
    return f"left {int(made['threads'])} threads running" if made["threads"] else ""


def _result(outcome: Mapping[str, Any], about: Mapping[str, Any]) -> Result:
    if "error" in outcome:
        error = outcome["error"]
        return Result("tool_error", error=str(error["message"]), error_type=str(error["type"]), **about)
    if "unfit" in outcome:
        return Result(
            "bad_result", error=f"not serializable: {outcome['unfit']}", error_type="not_serializable", **about
        )
    if "too_large" in outcome:
        return Result("result_limit", error="result limit", **about)
    return Result("ok", outcome["value"], notes=tuple(map(str, outcome["notes"])), **about)
