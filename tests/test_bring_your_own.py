"""Three foreign documents and two joined CSV files come to trajectories and arenas by being put where the README says."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from astra.lineage.ancestors import Ancestors
from astra.lineage.descendants import Descendants
from astra.lineage.files import Files
from astra.lineage.nodes import Level
from astra.lineage.starts import nodes, start
from astra.records import Arena, Server
from astra.stage import read_records
from tests.import_closure import ROOT
from tests.small_run import SMALL, commit, copy_repository, merged, run

pytestmark = pytest.mark.timeout(900)
EXAMPLE = ROOT / "docs/examples/bring_your_own"
FORMATS = {"lighthouse": "mcp", "orchard_office": "openapi", "balloon_desk": "rapidapi"}
OWN = ("lake_village", "lake_depth", "lake_fish", "village_mayor", "village_founded")
FEWER = {
    "chains": {"budget": 3, "budget_of": {}},
    "tasks": {"per_server": 1, "per_server_of": {}},
    "decompose": {"questions": {"train": 24, "heldout": 4, "heldout_entities": 2, "heldout_tools": 2}},
}
STAGES = ("normalize", "graph", "chains", "tasks", "trajectories", "score", "decompose", "envsynth", "merge")


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose documents are the example's alone; its tables stand beside those that are there."""
    folder = tmp_path_factory.mktemp("brought")
    copy_repository(folder, merged(SMALL, FEWER))
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["chains"]["budget_of"] = params["tasks"]["per_server_of"] = {}  # of a server that is taken away here
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    for path in (folder / "data/raw/tools").iterdir():
        path.unlink()
    for kind in ("tools", "knowledge"):
        shutil.copytree(EXAMPLE / kind, folder / "data/raw" / kind, dirs_exist_ok=True)
    commit(folder, "my own")
    for stage in STAGES:
        run(folder, sys.executable, "-m", f"stages.{stage}")
    return folder


def came(folder: Path, text: str) -> dict[str, Level]:
    files = Files(folder)
    return {level.stage: level for level in Descendants(files).of(start(text, Ancestors(files)))}


def test_each_document_is_read_as_what_it_is_with_all_of_its_tools(brought):
    servers = list(read_records(brought / "data/normalize/servers.jsonl", Server))
    assert {one.name: one.source.format for one in servers} == FORMATS
    assert [len(one.tools) for one in servers] == [4, 4, 4]
    assert (brought / "data/normalize/rejects.jsonl").read_text() == ""


@pytest.mark.parametrize("server", FORMATS)
def test_each_document_comes_to_judged_trajectories(brought, server):
    levels = came(brought, server)
    for stage in ("chains", "tasks", "trajectories", "score"):
        assert levels[stage].items, stage


def test_the_tables_come_to_certified_arenas_that_lead_back_to_lines_of_the_csv_files(brought):
    arenas = [
        one
        for one in read_records(brought / "data/merge/arenas.jsonl", Arena)
        if any(step.relation in OWN for step in one.steps)
    ]
    assert arenas
    ancestors = Ancestors(Files(brought))
    seen = set()
    for one in arenas:
        assert all(one.certificate.checks.values())
        for node in nodes(start(one.id, ancestors), ancestors)[0].walk():
            assert not node.missing
            if node.kind == "fact" and node.id.partition(":")[0] in OWN:
                seen.add(node.where.partition(":")[0])
    assert seen <= {"data/raw/knowledge/lakes.csv", "data/raw/knowledge/villages.csv"}
    assert seen
