"""The report as files: one page, and the chunks of records beside it."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from astra.nested import leaves
from astra.report import charts, dag, yields
from astra.report.chunks import Kind, Shelf, safe_json
from astra.report.reading import STAGES, STUDIES, Numbers, entries
from astra.report.views import KINDS
from astra.stage import StageError
from astra.yaml_files import YamlInvalid, read_yaml

PIPELINE = "dvc.yaml"
HERE = Path(__file__)
BOX = (132, 52)  # of a stage in the picture of the pipeline
GAP = (32, 30)
_ENDS = re.compile(r"<(/script|!--)", re.IGNORECASE)  # within a string, where alone a program has them

Progress = Callable[[Iterable[Kind]], Iterable[Kind]]


def write_report(folder: Path, found: Numbers, flow: list[dict[str, Any]], progress: Progress) -> int:
    """Write ``index.html`` and ``data/`` into the folder, all at once; the number of records."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "data").mkdir(parents=True)
    shelves = [_shelve(kind, partial / "data") for kind in progress(KINDS)]
    (partial / "index.html").write_text(page(found, flow, shelves), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return sum(shelf["n"] for shelf in shelves)


def _shelve(kind: Kind, folder: Path) -> dict[str, Any]:
    shelf = Shelf(folder, kind)
    for entry in entries()[kind.name]:
        shelf.add(entry)
    return shelf.close()


def page(found: Numbers, flow: list[dict[str, Any]], shelves: list[dict[str, Any]]) -> str:
    """The page: everything but the records stands in it."""
    pictures = Pictures()
    sections = {
        "yields": [pictures.add(title, spec) for title, spec in charts.flows(flow)],
        "benchmarks": [pictures.add(title, spec) for title, spec in charts.benchmarks(found.curves.get("eval", []))],
        "training": [pictures.add(title, spec) for title, spec in _training(found)],
        "studies": [pictures.add(title, spec) for title, spec in _studies(found)],
        "bands": [pictures.add(title, spec) for title, spec in _bands(found.metrics)],
    }
    program, library = inlined(_text("page.js")), _library()
    engine = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    engine.filters |= {"count": _count, "share": _share, "figure": _figure}
    return engine.from_string(_text("page.html.jinja")).render(
        style=Markup(_text("page.css")),
        program=Markup(program),
        library=Markup(library),
        hashes=[_hash(text) for text in (program, library)],
        shelves=shelves,
        data=Markup(safe_json({"shelves": shelves, "charts": pictures.specs})),
        metrics=found.metrics,
        gates=yields.table(yields.gates(found.metrics, found.of_trajectories)),
        finer=list(_finer(found.metrics)),
        costs=list(costs(found.metrics)),
        rejects=_rejects(found.metrics),
        stages=_stages(found.metrics),
        scores=found.curves.get("eval", []),
        differences=list(_estimates(found.metrics.get("eval", {}).get("paired", {}))),
        figures=list(_figures(found.metrics.get("ablations", {}))),
        flat={stage: list(leaves(one)) for stage, one in found.metrics.items()},
        **sections,
    )


class Pictures:
    """The charts of the page by number."""

    def __init__(self) -> None:
        self.specs: list[charts.Spec] = []

    def add(self, title: str, spec: charts.Spec) -> tuple[int, str]:
        """The number under which the page finds the chart, and its title."""
        self.specs.append(spec)
        return len(self.specs) - 1, title


def _text(name: str) -> str:
    files = {
        "page.html.jinja": HERE.with_name("page.html.jinja"),
        "page.css": HERE.with_name("page.css"),
        "page.js": HERE.with_name("page.js"),
    }
    return files[name].read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed, as the package of vl-convert brings them: the page needs no network."""
    return inlined(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def inlined(program: str) -> str:
    """A program as a script element holds it: with its names to itself, and nothing in it that ends the element."""
    return "(function(){" + _ENDS.sub(r"\\x3c\1", program) + "\n})();"


def _hash(text: str) -> str:
    """How a page's policy names a script that may run; no other may."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _training(found: Numbers) -> Iterator[tuple[str, charts.Spec]]:
    for title, name, columns, y in (
        ("SFT: loss", "sft", ("loss", "heldout_loss"), "loss"),
        ("RL: reward, recall, precision, answers right", "rl", ("reward", "recall", "precision", "answer"), "share"),
        ("RL: calls an episode", "rl", ("calls",), "calls"),
        ("RL: share of groups without spread", "rl", ("zero_variance",), "share"),
        ("RL: loss", "rl", ("loss",), "loss"),
        ("RL: entropy", "rl", ("entropy",), "nats"),
    ):
        rows = found.curves.get(name, [])
        if rows and any(column in rows[0] for column in columns):
            yield title, charts.curve(rows, next(iter(rows[0])), columns, y)


def _studies(found: Numbers) -> Iterator[tuple[str, charts.Spec]]:
    for study in STUDIES:
        rows = found.curves.get(f"ablation_{study}", [])
        for measure, spec in charts.studies(rows, ("recall", "precision", "calls")):
            yield f"{study}: {measure}", spec


def _figures(ablations: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Study, curve, benchmark and measure with their figure, and its difference to the first curve's; or why not."""
    for study in STUDIES:
        for curve, one in ablations.get(study, {}).items():
            if "status" in one:
                yield {"study": study, "curve": curve, "status": one["status"]}
                continue
            for (benchmark, measure), figure in _estimates(one):
                yield {"study": study, "curve": curve, "benchmark": benchmark, "measure": measure, "figure": figure,
                       "less": figure.get("less_first")}  # fmt: skip


def bands(metrics: Mapping[str, Any]) -> dict[str, int]:
    """How many distractors came from each band of similarity; ``filled`` are those taken where a band was empty."""
    counts = metrics.get("rl", {}).get("distractors", {})
    return {band: counts[band] for band in charts.BANDS if band in counts}


def _bands(metrics: Mapping[str, Any]) -> Iterator[tuple[str, charts.Spec]]:
    if counts := bands(metrics):
        yield "Distractor tools by likeness to the arena's own", charts.histogram(counts, "tools", charts.BANDS)


def _finer(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """Gates within a stage: stage, gate, in, passed."""
    for name, gate in metrics.get("chains", {}).get("gates", {}).items():
        yield "chains", name, gate["in"], gate["passed"]
    left = list(metrics.get("decompose", {}).get("left", {}).items())
    for (_, before), (name, after) in pairwise(left):
        yield "decompose", name, before, after


def costs(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Calls, tokens and cost of each stage and role."""
    for stage, one in metrics.items():
        for role, used in one.get("models", {}).items():
            if "cost_usd" in used:
                yield {"stage": stage, "role": role, **used}


def _rejects(metrics: Mapping[str, Any]) -> list[tuple[str, str, int, int]]:
    """Stage, reason, count and what came in, commonest first."""
    found = [(stage, reason, count, one["in"]) for stage, one in metrics.items()
             for reason, count in one.get("rejects", {}).items()]  # fmt: skip
    return sorted(found, key=lambda row: -row[2])


def _stages(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pipeline drawn twice: from left to right, and from above for a narrow screen."""
    try:
        ends = dag.lines(read_yaml(PIPELINE), "report")
    except (YamlInvalid, OSError) as error:
        raise StageError(f"{PIPELINE}: {error}. Run from the repository root, as dvc does.") from None
    one = dag.picture(ends)
    return [_drawn(one, metrics, wide) for wide in (True, False)]


def _drawn(one: dag.Picture, metrics: Mapping[str, Any], wide: bool) -> dict[str, Any]:
    (width, height), (across, down) = BOX, GAP
    step = (width + across, height + down)

    def place(stage: str) -> tuple[float, float]:
        column, row = one.spots[stage]
        return (column * step[0], row * step[1]) if wide else (row * step[0], column * step[1])

    boxes = [{"stage": stage, "x": place(stage)[0], "y": place(stage)[1], "counts": metrics.get(stage),
              "known": stage in STAGES}
             for stage in one.spots]  # fmt: skip
    lines = [_line(place(a), place(b), wide) for a, b in one.lines]
    columns, rows = (one.columns, one.rows) if wide else (one.rows, one.columns)
    size = (columns * step[0] - across, rows * step[1] - down)
    return {"wide": wide, "boxes": boxes, "lines": lines, "width": size[0], "height": size[1], "box": BOX}


def _line(start: tuple[float, float], end: tuple[float, float], wide: bool) -> str:
    """Straight along its own row, and over to the other's between the last two columns: no box lies in its way."""
    width, height = BOX
    if wide:
        x1, y1, x2, y2 = start[0] + width, start[1] + height / 2, end[0], end[1] + height / 2
        bend = x2 - GAP[0] / 2
        return f"M{x1} {y1}H{x2 - GAP[0]}C{bend} {y1} {bend} {y2} {x2} {y2}"
    x1, y1, x2, y2 = start[0] + width / 2, start[1] + height, end[0] + width / 2, end[1]
    bend = y2 - GAP[1] / 2
    return f"M{x1} {y1}V{y2 - GAP[1]}C{x1} {bend} {x2} {bend} {x2} {y2}"


def _estimates(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The estimates of a metrics tree, each with where it stands."""
    if not isinstance(tree, dict):
        return
    if {"mean", "low", "high"} <= tree.keys():
        yield path, tree
        return
    for key, value in tree.items():
        yield from _estimates(value, (*path, str(key)))


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else _figure(value)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _figure(value: Any) -> str:
    """A number as a reader wants it; anything else as text."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) and abs(value) >= 1 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
