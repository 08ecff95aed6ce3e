"""OpenAPI 3.0 and 3.1, and Swagger 2.0: one server a document, one tool an operation.

Path, query, header and cookie parameters and the fields of a JSON body become one flat object, which is how a model
calls a function; a body that is no plain object, or whose fields clash with a parameter's name, stays whole under
``body``. Fields of a body that are read-only are left out, as the specification says. A parameter whose name another
place has taken is called ``<place>_<name>``. The result is the schema of the first 2xx response.
Domain: ``info.x-domain``, else the first tag of the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from astra.formats.document import (
    Draft,
    FoundServer,
    Problem,
    mapping,
    no_object,
    one_text,
    server_name,
    text_or_none,
    tools_of,
)
from astra.formats.keywords import ANNOTATIONS
from astra.formats.references import look_up
from astra.formats.schema import Schema, SchemaInvalid, clean, escape

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
TRANSPORT_HEADERS = frozenset({"accept", "content-type", "authorization"})
MAX_HOPS = 16
PLAIN_BODY = frozenset({"type", "properties", "required", "additionalProperties", *ANNOTATIONS})


def recognises(document: Any) -> bool:
    return isinstance(document, dict) and any(isinstance(document.get(key), str) for key in ("openapi", "swagger"))


def servers(document: Any, uri: str, max_ref_depth: int) -> Iterator[FoundServer]:
    info = mapping(document.get("info"))
    found = tools_of(_operations(document, max_ref_depth), document, max_ref_depth)
    title = one_text(info.get("title"))
    licence = mapping(info.get("license"))
    yield FoundServer(
        name=server_name(title.lower(), uri),
        title=title or server_name(None, uri),
        description=one_text(info.get("summary")) or one_text(info.get("description")),
        domain=text_or_none(info.get("x-domain")) or _first_tag(document),
        licence=text_or_none(licence.get("identifier")) or text_or_none(licence.get("name")),
        tools=found.tools,
        problems=found.problems,
    )


def _first_tag(document: dict[str, Any]) -> str | None:
    tags = document.get("tags")
    first = tags[0] if isinstance(tags, list) and tags else None
    return text_or_none(mapping(first).get("name"))


def _operations(document: dict[str, Any], max_ref_depth: int) -> Iterator[Draft | Problem]:
    paths = document.get("paths")
    if not isinstance(paths, dict):
        return
    for path, raw in paths.items():
        if path.startswith("x-"):
            continue
        pointer = f"/paths/{escape(path)}"
        item = _followed(document, raw)
        if not isinstance(item, dict):
            yield no_object(item, pointer, "a path item")
            continue
        for method in METHODS:
            if method in item:
                yield _draft(document, item, path, method, f"{pointer}/{method}", max_ref_depth)


def _draft(
    document: dict[str, Any], item: dict[str, Any], path: str, method: str, pointer: str, max_ref_depth: int
) -> Draft | Problem:
    operation = item[method]
    if not isinstance(operation, dict):
        return no_object(operation, pointer, "an operation")
    arguments = _Arguments(document, max_ref_depth)
    try:
        for one in _parameters(document, item, operation):
            arguments.add_parameter(one)
        if "requestBody" in operation:
            arguments.add_body(_followed(document, operation["requestBody"]))
    except SchemaInvalid as error:
        return Problem("bad_schema", pointer + error.pointer, str(error))
    wire_name = operation.get("operationId")
    return Draft(
        pointer=pointer,
        wire_name=wire_name if one_text(wire_name) else f"{method} {path}",
        description=_description(operation) or _description(item),
        parameters=arguments.schema(),
        returns=_result_schema(document, operation.get("responses")),
        places={"parameters": "", "returns": "/responses"},
        notes=tuple(dict.fromkeys(arguments.notes)),
    )


def _parameters(document: dict[str, Any], item: dict[str, Any], operation: dict[str, Any]) -> list[Any]:
    """An operation's parameters after its path's; one of the same name and place overrides. Bodies stand last."""
    found: dict[Any, Any] = {}
    for index, raw in enumerate([*_listed(item.get("parameters")), *_listed(operation.get("parameters"))]):
        one = _followed(document, raw)
        named = isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("in", ""), str)
        found[(one["name"], one.get("in")) if named else index] = one
    return sorted(found.values(), key=lambda one: mapping(one).get("in") == "body")


@dataclass
class _Arguments:
    """The flat object of an operation's arguments, as it grows."""

    document: dict[str, Any]
    max_ref_depth: int
    properties: dict[str, Schema] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    closed: bool = False

    def schema(self) -> Schema:
        plain = {"type": "object", "properties": self.properties, "required": list(self.required)}
        return {**plain, "additionalProperties": False} if self.closed else plain

    def add_parameter(self, parameter: Any) -> None:
        """Path, query, header, cookie; body and formData of Swagger 2."""
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            self.notes.append("bad_parameter /parameters")
            return
        name, place = parameter["name"], parameter.get("in")
        if place == "header" and name.lower() in TRANSPORT_HEADERS:
            return
        if place == "body":
            self._add_value("body", parameter.get("schema"), parameter.get("required") is True, parameter)
            return
        at = f"/parameters/{escape(name)}"
        schema = self._clean(_parameter_schema(parameter), at)
        if name in self.properties:
            name = f"{place}_{name}"
            self.notes.append(f"renamed_parameter {at} ({name})")
        self.properties[name] = _described(schema, parameter)
        if parameter.get("required") is True or place == "path":
            self.required[name] = None

    def add_body(self, body: Any) -> None:
        if not isinstance(body, dict):
            self.notes.append("unresolved_ref /requestBody")
            return
        media = _json_media(body.get("content"))
        if media is None:
            self.notes.append("body_without_json /requestBody")
            return
        self._add_value("requestBody", media.get("schema"), body.get("required") is True, body)

    def _add_value(self, place: str, raw: Any, required: bool, about: dict[str, Any]) -> None:
        """The fields of an object body one by one, any other body whole."""
        body = _sent(self._clean(raw, f"/{place}"))
        fields = body.get("properties")
        plain = body.get("type") == "object" and not body.keys() - PLAIN_BODY
        plain = plain and not isinstance(body.get("additionalProperties"), dict)
        if plain and fields and not fields.keys() & self.properties.keys():
            self.properties |= fields
            self.required |= dict.fromkeys(body.get("required", ()))
            self.closed = body.get("additionalProperties") is False
            return
        self.properties["body"] = _described(body, about)
        if required:
            self.required["body"] = None

    def _clean(self, raw: Any, pointer: str) -> Schema:
        cleaned = clean(raw, self.document, self.max_ref_depth, pointer)
        self.notes += cleaned.notes
        return cleaned.schema


