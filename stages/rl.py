"""RL: the policy practises in the training arenas, with GRPO on the F1 of solved sub-tasks (paper section 3.4).

models/sft, data/merge, data/sft/train.parquet -> models/rl, models/control, data/rl/rollouts.jsonl

Every update takes groups of rollouts whose rewards differ (adaptive batch filling); distractor tools of three
similarity bands are mixed in anew each time an arena comes up; tool code runs in the sandbox. ``models/control`` is the
control that the comparison needs: SFT continued on its own rows for the compute that RL used.

Departures: see ``astra/training/reinforcement.py``; the paper's batch of 256 and its 49,152 tokens are params.

    python -m stages.rl
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pandas as pd
import torch
from pydantic import Field

from astra.chat import Chat, Encoded
from astra.decontamination.report import read_report
from astra.environments import EnvironmentUnavailable
from astra.records import Arena, Rollout, Section
from astra.rewards import REWARDS, Reward, precision, recall
from astra.sandbox import Sandbox, open_sandbox
from astra.stage import Contract, Run, StageError
from astra.training.distractors import Distractors, Mixing
from astra.training.episodes import Case, Episode, Limits, play_cases
from astra.training.filling import Fill, Filler, Filling, FillingExhausted, Play, Scored, has_spread
from astra.training.imitation import LossInvalid, Schedule, imitate
from astra.training.policy import load_policy, save_policy
from astra.training.reinforcement import Practice, Reinforcing, reinforce
from astra.training.rollouts import HFEngine, Sampling


class Params(Section):
    reward: str = Field(description=f"One of {', '.join(REWARDS)} (paper: f1).")
    limits: Limits
    distractors: Mixing
    filling: Filling
    grpo: Reinforcing
    rollouts_every: int = Field(ge=1, description="Updates between those whose rollouts are kept.")


CONTRACT = Contract(
    name="rl",
    reads={
        "model": "models/sft",
        "arenas": "data/merge/arenas.jsonl",
        "rows": "data/sft/train.parquet",
        "decontamination": "data/sft/decontamination.json",
    },
    writes={"model": "models/rl", "control": "models/control", "rollouts": "data/rl/rollouts.jsonl"},
    params={"seed": int, "rl": Params, "sft.schedule": Schedule, "policy.threads": int},
    plots=("plots/rl.csv",),
)

FORWARD, UPDATE = 2, 6  # floating point operations a parameter and token: a forward pass, a forward and a backward


def stream(arenas: Sequence[Arena], distractors: Distractors, seed: int) -> Iterator[Case]:
    """Arenas in shuffled rounds without end, each time with other distractors and another order of tools."""
    turn = 0
    while True:
        rng = random.Random(f"{seed}:stream:{turn}")
        for arena in rng.sample(list(arenas), len(arenas)):
            tools = [*arena.tools, *distractors.draw(arena.tools, f"{arena.id}:{turn}")]
            rng.shuffle(tools)
            yield Case(arena, tuple(tools))
        turn += 1


def score(episode: Episode, reward: Reward) -> Scored:
    return Scored(episode, reward(episode.solved, episode.n_required, episode.n_calls, episode.answer_correct))


def to_rollout(one: Scored, update: int, sample: int) -> Rollout:
    episode = one.episode
    facts = (episode.solved, episode.n_required, episode.n_calls, episode.answer_correct)
    return Rollout(
        arena_id=episode.case.arena.id,
        update=update,
        sample=sample,
        messages=episode.messages,
        solved=episode.solved,
        n_required=episode.n_required,
        n_calls=episode.n_calls,
        reward=one.reward,
        recall=recall(*facts),
        precision=precision(*facts),
        answer_correct=episode.answer_correct,
        stop=episode.stop,
    )


def curve(practice: Practice, group: int) -> list[dict[str, float]]:
    """What the update sampled, one row an update, for dvc plots."""
    rows = []
    for fill, log in zip(practice.fills, practice.log, strict=True):
        episodes = [one.episode for one in fill.episodes]
        facts = [(one.solved, one.n_required, one.n_calls, one.answer_correct) for one in episodes]
        rewards = [one.reward for one in fill.episodes]
        groups = [rewards[start : start + group] for start in range(0, len(rewards), group)]
        rows.append({
            "update": fill.update,
            "reward": fmean(rewards),
            "recall": fmean(recall(*one) for one in facts),
            "precision": fmean(precision(*one) for one in facts),
            "answer": fmean(one.answer_correct for one in episodes),
            "calls": fmean(one.n_calls for one in episodes),
            "zero_variance": fmean(not has_spread(one, 0.0) for one in groups),
            "spread": fmean(pstdev(one) for one in groups),
            "rounds": fill.rounds,
            "waiting": fill.waiting,
            "loss": log["loss"],
            "entropy": log.get("entropy", 0.0),
        })  # fmt: skip
    return [{key: round(value, 6) for key, value in row.items()} for row in rows]


def control_rows(rows: pd.DataFrame, n_tokens: float, seed: int) -> list[Encoded]:
    """Shuffled SFT rows up to that many tokens, going round as often as needed."""
    found: list[Encoded] = []
    total = 0
    rng = random.Random(f"{seed}:control")
    while total < n_tokens:
        for place in rng.sample(range(len(rows)), len(rows)):
            row = rows.iloc[place]
            found.append(Encoded([int(token) for token in row["input_ids"]], [int(flag) for flag in row["mask"]]))
            total += len(found[-1].ids)
            if total >= n_tokens:
                break
    return found


def compute_in_rows(fills: Sequence[Fill], practice: Practice) -> float:
    """RL's compute as tokens of SFT: sampling is a forward pass, an update is a forward and a backward pass."""
    sampled = sum(len(one.episode.prompt) + len(one.episode.played.ids) for fill in fills for one in fill.episodes)
    return (FORWARD * sampled + UPDATE * practice.updated_tokens) / UPDATE


