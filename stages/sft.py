"""SFT: the policy imitates what scored well, with the loss on what it wrote itself (paper section 3.2.5).

data/trajectories, data/score, data/merge, data/bench_env -> models/base, models/sft, data/sft/train.parquet

Rows are trajectories at or above ``min_score`` and, beside them, teacher demonstrations in training arenas.
A row that touches held-out content, ends unfinished, is too long or has nothing to train on is a reject.

Departures: the paper starts from Qwen3-14B or 32B and imitates trajectories only (``policy.model`` and
``demonstrations.count`` 0 give that); the built-in policy starts from random weights, with a tokenizer made here from
the run's own tools and knowledge.

    python -m stages.sft
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from pydantic import Field

from astra.chat import Chat, ChatError, Choice, Encoded, NotTrainable
from astra.decontamination.check import TrainingRow, decontaminate, digest_of
from astra.decontamination.report import clearance, reject_detail
from astra.decontamination.settings import Decontaminating
from astra.records import Arena, Message, Scorecard, Section, Trajectory
from astra.sandbox import open_sandbox
from astra.splits import Heldout, of_messages
from astra.stage import Contract, Run, StageError, write_json
from astra.training.demonstrations import Demonstrating, DemonstrationFailed, demonstrate
from astra.training.distractors import Distractors, Mixing
from astra.training.episodes import Case, absent_of
from astra.training.imitation import Checkpoints, LossInvalid, Schedule
from astra.training.launch import Launcher, LaunchFailed
from astra.training.lesson import Lesson, report, teach
from astra.training.policy import Policy, copy_policy, new_policy, save_policy
from astra.training.provenance import describe
from astra.training.rows import Row, question_of, set_apart, summary, text_of, write_rows
from astra.training.samples import Making, Sample, Split, drafts, fit, make
from astra.training.vocabulary import make_chat
from astra.training.weights import Lora
from astra.wheels import unpacked


class Demonstrations(Demonstrating):
    count: int = Field(ge=0, description="Demonstrations in training arenas; 0 is the paper's setting.")


class Params(Section):
    min_score: float = Field(ge=0, le=1, description="Trajectories scored below this are not imitated.")
    max_length: int = Field(ge=64, description="Tokens; longer conversations are rejects (paper: 20,480).")
    max_untrainable: float = Field(
        ge=0, le=1, description="Share of rows without a trainable token that stops the stage."
    )
    template: Choice = Field(
        description="auto: the model's chat template where it marks what is generated, else a training variant of its "
        "family; own: as it is, unmarked too; plain: our generic one. The saved model carries it."
    )
    split: Split = Field(
        description="One sample per assistant turn: never, always, or where the template drops reasoning."
    )
    shorten_results_to: int = Field(
        ge=0, description="Characters that tool results of too long conversations may be cut down to; 0 never cuts."
    )
    decontamination: Decontaminating
    demonstrations: Demonstrations
    distractors: Mixing = Field(description="Tools mixed into demonstrations.")
    packing: bool = Field(description="Lay the conversations of a forward pass end to end instead of padding them.")
    lora: Lora
    checkpoints: Checkpoints
    schedule: Schedule


CONTRACT = Contract(
    name="sft",
    reads={
        "trajectories": "data/trajectories/trajectories.jsonl",
        "scorecards": "data/score/scorecards.jsonl",
        "arenas": "data/merge/arenas.jsonl",
        "benchmarks": "data/bench_env/packages",
        "launch": "launch",
    },
    writes={
        "base": "models/base",
        "model": "models/sft",
        "rows": "data/sft/train.parquet",
        "heldout": "data/sft/heldout.parquet",
        "decontamination": "data/sft/decontamination.json",
    },
    params={"seed": int, "policy": Policy, "sft": Params, "launcher.sft": Launcher},
    plots=("plots/sft.csv",),
)


def clear(
    run: Run, trajectories: Sequence[Trajectory], arenas: Sequence[Arena], how: Decontaminating
) -> tuple[list[Trajectory], list[Arena]]:
    """Trajectories and training arenas that are not too like a benchmark's cases; the report is an output.

    Raises NotDecontaminated where a benchmark was neither looked at nor waived. A trajectory that is a hit is a reject;
    an arena that is one is in no demonstration, and rl leaves it out by the same report.
    """
    training = [
        TrainingRow(arena.id, (arena.question,), tuple(tool.spec for tool in arena.tools))
        for arena in arenas
        if arena.split == "train"
    ]
    rows = [*(TrainingRow.of(one) for one in trajectories), *training]
    if how.environments is None:
        how = how.model_copy(update={"environments": str(unpacked(run.path("benchmarks")))})
    report = decontaminate(rows, how)
    run.metrics |= clearance(report, how, digest_of(rows))
    write_json(run.path("decontamination"), report.model_dump(mode="json"))
    worst = report.worst
    for one in trajectories:
        if one.id in worst:
            hit = worst[one.id]
            run.reject(one.id, f"benchmark_{hit.kind}", reject_detail(hit))
    return [one for one in trajectories if one.id not in worst], [one for one in arenas if one.id not in worst]


def worth_imitating(
    run: Run, trajectories: Sequence[Trajectory], scores: dict[str, float], min_score: float, heldout: Heldout
) -> list[Row]:
    """Trajectories that scored well, ended with an answer and touch nothing held out; the others are rejects."""
    rows = []
    for one in trajectories:
        score = scores.get(one.id)
        held = heldout.conflict(question_of(one.messages), of_messages(one.messages), text_of(one.messages))
        if score is None:
            run.reject(one.id, "not_scored", "score has no scorecard for it")
        elif score < min_score:
            run.reject(one.id, "low_score", f"{score:.3f} < {min_score}")
        elif one.stop != "answered":
            run.reject(one.id, "unfinished", one.stop)
        elif held:
            run.reject(one.id, held, "shares it with a held-out arena")
        else:
            rows.append(Row(one.id, "imitation", one.messages, one.tools))
    return rows


def show_in_arenas(
    run: Run, arenas: Sequence[Arena], count: int, params: Params, seed: int, heldout: Heldout
) -> list[Row]:
    """That many demonstrations, going round the training arenas; those that failed are rejects."""
    if not count:
        return []
    if not arenas:
        raise StageError(
            "data/merge/arenas.jsonl: no training arenas to demonstrate in; set sft.demonstrations.count: 0"
        )
    distractors = Distractors([tool for arena in arenas for tool in arena.tools], params.distractors, seed)
    rows = []
    with open_sandbox() as sandbox:
        for number in run.progress(range(count), total=count, unit="demo"):
            arena = arenas[number % len(arenas)]
            rng = random.Random(f"{seed}:{arena.id}:{number // len(arenas)}")
            case = set_up(arena, distractors, params.demonstrations.missing_tool, rng)
            name = f"{arena.id}:{number // len(arenas)}"
            try:
                messages = demonstrate(case, params.demonstrations, rng, sandbox)
            except DemonstrationFailed as failure:
                run.reject(name, failure.reason, failure.detail)
                continue
            # a slip is no part of the question's composition, but what it read counts
            read = of_messages(messages)._replace(compositions=frozenset())
            held = heldout.conflict(question_of(messages), read, text_of(messages))
            if held:
                run.reject(name, held, "shares it with a held-out arena")
            else:
                rows.append(Row(name, "demonstration", messages, tuple(tool.spec for tool in case.tools)))
    return rows


def set_up(arena: Arena, distractors: Distractors, missing_tool: float, rng: random.Random) -> Case:
    """The arena's tools among distractors, shuffled; sometimes one that is needed is not there."""
    missing = rng.choice(arena.probes).tool if rng.random() < missing_tool and arena.variant is None else None
    own = [tool for tool in arena.tools if tool.spec.name != missing]
    drawn = distractors.draw(arena.tools, f"{arena.id}:{rng.random()}", absent_of(arena))
    mixed = [tool for tool in drawn if rng.random() < 0.8]
    tools = [*own, *mixed]
    rng.shuffle(tools)
    return Case(arena, tuple(tools), missing)


