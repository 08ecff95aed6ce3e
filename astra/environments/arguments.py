"""Arguments of a call against the tool's schema, before any tool runs; the error says what to change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, cast

import jsonschema

from astra.environments.base import Observation
from astra.records import ToolSpec, canonical

N_SHOWN = 3  # of several errors
N_CHARS = 200
_VALIDATORS: OrderedDict[str, jsonschema.Draft202012Validator] = OrderedDict()
N_VALIDATORS = 4096  # kept in this process


def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    """The schema's validator, made once."""
    key = canonical(schema)
    found = _VALIDATORS.get(key)
    if found is None:
        found = _VALIDATORS[key] = jsonschema.Draft202012Validator(schema)
        if len(_VALIDATORS) > N_VALIDATORS:
            _VALIDATORS.popitem(last=False)
    return found


def refused(tool: ToolSpec, arguments: dict[str, Any]) -> Observation | None:
    """What the client is told of arguments that the tool's schema does not take; None where they fit.

    Nobody executed such a call, so it is the agent's own.
    """
    wrong = argument_errors(tool, arguments)
    return Observation(wrong, True, "agent") if wrong else None


def argument_errors(tool: ToolSpec, arguments: dict[str, Any]) -> str:
    """What is wrong with arguments, each with its place; empty where they fit."""
    errors = sorted(validator(tool.parameters).iter_errors(arguments), key=lambda one: one.json_path)
    told = dict.fromkeys(line for error in errors for line in _lines(error))
    return "; ".join(list(told)[:N_SHOWN])


def _lines(error: jsonschema.ValidationError) -> Iterable[str]:
    where = error.json_path.removeprefix("$").removeprefix(".")
    if error.validator == "required":
        required, instance = cast("list[str]", error.validator_value), cast("dict[str, Any]", error.instance)
        yield from (f"missing parameter: {_place(where, name)}" for name in required if name not in instance)
        return
    if error.validator in ("additionalProperties", "unevaluatedProperties") and isinstance(error.schema, dict):
        known = error.schema.get("properties", {})
        unknown = sorted(cast("dict[str, Any]", error.instance).keys() - known.keys())
        if unknown and error.validator_value is False:
            told = ", ".join(known) or "none"
            yield from (f"unknown parameter: {_place(where, name)}. The parameters are: {told}" for name in unknown)
            return
    yield f"invalid parameter {where or 'object'}: {error.message[:N_CHARS]}"


def _place(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
