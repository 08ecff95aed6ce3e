"""Stages over HTTP: whatever the endpoint does and whenever they are killed, the bytes are the same and nothing is paid twice.

Small copies of the pipeline's LLM stages run as scripts against ``tests/openai_server.py``. What an undisturbed run wrote
and asked is the reference for all the others.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from astra.llm.store import read_reply
from tests.import_closure import ROOT
from tests.openai_server import FAULTS, Entry, Serving, answers
from tests.small_run import copy_repository, environment

pytestmark = pytest.mark.timeout(600)

STAGES = ("graph", "chains", "tasks", "trajectories", "score", "decompose", "envsynth")  # those that ask models
TOOLS = ("ferry_desk.mcp.json", "parcel_desk.openapi.yaml")
SLOTS = 8
ROLES_AT_ONCE = 2  # of one stage
PRICE = {"prompt": 3.0, "completion": 9.0}
KEY = "sk-Tn/4fA9+q0Zx=="
UNREAD_S = 0.25  # an answer this fresh may not have been read when its reader was killed
SMALL: dict[str, dict[str, Any]] = {
    "llm": {"concurrency": SLOTS, "timeout_s": 2.0, "deadline_s": 120.0, "max_wait_s": 0.05},
    "graph": {"samples": 2},
    "chains": {"budget": 3, "budget_of": {}, "votes": 2, "back_translations": 2},
    "tasks": {"per_server": 2, "per_server_of": {}},
    "trajectories": {"attempts": 1, "concurrency": SLOTS},
    "decompose": {"questions": {"train": 12, "heldout": 4, "heldout_entities": 2, "heldout_tools": 2}},
}
ALL_FAULTS = {
    "seed": 5, "rate": 0.3, "faults": sorted(FAULTS), "most": 2, "hang_s": 5, "response_formats": ["json_object"],
}  # fmt: skip


def small_params() -> dict[str, Any]:
    """The committed params with endpoints for all roles and small numbers."""
    tree = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    tree = {key: {**value, **SMALL[key]} if key in SMALL else value for key, value in tree.items()}
    tree["models"] = {role: {**model, "transport": "openai"} for role, model in tree["models"].items()}
    tree["llm"]["prices"] = {model["name"]: PRICE for model in tree["models"].values()}
    return tree


@dataclass
class Workspace:
    """A folder in which stages run, the store that they share and the endpoint that they ask."""

    folder: Path
    cache: Path
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, stage: str, *flags: str) -> list[str]:
        return [sys.executable, "-m", f"stages.{stage}", *flags]

    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ASTRA_", "DVC_"))}
        return {**kept, "ASTRA_CACHE": str(self.cache), **self.environment}

    def asking(self, server: Serving, key: str = KEY) -> Workspace:
        """The same, with an endpoint."""
        return Workspace(self.folder, self.cache, {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": key})

    def replaying(self) -> Workspace:
        """The same, with nobody to ask."""
        return Workspace(self.folder, self.cache, {"ASTRA_REPLAY": "1"})

    def run(self, stage: str, *flags: str, code: int = 0) -> str:
        """What the stage said. Its exit code must be the given one."""
        done = subprocess.run(
            self.command(stage, *flags), cwd=self.folder, env=self.variables(), capture_output=True, text=True
        )
        assert done.returncode == code, f"{stage}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def start(self, stage: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(stage), cwd=self.folder, env=self.variables(), stderr=subprocess.PIPE, text=True
        )

    def written(self, stages: Iterable[str] = STAGES) -> dict[str, bytes]:
        """All that the stages wrote, rejects and kept replies included."""
        files = [
            file for stage in stages for file in sorted((self.folder / "data" / stage).rglob("*")) if file.is_file()
        ]
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in files}

    def set(self, section: str, **values: Any) -> None:
        """Change params of a section."""
        file = self.folder / "params.yaml"
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        tree[section] |= values
        file.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")


class Reference(NamedTuple):
    """An undisturbed run: what it wrote and what was answered to each of its stages."""

    workspace: Workspace
    written: dict[str, bytes]
    answered: dict[str, Counter[str]]

    def without(self, *stages: str, target: Path) -> Workspace:
        """A copy of the workspace in which all but these stages have run, with an empty store."""
        shutil.copytree(self.workspace.folder, target / "workspace")
        for stage in stages:
            shutil.rmtree(target / "workspace" / "data" / stage)
            (target / "workspace" / "metrics" / f"{stage}.json").unlink()
        return Workspace(target / "workspace", target / "cache")


def prepare(folder: Path) -> Workspace:
    """A workspace with the inputs only."""
    (folder / "workspace/data/raw/tools").mkdir(parents=True)
    for name in TOOLS:
        shutil.copy(ROOT / "data/raw/tools" / name, folder / "workspace/data/raw/tools")
    shutil.copytree(ROOT / "data/raw/knowledge", folder / "workspace/data/raw/knowledge")
    (folder / "workspace/params.yaml").write_text(yaml.safe_dump(small_params(), sort_keys=False), encoding="utf-8")
    workspace = Workspace(folder / "workspace", folder / "cache")
    workspace.run("normalize")
    return workspace


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    answered: dict[str, Counter[str]] = {}
    with Serving(folder / "log.jsonl") as server:
        workspace = prepare(folder).asking(server)
        for stage in STAGES:
            seen = len(server.entries())
            workspace.run(stage)
            answered[stage] = answers(server.entries()[seen:])
    return Reference(workspace, workspace.written(), answered)


def same(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> None:
    """Assert that the files are the same, naming those that are not."""
    assert [name for name in {**found, **expected} if found.get(name) != expected.get(name)] == []


# ---------------------------------------------------------------- a bad endpoint


def test_a_faulty_endpoint_changes_no_byte(reference, tmp_path):
    inputs = reference.without(*STAGES, target=tmp_path)
    with Serving(tmp_path / "log.jsonl", ALL_FAULTS) as server:
        for stage in STAGES:
            inputs.asking(server).run(stage)
        met = Counter(one.fault for one in server.entries() if one.fault is not None)
    same(inputs.written(), reference.written)
    assert met.keys() >= set(FAULTS) - {"no_response_format"}, met  # the form is negotiated before


def test_a_server_with_few_slots_is_asked_more_slowly_and_changes_no_byte(reference, tmp_path):
    workspace = reference.without("score", target=tmp_path)
    with Serving(tmp_path / "log.jsonl", slots=2, latency_ms=5) as server:
        workspace.asking(server).run("score")
        assert any(one.fault == "slots" for one in server.entries())
        assert server.answered() == reference.answered["score"]
    same(workspace.written(), reference.written)


# ---------------------------------------------------------------- kill -9


@dataclass(frozen=True)
class Moment:
    """When a stage is killed: after this share of its answers."""

    stage: str
    share: float


def moments(seed: int, count: int) -> list[Moment]:
    """Seeded moments, spread over the stages."""
    rng = random.Random(f"kill:{seed}")
    stages = list(STAGES)
    rng.shuffle(stages)
    return [Moment(stages[n % len(stages)], rng.uniform(0.02, 0.95)) for n in range(count)]


def kill_after(server: Serving, process: subprocess.Popen[str], seen: int, answered: int) -> float | None:
    """Kill a stage once so many of its requests were answered; when, or None where it ended before."""
    while process.poll() is None:
        if answers(server.entries()[seen:]).total() >= answered:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return time.time()
        time.sleep(0.005)
    return None


def check_paid_once(entries: Iterable[Entry], expected: Counter[str], kills: list[float]) -> None:
    """Assert that nothing was answered again but what a killed process cannot have read, at most its slots."""
    times: dict[str, list[Entry]] = {}
    for one in entries:
        if one.answered:
            times.setdefault(one.digest, []).append(one)
    assert times.keys() == expected.keys()
    lost: Counter[float] = Counter()
    for digest, all_of_them in times.items():
        surplus = len(all_of_them) - expected[digest]
        unread = [
            kill for one in all_of_them for kill in kills
            if kill - UNREAD_S <= one.written and one.arrived <= kill + UNREAD_S
        ]  # fmt: skip
        assert surplus <= len(unread), f"{digest} was paid {len(all_of_them)} times: {all_of_them}, kills {kills}"
        lost.update(unread[:surplus])
    assert all(number <= ROLES_AT_ONCE * SLOTS for number in lost.values()), lost


def killed_and_continued(reference: Reference, folder: Path, plan: list[Moment]) -> None:
    kills: list[float] = []
    stages = [stage for stage in STAGES if any(moment.stage == stage for moment in plan)]
    workspace = reference.without(*stages, target=folder)
    with Serving(folder / "log.jsonl", latency_ms=20) as server:
        asking = workspace.asking(server)
        for stage in stages:
            begun = len(server.entries())
            for moment in sorted((one for one in plan if one.stage == stage), key=lambda one: one.share):
                wanted = int(moment.share * reference.answered[stage].total())
                with asking.start(stage) as process:
                    killed_at = kill_after(server, process, begun, wanted)
                if killed_at is not None:
                    kills.append(killed_at)
                    assert not list((workspace.folder / "data").glob(f"{stage}/*.jsonl")), "an output before its end"
            asking.run(stage)
        entries = server.entries()
    same(workspace.written(), reference.written)
    check_paid_once(entries, sum((reference.answered[stage] for stage in stages), Counter()), kills)
    assert len(kills) >= 0.8 * len(plan)


def test_hc_067_killed_at_any_moment_a_stage_goes_on_and_pays_for_nothing_twice(reference, tmp_path):
    killed_and_continued(reference, tmp_path, moments(seed=1, count=4))


@pytest.mark.slow
def test_killed_at_twenty_moments(reference, tmp_path):
    killed_and_continued(reference, tmp_path, moments(seed=2, count=20))


# ---------------------------------------------------------------- an endpoint that goes away


def test_a_server_that_dies_stops_the_stage_and_only_the_rest_is_asked_afterwards(reference, tmp_path):
    workspace = reference.without("tasks", target=tmp_path)
    half = reference.answered["tasks"].total() // 2
    with Serving(tmp_path / "first.jsonl", latency_ms=20, die_after=half) as server:
        said = workspace.asking(server).run("tasks", code=3)
        died_at = time.time()
        first = server.entries()
    assert "dvc repro" in said
    assert "are kept" in said
    with Serving(tmp_path / "second.jsonl") as server:
        workspace.asking(server).run("tasks")
        second = server.entries()
    same(workspace.written(), reference.written)
    last = max(one.written for one in first)
    assert last < died_at
    check_paid_once([*first, *second], reference.answered["tasks"], [last])


def test_no_endpoint_at_all_is_one_message_that_names_it(reference, tmp_path):
    workspace = reference.without("tasks", target=tmp_path)
    assert "OPENAI_BASE_URL" in workspace.run("tasks", code=3)
    with Serving(tmp_path / "log.jsonl") as server:
        asking = workspace.asking(server)
    said = asking.run("tasks", code=3)
    assert server.url in said
    assert "dvc repro" in said


# ---------------------------------------------------------------- budgets


def costs(cache: Path) -> list[float]:
    """What each kept reply cost."""
    with sqlite3.connect(cache / "replies.sqlite") as sql:
        replies = [read_reply(text) for (text,) in sql.execute("SELECT reply FROM replies")]
    sql.close()
    return [
        (one.usage.prompt_tokens * PRICE["prompt"] + one.usage.completion_tokens * PRICE["completion"]) / 1e6
        for one in replies
    ]


def test_a_budget_stops_the_stage_in_time_and_a_higher_one_ends_it_with_the_same_bytes(reference, tmp_path):
    workspace = reference.without("score", target=tmp_path)
    estimate = re.search(r"([0-9.]+) USD", workspace.run("score", "--estimate"))
    assert estimate is not None
    assert not (workspace.folder / "data/score").exists()
    budget = float(estimate.group(1)) / 2
    workspace.set("llm", budget={"stage_usd": budget, "run_usd": None})
    with Serving(tmp_path / "log.jsonl", latency_ms=10) as server:
        asking = workspace.asking(server)
        said = asking.run("score", code=3)
        spent = costs(workspace.cache)
        assert "llm.budget.stage_usd" in said
        assert "params.yaml" in said
        assert budget <= sum(spent) <= budget + SLOTS * max(spent)
        assert len(spent) == server.answered().total()
        assert "llm.budget.stage_usd" in asking.run("score", code=3)  # again: nothing more is paid
        assert len(costs(workspace.cache)) == len(spent)
        workspace.set("llm", budget={"stage_usd": 10 * budget, "run_usd": None})
        asking.run("score")
        assert server.answered() == reference.answered["score"]
    same(workspace.written(), reference.written)
    assert sum(costs(workspace.cache)) == pytest.approx(2 * budget, rel=0.02)


# ---------------------------------------------------------------- side by side


def test_two_processes_that_share_a_store_pay_once(reference, tmp_path):
    one = reference.without("score", target=tmp_path / "one")
    two = reference.without("score", target=tmp_path / "two")
    two.cache = one.cache
    with Serving(tmp_path / "log.jsonl", latency_ms=30) as server:
        with one.asking(server).start("score") as first, two.asking(server).start("score") as second:
            said = [process.communicate()[1] for process in (first, second)]
        assert (first.returncode, second.returncode) == (0, 0), said
        assert server.answered() == reference.answered["score"]
    same(one.written(), reference.written)
    same(two.written(), reference.written)


@pytest.mark.slow
def test_two_queued_experiments_pay_once_and_give_the_same_bytes(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    copy_repository(folder)
    (folder / "params.yaml").write_text(yaml.safe_dump(small_params(), sort_keys=False), encoding="utf-8")
    git(folder, "commit", "-q", "-a", "-m", "endpoints")
    with Serving(tmp_path / "log.jsonl", latency_ms=100) as server:
        endpoint = {**environment(), "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
        dvc(folder, endpoint, "repro", "normalize")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "servers")
        for reasks in "23":  # no part of any prompt: both ask the same
            change = f"graph.reasks={reasks}"
            dvc(folder, endpoint, "exp", "run", "--queue", "-n", f"reasks-{reasks}", "-S", change, "graph")
        dvc(folder, endpoint, "queue", "start", "-j", "2")
        deadline = time.monotonic() + 300
        while (found := states(dvc(folder, endpoint, "queue", "status"))) & {"Queued", "Running"}:
            assert time.monotonic() < deadline, dvc(folder, endpoint, "queue", "status")
            time.sleep(2)
        assert found == {"Success"}, dvc(folder, endpoint, "queue", "logs", "reasks-2")
        assert set(server.answered().values()) == {1}
    refs = [ref for ref in git(folder, "for-each-ref", "refs/exps", "--format=%(refname)").split() if "/reasks-" in ref]
    locks = [yaml.safe_load(git(folder, "show", f"{ref}:dvc.lock"))["stages"]["graph"]["outs"] for ref in refs]
    assert len(locks) == 2
    hashes = [{one["path"]: one["md5"] for one in outs if one["path"].startswith("data/")} for outs in locks]
    assert hashes[0] == hashes[1]


def git(folder: Path, *arguments: str) -> str:
    return dvc(folder, environment(), *arguments, program="git")


def dvc(folder: Path, variables: Mapping[str, str], *arguments: str, program: str = "dvc") -> str:
    done = subprocess.run([program, *arguments], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{program} {arguments}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def states(status: str) -> set[str]:
    """The states of the queue's tasks."""
    return set(status.split()) & {"Queued", "Running", "Success", "Failed"}


