"""Written tasks made over: along three axes, or into the unusual kinds (paper section 3.2.2).

Whether a task is chosen, and how it is changed, hangs on the seed and on nothing but that task.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from astra import prompts
from astra.drafts import Draft, Persona
from astra.prompts import render
from astra.records import Chain, Kind, Section, Server, Stated, Task, ToolSpec, Voice
from astra.servers import pool
from astra.stage import StageError
from astra.yaml_files import YamlInvalid, read_yaml

Axis = Literal["diversity", "complexity", "persona"]
AXES: tuple[Axis, ...] = ("diversity", "complexity", "persona")
KINDS: tuple[Kind, ...] = ("missing_tool", "missing_value", "later_tool", "several_turns")
PERSONAS = Path(prompts.__file__).parent / "tasks" / "personas.yaml"


class Shares(Section):
    diversity: float = Field(ge=0, le=1, description="Share of written tasks that are also worded anew.")
    complexity: float = Field(ge=0, le=1, description="Share of written tasks that also get a harder version.")
    persona: float = Field(ge=0, le=1, description="Share of written tasks that are also asked by a persona.")


class Kinds(Section):
    missing_tool: float = Field(ge=0, le=1, description="Share of written tasks also asked without a needed tool.")
    missing_value: float = Field(ge=0, le=1, description="Share also asked without a value that only the user has.")
    later_tool: float = Field(ge=0, le=1, description="Share in which a needed tool is offered from a later turn on.")
    several_turns: float = Field(ge=0, le=1, description="Share also asked in several turns; only chains can be.")


def document(tool: ToolSpec) -> dict[str, Any]:
    return tool.model_dump(include={"name", "description", "parameters", "returns"})


def about(servers: Sequence[Server]) -> dict[str, str]:
    """What the servers are, as one."""
    return {
        "title": " and ".join(one.title for one in servers),
        "description": " ".join(one.description for one in servers),
    }


@dataclass(frozen=True)
class Sources:
    """Written tasks that are rewritten."""

    written: Sequence[Task]
    servers: Mapping[str, Server]
    chains: Mapping[str, Chain]
    seed: int

    def augmenting(self, shares: Shares) -> Iterator[Draft]:
        """The drafts of the three axes."""
        personas = read_personas()
        for axis in AXES:
            for task, rng in self._chosen(axis, getattr(shares, axis)):
                person = rng.choice(personas) if axis == "persona" else None
                more: dict[str, Any] = {"persona": person._asdict()} if person else {}
                draft = self._draft(task, axis, more, only_targets=axis == "persona")
                yield draft._replace(augmentation=axis, persona=person)

    def unusual(self, shares: Kinds) -> Iterator[Draft]:
        """The drafts of the unusual kinds."""
        for kind in KINDS:
            for task, rng in self._chosen(kind, getattr(shares, kind)):
                missing: str | Stated | None = None
                if kind in ("missing_tool", "later_tool"):
                    missing = rng.choice(task.target_tools)
                elif kind == "missing_value":
                    left_out = [one for one in task.values if self._is_askable(one, task)]
                    if not left_out:
                        continue
                    missing = rng.choice(left_out)
                elif task.chain_id is None or len(task.target_tools) < 2:
                    continue
                named = missing.model_dump() if isinstance(missing, Stated) else missing
                draft = self._draft(task, kind, {"missing": named} if missing else {})
                yield draft._replace(kind=kind, missing=missing)

    def _chosen(self, name: str, share: float) -> Iterator[tuple[Task, random.Random]]:
        for task in self.written:
            rng = random.Random(f"{self.seed}:{name}:{task.id}")
            if rng.random() < share:
                yield task, rng

    def _is_askable(self, value: Stated, task: Task) -> bool:
        """Whether a value can be left out: its tool takes another one beside it, and none of that tool's values is an
        earlier result, so that nobody looks for this one there.
        """
        own = pool([self.servers[server_id] for server_id in task.server_ids], task.target_tools)
        if any(len(one.parameters.get("properties", {})) < 2 for one in own if one.name == value.tool):
            return False
        chain = self.chains[task.chain_id] if task.chain_id else None
        bound = {one.step for one in chain.bindings if one.origin == "result"} if chain else set()
        return chain is None or not any(chain.tools[step] == value.tool for step in bound)

    def _draft(self, task: Task, what: str, more: Mapping[str, Any], only_targets: bool = False) -> Draft:
        own = tuple(self.servers[server_id] for server_id in task.server_ids)
        tools = [one for one in pool(own, task.target_tools) if not only_targets or one.name in task.target_tools]
        shown = {
            "server": about(own),
            "tools": [document(tool) for tool in tools],
            "target_tools": task.target_tools,
            "question": task.question,
            "values": [one.model_dump() for one in task.values],
            **more,
        }
        prompt = render(f"tasks/{what}", input=json.dumps(shown, ensure_ascii=False))
        chain = self.chains[task.chain_id] if task.chain_id else None
        return Draft(f"{task.id}:{what}", prompt, own, chain, source=task)


def read_personas(file: Path = PERSONAS) -> list[Persona]:
    """Who may ask, and how. Raises StageError where the file is not a list of {who, style, voice, because}."""
    try:
        people = read_yaml(file)
    except YamlInvalid as error:
        raise StageError(str(error)) from None
    expected = f"a list of entries with who, style, voice ({', '.join(get_args(Voice))}) and because, all texts"
    if not isinstance(people, list) or not people:
        raise StageError(f"{file}: expected {expected} (got {str(people)[:80]!r})")
    wrong = next((one for one in people if not _is_persona(one)), None)
    if wrong is not None:
        raise StageError(f"{file}: expected {expected} (got the entry {str(wrong)[:200]!r}): mend it")
    return [Persona(**one) for one in people]


def _is_persona(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == set(Persona._fields)
        and all(isinstance(value, str) for value in entry.values())
        and entry["voice"] in get_args(Voice)
    )
