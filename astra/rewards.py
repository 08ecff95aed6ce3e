"""What an episode in an arena is worth: pure functions of what was solved, needed, called and answered.

Paper section 3.3.4: with n required sub-tasks, n^ of them solved and c tool calls, recall r = n^ / n, precision
p = n^ / c, reward 2pr / (p + r), and 0 when nothing is solved. Every call counts, failed and repeated ones too, and a
sub-task counts once; so no further call can raise a reward without solving something new.

Departures: the paper's c + eps only keeps c = 0 from dividing, which the zero for nothing solved does already.
Precision is at most 1: one call may solve two sub-tasks that ask the same. ``f1_answer`` is ours: the final answer is
one more required sub-task and one more action, counted only when every tool step is solved: an answer without
evidence is a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Reward = Callable[[int, int, int, bool, int], float]  # of a Tally's fields


class Tally(NamedTuple):
    """What a reward is computed from: ``reward(*tally)``."""

    solved: int
    n_required: int
    n_calls: int
    answer_correct: bool
    n_faults: int = 0  # calls that were answered by an error


def of_variant(honest: bool, solved: int, n_calls: int) -> Tally:
    """An episode in an arena that cannot be done: its honest end is the one sub-task and the one action to pay.

    Calls for what can still be done cost nothing, whether they are made or not; every other call, such as one with an
    invented value, is one more action. So at most 1, for an honest end without a needless call, and 0 for any other.
    """
    return Tally(int(honest), 1, 1 + max(0, n_calls - solved), honest)


def recall(solved: int, n_required: int, n_calls: int, answer_correct: bool, n_faults: int = 0) -> float:
    """The share of required sub-tasks that were solved, in [0, 1]. Alone it lets the number of calls explode."""
    return solved / n_required


def precision(solved: int, n_required: int, n_calls: int, answer_correct: bool, n_faults: int = 0) -> float:
    """Solved sub-tasks per call, in [0, 1]. Alone it teaches not to call."""
    return min(1.0, solved / n_calls) if solved else 0.0


def f1(solved: int, n_required: int, n_calls: int, answer_correct: bool, n_faults: int = 0) -> float:
    """The harmonic mean of recall and precision, in [0, 1]: the paper's reward."""
    r = recall(solved, n_required, n_calls, answer_correct)
    p = precision(solved, n_required, n_calls, answer_correct)
    return 2 * p * r / (p + r) if solved else 0.0


def f1_answer(solved: int, n_required: int, n_calls: int, answer_correct: bool, n_faults: int = 0) -> float:
    """``f1`` with a supported final answer as one more sub-task and the answering as one more action."""
    supported = int(answer_correct and solved == n_required)
    return f1(solved + supported, n_required + 1, n_calls + 1, answer_correct)


CALL_PRICE, FAULT_PRICE = 0.05, 0.15  # of a needless call and of a faulty one; a needed call is free


def cost(solved: int, n_required: int, n_calls: int, answer_correct: bool, n_faults: int = 0) -> float:
    """``recall`` less 0.05 for each call beyond those that solved something, at least 0: r * max(0, 1 - 0.05 (c - n^)).

    For tools whose calls cost alike and far less than a missed sub-task: F1 weighs a needless call by how few calls
    there are, this reward alike for long and short questions.
    """
    wasted = max(0, n_calls - solved)
    return recall(solved, n_required, n_calls, answer_correct) * max(0.0, 1 - CALL_PRICE * wasted)


def safety(solved: int, n_required: int, n_calls: int, answer_correct: bool, n_faults: int = 0) -> float:
    """``f1`` times max(0, 1 - 0.15 e) with e calls that failed: unknown tools, wrong arguments, what a tool refuses.

    For tools that do something: a call that was not meant as it was made is worse than one look-up too many.
    """
    return f1(solved, n_required, n_calls, answer_correct) * max(0.0, 1 - FAULT_PRICE * n_faults)


REWARDS: dict[str, Reward] = {
    "f1": f1, "recall": recall, "precision": precision, "f1_answer": f1_answer, "cost": cost, "safety": safety,
}  # fmt: skip
