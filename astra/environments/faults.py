"""Failures of the network between client and server: a plan of them is drawn before a conversation begins.

Paper section 3.2.3: an emulated call fails with a probability of 20 %. A plan says for each call, by its index, whether
it fails and how; nothing that happens in the conversation can change it. A kind that a call cannot have (``partial``
and ``stale`` need a reading that has an answer) is replaced by the one that the plan holds for that case, so that the
share of failures is the setting's. A ``stale`` answer comes from a cache that says how old it is: what was true before
the last change, where something changed, else what is still true and nobody has looked at since.

Departures: the authors' code asks the model in prose to fail now and then. A live server gets no failures from us.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

TRANSPORT = {
    "timeout": "Request timed out after 30 s.",
    "unreachable": "Could not connect to the server.",
    "rate_limit": "Too many requests (429). Try again later.",
    "server_error": "Internal server error (500).",
}
"""Kinds of a call that never reaches the server, with what the client says of them."""

FAULTS = (*TRANSPORT, "partial", "stale")
"""All kinds. ``partial``: the answer broke off on its way. ``stale``: a cached answer, perhaps out of date."""

PLANNED = 256  # calls; the calls after these do not fail
SHOWN = 0.5  # of the text of a partial answer, at most
AGES_MIN = (5, 20, 45, 90, 240)  # of a cached answer


class Fault(NamedTuple):
    """How one call fails; ``otherwise`` where it cannot fail like that. ``age_min``: of a stale answer."""

    kind: str
    otherwise: str
    age_min: int = AGES_MIN[0]


@dataclass(frozen=True)
class FaultPlan:
    """The failures of one conversation's calls, by index."""

    faults: tuple[Fault | None, ...]

    @classmethod
    def drawn(cls, key: str, rate: float, n_calls: int = PLANNED) -> FaultPlan:
        """The plan of a conversation; ``key`` names it (seed, task, attempt, server)."""
        draw = random.Random(f"{key}:faults")
        return cls(tuple(_drawn(draw) if draw.random() < rate else None for _ in range(n_calls)))

    def at(self, index: int) -> Fault | None:
        """How the index-th call fails, if it does."""
        return self.faults[index] if index < len(self.faults) else None


def _drawn(draw: random.Random) -> Fault:
    return Fault(draw.choice(FAULTS), draw.choice(tuple(TRANSPORT)), draw.choice(AGES_MIN))


def broken_off(text: str) -> str:
    """A partial answer as the client tells it: how much came, and what. Never JSON, so that none takes it for whole."""
    sent = text[: max(1, int(len(text) * SHOWN))]
    n_came, n_all = len(sent.encode()), len(text.encode())
    return f"Incomplete response: connection lost after {n_came} of {n_all} bytes, rest unavailable. Received: {sent}"


def out_of_date(text: str, age_min: int) -> str:
    """A stale answer as the client tells it: an answer for all that, but one that says it may not hold any more."""
    return f"Stale response: a cached copy, {age_min} minutes old, not checked since. Received: {text}"
