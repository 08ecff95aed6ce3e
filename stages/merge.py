"""data/envsynth/environments.jsonl -> data/merge/arenas.jsonl: like tools made one, then certified (section 3.3.2).

Tools of one question that read the same relation become one tool over all their rows, where their functions are the
same but for names and data. Other tools are grouped by intent by a model, which writes one function for each group; the
data and the golden calls are moved by rule. A function that fails goes back to its writer with what happened, a bounded
number of times (tries.jsonl has those tries); what does not work out stays apart, under names of its own, and so do
tools whose merged arena gets no certificate. The arena as a whole, as it will be played, is accepted only if in the
sandbox

- every golden call returns the expected answer under a typed comparison (``golden``);
- every call gives the same twice, byte for byte: fresh processes of two servers, with different hash and random
  seeds and clocks, in opposite order, so that state between calls shows too (``repeatable``);
- other valid arguments, the other rows, never return the golden answer (``other_arguments``): a tool that ignores its
  arguments fails, and so does one that tells another step's answer (``no_leak``);
- arguments that no row has, and missing ones, give an error that names them (``bad_arguments``);
- tool names are unique (``unique_names``), and no answer stands in the question (``question_silent``).

Departures: the paper has a model extend the data of one implementation; here data are moved by rule, and tools of
knowledge tables are merged without asking. It keeps what still passes; here the final bytes are tested, and a
certificate with their hash goes with the arena.

    python -m stages.merge
    python -m stages.merge --verify data/merge/arenas.jsonl     # recompute all certificates from the file alone
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import Field

from astra.certificate import Failures, Kept, Playable, certify, drawn, verify
from astra.llm import ModelParams, Models, Settings
from astra.records import Arena, Environment, Section, ToolTry
from astra.sandbox import Pool, open_pool
from astra.stage import Contract, Run, StageError, Watch
from astra.synthesis.intents import Intents, candidates
from astra.synthesis.merging import merge
from astra.synthesis.writing import Writer, in_order

VARIANTS = ("missing_tool", "missing_value")


class Variants(Section):
    """Shares of certified arenas of which a variant is made that cannot be done as asked; 0 makes none."""

    missing_tool: float = Field(ge=0, le=0.5, description="A needed tool is not there; saying so is what is paid.")
    missing_value: float = Field(ge=0, le=0.5, description="The question leaves a value out; asking for it is paid.")


class Params(Section):
    max_tries: int = Field(ge=1, le=10, description="Times that a model may group tools, and write each merged one.")
    backend: str = Field(description="Sandbox: auto, or a key of BACKENDS.")
    workers: int = Field(ge=2, le=64, description="Sandbox workers; as many as cores.")
    variants: Variants


CONTRACT = Contract(
    name="merge",
    reads={"environments": "data/envsynth/environments.jsonl"},
    writes={"arenas": "data/merge/arenas.jsonl", "tries": "data/merge/tries.jsonl"},
    params={"seed": int, "merge": Params, "models.teacher": ModelParams},
    settings={"llm": Settings},
)

# ---------------------------------------------------------------- merging


def merge_all(environments: Sequence[Environment], writer: Callable[[], Writer]) -> list[Environment]:
    """Environments with their tools merged: by rule, then with a model, which is opened only if it may find more."""
    ruled = [merge(one) for one in environments]
    if any(candidates(one, new) for one, new in zip(environments, ruled, strict=True)):
        ruled = Intents(writer()).merge(environments, ruled)
    return [one.model_copy(update=new._asdict()) for one, new in zip(environments, ruled, strict=True)]


def settle(
    environments: Sequence[Environment], merged: Sequence[Environment], pool: Pool, kept: Kept, watch: Watch
) -> list[Environment]:
    """The merged environments, but as they came where only that gets a certificate."""
    settled = list(merged)
    outcomes = certify([Playable(one) for one in merged], pool, kept, watch)
    again = [n for n, outcome in enumerate(outcomes)
             if isinstance(outcome, Failures) and merged[n].tools != environments[n].tools]  # fmt: skip
    apart = certify([Playable(environments[n]) for n in again], pool, kept)
    for n, outcome in zip(again, apart, strict=True):
        if not isinstance(outcome, Failures):
            settled[n] = environments[n]
    return settled


# ---------------------------------------------------------------- the stage


def main() -> None:
    parser = argparse.ArgumentParser(prog="stages.merge")
    parser.add_argument("--verify", type=Path, metavar="ARENAS", help="recompute the certificates of a written file")
    options, rest = parser.parse_known_args()
    if options.verify is not None:
        _verify(options.verify)
        return
    with Run(CONTRACT, rest) as run, Models(run) as models:
        params: Params = run.params["merge"]
        environments = run.read("environments", Environment)
        kept = Kept()
        tries: list[ToolTry] = []
        with open_pool(params.backend, params.workers) as pool:

            def writer() -> Writer:
                model, seed = models.params_of("teacher"), run.params["seed"]
                return Writer(models.client("teacher"), model, seed, pool, params.max_tries, tries, watch=run.progress)

            played = settle(environments, merge_all(environments, writer), pool, kept, run.progress)
            arenas = certified([Playable(one) for one in played], pool, kept, run)
            variants = [
                Playable(*made)
                for one in arenas
                for made in drawn(one, params.variants.missing_tool, params.variants.missing_value, run.params["seed"])
            ]
            arenas += certified(variants, pool, kept, run)
        run.n_in, run.n_out = len(environments) + len(variants), run.write("arenas", arenas)
        run.write("tries", in_order(tries))
        run.metrics |= {
            "backend": pool.backend,
            "tools_before": sum(len(one.tools) for one in environments),
            "tools_after": sum(len(one.tools) for one in played),
            "arenas_with_merged_tools": sum(
                len(new.tools) < len(one.tools) for one, new in zip(environments, played, strict=True)
            ),
            "failed_tries": len(tries),
            "splits": {split: sum(one.split == split for one in arenas) for split in sorted({a.split for a in arenas})},
            "variants": {
                kind: sum(one.variant is not None and one.variant.kind == kind for one in arenas) for kind in VARIANTS
            },
        }


def certified(played: Sequence[Playable], pool: Pool, kept: Kept, run: Run) -> list[Arena]:
    """The arenas that get a certificate; the others are rejects with the first check that failed."""
    arenas = []
    for (arena, variant), outcome in zip(played, certify(played, pool, kept, run.progress), strict=True):
        if isinstance(outcome, Failures):
            reason, detail = next(iter(outcome.found.items()))
            run.reject(arena.id, reason, detail[:500])
            continue
        parts = {name: getattr(arena, name) for name in Environment.model_fields}
        arenas.append(Arena.model_validate({**parts, "certificate": outcome, "variant": variant}))
    return arenas


def _verify(path: Path) -> None:
    try:
        if not path.is_file():
            raise StageError(f"merge: {path}: no such file; --verify takes the arenas.jsonl that merge writes")
        n_shown, wrong = verify(path, "auto", 2)
        if not n_shown:
            raise StageError(
                f"merge: {path}: it holds no arenas, so nothing was shown. Rerun merge: dvc repro -f merge"
            )
    except StageError as error:
        raise SystemExit(str(error)) from None
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    print(f"merge: {path}: {n_shown} arenas, {len(wrong)} certificates wrong", file=sys.stderr)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
