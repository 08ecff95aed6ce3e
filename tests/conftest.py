"""What several test files share: one whole run of the pipeline on a small copy of the repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock

from tests.small_run import commit, copy_repository, run


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
