"""An arena being played: code tools in a sandbox answer the calls, and solved sub-tasks are told by typed comparison.

Solved means earned: a sub-task counts when a call that needs it, with the arguments that lead there, gives its answer,
and, where it builds on others, when those arguments were obtained in this episode: said by the question or by an
earlier result. A value that is guessed, or that a tool only repeated, earns nothing. A sub-task counts once.

Certified tools are deterministic and keep no state, so what a call gave is remembered by code and arguments for the
whole process: reinforcement repeats the same calls hundreds of thousands of times. Time-outs and crashes are never
remembered.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from jsonschema import Draft202012Validator

from astra.answers import Comparison, folded, in_text, leaves, matches, result_value, says
from astra.environments.base import EnvironmentUnavailable, Observation
from astra.environments.endings import honest
from astra.records import Answer, Arena, CodeTool, Probe, Step, ToolCall, ToolSpec, Variant, canonical
from astra.rewards import Tally, of_variant
from astra.sandbox import Result, SandboxUnavailable

MAX_TOOLS = 20_000  # remembered in this process
MAX_CALLS = 512  # remembered per tool
MAX_ARENAS = 20_000  # whose golden calls are kept prepared
N_VALUE_WORDS = 4  # a longer text is searched for a value; a shorter one is a value
FINAL = ("ok", "tool_error")  # what a deterministic tool gives again


class _Outcome(NamedTuple):
    """One call's observation; the rest where the code ran and answered.

    ``told`` holds the parts of the value but those that the call itself said; ``texts`` the longer ones among them.
    """

    observation: Observation
    arguments: dict[str, Any] | None = None
    value: Any = None
    told: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()


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


def refusal(tool: CodeTool, arguments: dict[str, Any]) -> str | None:
    """What the caller is told of arguments that the tool's schema does not take; None where the code is asked."""
    return _prepared(tool).invalid(arguments)


def forget() -> None:
    """Drop all that is remembered of earlier calls."""
    _PREPARED.clear()
    _GOALS.clear()


class _Goal(NamedTuple):
    """A golden call: what it must be given, what it must give, and which of its arguments must have been obtained."""

    step: int
    arguments: dict[str, Any]
    keys: dict[str, str]
    expected: Answer
    needs: frozenset[str]

    def is_made(self, arguments: dict[str, Any]) -> bool:
        """Whether these are its arguments; further ones may be there, and case and spaces of text are free."""
        if arguments == self.arguments:
            return True
        return all(name in arguments and _key(arguments[name]) == key for name, key in self.keys.items())


_Goals = dict[str, list[_Goal]]  # by tool
_GOALS: OrderedDict[tuple[int, int, int, str], tuple[object, _Goals]] = OrderedDict()


def _goals(arena: _Played) -> _Goals:
    """The golden calls by tool, made once for an arena: reinforcement plays each many times."""
    key = (id(arena.probes), id(arena.steps), len(arena.tools), arena.question)
    found = _GOALS.get(key)
    if found is None:
        # What the identities stand for is held on to, so that no other object gets them.
        found = _GOALS[key] = ((arena.probes, arena.steps), _made_goals(arena))
        if len(_GOALS) > MAX_ARENAS:
            _GOALS.popitem(last=False)
    return found[1]


def _made_goals(arena: _Played) -> _Goals:
    depends = {step.id: bool(step.depends_on) for step in arena.steps}
    specs = {tool.spec.name: tool.spec for tool in arena.tools}
    goals: _Goals = {}
    for probe in arena.probes:
        keys = {name: _key(value) for name, value in probe.arguments.items()}
        obtained = {
            keys[name]
            for name, value in probe.arguments.items()
            if depends.get(probe.step) and not is_setting(specs.get(probe.tool), name, value)
        }
        needs = frozenset(one for one in obtained if not says(one, arena.question))
        goals.setdefault(probe.tool, []).append(_Goal(probe.step, probe.arguments, keys, probe.expected, needs))
    return goals


def is_setting(spec: ToolSpec | None, name: str, value: Any) -> bool:
    """Whether an argument is one of a few that the tool's document offers, not a thing that was found out."""
    if isinstance(value, bool):
        return True
    schema = spec.parameters.get("properties", {}).get(name, {}) if spec is not None else {}
    return isinstance(schema, dict) and (value in schema.get("enum", ()) or schema.get("default") == value)


