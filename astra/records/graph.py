"""Which tool can feed which (``graph``), and the verified walks over that (``chains``)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.records.base import Record


class Link(Record):
    """One way a value gets from a result into a parameter."""

    output: str = Field(description="Path in the source's result, e.g. flights[].id.")
    parameter: str = Field(description="Required parameter of the target that it can fill.")
    why: str = Field(description="What matched: name, type, format, enum.")


class Edge(Record):
    """Evidence that one tool's result is useful to another."""

    source: str
    target: str
    via: tuple[Link, ...] = Field(description="Structural evidence; empty where only a model proposed the edge.")
    votes_for: int = Field(ge=0, description="Accepted proposals that hold this transition.")
    votes: int = Field(ge=0, description="Proposals asked for.")

    @property
    def weight(self) -> float:
        """Walk weight: proposals count one each, structural support counts one (paper section 3.1, w)."""
        return self.votes_for + (1.0 if self.via else 0.0)


class ToolGraph(Record):
    """The weighted directed graph of one server's tools."""

    id: str
    server_id: str
    edges: tuple[Edge, ...]


class Binding(Record):
    """Where a required argument of a chain's step comes from."""

    step: int = Field(ge=0)
    parameter: str
    origin: Literal["user", "result"]
    from_step: int | None = Field(default=None, description="Earlier step, where origin is result.")
    output: str | None = Field(default=None, description="Path in that step's result.")


class Chain(Record):
    """An ordered walk over tools in which every required argument has a source."""

    id: str
    server_ids: tuple[str, ...]
    tools: tuple[str, ...] = Field(min_length=1)
    bindings: tuple[Binding, ...]
    support: float = Field(description="Product of the walked edges' weights, each divided by its source's total.")
    checks: dict[str, str] = Field(description="Gate name -> what it found; a chain that fails one is a reject.")
