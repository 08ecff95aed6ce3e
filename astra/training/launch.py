"""Training on several processes: plainly here, under torchrun, or under ``accelerate launch`` with a DeepSpeed file.

A stage prepares its rows alone and then calls ``launched``: the same function runs here or on every rank. What the
ranks make lies in the folder that they are given; the stage reads it and writes its outputs. So nobody waits in a
collective while rank 0 renders conversations, and a rank that fails leaves its exception in that folder.

    python -m astra.training.launch rank TARGET FOLDER           # one rank; started by torchrun or accelerate
    python -m astra.training.launch node LAUNCHER TARGET FOLDER  # one node's ranks; started by srun
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, cast

import torch
import yaml
from pydantic import Field, model_validator

from astra.caches import cache_root
from astra.records import Section

CONFIGS = Path("launch")  # accelerate files by name; a dependency of the stages that launch
LOG = "launch.log"
_FAILURES = "failures"
_SHOWN = 25  # lines of the log that a message shows when no rank said why it ended


class LaunchFailed(Exception):
    """Ranks could not be started, or ended without their result; the message says what is known."""


class Launcher(Section):
    """How a training function is started."""

    kind: Literal["none", "torchrun", "accelerate"] = Field(description="none: in the stage's own process.")
    processes: int = Field(ge=1, description="Ranks a node, one a GPU.")
    nodes: int = Field(ge=1, description="Nodes; more than one needs a Slurm allocation.")
    config: str | None = Field(description="Name of a file in launch/ (launch/zero3.yaml: zero3); only for accelerate.")

    @model_validator(mode="after")
    def _agrees(self) -> Launcher:
        if (self.config is not None) != (self.kind == "accelerate"):
            raise ValueError(f"config names a file of {CONFIGS}/ with kind accelerate, and is null otherwise")
        if self.kind == "none" and (self.processes, self.nodes) != (1, 1):
            raise ValueError("kind none is one process on one node; take torchrun or accelerate for more")
        return self


def is_main() -> bool:
    """Whether this process is rank 0, or no rank of anything."""
    return os.environ.get("RANK", "0") == "0"


def world_size() -> int:
    """Ranks of the launch that this process belongs to."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def sequence_parallel() -> int:
    """Ranks that share one sequence (Ulysses), as the accelerate file says."""
    return int(os.environ.get("PARALLELISM_CONFIG_SP_SIZE", "1"))


def under_deepspeed() -> bool:
    return os.environ.get("ACCELERATE_USE_DEEPSPEED", "false") == "true"


def launched(launcher: Launcher, target: str, folder: Path, threads: int = 1, log: Path | None = None) -> None:
    """Call ``target`` ("package.module:function") with ``folder``, here or on every rank.

    Raises what the first failing rank raised if it is an exception of ours, else LaunchFailed.
    """
    if launcher.kind == "none":
        _function(target)(folder)
        return
    if launcher.nodes > 1 and "SLURM_JOB_ID" not in os.environ:
        raise LaunchFailed("launcher.nodes is above 1 and this is no Slurm job (no SLURM_JOB_ID): see docs/cluster.md")
    shutil.rmtree(folder / _FAILURES, ignore_errors=True)
    (folder / _FAILURES).mkdir(parents=True)
    log = log or folder / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    command = _node_command(launcher, target, folder) if launcher.nodes == 1 else _srun(launcher, target, folder)
    environment = _environment(threads)
    with _operators(environment, launcher):
        code = _run(command, environment, log)
    if code:
        _explain(folder, log, code)


def _function(target: str) -> Callable[[Path], None]:
    module, _, name = target.partition(":")
    return cast("Callable[[Path], None]", getattr(importlib.import_module(module), name))


def _environment(threads: int) -> dict[str, str]:
    """For ranks: our compiled operators, as many threads as params say, this checkout's code."""
    paths = [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    wanted = {
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_EXTENSIONS_DIR": str((cache_root() / "torch_extensions" / f"torch-{torch.__version__}").resolve()),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    if not torch.cuda.is_available():
        wanted["DS_ACCELERATOR"] = "cpu"
    if "TORCH_CUDA_ARCH_LIST" in os.environ:  # DeepSpeed's builder reads numbers only: 9.0a stops it
        wanted["TORCH_CUDA_ARCH_LIST"] = re.sub(r"(?<=\d)[a-z]", "", os.environ["TORCH_CUDA_ARCH_LIST"])
    return {**os.environ, **wanted}


class Place(NamedTuple):
    """A node's number, and where rank 0 listens."""

    rank: int
    address: str
    port: int


def _node_command(launcher: Launcher, target: str, folder: Path, place: Place | None = None) -> list[str]:
    """What starts the ranks of one node."""
    where = place or Place(0, "127.0.0.1", _free_port())
    rank = ["astra.training.launch", "rank", target, str(folder)]
    if launcher.kind == "torchrun":
        counts = [f"--nnodes={launcher.nodes}", f"--nproc_per_node={launcher.processes}", f"--node_rank={where.rank}"]
        meeting = [f"--master_addr={where.address}", f"--master_port={where.port}"]
        return [sys.executable, "-m", "torch.distributed.run", *counts, *meeting, "-m", *rank]
    config = _accelerate_file(launcher, folder, where)
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), "--module", *rank]


