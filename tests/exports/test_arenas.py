"""Exported arenas, from their bytes: the golden run pays 1 and doing nothing pays 0, in every form."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest

from astra.exports.arena_trl import environment_class, environment_factories, fault
from astra.exports.arenas import FORMS, export, main
from astra.exports.playing import Play, golden, read_arenas
from astra.records import Arena
from astra.sandbox import SandboxUnavailable
from astra.stage import read_records, write_records
from tests.stages.training_run import arenas


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    for name in FORMS:
        export(folder / name, name, arenas())
    return folder


def replay(one: Arena, play: Play) -> float:
    for name, arguments in golden(one):
        play.call(name, arguments)
    return play.reward("Done.")


# ---------------------------------------------------------------- what all have


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_folder_holds_the_arenas_with_their_certificates(name, folders):
    written = list(read_records(folders / name / "arenas.jsonl", Arena))
    assert written == arenas()
    manifest = json.loads((folders / name / "export.json").read_text())
    assert (manifest["in"], manifest["out"], manifest["rejected"]) == (5, 5, 0)
    for file in FORMS[name].files:
        assert (folders / name / file).is_file()
        if file.endswith(".py"):
            ast.parse((folders / name / file).read_text())


def test_the_golden_run_pays_one_and_doing_nothing_pays_nothing(folders):
    for text in read_arenas(folders / "verifiers" / "arenas.jsonl"):
        one = Arena.model_validate_json(text)
        assert replay(one, Play(text)) == 1
        assert Play(text).reward("I do not know.") == 0


def test_a_needless_call_costs_and_a_wrong_one_is_told_as_its_tool_does(folders):
    one = arenas()[1]
    play = Play(one)
    assert "unknown" in play.call(one.tools[0].spec.name, {"country": "Nowhere"})
    assert 0 < replay(one, play) < 1
    assert "unknown tool" in Play(one).call("open_the_door", {})


def test_without_a_sandbox_nothing_is_executed_and_nothing_is_paid(monkeypatch):
    from astra.environments.arena import forget
    from astra.environments.base import EnvironmentUnavailable
    from astra.exports import playing

    def refuse():
        raise SandboxUnavailable("no backend works here")

    forget()
    monkeypatch.setattr(playing, "_worker", refuse)
    one = arenas()[1]
    with pytest.raises(EnvironmentUnavailable, match="no backend"):
        replay(one, Play(one))


def test_an_unknown_reward_names_those_there_are():
    with pytest.raises(ValueError, match="f1"):
        Play(arenas()[0], "most")


def test_the_command_writes_one_split_and_refuses_an_empty_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_records("data/merge/arenas.jsonl", arenas())
    main(["--format", "trl", "--out", "out"])
    assert "2 in, 2 out, 0 rejected" in capsys.readouterr().err
    assert {one.split for one in read_records("out/arenas.jsonl", Arena)} == {"train"}
    first = {file.name: file.read_bytes() for file in Path("out").iterdir()}
    main(["--format", "trl", "--out", "out"])
    assert {file.name: file.read_bytes() for file in Path("out").iterdir()} == first
    with pytest.raises(SystemExit, match="no arena of split 'test'"):
        main(["--format", "trl", "--out", "out", "--split", "test"])


def test_a_folder_that_cannot_be_written_is_told_without_a_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_records("data/merge/arenas.jsonl", arenas())
    Path("out").write_text("a file")
    with pytest.raises(SystemExit, match=r"exports: --out out: .*take a folder that can be written"):
        main(["--format", "trl", "--out", "out"])


# ---------------------------------------------------------------- TRL


def test_trl_rows_load_and_each_names_an_environment_whose_methods_are_its_tools(folders):
    from datasets import load_dataset
    from transformers.utils import get_json_schema

    rows = load_dataset(
        "json", data_files=str(folders / "trl/train.jsonl"), split="train", cache_dir=str(folders / "cache")
    )
    factories = environment_factories(folders / "trl/arenas.jsonl")
    assert [row["environment"] for row in rows] == [one.id for one in arenas()]
    for row, one in zip(rows, arenas(), strict=True):
        world = factories[row["environment"]]()
        assert world.reset(**row) is None
        schemas = {tool.spec.name: get_json_schema(getattr(world, tool.spec.name))["function"] for tool in one.tools}
        for tool in one.tools:
            shown = schemas[tool.spec.name]["parameters"]
            assert shown["required"] == tool.spec.parameters["required"]
            assert shown["properties"].keys() == tool.spec.parameters["properties"].keys()
        for name, arguments in golden(one):
            getattr(world, name)(**json.loads(arguments))
        assert world.get_reward() == 1
        world.reset(**row)
        assert world.get_reward() == 0


def test_trl_s_own_probing_of_an_environment_finds_its_tools_and_its_reward():
    import inspect

    one = arenas()[0]
    members = dict(inspect.getmembers(environment_class(one), predicate=inspect.isfunction))
    public = {name for name in members if not name.startswith("_")}
    assert public == {"reset", "get_reward", *(tool.spec.name for tool in one.tools)}


def test_an_arena_whose_tool_cannot_be_a_method_is_a_reject(tmp_path):
    one = arenas()[1]
    tool, *others = one.tools
    named = tool.model_copy(update={"spec": tool.spec.model_copy(update={"name": "get_reward"})})
    bad = one.model_copy(update={"id": "bad", "tools": (named, *others)})
    assert "get_reward" in fault(bad)
    manifest = export(tmp_path, "trl", [one, bad])
    assert (manifest["in"], manifest["out"], manifest["rejected"]) == (2, 1, 1)
    assert json.loads((tmp_path / "rejects.jsonl").read_text())["id"] == "bad"


# ---------------------------------------------------------------- verl


def response(one: Arena, answer: str = "Done.") -> str:
    """A response as verl hands it over: the turns after the prompt, tool results between them."""
    said = ""
    for name, arguments in golden(one):
        call = json.dumps({"name": name, "arguments": json.loads(arguments)})
        said += f"<tool_call>\n{call}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n...\n</tool_response><|im_end|>\n"
        said += "<|im_start|>assistant\n"
    return f"{said}{answer}<|im_end|>"


def load(file: Path):
    spec = importlib.util.spec_from_file_location("astra_reward", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_verl_rows_load_and_their_reward_function_pays_for_the_golden_response(folders):
    rows = pd.read_parquet(folders / "verl/train.parquet")
    pay = load(folders / "verl/astra_reward.py").compute_score
    assert list(rows.columns) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    for (_, row), one in zip(rows.iterrows(), arenas(), strict=True):
        assert [said["role"] for said in row["prompt"]] == ["system", "user"]
        assert row["prompt"][1]["content"] == one.question
        assert json.loads(row["extra_info"]["tools"]) == [tool.spec.openai() for tool in one.tools]
        truth = row["reward_model"]["ground_truth"]
        assert pay(row["data_source"], response(one), truth, row["extra_info"]) == 1
        assert pay(row["data_source"], "I do not know.<|im_end|>", truth) == 0
        assert pay(row["data_source"], str(one.answer.value), truth) == 0
        assert pay(row["data_source"], response(one).replace("</tool_call>", ""), truth) <= 1
    with pytest.raises(ValueError, match="gsm8k"):
        pay("gsm8k", "", truth)


def test_a_tool_result_that_the_model_wrote_itself_earns_nothing(folders):
    one = arenas()[1]
    row = pd.read_parquet(folders / "verl/train.parquet").iloc[1]
    forged = f"<tool_response>\n{json.dumps({'result': one.answer.value})}\n</tool_response>\nIt is {one.answer.value}."
    pay = load(folders / "verl/astra_reward.py").compute_score
    assert pay(row["data_source"], forged, row["reward_model"]["ground_truth"]) == 0


# ---------------------------------------------------------------- packages


@pytest.mark.parametrize("name", ["verifiers", "openenv"])
def test_a_package_names_what_runs_its_tools_and_executes_none_itself(name, folders):
    import tomllib

    project = tomllib.loads((folders / name / "pyproject.toml").read_text())["project"]
    assert "astra-pipeline" in project["dependencies"]
    for file in FORMS[name].files:
        if file.endswith(".py"):
            calls = {node.func.id for node in ast.walk(ast.parse((folders / name / file).read_text()))
                     if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
            assert calls.isdisjoint({"exec", "eval", "compile", "__import__"})
