"""Write the SFT set for another trainer.

    python -m astra.exports --format trl --out exports/trl

Takes the trajectories that ``sft`` imitates: scored at least ``sft.min_score``, ended with an answer, nothing held out,
and too like no benchmark case (``sft.decontamination``). Writes train.jsonl or train.parquet, rejects.jsonl and
export.json, which says what was left out and why; for sharegpt also LLaMA-Factory's dataset_info.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from astra.decontamination.check import TrainingRow, decontaminate, gather
from astra.decontamination.report import as_json, clearance, reject_detail
from astra.decontamination.settings import Decontaminating
from astra.exports.formats import FORMS, Conversation, Form, NotExportable, Row, convert, taught
from astra.records import Arena, Reject, Scorecard, Trajectory
from astra.splits import Heldout, of_messages
from astra.stage import StageError, load_params, read_records, write_json, write_records

NONE = "none"
DECONTAMINATION = "sft.decontamination"


class Selected(NamedTuple):
    """Trajectories to export, and the others with their reasons."""

    kept: list[Trajectory]
    rejects: list[Reject]


def select(
    trajectories: Iterable[Trajectory], scores: dict[str, float], min_score: float, heldout: Heldout | None
) -> Selected:
    """What is worth imitating, as ``sft`` has it."""
    kept, rejects = [], []
    for one in trajectories:
        reason, detail = _fault(one, scores.get(one.id), min_score, heldout)
        if reason:
            rejects.append(Reject(id=one.id, reason=reason, detail=detail))
        else:
            kept.append(one)
    return Selected(kept, rejects)


def _fault(one: Trajectory, score: float | None, min_score: float, heldout: Heldout | None) -> tuple[str, str]:
    if score is None:
        return "not_scored", "score has no scorecard for it"
    if score < min_score:
        return "low_score", f"{score:.3f} < {min_score}"
    if one.stop != "answered":
        return "unfinished", one.stop
    if heldout:
        asked = next((message.content or "" for message in one.messages if message.role == "user"), "")
        said = [message.content or "" for message in one.messages]
        called = [call.function.arguments for message in one.messages for call in message.tool_calls]
        if held := heldout.conflict(asked, of_messages(one.messages), "\n".join([*said, *called])):
            return held, "shares it with a held-out arena"
    return "", ""


def rows_of(conversations: Iterable[Conversation], form: Form, rejects: list[Reject]) -> list[Row]:
    """Every conversation in that form; those that it cannot hold become rejects."""
    rows = []
    for one in conversations:
        try:
            rows.append(convert(one, form))
        except NotExportable as fault:
            rejects.append(Reject(id=one.id, reason=fault.reason, detail=fault.detail))
    return rows


def telling_first(rows: Sequence[Row]) -> list[Row]:
    """The rows in order, but for those few that show every column and how messages' keys differ, which come first.

    ``datasets`` settles a JSON file's columns by its first 10 MB; what only comes up later stops it, or is lost.
    """
    shown = {column: place for place in range(len(rows) - 1, -1, -1) for column in rows[place]}
    kinds = [
        len({tuple(said) for said in row["messages"]}) if isinstance(row.get("messages"), list) else 0 for row in rows
    ]
    first = sorted({*shown.values(), kinds.index(max(kinds))} - {0})
    return [rows[place] for place in first] + [row for place, row in enumerate(rows) if place not in first]


def write_rows(folder: Path, name: str, form: Form, rows: Sequence[Row]) -> None:
    """The file of a form, all or nothing, and what its trainer wants beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{form.file}.partial"
    if form.file.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {
            column: pa.array([row[column] for row in rows], pa.string()) for column in ("id", "messages", "tools")
        }
        pq.write_table(pa.table(columns), partial)
    else:
        lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in telling_first(rows))
        with partial.open("w", encoding="utf-8") as out:
            out.writelines(lines)
    os.replace(partial, folder / form.file)
    if name == "sharegpt":
        write_json(folder / "dataset_info.json", dataset_info(form.file))


def dataset_info(file: str) -> dict[str, Any]:
    """LLaMA-Factory's description of the file."""
    return {
        "astra": {
            "file_name": file,
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "system": "system", "tools": "tools"},
            "tags": {
                "role_tag": "from",
                "content_tag": "value",
                "user_tag": "human",
                "assistant_tag": "gpt",
                "observation_tag": "observation",
                "function_tag": "function_call",
            },
        }
    }


def export(given: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line asks; the manifest. Raises StageError."""
    params = load_params(
        {DECONTAMINATION: Decontaminating} | ({"sft.min_score": float} if given.min_score is None else {})
    )
    how: Decontaminating = params[DECONTAMINATION]
    min_score = params["sft.min_score"] if given.min_score is None else given.min_score
    scores = {card.trajectory_id: card.overall for card in read_records(given.scorecards, Scorecard)}
    heldout = None if given.arenas == NONE else Heldout.of(read_records(given.arenas, Arena))
    kept, rejects = select(read_records(given.trajectories, Trajectory), scores, min_score, heldout)
    n_in = len(kept) + len(rejects)
    compared = [TrainingRow.of(one) for one in kept]
    report = decontaminate(compared, how, gather(how))
    cleared = clearance(report, how, report.rows_digest)
    rejects += [
        Reject(id=row, reason=f"benchmark_{hit.kind}", detail=reject_detail(hit)) for row, hit in report.worst.items()
    ]
    conversations = [
        Conversation(one.id, taught(one.messages), one.tools) for one in kept if one.id not in report.worst
    ]
    rows = rows_of(conversations, FORMS[given.format], rejects)
    if not rows:
        why = ", ".join(f"{reason} {count}" for reason, count in Counter(one.reason for one in rejects).items())
        raise StageError(f"{given.trajectories}: none of {n_in} trajectories can be exported ({why}); see --min-score")
    folder = Path(given.out)
    write_rows(folder, given.format, FORMS[given.format], rows)
    write_records(folder / "rejects.jsonl", rejects)
    write_json(folder / "decontamination.json", as_json(report))
    manifest = {
        "format": given.format,
        "file": FORMS[given.format].file,
        "in": n_in,
        "out": len(rows),
        "rejected": len(rejects),
        "rejects": dict(sorted(Counter(one.reason for one in rejects).items())),
        "min_score": min_score,
        "heldout_checked": heldout is not None,
        **cleared,
    }
    write_json(folder / "export.json", manifest)
    return manifest


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m astra.exports", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--format", required=True, choices=list(FORMS))
    parser.add_argument("--out", required=True, help="folder to write to")
    parser.add_argument("--trajectories", default="data/trajectories/trajectories.jsonl")
    parser.add_argument("--scorecards", default="data/score/scorecards.jsonl")
    parser.add_argument(
        "--arenas", default="data/merge/arenas.jsonl", help=f"what is held out; '{NONE}' checks nothing"
    )
    parser.add_argument("--min-score", type=float, help="instead of sft.min_score of params.yaml")
    given = parser.parse_args(arguments)
    try:
        manifest = export(given)
    except StageError as error:
        print(f"exports: {error}", file=sys.stderr)
        return 2
    why = ", ".join(f"{reason} {count}" for reason, count in manifest["rejects"].items())
    counts = f"{manifest['in']} in, {manifest['out']} out, {manifest['rejected']} rejected"
    print(f"exports: {counts}" + (f" ({why})" if why else ""), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
