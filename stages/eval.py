"""Eval: the policies on arenas they have never seen, each number with n and a 95 % interval.

models/base, sft, rl, control; data/merge -> data/eval/samples.jsonl, metrics/eval.json

Three held-out splits, reported apart: unseen facts and compositions (``heldout``), entities and tools that no
training text holds; and the refusal set, held-out arenas in which a needed tool is not there. All models meet the same
cases with the same distractors, greedily and sampled; differences are paired by case.

Departures: the paper's public benchmarks come with a later release; its arenas are not published.

    python -m stages.eval
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from pydantic import Field

from astra.chat import Chat
from astra.environments import EnvironmentUnavailable
from astra.records import Arena, Sample, Section
from astra.rewards import f1, precision, recall
from astra.sandbox import Sandbox, open_sandbox
from astra.stage import Contract, Run, StageError
from astra.training.distractors import Distractors, Mixing
from astra.training.engines import HFEngine
from astra.training.episodes import Case, Episode, Limits, absent_of, play_cases
from astra.training.estimates import estimate, paired
from astra.training.policy import load_policy
from astra.training.rollouts import Sampling


class Params(Section):
    workers: int = Field(ge=1, description="Processes, each with one model at a time; results do not depend on it.")
    batch: int = Field(ge=1, description="Episodes played side by side.")
    temperature: float = Field(gt=0, description="Of the sampled mode; greedy is always measured too.")
    limits: Limits
    distractors: Mixing = Field(description="Tools mixed into every case, the same for all models.")


MODELS = ("base", "sft", "rl", "control")
PAIRS = (("sft", "base"), ("rl", "sft"), ("rl", "control"))
SPLITS = ("heldout", "heldout_entities", "heldout_tools")
REFUSAL = "refusal"
VARIANTS = ("missing_tool", "missing_value")  # arenas that cannot be done: refusing, or asking, is the paid end
COMPARED = {
    **dict.fromkeys(SPLITS, ("f1", "answer")),
    REFUSAL: ("refused",),
    **{f"variant_{kind}": ("honest",) for kind in VARIANTS},
}
Mode = Literal["greedy", "sampled"]

CONTRACT = Contract(
    name="eval",
    reads={**{name: f"models/{name}" for name in MODELS}, "arenas": "data/merge/arenas.jsonl"},
    writes={"samples": "data/eval/samples.jsonl"},
    params={"seed": int, "eval": Params, "policy.threads": int},
    plots=("plots/eval.csv", "plots/f1.csv"),
)


class Benchmark(NamedTuple):
    name: str
    cases: tuple[Case, ...]


def benchmarks(arenas: Sequence[Arena], mixing: Mixing, seed: int) -> list[Benchmark]:
    """The held-out splits and the refusal set; each case's tools are fixed here, once for all models."""
    train = [tool for arena in arenas if arena.split == "train" for tool in arena.tools]
    own = [tool for arena in arenas if arena.split != "train" for tool in arena.tools]
    distractors = Distractors([*train, *own], mixing, seed)
    found = []
    for split in SPLITS:
        chosen = [arena for arena in arenas if arena.split == split and arena.variant is None]
        found.append(Benchmark(split, tuple(set_up(arena, distractors, None, seed) for arena in chosen)))
    refusals = []
    for arena in (one for one in arenas if one.split == "heldout" and one.variant is None):
        missing = random.Random(f"{seed}:missing:{arena.id}").choice(arena.probes).tool
        refusals.append(set_up(arena, distractors, missing, seed))
    variants = [arena for arena in arenas if arena.split != "train" and arena.variant is not None]
    honest = [
        Benchmark(f"variant_{kind}", tuple(set_up(arena, distractors, None, seed) for arena in some))
        for kind in VARIANTS
        if (some := [one for one in variants if one.variant is not None and one.variant.kind == kind])
    ]
    return [*found, Benchmark(REFUSAL, tuple(refusals)), *honest]


def set_up(arena: Arena, distractors: Distractors, missing: str | None, seed: int) -> Case:
    """The arena's tools, but a missing one, among its distractors, in a seeded order."""
    tools = [tool for tool in arena.tools if tool.spec.name != missing]
    tools += distractors.draw(arena.tools, f"eval:{arena.id}", absent_of(arena))
    random.Random(f"{seed}:order:{arena.id}").shuffle(tools)
    return Case(arena, tuple(tools), missing)


def measures(episode: Episode) -> dict[str, float]:
    """What is measured of one episode; a refusal case is about refusing only, a variant about its honest end."""
    if episode.case.arena.variant is not None:
        return {"honest": float(episode.honest), "f1": f1(*episode.tally), "calls": float(episode.n_calls)}
    if episode.case.missing is not None:
        return {"refused": float(episode.refused), "calls": float(episode.n_calls)}
    tally = episode.tally
    return {
        "f1": f1(*tally),
        "recall": recall(*tally),
        "precision": precision(*tally),
        "calls": float(episode.n_calls),
        "answer": float(tally.answer_correct),
        "refused": float(episode.refused),
    }


