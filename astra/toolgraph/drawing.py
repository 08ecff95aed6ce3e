"""Tool graphs for other programs and for eyes: GraphML, and one SVG picture for each server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from astra.records import Edge, Server, ToolGraph

MOST_EDGES = 300  # of one picture; the heaviest are drawn
COLUMN, ROW, HEIGHT, LETTER, MARGIN, BULGE, SAG = 90, 44, 26, 7, 20, 40, 60
STYLE = (
    "text{font:12px sans-serif;fill:#222}.tool{fill:#eef3fb;stroke:#5b7db1}.far{fill:#fbf3e6;stroke:#b1885b}"
    "path{fill:none}.both{stroke:#1f4e8c}.schema{stroke:#8a8f98}.model{stroke:#c26a1b;stroke-dasharray:5 3}"
)
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = re.compile(r'[<>&"]|' + _NOT_XML.pattern)


def xml_text(text: str) -> str:
    """The text without the characters that XML cannot hold."""
    return _NOT_XML.sub("", text)


# ---------------------------------------------------------------- GraphML


OF_NODES = {"tool": "string", "server": "string", "domain": "string"}
OF_EDGES = {
    "weight": "double", "votes_for": "int", "votes": "int", "prior": "double", "via": "string",
    "name": "double", "format": "double", "enum": "double", "type": "double", "similarity": "double",
}  # fmt: skip


def graphml(graphs: Sequence[ToolGraph], servers: Mapping[str, Server]) -> Iterator[str]:
    """One GraphML document with all graphs, in lines: nodes are ``<server id>/<tool>``, edges have their evidence."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    for of, keys in (("node", OF_NODES), ("edge", OF_EDGES)):
        for key, kind in keys.items():
            yield f'<key id="{of}_{key}" for="{of}" attr.name="{key}" attr.type="{kind}"/>\n'
    yield '<graph edgedefault="directed">\n'
    ends = ((end, edge) for graph in graphs for edge in graph.edges for end in _ends(graph, edge))
    for server_id, tool in dict.fromkeys(end for end, _ in ends):
        server = servers[server_id]
        about = {"tool": tool, "server": server.name, "domain": server.domain}
        yield f'<node id="{_quoted(f"{server_id}/{tool}")}">{_data("node", about)}</node>\n'
    for graph in graphs:
        for edge in graph.edges:
            source, target = (_quoted("/".join(end)) for end in _ends(graph, edge))
            yield f'<edge source="{source}" target="{target}">{_data("edge", _attributes(edge))}</edge>\n'
    yield "</graph>\n</graphml>\n"


def _ends(graph: ToolGraph, edge: Edge) -> tuple[tuple[str, str], tuple[str, str]]:
    return (graph.server_id, edge.source), (edge.target_server_id or graph.server_id, edge.target)


def _quoted(value: Any) -> str:
    text = str(value)
    return escape(xml_text(text), {'"': "&quot;"}) if _SPECIAL.search(text) else text


def _data(of: str, values: Mapping[str, Any]) -> str:
    return "".join(f'<data key="{of}_{key}">{_quoted(value)}</data>' for key, value in values.items())


def _attributes(edge: Edge) -> dict[str, Any]:
    """Votes and weights of an edge, and of each kind of evidence the most that a link has."""
    amounts: dict[str, float] = {}
    for link in edge.via:
        for kind, amount in link.evidence.items():
            amounts[kind] = max(amount, amounts.get(kind, 0.0))
    via = "; ".join(f"{link.output} -> {link.parameter}" for link in edge.via)
    return {
        "weight": round(edge.weight, 4), "votes_for": edge.votes_for, "votes": edge.votes,
        "prior": round(edge.prior, 4), "via": via, **amounts,
    }  # fmt: skip


# ---------------------------------------------------------------- SVG


class Box(NamedTuple):
    """A tool in the picture."""

    x: int
    y: int
    width: int
    label: str
    near: bool  # of the server whose picture it is


def svg(graph: ToolGraph, servers: Mapping[str, Server], most: int = MOST_EDGES) -> str:
    """The picture of one graph: tools from left to right as values flow, edges as heavy as their evidence."""
    edges = sorted(graph.edges, key=lambda edge: -edge.weight)[:most]
    ends = [(edge.source, _label(edge, servers)) for edge in edges]
    boxes = placed([(a, b) for a, b in ends], {edge.source for edge in edges} | _own(edges))
    width = max(box.x + box.width for box in boxes.values()) + MARGIN
    height = max(box.y for box in boxes.values()) + HEIGHT + SAG // 2 + 2 * MARGIN
    title = f"{servers[graph.server_id].title}: {len(edges)} of {len(graph.edges)} edges"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f"<title>{escape(xml_text(title))}</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#555"/></marker></defs>',
        *(_curve(edge, boxes[a], boxes[b]) for edge, (a, b) in zip(edges, ends, strict=True)),
        *(_shape(box) for box in boxes.values()),
        f'<text x="{MARGIN}" y="{height - 8}">{escape(xml_text(title))}; blue: schema and model, grey: schema, '
        "dashed: model</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _label(edge: Edge, servers: Mapping[str, Server]) -> str:
    if edge.target_server_id is None:
        return edge.target
    return f"{servers[edge.target_server_id].name}/{edge.target}"


