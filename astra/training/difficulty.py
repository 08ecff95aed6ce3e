"""How hard arenas are for a policy: the rate at which it passes each, of so many rollouts.

    python -m astra.training.difficulty [--model models/sft] [--arenas data/merge/arenas.jsonl] [--rollouts 4]
                                        [--out FILE] [--limit N]

Training arenas are played as rl plays them the first time that they come up: its limits, temperature, reward and
distractors from params.yaml, the same loop, the sandbox. The policy plays in this process (engine hf), so that the
weights whose hash stands in each record are the ones that played. Without --out the file is
data/difficulty/POLICY-kROLLOUTS.jsonl. Name it in ``rl.curriculum.file`` and keep it in git or DVC.

Departure: distractors are drawn from all training arenas; rl leaves out those that are too like a benchmark's cases.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError, model_validator

from astra.chat import Chat, ChatError
from astra.records import Arena, Difficulty, Unavailable, content_id
from astra.rewards import REWARDS
from astra.sandbox import open_sandbox
from astra.stage import StageError, load_params, read_records, write_records
from astra.training.curriculum import Curriculum
from astra.training.distractors import Distractors, Mixing
from astra.training.engines import Serving, open_engine
from astra.training.episodes import Case, Limits, play_cases
from astra.training.filling import Filling, Passed, Play, RolloutsLost, passed, score
from astra.training.provenance import digest
from astra.training.reinforcement import Reinforcing
from astra.training.rollouts import Sampling
from astra.training.stream import deal

KEY = "params.yaml: rl.curriculum.file"
REMEDY = "Measure it: python -m astra.training.difficulty; or set rl.curriculum.mode to none"
PARAMS: dict[str, type[Any]] = {
    "seed": int, "policy.threads": int, "rl.reward": str, "rl.limits": Limits, "rl.distractors": Mixing,
    "rl.filling": Filling, "rl.grpo": Reinforcing, "rl.vllm": Serving,
}  # fmt: skip


class PolicyDifficulty(Difficulty):
    """How often one policy, named by its weights, passed an arena before any practice."""

    policy: str = Field(description="Hash of the weights (``policy_id``).")

    @model_validator(mode="after")
    def _passes_at_most_all(self) -> PolicyDifficulty:
        if self.n_passed > self.n:
            raise ValueError(f"n_passed {self.n_passed} of n {self.n}")
        return self


def policy_id(folder: Path) -> str:
    """A policy's name: a hash of its weights and of nothing else in its folder."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise StageError(
            f"{folder}: holds no weights (*.safetensors). Run the stage that writes it: dvc repro {folder}"
        )
    return content_id("policy", *(part for file in weights for part in (file.name, digest(file))))


def difficulty(one: Passed, update: int) -> Difficulty:
    """As a record."""
    rate, reward = round(one.n_passed / one.n, 4), round(one.reward, 4)
    return Difficulty(
        arena_id=one.arena_id, update=update, n=one.n, n_passed=one.n_passed, pass_rate=rate, reward=reward
    )


def measure(
    cases: Sequence[Case], policy: str, rollouts: int, batch: int, plays: Callable[[str], Play], max_failed: float
) -> Iterator[PolicyDifficulty]:
    """One record a case that was played, ``batch`` cases at a time; ``plays(key)`` plays with a seed of that key.

    Raises RolloutsLost where the machinery lost more than that share of a batch's episodes.
    """
    for start in range(0, len(cases), batch):
        some = cases[start : start + batch]
        scored = plays(some[0].arena.id)([case for case in some for _ in range(rollouts)])
        lost = [one for one in scored if one.reward is None]
        if len(lost) > max_failed * len(scored):
            raise RolloutsLost(
                f"the machinery lost {len(lost)} of {len(scored)} episodes, more than rl.filling.max_failed "
                f"{max_failed}. It said: {lost[0].episode.played.failure}. Nothing was written"
            )
        for at in range(0, len(scored), rollouts):
            if (one := passed(scored[at : at + rollouts])) is not None:
                yield PolicyDifficulty(**difficulty(one, 0).model_dump(), policy=policy)


