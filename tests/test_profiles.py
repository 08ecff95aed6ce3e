"""Every profile fits the stages' types, and dvc takes it as it is meant."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import yaml
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import load_yaml

from astra.profile import BadProfile, command, flags, main, over, target
from astra.stage import load_params
from astra.yaml_files import read_yaml
from tests.import_closure import ROOT
from tests.small_run import copy_repository, environment, run
from tests.test_pipeline import PARAMS, STAGES, contract

PROFILES = [["cluster"], ["cluster", "32b"], ["served"]]
TRAINING = PROFILES[:2]


def wanted(names: list[str]) -> dict:
    return target(PARAMS, names, ROOT / "profiles")


def test_every_file_of_profiles_is_tried_here():
    assert {path.stem for path in (ROOT / "profiles").glob("*.yaml")} == {name for names in PROFILES for name in names}


@pytest.mark.parametrize("names", PROFILES, ids="+".join)
@pytest.mark.parametrize("stage", STAGES)
def test_a_profile_fits_the_types_of_every_stage(names, stage, tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(wanted(names), sort_keys=False))
    one = contract(stage)
    load_params(one.params, file)
    load_params(one.settings, file)


@pytest.mark.parametrize("names", PROFILES, ids="+".join)
def test_dvc_takes_the_flags_as_the_profile_means_them_and_keeps_the_comments(names, tmp_path):
    file = tmp_path / "params.yaml"
    shutil.copy2(ROOT / "params.yaml", file)
    apply_overrides(file, flags(PARAMS, wanted(names)))
    assert load_yaml(file) == wanted(names)
    before, after = (text.read_text().count("#") for text in (ROOT / "params.yaml", file))
    assert after >= before - 5  # a comment goes only with the key that it stood behind


@pytest.mark.parametrize("names", PROFILES, ids="+".join)
def test_a_profile_says_only_what_differs(names):
    def same(default: object, above: object, path: str) -> list[str]:
        if isinstance(default, dict) and isinstance(above, dict):
            return [one for key in above if key in default for one in same(default[key], above[key], f"{path}.{key}")]
        return [path] if default == above else []

    assert same(wanted(names[:-1]), read_yaml(ROOT / "profiles" / f"{names[-1]}.yaml"), "") == []


def test_the_commands_of_a_profile_are_dvcs_and_nothing_else():
    rendered = command(flags(PARAMS, wanted(["cluster", "32b"])), ["exp", "run", "--queue", "-n", "big"])
    assert rendered[:3] == ["dvc", "exp", "run"]
    assert rendered[-3:] == ["--queue", "-n", "big"]  # what is asked for comes last: its -S go over the profile's
    assert set(rendered[3:-3:2]) == {"-S"}
    assert {'policy.model="Qwen/Qwen3-32B"', "sft.schedule.lr=2e-06", 'envsynth.backend="docker"'} <= set(rendered)
    assert command(flags(PARAMS, wanted(["cluster"])), ["repro", "sft"]) == ["dvc", "repro", "sft"]


@pytest.mark.parametrize("names", TRAINING, ids="+".join)
def test_the_launchers_of_a_profile_name_files_that_are_there_and_batches_that_divide(names):
    params = wanted(names)
    for stage in ("sft", "rl"):
        assert (ROOT / "launch" / f"{params['launcher'][stage]['config']}.yaml").is_file()
    grpo, launcher = params["rl"]["grpo"], params["launcher"]["rl"]
    ranks = launcher["processes"] * launcher["nodes"]
    assert grpo["groups"] * grpo["group"] == 256  # the paper's batch
    assert grpo["groups"] * grpo["group"] % (grpo["micro_batch"] * ranks) == 0


def test_no_profile_holds_an_address_or_a_key():
    for path in (ROOT / "profiles").glob("*.yaml"):
        for word in ("http:", "https:", "api_key:", "token:", "secret"):
            assert word not in path.read_text(), path


@pytest.mark.parametrize(("default", "above", "said"), [
    ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b=2"]),
    ({"a": {"b": 1}}, {"a": {"b": 0.0000002}}, ["a.b=2e-07"]),
    ({"a": {"b": 1}}, {"a": {"c": "x y"}}, ['+a.c="x y"']),
    ({"a": {"b": 1, "c": 2}}, {"a!": {"c": 3}}, ["~a.b", "a.c=3"]),
    ({"a": {"b": 1}}, {"a!": {}}, ["~a.b"]),
    ({"a": {}}, {"a": {"k": {"prompt": 0.4}}}, ["+a.k={prompt:0.4}"]),
    ({"a": [1]}, {"a": [True, None, 'ü"']}, ['a=[true,null,"ü\\""]']),
    ({"a": {"b_*": {"n": 1}}}, {"a": {"c_v1.2": {"n": None}}}, ["~a", "+a={b_*:{n:1},c_v1.2:{n:null}}"]),
    ({"a": {"b": None}}, {"a": {"b": {"n": 1}}}, ["a.b={n:1}"]),
])  # fmt: skip
def test_a_value_of_any_kind_becomes_flags_that_dvc_reads_back(default, above, said, tmp_path):
    changed = over(default, above)
    assert flags(default, changed) == said
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(default))
    apply_overrides(file, said)
    assert load_yaml(file) == changed


def test_an_unknown_profile_names_those_there_are(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    with pytest.raises(BadProfile, match=r"no such profile. There are: 32b, cluster"):
        wanted(["clutser"])
    assert main(["clutser"]) == 2
    assert "no such profile" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["cluster"]) == 0
    assert "-S 'policy.model=\"Qwen/Qwen3-14B\"'" in capsys.readouterr().out


@pytest.mark.timeout(300)
def test_a_profile_goes_into_the_queue_and_into_params_for_repro(tmp_path):
    copy_repository(tmp_path, {})
    profile = [sys.executable, "-m", "astra.profile", "cluster", "32b", "--"]
    run(tmp_path, *profile, "exp", "run", "--queue", "-n", "big")
    assert "Qwen/Qwen3-32B" in run(tmp_path, "git", "show", "refs/exps/celery/stash:params.yaml")
    assert "Qwen/Qwen3-32B" not in (tmp_path / "params.yaml").read_text()  # the workspace stays as it was
    done = subprocess.run(
        [*profile, "repro", "--dry", "normalize"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "git checkout params.yaml goes back" in done.stderr
    assert read_yaml(tmp_path / "params.yaml")["policy"]["model"] == "Qwen/Qwen3-32B"
