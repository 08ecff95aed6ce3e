"""The worker's side of a benchmark, one module each; loaded by name, because each needs packages that others lack."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from astra.benchmarks.types import Bench

BENCHES = ("bfcl", "tau2", "agentdojo", "tooltalk", "aime", "acebench", "workbench")


def load(name: str, folder: Path, options: Mapping[str, Any]) -> Bench:
    """The benchmark whose unpacked package lies in ``folder``, first on ``sys.path``. Raises whatever its code does."""
    match name:
        case "bfcl":
            from astra.benchmarks.worker import bfcl

            return bfcl.bench(folder, options)
        case "aime":
            from astra.benchmarks.worker import aime

            return aime.bench(folder, options)
        case "agentdojo":
            from astra.benchmarks.worker import agentdojo

            return agentdojo.bench(folder, options)
        case "acebench":
            from astra.benchmarks.worker import acebench

            return acebench.bench(folder, options)
        case "workbench":
            from astra.benchmarks.worker import workbench

            return workbench.bench(folder, options)
        case "tooltalk":
            from astra.benchmarks.worker import tooltalk

            return tooltalk.bench(folder, options)
        case "tau2":
            from astra.benchmarks.worker import tau2

            return tau2.bench(folder, options)
    if "." in name:  # a module of one's own
        own: Bench = importlib.import_module(name).bench(folder, options)
        return own
    raise ValueError(f"no benchmark {name!r}; there are: {', '.join(BENCHES)}")
