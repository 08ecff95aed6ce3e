"""An arena being played: code tools in a sandbox answer the calls, and solved sub-tasks are told by typed comparison.

Certified tools are deterministic and keep no state, so what a call gave is remembered by code and arguments for the
whole process: reinforcement repeats the same calls hundreds of thousands of times. Time-outs and crashes are never
remembered.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

from astra.answers import matches, result_value
from astra.environments.base import EnvironmentUnavailable, Observation
from astra.records import CodeTool, Probe, Step, ToolCall, ToolSpec, canonical
from astra.sandbox import Result, Sandbox, SandboxUnavailable

MAX_TOOLS = 20_000  # remembered in this process
MAX_CALLS = 512  # remembered per tool
FINAL = ("ok", "tool_error")  # what a deterministic tool gives again


class _Outcome(NamedTuple):
    """One call's observation; ``arguments`` and ``value`` where the code ran and answered."""

    observation: Observation
    arguments: dict[str, Any] | None = None
    value: Any = None


@dataclass
class _Prepared:
    """A tool with what its calls gave so far."""

    tool: CodeTool
    outcomes: dict[str, _Outcome] = field(default_factory=dict)

    @cached_property
    def validator(self) -> Draft202012Validator:
        return Draft202012Validator(self.tool.spec.parameters)

    def invalid(self, arguments: dict[str, Any]) -> str | None:
        """What is wrong with arguments, in the tools' own words; None where nothing is."""
        schema = self.tool.spec.parameters
        properties = schema.get("properties", {})
        if not schema.get("additionalProperties"):
            for name in sorted(arguments.keys() - properties.keys()):
                return f"unknown parameter: {name}"
        for name in schema.get("required", []):
            if name not in arguments:
                return f"missing parameter: {name}"
        for error in sorted(self.validator.iter_errors(arguments), key=lambda one: list(map(str, one.absolute_path))):
            where = str(error.absolute_path[0]) if error.absolute_path else "arguments"
            expected = f"expected a {error.validator_value}" if error.validator == "type" else error.message
            return f"invalid parameter {where}: {expected}"
        return None


_PREPARED: OrderedDict[tuple[str, str, str], _Prepared] = OrderedDict()


def _prepared(tool: CodeTool) -> _Prepared:
    key = (tool.spec.name, tool.code, canonical(tool.spec.parameters))
    found = _PREPARED.get(key)
    if found is None:
        found = _PREPARED[key] = _Prepared(tool)
        if len(_PREPARED) > MAX_TOOLS:
            _PREPARED.popitem(last=False)
    else:
        _PREPARED.move_to_end(key)
    return found


def forget() -> None:
    """Drop all that is remembered of earlier calls."""
    _PREPARED.clear()


class ArenaWorld:
    """One episode. ``solved`` holds the ids of steps whose golden call was made and answered as expected.

    ``tools`` may hold distractors and may lack a tool that a probe needs. Raises ValueError for two tools of one name.
    """

    def __init__(
        self, tools: Sequence[CodeTool], steps: Sequence[Step], probes: Sequence[Probe], sandbox: Sandbox
    ) -> None:
        self.tools: tuple[ToolSpec, ...] = tuple(tool.spec for tool in tools)
        self._tools = {tool.spec.name: _prepared(tool) for tool in tools}
        if len(self._tools) != len(self.tools):
            raise ValueError(f"tool names are not unique: {sorted(tool.name for tool in self.tools)}")
        self._probes = tuple(probes)
        self._sandbox = sandbox
        self.n_required = sum(step.needs_tool for step in steps)
        self.solved: set[int] = set()
        self.n_calls = 0

    async def call(self, call: ToolCall) -> Observation:
        """Execute one call. Tool errors are observations; raises EnvironmentUnavailable for infrastructure."""
        return self.step(call.function.name, call.function.arguments)

    def step(self, name: str, arguments_json: str) -> Observation:
        """Execute one call, count it and note the steps that it solves. Raises EnvironmentUnavailable."""
        self.n_calls += 1
        prepared = self._tools.get(name)
        if prepared is None:
            return _error(f"unknown tool: {name}").observation
        outcome = prepared.outcomes.get(arguments_json)
        if outcome is None:
            outcome = self._made(prepared, arguments_json)
        if outcome.arguments is not None:
            self.solved |= set(self._solves(name, outcome))
        return outcome.observation

    def _made(self, prepared: _Prepared, arguments_json: str) -> _Outcome:
        try:
            arguments = json.loads(arguments_json)
        except (ValueError, RecursionError):
            return _error("arguments are not valid JSON")
        if not isinstance(arguments, dict):
            return _error("arguments are not a JSON object")
        wrong = prepared.invalid(arguments)
        if wrong is not None:
            return _error(wrong)
        try:
            result = self._sandbox.call(prepared.tool.code, prepared.tool.spec.name, arguments)
        except SandboxUnavailable as error:
            raise EnvironmentUnavailable(str(error)) from error
        outcome = _observed(result, arguments)
        if result.status in FINAL and len(prepared.outcomes) < MAX_CALLS:
            prepared.outcomes[arguments_json] = outcome
        return outcome

    def _solves(self, name: str, outcome: _Outcome) -> Iterable[int]:
        for probe in self._probes:
            golden = probe.tool == name and probe.arguments == outcome.arguments
            if golden and matches(probe.expected, result_value(outcome.value)):
                yield probe.step


def _error(text: str) -> _Outcome:
    return _Outcome(Observation(text, True, "sandbox"))


def _observed(result: Result, arguments: dict[str, Any]) -> _Outcome:
    if result.ok:
        content = json.dumps(result.value, ensure_ascii=False)
        return _Outcome(Observation(content, False, "sandbox"), arguments, result.value)
    if result.status == "tool_error":
        return _error(result.error or result.error_type)
    return _error(f"the tool failed: {result.status.replace('_', ' ')}")
