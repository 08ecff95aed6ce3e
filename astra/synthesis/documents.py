"""Tool documents: asked for by relation or by sub-question, scaled by optional parameters, checked before any use.

Whoever writes them sees no answer. Required parameters are texts, the keys of the tool's data; optional ones have an
enumeration or are true or false, and a default under which the tool gives what its data say.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import Field

from astra.answers import folded
from astra.knowledge import Relation
from astra.llm.reply import ReplyInvalid, parse_json, validate
from astra.prompts import render
from astra.records import Answer, Record, Step, canonical

MAX_KEYS = 3
MAX_VALUES = 8  # of an optional parameter


class Document(Record):
    """A tool document as a model writes it."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,59}$")
    description: str = Field(min_length=1)
    parameters: dict[str, Any]
    returns: dict[str, Any]

    @property
    def keys(self) -> tuple[str, ...]:
        """The required parameters, in the order in which the tool's data are nested."""
        return tuple(self.parameters["required"])

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The optional parameters with their schemas."""
        return {name: one for name, one in self.parameters["properties"].items() if name not in self.keys}

    def takes(self, value: Any) -> bool:
        """Whether the tool may return this value."""
        return Draft202012Validator(self.returns).is_valid({"result": value})


def values_of(option: Mapping[str, Any]) -> list[Any]:
    """All values of an optional parameter, its default first."""
    listed = option.get("enum", [True, False])
    return [option["default"], *(one for one in listed if one != option["default"])]


# ---------------------------------------------------------------- prompts


def relation_prompt(relation: Relation) -> str:
    shown = {
        "name": relation.name,
        "label": relation.label,
        "entity": relation.table,
        "kind": relation.kind,
        "unit": relation.unit,
    }
    return render("envsynth/document", input=canonical({"relation": shown}))


def question_prompt(step: Step, language: str) -> str:
    """Asks for the document of a tool that answers questions like this one."""
    shown = {"question": step.question, "kind": step.answer.kind, "unit": step.answer.unit, "language": language}
    return render("envsynth/document_question", input=canonical(shown))


def scaling_prompt(document: Document, answer: Answer, most: int) -> str:
    shown = {"tool": document.model_dump(), "kind": answer.kind, "unit": answer.unit, "most": most}
    return render("envsynth/scale", input=canonical(shown))


# ---------------------------------------------------------------- replies


def read_document(text: str) -> Document:
    """The document in a reply, without optional parameters. Raises ReplyInvalid."""
    found = _read(text)
    if found.options:
        raise ReplyInvalid(f"{', '.join(found.options)} are not required; give the tool required parameters only")
    return found


def read_relation_document(text: str, relation: Relation) -> Document:
    """The document of a relation's look-up. Raises ReplyInvalid."""
    found = read_document(text)
    if found.name != relation.name or found.keys != (relation.table,):
        raise ReplyInvalid(f"{found.name}({', '.join(found.keys)}), not {relation.name}({relation.table})")
    return found


def read_question_document(text: str, step: Step) -> Document:
    """The document of a sub-question's tool. Raises ReplyInvalid, which never tells the answer."""
    found = read_document(text)
    if not found.takes(step.answer.value):
        raise ReplyInvalid(f"`returns` does not take a result of kind {step.answer.kind}")
    told = words(canonical(found.model_dump()))
    for key in (str(one) for one in _texts(step.answer.value)):
        if words(key) in told and words(key) not in words(step.question):
            raise ReplyInvalid(
                "the document is about one case; it must fit every case alike and give no example values"
            )
    return found


def read_scaled(text: str, before: Document, answer: Answer, most: int) -> Document:
    """The document with up to ``most`` optional parameters. Raises ReplyInvalid."""
    found = _read(text)
    kept = {name: before.parameters["properties"][name] for name in before.keys}
    if (found.name, found.keys) != (before.name, before.keys):
        raise ReplyInvalid(f"the tool is still called {before.name}({', '.join(before.keys)}), all of these required")
    if any(found.parameters["properties"][name].get("type") != one.get("type") for name, one in kept.items()):
        raise ReplyInvalid("the required parameters keep their types")
    if not 1 <= len(found.options) <= most:
        raise ReplyInvalid(f"{len(found.options)} optional parameters, not 1 to {most}")
    for name, option in found.options.items():
        _check_option(name, option)
    if not found.takes(answer.value):
        raise ReplyInvalid(f"`returns` does not take a result of kind {answer.kind}")
    return found


def _read(text: str) -> Document:
    found = validate(Document, parse_json(text))
    check_document(found)
    return found


def check_document(found: Document) -> None:
    """Raises ReplyInvalid for a document that no function could be written to."""
    for part in ("parameters", "returns"):
        _check_object(part, getattr(found, part))
    if list(found.returns["properties"]) != ["result"] or found.returns["required"] != ["result"]:
        raise ReplyInvalid("`returns` is an object with the one required property `result`")
    if keyword.iskeyword(found.name):
        raise ReplyInvalid(f"{found.name} is a word of Python and cannot be the name of a function")
    for name in found.parameters["properties"]:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", name) is None or keyword.iskeyword(name):
            raise ReplyInvalid(f"parameter {name!r} is no name of a Python parameter")
    if not 1 <= len(found.keys) <= MAX_KEYS:
        raise ReplyInvalid(f"{len(found.keys)} required parameters, not 1 to {MAX_KEYS}")
    for name in found.keys:
        if found.parameters["properties"][name].get("type") != "string":
            raise ReplyInvalid(f"required parameter {name} is not of type string")


def _check_object(part: str, schema: dict[str, Any]) -> None:
    """Raises ReplyInvalid for what is no schema of an object whose required properties are all there."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ReplyInvalid(f"`{part}` is no JSON Schema: {error.message[:200]}") from None
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("type") != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        raise ReplyInvalid(f"`{part}` is no schema of an object with properties and required")
    if not all(isinstance(one, dict) for one in properties.values()) or set(required) - properties.keys():
        raise ReplyInvalid(f"`{part}`: required names {sorted(set(required) - properties.keys())} without a property")


def _check_option(name: str, option: dict[str, Any]) -> None:
    listed = option.get("enum", [True, False] if option.get("type") == "boolean" else [])
    if not 2 <= len(listed) <= MAX_VALUES or not all(isinstance(one, str | int | bool) for one in listed):
        raise ReplyInvalid(f"optional parameter {name} has no enumeration of 2 to {MAX_VALUES} values")
    if "default" not in option or option["default"] not in listed:
        raise ReplyInvalid(f"optional parameter {name} has no default that is one of its values")


def _texts(value: Any) -> list[str]:
    """The texts of a value that are long enough to be recognised."""
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed if isinstance(one, str) and len(one) > 2]


def words(text: str) -> str:
    """A text's words, each between spaces, as they are compared."""
    return f" {' '.join(''.join(letter if letter.isalnum() else ' ' for letter in folded(text)).split())} "
