"""The base of every record, and how a record gets its id."""

from __future__ import annotations

import hashlib
import json
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Record(BaseModel):
    """A frozen, closed model: an unknown field in a file is an error, and so is writing a number that JSON lacks."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, real Unicode, NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_id(kind: str, *parts: Any) -> str:
    """A stable id such as ``task-3f9a0c1be2d4``: the kind and 12 hex digits of what makes the record itself."""
    return f"{kind}-{hashlib.sha256(canonical(parts).encode()).hexdigest()[:12]}"


class Section(BaseModel):
    """One section of params.yaml. Unknown keys are errors, ``true`` is no number, ``1e-05`` read as text is one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        is_mapping = get_origin(annotation) is dict and isinstance(value, dict)
        values = value.values() if is_mapping else [value]
        if any(isinstance(one, bool) for one in values) and not _takes_bool(annotation):
            raise ValueError("true and false are no values of this key")
        return value


def _takes_bool(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_bool(part) for part in get_args(annotation))


class Unavailable(Exception):
    """The machinery is not there (endpoint, live server, sandbox): the stage stops, and finished work is kept.

    The message names what is missing, what was seen last and how to continue. Never a score, never a tool result.
    """


class Refused(Exception):
    """One record or request did not work out: it becomes a reject and the rest goes on.

    ``reason`` is short, stable and counted; ``detail`` says what was met.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)  # both, so that another process can be told
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
