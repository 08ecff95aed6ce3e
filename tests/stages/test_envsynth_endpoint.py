"""An endpoint half of whose programs are wrong: fewer arenas, never one that is not certified."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from astra.answers import matches, result_value
from astra.records import Answer, Arena, Decomposition, Step, ToolTry
from astra.sandbox import Job, open_pool
from astra.stage import read_records, write_records
from tests.import_closure import ROOT
from tests.llm.test_over_http import Workspace
from tests.openai_server import Serving

pytestmark = pytest.mark.timeout(300)

COLUMNS = (
    "master",
    "depth",
    "founded",
    "pilot",
    "signal",
    "crane",
    "quay",
    "tariff",
    "beacon",
    "ferry",
    "buoy",
    "mole",
)
PORTS = 14


def _value(column: str, row: int) -> object:
    if column in ("depth", "quay", "tariff"):
        return 10 * row + len(column)
    return f"19{10 + row}-05-{10 + len(column)}" if column == "founded" else f"{column.title()} of {row}"


def _kind(column: str) -> str:
    return {"int": "number"}.get(type(_value(column, 1)).__name__, "date" if column == "founded" else "text")


def _step(number: int, column: str, row: int, origin: str) -> Step:
    answer = Answer.model_validate({"kind": _kind(column), "value": _value(column, row)})
    tabled = {"relation": f"port_{column}", "subject": f"Port{row}"} if origin == "tables" else {}
    asked = f"What is the {column} of port Port{row}?"
    return Step.model_validate({"id": number, "question": asked, "answer": answer, "needs_tool": True, **tabled})


def _question(number: int) -> Decomposition:
    origin = "given" if number % 3 == 0 else "tables"
    columns = [COLUMNS[(number + place) % len(COLUMNS)] for place in range(1 + number % 2)]
    steps = [_step(place, column, (number + place) % PORTS, origin) for place, column in enumerate(columns, 1)]
    ports = [f"port Port{(number + place) % PORTS}" for place in range(1, len(columns) + 1)]
    return Decomposition.model_validate({
        "id": f"d-{number}", "domain": "port", "language": "en", "shape": "parallel_single_hop",
        "question": f"Case {number}: tell me what is asked of {' and of '.join(ports)}.", "answer": steps[-1].answer, "steps": steps,
        "checks": {}, "quality": 1, "split": "train", "origin": origin,
    })  # fmt: skip


def _inputs(folder: Path) -> None:
    """Questions over a table of ports, a third of them without tables."""
    rows = [",".join(["name", *COLUMNS])]
    rows += [",".join([f"Port{row}", *(str(_value(column, row)) for column in COLUMNS)]) for row in range(PORTS)]
    raw = folder / "data/raw/knowledge"
    raw.mkdir(parents=True)
    (raw / "ports.csv").write_text("\n".join(rows) + "\n")
    relations = {
        f"port_{column}": {"column": column, "label": f"{column} here", "kind": _kind(column)} for column in COLUMNS
    }
    table = {"source": "csv", "options": {"file": str(raw / "ports.csv")}, "key": "name", "relations": relations}
    (raw / "knowledge.yaml").write_text(yaml.safe_dump({"tables": {"port": table}}))
    write_records(folder / "data/decompose/decompositions.jsonl", map(_question, range(36)))
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["models"] = {role: {**model, "transport": "openai"} for role, model in params["models"].items()}
    params["envsynth"] |= {"extra_parameters": 1}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))


def _arenas(folder: Path, plan: dict[str, object]) -> dict[str, Arena]:
    """The arenas that envsynth and merge make with an endpoint, by question; each certificate can be repeated."""
    _inputs(folder)
    with Serving(folder / "log.jsonl", plan) as server:
        workspace = Workspace(folder, folder / "cache").asking(server)
        workspace.run("envsynth")
        workspace.run("merge")
    said = workspace.run("merge", "--verify", "data/merge/arenas.jsonl")
    assert "0 certificates wrong" in said, said
    return {one.decomposition_id: one for one in read_records(folder / "data/merge/arenas.jsonl", Arena)}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    return _arenas(tmp_path_factory.mktemp("right"), {})


@pytest.mark.parametrize("seed", [1, 2])
def test_wrong_programs_cost_arenas_and_are_in_none(seed, right, tmp_path):
    found = _arenas(tmp_path, {"seed": seed, "wrong_code": 0.5})
    assert len(found) > 0
    assert found.keys() <= right.keys()
    tries = list(read_records(tmp_path / "data/envsynth/tries.jsonl", ToolTry))
    assert len({one.trouble for one in tries if one.part == "code"}) > 5
    assert {one.reply for one in tries}.isdisjoint(tool.code for arena in found.values() for tool in arena.tools)
    with open_pool() as pool:
        for arena in found.values():
            jobs = [Job(tool.code, probe.tool, (probe.arguments,)) for probe in arena.probes
                    for tool in arena.tools if tool.spec.name == probe.tool]  # fmt: skip
            for probe, (result,) in zip(arena.probes, pool.map(jobs), strict=True):
                assert result.ok
                assert matches(probe.expected, result_value(result.value))
    rejected = {json.loads(line)["id"] for line in (tmp_path / "data/envsynth/rejects.jsonl").read_text().splitlines()}
    assert rejected.isdisjoint(found)
    shutil.rmtree(tmp_path / "cache")


def test_without_wrong_programs_every_question_becomes_an_arena(right):
    assert len(right) == 36
