"""The benchmarks by the name under which they are reported; versions whose scores can't be compared differ in name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Benchmark:
    """One row of the report: which cases of which worker, and how its score reads."""

    name: str
    bench: str
    """The module of ``astra.benchmarks.worker`` that plays it."""
    category: str
    """Its cases among those of the worker."""
    environment: str = ""
    """The requirements file that names its package; empty where the data comes from a path of the user's."""
    options: Mapping[str, Any] = field(default_factory=dict)
    measure: str = "accuracy"
    binary: bool = True
    needs_user: bool = False
    """Whether a second model plays the user."""
    needs_path: str = ""
    """What the user has to fetch and name by ``options["path"]``; empty where nothing."""
    mode: Literal["function_calling", "prompting", "text"] = "function_calling"
    held_out: bool = False
    """Not among the paper's benchmarks: it measures what carries over."""

    @property
    def worker_key(self) -> tuple[str, str, str]:
        """Benchmarks with the same key can share one worker."""
        return self.bench, self.environment, json.dumps(dict(self.options), sort_keys=True)


BFCL_CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")


def _bfcl(version: str, environment: str) -> list[Benchmark]:
    return [
        Benchmark(f"bfcl_{version}_{category}", "bfcl", category, environment, {"version": version})
        for category in BFCL_CATEGORIES
    ]


AGENTDOJO_SUITES = ("workspace", "travel", "banking", "slack")


def _tau2(category: str, needs_user: bool) -> Benchmark:
    return Benchmark(f"tau2_{category}", "tau2", category, "tau2", measure="reward", needs_user=needs_user)


def _agentdojo(suite: str, measure: str) -> Benchmark:
    category = suite if measure == "utility" else f"{suite}_{measure}"
    return Benchmark(f"agentdojo_v1.2.2_{category}", "agentdojo", category, "agentdojo", measure=measure, held_out=True)


def _tooltalk(category: str) -> Benchmark:
    return Benchmark(f"tooltalk_{category}", "tooltalk", category, "tooltalk", measure="success", held_out=True)


def _acebench(kind: str, language: str) -> Benchmark:
    return Benchmark(
        f"acebench_agent_{kind}_{language}",
        "acebench",
        f"{kind}_{language}",
        options={"language": language},
        needs_user=kind == "multi_turn",
        needs_path="a checkout of https://github.com/chenchen0103/ACEBench (seen at 56dd66c)",
        mode="prompting",
    )


WORKBENCH_PATH = "a checkout of https://github.com/olly-styles/WorkBench (at 42f1b6d, with src/evals/utils.py)"


def _by_name(*benchmarks: Benchmark) -> dict[str, Benchmark]:
    named = {one.name: one for one in benchmarks}
    assert len(named) == len(benchmarks), "two benchmarks of one name"
    return named


BENCHMARKS = _by_name(
    *_bfcl("v4", "bfcl"),
    *_bfcl("v3", "bfcl_v3"),
    _tau2("telecom_solo", needs_user=False),
    _tau2("telecom", needs_user=True),
    _tau2("retail", needs_user=True),
    *(_agentdojo(suite, what) for what in ("utility", "security") for suite in AGENTDOJO_SUITES),
    _tooltalk("full"),
    _tooltalk("easy"),
    *(_acebench(kind, language) for language in ("en", "zh") for kind in ("multi_step", "multi_turn")),
    Benchmark("workbench", "workbench", "workbench", needs_path=WORKBENCH_PATH, held_out=True),
    Benchmark("aime24", "aime", "aime24", "aime", mode="text"),
    Benchmark("aime25", "aime", "aime25", "aime", mode="text"),
)
