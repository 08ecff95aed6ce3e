"""Eval as DVC runs it, with nothing changed but params: an endpoint in place of the pipeline's own models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.benchmarks.bfcl_oracle import CATEGORIES, oracle
from tests.benchmarks.chat_server import ChatServer
from tests.benchmarks.wheels import environments
from tests.small_run import change, ran, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # all cases of four categories, and whole runs before them

MINE = {"mine": {"transport": "openai", "name": "oracle", "temperature": 0.0, "max_tokens": 1024}}


def test_an_oracle_behind_an_address_gets_all_of_bfcl_with_only_params_changed(small_run, tmp_path: Path):
    folder = small_run.copy(tmp_path / "repository")
    seed = yaml.safe_load((folder / "params.yaml").read_text())["seed"]
    with ChatServer(oracle(environments("bfcl"), seed)) as server:
        change(folder, "eval.models", MINE)
        change(folder, "eval.benchmarks", {"bfcl_v4_*": {}})
        output = run(folder, "dvc", "repro", "eval", ASTRA_EVAL_BASE_URL=server.url, ASTRA_EVAL_API_KEY="any-key-42")
    assert ran(output) == ["eval"]
    metrics = json.loads((folder / "metrics/eval.json").read_text())
    assert len(CATEGORIES) == 4
    for name in CATEGORIES:
        number = metrics["models"]["mine"][name]["greedy"]["accuracy"]
        assert (number["mean"], number["n"]) == (1.0, 200), name
    shown = run(folder, "dvc", "metrics", "diff", "--md")
    assert "models.mine.bfcl_v4_multi_turn_base.greedy.accuracy.mean" in shown