def _sent(schema: Schema) -> Schema:
    """The same without fields that only a server sets (``readOnly``)."""
    new = dict(schema)
    if "properties" in new:
        gone = {name for name, one in new["properties"].items() if one.get("readOnly") is True}
        new["properties"] = {name: _sent(one) for name, one in new["properties"].items() if name not in gone}
        if "required" in new:
            new["required"] = [name for name in new["required"] if name not in gone]
    if isinstance(new.get("items"), dict):
        new["items"] = _sent(new["items"])
    return new


def _parameter_schema(parameter: dict[str, Any]) -> Any:
    """OpenAPI 3 keeps it under ``schema`` or ``content``, Swagger 2 in the parameter itself."""
    if "schema" in parameter:
        return parameter["schema"]
    if "content" in parameter:
        media = _json_media(parameter["content"])
        return media.get("schema") if media else None
    return {key: value for key, value in parameter.items() if key not in ("name", "in", "required", "description")}


def _described(schema: Schema, about: dict[str, Any]) -> Schema:
    text = one_text(about.get("description"))
    return {**schema, "description": text} if text else schema


def _description(operation: dict[str, Any]) -> str:
    """The summary, and the description where it says more."""
    summary, description = one_text(operation.get("summary")), one_text(operation.get("description"))
    if not summary or not description or description.startswith(summary):
        return description or summary
    return f"{summary if summary.endswith('.') else summary + '.'} {description}"


def _result_schema(document: dict[str, Any], responses: Any) -> Any:
    codes = mapping(responses)
    for code in sorted(code for code in codes if str(code).upper().startswith("2")):
        response = mapping(_followed(document, codes[code]))
        media = _json_media(response.get("content"))
        schema = media.get("schema") if media else response.get("schema")
        if schema is not None:
            return schema
    return None


def _json_media(content: Any) -> dict[str, Any] | None:
    """The JSON form among a body's media types, form fields where there is no JSON."""
    types = {kind.partition(";")[0].strip().lower(): media for kind, media in mapping(content).items()}
    for kind in sorted(types, key=lambda one: (one != "application/json", one)):
        if kind in ("application/json", "*/*") or kind.endswith("+json"):
            return mapping(types[kind])
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        if kind in types:
            return mapping(types[kind])
    return None


def _followed(document: dict[str, Any], value: Any) -> Any:
    """What a reference to a parameter, body, response or path item stands for; None where it leads nowhere."""
    for _ in range(MAX_HOPS):
        if not (isinstance(value, dict) and isinstance(value.get("$ref"), str)):
            return value
        if not value["$ref"].startswith("#/"):
            return None
        target = look_up(document, value["$ref"][1:])
        value = target.value if target else None
    return None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
