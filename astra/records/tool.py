"""Tools and the servers that offer them (output of ``normalize``)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from astra.records.base import Record


class ToolSpec(Record):
    """One tool in OpenAI function form, with what it returns where its document says so."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$", description="What a model calls; unique within its server.")
    wire_name: str | None = Field(default=None, description="The name on the live server where it differs.")
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema 2020-12 of an object.")
    returns: dict[str, Any] | None = Field(default=None, description="JSON Schema of the result, where documented.")
    notes: tuple[str, ...] = Field(default=(), description="Warnings of normalize, e.g. truncated_recursion.")

    def openai(self) -> dict[str, Any]:
        """The tool as chat endpoints and chat templates take it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class Source(Record):
    """Where a server's document came from."""

    format: str = Field(description="Key of the reader, e.g. mcp, openai, openapi, mcp_live.")
    uri: str = Field(description="Repository-relative path, with #key where one file holds several.")
    revision: str = Field(description="sha256 of the document, or the package version of a live server.")
    licence: str


class Server(Record):
    """A group of tools that come from one place."""

    id: str
    name: str
    title: str
    description: str
    domain: str
    tools: tuple[ToolSpec, ...]
    source: Source
