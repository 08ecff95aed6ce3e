"""Which tool can feed which (``graph``), and the verified walks over that (``chains``)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.records.base import Record


class Link(Record):
    """One way a value gets from a result into a parameter."""

    output: str = Field(description="Path in the source's result, e.g. flights[].id.")
    parameter: str = Field(description="Required parameter of the target that it can fill.")
    evidence: dict[str, float] = Field(
        description="What counted, and how much: name, format, enum, type, similarity (of what is said about the two)."
    )

    @property
    def score(self) -> float:
        """All evidence together."""
        return round(sum(self.evidence.values()), 4)


class Edge(Record):
    """Evidence that one tool's result is useful to another."""

    source: str
    target: str
    via: tuple[Link, ...] = Field(description="Structural evidence; empty where only a model proposed the edge.")
    votes_for: int = Field(ge=0, description="Accepted proposals that hold this transition.")
    votes: int = Field(ge=0, description="All accepted proposals for the server.")
    target_server_id: str | None = Field(default=None, description="Server of the target where it is another one.")

    @property
    def prior(self) -> float:
        """Structural support: the best link's score, at most 1."""
        return min(1.0, max((link.score for link in self.via), default=0.0))

    @property
    def weight(self) -> float:
        """Walk weight: proposals count one each (paper section 3.1, w), structural support at most one."""
        return self.votes_for + self.prior


class ToolGraph(Record):
    """The weighted directed graph of one server's tools, with the edges that lead from them to other servers."""

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
    server_ids: tuple[str, ...] = Field(description="Its servers, in the order of first use.")
    tools: tuple[str, ...] = Field(min_length=1, description="In order; each is offered by exactly one of the servers.")
    bindings: tuple[Binding, ...]
    support: float = Field(description="Product of the walked edges' weights, each divided by its source's total.")
    checks: dict[str, str] = Field(description="Gate name -> what it found; a chain that fails one is a reject.")
