"""RL: the policy practises in the training arenas, with GRPO on the F1 of solved sub-tasks (paper section 3.4).

models/sft, data/merge, data/sft/train.parquet -> models/rl, models/control, data/rl/rollouts.jsonl

Every update takes groups of rollouts whose rewards differ (adaptive batch filling); distractor tools of three
similarity bands are mixed in anew each time an arena comes up; tool code runs in the sandbox. ``models/control`` is the
control that the comparison needs: SFT continued on its own rows for the compute that RL used.

With ``rl.curriculum.mode`` difficulty, arenas that the policy passes sometimes come first and more often
(astra/training/curriculum.py); the file of pass rates is then one more input, and part of what decides the run.

A run that was killed goes on from its last checkpoint, which lies in the project's cache and holds the filler too
(astra/training/checkpoints.py). An episode in which the machinery failed is a reject, and no reward.

Departures: see ``astra/training/reinforcement.py``; the paper's batch of 256 and its 49,152 tokens are params.

    python -m stages.rl
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from pydantic import Field

from astra.chat import Chat
from astra.decontamination.report import read_report
from astra.records import Arena, Rollout, Section, Unavailable
from astra.rewards import REWARDS
from astra.sandbox import Sandbox, open_pool, open_sandbox
from astra.stage import Contract, Run, StageError, load_params, read_records
from astra.training.checkpoints import read_pickle, run_folder, write_pickle
from astra.training.control import compute_in_rows, train_control
from astra.training.curriculum import ByDifficulty, Curriculum
from astra.training.curves import curve, curve_row, difficulties, summary, to_rollout
from astra.training.difficulty import check_suits, pass_rates, read_difficulties
from astra.training.distractors import Distractors, Mixing
from astra.training.engines import EngineName, Serving, open_engine
from astra.training.episodes import Case, Limits, SharedSandbox, play_cases
from astra.training.filling import (
    Fill,
    Filler,
    Filling,
    FillingExhausted,
    Play,
    Scored,
    Unfinished,
    passed,
    score,
)
from astra.training.imitation import LossInvalid, Schedule
from astra.training.launch import Launcher, LaunchFailed, is_main, launched
from astra.training.provenance import describe
from astra.training.reinforcement import Player, Practice, Reinforcing, reinforce
from astra.training.rollouts import Engine, Sampling
from astra.training.stream import Stream
from astra.training.weights import save_trained


class Params(Section):
    start: Literal["sft", "base"] = Field(description="The model that practises; base is the ablation RL only.")
    control: bool = Field(description="Train models/control too, SFT continued for RL's compute; else it stays empty.")
    reward: str = Field(description=f"One of {', '.join(REWARDS)} (paper: f1).")
    unfinished: Unfinished = Field(
        description="Reward of an episode that was cut: zero, or scored by its calls. It is not trained on itself, but "
        "counts in its group; scored, finished episodes gain nothing by ending, and more and more are cut."
    )
    engine: EngineName = Field(description="What samples: hf, a replica in this process, or vllm.")
    vllm: Serving
    sandboxes: int = Field(ge=1, description="Sandboxes that run tools side by side; 1 with engine hf on two cores.")
    limits: Limits
    distractors: Mixing
    curriculum: Curriculum
    filling: Filling
    grpo: Reinforcing
    rollouts_every: int = Field(ge=1, description="Updates between those whose rollouts are kept.")


CONTRACT = Contract(
    name="rl",
    reads={
        "base": "models/base",
        "model": "models/sft",
        "arenas": "data/merge/arenas.jsonl",
        "rows": "data/sft/train.parquet",
        "decontamination": "data/sft/decontamination.json",
        "launch": "launch",
    },
    writes={
        "model": "models/rl",
        "control": "models/control",
        "rollouts": "data/rl/rollouts.jsonl",
        "difficulty": "data/rl/difficulty.jsonl",
    },
    params={"seed": int, "rl": Params, "sft.schedule": Schedule, "policy.threads": int, "launcher.rl": Launcher},
    plots=("plots/rl.csv",),
)


class Notes(NamedTuple):
    """What rank 0 leaves for the stage, beside the weights in ``model`` and the kept rollouts."""

    practice: Practice
    drawn: dict[str, int]


KEPT, NOTES = "rollouts-{:06d}.pickle", "notes.pickle"  # the notes are written last


def practise(folder: Path) -> None:
    """Train in this process, one rank or the only one; rank 0 leaves weights, notes and rollouts in ``folder``."""
    found = load_params(CONTRACT.params)
    params, seed = found["rl"], found["seed"]
    torch.manual_seed(seed)
    start = start_of(params)
    chat = Chat.load(start)
    engine = open_engine(params.engine, params.vllm, start, chat)
    arenas = usable(read_report(Path(CONTRACT.reads["decontamination"])))
    distractors = Distractors([tool for arena in arenas for tool in arena.tools], params.distractors, seed)
    stream = open_stream(params.curriculum, arenas, distractors, seed)
    filler = Filler(stream, params.grpo.groups, params.grpo.group, params.filling)
    with sandboxes(params.sandboxes) as sandbox:
        note = heeding(noting(params, folder), stream)
        player = Player(filler, playing(params, engine, chat, sandbox, seed), note, Practice())
        trainer = reinforce(
            start,
            engine,
            chat,
            player,
            params.grpo,
            params.limits.max_response_tokens,
            folder,
            seed,
            params.vllm.max_gap,
        )
    save_trained(trainer, folder / "model", str(start))  # collective
    if is_main():
        chat.save(folder / "model")
        write_pickle(folder / NOTES, Notes(player.practice, dict(sorted(distractors.drawn.items()))))


def start_of(params: Params) -> Path:
    """The folder of the model that practises."""
    return Path(CONTRACT.reads["base" if params.start == "base" else "model"])


def open_stream(how: Curriculum, arenas: Sequence[Arena], distractors: Distractors, seed: int) -> Stream:
    """The prompt stream that params ask for; ``rates_file`` has seen that the file suits."""
    if how.mode == "none":
        return Stream(arenas, distractors, seed)
    return ByDifficulty(arenas, distractors, seed, pass_rates(read_difficulties(how)))


def usable(report: Any) -> list[Arena]:
    """Training arenas that are not too like a benchmark's cases."""
    arenas = read_records(CONTRACT.reads["arenas"], Arena)
    return [one for one in arenas if one.split == "train" and one.id not in report.worst]


