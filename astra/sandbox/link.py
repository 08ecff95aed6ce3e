"""The way to one running server: bytes in, bytes out, an end. Each backend starts its servers as one kind of link."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

END_S = 1.0  # for a server whose input was closed, before it is killed


class WorkerLost(Exception):
    """The server is gone, late, or talks nonsense: infra_error, never the tool's fault."""


class Link(ABC):
    """One server's input and output. ``deadline`` is of ``time.monotonic``."""

    @abstractmethod
    def write(self, data: bytes, deadline: float) -> None:
        """All of it. Raises WorkerLost."""

    @abstractmethod
    def read_some(self, count: int, deadline: float) -> bytes:
        """Between one byte and ``count``; none where the server ended. Raises WorkerLost."""

    @abstractmethod
    def close(self) -> str:
        """End the server and all that runs in it; the last line that it wrote on stderr."""

    def read(self, count: int, deadline: float) -> bytes:
        """Exactly so many bytes. Raises WorkerLost."""
        found = bytearray()
        while len(found) < count:
            part = self.read_some(count - len(found), deadline)
            if not part:
                raise WorkerLost("the server ended")
            found += part
        return bytes(found)


def wait_for(fd: int, writing: bool, deadline: float) -> None:
    """Until a descriptor can be read or written. Raises WorkerLost at the deadline."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT if writing else select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise WorkerLost("it takes no request in time" if writing else "no answer in time")


class ProcessLink(Link):
    """A server that is a process of this machine. ``user``: started as this user; only root can ask for that."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        user: int | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=None if user is None else (),
            pass_fds=inherited,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._incoming, self._outgoing = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._incoming, False)

    @property
    def pid(self) -> int:
        """Of the process that was started: the server's own, or that of what it runs in."""
        return self._process.pid

    def write(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            wait_for(self._incoming, True, deadline)
            try:
                left = left[os.write(self._incoming, left) :]
            except BlockingIOError:  # less room than a pipe promises whole
                time.sleep(0.001)
            except OSError as error:
                raise WorkerLost(f"the server takes no requests: {error}") from error

    def read_some(self, count: int, deadline: float) -> bytes:
        wait_for(self._outgoing, False, deadline)
        return os.read(self._outgoing, count)

    def close(self) -> str:
        process, said = self._process, b""
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdin = None  # else communicate would flush it
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
        with process, contextlib.suppress(subprocess.TimeoutExpired):
            _, said = process.communicate(timeout=END_S)
        return last_line(said)


def last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
