"""data/decompose/decompositions.jsonl -> data/envsynth/environments.jsonl: a code tool for every step (section 3.3.2).

For each sub-question that needs a tool the paper's four parts: a tool document, the document scaled by optional
parameters, the call that answers the sub-question, and a Python function (``astra/synthesis``). Nobody who writes them
sees the answer. Code and data are apart: the function reads a table that the pipeline supplies, the answer's row among
decoys. It is run in the sandbox on rows that its writer knows and on the question's own, with the answer as it is and
with another value in its place; what fails goes back to its writer with what happened, a bounded number of times, and
every try that failed is in tries.jsonl.

Departures: the paper shows the answer to whoever writes the code, and accepts when it is a substring of stdout. Where a
step reads a table of the knowledge, the document and the function are written once for all questions that read it, and
decoys are rows of that table; for other steps a model invents decoys, none of which is an answer of the question.
Decoys of training tools hold nothing that is held out.

    python -m stages.envsynth
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from astra.knowledge import Knowledge, KnowledgeError
from astra.llm import ModelParams, Models, Settings
from astra.records import Decomposition, Section
from astra.sandbox import open_pool
from astra.splits import Heldout
from astra.stage import Contract, Run, StageError
from astra.synthesis import Sizes, Synthesis, Writer
from astra.synthesis.writing import in_order


class Params(Section):
    decoys: int = Field(ge=1, le=200, description="Rows beside the answer's in each tool's table.")
    extra_parameters: int = Field(
        ge=0, le=4, description="Optional parameters that scaling may give a tool; 0 leaves that part out."
    )
    max_tries: int = Field(ge=1, le=10, description="Times that each part may be written before its question is lost.")
    backend: str = Field(description="Sandbox: auto, or a key of BACKENDS.")
    workers: int = Field(ge=2, le=64, description="Sandbox workers; as many as cores.")


CONTRACT = Contract(
    name="envsynth",
    reads={
        "decompositions": "data/decompose/decompositions.jsonl",
        "knowledge": "data/raw/knowledge",
    },
    writes={"environments": "data/envsynth/environments.jsonl", "tries": "data/envsynth/tries.jsonl"},
    params={"seed": int, "envsynth": Params, "models.teacher": ModelParams},
    settings={"llm": Settings},
)


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["envsynth"]
        try:
            knowledge = Knowledge.load(run.path("knowledge"))
        except KnowledgeError as error:
            raise StageError(str(error)) from None
        questions = run.read("decompositions", Decomposition)
        with open_pool(params.backend, params.workers) as pool:
            model, seed = models.params_of("teacher"), run.params["seed"]
            writer = Writer(models.client("teacher"), model, seed, pool, params.max_tries, watch=run.progress)
            sizes = Sizes(params.decoys, params.extra_parameters)
            synthesis = Synthesis(knowledge, Heldout.of(questions), sizes, writer, seed)
            found = synthesis.environments(questions)
        for one in questions:
            if one.id in synthesis.lost:
                run.reject(one.id, synthesis.lost[one.id].reason, synthesis.lost[one.id].detail)
        run.n_in, run.n_out = len(questions), run.write("environments", found)
        run.write("tries", in_order(writer.tries))
        failed = Counter(one.part for one in writer.tries)
        run.metrics |= {
            "backend": pool.backend,
            "tools": sum(len(one.tools) for one in found),
            "functions_written": writer.n_written,
            "failed_tries": {part: failed[part] for part in sorted(failed)},
        }


if __name__ == "__main__":
    main(sys.argv[1:])
