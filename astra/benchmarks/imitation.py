"""What imitation was meant to teach, on conversations that sft was kept from: each recorded turn is asked for anew.

Held out are trajectories that scored well enough to be imitated and were not, since they touch what a held-out arena
asks, or were set apart by ``sft.checkpoints.heldout``; and of them only those about a question that no trained
conversation asks. The model sees the recorded history before each of the assistant's turns, so no tool is run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from astra.benchmarks.types import Ask, CallText, CaseInfo, Reply, Verdict
from astra.records import Message, Reject, Trajectory, canonical

APART = "heldout_"  # of sft's reject reasons: shares something with a held-out arena


def held_out(
    trajectories: Sequence[Trajectory], trained: Collection[str], apart: Collection[str], rejects: Iterable[Reject]
) -> list[Trajectory]:
    """The conversations to ask about, one for each question. ``trained`` and ``apart`` are ids of sft's rows."""
    kept_away = {one.id for one in rejects if one.reason.startswith(APART)} | set(apart)
    seen = {_question(one) for one in trajectories if one.id in set(trained)}
    found = []
    for one in trajectories:
        if one.id in kept_away and one.stop == "answered" and _question(one) not in seen:
            seen.add(_question(one))
            found.append(one)
    return found


def _question(trajectory: Trajectory) -> str:
    return next((one.content or "" for one in trajectory.messages if one.role == "user"), "")


class Imitation:
    """A bench of recorded conversations."""

    version = "1"

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self._by_id = {one.id: one for one in trajectories}

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=one, category="imitation") for one in self._by_id]

    def start(self, case: str, trial: int) -> _Recorded:
        return _Recorded(self._by_id[case])


@dataclass
class _Recorded:
    """One conversation, turn after turn on its recorded history."""

    trajectory: Trajectory
    place: int = 0
    replies: list[tuple[Message, Reply]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._turns = [place for place, one in enumerate(self.trajectory.messages) if one.role == "assistant"]

    def turn(self) -> Ask | None:
        if self.place >= len(self._turns):
            return None
        end = self._turns[self.place]
        before = self.trajectory.messages[:end]
        late = [tool for one in self.trajectory.late if one.message < end for tool in one.tools]
        tools = [one.openai() for one in (*self.trajectory.tools, *late)]
        return Ask(messages=[_plain(one) for one in before], tools=tools)

    def take(self, reply: Reply) -> None:
        self.replies.append((self.trajectory.messages[self._turns[self.place]], reply))
        self.place += 1

    def verdict(self) -> Verdict:
        """Shares of the turns in which the reply does what the recorded one did."""
        wanted_given = [([(call.function.name, call.function.arguments) for call in recorded.tool_calls],
                         _given(reply), reply.stop) for recorded, reply in self.replies]  # fmt: skip
        return Verdict(
            scores={
                "same_calls": fmean(_usable(stop) and _calls(want) == _calls(got) for want, got, stop in wanted_given),
                "same_tools": fmean(_usable(stop) and _names(want) == _names(got) for want, got, stop in wanted_given),
                "same_kind": fmean(_usable(stop) and bool(want) == bool(got) for want, got, stop in wanted_given),
            },
            note="context" if any(stop == "context" for _, _, stop in wanted_given) else "",
            n_steps=len(self.replies),
            n_calls=sum(len(got) for _, got, _ in wanted_given),
        )


def _plain(message: Message) -> dict[str, Any]:
    """A recorded message as it was asked with, without thoughts."""
    return {name: value for name, value in message.openai().items() if name != "reasoning_content"}


def _given(reply: Reply) -> list[tuple[str, str]]:
    return [_pair(one) for one in reply.tool_calls]


def _pair(call: CallText) -> tuple[str, str]:
    return call.name, call.arguments


def _usable(stop: str) -> bool:
    """Whether the reply is whole; one that was cut says nothing."""
    return stop in ("stop", "tool_calls")


def _names(calls: Iterable[tuple[str, str]]) -> Counter[str]:
    return Counter(name for name, _ in calls)


def _calls(calls: Iterable[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Calls with their arguments in the one form of JSON; 5 and 5.0 are the same, arguments that are none are not."""
    return Counter((name, _arguments(arguments)) for name, arguments in calls)


def _arguments(text: str) -> str:
    try:
        return canonical(_numbers(json.loads(text)))
    except (ValueError, RecursionError):
        return text


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