def read_difficulties(how: Curriculum) -> list[PolicyDifficulty]:
    """The records of the file that params name. Raises StageError where it is none."""
    if how.file is None:
        raise StageError(f"{KEY}: null, and rl.curriculum.mode difficulty needs a file of pass rates. {REMEDY}")
    found = []
    try:
        lines = Path(how.file).read_bytes().splitlines()
    except OSError as error:
        raise StageError(f"{KEY}: {how.file}: {error.strerror}. {REMEDY}") from None
    for number, line in enumerate(lines, 1):
        try:
            found.append(PolicyDifficulty.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise StageError(
                f"{KEY}: {how.file}:{number}: not a PolicyDifficulty: {where}: {first['msg']}. {REMEDY}"
            ) from None
    return found


def check_suits(how: Curriculum, found: Sequence[PolicyDifficulty], model: Path, arenas: Collection[str]) -> None:
    """Raises StageError where the rates are another policy's, or of none of these arenas."""
    policy = policy_id(model)
    others = sorted({one.policy for one in found} - {policy})
    if others:
        raise StageError(f"{KEY}: {how.file}: of {', '.join(others[:3])}, and {model} is {policy}. {REMEDY}")
    if not any(one.arena_id in arenas for one in found):
        raise StageError(f"{KEY}: {how.file}: its {len(found)} records are of none of the training arenas. {REMEDY}")


def pass_rates(found: Iterable[Difficulty]) -> dict[str, float]:
    """Passes per rollout of each arena, over all its records."""
    counts: dict[str, tuple[int, int]] = {}
    for one in found:
        n_passed, n = counts.get(one.arena_id, (0, 0))
        counts[one.arena_id] = n_passed + one.n_passed, n + one.n
    return {arena: n_passed / n for arena, (n_passed, n) in counts.items()}


def measured(model: Path, arenas: Sequence[Arena], rollouts: int, limit: int | None) -> list[PolicyDifficulty]:
    """The difficulty of the training arenas, or the first so many of them, by params.yaml."""
    params = load_params(PARAMS)
    seed, limits, how = params["seed"], params["rl.limits"], params["rl.grpo"]
    if params["rl.reward"] not in REWARDS:
        raise StageError(f"params.yaml: rl.reward: {params['rl.reward']!r}, rewards are: {', '.join(REWARDS)}")
    policy, reward = policy_id(model), REWARDS[params["rl.reward"]]
    torch.set_num_threads(params["policy.threads"])
    chat = Chat.load(str(model))
    engine = open_engine("hf", params["rl.vllm"], model, chat)
    distractors = Distractors([tool for arena in arenas for tool in arena.tools], params["rl.distractors"], seed)
    cases = [deal(arena, 0, distractors, seed) for arena in arenas[:limit]]
    with open_sandbox() as sandbox:

        def plays(key: str) -> Play:
            draw = random.Random(f"{seed}:difficulty:{key}").getrandbits(62)
            sampling = Sampling(how.temperature, limits.max_new_tokens, limits.max_response_tokens, draw)
            return lambda some: [
                score(one, reward) for one in play_cases(engine, chat, some, sampling, sandbox, limits.max_calls)
            ]

        return list(measure(cases, policy, rollouts, how.groups, plays, params["rl.filling"].max_failed))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m astra.training.difficulty", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--model", type=Path, default=Path("models/sft"))
    parser.add_argument("--arenas", type=Path, default=Path("data/merge/arenas.jsonl"))
    parser.add_argument("--rollouts", type=int, default=4, help="of each arena")
    parser.add_argument("--out", type=Path, help="else data/difficulty/POLICY-kROLLOUTS.jsonl")
    parser.add_argument("--limit", type=int, help="only the first so many training arenas")
    given = parser.parse_args(arguments)
    if given.rollouts < 1 or (given.limit is not None and given.limit < 1):
        parser.error("--rollouts and --limit are at least 1")
    try:
        arenas = [one for one in read_records(given.arenas, Arena) if one.split == "train"]
        if not arenas:
            raise StageError(
                f"{given.arenas}: holds no training arenas; why: {given.arenas.with_name('rejects.jsonl')}"
            )
        found = measured(given.model, arenas, given.rollouts, given.limit)
    except (StageError, ChatError, Unavailable) as error:
        print(f"difficulty: {error}", file=sys.stderr)
        return 3 if isinstance(error, Unavailable) else 2
    out = given.out or Path("data/difficulty") / f"{policy_id(given.model)}-k{given.rollouts}.jsonl"
    write_records(out, found)
    never, always = (sum(one.pass_rate == rate for one in found) for rate in (0, 1))
    between = len(found) - never - always
    print(f"difficulty: {len(found)} arenas: {never} never passed, {between} sometimes, {always} always: {out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
