"""Benchmarks as the wheels that the registry serves: fetched once by hash, kept as files, unpacked where they are read.

A wheel is a zip of pure Python and data; unpacking it is all that installing would do, and it needs no network. What is
unpacked lies in the project's cache under a hash of all wheels, one folder an environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from astra.caches import cache_root, digest_of_named
from astra.records import Unavailable


class WheelsNotServed(Unavailable):
    """The package registry cannot be reached, or does not serve a file with the pinned hash."""


def fetch(requirements: Path, folder: Path, options: Sequence[str] = ()) -> list[Path]:
    """The wheels that a hash-pinned requirements file names, without what they depend on. Raises WheelsNotServed."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", str(folder), "-r", str(requirements)]
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", *options]
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise WheelsNotServed(
            f"{requirements}: the wheels could not be had: {said[-1]}. Is the package registry reachable? "
            "To go on: dvc repro bench_env; or bring the files from a remote: dvc pull data/bench_env"
        )
    return sorted(folder.glob("*.whl"))


def digest(wheels: Sequence[Path]) -> str:
    """A hash over the wheels' names and contents."""
    return digest_of_named((one.name, one) for one in sorted(wheels))[:20]


def unpacked(*roots: Path) -> Path:
    """A folder with one folder an environment, which holds what the environment's wheels hold.

    Each root has a folder of wheels an environment; what several roots have for one environment lies together.
    """
    wheels = [one for root in roots for one in sorted(root.glob("*/*.whl"))]
    target = cache_root() / "bench_env" / digest(wheels)
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=target.parent, prefix="partial-"))
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as content:
                content.extractall(partial / wheel.parent.name)
        try:
            os.rename(partial, target)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
    return target
