"""The registry of benchmarks names only what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from astra.benchmarks.registry import BENCHMARKS, BFCL_CATEGORIES
from astra.benchmarks.worker import BENCHES, load
from stages.bench_env import CONTRACT

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_names_a_worker_and_an_environment_that_exist(name):
    benchmark = BENCHMARKS[name]
    assert benchmark.name == name
    assert benchmark.bench in BENCHES
    folder = ROOT / CONTRACT.reads["requirements"]
    files = {one.stem for one in (*folder.glob("*.txt"), *folder.glob("extras/*.txt"))}
    assert benchmark.environment in files or benchmark.needs_path


def test_the_four_categories_of_both_versions_share_one_worker_each():
    keys = {v: {BENCHMARKS[f"bfcl_{v}_{one}"].worker_key for one in BFCL_CATEGORIES} for v in ("v3", "v4")}
    assert [len(one) for one in keys.values()] == [1, 1]
    assert keys["v3"] != keys["v4"]


def test_a_benchmark_that_there_is_not_is_named_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"no benchmark 'none'; there are: bfcl, "):
        load("none", Path(), {})
