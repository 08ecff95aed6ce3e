"""Merging by rule, and a certificate that only a sound arena gets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from astra.records import Answer, Arena, CodeTool, Environment, Probe, Step, ToolSpec
from astra.sandbox import open_pool
from astra.stage import write_records
from stages.merge import Failures, Playable, artifact, certify, merge, merged, playable, table_of, verify

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


@pytest.fixture(scope="module")
def pool():
    with open_pool() as open_:
        yield open_


def single(code, question="For port Lyme, find the harbour master."):
    return Playable(question, STEPS[:1], (tool(code),), (probe(1, "Lyme", "Ann"),))


def failures(arena, pool):
    (outcome,) = certify([arena], pool)
    return set(outcome.found) if isinstance(outcome, Failures) else set()


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


# ---------------------------------------------------------------- certification


def test_a_sound_arena_is_certified_with_its_hash_and_backend(pool):
    new = merge(environment())
    (certificate,) = certify([Playable("For port Lyme, find it.", STEPS, *new)], pool)
    assert certificate.artifact == artifact(*new)
    assert all(certificate.checks.values())
    assert certificate.backend == "landlock"


FAULTY = {
    "returns another value": (CODE.replace("Ann", "Amy"), "golden"),
    "ignores its arguments": (CODE.replace("TABLE[port]}", '"Ann"}').replace("not in TABLE", "is None"), "other_arguments"),
    "has no other row": (CODE.replace('    "Bude": "Bob",\n    "Deal": "Cat",\n', ""), "other_arguments"),
    "raises for the golden call": (CODE.replace("not in", "in"), "golden"),
    "draws a random answer's neighbour": (
        CODE.replace("TABLE[port]}", "TABLE[port] if port == 'Lyme' else __import__('random').random()}"), "repeatable"
    ),
    "depends on hash order": (CODE.replace("TABLE[port]}", "TABLE[port] if port == 'Lyme' else hash(port)}"), "repeatable"),
    "depends on the clock": (
        CODE.replace("TABLE[port]}", "TABLE[port] if port == 'Lyme' else __import__('time').gmtime().tm_year}"), "repeatable"
    ),
    "keeps state between calls": (
        CODE.replace("    return", "    TABLE.setdefault('n', []).append(1)\n    return").replace(
            "TABLE[port]}", "TABLE[port] if port == 'Lyme' else len(TABLE['n'])}"), "repeatable"
    ),
    "answers where no row fits": (CODE.replace('raise ValueError(f"unknown port: {port}")', "return None"), "bad_arguments"),
    "errs without naming what": (CODE.replace('f"unknown port: {port}"', '"no"'), "bad_arguments"),
    "prints": (CODE.replace("    return", "    print('Ann')\n    return"), "no_leak"),
    "does not end": (CODE.replace("    return", "    while True: pass\n    return"), "golden"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "check"), FAULTY.values(), ids=FAULTY)
def test_a_tool_is_refused_that(code, check, pool):
    assert check in failures(single(code), pool)


def test_a_tool_that_tells_the_answer_of_a_step_it_does_not_serve_is_refused(pool):
    telling = CODE.replace('"Bob"', '"Eve"')
    arena = Playable(
        "For port Lyme.", STEPS, (tool(telling), tool(SECOND, "port_master_2", (2,))), environment().probes
    )
    assert failures(arena, pool) == {"no_leak"}


def test_a_question_that_tells_an_answer_is_refused(pool):
    assert failures(single(CODE, "Is Ann the harbour master of Lyme?"), pool) == {"question_silent"}
    assert failures(single(CODE, "Is it Annabel of Lyme?"), pool) == set()


def test_two_tools_of_one_name_are_refused(pool):
    arena = Playable("For port Lyme.", STEPS[:1], (tool(), tool()), (probe(1, "Lyme", "Ann"),))
    assert "unique_names" in failures(arena, pool)


def test_a_step_without_a_golden_call_is_refused(pool):
    assert "golden" in failures(Playable("For port Lyme.", STEPS, (tool(),), (probe(1, "Lyme", "Ann"),)), pool)


# ---------------------------------------------------------------- the written file


def certified(pool):
    one = environment(question="For port Lyme, find it.")
    new = merge(one)
    parts = {**dict(one), "tools": new.tools, "probes": new.probes}
    (certificate,) = certify([Playable(one.question, one.steps, *new)], pool)
    return Arena.model_validate({**parts, "certificate": certificate})


def test_a_certificate_can_be_recomputed_from_the_written_file_alone(pool, tmp_path):
    arena = certified(pool)
    assert certify([playable(arena)], pool) == [arena.certificate]
    path = tmp_path / "arenas.jsonl"
    write_records(path, [arena])
    assert verify(path, "auto", 2) == []
    path.write_text(path.read_text().replace("Deal", "Dial"))
    assert verify(path, "auto", 2) == ["e: the certificate is of other bytes"]
    path.write_text(path.read_text().replace('\\"Lyme\\": \\"Ann\\"', '\\"Lyme\\": \\"Amy\\"'))
    assert "golden" in verify(path, "auto", 2)[0]


def test_the_stage_writes_arenas_rejects_and_metrics(tmp_path, monkeypatch, capsys):
    from stages import merge as stage

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["merge"])
    Path("params.yaml").write_text("merge: {backend: auto, workers: 2}\n")
    bad = environment(question="Is it Ann?").model_copy(update={"id": "bad"})
    write_records("data/envsynth/environments.jsonl", [environment(question="For port Lyme."), bad])
    stage.main()
    assert "2 in, 1 out, 1 rejected (question_silent 1)" in capsys.readouterr().err
    first = Path("data/merge/arenas.jsonl").read_bytes()
    stage.main()
    assert Path("data/merge/arenas.jsonl").read_bytes() == first
    metrics = json.loads(Path("metrics/merge.json").read_text())
    assert (metrics["tools_before"], metrics["tools_after"], metrics["backend"]) == (4, 2, "landlock")
    assert os.path.getsize("data/merge/rejects.jsonl") > 0
