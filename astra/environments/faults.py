"""Failures of the network between client and server: a plan of them is drawn before a conversation begins.

Paper section 3.2.3: an emulated call fails with a probability of 20 %. A plan says for each call, by its index, whether
it fails and how; nothing that happens in the conversation can change it. A kind that a call cannot have (``partial``
and ``stale`` need a reading, ``stale`` one whose state has changed) is replaced by the one that the plan holds for
that case, so that the share of failures is the setting's.

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
"""All kinds. ``partial``: the answer broke off on its way. ``stale``: an answer from before the last change."""

PLANNED = 256  # calls; the calls after these do not fail
SHOWN = 0.5  # of the text of a partial answer, at most


class Fault(NamedTuple):
    """How one call fails; ``otherwise`` where it cannot fail like that."""

    kind: str
    otherwise: str


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
    return Fault(draw.choice(FAULTS), draw.choice(tuple(TRANSPORT)))


def broken_off(text: str) -> str:
    """A partial answer as the client tells it: how much came, and what. Never JSON, so that none takes it for whole."""
    sent = text[: max(1, int(len(text) * SHOWN))]
    n_came, n_all = len(sent.encode()), len(text.encode())
    return f"Incomplete response: connection lost after {n_came} of {n_all} bytes, rest unavailable. Received: {sent}"
