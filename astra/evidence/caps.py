"""What evidence leaves of a score: caps, by kind of evidence, for calls, turns and answers."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from astra.evidence import Findings
from astra.records import Evidence, Section


class Caps(Section):
    """The highest score where a rule found this; 1 switches the rule off."""

    invented: float = Field(ge=0, le=1, description="A tool that is not offered; an id, day, number from nowhere.")
    unsourced: float = Field(ge=0, le=1, description="Words from nowhere, which may be a translation or a paraphrase.")
    repeated: float = Field(ge=0, le=1, description="A call that had been answered, with the same result.")
    unheeded: float = Field(ge=0, le=1, description="An answer in another form than the user wished; its relevance.")
    unfinished: float = Field(ge=0, le=1, description="A part that was never tried; its share of the relevance.")

    def of(self, one: Evidence) -> float:
        """The cap for one piece of evidence; 1 for a kind that is for the judge to weigh."""
        limits = {
            "invented": self.invented,
            "guessed": self.invented,
            "unsourced": self.unsourced,
            "repeated": self.repeated,
        }
        return limits.get(one.kind, 1.0)


class Rule(NamedTuple):
    """The highest score that the rules leave, and why."""

    cap: float
    reason: str


def cap_of_calls(found: Findings, caps: Caps, message: int, n_calls: int, call: int | None = None) -> Rule | None:
    """The mean of the caps of a turn's calls, or of the one call; None where the rules leave all to the judge."""
    capping = [one for one in found.at(message, call) if one.call is not None and caps.of(one) < 1]
    limits: dict[int | None, float] = {}
    for one in capping:
        limits[one.call] = min(limits.get(one.call, 1.0), caps.of(one))
    if not limits:
        return None
    cap = (sum(limits.values()) + n_calls - len(limits)) / n_calls
    return Rule(cap, "; ".join(one.detail for one in capping[:3]))


def cap_of_understanding(found: Findings, caps: Caps, message: int) -> Rule | None:
    """A request of which a left-out value is guessed, at once or later, was not understood."""
    guesses = found.guesses(message)
    return Rule(caps.invented, guesses[0].detail) if guesses and caps.invented < 1 else None


def cap_of_answer(found: Findings, caps: Caps, message: int, n_targets: int = 1) -> Rule | None:
    """FA is the mean of relevance and faithfulness.

    An answer is as faithful as its facts and what they rest on; it is no more relevant than the share of the request's
    parts (``n_targets`` in all) that were tried, and than the form that the user wished for leaves it.
    """
    said, guesses = found.said[message], found.guesses(message)
    faithful = min(said.share, caps.invented if guesses else 1.0)
    unheeded = [one for one in found.at(message) if one.kind == "unheeded" and caps.unheeded < 1]
    unfinished = [one for one in found.at(message) if one.kind == "unfinished" and caps.unfinished < 1]
    parts = max(n_targets, len(unfinished), 1)
    tried = (parts - len(unfinished) * (1 - caps.unfinished)) / parts
    relevant = min(tried, caps.unheeded if unheeded else 1.0)
    if faithful == 1 and relevant == 1:
        return None
    reasons = [f"{', '.join(said.unsupported[:5])}: in no result and not in the user's words"] * bool(said.unsupported)
    more = [one.detail for one in (*guesses[:1], *unheeded[:2], *unfinished[:3])]
    return Rule((relevant + faithful) / 2, "; ".join([*reasons, *more]))
