"""Arms and studies of ``ablations/plan.yaml``, and the ``dvc exp run`` of each arm and seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError, model_validator

from astra.nested import leaves
from astra.records import Section
from astra.stage import StageError
from astra.yaml_files import YamlInvalid, read_yaml

PLAN = Path("ablations/plan.yaml")
DEFAULT = "default"


class Side(NamedTuple):
    """A curve of a study: the model of an arm."""

    arm: str
    model: str


class Plan(Section):
    """What is compared with what."""

    seeds: tuple[int, ...] = Field(min_length=1)
    arms: dict[str, dict[str, Any]] = Field(description="Arm -> what differs from params.yaml.")
    without: dict[str, Any] = Field(description="What differs in every arm but the default, beside its own.")
    studies: dict[str, dict[str, str]] = Field(description="Study -> name of a curve -> arm/model.")

    @model_validator(mode="after")
    def _studies_name_arms(self) -> Plan:
        if DEFAULT not in self.arms:
            raise ValueError(f"arms: no {DEFAULT}, which every study is compared with")
        for study, sides in self.studies.items():
            for side in sides.values():
                arm, _, model = side.partition("/")
                if arm not in self.arms or not model:
                    raise ValueError(f"studies.{study}: {side!r} is no arm/model; arms: {', '.join(self.arms)}")
        return self

    def sides(self, study: str) -> dict[str, Side]:
        """The curves of a study; the first one is what the others are compared with."""
        return {name: Side(*side.split("/", 1)) for name, side in self.studies[study].items()}

    def arms_of(self, studies: Sequence[str]) -> list[str]:
        """The arms that these studies need, in the plan's order."""
        wanted = {side.arm for study in studies for side in self.sides(study).values()}
        return [arm for arm in self.arms if arm in wanted]


class Trial(NamedTuple):
    """One arm at one seed; ``name`` is its DVC experiment's."""

    arm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm.replace('_', '-')}-s{self.seed}"


def read_plan(file: Path = PLAN) -> Plan:
    """Raises StageError naming file, key and value."""
    if not file.is_file():
        raise StageError(f"{file}: no such file. Run from the repository root")
    try:
        return Plan.model_validate(read_yaml(file))
    except YamlInvalid as error:
        raise StageError(str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise StageError(f"{file}: {where}: {first['msg']} (got {str(first.get('input'))[:80]!r})") from None


def trials(plan: Plan, studies: Sequence[str], seeds: Sequence[int]) -> list[Trial]:
    """Seed by seed, so that the arms of one seed find its data made. Raises StageError for an unknown study."""
    if unknown := [one for one in studies if one not in plan.studies]:
        raise StageError(f"no study {', '.join(unknown)}; there are: {', '.join(plan.studies)}")
    return [Trial(arm, seed) for seed in seeds for arm in plan.arms_of(studies or list(plan.studies))]


def flags(plan: Plan, trial: Trial) -> list[str]:
    """The -S flags of a trial."""
    changes = [plan.arms[trial.arm]] if trial.arm == DEFAULT else [plan.without, plan.arms[trial.arm]]
    values = dict(entry for tree in changes for entry in leaves(tree))
    said = [f"seed={trial.seed}", *(f"{key}={_text(value)}" for key, value in values.items())]
    return [part for one in said for part in ("-S", one)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
