"""A benchmark for tests: a case asks for sums, one a turn, and is right when all are; some cases break on purpose."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from astra.benchmarks.types import Ask, CallText, CaseInfo, HarnessError, Reply, Verdict
from astra.environments import EnvironmentUnavailable

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum of two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        "response": {"type": "object"},
    },
}
TURNS = 3


@dataclass
class Sums:
    count: int
    broken: frozenset[str] = frozenset()
    away: frozenset[str] = frozenset()
    version: str = "sums 1"

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=f"sum-{number}", category="sums") for number in range(self.count)]

    def start(self, case: str, trial: int) -> Sum:
        if case in self.broken:
            raise HarnessError("harness_error", f"{case}: KeyError: 'a'")
        return Sum(int(case.removeprefix("sum-")), case in self.away)


@dataclass
class Sum:
    number: int
    is_away: bool
    messages: list[dict[str, object]] = field(default_factory=list)
    right: int = 0
    over: bool = False

    def turn(self) -> Ask | None:
        if self.over or self.right == TURNS:
            return None
        if not self.messages or self.messages[-1]["role"] != "user":
            self.messages.append({"role": "user", "content": f"{self.number} + {self.right}"})
        return Ask(messages=list(self.messages), tools=[ADD], options={"tool_choice": "required"})

    def take(self, reply: Reply) -> None:
        if self.is_away:
            raise EnvironmentUnavailable("the adding machine is away")
        try:
            given = json.loads(reply.tool_calls[0].arguments)
            good = given == {"a": self.number, "b": self.right}
        except (IndexError, ValueError):
            good = False
        self.over = not good
        self.right += good
        self.messages.append({"role": "assistant", "content": reply.content or "", "tool_calls": [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in reply.tool_calls]})  # fmt: skip

    def verdict(self) -> Verdict:
        done = self.right == TURNS
        return Verdict(
            scores={"accuracy": float(done)}, note="" if done else "wrong_sum", n_steps=self.right + (not done)
        )


def adding(body: dict) -> Reply:
    """The right call to what a body asks last."""
    a, _, b = body["messages"][-1]["content"].split()
    call = CallText(id=f"call_{len(body['messages'])}", name="add", arguments=json.dumps({"a": int(a), "b": int(b)}))
    return Reply(tool_calls=[call], stop="tool_calls")