@contextmanager
def sandboxes(count: int) -> Iterator[Sandbox]:
    """On rank 0 as many sandboxes as wanted, behind one; the other ranks play nothing."""
    if count == 1 or not is_main():
        with open_sandbox() as worker:
            yield worker
        return
    with open_pool(workers=count) as pool:
        yield SharedSandbox(pool.workers)


def playing(params: Params, engine: Engine, chat: Chat, sandbox: Sandbox, seed: int) -> Any:
    """``play(update, rounds)`` of a Player: every sampling has a seed of its own."""
    reward, limits = REWARDS[params.reward], params.limits

    def play(update: int, rounds: int) -> Play:
        numbers = iter(range(rounds, 1_000_000_000))

        def plays(cases: Sequence[Case]) -> list[Scored]:
            draw = random.Random(f"{seed}:rollouts:{next(numbers)}").getrandbits(62)
            sampling = Sampling(params.grpo.temperature, limits.max_new_tokens, limits.max_response_tokens, draw)
            return [
                score(episode, reward, params.unfinished)
                for episode in play_cases(engine, chat, cases, sampling, sandbox, limits.max_calls)
            ]

        return plays

    return play


def noting(params: Params, folder: Path) -> Any:
    """``note`` of a Player: a row for the curve, and the update's episodes in a file where they are to be kept."""

    def note(fill: Fill) -> dict[str, float]:
        if fill.update % params.rollouts_every == 0:
            write_pickle(folder / KEPT.format(fill.update), fill.episodes)
        groups = [fill.episodes[at : at + params.grpo.group] for at in range(0, len(fill.episodes), params.grpo.group)]
        # a group's prompt is read once
        fill.sampled_tokens = sum(
            len(group[0].episode.prompt) + sum(len(one.episode.played.ids) for one in group) for group in groups
        )
        fill.passed = [one for group in groups if (one := passed(group)) is not None]
        return curve_row(fill, params.grpo.group)

    return note


def heeding(note: Callable[[Fill], dict[str, float]], stream: Stream) -> Callable[[Fill], dict[str, float]]:
    """``note``, and the stream learns what became of the update's groups."""

    def heed(fill: Fill) -> dict[str, float]:
        row = note(fill)
        stream.learn(fill.passed)
        return row

    return heed


def kept_rollouts(run: Run, params: Params, folder: Path, n_updates: int) -> list[Rollout]:
    """The rollouts of every so many updates; an episode that the machinery lost is a reject."""
    found = []
    for update in range(0, n_updates, params.rollouts_every):
        for place, one in enumerate(read_pickle(folder / KEPT.format(update))):
            run.n_in += 1
            if one.reward is None:
                run.reject(one.episode.case.arena.id, "machinery_failed", one.episode.played.failure)
            else:
                found.append(to_rollout(one, update, place % params.grpo.group))
    return found


def check(run: Run, params: Params) -> None:
    """Raises StageError for what can be seen before anything is sampled."""
    if params.reward not in REWARDS:
        raise StageError(f"params.yaml: rl.reward: {params.reward!r}, rewards are: {', '.join(REWARDS)}")
    if (params.grpo.groups * params.grpo.group) % params.grpo.micro_batch:
        raise StageError("params.yaml: rl.grpo.micro_batch must divide rl.grpo.groups times rl.grpo.group")
    if params.grpo.warmup_steps >= params.grpo.updates:
        raise StageError(
            f"params.yaml: rl.grpo.warmup_steps: {params.grpo.warmup_steps} of {params.grpo.updates} updates, so the "
            f"learning rate would never be reached; take fewer, or more rl.grpo.updates"
        )
    run.need_folders("base", "model")
    if read_report(run.path("decontamination")) is None:
        raise StageError(f"{run.path('decontamination')}: no such file. Run the stage that writes it: dvc repro sft")


