"""Graph and chains against their limits: many servers, a dense server, and the listing of every walk.

Three cases, each in a process of its own on one core, with the built-in teacher, through the real stages:

1. 20,000 tools of 2,000 seeded servers: the whole graph stage (with edges across servers, GraphML and pictures), then
   the walks and the gate by schemas. Limit: 180 s.
2. One server of 50 tools that all feed each other: both stages. Limits: 5 s, 200 MiB. Beside it, how many walks there
   are, which is counted and not listed.
3. One server of 12 tools that feed four others each: both stages, beside the plain way: list every walk, and write
   each with its server and graph.

    python -m bench.graph
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from astra.records import Server, Source, ToolGraph, ToolSpec
from astra.stage import read_records, write_records

SEED, SERVERS, TOOLS = 17, 2000, 10
LIMITS = {"many": {"seconds": 180.0, "cpu_s": 180.0}, "dense": {"seconds": 5.0, "mib": 200.0}}
TEXT = {"type": "string"}
Figures = dict[str, Any]


# ---------------------------------------------------------------- synthetic servers


KINDS = ("bake", "berth", "claim", "clinic", "crate", "ferry", "field", "grant", "guest", "kiln", "lamp", "lease")
SORTS = ("order", "visit", "report", "ticket", "plan", "record", "permit", "slot", "batch", "offer", "file", "log")
THINGS = [kind + sort for kind in KINDS for sort in SORTS]
SHARED: dict[str, dict[str, Any]] = {
    "city": TEXT | {"description": "The city, by name."},
    "contact_email": TEXT | {"format": "email", "description": "Where to write to."},
    "currency_code": TEXT | {"description": "Three letters of a currency."},
    "departure_day": TEXT | {"format": "date", "description": "The day, as year-month-day."},
    "urgency": TEXT | {"enum": ["low", "normal", "high"], "description": "How soon it is needed."},
    "weight_kg": {"type": "number", "description": "The weight in kilograms."},
}


def objects(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def server(number: int) -> Server:
    """Ten tools about two or three things: found, opened, changed, priced and closed, with values that all know."""
    rng = random.Random(f"{SEED}:{number}")
    things = rng.sample(THINGS, 3)
    tools: list[ToolSpec] = []
    for thing in things:
        key, shared = f"{thing}_id", rng.sample(sorted(SHARED), 4)
        some, more = ({name: SHARED[name] for name in half} for half in (shared[:2], shared[2:]))
        item = {key: TEXT | {"description": f"Names one {thing}."}, **more, "title": TEXT, "state": TEXT}
        listed = {f"{thing}s": {"type": "array", "items": objects(item)}}
        tools += [
            tool(f"find_{thing}s", f"Find the {thing}s that fit.", some, listed),
            tool(f"open_{thing}", f"Open a new {thing}.", {**more, "title": TEXT}, {key: item[key], **some}),
            tool(f"get_{thing}", f"Get all about one {thing}.", {key: item[key]}, item),
            tool(f"close_{thing}", f"Close the {thing} for good.", {key: item[key], "note": TEXT}, {"closed_on": TEXT}),
        ]
    name = f"{things[0]}-desk-{number}"
    return Server(
        id=f"server-{number:012x}", name=name, title=name, description=f"All about {', '.join(things)}.", domain="made",
        tools=tuple(tools[:TOOLS]), source=Source(format="made", uri="bench", revision=str(SEED), licence="Apache-2.0"),
    )  # fmt: skip


def tool(name: str, description: str, takes: dict[str, Any], gives: dict[str, Any]) -> ToolSpec:
    return ToolSpec(name=name, description=description, parameters=objects(takes), returns=objects(gives))


def ring(n_tools: int, out_degree: int) -> Server:
    """Tools in a ring, each of which feeds the ``out_degree`` that follow it."""
    parts = [f"part_{n}" for n in range(n_tools)]
    tools = tuple(
        tool(
            f"make_{n}_things", f"Make thing {n}.", {parts[n]: TEXT},
            {parts[(n + step) % n_tools]: TEXT for step in range(1, out_degree + 1)},
        )
        for n in range(n_tools)
    )  # fmt: skip
    return server(0).model_copy(update={"tools": tools, "name": f"ring-{n_tools}-{out_degree}"})


# ---------------------------------------------------------------- measuring


def peak_mib() -> float:
    """The most memory that this process has held."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


@contextlib.contextmanager
def workspace(servers: Sequence[Server], params: dict[str, dict[str, Any]]) -> Iterator[Path]:
    """A folder with these servers as normalize leaves them, and the committed params with changes."""
    committed = yaml.safe_load(Path("params.yaml").read_text())
    for section, changes in params.items():
        committed[section] |= changes
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("params.yaml").write_text(yaml.safe_dump(committed))
        write_records("data/normalize/servers.jsonl", servers)
        yield Path(folder)


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return round(time.perf_counter() - started, 2)


