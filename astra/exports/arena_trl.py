"""Arenas for TRL's GRPOTrainer: rows, and an environment class for each arena, whose methods are its tools.

    from astra.exports.arena_trl import environment_factories
    trainer = GRPOTrainer(..., train_dataset=load_dataset("json", data_files="train.jsonl")["train"],
                          environment_factory=environment_factories("arenas.jsonl"))

The column ``environment`` of a row names its class. TRL calls one method after the other, and asks the environment for
its reward without the final message: variants, which pay for what is said last, cannot be rows here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from astra.exports.playing import Play, read_arenas
from astra.records import Arena, ToolSpec

TYPES: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class ArenaEnvironment:
    """What TRL takes for an environment: ``reset``, ``get_reward`` and, added for each arena, its tools."""

    _arena: Arena
    _reward: str

    def __init__(self) -> None:
        self._play = Play(self._arena, self._reward)

    def reset(self, **row: Any) -> str | None:
        """Begin an episode; the prompt has said everything."""
        self._play = Play(self._arena, self._reward)
        return None

    def get_reward(self) -> float:
        """What was earned."""
        return self._play.reward(None)


def environment_factories(file: Path | str, reward: str = "f1") -> Mapping[str, Callable[[], ArenaEnvironment]]:
    """The class of each arena of an exported file, by the arena's id."""
    arenas = [Arena.model_validate_json(text) for text in read_arenas(file)]
    return {one.id: environment_class(one, reward) for one in arenas}


def environment_class(arena: Arena, reward: str = "f1") -> type[ArenaEnvironment]:
    """An environment whose methods are the arena's tools, with their parameters and documentation."""
    methods = {tool.spec.name: _method(tool.spec) for tool in arena.tools}
    return type("Arena", (ArenaEnvironment,), {"_arena": arena, "_reward": reward, **methods})


def row(arena: Arena, system: str) -> dict[str, Any]:
    """One row of the training set."""
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": arena.question}]
    return {"id": arena.id, "environment": arena.id, "prompt": prompt}


def fault(arena: Arena) -> str | None:
    """Why an arena can be no TRL environment; None where it can."""
    if arena.variant is not None:
        return "TRL asks for the reward without the final message, which is what a variant pays for"
    taken = [tool.spec.name for tool in arena.tools if hasattr(ArenaEnvironment, tool.spec.name)]
    private = [tool.spec.name for tool in arena.tools if tool.spec.name.startswith("_")]
    odd = [tool.spec.name for tool in arena.tools if not tool.spec.name.isidentifier()]
    bad = [*taken, *private, *odd]
    return f"{bad[0]} cannot be the name of a method that is a tool" if bad else None


def _method(spec: ToolSpec) -> Callable[..., str]:
    def method(self: ArenaEnvironment, **arguments: Any) -> str:
        return self._play.call(spec.name, arguments)

    properties = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", [])
    names = [*required, *(name for name in properties if name not in required)]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [own, *(_parameter(one, properties[one], one in required) for one in names)]
    setattr(method, "__signature__", inspect.Signature(parameters))  # noqa: B010  mypy knows no such attribute
    method.__annotations__ = {one: _type(properties[one]) for one in names} | {"return": str}
    method.__name__ = method.__qualname__ = spec.name
    method.__doc__ = _documentation(spec, names)
    return method


def _parameter(name: str, schema: Mapping[str, Any], is_required: bool) -> inspect.Parameter:
    default = inspect.Parameter.empty if is_required else schema.get("default")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=_type(schema))


def _type(schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type", "string")
    return TYPES.get(kind if isinstance(kind, str) else "string", str)


def _documentation(spec: ToolSpec, names: list[str]) -> str:
    """In the form that transformers reads tool schemas from."""
    properties = spec.parameters.get("properties", {})
    lines = []
    for name in names:
        choices = properties[name].get("enum")
        said = " ".join(str(properties[name].get("description", name)).split())
        lines.append(f"    {name}: {said}" + (f" (choices: {choices})".replace("'", '"') if choices else ""))
    return "\n".join(
        [" ".join(spec.description.split()), "", "Args:", *lines, "", "Returns:", "    The result as JSON text."]
    )
