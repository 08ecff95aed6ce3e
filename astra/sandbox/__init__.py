"""Running code that a model wrote: one interface, several backends, never a bare subprocess.

``open_sandbox("auto")`` takes the first backend of BACKENDS, the strongest first, whose probe works, and refuses where
none does. All backends start the same fork server (``runner.py``); they differ in what is around it.
"""

from __future__ import annotations

from collections.abc import Callable

from astra.sandbox.bwrap import bwrap_worker
from astra.sandbox.docker import docker_worker
from astra.sandbox.landlock import landlock_worker
from astra.sandbox.pool import CONDITIONS, Pool
from astra.sandbox.types import (
    TIMEOUT_S,
    Job,
    NotJson,
    Result,
    Sandbox,
    SandboxUnavailable,
    Session,
    Status,
    strict_json,
)
from astra.sandbox.worker import Conditions, Worker

BACKENDS: dict[str, Callable[[Conditions, int], Worker]] = {
    "docker": docker_worker, "bwrap": bwrap_worker, "landlock": landlock_worker,
}  # fmt: skip
AUTO = "auto"

# Shows that code runs and that it is really confined: each line of the second kind must fail.
PROBE = """
import socket


def probe(path):
    found = []
    for what in (lambda: open(path), lambda: open("/etc/passwd"), lambda: socket.socket()):
        try:
            what()
            found.append("open")
        except OSError:
            found.append("closed")
    return found
"""


def open_sandbox(backend: str = AUTO) -> Worker:
    """One probed worker. Raises SandboxUnavailable with every backend's reason."""
    name = _choose(backend)
    return BACKENDS[name](CONDITIONS[0], 0)


def open_pool(backend: str = AUTO, workers: int = 2) -> Pool:
    """Several workers of one probed backend. Raises SandboxUnavailable with every backend's reason."""
    return Pool(BACKENDS[_choose(backend)], workers)


def _choose(backend: str) -> str:
    if backend != AUTO and backend not in BACKENDS:
        raise SandboxUnavailable(f"no sandbox backend {backend!r}; there are: {AUTO}, {', '.join(BACKENDS)}")
    reasons = []
    for name in BACKENDS if backend == AUTO else (backend,):
        reason = probe(name)
        if reason is None:
            return name
        reasons.append(reason)
    raise SandboxUnavailable(
        "untrusted code cannot be confined on this machine, so it is not run: " + "; ".join(reasons)
        + ". The default needs Linux 5.13 or later with Landlock enabled (dmesg | grep landlock); then: dvc repro"
    )  # fmt: skip


def probe(name: str) -> str | None:
    """Why a backend does not work here; None where it does."""
    with BACKENDS[name](CONDITIONS[0], 0) as worker:
        try:
            result = worker.call(PROBE, "probe", {"path": __file__}, timeout_s=10.0)
        except SandboxUnavailable as error:
            return str(error)
    if result.value != ["closed"] * 3:
        return f"sandbox {name}: a probe was not confined: {result.status} {result.value or result.error}"
    return None


__all__ = [
    "AUTO",
    "BACKENDS",
    "CONDITIONS",
    "PROBE",
    "TIMEOUT_S",
    "Conditions",
    "Job",
    "NotJson",
    "Pool",
    "Result",
    "Sandbox",
    "SandboxUnavailable",
    "Session",
    "Status",
    "Worker",
    "open_pool",
    "open_sandbox",
    "probe",
    "strict_json",
]
