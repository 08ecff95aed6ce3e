"""The host's side of one fork server: frames out, frames in, a deadline of its own, a new server for a lost one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from astra.sandbox.types import TIMEOUT_S, Job, NotJson, Result, SandboxUnavailable, Status, strict_json

GRACE_S = 3.0  # beyond the tool's own time limit, before the server counts as lost
START_S = 20.0
MAX_FRAME = 4 << 20
MAX_REQUESTS = 20_000  # before a server is replaced by a new one

LIMITS: dict[str, Status] = {
    "timeout": "timeout", "crash": "crash", "output_limit": "output_limit", "result_limit": "result_limit",
    "bad_result": "bad_result", "session_lost": "crash",
}  # fmt: skip


class WorkerLost(Exception):
    """The server is gone, late, or talks nonsense: infra_error, never the tool's fault."""


@dataclass(frozen=True)
class Conditions:
    """What a tool's answer must not depend on."""

    hash_seed: int = 0
    random_seed: int = 0
    clock_s: int = 0  # added to the time


class Worker:
    """One fork server, started when first needed. Implements ``Sandbox``.

    ``command`` starts the runner; ``environment`` is all that it gets. A call whose server is lost is made once more
    on a new one, then SandboxUnavailable is raised.
    """

    def __init__(
        self, backend: str, command: Sequence[str], environment: Mapping[str, str], conditions: Conditions
    ) -> None:
        self.backend = backend
        self.ready: dict[str, Any] = {}  # what the server said of itself when it started
        self._command = list(command)
        self._environment = {**environment, "PYTHONHASHSEED": str(conditions.hash_seed)}
        self._conditions = conditions
        self._process: subprocess.Popen[bytes] | None = None
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
        if answer["status"] != "answered":
            status = LIMITS[answer["status"]]
            how = answer.get("how") or answer["status"].replace("_", " ")
            return [Result(status, error=how, **about)] * count
        try:
            made = strict_json(answer["raw"])
            outcomes, threads = made["outcomes"], made["threads"]
            if len(outcomes) == 1 and "load" in outcomes[0]:
                outcomes = [{"error": outcomes[0]["load"]}] * count
            if len(outcomes) != count:
                raise NotJson(f"{len(outcomes)} outcomes of {count} calls")
            if threads:
                return [Result("leaked_process", error=f"left {int(threads)} threads running", **about)] * count
            return [_result(outcome, about) for outcome in outcomes]
        except (NotJson, KeyError, TypeError, ValueError, AttributeError) as error:
            return [Result("bad_result", error=f"not a result: {error}"[:200], **about)] * count

    # ------------------------------------------------------------ frames

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to one request. Raises WorkerLost, or SandboxUnavailable where no server starts."""
        if self._requests >= MAX_REQUESTS:
            self.close()
        if self._process is None:
            self.start()
        self._requests += 1
        body = json.dumps({**request, "id": self._requests}, allow_nan=False).encode()
        answer = self._exchange(struct.pack(">I", len(body)) + body, timeout_s + GRACE_S)
        if answer.get("id") != self._requests:
            raise WorkerLost(f"an answer to {answer.get('id')}, not to {self._requests}")
        if answer.get("status") == "infra_error":
            raise WorkerLost(str(answer.get("how")))
        return answer

    def _exchange(self, frame: bytes, limit_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame)
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerLost(f"the server takes no requests: {error}") from error
        return self._receive(limit_s)

    def _receive(self, limit_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        length = struct.unpack(">I", self._read(4, deadline))[0]
        if length > MAX_FRAME:
            raise WorkerLost(f"a frame of {length} bytes")
        try:
            answer = json.loads(self._read(length, deadline))
        except ValueError as error:
            raise WorkerLost(f"a frame that is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise WorkerLost("a frame that is no object")
        return answer

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        found = bytearray()
        while len(found) < count:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise WorkerLost("no answer in time")
            part = os.read(fd, count - len(found))
            if not part:
                raise WorkerLost("the server ended")
            found += part
        return bytes(found)

    # ------------------------------------------------------------ the server's life

    def start(self) -> None:
        """Start the server. Raises SandboxUnavailable with what it said."""
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxUnavailable(f"sandbox {self.backend}: {self._command[0]} does not start: {error}") from error
        self._requests = 0
        try:
            self.ready = self._receive(START_S)
        except WorkerLost as lost:
            raise SandboxUnavailable(f"sandbox {self.backend}: {lost}: {self._last_words()}") from lost

    def _last_words(self) -> str:
        """What a server that failed to start wrote, after ending it."""
        assert self._process is not None
        process, self._process = self._process, None
        process.kill()
        _, said = process.communicate()
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _unavailable(self, lost: WorkerLost) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"sandbox {self.backend}: a worker was lost twice over one call: {lost}. Nothing was counted against the "
            "tool; check memory and process limits of this machine, then: dvc repro"
        )

    def close(self) -> None:
        """End the server; a later call starts a new one."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()

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
                return _result({"error": strict_json(answer["raw"])}, {"backend": worker.backend})
            except (NotJson, KeyError, TypeError) as error:
                return Result("bad_result", error=f"not a result: {error}"[:200], backend=worker.backend)
        return worker._results(answer, 1)[0]


def _result(outcome: Mapping[str, Any], about: Mapping[str, Any]) -> Result:
    if "error" in outcome:
        error = outcome["error"]
        return Result("tool_error", error=str(error["message"]), error_type=str(error["type"]), **about)
    if "unfit" in outcome:
        return Result(
            "bad_result", error=f"not serializable: {outcome['unfit']}", error_type="not_serializable", **about
        )
    return Result("ok", outcome["value"], notes=tuple(map(str, outcome["notes"])), **about)