def _accelerate_file(launcher: Launcher, folder: Path, where: Place) -> Path:
    """The named file with this launch's numbers in it: processes, nodes, and whether there are GPUs."""
    source = CONFIGS / f"{launcher.config}.yaml"
    if not source.is_file():
        known = ", ".join(sorted(path.stem for path in CONFIGS.glob("*.yaml")))
        raise LaunchFailed(f"launcher.config: {launcher.config!r}: no such file {source}; there are: {known}")
    gpu = torch.cuda.is_available()
    config = yaml.safe_load(source.read_text(encoding="utf-8"))
    config |= {
        "num_processes": launcher.processes * launcher.nodes,
        "num_machines": launcher.nodes,
        "machine_rank": where.rank,
        "main_process_ip": where.address,
        "main_process_port": where.port,
        "use_cpu": not gpu,
        "mixed_precision": "bf16" if gpu else "no",
    }
    made = folder / f"accelerate-{where.rank}.yaml"
    made.write_text(yaml.safe_dump(config), encoding="utf-8")
    return made


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _srun(launcher: Launcher, target: str, folder: Path) -> list[str]:
    """One task a node, each of which starts that node's ranks."""
    nodes = str(launcher.nodes)
    tasks = ["srun", "--nodes", nodes, "--ntasks", nodes, "--ntasks-per-node", "1", "--kill-on-bad-exit=1"]
    node = ["astra.training.launch", "node", launcher.model_dump_json(), target, str(folder)]
    return [*tasks, sys.executable, "-m", *node]


def _slurm_place() -> Place:
    """Node number of an srun task and the first node's address; the port is the job's own."""
    names = os.environ["SLURM_JOB_NODELIST"]
    listed = subprocess.run(["scontrol", "show", "hostnames", names], capture_output=True, text=True, check=True)
    port = 20_000 + int(os.environ["SLURM_JOB_ID"]) % 40_000
    return Place(int(os.environ["SLURM_NODEID"]), listed.stdout.split()[0], port)


def _run(command: list[str], environment: Mapping[str, str], log: Path) -> int:
    """Run to the end with all output in ``log``; the exit status. Ends the ranks when this process is stopped."""
    with log.open("ab") as out:
        started = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            preexec_fn=_die_with_parent,
        )
        try:
            return started.wait()
        except BaseException:
            started.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(40)  # torchrun gives its ranks 30 s
            started.kill()
            raise


def _die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the stage is killed, so that no rank goes on writing checkpoints."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _operators(environment: Mapping[str, str], launcher: Launcher) -> Iterator[None]:
    """DeepSpeed's CPU operator compiled once and for all, and no lock left over from a build that was killed.

    torch waits for ever for a file called ``lock`` whose maker is dead. Every launch holds a shared lock of the
    kernel's, which dies with its process; who gets it alone knows that any such file is a dead one's.
    """
    if launcher.kind != "accelerate" or environment.get("DS_ACCELERATOR") != "cpu":
        yield
        return
    folder = Path(environment["TORCH_EXTENSIONS_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "in-use").open("w") as mine:
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(mine, fcntl.LOCK_SH)
        else:
            for left in folder.rglob("lock"):
                left.unlink()
            _build(environment)
            fcntl.flock(mine, fcntl.LOCK_SH)
        yield


def _build(environment: Mapping[str, str]) -> None:
    load = (
        "from deepspeed.ops.op_builder.cpu.comm import ShareMemCommBuilder; ShareMemCommBuilder().load(verbose=False)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", load], env=dict(environment), capture_output=True, text=True
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-3:]
        raise LaunchFailed(
            "deepspeed or its CPU operator is missing (pip install deepspeed==0.19.8; compiling needs g++, ninja): "
            + " | ".join(said)
        )


def _explain(folder: Path, log: Path, code: int) -> NoReturn:
    """Raises what the first failing rank left, or LaunchFailed."""
    failures = sorted((folder / _FAILURES).glob("*.pickle"), key=lambda path: path.stat().st_mtime_ns)
    if not failures:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN:])
        raise LaunchFailed(f"the ranks ended with status {code} and none says why; the end of {log}:\n{tail}")
    rank, error = pickle.loads(failures[0].read_bytes())
    if isinstance(error, Exception) and type(error).__module__.partition(".")[0] in ("astra", "stages"):
        raise error
    raise LaunchFailed(f"rank {rank}: {error}; the whole log: {log}")


def _leave_word(folder: Path, error: BaseException) -> None:
    """The exception of this rank in the folder, as it is if it can be pickled, else as text."""
    rank = os.environ.get("RANK", "0")
    text = f"{type(error).__name__}: {error}"
    try:
        word = pickle.dumps((rank, error))
        pickle.loads(word)
    except Exception:  # an exception class of foreign code
        word = pickle.dumps((rank, text))
    if type(error).__module__.partition(".")[0] not in ("astra", "stages"):
        word = pickle.dumps((rank, text))
    place = folder / _FAILURES / f"rank-{rank}.pickle"
    partial = place.with_suffix(".partial")
    partial.write_bytes(word)
    os.replace(partial, place)


def _follow_parent() -> None:
    """End this rank when what started it is gone: nobody else would."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_rank(target: str, folder: Path) -> NoReturn:
    """Call the target as one rank and end this process, without waiting for collectives that will not come."""
    _follow_parent()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        _function(target)(folder)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()
    except BaseException as error:
        traceback.print_exc()
        _leave_word(folder, error)
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # CUDA and gloo threads have hung here after a good run


def run_node(launcher: Launcher, target: str, folder: Path) -> int:
    """Start this node's ranks and wait for them; their exit status."""
    command = _node_command(launcher, target, folder, _slurm_place())
    return subprocess.run(command, env=_environment(int(os.environ.get("OMP_NUM_THREADS", "1")))).returncode


def main(arguments: list[str]) -> None:
    what, *rest = arguments
    if what == "rank":
        run_rank(rest[0], Path(rest[1]))
    launcher: Any = json.loads(rest[0])
    raise SystemExit(run_node(Launcher.model_validate(launcher), rest[1], Path(rest[2])))


if __name__ == "__main__":
    main(sys.argv[1:])