def _key(value: Any) -> str:
    """An argument or a part of a result as it is looked up: 5, 5.0 and "5" are one, and so are Rome and ROME."""
    if isinstance(value, str):
        return folded(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return canonical(value) if isinstance(value, dict | list | bool) else str(value)


class _Played(NamedTuple):
    """What an episode must know of its arena."""

    tools: Sequence[CodeTool]
    steps: Sequence[Step]
    probes: Sequence[Probe]
    question: str = ""
    answer: Answer | None = None
    variant: Variant | None = None


class Caller(Protocol):
    """What makes the calls: a sandbox, or what replays one."""

    def call(self, code: str, function: str, arguments: Mapping[str, Any], timeout_s: float = ...) -> Result: ...


class ArenaWorld:
    """One episode. ``solved`` holds the ids of steps that were earned.

    ``tools`` may hold distractors and may lack a tool that a probe needs. Raises ValueError for two tools of one name.
    """

    def __init__(
        self,
        tools: Sequence[CodeTool],
        steps: Sequence[Step],
        probes: Sequence[Probe],
        sandbox: Caller,
        question: str = "",
        answer: Answer | None = None,
        variant: Variant | None = None,
    ) -> None:
        self.tools: tuple[ToolSpec, ...] = tuple(tool.spec for tool in tools)
        self._tools = {tool.spec.name: _prepared(tool) for tool in tools}
        if len(self._tools) != len(self.tools):
            raise ValueError(f"tool names are not unique: {sorted(tool.name for tool in self.tools)}")
        self._arena = _Played(tools, steps, probes, question, answer, variant)
        self._goals = _goals(self._arena)
        self._sandbox = sandbox
        self._obtained: set[str] = set()
        self._texts: list[str] = []  # longer ones, in words, where a value may stand among others
        # A variant's golden calls are all that can still be done.
        self.n_required = len(probes) if variant is not None else sum(step.needs_tool for step in steps)
        self.solved: set[int] = set()
        self.n_calls = 0

    @property
    def building(self) -> frozenset[int]:
        """The steps whose arguments only an earlier result can say."""
        return frozenset(goal.step for goals in self._goals.values() for goal in goals if goal.needs)

    @classmethod
    def of(cls, arena: Arena, tools: Sequence[CodeTool], sandbox: Caller) -> ArenaWorld:
        """An episode in an arena with the tools that are shown."""
        return cls(tools, arena.steps, arena.probes, sandbox, arena.question, arena.answer, arena.variant)

    async def call(self, call: ToolCall) -> Observation:
        """Execute one call. Tool errors are observations; raises EnvironmentUnavailable for infrastructure."""
        return self.step(call.function.name, call.function.arguments)

    def step(self, name: str, arguments_json: str) -> Observation:
        """Execute one call, count it and note the steps that it solves. Raises EnvironmentUnavailable."""
        outcome = self._call(name, arguments_json)
        self._obtain(outcome)
        return outcome.observation

    def turn(self, calls: Sequence[ToolCall]) -> list[Observation]:
        """Execute the calls of one message, as ``step`` does. None of them builds on what another gives."""
        outcomes = [self._call(one.function.name, one.function.arguments) for one in calls]
        for one in outcomes:
            self._obtain(one)
        return [one.observation for one in outcomes]

    def honest(self, final: str | None) -> Comparison | None:
        """Whether a final message is the honest end of a variant; None for an arena that can be done."""
        if self._arena.variant is None or self._arena.answer is None:
            return None
        told = (*self._obtained, *self._texts)
        return honest(self._arena.variant, self._arena.question, self._arena.answer, final or "", told)

    def tally(self, final: str | None) -> Tally:
        """What a reward is computed from, once the episode ended with this message or (None) without one."""
        ended = self.honest(final)
        if ended is not None:
            return of_variant(ended.ok, len(self.solved), self.n_calls)
        answer = self._arena.answer
        correct = bool(final) and answer is not None and in_text(answer, final or "").ok
        return Tally(len(self.solved), self.n_required, self.n_calls, correct)

    def _call(self, name: str, arguments_json: str) -> _Outcome:
        self.n_calls += 1
        prepared = self._tools.get(name)
        if prepared is None:
            return _error(f"unknown tool: {name}")
        outcome = prepared.outcomes.get(arguments_json)
        if outcome is None:
            outcome = self._made(prepared, arguments_json)
        if outcome.arguments is not None:
            self.solved |= set(self._solves(name, outcome))
        return outcome

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
        assert outcome.arguments is not None
        for goal in self._goals.get(name, ()):
            if goal.step in self.solved or not goal.is_made(outcome.arguments):
                continue
            if self._has(goal.needs) and matches(goal.expected, result_value(outcome.value)):
                yield goal.step

    def _has(self, needs: frozenset[str]) -> bool:
        missing = needs - self._obtained
        return not missing or all(any(says(one, text) for text in self._texts) for one in missing)

    def _obtain(self, outcome: _Outcome) -> None:
        self._obtained |= outcome.told
        self._texts += outcome.texts


def _error(text: str) -> _Outcome:
    return _Outcome(Observation(text, True, "sandbox"))


def _observed(result: Result, arguments: dict[str, Any]) -> _Outcome:
    if result.ok:
        content = json.dumps(result.value, ensure_ascii=False)
        told = {_key(one) for one in leaves(result.value)} - {_key(one) for one in leaves(arguments)}
        texts = tuple(one for one in sorted(told) if len(one.split()) > N_VALUE_WORDS)
        return _Outcome(Observation(content, False, "sandbox"), arguments, result.value, frozenset(told), texts)
    if result.status == "tool_error":
        return _error(result.error or result.error_type)
    return _error(f"the tool failed: {result.status.replace('_', ' ')}")
