"""Raw tool documents in, servers with clean tools out. One file a format; no two of them claim one document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from astra.formats import mcp, openai, openapi, rapidapi, release
from astra.formats.document import FoundServer, Problem


class Reader(Protocol):
    """What a format's module offers."""

    def recognises(self, document: Any) -> bool:
        """Whether a parsed document is of this format; never raises."""
        ...

    def servers(self, document: Any, uri: str, max_ref_depth: int) -> Iterator[FoundServer]:
        """The servers of a document that is recognised. Bad tools are problems of their server; never raises."""
        ...


READERS: dict[str, Reader] = {"mcp": mcp, "openai": openai, "openapi": openapi, "rapidapi": rapidapi, "astra": release}


class UnknownFormat(Exception):
    """No reader claims a document. The message names the readers that there are."""


def format_of(document: Any) -> str:
    """The key of the reader that claims a document. Raises UnknownFormat."""
    for name, reader in READERS.items():
        if reader.recognises(document):
            return name
    raise UnknownFormat(f"no reader recognises it; readers: {', '.join(READERS)}")


__all__ = ["READERS", "FoundServer", "Problem", "Reader", "UnknownFormat", "format_of"]
