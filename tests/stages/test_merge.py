"""Merging by rule, and a certificate that only a sound arena gets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from astra.certificate import verify
from astra.records import Answer, Arena, CodeTool, Environment, Probe, Step, ToolSpec
from astra.stage import read_records, write_records
from astra.synthesis.merging import merge, merged
from astra.tables import table_of

PARAMETERS = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
CODE = """TABLE = {
    "Lyme": "Ann",
    "Bude": "Bob",
    "Deal": "Cat",
}


def port_master(port):
    if port not in TABLE:
        raise ValueError(f"unknown port: {port}")
    return {"result": TABLE[port]}
"""
SECOND = CODE.replace("port_master", "port_master_2").replace("Lyme", "Fowey").replace("Ann", "Eve")


def tool(code=CODE, name="port_master", serves=(1,), parameters=PARAMETERS):
    spec = ToolSpec(name=name, description="Harbour master of a port.", parameters=parameters)
    return CodeTool(spec=spec, code=code, serves=serves)


def step(number, port, master):
    answer = Answer(kind="text", value=master)
    question = f"What is the harbour master of port {port}?"
    return Step(id=number, question=question, answer=answer, needs_tool=True, relation="port_master", subject=port)


STEPS = (step(1, "Lyme", "Ann"), step(2, "Fowey", "Eve"))


def probe(number, port, master, name="port_master"):
    return Probe(step=number, tool=name, arguments={"port": port}, expected=Answer(kind="text", value=master))


def environment(tools=None, probes=None, question="For port Lyme, find the harbour master. Also for port Fowey."):
    return Environment(
        id="e", decomposition_id="d", domain="port", shape="parallel_single_hop", question=question,
        answer=Answer(kind="list", value=["Ann", "Eve"]), steps=STEPS, split="train",
        tools=tools or (tool(), tool(SECOND, "port_master_2", (2,))),
        probes=probes or (probe(1, "Lyme", "Ann"), probe(2, "Fowey", "Eve", "port_master_2")),
    )  # fmt: skip


# ---------------------------------------------------------------- merging


def test_tools_that_differ_in_their_rows_only_become_one_with_all_rows():
    new = merge(environment())
    assert [one.spec.name for one in new.tools] == ["port_master"]
    assert table_of(new.tools[0].code).rows == {"Bude": "Bob", "Deal": "Cat", "Fowey": "Eve", "Lyme": "Ann"}
    assert new.tools[0].serves == (1, 2)
    assert {one.tool for one in new.probes} == {"port_master"}


@pytest.mark.parametrize(
    "other",
    [
        tool(SECOND.replace("unknown port", "no port"), "port_master_2", (2,)),
        tool(SECOND.replace('"Bob"', '"Ben"'), "port_master_2", (2,)),
        tool(SECOND, "port_master_2", (2,), {**PARAMETERS, "required": []}),
        tool("def port_master_2(port):\n    return 1\n", "port_master_2", (2,)),
    ],
    ids=["another function", "another value for one key", "other parameters", "no table"],
)
def test_tools_that_differ_otherwise_stay_apart_under_their_own_names(other):
    assert merged([tool(), other]) is None
    new = merge(environment(tools=(tool(), other)))
    assert [one.spec.name for one in new.tools] == ["port_master", "port_master_2"]
    assert [one.tool for one in new.probes] == ["port_master", "port_master_2"]


# ---------------------------------------------------------------- the stage


PARAMS = (
    "seed: 17\nmerge: {max_tries: 2, backend: auto, workers: 2, variants: {missing_tool: %s, missing_value: %s}}\n"
    "models: {teacher: {transport: builtin, name: astra-rules-1, temperature: 0.7, max_tokens: 4096}}\n"
    "llm: {concurrency: 4, attempts: 1, timeout_s: 60, deadline_s: 60, max_wait_s: 1, "
    "budget: {stage_usd: null, run_usd: null}, prices: {}}\n"
)


def run_stage(folder, monkeypatch, environments, missing_tool=0, missing_value=0):
    from stages import merge as stage

    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["merge"])
    Path("params.yaml").write_text(PARAMS % (missing_tool, missing_value))
    write_records("data/envsynth/environments.jsonl", environments)
    stage.main()
    return list(read_records("data/merge/arenas.jsonl", Arena))


def test_the_stage_writes_arenas_rejects_and_metrics(tmp_path, monkeypatch, capsys):
    bad = environment(question="For ports Lyme and Fowey: is it Ann?").model_copy(update={"id": "bad"})
    given = [environment(question="For ports Lyme and Fowey."), bad]
    (arena,) = run_stage(tmp_path, monkeypatch, given)
    assert "2 in, 1 out, 1 rejected (question_silent 1)" in capsys.readouterr().err
    first = Path("data/merge/arenas.jsonl").read_bytes()
    run_stage(tmp_path, monkeypatch, given)
    assert Path("data/merge/arenas.jsonl").read_bytes() == first
    metrics = json.loads(Path("metrics/merge.json").read_text())
    assert (metrics["tools_before"], metrics["tools_after"]) == (4, 2)
    assert metrics["backend"] == arena.certificate.backend
    assert os.path.getsize("data/merge/rejects.jsonl") > 0


def test_a_share_of_the_arenas_comes_again_without_a_tool_or_a_value_and_all_that_is_written_is_verified(
    tmp_path, monkeypatch
):
    many = [environment().model_copy(update={"id": f"e{number}", "split": split})
            for number in range(15) for split in ("train", "heldout")][::2]  # fmt: skip
    many += [environment().model_copy(update={"id": f"f{number}", "split": "heldout"}) for number in range(15)]
    arenas = run_stage(tmp_path, monkeypatch, many, 0.3, 0.3)
    plain = {one.id: one for one in arenas if one.variant is None}
    variants = [one for one in arenas if one.variant is not None]
    assert len(plain) == 30
    assert {one.variant.kind for one in variants} == {"missing_tool", "missing_value"}
    assert 8 <= len(variants) <= 28
    assert all(one.split == plain[one.variant.base].split for one in variants)
    assert len({one.id for one in arenas}) == len(arenas)
    metrics = json.loads(Path("metrics/merge.json").read_text())
    assert sum(metrics["variants"].values()) == len(variants)
    assert verify(Path("data/merge/arenas.jsonl"), "auto", 2) == (len(arenas), [])
