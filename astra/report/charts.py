"""The pictures of a run as Vega-Lite, the language of ``dvc plots`` too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from astra.report.yields import LINES

Spec = dict[str, Any]
Row = Mapping[str, Any]

GOOD, BAD, ASIDE = "#3b7dd8", "#d9534f", "#9a8c4a"
BANDS = ("filled", "low", "medium", "high")


def flows(rows: Sequence[Row]) -> list[tuple[str, Spec]]:
    """One picture a line: a band that narrows from gate to gate, and what falls off it."""
    pictures = []
    for line in LINES.values():
        mine = [row for row in rows if row["line"] == line]
        if mine:
            pictures.append((line, _flow(mine)))
    return pictures


def _flow(rows: Sequence[Row]) -> Spec:
    n_gates = 1 + max(int(row["y"]) for row in rows if row["fate"] == "gate")
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, 2.06], "nice": False}}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"reverse": True, "domain": [-0.3, n_gates]}}
    fates = {"domain": ["passed", "rejected", "kept"], "range": [GOOD, BAD, ASIDE]}
    shape = {
        "transform": [{"filter": "datum.mark == 'area'"}],
        "mark": {"type": "area", "orient": "horizontal", "opacity": 0.55},
        "encoding": {
            "x": x,
            "x2": {"field": "x2"},
            "y": y,
            "detail": {"field": "ribbon"},
            "color": {"field": "fate", "type": "nominal", "scale": fates, "legend": None},
            "tooltip": {"field": "what", "title": "gate"},
        },
    }
    words = [_words(fate, x, y, weight) for fate, weight in (("gate", "bold"), ("fate", "normal"))]
    return _spec(rows, height=64 * n_gates, layer=[shape, *words])


def _words(fate: str, x: Spec, y: Spec, weight: str) -> Spec:
    return {
        "transform": [{"filter": f"datum.mark == 'text' && datum.fate == '{fate}'"}],
        "mark": {"type": "text", "align": "left", "baseline": "bottom", "dy": 0 if fate == "gate" else 13,
                 "fontWeight": weight},
        "encoding": {"x": x, "y": y, "text": {"field": "what"}},
    }  # fmt: skip


def benchmarks(rows: Iterable[Row]) -> list[tuple[str, Spec]]:
    """One picture a benchmark: its first measure for each model, with its interval."""
    sets: dict[str, list[Row]] = {}
    for row in rows:
        sets.setdefault(row["benchmark"], []).append(row)
    pictures = []
    for name, some in sets.items():
        measure = some[0]["measure"]
        mine = [row for row in some if row["measure"] == measure]
        pictures.append((f"{name}: {measure}", _intervals(mine, measure)))
    return pictures


def _intervals(rows: Sequence[Row], measure: str) -> Spec:
    models = list(dict.fromkeys(row["model"] for row in rows))
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    y: Spec = {"field": "model", "type": "nominal", "sort": models, "title": None}
    offset: Spec = {"yOffset": {"field": "mode", "sort": modes}} if len(modes) > 1 else {}
    top = max(1.0, *(row["high"] for row in rows))
    x: Spec = {"field": "mean", "type": "quantitative", "title": measure, "scale": {"domain": [0, top]}}
    color: Spec = {"field": "mode", "type": "nominal", "title": None, "sort": modes, "legend": {"orient": "bottom"}}
    told = [{"field": key} for key in ("model", "mode", "mean", "low", "high", "n")]
    bar: Spec = {
        "mark": {"type": "bar", "opacity": 0.75},
        "encoding": {"y": y, "x": x, "color": color, "tooltip": told, **offset},
    }
    rule: Spec = {
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {"y": y, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, **offset},
    }
    return _spec(rows, height=len(models) * (34 if len(modes) > 1 else 26), layer=[bar, rule])


def curve(rows: Sequence[Row], x: str, columns: Sequence[str], y_title: str) -> Spec:
    """Columns over x, one line each; a column that is not there is left out."""
    columns = [name for name in columns if name in rows[0]]
    points = [
        {x: row[x], "what": name, "value": row[name]}
        for row in rows
        for name in columns
        if isinstance(row.get(name), int | float)
    ]
    legend = {"orient": "bottom", "title": None} if len(columns) > 1 else None
    encoding = {
        "x": {"field": x, "type": "quantitative", "axis": {"tickMinStep": 1}},
        "y": {"field": "value", "type": "quantitative", "title": y_title, "scale": {"zero": False}},
        "color": {"field": "what", "type": "nominal", "sort": list(columns), "legend": legend},
        "tooltip": [{"field": x}, {"field": "what"}, {"field": "value", "format": ".4f"}],
    }
    return _spec(points, height=200, mark={"type": "line", "point": {"size": 12}}, encoding=encoding)


def studies(rows: Sequence[Row], first: Sequence[str]) -> list[tuple[str, Spec]]:
    """One picture a measure: the curves of a study over updates, each with its band over seeds; ``first`` go first."""
    measures = dict.fromkeys(row["measure"] for row in rows)
    ordered = [name for name in first if name in measures] + [name for name in measures if name not in first]
    return [(name, _banded([row for row in rows if row["measure"] == name], name)) for name in ordered]


def _banded(rows: Sequence[Row], measure: str) -> Spec:
    curves = list(dict.fromkeys(row["curve"] for row in rows))
    x = {"field": "update", "type": "quantitative"}
    scale = {"zero": False}
    color = {"field": "curve", "type": "nominal", "sort": curves, "legend": {"orient": "bottom", "title": None}}
    told = [{"field": key} for key in ("curve", "update", "mean", "low", "high", "seeds")]
    band: Spec = {
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
        "mark": {"type": "area", "opacity": 0.2},
        "encoding": {"x": x, "y": {"field": "low", "type": "quantitative", "title": measure, "scale": scale},
                     "y2": {"field": "high"}, "color": color},
    }  # fmt: skip
    line: Spec = {
        "mark": "line",
        "encoding": {"x": x, "y": {"field": "mean", "type": "quantitative", "scale": scale}, "color": color,
                     "tooltip": told},
    }  # fmt: skip
    return _spec(rows, height=200, layer=[band, line])


def histogram(counts: Mapping[str, int], title: str, order: Sequence[str] | None = None) -> Spec:
    """Counts of classes."""
    rows = [{"what": what, "count": count} for what, count in counts.items()]
    encoding = {
        "x": {"field": "count", "type": "quantitative", "title": title},
        "y": {"field": "what", "type": "nominal", "title": None, "sort": list(order) if order else "-x"},
        "tooltip": [{"field": "what"}, {"field": "count"}],
    }
    return _spec(rows, height=24 * len(rows), mark={"type": "bar", "opacity": 0.75, "color": GOOD}, encoding=encoding)


def _spec(rows: Iterable[Row], **parts: Any) -> Spec:
    return {"data": {"values": [dict(row) for row in rows]}, "width": "container", **parts}
