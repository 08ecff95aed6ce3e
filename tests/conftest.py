"""What several test files share: one whole run of the pipeline on a small copy of the repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock

from tests.small_run import commit, copy_repository, run

# the order in which workers take files: long ones first, and those that wait for the small run not side by side
FIRST = [
    "tests/test_dvc.py",
    "tests/contracts/test_sandbox_attacks.py",
    "tests/contracts/test_sandbox.py",
    "tests/contracts/test_sandbox_cases.py",
    "tests/benchmarks/test_bfcl.py",
    "tests/stages/test_rl.py",
    "tests/training/test_reinforcement.py",
    "tests/llm/test_over_http.py",
    "tests/test_remotes.py",
    "tests/test_lineage.py",
    "tests/test_report_pages.py",
    "tests/test_hard_cases_dvc.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; within a file the order stays."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(FIRST)))


class SmallRun(NamedTuple):
    """A finished run, to be read only, and what ``dvc repro`` said of it."""

    folder: Path
    output: str

    def copy(self, target: Path) -> Path:
        """A copy that may be changed."""
        return shutil.copytree(self.folder, target, symlinks=True, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> SmallRun:
    """All stages on small numbers, committed; made once for the whole session, whichever worker asks first."""
    base = tmp_path_factory.getbasetemp()
    place = (base if worker_id == "master" else base.parent) / "small_run"
    place.mkdir(exist_ok=True)
    folder, output = place / "repository", place / "output.txt"
    with FileLock(place / "lock"):
        if not output.is_file():
            folder.mkdir()
            copy_repository(folder)
            said = run(folder, "dvc", "repro")
            commit(folder, "first run")
            output.write_text(said)
    return SmallRun(folder, output.read_text())