def encode(run: Run, chat: Chat, rows: Sequence[Row], params: Params) -> list[tuple[Row, Encoded]]:
    """Token ids and masks; what is too long or has no trainable token is a reject, never cut inside a turn.

    A conversation that is split counts once a turn. Raises StageError where the template masks nothing or everything.
    """
    kept: list[tuple[Row, Encoded]] = []
    report = Making(params.split, params.max_length)
    for row in run.progress(rows, total=len(rows), unit="row"):
        report.see(chat, row.messages)
        parts = [_part(row, *one) for one in drafts(chat, row.messages, params.split)] or [row]
        run.n_in += len(parts) - 1
        for part in parts:
            try:
                sample = _checked(chat, part, params, report)
            except NotTrainable as error:
                run.reject(part.id, error.reason, error.detail)
            else:
                kept.append((part._replace(messages=sample.messages), sample.encoded))
    run.metrics |= report.metrics()
    return kept


def _part(row: Row, turn: int | None, messages: tuple[Message, ...]) -> Row:
    if turn is None:
        return row
    return row._replace(id=f"{row.id}:turn{turn}", parent=row.id, turn=turn, messages=messages)


def _checked(chat: Chat, row: Row, params: Params, report: Making) -> Sample:
    """A sample that reads back as the row and fits. Raises NotTrainable, and StageError for a mask that is none."""
    sample = make(chat, row.turn, row.messages, row.tools)
    ids, mask = sample.encoded
    report.measure(sample)
    if not sample.turns:
        raise NotTrainable("no_loss_mask", f"0 of {len(mask)} tokens are trained: the assistant says nothing")
    if not 0 < sum(mask) < len(mask):
        raise StageError(
            f"the chat template gives no assistant mask: {sum(mask)} of {len(mask)} tokens of {row.id} are trained; "
            f"set sft.template, or sft.split for one without marks; the template ends with {chat.template[-80:]!r}"
        )
    chat.check(sample.encoded, sample.turns)
    if len(ids) <= params.max_length:
        return sample
    fitted = fit(chat, sample, row.tools, params.max_length, params.shorten_results_to)
    if fitted is None:
        raise NotTrainable("too_long", f"{len(ids)} tokens, sft.max_length is {params.max_length}")
    report.cuts.append(fitted.cut)
    return fitted.sample


