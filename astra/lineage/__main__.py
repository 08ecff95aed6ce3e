"""Where a record comes from, down to the tool document or the row of knowledge; or what became of it.

    python -m astra.lineage trajectory-662840ed4362        # a training row, with all gates that it passed
    python -m astra.lineage environment-d3e20e778ec0       # an arena
    python -m astra.lineage sample:rl:heldout:environment-d3e20e778ec0:0:greedy
    python -m astra.lineage --forward town-library         # a server: its chains, tasks, rows, and rejects with reasons
    python -m astra.lineage --forward airport_city:DYU     # a row of knowledge
    python -m astra.lineage --json ID

Takes ids of servers, graphs, edges (``graph-ID:source>target``), chains, tasks, trajectories, scorecards, training rows
(as in data/sft/train.parquet), decompositions, environments, arenas, ``rollout:ARENA:UPDATE:SAMPLE``,
``sample:MODEL:BENCHMARK:CASE:TRIAL:MODE`` and rejects; names of servers and tools (``server/tool``), documents of
data/raw/tools, ``relation:subject`` or either. Reads the files of the run in this folder; asks nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from astra.lineage.ancestors import Ancestors
from astra.lineage.descendants import Descendants
from astra.lineage.files import Files
from astra.lineage.nodes import as_json
from astra.lineage.starts import nodes, start
from astra.lineage.text import levels_text, tree
from astra.stage import StageError

SHOWN = 5


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m astra.lineage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("id", help="a record's id, its address, or a name")
    parser.add_argument("--forward", action="store_true", help="what became of it, with rejects and their reasons")
    parser.add_argument("--json", action="store_true", help="everything, as one JSON document")
    parser.add_argument("--all", action="store_true", help=f"all records of a level, not {SHOWN}")
    parser.add_argument("--root", type=Path, default=Path(), help="folder of the run (this one)")
    given = parser.parse_args(arguments)
    try:
        answer(given)
    except StageError as error:
        print(f"lineage: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # into head, say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def answer(given: argparse.Namespace) -> None:
    """Print what was asked for. Raises StageError for an unknown id and for a file that is not what it should be."""
    ancestors = Ancestors(Files(given.root))
    found = start(given.id, ancestors)
    if given.forward:
        levels = Descendants(ancestors.files).of(found)
        if given.json:
            print(
                json.dumps(
                    {"id": given.id, "became": [as_json(level) for level in levels]}, ensure_ascii=False, indent=2
                )
            )
        else:
            print("\n".join(levels_text(levels, None if given.all else SHOWN)) or "nothing was made from it yet")
        return
    made = nodes(found, ancestors)
    if given.json:
        print(json.dumps([as_json(node) for node in made], ensure_ascii=False, indent=2))
    else:
        print("\n\n".join("\n".join(tree(node)) for node in made))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