def _own(edges: Iterable[Edge]) -> set[str]:
    return {edge.target for edge in edges if edge.target_server_id is None}


def placed(ends: Sequence[tuple[str, str]], own: set[str]) -> dict[str, Box]:
    """Where each tool stands: one column after those that feed it, beside those that it is tied to."""
    columns = layers(ends)
    boxes: dict[str, Box] = {}
    x = MARGIN
    for column in columns:
        fed_by = {name: [boxes[a].y for a, b in ends if b == name and a in boxes] for name in column}
        rows = sorted(column, key=lambda name: (sum(fed_by[name]) / max(1, len(fed_by[name])), name))
        widest = max(len(name) for name in column) * LETTER + 16
        for row, name in enumerate(rows):
            boxes[name] = Box(x, MARGIN + row * ROW, len(name) * LETTER + 16, name, name in own)
        x += widest + COLUMN
    return boxes


def layers(ends: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The tools in columns, so that few edges lead backwards."""
    order = {name: place for place, name in enumerate(ordered(ends))}
    column = dict.fromkeys(order, 0)
    forward: dict[str, list[str]] = {name: [] for name in order}
    for a, b in ends:
        if order[a] < order[b]:
            forward[a].append(b)
    for name in order:
        for later in forward[name]:
            column[later] = max(column[later], column[name] + 1)
    return [[name for name in order if column[name] == n] for n in range(max(column.values()) + 1)]


def ordered(ends: Sequence[tuple[str, str]]) -> list[str]:
    """The tools in an order with few edges backwards: the greedy heuristic of Eades, Lin and Smyth (1993).

    What feeds nothing goes last, what nothing feeds goes first, and in a tangle first what gives more than it takes.
    """
    left = dict.fromkeys(name for pair in ends for name in pair)
    gives: dict[str, set[str]] = {name: set() for name in left}
    takes: dict[str, set[str]] = {name: set() for name in left}
    for a, b in ends:
        gives[a].add(b)
        takes[b].add(a)
    first: list[str] = []
    last: list[str] = []
    while left:
        name = min(left, key=lambda one: (bool(gives[one]), bool(takes[one]), len(takes[one]) - len(gives[one]), one))
        (first if gives[name] else last).append(name)
        del left[name]
        for other in gives.pop(name):
            takes[other].discard(name)
        for other in takes.pop(name):
            gives[other].discard(name)
    return first + last[::-1]


def _curve(edge: Edge, source: Box, target: Box) -> str:
    kind = "both" if edge.via and edge.votes_for else "schema" if edge.via else "model"
    stroke = round(1 + min(3.0, edge.weight / 4), 1)
    what = "; ".join(f"{link.output} -> {link.parameter} ({link.score})" for link in edge.via)
    return (
        f'<path class="{kind}" stroke-width="{stroke}" marker-end="url(#end)" d="{_line(source, target)}">'
        f"<title>{escape(xml_text(f'{source.label} -> {target.label}: {edge.votes_for} votes; {what}'))}</title></path>"
    )


def _line(source: Box, target: Box) -> str:
    """From right to left side where the target stands further right; back from left to right; round in one column."""
    y1, y2 = source.y + HEIGHT // 2, target.y + HEIGHT // 2
    if target.x == source.x:
        x1, x2 = source.x + source.width, target.x + target.width
        return f"M{x1} {y1}C{x1 + BULGE} {y1} {x2 + BULGE} {y2} {x2} {y2}"
    if target.x > source.x:
        x1, x2 = source.x + source.width, target.x
        bend = max(BULGE, (x2 - x1) // 2)
    else:
        x1, x2 = source.x, target.x + target.width
        bend = -max(BULGE, (x1 - x2) // 2)
        y1, y2 = y1 + 5, y2 + 5  # beside what leads the other way
    sag = min(SAG, abs(x2 - x1) // 6) if y1 == y2 and abs(x2 - x1) > COLUMN + SAG else 0  # below the tools between
    return f"M{x1} {y1}C{x1 + bend} {y1 + sag} {x2 - bend} {y2 + sag} {x2} {y2}"


def _shape(box: Box) -> str:
    return (
        f'<rect class="{"tool" if box.near else "far"}" x="{box.x}" y="{box.y}" width="{box.width}" '
        f'height="{HEIGHT}" rx="5"/><text x="{box.x + 8}" y="{box.y + 17}">{escape(xml_text(box.label))}</text>'
    )
