"""What a run came to, in one screen of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from astra.report.reading import STAGES, Numbers

HEAD = ("stage", "in", "out", "rejected", "time", "calls", "USD", "rejected most")


def durations(ends: Mapping[str, float], since: float) -> dict[str, float]:
    """Seconds that each stage took which ended after ``since``: from the end of the one before it."""
    took: dict[str, float] = {}
    before = since
    for stage, end in sorted(ends.items(), key=lambda one: one[1]):
        if end >= since:
            took[stage] = end - before
            before = end
    return took


def summary(found: Numbers, took: Mapping[str, float], report: Path) -> str:
    """A table of the stages, and the headline results."""
    timed = bool(took)
    rows = [_row(stage, found.metrics[stage], took.get(stage), timed) for stage in STAGES if stage in found.metrics]
    lines = [*_table([HEAD, *rows]), *_missing(found.metrics), *_totals(found.metrics, took)]
    measured = list(_measured(found.curves.get("eval", [])))
    if measured:
        lines += ["", "measured (first measure of each benchmark, 95 % interval)", *measured]
    if (report / "index.html").is_file():
        lines += ["", f"to look at everything: {report / 'index.html'}"]
    return "\n".join(lines)


def _row(stage: str, one: Mapping[str, Any], seconds: float | None, timed: bool) -> tuple[str, ...]:
    used = one.get("models", {}).values()
    priced = [role for role in used if "cost_usd" in role]
    calls = f"{sum(role['calls'] for role in priced):,}" if priced else ""
    usd = f"{sum(role['cost_usd'] for role in priced):.2f}" if priced else ""
    time = "" if not timed else _time(seconds) if seconds is not None else "not run"
    worst = sorted(one.get("rejects", {}).items(), key=lambda reason: -reason[1])[:2]
    why = ", ".join(f"{reason} {count:,}" for reason, count in worst)
    return stage, f"{one['in']:,}", f"{one['out']:,}", f"{one['rejected']:,}", time, calls, usd, why


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    used = [n for n, _ in enumerate(rows[0]) if any(row[n] for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in used}
    for row in rows:
        cells = [row[n].ljust(widths[n]) if n in (0, len(row) - 1) else row[n].rjust(widths[n]) for n in used]
        yield "  ".join(cells).rstrip()


def _missing(metrics: Mapping[str, Any]) -> Iterator[str]:
    missing = [stage for stage in STAGES if stage not in metrics]
    if missing:
        yield f"not run: {', '.join(missing)}"


def _totals(metrics: Mapping[str, Any], took: Mapping[str, float]) -> Iterator[str]:
    roles = [role for one in metrics.values() for role in one.get("models", {}).values() if "cost_usd" in role]
    parts = [
        f"{sum(role['calls'] for role in roles):,} calls ({sum(role['cached'] for role in roles):,} kept)",
        f"{sum(role['prompt_tokens'] + role['completion_tokens'] for role in roles):,} tokens",
        f"{sum(role['cost_usd'] for role in roles):.2f} USD",
    ]
    if took:
        parts.append(f"{_time(sum(took.values()))} for {len(took)} stages")
    yield "in all: " + ", ".join(parts)


def _measured(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line a benchmark and mode, all models in it."""
    first = {row["benchmark"]: row["measure"] for row in reversed(rows)}
    lines: dict[str, list[str]] = {}
    for row in rows:
        if row["measure"] == first[row["benchmark"]]:
            value = f"{row['model']} {row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            lines.setdefault(f"{row['benchmark']}, {row['mode']}: {row['measure']}", []).append(value)
    width = max((len(name) for name in lines), default=0)
    for name, values in lines.items():
        yield f"  {name.ljust(width)}  {'  '.join(values)}"