# ---------------------------------------------------------------- replay


def test_replay_gives_the_same_bytes_without_server_and_key(reference, tmp_path):
    shutil.copytree(reference.workspace.folder, tmp_path / "workspace")
    workspace = Workspace(tmp_path / "workspace", tmp_path / "cache")
    files = [str(file) for file in sorted((workspace.folder / "data").glob("*/replies.jsonl"))]
    assert len(files) == len(STAGES)
    command = [sys.executable, "-m", "astra.llm", "import", *files]
    subprocess.run(command, cwd=workspace.folder, env=workspace.variables(), check=True, capture_output=True)
    for stage in ("tasks", "trajectories", "envsynth"):
        shutil.rmtree(workspace.folder / "data" / stage)
        workspace.replaying().run(stage)
    same(workspace.written(), reference.written)


def test_a_reply_that_is_missing_in_replay_names_the_stage_and_the_way_on(reference, tmp_path):
    workspace = reference.without("tasks", target=tmp_path)
    said = workspace.replaying().run("tasks", code=3)
    for part in ("tasks", "ASTRA_REPLAY", "python -m astra.llm import", "dvc pull"):
        assert part in said


# ---------------------------------------------------------------- the key


def holding(folder: Path, secret: str) -> Iterator[Path]:
    """Files that hold a text, as it is or as JSON writes it with escaped slashes."""
    forms = {secret.encode(), secret.replace("/", "\\/").encode()}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and any(form in file.read_bytes() for form in forms):
            yield file


def test_the_key_is_nowhere_even_if_the_server_repeats_it(reference, tmp_path):
    inputs = reference.without("trajectories", "score", "decompose", target=tmp_path)
    plan = {**ALL_FAULTS, "faults": ["500", "429_seconds", "503_no_header", "200_error_body"], "echo_key": True}
    said = ""
    with Serving(tmp_path / "log.jsonl", plan, key=KEY, slots=6) as server:
        for stage in ("trajectories", "score"):
            said += inputs.asking(server).run(stage)
        assert any(one.status == 500 for one in server.entries())
        assert KEY not in said
        other = inputs.asking(server, key=KEY[::-1])
        said = other.run("decompose", code=3)
        assert "401" in said
        assert KEY[::-1] not in said
    assert "[key]" in (inputs.folder / "data/trajectories/trajectories.jsonl").read_text(encoding="utf-8")
    for secret in (KEY, KEY[::-1]):
        assert list(holding(inputs.folder, secret)) == []
        assert list(holding(inputs.cache, secret)) == []
