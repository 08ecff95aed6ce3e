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

Reward = Callable[[int, int, int, bool], float]


def recall(solved: int, n_required: int, n_calls: int, answer_correct: bool) -> float:
    """The share of required sub-tasks that were solved, in [0, 1]. Alone it lets the number of calls explode."""
    return solved / n_required


def precision(solved: int, n_required: int, n_calls: int, answer_correct: bool) -> float:
    """Solved sub-tasks per call, in [0, 1]. Alone it teaches not to call."""
    return min(1.0, solved / n_calls) if solved else 0.0


def f1(solved: int, n_required: int, n_calls: int, answer_correct: bool) -> float:
    """The harmonic mean of recall and precision, in [0, 1]: the paper's reward."""
    r = recall(solved, n_required, n_calls, answer_correct)
    p = precision(solved, n_required, n_calls, answer_correct)
    return 2 * p * r / (p + r) if solved else 0.0


def f1_answer(solved: int, n_required: int, n_calls: int, answer_correct: bool) -> float:
    """``f1`` with a supported final answer as one more sub-task and the answering as one more action."""
    supported = int(answer_correct and solved == n_required)
    return f1(solved + supported, n_required + 1, n_calls + 1, answer_correct)


REWARDS: dict[str, Reward] = {"f1": f1, "recall": recall, "precision": precision, "f1_answer": f1_answer}