def practise(run: Run, params: Params, arenas: Sequence[Arena], sandbox: Sandbox, seed: int) -> Practice:
    """Train models/rl; what was done."""
    folder = run.path("model")
    chat = Chat.load(CONTRACT.reads["model"])
    model, replica = load_policy(CONTRACT.reads["model"]), load_policy(CONTRACT.reads["model"])
    replica.eval()
    distractors = Distractors([tool for arena in arenas for tool in arena.tools], params.distractors, seed)
    filler = Filler(stream(arenas, distractors, seed), params.grpo.groups, params.grpo.group, params.filling)
    engine = HFEngine(replica, chat.end, chat.pad)
    reward = REWARDS[params.reward]
    calls = iter(range(1_000_000_000))

    def play(update: int) -> Play:
        def plays(cases: Sequence[Case]) -> list[Scored]:
            draw = random.Random(f"{seed}:rollouts:{next(calls)}").getrandbits(62)
            limits = params.limits
            sampling = Sampling(params.grpo.temperature, limits.max_new_tokens, limits.max_response_tokens, draw)
            episodes = play_cases(engine, chat, cases, sampling, sandbox, limits.max_calls)
            return [score(episode, reward) for episode in episodes]

        return plays

    with tempfile.TemporaryDirectory() as scratch:
        practice = reinforce(
            model, replica, chat, filler, play, params.grpo, params.limits.max_response_tokens, Path(scratch), seed
        )
    save_policy(model, chat, folder)
    run.metrics["distractors"] = dict(sorted(distractors.drawn.items()))
    return practice


def train_control(run: Run, schedule: Schedule, n_tokens: float, seed: int) -> int:
    """SFT continued for that many tokens; the number of rows."""
    chat = Chat.load(CONTRACT.reads["model"])
    model = load_policy(CONTRACT.reads["model"])
    rows = control_rows(pd.read_parquet(run.path("rows")), n_tokens, seed)
    once = schedule.model_copy(update={"epochs": 1.0, "short_first": 0.0})
    try:
        with tempfile.TemporaryDirectory() as scratch:
            imitate(model, chat, rows, once, Path(scratch), seed + 1)
    except LossInvalid as error:
        raise StageError(f"models/control: {error}") from None
    save_policy(model, chat, run.path("control"))
    return len(rows)


def summary(rows: Sequence[dict[str, float]], practice: Practice) -> dict[str, Any]:
    last = rows[-max(1, len(rows) // 5) :]
    return {
        "updates": len(rows),
        "groups_sampled": sum(fill.sampled for fill in practice.fills),
        "groups_without_spread": sum(fill.without_spread for fill in practice.fills),
        "groups_padded": sum(fill.padded for fill in practice.fills),
        "groups_expired": sum(fill.expired for fill in practice.fills),
        "mean_age": round(fmean(age for fill in practice.fills for age in fill.ages), 4),
        "first_reward": round(rows[0]["reward"], 4),
        **{
            f"last_{key}": round(fmean(row[key] for row in last), 4)
            for key in ("reward", "recall", "precision", "calls")
        },
    }


def main() -> None:
    with Run(CONTRACT) as run:
        params: Params = run.params["rl"]
        seed = run.params["seed"]
        if params.reward not in REWARDS:
            raise StageError(f"params.yaml: rl.reward: {params.reward!r}, rewards are: {', '.join(REWARDS)}")
        if (params.grpo.groups * params.grpo.group) % params.grpo.micro_batch:
            raise StageError("params.yaml: rl.grpo.micro_batch must divide rl.grpo.groups times rl.grpo.group")
        run.need_folders("model")
        report = read_report(run.path("decontamination"))
        if report is None:
            raise StageError(
                f"{run.path('decontamination')}: no such file. Run the stage that writes it: dvc repro sft"
            )
        like_a_benchmark = report.worst.keys()
        training = [arena for arena in run.read("arenas", Arena) if arena.split == "train"]
        arenas = [arena for arena in training if arena.id not in like_a_benchmark]
        run.metrics["arenas"] = {"used": len(arenas), "like_a_benchmark": len(training) - len(arenas)}
        if not arenas:
            raise StageError("data/merge/arenas.jsonl holds no training arenas; see data/merge/rejects.jsonl")
        torch.manual_seed(seed)
        torch.set_num_threads(run.params["policy.threads"])
        try:
            with open_sandbox() as sandbox:
                practice = practise(run, params, arenas, sandbox, seed)
        except FillingExhausted as error:
            raise StageError(str(error)) from None
        except EnvironmentUnavailable as error:
            raise StageError(f"{error}. No reward was given for it; when it works again: dvc repro rl") from None
        tokens = compute_in_rows(practice.fills, practice)
        run.metrics["control_rows"] = train_control(run, run.params["sft.schedule"], tokens, seed)
        rows = curve(practice, params.grpo.group)
        plot = Path(CONTRACT.plots[0])
        plot.parent.mkdir(exist_ok=True)
        pd.DataFrame(rows).to_csv(plot, index=False)
        kept = [fill for fill in practice.fills if fill.update % params.rollouts_every == 0]
        rollouts = [
            to_rollout(one, fill.update, place % params.grpo.group)
            for fill in kept
            for place, one in enumerate(fill.episodes)
        ]
        run.n_in = run.n_out = run.write("rollouts", rollouts)
        run.metrics |= summary(rows, practice)
        run.usage = f"{sum(len(fill.episodes) for fill in practice.fills)} rollouts"


if __name__ == "__main__":
    main()
