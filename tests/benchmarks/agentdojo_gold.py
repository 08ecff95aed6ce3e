"""What AgentDojo's own tasks say would solve them: ``PYTHON agentdojo_gold.py FOLDER`` prints one JSON object.

Suite/task -> {"calls": [[tool, arguments], ...], "output": text}, for user tasks and injection tasks. It is a process
of its own because the solutions are code of the package, which needs stand-ins for the clients that it imports.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from astra.benchmarks.worker.agentdojo import SUITES, imported


def solution(environment: Any, task: Any) -> dict[str, Any]:
    environment = environment.model_copy(deep=True)
    if hasattr(task, "init_environment"):
        environment = task.init_environment(environment)
    told = [(one.function, dict(one.args)) for one in task.ground_truth(environment)]
    return {"calls": told, "output": getattr(task, "GROUND_TRUTH_OUTPUT", "")}


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    suites = imported(folder).suites
    environments = {name: suites[name].load_and_inject_default_environment({}) for name in SUITES}
    found = {
        f"{name}/{task.ID}": solution(environments[name], task)
        for name in SUITES
        for task in (*suites[name].user_tasks.values(), *suites[name].injection_tasks.values())
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