def rates_file(run: Run, how: Curriculum, start: Path, arenas: set[str]) -> list[Path]:
    """The file of pass rates that decides the run, if one does. Raises StageError where it does not suit."""
    if how.mode == "none":
        return []
    found = read_difficulties(how)
    check_suits(how, found, start, arenas)
    rates = pass_rates(found)
    flat = sum(rates.get(arena) in (0, 1) for arena in arenas)
    run.metrics["curriculum"] = {"known": len(arenas & set(rates)), "unknown": len(arenas - set(rates)), "flat": flat}
    assert how.file is not None
    return [Path(how.file)]


def training_arenas(run: Run) -> set[str]:
    """The arenas to practise in; those too like a benchmark's cases are counted. Raises StageError for none."""
    report = read_report(run.path("decontamination"))
    assert report is not None
    training = {arena.id for arena in run.read("arenas", Arena) if arena.split == "train"}
    used = training - set(report.worst)
    run.metrics["arenas"] = {"used": len(used), "like_a_benchmark": len(training) - len(used)}
    if not used:
        raise StageError("data/merge/arenas.jsonl holds no training arenas; see data/merge/rejects.jsonl")
    return used


def trained(run: Run, params: Params, folder: Path) -> Notes:
    """Train, going on where a killed run was. Raises StageError, and Unavailable where the machinery failed."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not (folder / NOTES).is_file():  # killed when only the control was missing
            launched(run.params["launcher.rl"], "stages.rl:practise", folder, run.params["policy.threads"])
    except (FillingExhausted, LaunchFailed) as error:
        raise StageError(str(error)) from None
    except Unavailable as error:
        more = "No reward was given for it; to go on from the last checkpoint: dvc repro rl"
        raise type(error)(f"{error}. {more}") from None
    if torch.distributed.is_initialized():  # by colocated vLLM, in this process
        torch.distributed.destroy_process_group()
    notes: Notes = read_pickle(folder / NOTES)
    if notes.practice.rows_drifted:
        raise StageError(
            f"{notes.practice.rows_drifted} of {notes.practice.rows_trained} rows were trained on ids that nobody "
            f"sampled, so the model is not kept. TRL changed them between rollout and loss: is it the pinned version?"
        )
    return notes


def follow_up(run: Run, params: Params, practice: Practice, seed: int) -> int:
    """The control's number of rows; without one its folder says why."""
    sampled = sum(fill.sampled_tokens for fill in practice.fills)
    if not params.control:
        run.path("control").mkdir(parents=True, exist_ok=True)
        (run.path("control") / "README.md").write_text("Not trained: rl.control is false.\n")
        return 0
    tokens = compute_in_rows(sampled, practice.updated_tokens)
    rows, schedule = pd.read_parquet(run.path("rows")), run.params["sft.schedule"]
    launcher, threads = run.params["launcher.rl"], run.params["policy.threads"]
    try:
        start = Path(CONTRACT.reads["model"])
        return train_control(start, rows, schedule, tokens, seed, launcher, run.path("control"), threads)
    except (LossInvalid, LaunchFailed) as error:
        raise StageError(f"models/control: {error}") from None


def main() -> None:
    with Run(CONTRACT) as run:
        params: Params = run.params["rl"]
        seed = run.params["seed"]
        check(run, params)
        arenas = training_arenas(run)
        torch.set_num_threads(run.params["policy.threads"])
        start = start_of(params)
        rated = rates_file(run, params.curriculum, start, arenas)
        decides = params.model_dump(exclude={"rollouts_every": True, "control": True, "grpo": {"checkpoint_every"}})
        inputs = [start, *(run.path(word) for word in ("arenas", "decontamination")), *rated]
        folder = run_folder("rl", {"seed": seed, "rl": decides}, inputs)
        notes = trained(run, params, folder)
        practice = notes.practice
        shutil.copytree(folder / "model", run.path("model"), dirs_exist_ok=True)
        rows = [{key: round(value, 6) for key, value in row.items()} for row in curve(practice)]
        figures = summary(rows, practice)
        run.metrics |= {"distractors": notes.drawn, "control_rows": follow_up(run, params, practice, seed)} | figures
        describe(run.path("model"), "rl", str(start), run.params, map(str, inputs), figures)
        plot = Path(CONTRACT.plots[0])
        plot.parent.mkdir(exist_ok=True)
        pd.DataFrame(rows).to_csv(plot, index=False)
        run.n_out = run.write("rollouts", kept_rollouts(run, params, folder, len(practice.fills)))
        run.write("difficulty", difficulties(practice))
        run.usage = f"{sum(fill.sampled for fill in practice.fills) * params.grpo.group} rollouts"
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
