"""``anyOf``, ``oneOf``, ``allOf``, null and what stands beside a ``$ref``, said as plainly as can be without a change.

Every function here but ``or_null`` and ``flat_top`` keeps the set of values that the schema accepts.
"""

from __future__ import annotations

from astra.formats.keywords import ANNOTATIONS, Schema, identity, in_order, listed, one_type

NULL: Schema = {"type": "null"}
NULL_SENSITIVE = frozenset({"const", "not", "anyOf", "oneOf", "allOf", "if", "then", "else"})
"""Keywords that may refuse null although ``type`` allows it; all others look at one type of value only."""
TOGETHER = (
    frozenset({"properties", "patternProperties", "additionalProperties"}),
    frozenset({"prefixItems", "items"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset({"if", "then", "else"}),
)
"""Keywords that look at each other within one schema, so that they cannot move into another one by one."""
UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
TOP_FORBIDDEN = ("anyOf", "oneOf", "allOf", "enum", "const", "not")
"""What endpoints refuse beside ``type: object`` at the top of a function's parameters."""


def or_null(schema: Schema) -> Schema:
    """The same schema, or null."""
    if not set(schema) - set(ANNOTATIONS):
        return schema
    plain = _plainly_or_null(schema)
    if plain is not None:
        return plain
    outer = {key: schema[key] for key in ANNOTATIONS if key in schema}
    inner = {key: value for key, value in schema.items() if key not in outer}
    if set(inner) == {"anyOf"}:
        return schema if NULL in inner["anyOf"] else {**outer, "anyOf": [*inner["anyOf"], NULL]}
    return {**outer, "anyOf": [inner, NULL]}


def _plainly_or_null(schema: Schema) -> Schema | None:
    """With null among its types; None where other keywords decide about null too."""
    if "type" not in schema or schema.keys() & NULL_SENSITIVE:
        return None
    kinds = listed(schema["type"])
    new = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
    if "enum" in new and None not in new["enum"]:
        new["enum"] = [*new["enum"], None]
    return new


def simplified(schema: Schema) -> Schema:
    """Without needless ``anyOf`` / ``oneOf`` / ``allOf``, so that a parameter's type is where one looks for it."""
    if "allOf" in schema:
        schema = _without_allof(schema)
    for key in ("anyOf", "oneOf"):
        if key not in schema:
            continue
        branches = schema[key]
        outer = {k: v for k, v in schema.items() if k != key}
        if set(outer) - set(ANNOTATIONS):
            continue
        if len(branches) == 1:
            return {**branches[0], **outer}
        if all(set(one) == {"type"} for one in branches) and (key == "anyOf" or _disjoint(branches)):
            kinds = list(dict.fromkeys(kind for one in branches for kind in listed(one["type"])))
            return {**one_type({"type": kinds}), **outer}
        some = [one for one in branches if one != NULL]
        if len(some) == 1 and len(branches) == 2 and not _takes_null(some[0]):
            plain = _plainly_or_null(some[0])
            if plain is not None:
                return {**plain, **outer}
    return schema


def _disjoint(branches: list[Schema]) -> bool:
    kinds = [kind for one in branches for kind in listed(one["type"])]
    return len(set(kinds)) == len(kinds) and not {"integer", "number"} <= set(kinds)


def _takes_null(schema: Schema) -> bool:
    return "type" not in schema or "null" in listed(schema["type"])


def _without_allof(schema: Schema) -> Schema:
    """``allOf`` of plain objects, or of one schema, as one schema; anything that could change meaning stays."""
    merged: Schema = {}
    outer = {key: value for key, value in schema.items() if key != "allOf"}
    for branch in [*schema["allOf"], outer]:
        both = joined(merged, branch)
        if both is None:
            return schema
        merged = both
    return merged


def joined(base: Schema, over: Schema) -> Schema | None:
    """Both at once, the annotations of ``over`` first; None where they cannot be said in one schema."""
    constraints, others = base.keys() - set(ANNOTATIONS), over.keys() - set(ANNOTATIONS)
    new = {**base, **over}
    if not constraints or not others:
        return new
    if (constraints | others) & UNEVALUATED:
        return None
    differing = {key for key in constraints & others if identity(base[key]) != identity(over[key])}
    if differing - {"properties", "required", "allOf"}:
        return None
    for group in TOGETHER:
        here, there = group & constraints, group & others
        if here and there and (here != there or differing & group):
            if not here == there == {"properties"}:
                return None
            new["properties"] = _properties(base["properties"], over["properties"])
    if "required" in differing:
        new["required"] = list(dict.fromkeys([*base["required"], *over["required"]]))
    if "allOf" in differing:
        new["allOf"] = [*base["allOf"], *over["allOf"]]
    return new


def _properties(base: dict[str, Schema], over: dict[str, Schema]) -> dict[str, Schema]:
    new = {**base, **over}
    for name in base.keys() & over.keys():
        if identity(base[name]) != identity(over[name]):
            both = joined(base[name], over[name])
            new[name] = {"allOf": [base[name], over[name]]} if both is None else in_order(both)
    return new


def beside_reference(target: Schema, siblings: Schema) -> Schema:
    """A reference's target with the keywords that stood beside the reference (2020-12 lets both count)."""
    both = joined(target, siblings)
    if both is None:
        both = {**siblings, "allOf": [target, *siblings.get("allOf", [])]}
    return in_order(both)


# ------------------------------------------------------------------------ the top


def flat_top(schema: Schema) -> Schema:
    """A call's arguments as one plain object: what function-calling endpoints take.

    The alternatives' properties become optional properties, with ``anyOf`` where they differ, and what all of them
    require is required. Which combinations are allowed is lost, so this accepts more than the document did; less only
    where one alternative leaves open what another describes.
    """
    plain = {key: value for key, value in schema.items() if key not in TOP_FORBIDDEN}
    properties = dict(plain.get("properties", {}))
    required = list(plain.get("required", []))
    for part in schema.get("allOf", ()):
        one = flat_top(part)
        properties = _properties(properties, one.get("properties", {}))
        required += one.get("required", [])
    for key in ("anyOf", "oneOf"):
        parts = [flat_top(part) for part in schema.get(key, ()) if _takes_object(part)]
        if plain.get("additionalProperties") is not False:
            properties = _alternatives([one.get("properties", {}) for one in parts]) | properties
        shared = set.intersection(*(set(one.get("required", ())) for one in parts)) if parts else set()
        required += sorted(shared)
    closed = plain.get("additionalProperties", True)
    if closed is not True and closed is not False and properties.keys() - plain.get("properties", {}).keys():
        del plain["additionalProperties"]
    return {**plain, "properties": properties, "required": list(dict.fromkeys(required))}


def _alternatives(maps: list[dict[str, Schema]]) -> dict[str, Schema]:
    found: dict[str, dict[str, Schema]] = {}
    for one in maps:
        for name, schema in one.items():
            found.setdefault(name, {}).setdefault(identity(schema), schema)
    return {name: in_order(simplified({"anyOf": list(schemas.values())})) for name, schemas in found.items()}


def _takes_object(schema: Schema) -> bool:
    return ("type" not in schema or "object" in listed(schema["type"])) and schema != {"not": {}}
