"""Conversations that were held: when too many went wrong, which went the same way, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from astra.environments import EnvironmentUnavailable
from astra.environments.faults import FAULTS
from astra.llm import Client, EndpointUnavailable
from astra.records import Message, Reject, Trajectory

FEW = 10  # of fewer conversations than this, any number may be refused


def check_refusals(client: Client, tries: int) -> None:
    """Raises EndpointUnavailable where a model refuses so often that it cannot be the conversations' fault."""
    n_refused = client.meter.refused.total()
    if tries >= FEW and n_refused > tries / 2:
        reasons = ", ".join(f"{reason} {count}" for reason, count in client.meter.refused.most_common())
        raise EndpointUnavailable(
            f"{n_refused} requests were refused in {tries} conversations ({reasons}). Change the model or its limits, "
            f"then: dvc repro trajectories"
        )


def within_losses(held: Iterable[Trajectory | Reject], max_lost: float) -> Iterator[Trajectory | Reject]:
    """The same. Raises EnvironmentUnavailable at their end where too many of them were lost to live servers."""
    tries, n_lost, last = 0, 0, ""
    for one in held:
        tries += 1
        if isinstance(one, Reject) and one.reason == "tool_infra_error":
            n_lost, last = n_lost + 1, one.detail
        yield one
    if tries >= FEW and n_lost > max_lost * tries:
        raise EnvironmentUnavailable(
            f"{n_lost} of {tries} conversations were lost to live servers, more than trajectories.max_lost "
            f"{max_lost:g}; the last: {last}. Finished model replies are kept; when the servers work again: "
            f"dvc repro trajectories"
        )


def without_repetitions(held: Iterable[Trajectory | Reject]) -> Iterator[Trajectory | Reject]:
    """The same; an attempt that says and does what an earlier one at its task did is a reject.

    What the system prompt wanted and which other tools were offered makes no difference to that.
    """
    task, seen = "", dict[tuple[Message, ...], int]()
    for one in held:
        if isinstance(one, Trajectory):
            task, seen = (task, seen) if one.task_id == task else (one.task_id, {})
            said = tuple(message for message in one.messages if message.role != "system")
            if said in seen:
                detail = f"attempt {seen[said]} went the same way"
                yield Reject(id=f"{one.task_id}:{one.attempt}", reason="same_as_attempt", detail=detail)
                continue
            seen[said] = one.attempt
        yield one


@dataclass
class Figures:
    """What the paper reports of its set, and how its calls went; counted as trajectories pass by."""

    n: int = 0
    messages: int = 0
    errors: int = 0
    repaired: int = 0
    user_turns: int = 0
    parallel: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)
    called: set[tuple[tuple[str, ...], str]] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)  # these two of all that were held, repetitions among them
    n_emulated: int = 0

    def held(self, outcomes: Iterable[Trajectory | Reject]) -> Iterator[Trajectory | Reject]:
        """The same outcomes; counts failures where nothing is sorted out that had few of them."""
        for one in outcomes:
            answers = one.messages if isinstance(one, Trajectory) else ()
            self.faults.update(message.fault for message in answers if message.fault is not None)
            self.n_emulated += sum(message.executed_by == "emulator" for message in answers)
            yield one

    def of(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """The same trajectories."""
        for one in trajectories:
            self._count(one)
            yield one

    def _count(self, one: Trajectory) -> None:
        answers = [message for message in one.messages if message.role == "tool"]
        self.n += 1
        self.messages += len(one.messages)
        self.stops[one.stop] += 1
        self.kinds[one.kind] += 1
        self.user_turns += sum(message.role == "user" for message in one.messages)
        self.parallel += sum(len(message.tool_calls) > 1 for message in one.messages)
        self.executed.update(message.executed_by or "nobody" for message in answers)
        self.called.update((one.server_ids, message.name) for message in one.messages if message.name)
        self.errors += sum(message.is_error for message in answers)
        self.repaired += sum(bool(message.repairs) for message in answers)

    def metrics(self) -> dict[str, Any]:
        calls, emulated = self.executed.total(), self.executed["emulator"]
        return {
            "stops": dict(sorted(self.stops.items())),
            "kinds": dict(sorted(self.kinds.items())),
            "user_turns_per_conversation": _share(self.user_turns, self.n),
            "turns_with_several_calls": self.parallel,
            "messages_per_conversation": _share(self.messages, self.n),
            "calls_per_conversation": _share(calls, self.n),
            "distinct_tools_called": len(self.called),
            "tool_calls": calls,
            "live_calls": self.executed["live"],
            "emulated_calls": emulated,
            "fault_share": _share(self.faults.total(), self.n_emulated),
            "fault_shares": {kind: _share(self.faults[kind], self.n_emulated) for kind in FAULTS},
            "error_share": _share(self.errors, calls),
            "refused_by_loop": self.executed["agent"],
            "repaired_calls": self.repaired,
        }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
