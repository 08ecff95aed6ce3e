"""What a run of reinforcement learning did, as rows for plots, records and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from astra.records import Difficulty, Rollout
from astra.rewards import precision, recall
from astra.training.difficulty import difficulty
from astra.training.filling import Fill, Scored, has_spread, rewards_of
from astra.training.reinforcement import GAP, Practice


def to_rollout(one: Scored, update: int, sample: int) -> Rollout:
    episode = one.episode
    assert one.reward is not None
    assert episode.stop != "failed"
    tally = episode.tally
    return Rollout(
        arena_id=episode.case.arena.id,
        update=update,
        sample=sample,
        messages=episode.messages,
        solved=tally.solved,
        n_required=tally.n_required,
        n_calls=episode.n_calls,
        reward=one.reward,
        recall=recall(*tally),
        precision=precision(*tally),
        answer_correct=tally.answer_correct,
        stop=episode.stop,
    )


def curve_row(fill: Fill, group: int) -> dict[str, float]:
    """What the update sampled, for dvc plots; means are over episodes that have a reward."""
    scored = [one for one in fill.episodes if one.reward is not None]
    episodes = [one.episode for one in scored]
    groups = [rewards_of(fill.episodes[start : start + group]) for start in range(0, len(fill.episodes), group)]
    if not episodes:  # the batch was waiting already
        return {"update": fill.update, "rounds": fill.rounds, "waiting": fill.waiting}
    return {
        "update": fill.update,
        "reward": fmean(one.reward for one in scored if one.reward is not None),
        "recall": fmean(recall(*one.tally) for one in episodes),
        "precision": fmean(precision(*one.tally) for one in episodes),
        "answer": fmean(one.tally.answer_correct for one in episodes),
        "calls": fmean(one.n_calls for one in episodes),
        "zero_variance": fmean(not has_spread(one, 0.0) for one in groups),
        "spread": fmean(pstdev(one) for one in groups if one),
        "truncated": fmean(one.stop == "truncated" for one in episodes),
        "rounds": fill.rounds,
        "waiting": fill.waiting,
    }


def curve(practice: Practice) -> list[dict[str, float]]:
    """One row an update: what was sampled, and what TRL logged."""
    watched = {"loss": "loss", "entropy": "entropy", "gap": GAP}
    return [
        {**row, **{key: log.get(name, 0.0) for key, name in watched.items() if key != "gap" or name in log}}
        for row, log in zip(practice.rows, practice.log, strict=True)
    ]


def difficulties(practice: Practice) -> list[Difficulty]:
    """How hard each arena that came up was for the policy of that moment, one record a group, in order."""
    return [difficulty(one, fill.update) for fill in practice.fills for one in fill.passed]


def summary(rows: Sequence[dict[str, float]], practice: Practice) -> dict[str, Any]:
    last = [row for row in rows if "reward" in row][-max(1, len(rows) // 5) :]
    fills = practice.fills
    return {
        "updates": len(rows),
        "groups_sampled": sum(fill.sampled for fill in fills),
        "groups_without_spread": sum(fill.without_spread for fill in fills),
        "groups_padded": sum(fill.padded for fill in fills),
        "groups_expired": sum(fill.expired for fill in fills),
        "groups_dropped": sum(fill.dropped for fill in fills),
        "batches_skipped": sum(fill.skipped for fill in fills),
        "episodes_failed": sum(fill.failed for fill in fills),
        "rows_drifted": practice.rows_drifted,
        "mean_age": round(fmean(age for fill in fills for age in fill.ages), 4),
        "first_reward": round(rows[0]["reward"], 4),
        **{
            f"last_{key}": round(fmean(row[key] for row in last), 4)
            for key in ("reward", "recall", "precision", "calls")
        },
    }