def written_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# ---------------------------------------------------------------- the cases


def many() -> Figures:
    from astra.toolgraph.walks import Network
    from stages import chains, graph

    with workspace([server(n) for n in range(SERVERS)], {"graph": {"cross_server": 3}, "chains": {"budget_of": {}}}):
        graph_s = seconds_of(graph.main)
        started = time.perf_counter()
        servers = {one.id: one for one in read_records("data/normalize/servers.jsonl", Server)}
        graphs = list(read_records("data/graph/graphs.jsonl", ToolGraph))
        params = chains.Params(**yaml.safe_load(Path("params.yaml").read_text())["chains"])
        net = Network(graphs, servers.values())
        walks = list(chains.walked(net, graphs, servers, params, SEED))
        gated = chains.through_schemas(walks, servers, net)
        gate_s = time.perf_counter() - started
        return {
            "tools": sum(len(one.tools) for one in servers.values()),
            "edges": net.n_edges,
            "edges_across": sum(edge.target_server_id is not None for one in graphs for edge in one.edges),
            "graph_s": round(graph_s, 1),
            "walks": len(walks),
            "passed_schemas": len(gated.kept),
            "coverage": net.coverage(walk.nodes for walk in walks),
            "walks_and_gate_s": round(gate_s, 1),
            "seconds": round(graph_s + gate_s, 1),
            "cpu_s": round(time.process_time(), 1),
            "mib": round(peak_mib()),
        }


def dense() -> Figures:
    return both_stages(ring(50, 49), budget=64) | {"all_walks": count_walks(50, 49)}


def sampled() -> Figures:
    return both_stages(ring(12, 4), budget=64)


def both_stages(one: Server, budget: int) -> Figures:
    from stages import chains, graph

    with workspace([one], {"chains": {"budget": budget, "budget_of": {}, "max_length": 5}}) as folder:
        seconds = seconds_of(graph.main) + seconds_of(chains.main)
        metrics = json.loads(Path("metrics/chains.json").read_text())
        return {
            "edges": json.loads(Path("metrics/graph.json").read_text())["edges"],
            "walks": metrics["in"],
            "chains": metrics["out"],
            "coverage": metrics["coverage"]["walked"],
            "output_mb": round((written_bytes(folder / "data/graph") + written_bytes(folder / "data/chains")) / 1e6, 2),
            "seconds": round(seconds, 1),
            "mib": round(peak_mib()),
        }


def count_walks(n_tools: int, out_degree: int, longest: int = 5) -> int:
    """How many walks of two to ``longest`` tools there are where every tool feeds ``out_degree`` others."""
    return sum(n_tools * out_degree**steps for steps in range(1, longest))


def listed() -> Figures:
    """The plain way: every walk of two to five tools depth-first, one row each with its server and its graph."""
    one = ring(12, 4)
    follows = {n: [(n + step) % 12 for step in range(1, 5)] for n in range(12)}
    names = [tool.name for tool in one.tools]
    shown = {"server": one.model_dump(), "graph": {names[n]: [names[m] for m in ways] for n, ways in follows.items()}}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        rows = [
            json.loads(json.dumps(shown | {"chain": [names[n] for n in walk]}))
            for start in follows
            for walk in every_walk([start], follows)
        ]
        out = Path(folder) / "rows.jsonl"
        out.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {
            "walks": len(rows),
            "chains": len(rows),
            "output_mb": round(out.stat().st_size / 1e6, 2),
            "seconds": round(time.perf_counter() - started, 1),
            "mib": round(peak_mib()),
        }


def every_walk(walk: list[int], follows: dict[int, list[int]]) -> Iterator[list[int]]:
    if len(walk) > 1:
        yield walk
    if len(walk) < 5:
        for node in follows[walk[-1]]:
            yield from every_walk([*walk, node], follows)


CASES: dict[str, Callable[[], Figures]] = {"many": many, "dense": dense, "sampled": sampled, "listed": listed}


def child(name: str, answer: Any) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        answer.send(CASES[name]())


def measured(name: str) -> Figures:
    """The figures of a case, from a process of its own."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(name, there))
    process.start()
    there.close()
    try:
        found: Figures = here.recv()
    finally:
        process.join()
    return found


def table(found: dict[str, Figures]) -> Iterator[str]:
    """What was measured, one line a figure, beside its limit."""
    for case, figures in found.items():
        yield case
        for key, figure in figures.items():
            limit = LIMITS.get(case, {}).get(key)
            beside = f"   limit {limit:g}, {figure / limit:.0%} of it" if limit else ""
            yield f"  {key:<24}{figure:>16,}{beside}" if isinstance(figure, int | float) else f"  {key:<24}{figure}"


def main() -> None:
    for name in CASES:
        print("\n".join(table({name: measured(name)})), flush=True)


if __name__ == "__main__":
    main()
