"""Exported packages with their consumers' own libraries, each installed into an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from astra.exports.arenas import export
from tests.import_closure import ROOT
from tests.stages.training_run import arenas

pytestmark = [pytest.mark.network, pytest.mark.timeout(1800)]
PYTHON = {"openenv": "openenv-core", "verifiers": "verifiers<0.2"}


@pytest.mark.parametrize("name", sorted(PYTHON))
def test_the_golden_run_pays_one_in_the_consumer_s_own_library(name, tmp_path):
    """ASTRA_CONSUMER_OPENENV and ASTRA_CONSUMER_VERIFIERS may name interpreters that have them."""
    export(tmp_path / name, name, arenas())
    python = os.environ.get(f"ASTRA_CONSUMER_{name.upper()}")
    if python is None:
        venv.create(tmp_path / "venv", with_pip=True)
        python = str(tmp_path / "venv/bin/python")
        subprocess.run([python, "-m", "pip", "install", "-q", PYTHON[name]], check=True, capture_output=True)
    command = [
        python,
        str(Path(__file__).with_name(f"{name}_consumer.py")),
        str(tmp_path / name),
        sysconfig.get_path("purelib"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]
    paid = json.loads(done.stdout.splitlines()[-1])
    assert paid["golden"] == [1.0] * len(arenas())
    assert paid["idle"] == [0.0] * len(arenas())
    assert sys.executable != python
