"""A copy of the repository with small numbers, for tests that need a whole run: made once, copied by who changes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.import_closure import ROOT

SMALL = {
    "chains": {"budget": 4, "budget_of": {"knowledge": 20}},
    "tasks": {"per_server": 2, "per_server_of": {"knowledge": 20}},
    "trajectories": {"attempts": 1},
    "decompose": {"questions": {"train": 60, "heldout": 24, "heldout_entities": 8, "heldout_tools": 8}},
    "sft": {"demonstrations": {"count": 160}, "max_length": 400},
    "rl": {
        "grpo": {"updates": 2, "groups": 2, "group": 4, "micro_batch": 8, "warmup_steps": 0},
        "filling": {"max_rounds": 2, "on_exhausted": "pad"},
        "rollouts_every": 1,
    },
    "eval": {"batch": 64, "benchmarks": {"imitation": {"cases": 2}, "bfcl_v4_*": {"cases": 1}}},
}


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would reach into the copy, and with an identity for git."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ours = ("OPENAI_", "DVC_", "GIT_", "AWS_", "ASTRA_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    identity = {f"GIT_{role}_{what}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {**kept, **identity, "PATH": path, "PYTHONPATH": "", **more}


def run(folder: Path, *command: str, **more: str) -> str:
    """What a command prints; it must succeed."""
    done = attempt(folder, *command, **more)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def attempt(folder: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command that may fail."""
    return subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, text=True)


def merged(tree: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {key: merged(value, change[key]) if isinstance(change.get(key), dict) else change.get(key, value)
            for key, value in tree.items()}  # fmt: skip


def copy_repository(target: Path, changes: dict[str, Any] = SMALL) -> None:
    """What git would track, as it is in the working tree, with changed params; a repository of its own."""
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in tracked.stdout.splitlines():
        if (ROOT / name).is_file() and name != "dvc.lock" and not name.startswith(("metrics/", "plots/")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    params = merged(yaml.safe_load((ROOT / "params.yaml").read_text()), changes)
    (target / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    run(target, "git", "init", "-q")
    commit(target, "small copy")


def commit(folder: Path, message: str) -> None:
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-q", "-m", message)


def ran(output: str) -> list[str]:
    """Stages that a ``dvc repro`` said it runs."""
    return re.findall(r"Running stage '(\w+)'", output)


def change(folder: Path, key: str, value: object) -> None:
    """Set one dotted key of params.yaml, and nothing else."""
    tree = yaml.safe_load((folder / "params.yaml").read_text())
    *parents, last = key.split(".")
    place = tree
    for parent in parents:
        place = place[parent]
    assert last in place
    place[last] = value
    (folder / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
