"""Carry kept replies from one machine to another.

    python -m astra.llm import data/*/replies.jsonl    # what runs used, e.g. after dvc pull, into the store
    python -m astra.llm export FILE                    # everything in the store, as one file

A stage writes the replies that it used to data/<stage>/replies.jsonl, which DVC tracks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from astra.llm.store import ReplyStore, StoreUnusable, to_row
from astra.records import KeptReply


class NoReplies(Exception):
    """A file that does not hold kept replies; the message names file and line."""


def read_replies(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Keys and texts of exported replies. Raises NoReplies."""
    for file in files:
        number = 0
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):  # noqa: B007
                    yield to_row(KeptReply.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            raise NoReplies(
                f"{file}:{number}: not a kept reply: {first['loc']}: {first['msg']}; nothing was taken in"
            ) from None
        except OSError as error:
            raise NoReplies(f"{file}: {error.strerror}; nothing was taken in") from None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m astra.llm", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("import", help="take exported replies into the store")
    taking.add_argument("files", nargs="+", type=Path)
    giving = commands.add_parser("export", help="write all kept replies to a file")
    giving.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    try:
        store = ReplyStore()
        if options.command == "import":
            print(f"{store.add(read_replies(options.files))} replies taken into {store.file}", file=sys.stderr)
        else:
            print(f"{store.export(options.file)} replies written to {options.file}", file=sys.stderr)
    except (NoReplies, StoreUnusable) as error:
        print(f"astra.llm: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
