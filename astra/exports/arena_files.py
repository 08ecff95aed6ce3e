"""The files that stand beside exported arenas: packages for verifiers and OpenEnv, which play them through this one."""

from __future__ import annotations

from astra.exports.playing import SYSTEM

PACKAGE = "astra_arenas"

VERIFIERS_PYPROJECT = """[project]
name = "astra-arenas"
version = "0.1.0"
description = "Certified tool arenas, played in a sandbox"
requires-python = ">=3.11"
dependencies = ["verifiers>=0.1.14,<0.2", "datasets", "astra-pipeline"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build]
include = ["astra_arenas.py", "arenas.jsonl", "pyproject.toml"]

[tool.hatch.build.targets.wheel.force-include]
"arenas.jsonl" = "arenas.jsonl"
"""

VERIFIERS_MODULE = f'''"""Certified arenas as a verifiers environment: vf.load_environment("astra-arenas")."""

from pathlib import Path

import verifiers as vf
from astra.exports.playing import Play, read_arenas
from datasets import Dataset

SYSTEM = {SYSTEM!r}


def arena_reward(completion, state, **_):
    """What was earned: each sub-task once, weighed against all calls."""
    last = completion[-1] if completion else None
    said = (last.get("content") if isinstance(last, dict) else getattr(last, "content", None)) if last else None
    calls = (last.get("tool_calls") if isinstance(last, dict) else getattr(last, "tool_calls", None)) if last else None
    return state["play"].reward(None if calls else said)


class ArenaEnvironment(vf.MultiTurnEnv):
    """The arena's tools answer; an episode ends with a message without calls."""

    def __init__(self, reward, **options):
        super().__init__(**options)
        self.arena_reward = reward

    async def setup_state(self, state, **_):
        state["play"] = Play(state["info"]["arena"], self.arena_reward)
        state["tool_defs"] = [_definition(tool) for tool in state["play"].tools]
        return state

    @vf.stop
    async def no_tools_called(self, state):
        if not state["trajectory"]:
            return False
        last = state["trajectory"][-1]["completion"][-1]
        return _role(last) == "assistant" and not _calls(last)

    async def env_response(self, messages, state, **_):
        calls = _calls(messages[-1])
        results = state["play"].turn([_called(call) for call in calls])
        return [vf.ToolMessage(tool_call_id=_id(call), content=text) for call, text in zip(calls, results, strict=True)]


def _definition(tool):
    function = tool["function"]
    return vf.Tool(name=function["name"], description=function["description"], parameters=function["parameters"])


def _of(value, name):
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _role(message):
    return _of(message, "role")


def _calls(message):
    return _of(message, "tool_calls") or []


def _id(call):
    return _of(call, "id")


def _called(call):
    function = _of(call, "function") or call
    return _of(function, "name"), _of(function, "arguments")


def load_environment(reward="f1", max_turns=20, split=None, **options):
    """The environment; ``reward`` is a name of astra.rewards, ``split`` keeps arenas of one split only."""
    import json

    arenas = read_arenas(Path(__file__).parent / "arenas.jsonl")
    heads = [json.loads(text) for text in arenas]
    rows = [
        {{"prompt": [{{"role": "system", "content": SYSTEM}}, {{"role": "user", "content": head["question"]}}],
         "answer": json.dumps(head["answer"]["value"], ensure_ascii=False),
         "info": {{"arena": text, "arena_id": head["id"]}}}}
        for head, text in zip(heads, arenas, strict=True) if split in (None, head["split"])
    ]
    return ArenaEnvironment(reward, dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[arena_reward]),
                            max_turns=max_turns, **options)
'''

OPENENV_PYPROJECT = """[project]
name = "openenv-astra-arenas"
version = "0.1.0"
description = "Certified tool arenas as an OpenEnv environment"
requires-python = ">=3.11"
dependencies = ["openenv-core", "fastapi", "uvicorn", "astra-pipeline"]

[project.scripts]
server = "astra_arenas.server.app:main"

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
packages = ["astra_arenas", "astra_arenas.server"]
package-dir = {"astra_arenas" = ".", "astra_arenas.server" = "server"}

[tool.setuptools.package-data]
astra_arenas = ["arenas.jsonl", "openenv.yaml"]
"""

OPENENV_YAML = """spec_version: 1
name: astra_arenas
type: space
runtime: fastapi
app: server.app:app
port: 8000
"""

OPENENV_INIT = '''"""Certified arenas as an OpenEnv environment."""

from astra_arenas.client import ArenaClient
from astra_arenas.models import ArenaAction, ArenaObservation, ArenaState

__all__ = ["ArenaAction", "ArenaClient", "ArenaObservation", "ArenaState"]
'''

