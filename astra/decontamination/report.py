"""What decontamination saw, as a record, and whether training may go on after it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from astra.decontamination.settings import Decontaminating
from astra.records import Record
from astra.stage import StageError

Kind = Literal[
    "question_whole", "question_ngrams", "question_meaning",
    "tool_signature", "tool_name", "tool_parameters", "tool_description", "tool_document", "tool_family",
]  # fmt: skip


class NotDecontaminated(StageError):
    """Training may not go on: what was not compared with what, and the remedy."""


class Fingerprinted(Record):
    """A benchmark that rows were compared with."""

    benchmark: str
    version: str
    n_tools: int = Field(ge=0)
    n_questions: int = Field(ge=0)
    n_too_short: int = Field(ge=0, description="Questions of so few words that they say nothing; not compared.")


class NotAvailable(Record):
    """A benchmark whose files were not here."""

    benchmark: str
    remedy: str


class Hit(Record):
    """A row that is too like a case."""

    row_id: str
    part: str = Field(description="What of the row: 'tool <name>', 'tools' or 'message <n>'.")
    benchmark: str
    case_id: str
    kind: Kind
    score: float = Field(ge=0, description="In [0, 1]; for tool_family the number of tool names in common.")


class DecontaminationReport(Record):
    """One comparison of all rows with all benchmarks at hand."""

    fingerprinted: tuple[Fingerprinted, ...]
    not_available: tuple[NotAvailable, ...]
    encoder: str
    thresholds: dict[str, float]
    n_rows: int = Field(ge=0)
    rows_digest: str = Field(description="sha256 over the rows' ids, messages and tools: which rows this is about.")
    n_rows_hit: int = Field(ge=0)
    hits_by_kind: dict[str, int] = Field(description="Rows by kind of match; a row may have several.")
    names_only: dict[str, int] = Field(description="Tool names shared with a benchmark and nothing else alike: no hit.")
    hits: tuple[Hit, ...] = Field(description="Of every row, kind and benchmark the best match.")

    @property
    def worst(self) -> dict[str, Hit]:
        """The first hit of every row that has one."""
        found: dict[str, Hit] = {}
        for hit in self.hits:
            found.setdefault(hit.row_id, hit)
        return found


def reject_detail(hit: Hit) -> str:
    """A hit as the detail of a reject."""
    return f"{hit.part} is like {hit.benchmark} {hit.case_id} ({hit.kind} {hit.score:.2f})"


def counted(hits: Iterable[Hit]) -> dict[str, int]:
    """Rows with at least one hit of each kind."""
    return dict(sorted(Counter(kind for kind, _ in {(hit.kind, hit.row_id) for hit in hits}).items()))


def read_report(path: Path | str) -> DecontaminationReport | None:
    """The report in that file; None where there is no file. Raises NotDecontaminated for a file that is no report."""
    path = Path(path)
    if not path.is_file():
        return None
    try:
        return DecontaminationReport.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise NotDecontaminated(f"{path}: no decontamination report: {where}: {first['msg']}. Make it anew") from None


def clearance(report: DecontaminationReport | None, how: Decontaminating, rows_digest: str) -> dict[str, Any]:
    """Metrics that say what training rows were compared with, and what was waived.

    Raises NotDecontaminated where a wanted benchmark was neither fingerprinted nor waived by name (without a report
    that is every one), and where the report is about other rows, thresholds or another encoder.
    """
    seen = [one.benchmark for one in report.fingerprinted] if report else []
    remedies = {one.benchmark: one.remedy for one in report.not_available} if report else {}
    missing = [name for name in how.benchmarks if name not in seen]
    if barred := [name for name in missing if name not in how.waived]:
        raise NotDecontaminated(
            f"training rows were not compared with {', '.join(barred)}"
            + ("" if report else ": there is no decontamination report")
            + "".join(f"\n  {name}: {remedies[name]}" for name in barred if name in remedies)
            + "\n  or accept that their cases may be in the training data: name them in decontamination.waived"
        )
    if report:
        _refuse_another(report, how, rows_digest)
    return {
        "decontamination": {
            "report": report is not None,
            "fingerprinted": ",".join(seen),
            "waived": ",".join(missing),
            "n_fingerprinted": len(seen),
            "n_waived": len(missing),
            "rows_checked": report.n_rows if report and seen else 0,
            "rows_hit": report.n_rows_hit if report else 0,
            **({"hits": report.hits_by_kind} if report and report.hits_by_kind else {}),
        }
    }


def _refuse_another(report: DecontaminationReport, how: Decontaminating, rows_digest: str) -> None:
    if report.rows_digest != rows_digest:
        raise NotDecontaminated(
            f"the decontamination report is about other rows ({report.rows_digest[:12]}) than these "
            f"({rows_digest[:12]}): make it anew"
        )
    strictness = {name: float(value) for name, value in how.thresholds.model_dump().items()}
    if report.thresholds != strictness or report.encoder != how.encoder:
        raise NotDecontaminated(
            f"the decontamination report was made with encoder {report.encoder} and {report.thresholds}, params say "
            f"{how.encoder} and {strictness}: make it anew"
        )


def as_json(report: DecontaminationReport) -> Any:
    """The report as a JSON document."""
    return json.loads(report.model_dump_json())
