"""OpenAI function lists, wrapped (``{"type": "function", "function": ...}``) or flat, as BFCL writes them too; also
those of other makers that say ``input_schema`` for ``parameters``.

A list; an object whose ``functions`` or ``tools`` is one, beside ``name``, ``title``, ``description``, ``domain`` and
``licence``; or records that hold such lists each (BFCL's cases keep theirs under ``function``, conversations under
``tools``), where a function that another record showed already is not a new one. The result's schema, which the OpenAI
form has no place for, is read from ``returns`` or ``response``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from astra.formats.document import (
    PARAMETERS,
    RETURNS,
    Draft,
    FoundServer,
    Problem,
    first_of,
    mapping,
    no_object,
    one_text,
    server_name,
    text_or_none,
    tools_of,
)
from astra.records import canonical

LISTS = ("functions", "tools", "function")


def recognises(document: Any) -> bool:
    keys = PARAMETERS if isinstance(document, list) else PARAMETERS[:1]  # MCP's tool list is an object
    return any(_is_function(one, keys) for _, one in _functions(document))


def servers(document: Any, uri: str, max_ref_depth: int) -> Iterator[FoundServer]:
    about = mapping(document)
    about = {} if _is_function(about) else about
    found = tools_of((_draft(one, pointer) for pointer, one in _functions(document)), document, max_ref_depth)
    name = server_name(about.get("name"), uri)
    yield FoundServer(
        name=name,
        title=one_text(about.get("title")) or name,
        description=one_text(about.get("description")),
        domain=text_or_none(about.get("domain")),
        licence=text_or_none(about.get("licence")),
        tools=found.tools,
        problems=found.problems,
    )


def _is_function(one: Any, keys: Iterable[str] = PARAMETERS) -> bool:
    return isinstance(one, dict) and (isinstance(one.get("function"), dict) or bool(one.keys() & set(keys)))


def _functions(document: Any) -> Iterator[tuple[str, Any]]:
    """What stands where a function should, with its pointer; nothing where the document has no such list."""
    if isinstance(document, dict):
        yield from _listed(document, "") if _list_key(document) else [("", document)] * _is_function(document)
    elif isinstance(document, list):
        if any(isinstance(one, dict) and _list_key(one) for one in document):
            yield from _of_records(document)
        else:
            yield from ((f"/{index}", one) for index, one in enumerate(document))


def _of_records(records: list[Any]) -> Iterator[tuple[str, Any]]:
    """The functions of all records, equal ones once."""
    known: set[str] = set()
    for index, record in enumerate(records):
        key = _list_key(record) if isinstance(record, dict) else None
        for pointer, one in _listed(record, f"/{index}") if key else [(f"/{index}", record)]:
            text = canonical(one) if isinstance(one, dict) else pointer
            if text not in known:
                known.add(text)
                yield pointer, one


def _list_key(record: dict[str, Any]) -> str | None:
    return next((key for key in LISTS if isinstance(record.get(key), list)), None)


def _listed(record: dict[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    key = _list_key(record)
    for index, one in enumerate(record[key] if key else ()):
        yield f"{place}/{key}/{index}", one


def _draft(one: Any, pointer: str) -> Draft | Problem:
    function, inner = (one["function"], "/function") if isinstance(one, dict) and "function" in one else (one, "")
    if not isinstance(function, dict):
        return no_object(function, pointer + inner, "a function")
    if inner and not function.keys() & set(PARAMETERS) and one.keys() & set(PARAMETERS):
        function, inner = {**one, **function}, ""  # what belongs inside stands beside it
    parameters, returns = first_of(function, PARAMETERS), first_of(function, RETURNS[::-1])
    return Draft(
        pointer=pointer,
        wire_name=function.get("name"),
        description=function.get("description"),
        parameters=function.get(parameters),
        returns=function.get(returns),
        places={"parameters": f"{inner}/{parameters}", "returns": f"{inner}/{returns}"},
    )
