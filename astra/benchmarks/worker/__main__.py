"""A worker: ``python -m astra.benchmarks.worker '{"bench": ..., "folder": ..., "options": {...}, ...}'``.

The first line that it writes is ``{"ready": <version>, "confinement": ...}`` or ``{"failed": <why>}``; then it is a
server on stdin and stdout (``server.py``). What the benchmark's code prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from astra.benchmarks.worker import load
from astra.benchmarks.worker.channel import line_of, write_all
from astra.benchmarks.worker.confinement import Confinement
from astra.benchmarks.worker.packages import PackageMissing, take_from
from astra.benchmarks.worker.play import described
from astra.benchmarks.worker.server import Server


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    incoming, outgoing = _pipes_taken()
    folder = Path(settings["folder"])
    take_from(folder)
    try:
        bench = load(settings["bench"], folder, settings["options"])
        readable = [str(folder), *(value for key, value in settings["options"].items() if key == "path")]
        confinement = Confinement(readable, settings["memory_mib"], settings["cpu_s"])
        server = Server(bench, confinement, settings["timeout_s"], incoming, outgoing)
    except PackageMissing as error:
        write_all(outgoing, line_of({"failed": str(error)}))
        return 1
    except Exception as error:  # foreign code: a package that is not there, or not what it was
        write_all(outgoing, line_of({"failed": described(error)}))
        return 1
    server.serve()
    return 0


def _pipes_taken() -> tuple[int, int]:
    """Stdin and stdout under other numbers, so that no print of the benchmark's gets between the answers."""
    incoming, outgoing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return incoming, outgoing


if __name__ == "__main__":
    sys.exit(main())
