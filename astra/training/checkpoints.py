"""Where an unfinished rl run lies, so that a killed one goes on where it was.

DVC deletes a stage's outputs before it reruns, so checkpoints lie outside them: ``$ASTRA_CACHE/rl/KEY``, else
``.cache/rl/KEY`` of the project, with KEY over all that decides what a run computes. Another parameter, another arena
or other weights are another run. A checkpoint is a folder of the transformers Trainer's (weights, optimiser, schedule,
random states) with one file of ours, written last: one without it was cut short and is not used.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from astra.caches import cache_root, files_of, sha256_of
from astra.records import canonical

OURS = "practice.pickle"


def run_folder(stage: str, settings: Any, inputs: Iterable[Path]) -> Path:
    """The folder of the run with these settings and input files; folders count with all their files."""
    digest = hashlib.sha256(canonical(settings).encode())
    for path in inputs:
        for file in files_of(path):
            digest.update(f"\n{file.relative_to(path.parent)}\n".encode() + sha256_of(file))
    return cache_root() / stage / digest.hexdigest()[:20]


def write_pickle(path: Path, value: Any) -> None:
    """All or nothing."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(pickle.dumps(value))
    os.replace(partial, path)


def read_pickle(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def newest(folder: Path) -> Path | None:
    """The last whole checkpoint in a run's folder."""
    whole = [one.parent for one in folder.glob(f"checkpoint-*/{OURS}")]
    return max(whole, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def drop_cut_short(folder: Path) -> None:
    """Remove checkpoints that were being written when the run was killed."""
    for one in folder.glob("checkpoint-*"):
        if not (one / OURS).is_file():
            shutil.rmtree(one)
