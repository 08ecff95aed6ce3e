"""What a reader finds in a document: servers with clean tools, and for all else a reason and a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from astra.formats.names import LEGAL, legal_names
from astra.formats.parsing import BadLine, depth
from astra.formats.schema import Cleaned, SchemaInvalid, clean, clean_parameters
from astra.records import ToolSpec, canonical

MAX_NESTING = 200  # of a tool's schemas with their defaults and examples; a record of 255 cannot be written
TOO_DEEP = f"its schema is nested more than {MAX_NESTING} deep: flatten it"


PARAMETERS = ("parameters", "inputSchema", "input_schema")
RETURNS = ("outputSchema", "output_schema", "returns", "response")


class Problem(NamedTuple):
    """A tool that could not be read: a short stable reason, a JSON pointer into the document, what was met there."""

    reason: str
    pointer: str
    detail: str


@dataclass(frozen=True)
class Draft:
    """A tool as its document states it, at ``pointer``; nothing in it is trusted yet."""

    pointer: str
    wire_name: Any
    description: Any = None
    parameters: Any = None
    returns: Any = None
    label: str | None = None
    """What to make the legal name of, where that is not the wire name."""
    places: Mapping[str, str] | None = None
    """Pointers of ``parameters`` and ``returns`` below ``pointer``."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundServer:
    """One server of a document. ``domain`` and ``licence`` only where the document names them."""

    name: str
    title: str
    description: str
    domain: str | None
    licence: str | None
    tools: tuple[ToolSpec, ...]
    problems: tuple[Problem, ...]


class Tools(NamedTuple):
    tools: tuple[ToolSpec, ...]
    problems: tuple[Problem, ...]


def tools_of(drafts: Iterable[Draft | Problem], root: Any, max_ref_depth: int) -> Tools:
    """Clean, uniquely named tools in the document's order; a draft that gives none is a problem of its own."""
    problems: list[Problem] = []
    named: dict[str, tuple[Draft, ToolSpec]] = {}
    for draft in drafts:
        if isinstance(draft, Problem):
            problems.append(draft)
            continue
        try:
            wire_name, tool = _tool(draft, root, max_ref_depth)
        except _Unusable as error:
            problems.append(error.problem)
            continue
        except RecursionError:
            problems.append(Problem("bad_schema", draft.pointer, TOO_DEEP))
            continue
        if wire_name in named:
            problems.append(
                Problem("duplicate_name", draft.pointer, f"{wire_name!r} is taken by {named[wire_name][0].pointer}")
            )
            continue
        named[wire_name] = (draft, tool)
    wanted = [draft.label or wire_name for wire_name, (draft, _) in named.items()]
    names = legal_names(wanted) if len(set(wanted)) == len(wanted) else legal_names(list(named))
    tools = [
        tool.model_copy(update={"name": name, "wire_name": wire_name if wire_name != name else None})
        for name, (wire_name, (_, tool)) in zip(names, named.items(), strict=True)
    ]
    return Tools(tuple(tools), tuple(problems))


class _Unusable(Exception):
    def __init__(self, reason: str, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(reason, pointer, detail)


def _tool(draft: Draft, root: Any, max_ref_depth: int) -> tuple[str, ToolSpec]:
    """The wire name, and the tool under a name that is still to be chosen."""
    name = draft.wire_name
    if name is None or (isinstance(name, str) and not name.strip()):
        raise _Unusable("empty_name", draft.pointer, f"the tool has no name (got {name!r})")
    if not isinstance(name, str):
        raise _Unusable("bad_name", draft.pointer, f"a name must be text, not {canonical(name)[:80]}")
    places = draft.places or {}
    parameters = _cleaned(draft, draft.parameters, root, max_ref_depth, places.get("parameters", "/parameters"))
    returns, notes = None, (*draft.notes, *parameters.notes)
    if draft.returns is not None:
        cleaned = _returns(draft, root, max_ref_depth, places.get("returns", "/returns"))
        returns, notes = cleaned.schema or None, (*notes, *cleaned.notes)
    description = one_text(draft.description)
    if not description:
        notes = ("no_description", *notes)
    tool = ToolSpec(name="unnamed", description=description, parameters=parameters.schema, returns=returns, notes=notes)
    if max(depth(tool.parameters), depth(tool.returns)) > MAX_NESTING:
        raise _Unusable("bad_schema", draft.pointer, TOO_DEEP)
    if not _is_unicode(name, tool):
        raise _Unusable("bad_text", draft.pointer, "the text holds half a surrogate pair, which no UTF-8 file can hold")
    return name, tool


def _cleaned(draft: Draft, schema: Any, root: Any, max_ref_depth: int, place: str) -> Cleaned:
    try:
        return clean_parameters(schema, root, max_ref_depth)
    except SchemaInvalid as error:
        raise _Unusable("bad_schema", draft.pointer + place + error.pointer, str(error)) from None


def _returns(draft: Draft, root: Any, max_ref_depth: int, place: str) -> Cleaned:
    """The result's schema; one that cannot be read costs the tool its ``returns``, not its place."""
    try:
        cleaned = clean(draft.returns, root, max_ref_depth)
    except SchemaInvalid as error:
        return Cleaned({}, (f"bad_returns {place + error.pointer} ({error})",))
    return Cleaned(cleaned.schema, tuple(_marked(note, "returns") for note in cleaned.notes))


def _marked(note: str, where: str) -> str:
    what, _, rest = note.partition(" ")
    return f"{what} {where}:{rest}"


def _is_unicode(name: str, tool: ToolSpec) -> bool:
    try:
        name.encode()
        tool.model_dump_json()
    except ValueError:
        return False
    return True


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def listing(document: Any) -> list[tuple[str, Any]]:
    """The entries of a document with their pointers; a single one may stand alone."""
    if isinstance(document, list):
        return [(f"/{index}", one) for index, one in enumerate(document)]
    return [("", document)]


def first_of(one: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The first of some keys that an object has: documents spell ``inputSchema`` in several ways. Else the first."""
    return next((key for key in keys if one.get(key) is not None), next((key for key in keys if key in one), keys[0]))


def no_object(value: Any, pointer: str, wanted: str) -> Problem:
    """The problem of something that is not the object which should stand there."""
    if isinstance(value, BadLine):
        return Problem("unreadable", pointer, value.detail)
    return Problem("bad_tool", pointer, f"{wanted} must be an object, not {_named(value)}")


def _named(value: Any) -> str:
    return f"one with the keys {', '.join(map(str, value))[:80]}" if isinstance(value, dict) else type(value).__name__


def no_server(uri: str, problem: Problem) -> FoundServer:
    """The place of a server in a document that holds several, where none can be read."""
    name = server_name(None, uri)
    return FoundServer(name, name, "", None, None, (), (problem,))


def one_text(value: Any) -> str:
    """A description as one trimmed text; empty for anything that is not text."""
    return value.strip() if isinstance(value, str) else ""


def text_or_none(value: Any) -> str | None:
    return one_text(value) or None


def stem(uri: str) -> str:
    """``data/raw/tools/ferry.mcp.json`` -> ``ferry``."""
    return uri.rpartition("/")[2].partition(".")[0]


def server_name(title: Any, uri: str) -> str:
    """A legal server name from the document's own, or from its file's."""
    wanted = one_text(title) or stem(uri)
    return wanted if LEGAL.match(wanted) else legal_names([wanted])[0]
