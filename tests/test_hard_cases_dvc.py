"""What DVC overlooks, tried with DVC itself. The number is the case's in the project's list.

The stage of these tries writes a line into a log that DVC does not know, so that one which DVC took from its run cache
is told from one that ran.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.import_closure import ROOT
from tests.small_run import environment
from tests.test_pipeline import DVC, PARAMS, STAGES

IGNORED = {"size", "nfiles"}  # of these DVC's run cache takes no notice
STAND_IN = """import pathlib, sys
name, out = sys.argv[1:]
with open("ran.log", "a") as log: log.write(name + "\\n")
pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
pathlib.Path(out).write_text(name)
"""


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places of all plain values of a tree of parameters; an empty mapping is one too."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    else:
        yield path


def at(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def dvc(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *command], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ran(folder: Path) -> list[str]:
    """Which stand-ins ran since this was asked last."""
    log = folder / "ran.log"
    names = log.read_text().split() if log.is_file() else []
    log.unlink(missing_ok=True)
    return sorted(names)


def test_hc_066_no_parameter_of_any_depth_has_a_name_that_the_run_cache_ignores():
    assert not [path for path in leaves(PARAMS) if IGNORED & set(path)]


def test_hc_066_dvc_really_overlooks_such_a_name_and_no_other(tmp_path):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    stage = {"cmd": "python stand_in.py a o.txt", "params": ["tasks"], "outs": ["o.txt"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"a": stage}}))
    dvc(tmp_path, "init", "--no-scm", "-q")
    for key, again in (("size", []), ("num_tasks", ["a"])):
        (tmp_path / "params.yaml").write_text(yaml.safe_dump({"tasks": {key: 3}}))
        dvc(tmp_path, "repro", "-q")
        ran(tmp_path)
        (tmp_path / "params.yaml").write_text(yaml.safe_dump({"tasks": {key: 9}}))
        dvc(tmp_path, "repro", "-q")
        assert ran(tmp_path) == again


def test_hc_069_the_model_of_each_role_is_a_parameter_and_its_key_is_none():
    for role, model in PARAMS["models"].items():
        assert {"transport", "name", "temperature", "max_tokens"} <= model.keys(), role
    keys = {key.lower() for path in leaves(PARAMS) for key in path}
    assert not keys & {"api_key", "key", "token", "authorization", "headers", "base_url", "secret", "password"}
    for file in ("dvc.yaml", "dvc.lock"):
        text = (ROOT / file).read_text()
        assert not [word for word in ("api_key", "API_KEY", "Bearer") if word in text]


# ---------------------------------------------------------------- HC-069: what made an output is known, and compared


def paths(declared: list[Any]) -> list[str]:
    """The paths of a list in dvc.yaml, in which some have options."""
    return [one if isinstance(one, str) else next(iter(one)) for one in declared]


def written(stage: dict[str, Any]) -> list[str]:
    return [path for kind in ("outs", "metrics", "plots") for path in paths(stage.get(kind, []))]


def write_stand_in(path: Path) -> None:
    """Something at the path of an input or output: a file, or a folder that holds one."""
    if not path.exists():
        file = path if path.suffix else path / "one"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("stand-in\n")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """The real dvc.yaml, params.yaml, modules and prompts with outputs that stand for the real ones, all in dvc.lock."""
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(ROOT / name, folder)
    for folder_of_code in ("astra", "stages"):
        shutil.copytree(ROOT / folder_of_code, folder / folder_of_code, ignore=shutil.ignore_patterns("__pycache__"))
    for stage in DVC["stages"].values():
        for path in [*paths(stage["deps"]), *written(stage)]:
            write_stand_in(folder / path)
    dvc(folder, "init", "--no-scm", "-q")
    dvc(folder, "commit", "-f", "-q")
    assert json.loads(dvc(folder, "status", "--json")) == {}
    return folder


def changed_of(status: dict[str, Any], stage: str) -> dict[str, Any]:
    """What of a stage's deps changed, by path; for params.yaml by key."""
    parts = [one["changed deps"] for one in status.get(stage, []) if isinstance(one, dict) and "changed deps" in one]
    return {path: what for part in parts for path, what in part.items()}


def test_hc_069_an_edit_of_any_prompt_module_or_parameter_makes_each_stage_that_uses_it_stale(recorded, tmp_path):
    folder = tmp_path / "edited"
    shutil.copytree(recorded, folder, symlinks=True)
    code = {
        path
        for stage in DVC["stages"].values()
        for path in paths(stage["deps"])
        if path.startswith(("astra", "stages"))
    }
    prompts = [str(file.relative_to(ROOT)) for file in (ROOT / "astra/prompts").rglob("*.md")]
    assert len(prompts) > 20
    assert [one for one in prompts if not {one, str(Path(one).parent)} & code] == []  # a folder is hashed whole
    for path in code:
        edited = folder / path if (folder / path).is_file() else max((folder / path).iterdir())
        with edited.open("a") as file:
            file.write("# edited\n")
    tree = yaml.safe_load((folder / "params.yaml").read_text())
    for path in leaves(tree):
        at(tree, path[:-1])[path[-1]] = "edited"
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))
    status = json.loads(dvc(folder, "status", "--json"))
    for name, stage in DVC["stages"].items():
        changed = changed_of(status, name)
        assert code & set(paths(stage["deps"])) <= changed.keys(), name
        assert set(stage.get("params", [])) == changed.get("params.yaml", {}).keys(), name


def test_hc_069_dvc_lock_keeps_the_settings_that_made_each_output(recorded):
    lock = yaml.safe_load((recorded / "dvc.lock").read_text())["stages"]
    for name, stage in DVC["stages"].items():
        kept = lock[name].get("params", {"params.yaml": {}})["params.yaml"]
        assert kept == {key: at(PARAMS, tuple(key.split("."))) for key in stage.get("params", [])}, name
        assert {one["path"] for one in lock[name]["deps"]} == set(paths(stage["deps"])), name


def test_hc_069_a_stage_is_never_given_inputs_of_other_settings_by_dvc(recorded, tmp_path):
    """Asked for one stage alone, DVC makes its inputs anew first, down to the stage whose setting changed."""
    folder = tmp_path / "edited"
    shutil.copytree(recorded, folder, symlinks=True)
    tree = yaml.safe_load((folder / "params.yaml").read_text())
    tree["models"]["judge"]["temperature"] = 0.123
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))
    judged = [name for name in STAGES if "models.judge" in DVC["stages"][name].get("params", [])]
    stale = json.loads(dvc(folder, "status", "--with-deps", "--json", "sft"))
    assert {"score", "tasks"} <= set(judged) & stale.keys()
    assert "models.judge" in str(changed_of(stale, "score")["params.yaml"])
    order = [line for line in dvc(folder, "repro", "--dry", "sft").splitlines() if line.startswith("Running stage")]
    assert order[0] == "Running stage 'tasks':"
    assert "Running stage 'score':" in order
