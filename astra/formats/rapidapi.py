"""RapidAPI hubs in the form of ToolBench: required and optional parameter lists, upper-case types, example responses.

One hub, a list of hubs, or ToolBench's instructions, where each query lists the APIs that it may use and each API names
its hub: those are gathered by hub, and an API that another query listed already is not a new one.

A tool's name is made as ToolBench makes it, ``<api>_for_<tool>``. Defaults are texts there: one that is no canonical
number or boolean of its type is dropped with a note rather than bent, and an empty one is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from astra.formats.defaults import NOTHING, fits, mended
from astra.formats.document import (
    Draft,
    FoundServer,
    Problem,
    listing,
    mapping,
    no_object,
    no_server,
    one_text,
    server_name,
    text_or_none,
    tools_of,
)
from astra.formats.keywords import listed
from astra.formats.names import slug
from astra.formats.schema import Schema, escape
from astra.formats.type_names import UnknownTypeName, named_type
from astra.records import canonical


def recognises(document: Any) -> bool:
    return any(_is_hub(one) for _, one in listing(document))


def servers(document: Any, uri: str, max_ref_depth: int) -> Iterator[FoundServer]:
    entries = listing(document)
    for place, hub in entries:
        if not _is_hub(hub):
            yield no_server(uri, no_object(hub, place, "a hub with an api_list"))
        elif not _is_query(hub):
            apis = [(f"{place}/api_list/{index}", api) for index, api in enumerate(hub["api_list"])]
            yield _server(hub, apis, uri, max_ref_depth)
    for hub, apis in _gathered([(place, hub) for place, hub in entries if _is_query(hub)]):
        yield _server(hub, apis, uri, max_ref_depth)


def _server(hub: dict[str, Any], apis: list[tuple[str, Any]], uri: str, max_ref_depth: int) -> FoundServer:
    title = one_text(hub.get("tool_name"))
    found = tools_of((_draft(api, title, pointer) for pointer, api in apis), hub, max_ref_depth)
    name = server_name(hub.get("standardized_name") or title.lower(), uri)
    return FoundServer(
        name=name,
        title=title or name,
        description=one_text(hub.get("tool_description")),
        domain=text_or_none(hub.get("category_name")),
        licence=text_or_none(hub.get("licence")),
        tools=found.tools,
        problems=found.problems,
    )


def _is_hub(one: Any) -> bool:
    return isinstance(mapping(one).get("api_list"), list)


def _is_query(one: Any) -> bool:
    """A hub without a name of its own, whose APIs name theirs."""
    if not _is_hub(one) or one_text(one.get("tool_name")):
        return False
    return any(one_text(mapping(api).get("tool_name")) for api in one["api_list"])


def _gathered(queries: list[tuple[str, Any]]) -> Iterator[tuple[dict[str, Any], list[tuple[str, Any]]]]:
    """The APIs of all queries by hub, equal ones once, in order of first appearance."""
    hubs: dict[str, dict[str, tuple[str, Any]]] = {}
    for place, query in queries:
        for index, api in enumerate(query["api_list"]):
            pointer = f"{place}/api_list/{index}"
            key = canonical(api) if isinstance(api, dict) else pointer
            hubs.setdefault(one_text(mapping(api).get("tool_name")), {}).setdefault(key, (pointer, api))
    for name, apis in hubs.items():
        first = mapping(next(iter(apis.values()))[1])
        yield {"tool_name": name, "category_name": first.get("category_name")}, list(apis.values())


def _draft(api: Any, title: str, pointer: str) -> Draft | Problem:
    if not isinstance(api, dict):
        return no_object(api, pointer, "an API")
    api_name = api.get("api_name", api.get("name"))
    notes: list[str] = []
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for key in ("required_parameters", "optional_parameters"):
        for index, one in enumerate(_listed(api.get(key))):
            at = f"/{key}/{index}"
            if not isinstance(one, dict) or not one_text(one.get("name")):
                notes.append(f"bad_parameter {at}")
            elif one["name"] in properties:
                notes.append(f"duplicate_param {at} ({one['name']})")
            else:
                properties[one["name"]] = _parameter(one, at, notes)
                required += [one["name"]] if key == "required_parameters" else []
    return Draft(
        pointer=pointer,
        wire_name=api_name,
        label=f"{slug(one_text(api_name))}_for_{slug(title)}".lower() if title and one_text(api_name) else None,
        description=api.get("api_description", api.get("description")),
        parameters={"type": "object", "properties": properties, "required": required},
        returns=_result(api),
        notes=tuple(notes),
    )


def _parameter(one: dict[str, Any], at: str, notes: list[str]) -> Schema:
    word = one_text(one.get("type"))
    try:
        schema = named_type(word) if word else {}
    except UnknownTypeName:
        notes.append(f"unknown_type {at}/type ({word})")
        schema = {}
    text = one_text(one.get("description"))
    if text:
        schema["description"] = text
    return schema | _default(one.get("default"), schema, f"{at}/default", notes)


def _default(value: Any, schema: Schema, at: str, notes: list[str]) -> Schema:
    """The default with its JSON type, or nothing. A text that spells its value is how hubs write defaults."""
    if value is None or value == "":
        return {}
    if fits(value, schema):
        return {"default": value}
    meant = mended(value, schema)
    shown = escape(json.dumps(value, ensure_ascii=False)[:40])
    if meant is NOTHING:
        notes.append(f"default_dropped {at} ({shown} is no {'/'.join(listed(schema.get('type', 'value')))})")
        return {}
    if not isinstance(value, str):
        notes.append(f"default_coerced {at} ({shown} read as text)")
    return {"default": meant}


def _result(api: dict[str, Any]) -> Any:
    """A stated schema, else what the example response shows."""
    schema = api.get("schema")
    if isinstance(schema, dict) and schema:
        return schema
    example = api.get("template_response")
    return _shape(example) if example else None


def _shape(example: Any) -> Schema:
    """The schema of an example whose leaves are type names (``"str"``) or values."""
    if isinstance(example, dict):
        shown = {name: _shape(one) for name, one in example.items() if name != "_list_length"}
        return {"type": "object", "properties": shown}
    if isinstance(example, list):
        items = [one for one in example if not (isinstance(one, dict) and set(one) == {"_list_length"})]
        return {"type": "array", "items": _shape(items[0])} if items else {"type": "array"}
    if isinstance(example, str):
        try:
            return named_type(example)
        except UnknownTypeName:
            return {"type": "string"}
    if example is None:
        return {}
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number"}
    return {"type": kinds[type(example)]}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
