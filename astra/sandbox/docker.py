"""The fork server in a container, one for each worker: namespaces, control groups and an image with nothing but Python.

The image is built by ``docker/build.sh`` and carries the runner, so its tag is the runner's hash: an image of another
runner is never taken. A container lives as long as its stdin: when this process ends, however, the engine closes it,
the server leaves and the container is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from astra.sandbox.landlock import FIRST_UID, MEMORY_MIB, RUNNER
from astra.sandbox.link import END_S, Link, WorkerLost, last_line, wait_for
from astra.sandbox.types import SandboxUnavailable
from astra.sandbox.worker import Conditions, Worker

SOCKET = Path("/var/run/docker.sock")
STDOUT, MAX_SAID = 1, 64 << 10
CONTAINER_MIB = MEMORY_MIB + 128  # a tool meets its own limit before the container's, which would end the server too


def image() -> str:
    """The image of this runner."""
    return f"astra-sandbox:{hashlib.sha256(RUNNER.read_bytes()).hexdigest()[:12]}"


def docker_worker(conditions: Conditions, slot: int = 0) -> Worker:
    """A worker of this backend. ``slot`` gives each container a user of its own."""

    def start(environment: Mapping[str, str]) -> Link:
        own = {"R_LANDLOCK": "if_there", "R_MEMORY_MIB": str(MEMORY_MIB)}
        with _engine_errors():
            client = _client()
            try:
                return ContainerLink(client, {**environment, **own}, FIRST_UID + slot)
            except BaseException:
                client.close()
                raise

    return Worker("docker", start, conditions)


def _client() -> Any:
    """The engine of DOCKER_HOST or of this machine. Raises SandboxUnavailable, at once where nothing answers."""
    address = os.environ.get("DOCKER_HOST", f"unix://{SOCKET}")
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as attempt:
            try:
                attempt.connect(address.removeprefix("unix://"))
            except OSError as error:
                raise SandboxUnavailable(f"sandbox docker: no engine answers at {address}: {error}") from error
    import docker  # a third of a second, for nothing where there is no engine

    return docker.from_env()


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    """What the engine's client raises, as SandboxUnavailable with the remedy."""
    try:
        yield
    except SandboxUnavailable:
        raise
    except Exception as error:
        kind = type(error).__name__
        remedy = f"; build {image()} with docker/build.sh" if kind == "ImageNotFound" else ""
        raise SandboxUnavailable(f"sandbox docker: {kind}: {str(error)[:300]}{remedy}") from error


class ContainerLink(Link):
    """A container whose main process is the server, over the socket that is attached to its streams."""

    def __init__(self, client: Any, environment: Mapping[str, str], user: int) -> None:
        self._client = client
        self._said = b""
        self._attached: Any = None
        self._ready = bytearray()  # of stdout, not read yet
        self._container = client.containers.create(image(), **_options(environment, user))
        try:
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            self._attached = self._container.attach_socket(params=streams)
            self._socket: socket.socket = getattr(self._attached, "_sock", self._attached)
            self._socket.setblocking(False)
            self._container.start()
        except BaseException:
            self._remove()
            raise

    def write(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            wait_for(self._socket.fileno(), True, deadline)
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                time.sleep(0.001)
            except OSError as error:
                raise WorkerLost(f"the container takes no requests: {error}") from error

    def read_some(self, count: int, deadline: float) -> bytes:
        while not self._ready:
            head = self._exactly(8, deadline)  # the engine's own: which stream, how long
            if head is None:
                return b""
            stream, length = struct.unpack(">BxxxI", head)
            body = self._exactly(length, deadline)
            if body is None:
                return b""
            if stream == STDOUT:
                self._ready += body
            else:
                self._said = (self._said + body)[-MAX_SAID:]
        part = bytes(self._ready[:count])
        del self._ready[:count]
        return part

    def _exactly(self, count: int, deadline: float) -> bytes | None:
        found = bytearray()
        while len(found) < count:
            wait_for(self._socket.fileno(), False, deadline)
            try:
                part = self._socket.recv(count - len(found))
            except BlockingIOError:
                continue
            except OSError as error:
                raise WorkerLost(f"the engine is gone: {error}") from error
            if not part:
                return None
            found += part
        return bytes(found)

    def close(self) -> str:
        deadline = time.monotonic() + END_S
        with contextlib.suppress(OSError, WorkerLost):
            self._socket.shutdown(socket.SHUT_WR)  # the engine closes the server's stdin
            while self.read_some(MAX_SAID, deadline):
                pass
        self._remove()
        return last_line(self._said)

    def _remove(self) -> None:
        """Remove the container; the engine does that itself once the server has left."""
        with contextlib.suppress(Exception):  # gone already, being removed, or the engine is gone
            self._container.remove(force=True)
        if self._attached is not None:
            self._attached.close()
            self._socket.close()
        self._client.close()


def _options(environment: Mapping[str, str], user: int) -> dict[str, Any]:
    """What a container may do: compute."""
    from docker.types import LogConfig, Ulimit

    memory = f"{CONTAINER_MIB}m"
    return {
        "environment": dict(environment),
        "user": f"{user}:{user}",
        "stdin_open": True,
        "auto_remove": True,
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": 32,
        "mem_limit": memory,
        "memswap_limit": memory,
        "ulimits": [Ulimit(name="nofile", soft=64, hard=64), Ulimit(name="core", soft=0, hard=0)],
        "log_config": LogConfig(type="none"),
        "labels": {"astra": "sandbox"},
    }