OPENENV_MODELS = '''"""What goes over the wire."""

from typing import Any

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class ArenaAction(Action):
    """The assistant's next message: calls (name, and arguments as JSON text), or the final answer."""

    calls: list[dict[str, str]] = Field(default_factory=list)
    answer: str | None = None


class ArenaObservation(Observation):
    """The question and the tools after a reset, the calls' results after a step."""

    question: str | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list)
    results: list[str] = Field(default_factory=list)


class ArenaState(State):
    """Where an episode stands; what was earned is not told before its end."""

    arena_id: str | None = None
    n_calls: int = 0
'''

OPENENV_CLIENT = '''"""The client of a running server."""

from typing import Any

from astra_arenas.models import ArenaAction, ArenaObservation, ArenaState
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient


class ArenaClient(EnvClient[ArenaAction, ArenaObservation, ArenaState]):
    def _step_payload(self, action: ArenaAction) -> dict[str, Any]:
        return action.model_dump(exclude={"metadata"})

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ArenaObservation]:
        told = {"reward": payload.get("reward"), "done": payload.get("done", False)}
        return StepResult(observation=ArenaObservation(**payload.get("observation", {}), **told), **told)

    def _parse_state(self, payload: dict[str, Any]) -> ArenaState:
        return ArenaState(**payload)
'''

OPENENV_ENVIRONMENT = '''"""The environment: one arena an episode, its tools in the sandbox of astra-pipeline."""

from pathlib import Path
from random import Random
from uuid import uuid4

from astra.exports.playing import Play, read_arenas
from astra_arenas.models import ArenaAction, ArenaObservation, ArenaState
from openenv.core.env_server.interfaces import Environment

ARENAS = read_arenas(Path(__file__).parent.parent / "arenas.jsonl")
MAX_TURNS = 20


class ArenaEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._play: Play | None = None
        self._state = ArenaState()

    def reset(self, seed=None, episode_id=None, arena=None, **_) -> ArenaObservation:
        """Begin an episode in the arena at that place, else in one drawn by the seed."""
        place = arena if arena is not None else Random(seed).randrange(len(ARENAS))
        self._play = Play(ARENAS[place])
        self._state = ArenaState(episode_id=episode_id or str(uuid4()), arena_id=self._play.arena.id)
        return ArenaObservation(question=self._play.arena.question, tools=self._play.tools)

    def step(self, action: ArenaAction, timeout_s=None, **_) -> ArenaObservation:
        """Make the calls, or end with the answer; the reward is told at the end."""
        if self._play is None:
            raise RuntimeError("step before reset: reset begins an episode")
        self._state.step_count += 1
        if action.calls and self._state.step_count < MAX_TURNS:
            results = self._play.turn([(one["name"], one["arguments"]) for one in action.calls])
            self._state.n_calls = self._play.n_calls
            return ArenaObservation(results=results)
        play, self._play = self._play, None
        return ArenaObservation(done=True, reward=play.reward(None if action.calls else action.answer))

    @property
    def state(self) -> ArenaState:
        return self._state
'''

OPENENV_APP = '''"""The server: uvicorn astra_arenas.server.app:app"""

from astra_arenas.models import ArenaAction, ArenaObservation
from astra_arenas.server.environment import ArenaEnvironment
from openenv.core.env_server.http_server import create_app

app = create_app(ArenaEnvironment, ArenaAction, ArenaObservation, env_name="astra_arenas")


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
'''

OPENENV_DOCKERFILE = """# Tools run in the Landlock sandbox of astra-pipeline, which the host's kernel must have.
FROM python:3.11-slim
WORKDIR /app
COPY . /app
RUN pip install --no-cache-dir /app
EXPOSE 8000
CMD ["uvicorn", "astra_arenas.server.app:app", "--host", "0.0.0.0", "--port", "8000"]
"""

TRL_README = """from astra.exports.arena_trl import environment_factories
from datasets import load_dataset

rows = load_dataset("json", data_files="train.jsonl", split="train")
factories = environment_factories("arenas.jsonl")
# GRPOTrainer(..., train_dataset=rows, environment_factory=factories)
"""

VERL_REWARD = """# reward_model.custom_reward_function: {path: astra_reward.py, name: compute_score}
from astra.exports.arena_verl import compute_score

__all__ = ["compute_score"]
"""

VERIFIERS = {"pyproject.toml": VERIFIERS_PYPROJECT, f"{PACKAGE}.py": VERIFIERS_MODULE}
OPENENV = {
    "pyproject.toml": OPENENV_PYPROJECT,
    "openenv.yaml": OPENENV_YAML,
    "__init__.py": OPENENV_INIT,
    "models.py": OPENENV_MODELS,
    "client.py": OPENENV_CLIENT,
    "server/__init__.py": '"""The server."""\n',
    "server/environment.py": OPENENV_ENVIRONMENT,
    "server/app.py": OPENENV_APP,
    "server/Dockerfile": OPENENV_DOCKERFILE,
}
TRL = {"use.py": TRL_README}
VERL = {"astra_reward.py": VERL_REWARD}
