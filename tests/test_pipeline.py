"""dvc.yaml, the scripts' contracts, their params and their real imports agree; layers import only downwards."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from astra.records.schemas import snapshots
from astra.stage import Contract, load_params
from tests.import_closure import ROOT, closure, direct_imports, file_of, relative

STAGES = ["bench_env", "normalize", "graph", "chains", "tasks", "trajectories", "score",
          "decompose", "envsynth", "merge", "sft", "rl", "eval", "ablations", "report"]  # fmt: skip
DATA_STAGES = STAGES[:10]
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())

LAYERS = {
    "records": 0, "yaml_files": 0, "caches": 0, "nested": 0,
    "stage": 1, "formats": 1, "prompts": 1, "llm": 1, "sandbox": 1, "chat": 1, "rewards": 1, "answers": 1,
    "knowledge": 1, "live": 1, "splits": 1, "tables": 1, "toolgraph": 1, "evidence": 2, "encoder": 1,
    "wheels": 1, "wording": 1, "servers": 2, "user": 2, "knowledge_server": 2, "judge": 2, "environments": 2,
    "decontamination": 2, "distinct": 2,
    "agent": 3, "conversations": 3, "scorecards": 3, "drafts": 3, "exports": 3, "certificate": 3, "decomposition": 3,
    "likeness": 4, "rewriting": 4,
    "ablations": 4, "benchmarks": 3, "lineage": 4, "profile": 2, "report": 4, "training": 4, "show": 4, "synthesis": 4,
}  # fmt: skip
TORCH = {"torch", "transformers", "trl", "accelerate", "datasets", "sentence_transformers", "tokenizers"}


def contract(stage: str) -> Contract:
    return importlib.import_module(f"stages.{stage}").CONTRACT


def paths(entries: list) -> set[str]:
    """The paths of a deps, outs, metrics or plots list, whose items are text or a one-key mapping."""
    return {entry if isinstance(entry, str) else next(iter(entry)) for entry in entries}


def code_deps(stage: str) -> set[str]:
    """Files of ours that the stage's result depends on: its script, what it imports, what it starts as a process."""
    started = [ROOT / path for path in contract(stage).reads.values() if path.endswith(".py")]
    files = closure(ROOT / "stages" / f"{stage}.py").union(*(closure(path) for path in started))
    prompts = f"astra/prompts/{stage}"
    return relative(files) | ({prompts} if (ROOT / prompts).is_dir() else set())


def test_dvc_yaml_declares_the_stages_in_data_flow_order():
    assert list(DVC["stages"]) == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_runs_its_own_module(stage):
    assert DVC["stages"][stage]["cmd"] == f"python -m stages.{stage}"


@pytest.mark.parametrize("stage", STAGES)
def test_deps_are_exactly_the_inputs_and_the_code_that_is_really_imported(stage):
    assert paths(DVC["stages"][stage]["deps"]) == set(contract(stage).reads.values()) | code_deps(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_outputs_are_exactly_what_the_contract_writes(stage):
    declared = DVC["stages"][stage]
    one = contract(stage)
    replies = {one.replies} if one.replies else set()
    assert paths(declared["outs"]) == {*one.writes.values(), one.rejects, *one.plots} | replies
    assert paths(declared["metrics"]) == {one.metrics}


@pytest.mark.parametrize("stage", STAGES)
def test_params_are_exactly_what_the_contract_reads(stage):
    assert set(DVC["stages"][stage].get("params", [])) == set(contract(stage).params)


@pytest.mark.parametrize("stage", STAGES)
def test_the_committed_params_are_valid(stage):
    load_params(contract(stage).params, ROOT / "params.yaml")
    load_params(contract(stage).settings, ROOT / "params.yaml")


def test_only_how_endpoints_are_asked_is_read_and_not_tracked():
    assert {key for stage in STAGES for key in contract(stage).settings} == {"llm"}
    assert not any("llm" in DVC["stages"][stage].get("params", []) for stage in STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_no_other_stage(stage):
    imported = {name for name in direct_imports(ROOT / "stages" / f"{stage}.py") if name.startswith("stages.")}
    assert imported == set()


def unit(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "astra" and len(parts) > 1 else None


def test_every_unit_has_a_layer():
    units = {
        path.stem for path in (ROOT / "astra").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert units - {"__init__", "__pycache__"} == set(LAYERS)


def test_units_import_only_from_layers_below_their_own():
    wrong = []
    for file in sorted((ROOT / "astra").rglob("*.py")):
        own = unit(".".join(file.relative_to(ROOT).with_suffix("").parts))
        if own == "__init__":
            continue
        for name in direct_imports(file):
            other = unit(name)
            if name.startswith("stages") or (other and other != own and LAYERS[other] >= LAYERS[own]):
                wrong.append(f"{file.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_the_data_stages_need_no_torch():
    code = (
        "import sys, importlib\n"
        f"for name in {DATA_STAGES!r}: importlib.import_module('stages.' + name)\n"
        f"print(sorted(set(sys.modules) & {TORCH!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_no_parameter_has_a_name_that_the_run_cache_ignores():
    def keys(tree):
        if isinstance(tree, dict):
            for key, value in tree.items():
                yield key
                yield from keys(value)

    assert {"size", "nfiles"}.isdisjoint(keys(PARAMS))


def test_params_sections_are_the_stages_in_data_flow_order():
    own = [stage for stage in STAGES if stage in contract(stage).params]
    assert [key for key in PARAMS if key in STAGES] == own
    assert set(PARAMS) == {"seed", "models", "llm", "policy", "launcher", *own}


def test_dvc_outputs_are_ignored_by_git_without_help_from_dvc():
    ignored = (ROOT / ".gitignore").read_text().split()
    for stage in STAGES:
        assert f"/data/{stage}/" in ignored
    assert "/models/" in ignored


def test_schema_snapshots_are_current():
    stored = {path: path.read_text() for path in (ROOT / "data" / "schemas").glob("*.json")}
    assert {path.relative_to(ROOT): text for path, text in stored.items()} == snapshots(), "run: make schemas"


def test_metrics_of_a_stage_account_for_every_record():
    for file in sorted((ROOT / "metrics").glob("*.json")):
        metrics = json.loads(file.read_text())
        assert metrics["in"] == metrics["out"] + metrics["rejected"], file.name


def test_modules_named_in_dvc_yaml_exist():
    for stage in STAGES:
        for path in paths(DVC["stages"][stage]["deps"]):
            if path.startswith(("astra/", "stages/", "data/raw/")):
                assert (ROOT / path).exists(), f"{stage}: {path}"
    assert file_of("astra.records") is not None
    assert Path(sys.executable).exists()
