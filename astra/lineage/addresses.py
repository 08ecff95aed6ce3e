"""The names of records that have no id of their own."""

from __future__ import annotations

from astra.records import Edge, Rollout, Sample, ToolGraph


def rollout_address(one: Rollout) -> str:
    return f"rollout:{one.arena_id}:{one.update}:{one.sample}"


def sample_address(one: Sample) -> str:
    return f"sample:{one.model}:{one.benchmark}:{one.case}:{one.trial}:{one.mode}"


def edge_address(graph: ToolGraph, edge: Edge) -> str:
    return f"{graph.id}:{edge.source}>{edge.target}"