def main() -> None:
    with Run(CONTRACT) as run:
        params: Params = run.params["sft"]
        policy: Policy = run.params["policy"]
        seed = run.params["seed"]
        torch.set_num_threads(policy.threads)
        arenas = run.read("arenas", Arena)
        trajectories = run.read("trajectories", Trajectory)
        scores = {card.trajectory_id: card.overall for card in run.read("scorecards", Scorecard)}
        heldout = Heldout.of(arenas)
        run.n_in = len(trajectories) + params.demonstrations.count
        trajectories, arenas = clear(run, trajectories, arenas, params.decontamination)
        rows = worth_imitating(run, trajectories, scores, params.min_score, heldout)
        planned = params.demonstrations.count
        training = [arena for arena in arenas if arena.split == "train"]
        rows += show_in_arenas(run, training, planned, params, seed, heldout)
        try:
            chat = (
                Chat.load(policy.model, params.template)
                if policy.is_pretrained
                else make_chat(rows, arenas, policy.shape.pieces)
            )
        except ChatError as error:
            raise StageError(str(error)) from None
        kept = encode(run, chat, rows, params)
        if not kept or len(rows) - len(kept) > params.max_untrainable * len(rows):
            raise StageError(
                f"only {len(kept)} of {len(rows)} rows can be trained on; see sft.max_length, sft.max_untrainable"
            )
        run.n_out = len(kept)
        if policy.is_pretrained:
            copy_policy(policy.model, chat, run.path("base"))
        else:
            save_policy(new_policy(policy.shape, chat, seed), chat, run.path("base"))
        learned, heldout_rows = set_apart(kept, params.checkpoints.heldout, seed)
        write_rows(run.path("rows"), learned)
        write_rows(run.path("heldout"), heldout_rows)
        lesson = Lesson(
            base=str(run.path("base")), schedule=params.schedule, seed=seed, checkpoints=params.checkpoints,
            lora=params.lora, packing=params.packing,
        )  # fmt: skip
        own, apart = ([one for _, one in some] for some in (learned, heldout_rows))
        try:
            done = teach(lesson, own, apart, run.params["launcher.sft"], run.path("model"), policy.threads)
        except (LossInvalid, LaunchFailed) as error:
            raise StageError(str(error)) from None
        losses = done.losses
        plot = Path(CONTRACT.plots[0])
        plot.parent.mkdir(exist_ok=True)
        pd.DataFrame(losses).to_csv(plot, index=False)
        figures = summary(kept, losses) | report(done)
        run.metrics |= figures
        sources = [run.contract.reads[word] for word in ("trajectories", "scorecards", "arenas")]
        describe(run.path("model"), "sft", policy.model, run.params, [*sources, str(run.path("base"))], figures)


if __name__ == "__main__":
    main()
