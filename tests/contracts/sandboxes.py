"""The sandbox backends that this machine can start: a worker of each, and what it needs around it.

A Docker engine and bubblewrap come from Debian packages that are unpacked, not installed, under .cache/sandbox, and so
does the image; where DOCKER_HOST is set or bwrap installed, those are taken. What can't be had here is skipped with the
reason.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from astra.sandbox import BACKENDS, CONDITIONS, Worker, probe
from astra.sandbox.docker import image
from astra.sandbox.landlock import FIRST_UID

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".cache" / "sandbox"
PACKAGES = KEPT / "packages"
# a user of its own, so that a pipeline or another test worker that runs at the same time is not counted
SLOT = 40 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

EVERY = [pytest.param(name, marks=[pytest.mark.docker] if name == "docker" else []) for name in BACKENDS]


@contextlib.contextmanager
def started(backend: str) -> Iterator[Worker]:
    """A worker of a backend; skips the test where it can't be started here."""
    with pytest.MonkeyPatch.context() as patch:
        environment = surroundings(backend)
        if isinstance(environment, str):
            pytest.skip(environment)
        for name, value in environment.items():
            patch.setenv(name, value)
        with BACKENDS[backend](CONDITIONS[0], SLOT) as worker:
            yield worker


@functools.cache
def surroundings(backend: str) -> dict[str, str] | str:
    """The environment in which a backend works, or why none does."""
    environment: dict[str, str] = {}
    try:
        if backend == "docker" and "DOCKER_HOST" not in os.environ:
            environment["DOCKER_HOST"] = engine()
        if backend == "bwrap" and shutil.which("bwrap") is None:
            unpack("bubblewrap")
            environment["PATH"] = f"{PACKAGES / 'usr/bin'}:{os.environ['PATH']}"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"{backend} can't be started here: {error}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return probe(backend) or environment


def unpack(*packages: str) -> None:
    if not (PACKAGES / "usr/bin/bwrap").exists():
        command([str(ROOT / "docker/fetch.sh"), str(PACKAGES), *packages])


def engine() -> str:
    """The address of a Docker engine of our own that has the image; ended with this process."""
    if os.getuid() != 0:
        raise RuntimeError("an engine of our own needs root; set DOCKER_HOST to use another")
    state = Path(tempfile.mkdtemp(prefix="astra_engine_"))
    address = f"unix://{state / 'docker.sock'}"
    with (state / "log").open("w") as log:
        start = ["setpriv", "--pdeathsig", "TERM", str(ROOT / "docker/engine.sh"), str(PACKAGES), str(state)]
        process = subprocess.Popen(start, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    atexit.register(_end, process, state)
    deadline = time.monotonic() + 180
    while not (state / "docker.sock").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"docker/engine.sh: {(state / 'log').read_text()[-300:]}")
        time.sleep(0.05)
    _provide_image({**os.environ, "DOCKER_HOST": address, "PATH": f"{os.environ['PATH']}:{PACKAGES / 'usr/bin'}"})
    return address


def _provide_image(environment: dict[str, str]) -> None:
    """Load the image that an earlier run kept, else build it and keep it."""
    kept = KEPT / f"{image().replace(':', '-')}.tar"
    if kept.exists():
        command(["docker", "load", "--quiet", "--input", str(kept)], environment)
        return
    command([str(ROOT / "docker/build.sh")], environment)
    for older in KEPT.glob("astra-sandbox-*.tar"):
        older.unlink()
    part = kept.with_suffix(f".{os.getpid()}.part")
    command(["docker", "save", "--output", str(part), image()], environment)
    part.rename(kept)


def command(words: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")


def _end(process: subprocess.Popen[bytes], state: Path) -> None:
    process.terminate()
    process.wait(30)
    shutil.rmtree(state, ignore_errors=True)


def living(worker: Worker) -> set[int]:
    """The processes that belong to a worker: below the one that was started, or of the user that its tools have."""
    found: set[int] = set()
    above = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line
            )
            if fields["State"].startswith("Z"):
                continue
            above[int(folder.name)] = int(fields["PPid"])
            if os.getuid() == 0 and int(fields["Uid"].split()[0]) == FIRST_UID + SLOT:
                found.add(int(folder.name))
    first = getattr(worker.link, "pid", None)
    for one in above:
        at = one
        while at in above and at != first:
            at = above[at]
        if at == first:
            found.add(one)
    return found


def call(worker: Worker, body: str, timeout_s: float = 2.0, **arguments: object):
    """One call of ``f`` whose lines are given."""
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    return worker.call(f"def f(**given):\n{lines}\n", "f", arguments, timeout_s)
