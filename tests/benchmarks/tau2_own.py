"""tau2's own ``run_task`` with its own ``generate``, case after case: the other side of the conformance test.

    PYTHON -m tests.benchmarks.tau2_own FOLDER CASE ... > lines of {"case", "requests", "reward"}

A process of its own, because a stand-in takes the place of litellm: it notes each request and replies from a script.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from astra.benchmarks.types import Ask, Reply
from astra.benchmarks.worker.standins import stand_in
from astra.benchmarks.worker.tau2 import SETTINGS, imported


class Litellm:
    """One case's requests, and the models that reply to them."""

    def __init__(self, agent: Any, user: Any) -> None:
        self.models = {"agent": agent, "user": user}
        self.requests: list[dict[str, Any]] = []

    def completion(self, model: str, messages: Any, tools: Any, tool_choice: Any, **settings: Any) -> Any:
        body = {"messages": messages, "tools": tools or [], **settings}
        self.requests.append({"role": model, **json.loads(json.dumps(body)), "tool_choice": tool_choice})
        reply: Reply = self.models[model](Ask(role=model, messages=[], tools=tools or []))
        calls = [
            SimpleNamespace(id=one.id, function=SimpleNamespace(name=one.name, arguments=one.arguments))
            for one in reply.tool_calls
        ]
        message = SimpleNamespace(role="assistant", content=reply.content, tool_calls=calls or None)
        choice = SimpleNamespace(finish_reason=reply.stop, message=message, to_dict=dict)
        return SimpleNamespace(choices=[choice], model=model, get=lambda name: None)


def main() -> None:
    answers_to, sys.stdout = sys.stdout, sys.stderr  # the package prints
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    stand_in("gymnasium.envs.registration", register=lambda **_: None)
    package = imported()
    package.agents.generate = package.users.generate = package.llm.generate
    package.llm.get_response_cost = lambda response: 0.0
    from tau2.config import DEFAULT_MAX_ERRORS, DEFAULT_MAX_STEPS
    from tau2.run import run_task

    from tests.benchmarks.test_tau2 import alone, pair

    tasks = {
        name: {one.id: one for one in package.registry.get_tasks_loader(name)("base")} for name in ("telecom", "retail")
    }
    for case in sys.argv[2:]:
        category, task = case.split("/", 1)
        setting = SETTINGS[category]
        models = Litellm(*(alone(case) if setting.solo else pair(case)))
        package.llm.completion = models.completion
        run = run_task(
            domain=setting.domain,
            task=tasks[setting.domain][task],
            agent="llm_agent_solo" if setting.solo else "llm_agent",
            user="dummy_user" if setting.solo else "user_simulator",
            llm_agent="agent",
            llm_args_agent={"temperature": 0.0},
            llm_user="user",
            llm_args_user={"temperature": 0.0},
            max_steps=DEFAULT_MAX_STEPS,
            max_errors=DEFAULT_MAX_ERRORS,
        )
        said = {"case": case, "requests": models.requests, "reward": run.reward_info.reward}
        print(json.dumps(said), file=answers_to)


if __name__ == "__main__":
    main()
