"""The launcher: what params mean, how a failing rank ends the stage, and that nothing hangs or lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from astra.stage import StageError
from astra.training import launch
from astra.training.launch import Launcher, LaunchFailed, launched
from tests.import_closure import ROOT

ONE = Launcher(kind="none", processes=1, nodes=1, config=None)
TWO = Launcher(kind="torchrun", processes=2, nodes=1, config=None)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def note(folder: Path) -> None:
    (folder / f"rank-{os.environ.get('RANK', 'none')}-of-{os.environ.get('WORLD_SIZE', 'none')}").touch()


def rank_one_refuses(folder: Path) -> None:
    if os.environ["RANK"] == "1":
        raise StageError("params.yaml: sft.schedule.batch: 3 is no good")
    time.sleep(600)


def rank_one_breaks(folder: Path) -> None:
    if os.environ["RANK"] == "1":
        raise ZeroDivisionError("nothing to divide")
    time.sleep(600)


def rank_one_is_killed(folder: Path) -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def waits(folder: Path) -> None:
    (folder / f"pid-{os.environ['RANK']}").write_text(str(os.getpid()))
    time.sleep(600)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "none", "processes": 2},
        {"kind": "none", "config": "zero3"},
        {"kind": "torchrun", "config": "zero3"},
        {"kind": "accelerate"},
        {"kind": "mpi"},
        {"kind": "torchrun", "processes": 0},
    ],
)
def test_a_launcher_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValidationError):
        Launcher.model_validate({"processes": 1, "nodes": 1, "config": None, **wrong})


def test_without_a_launcher_the_function_is_called_here(place):
    launched(ONE, "tests.training.test_launch:note", place)
    assert [path.name for path in place.glob("rank-*")] == ["rank-none-of-none"]


def test_a_file_that_is_not_there_is_named_with_those_that_are(place):
    (place / "launch").symlink_to(ROOT / "launch")
    wrong = Launcher(kind="accelerate", processes=2, nodes=1, config="zero4")
    with pytest.raises(LaunchFailed, match=r"zero4.*zero2.*zero3"):
        launched(wrong, "tests.training.test_launch:note", place)


def test_several_nodes_need_slurm(place, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(LaunchFailed, match="SLURM_JOB_ID"):
        launched(TWO.model_copy(update={"nodes": 2}), "tests.training.test_launch:note", place)


def test_the_accelerate_file_gets_this_launch_s_numbers(place):
    (place / "launch").symlink_to(ROOT / "launch")
    how = Launcher(kind="accelerate", processes=4, nodes=2, config="zero3")
    made = launch._accelerate_file(how, place, launch.Place(1, "node-a", 1234)).read_text()
    for line in ("num_processes: 8", "num_machines: 2", "machine_rank: 1", "main_process_ip: node-a", "use_cpu: true"):
        assert line in made


@pytest.mark.slow
def test_every_rank_calls_the_function(place):
    launched(TWO, "tests.training.test_launch:note", place)
    assert sorted(path.name for path in place.glob("rank-*")) == ["rank-0-of-2", "rank-1-of-2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "kind", "words"),
    [
        ("rank_one_refuses", StageError, "sft.schedule.batch: 3 is no good"),
        ("rank_one_breaks", LaunchFailed, "rank 1: ZeroDivisionError: nothing to divide"),
        ("rank_one_is_killed", LaunchFailed, "none says why"),
    ],
)
def test_a_failing_rank_ends_the_launch_with_its_own_message(place, target, kind, words):
    with pytest.raises(kind, match=words):
        launched(TWO, f"tests.training.test_launch:{target}", place)


@pytest.mark.slow
def test_ranks_end_when_the_stage_is_killed(place):
    script = (
        "from pathlib import Path\nfrom tests.training.test_launch import TWO, launched\n"
        "launched(TWO, 'tests.training.test_launch:waits', Path('.'))"
    )
    stage = subprocess.Popen([sys.executable, "-c", script], cwd=place)
    ranks = [place / "pid-0", place / "pid-1"]
    try:
        _wait(lambda: all(path.is_file() and path.read_text() for path in ranks))
        pids = [int(path.read_text()) for path in ranks]
    finally:
        stage.kill()
        stage.wait()
    _wait(lambda: not any(_lives(pid) for pid in pids))


@pytest.mark.slow
def test_srun_starts_one_launcher_a_node(place, monkeypatch):
    """With stand-ins for Slurm's two commands that start both nodes here."""
    tools = place / "bin"
    tools.mkdir()
    (tools / "srun").write_text(
        "#!/bin/bash\nwhile [[ $1 == -* ]]; do [[ $1 == *=* ]] && shift || shift 2; done\n"
        'for node in 0 1; do SLURM_NODEID=$node "$@" & done\nwait -n && wait -n\n'
    )
    (tools / "scontrol").write_text("#!/bin/bash\nprintf '127.0.0.1\\nother\\n'\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", str(os.getpid()))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node-[1-2]")
    launched(Launcher(kind="torchrun", processes=1, nodes=2, config=None), "tests.training.test_launch:note", place)
    assert sorted(path.name for path in place.glob("rank-*")) == ["rank-0-of-2", "rank-1-of-2"]


def test_a_lock_that_a_killed_build_left_is_removed_and_the_operator_built_once(place, monkeypatch):
    built = []
    monkeypatch.setattr(launch, "_build", built.append)
    stale = place / "op/lock"
    stale.parent.mkdir()
    stale.touch()
    how = Launcher(kind="accelerate", processes=2, nodes=1, config="zero3")
    environment = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(place)}
    with launch._operators(environment, how):
        assert not stale.exists()
        stale.touch()  # now another launch's, which runs
        with launch._operators(environment, how):
            assert stale.exists()
    assert len(built) == 1


def test_the_letter_of_a_gpu_architecture_is_kept_from_deepspeed(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a;8.0")
    assert launch._environment(1)["TORCH_CUDA_ARCH_LIST"] == "9.0;8.0"


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait(done, limit_s: float = 240) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)
