"""Time to fill batches: adaptive batch filling beside plain batches, at equal usable groups.

A group is usable when its rewards spread by more than ``rl.filling.delta``. With filling on, the filler samples until
each of a few updates has all its groups; what is left over waits for the next. With filling off, plain batches are
sampled until as many usable groups have been seen. Same policy, which is not trained in between, same cases in the same
order, and the same seed for the same batch: both see the same rollouts for as long as both sample, so their rounds can
be compared too, and differ only by usable groups that the filler had left over at the end, dropped or let expire. What
filling saves is not rollouts but updates: off makes one of every plain batch, however few usable groups are in it.

Run alternately in one process on one torch thread, by the seconds of its CPU: what is waited for is the model, since
tools answer from memory. Needs models/sft and data/merge (dvc repro sft).

    python -m bench.filling
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch

from astra.chat import Chat
from astra.records import Arena, Section
from astra.rewards import REWARDS
from astra.sandbox import Sandbox, open_sandbox
from astra.stage import load_params, read_records
from astra.training.distractors import Distractors, Mixing
from astra.training.engines import HFEngine
from astra.training.episodes import Case, Limits, play_cases
from astra.training.filling import Filler, Filling, Scored, counts, score
from astra.training.policy import load_policy
from astra.training.reinforcement import Reinforcing
from astra.training.rollouts import Sampling
from astra.training.stream import Stream

POLICY, ARENAS = "models/sft", "data/merge/arenas.jsonl"
GROUPS, UPDATES, RUNS = 4, 4, 2


class Setting(NamedTuple):
    """What both ways get."""

    chat: Chat
    engine: HFEngine
    arenas: list[Arena]
    distractors: Distractors
    limits: Limits
    grpo: Reinforcing
    filling: Filling
    sandbox: Sandbox
    seed: int


class Filled(NamedTuple):
    """What one way took."""

    seconds: float
    usable: int
    batches: int  # updates that would be made
    rounds: int  # samplings of GROUPS groups
    lost: int  # usable groups that were dropped or grew too old
    padded: int
    waiting: int  # usable groups that are left over at the end


def stream_of(setting: Setting, run: int) -> Stream:
    return Stream(setting.arenas, setting.distractors, setting.seed + run)


def plays_of(setting: Setting, run: int) -> Callable[[Sequence[Case]], list[Scored]]:
    """Plays cases; the n-th batch of a run has the n-th seed, whoever asks."""
    rounds = iter(range(1_000_000))
    limits = setting.limits

    def plays(cases: Sequence[Case]) -> list[Scored]:
        seed = 1_000_000 * run + next(rounds)
        sampling = Sampling(setting.grpo.temperature, limits.max_new_tokens, limits.max_response_tokens, seed)
        episodes = play_cases(setting.engine, setting.chat, cases, sampling, setting.sandbox, limits.max_calls)
        return [score(one, REWARDS["f1"]) for one in episodes]

    return plays


def filled(setting: Setting, run: int) -> Filled:
    """UPDATES batches by the filler."""
    start = time.process_time()
    filler = Filler(stream_of(setting, run), GROUPS, setting.grpo.group, setting.filling)
    plays = plays_of(setting, run)
    done = [filler.fill(update, plays) for update in range(UPDATES)]
    seconds = time.process_time() - start
    reports = [report for _, report in done]
    return Filled(
        seconds=seconds,
        usable=sum(one.counts for chosen, _ in done for one in chosen),
        batches=UPDATES,
        rounds=sum(one.rounds for one in reports),
        lost=sum(one.expired + one.dropped for one in reports),
        padded=sum(one.padded for one in reports),
        waiting=len(filler.waiting),
    )


def plain(setting: Setting, run: int, wanted: int) -> Filled:
    """Plain batches, until as many usable groups were seen."""
    start = time.process_time()
    off = setting.filling.model_copy(update={"enabled": False})
    filler = Filler(stream_of(setting, run), GROUPS, setting.grpo.group, off)
    plays = plays_of(setting, run)
    usable = batches = 0
    while usable < wanted:
        chosen, _ = filler.fill(batches, plays)
        usable += sum(counts(one.group, setting.filling.delta) for one in chosen)
        batches += 1
    return Filled(time.process_time() - start, usable, batches, batches, 0, 0, 0)


def setting_of(arenas: Sequence[Arena], sandbox: Sandbox) -> Setting:
    """The run's params."""
    kinds: dict[str, type[Section]] = {
        "rl.limits": Limits, "rl.grpo": Reinforcing, "rl.distractors": Mixing, "rl.filling": Filling
    }  # fmt: skip
    found: dict[str, Any] = load_params(kinds)
    seed = load_params({"seed": int})["seed"]
    training = [one for one in arenas if one.split == "train"]
    chat = Chat.load(POLICY)
    return Setting(
        chat=chat,
        engine=HFEngine(load_policy(POLICY).eval(), chat.end, chat.pad),
        arenas=training,
        distractors=Distractors([tool for one in training for tool in one.tools], found["rl.distractors"], seed),
        limits=found["rl.limits"],
        grpo=found["rl.grpo"],
        filling=found["rl.filling"],
        sandbox=sandbox,
        seed=seed,
    )


def figures(ways: Sequence[Filled]) -> dict[str, Any]:
    """One way's figures over the runs."""
    names = ("usable", "batches", "rounds", "lost", "padded", "waiting")
    seconds = sum(one.seconds for one in ways)
    usable = sum(one.usable for one in ways)
    return {
        **{name: sum(getattr(one, name) for one in ways) for name in names},
        "seconds_per_usable_group": round(seconds / usable, 3),
        "updates_per_full_batch": round(sum(one.batches for one in ways) / (usable / GROUPS), 3),
        "seconds": round(seconds, 2),
    }


def main() -> None:
    torch.set_num_threads(1)
    on, off = [], []
    with open_sandbox() as sandbox:
        setting = setting_of(list(read_records(ARENAS, Arena)), sandbox)
        plays_of(setting, RUNS)([next(stream_of(setting, RUNS)) for _ in range(GROUPS)])  # warms up
        for run in range(RUNS):
            on.append(filled(setting, run))
            off.append(plain(setting, run, on[-1].usable))
    ratios = [one.seconds / two.seconds for one, two in zip(on, off, strict=True)]
    found = {"on": figures(on), "off": figures(off), "on_to_off_seconds": [round(one, 3) for one in ratios]}
    print(json.dumps(found | {"median": round(median(ratios), 3), "load": os.getloadavg()[0]}, indent=1))


if __name__ == "__main__":
    main()