def play_all(run: Run, sets: Sequence[Benchmark], params: Params, threads: int, seed: int) -> list[Sample]:
    """The samples of all models, in the order of MODELS. Raises EnvironmentUnavailable."""
    alone = partial(play_alone, sets=sets, params=params, threads=threads, seed=seed)
    if params.workers == 1:
        played = [alone(model) for model in run.progress(MODELS, total=len(MODELS), unit="model")]
    else:
        with ProcessPoolExecutor(params.workers, get_context("spawn")) as pool:
            played = list(run.progress(pool.map(alone, MODELS), total=len(MODELS), unit="model"))
    return [sample for samples in played for sample in samples]


def play_alone(model: str, sets: Sequence[Benchmark], params: Params, threads: int, seed: int) -> list[Sample]:
    """One model's samples, with a sandbox of its own."""
    torch.set_num_threads(threads)
    with open_sandbox() as sandbox:
        return play(model, sets, params, sandbox, seed)


def play(model: str, sets: Sequence[Benchmark], params: Params, sandbox: Sandbox, seed: int) -> list[Sample]:
    """One sample per case and mode, in the order of the benchmarks."""
    folder = CONTRACT.reads[model]
    chat, policy = Chat.load(folder), load_policy(folder)
    policy.eval().to("cuda" if torch.cuda.is_available() else "cpu")
    engine = HFEngine(policy, chat.end, chat.pad)
    samples = []
    modes: tuple[tuple[Mode, float], ...] = (("greedy", 0.0), ("sampled", params.temperature))
    for mode, temperature in modes:
        for one in sets:
            for start in range(0, len(one.cases), params.batch):
                some = one.cases[start : start + params.batch]
                draw = random.Random(f"{seed}:{one.name}:{mode}:{start}").getrandbits(62)
                limits = params.limits
                sampling = Sampling(temperature, limits.max_new_tokens, limits.max_response_tokens, draw)
                for episode in play_cases(engine, chat, some, sampling, sandbox, limits.max_calls):
                    if episode.failed:
                        raise EnvironmentUnavailable(episode.played.failure)
                    samples.append(
                        Sample(model=model, benchmark=one.name, case=episode.case.arena.id, trial=0, mode=mode,
                               scores=measures(episode), messages=episode.messages)
                    )  # fmt: skip
    return samples


def table(samples: Sequence[Sample]) -> dict[str, Any]:
    """Model -> benchmark -> mode -> measure -> mean, low, high, n; and the paired differences of f1."""
    values: dict[tuple[str, str, str, str], dict[str, float]] = defaultdict(dict)
    for sample in samples:
        for measure, value in sample.scores.items():
            values[sample.model, sample.benchmark, sample.mode, measure][sample.case] = value
    found: dict[str, Any] = {}
    for (model, benchmark, mode, measure), by_case in values.items():
        place = found.setdefault(model, {}).setdefault(benchmark, {}).setdefault(mode, {})
        place[measure] = estimate(list(by_case.values()))
    differences: dict[str, Any] = {}
    for first, second in PAIRS:
        for benchmark, measured in COMPARED.items():
            for mode in ("greedy", "sampled"):
                for measure in measured:
                    one, other = values[first, benchmark, mode, measure], values[second, benchmark, mode, measure]
                    if one and other:
                        place = differences.setdefault(f"{first}-{second}", {}).setdefault(benchmark, {})
                        place.setdefault(mode, {})[measure] = paired(one, other)
    return {"models": found, "paired": differences}


def bars(metrics: dict[str, Any]) -> pd.DataFrame:
    """One row a model, benchmark, mode and measure, for dvc plots."""
    rows = [
        {"model": model, "benchmark": benchmark, "mode": mode, "measure": measure, **value}
        for model, sets in metrics["models"].items()
        for benchmark, modes in sets.items()
        for mode, measured in modes.items()
        for measure, value in measured.items()
    ]
    return pd.DataFrame(rows)


def main() -> None:
    with Run(CONTRACT) as run:
        params: Params = run.params["eval"]
        seed = run.params["seed"]
        run.need_folders(*MODELS)
        arenas = run.read("arenas", Arena)
        sets = benchmarks(arenas, params.distractors, seed)
        empty = [one.name for one in sets if not one.cases]
        if empty:
            raise StageError(f"data/merge/arenas.jsonl holds no arenas for {', '.join(empty)}; see decompose.questions")
        try:
            samples = play_all(run, sets, params, run.params["policy.threads"], seed)
        except EnvironmentUnavailable as error:
            raise StageError(f"{error}. No case was scored for it; when it works again: dvc repro eval") from None
        run.n_in = run.n_out = run.write("samples", samples)
        metrics = table(samples)
        run.metrics |= metrics
        everything = bars(metrics)
        chart = everything[everything["measure"] == "f1"]
        chart = chart.assign(bar=chart["benchmark"] + ", " + chart["mode"] + ", " + chart["model"])
        Path(CONTRACT.plots[0]).parent.mkdir(exist_ok=True)
        everything.to_csv(CONTRACT.plots[0], index=False)
        chart[["bar", "mean", "low", "high", "n"]].to_csv(CONTRACT.plots[1], index=False)


if __name__ == "__main__":
    main()
