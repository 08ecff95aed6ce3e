"""The rule-based stand-in for a model that plays a tool's server: values from the result schema, one world per session.

Every value is a function of what it is about (tool noun, arguments, property), so that the same question has the same
answer in any order; what the session says of the same thing (``session``) goes before that, so that a reading after a
writing sees it. What is made gets an id that nothing else has; a list holds what the session made, where it fits the
question, and nothing that was deleted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

from astra.llm.builtin import values
from astra.llm.builtin.session import (
    CREATING,
    DELETING,
    ENDED,
    Made,
    Session,
    bare,
    is_id,
    kind_of,
    names_thing,
    noun,
    plain,
    session,
    singular,
    verb,
    words,
)
from astra.records.references import dereferenced

VOLATILE = {"status", "state", "result", "success", "ok", "message", "updated_at", "total", "count"}

WORDS = (
    "amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper", "kestrel", "lumen",
)  # fmt: skip
COUNTS = {"count", "total", "total_count", "totalCount", "total_results"}
EPOCH = datetime.datetime(2026, 3, 2, 8, 0)


GRANTED = frozenset({"confirmed", "deleted", "ok", "removed", "success"})
MANY = 10**6
TAX = 1.2
PRICE_OF = {"words": 0.12, "passengers": 36.5, "visitors": 14.0, "portions": 6.5, "pieces": 2.4}  # of one
SHORT = 40  # characters of a search that a name can hold
N_MORE = 8  # items that are drawn in place of such as a list cannot hold


@dataclass(frozen=True)
class World:
    """What is known when one call is answered, and of which thing a value is wanted."""

    about: str  # what the values are about: the thing that the arguments name
    tool: str
    noun: str  # the last word of the tool's name
    arguments: dict[str, Any]
    session: Session
    thing: dict[str, Any] = field(default_factory=dict)  # what is settled of the thing at hand
    told: dict[str, Any] = field(default_factory=dict)  # what was last said of it
    kind: str = ""
    depth: int = 1  # where in a value's path the thing's own properties begin
    ended: bool = False

    def draw(self, *path: str) -> random.Random:
        return random.Random(hashlib.sha256("\x00".join((self.about, *path)).encode()).hexdigest())

    def elsewhere(self) -> World:
        """The same world, at no thing yet."""
        return dataclasses.replace(self, thing={}, told={}, kind="", ended=False) if self.kind or self.told else self

    def settled(self, path: tuple[str, ...]) -> Any:
        """What is settled of the property at a path."""
        return self.thing.get(bare(".".join(path[self.depth :]), self.kind)) if self.thing else None


def emulate(shown: dict[str, Any]) -> dict[str, Any]:
    """The reply ``{"result": ...}`` or ``{"error": ...}`` to a call, from the prompt's input."""
    tool, arguments = shown["tool"], shown["arguments"]
    known = session(tool["name"], arguments, shown)
    named = [(name, one) for name, one in arguments.items() if names_thing(name)]
    gone = next((one for name, one in named if known.is_gone(name, one, {noun(tool["name"])})), None)
    if gone is not None:
        return {"error": f"not found: {gone}"}
    world = _world(tool["name"], arguments, known, len(shown["history"]))
    schema = tool.get("returns")
    if not schema:
        return {"result": _undocumented(tool["name"], world)}
    result = _value(schema, schema, (tool["name"],), world)
    for name, value in arguments.items():  # what the server cannot take as it is
        if isinstance(result, dict) and isinstance(value, str) and result.get(name, value) != value:
            return {"error": f"invalid {name}: {value}"}
    return {"result": result}


def _world(tool: str, arguments: dict[str, Any], known: Session, turn: int) -> World:
    spoken = words(tool) or ("item",)
    last = spoken[-1][:-1] if spoken[-1].endswith("s") and len(spoken[-1]) > 3 else spoken[-1]
    about = sorted((words(name)[-1], str(value)) for name, value in plain(arguments).items() if words(name))
    turns = [str(turn)] if verb(tool) in CREATING else []
    return World(json.dumps([last, about, turns]), tool, last, arguments, known)


def _undocumented(tool: str, world: World) -> dict[str, Any]:
    """A plausible object where the document says nothing of the result."""
    given = plain(world.arguments)
    if verb(tool) in CREATING:
        return {"id": _new_id(world, ("id",)), **given, "status": "ok"}
    if verb(tool) in DELETING:
        return {**given, "status": "done"}
    asked = {name: value for name, value in world.session.asked.items() if not is_id(name)}
    first = next((name for name in given if names_thing(name)), None)
    settled = world.session.of(first, given[first], {noun(tool)}) if first else {}
    told = {"name": f"{world.draw('name').choice(WORDS)} {world.noun}", "status": "ok", **asked, **settled}
    return {**given, **{name: value for name, value in told.items() if name not in given}}


def _new_id(world: World, path: tuple[str, ...]) -> str:
    made = _identifier(world, path)
    while made in world.session.taken:
        world = dataclasses.replace(world, about=world.about + "+")
        made = _identifier(world, path)
    return made


# ---------------------------------------------------------------- values by schema


def _value(schema: Any, root: dict[str, Any], path: tuple[str, ...], world: World) -> Any:
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    name = path[-1]
    kind = _kind(schema)
    if len(path) > 1 and kind not in ("object", "array"):
        settled = _settled(name, schema, kind, path, world)
        if settled is not None:
            return settled
    if "enum" in schema:
        return world.draw(*path[1:]).choice(_likely(schema["enum"], name, world))
    if kind == "object":
        return _object(schema, root, path, world)
    if kind == "array":
        listed = _listed(name, schema, path, world)
        return _array(schema, root, path, world) if listed is None else listed
    if kind == "boolean":
        return bool(GRANTED & set(words(name))) or world.draw(*path[1:]).random() < 0.8
    if kind in ("integer", "number"):
        return _number(name, kind, schema, path, world)
    return None if kind == "null" else _text(name, schema, path, world)


def _likely(options: list[Any], name: str, world: World) -> list[Any]:
    """The values that a thing may have which nothing has ended; what was just made is as a call makes it."""
    if words(name)[-1:] not in (("status",), ("state",)) or world.ended:
        return options
    lasting = [one for one in options if str(one).lower() not in ENDED] or options
    return lasting[:1] if verb(world.tool) in CREATING else lasting


def _resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    for _ in range(8):
        shape = dict(dereferenced(schema, root))
        if "allOf" in shape:
            parts = [_resolved(part, root) for part in shape["allOf"]]
            merged: dict[str, Any] = {key: value for part in parts for key, value in part.items()}
            merged["properties"] = {k: v for part in [*parts, shape] for k, v in part.get("properties", {}).items()}
            merged["required"] = sorted({name for part in [*parts, shape] for name in part.get("required", [])})
            schema = {**{key: value for key, value in shape.items() if key != "allOf"}, **merged}
        elif "anyOf" in shape or "oneOf" in shape:
            options = [one for one in (shape.get("anyOf") or shape.get("oneOf") or ()) if one != {"type": "null"}] or [
                {}
            ]
            schema = options[0]
        else:
            return shape
    return {}


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        return "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _settled(name: str, schema: dict[str, Any], kind: str, path: tuple[str, ...], world: World) -> Any:
    """The value that the call or the session gives to a property, where its schema takes it."""
    top = not any(part.startswith("#") for part in path)
    is_state = words(name)[-1:] in (("status",), ("state",))
    given = world.arguments.get(name, world.arguments.get("_".join(path[1:])))
    outermost = len(path) == 2 or singular(path[-2].lower()) in (noun(world.tool), world.noun, "data", "result", "item")
    if given is None and top and outermost and words(name) == ("id",):
        own = [value for other, value in world.arguments.items() if words(other)[-1:] == ("id",)]
        given = own[0] if len(own) == 1 and verb(world.tool) not in CREATING else None
    said = [given, world.settled(path)] if top else [world.settled(path), world.told.get(name), given]
    if top and (name not in VOLATILE or is_state):
        said.append(world.session.asked.get(name))
    if world.ended and is_state:
        said = [*ENDED, *said]
    taken = (_as_kind(one, kind) for one in said if one is not None)
    found = next((one for one in taken if _fits(one, schema, kind)), None)
    return _later(found, world) if isinstance(found, str) and given is None else found


def _later(value: str, world: World) -> str:
    """A day that the call puts off, by the time that it gives."""
    n = next(
        (one * days for name, days in (("weeks", 7), ("days", 1)) if type(one := world.arguments.get(name)) is int), 0
    )
    if verb(world.tool) not in ("extend", "postpone", "prolong", "renew") or not n or not _DAY.fullmatch(value):
        return value
    return (datetime.date.fromisoformat(value) + datetime.timedelta(days=n)).isoformat()


def _listed(name: str, schema: dict[str, Any], path: tuple[str, ...], world: World) -> list[Any] | None:
    """A list of plain values that the call or the session gives to a property, where its schema takes it."""
    top = len(path) > 1 and not any(part.startswith("#") for part in path)
    items = schema.get("items", {})
    for said in (world.arguments.get(name) if top else None, world.settled(path) if len(path) > 1 else None):
        if not isinstance(said, list) or any(not _fits(one, items, _kind(items)) for one in said):
            continue
        if schema.get("minItems", 0) <= len(said) <= schema.get("maxItems", MANY):
            return list(said)
    return None


def _as_kind(value: Any, kind: str) -> Any:
    """A whole number as an integer, where that is what is wanted."""
    return int(value) if kind == "integer" and isinstance(value, float) and value.is_integer() else value


def _fits(value: Any, schema: dict[str, Any], kind: str) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
    }
    wanted = kinds.get(kind)
    if wanted is None or not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        long_enough = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**6)
        return long_enough and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _object(schema: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], world: World) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if not properties and schema.get("additionalProperties") is not False:
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and extra:
            return {one: _value(extra, root, (*path, one), world) for one in ("first", "second")}
        return plain(world.arguments)
    first = _naming(properties, path, world)
    made = {}
    if first is not None:
        made[first] = _own_id(first, properties[first], root, path, world.elsewhere())
        world = _at(world, first, made[first], path)
    made |= {name: _value(one, root, (*path, name), world) for name, one in properties.items() if name != first}
    return _counted(_in_time({name: made[name] for name in properties}))


def _own_id(name: str, schema: Any, root: dict[str, Any], path: tuple[str, ...], world: World) -> Any:
    """What identifies an object; where the call makes it, something that nothing in the session has."""
    value = _value(schema, root, (*path, name), world)
    if len(path) > 2 or verb(world.tool) not in CREATING or str(value) in map(str, plain(world.arguments).values()):
        return value
    for _ in range(N_MORE):
        if str(value) not in world.session.taken:
            break
        world = dataclasses.replace(world, about=world.about + "+")
        value = _value(schema, root, (*path, name), world)
    return value


def _at(world: World, name: str, value: Any, path: tuple[str, ...]) -> World:
    """The world as it is at one thing."""
    container = next((part for part in reversed(path) if not part.startswith("#")), "")
    nouns = {singular(word) for word in words(container)[-1:]} | {world.noun, noun(world.tool)}
    kind = kind_of(name) or next((one for one in sorted(nouns) if (one, str(value)) in world.session.settled), "")
    return dataclasses.replace(
        world, thing=world.session.of(name, value, nouns), told=world.session.latest.get((name, str(value)), {}),
        kind=kind, depth=len(path), ended=world.session.is_ended(name, value, nouns),
    )  # fmt: skip


def _in_time(made: dict[str, Any]) -> dict[str, Any]:
    """What begins does so before it ends, and a day of the week is that of the day beside it."""
    for name, value in made.items():
        end = next((other for other in (name.replace("start", "end"), name.replace("from", "to")) if other != name), "")
        last = made.get(end)
        if isinstance(value, str) and isinstance(last, str) and _DAY.match(value) and _DAY.match(last) and last < value:
            made[name], made[end] = last, value
    day = next((value for value in made.values() if isinstance(value, str) and _DAY.match(value)), None)
    for name in made if day is not None else ():
        if words(name) in (("day", "of", "week"), ("weekday",)) and isinstance(made[name], str) and day is not None:
            made[name] = datetime.date.fromisoformat(day[:10]).strftime("%A")
    return made


_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def _counted(made: dict[str, Any]) -> dict[str, Any]:
    """A count beside one list is the length of that list."""
    lists = [value for value in made.values() if isinstance(value, list)]
    if len(lists) != 1:
        return made
    return {
        name: len(lists[0]) if type(value) is int and name in COUNTS else value
        for name, value in made.items()
    }  # fmt: skip


def _array(schema: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], world: World) -> list[Any]:
    """What the session made and the question asks for, then drawn items; nothing twice, and nothing that is gone."""
    least, most = schema.get("minItems", 0), schema.get("maxItems", 3)
    asked = world.arguments.get("limit", world.arguments.get("max_results"))
    limit = asked if isinstance(asked, int) and asked >= 1 else MANY
    count = max(least, min(most, limit, world.draw(*path, "length").randint(1, 3)))
    room = min(schema.get("maxItems", MANY), limit)
    items = schema.get("items", {})
    shape = _resolved(items, root)
    first = _naming(shape.get("properties", {}), (*path, "#"), world)
    world = world.elsewhere()
    made = [_made_item(one, first, shape, root, path, world) for one in _fitting(first, world)[:room]] if first else []
    for n in range(count + N_MORE):
        if len(made) >= room or (n >= count and len(made) >= least):
            break
        item = _value(items, root, (*path, f"#{n}"), world)
        if first is None or _belongs(item, first, made, world):
            made.append(item)
    return _in_order(made)


def _in_order(items: list[Any]) -> list[Any]:
    """Things that each have a time, by time."""
    if not all(isinstance(one, dict) for one in items):
        return items
    for name in items[0] if items else ():
        texts = [one.get(name) for one in items]
        if all(isinstance(text, str) and _TIME.match(text) for text in texts):
            return sorted(items, key=lambda one: str(one[name]))
    return items


def _naming(properties: dict[str, Any], path: tuple[str, ...], world: World) -> str | None:
    """The property that says which thing an object is; an item of a list is none of those that the call names."""
    inside = any(part.startswith("#") for part in path)
    return next((name for name in properties if names_thing(name) and not (inside and name in world.arguments)), None)


def _fitting(first: str, world: World) -> list[Made]:
    """Things that the session made, of the kind that a list holds, which no argument of the question shuts out."""
    kind = kind_of(first)
    alike = [
        one
        for one in world.session.made
        if not world.session.is_gone(one.id_name, one.id, {one.noun})
        and (one.noun == (kind or noun(world.tool)) or (kind and one.id_name == first))
    ]
    return [one for one in alike if not _shut_out({**one.arguments, **one.values}, world)]


def _shut_out(values: dict[str, Any], world: World) -> bool:
    asked = {name: value for name, value in plain(world.arguments).items() if value not in ("all", "any", "*")}
    return any(name in values and str(values[name]) != str(value) for name, value in asked.items())


def _made_item(
    one: Made, first: str, shape: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], world: World
) -> dict[str, Any]:
    """A thing that the session made as a list shows it: as it is now, then as it was made."""
    there = (*path, f"#{one.id}")
    inside = _at(world, first, one.id, there)
    said = {**one.arguments, **one.values, **inside.told}
    inside = dataclasses.replace(inside, told=said)
    properties = shape["properties"]
    return {name: one.id if name == first else _value(part, root, (*there, name), inside)
            for name, part in properties.items()}  # fmt: skip


def _belongs(item: Any, first: str, made: list[Any], world: World) -> bool:
    """Whether a drawn item can be in the list."""
    value = item.get(first) if isinstance(item, dict) else None
    nouns = {noun(world.tool), world.noun}
    if world.session.is_gone(first, value, nouns) or str(value) in {str(one.get(first)) for one in made}:
        return False
    called = {name for name in item if words(name)[-1:] in (("name",), ("title",))} if isinstance(item, dict) else set()
    if any(one.get(name) == item[name] for one in made for name in called):
        return False
    known = world.session.of(first, value, nouns)
    return not _shut_out(known, world)


def _number(name: str, kind: str, schema: dict[str, Any], path: tuple[str, ...], world: World) -> int | float:
    reckoned = _reckoned(words(name), world)
    if reckoned is not None and kind == "number":
        return reckoned
    low, high = values.span(words(name)) or ((1000.0, 9999.0) if is_id(name) else (1.0, 100.0))
    low = max(low, schema["minimum"]) if "minimum" in schema else low
    low = max(low, schema["exclusiveMinimum"] + 1) if "exclusiveMinimum" in schema else low
    high = min(high, schema["maximum"]) if "maximum" in schema else high
    high = min(high, schema["exclusiveMaximum"]) if "exclusiveMaximum" in schema else high
    if low > high:
        low, high = schema.get("minimum", high), schema.get("maximum", max(low, schema.get("minimum", low)))
    draw = world.draw(*path[1:])
    step = schema.get("multipleOf")
    if step:
        first, last = -(-low // step), high // step
        multiple = draw.randint(int(first), max(int(first), int(last))) * step
        return int(multiple) if kind == "integer" else float(multiple)
    if kind == "integer":
        whole = int(-(-low // 1))
        return draw.randint(whole, max(whole, int(high // 1)))
    return float(min(high, max(low, round(draw.uniform(low, high), 2))))


def _reckoned(spoken: tuple[str, ...], world: World) -> float | None:
    """An amount with tax, where the call gives the one without; a price of so many, where it says how many."""
    if spoken[:1] in (("price",), ("fare",), ("total",)):
        many = (one * PRICE_OF[words(name)[-1]] for name, one in world.arguments.items()
                if words(name)[:1] == ("n",) and words(name)[-1] in PRICE_OF and isinstance(one, int))  # fmt: skip
        return next((round(price, 2) for price in many), None)
    if spoken[:1] != ("gross",):
        return None
    given = [
        one for name, one in world.arguments.items() if words(name)[:1] == ("net",) and isinstance(one, int | float)
    ]
    return round(given[0] * TAX, 2) if given else None


def _text(name: str, schema: dict[str, Any], path: tuple[str, ...], world: World) -> str:
    draw = world.draw(*path[1:])
    made = _text_by_format(str(schema.get("format", "")), name, path, world)
    if made is None and "pattern" in schema:
        made = _matching(schema["pattern"], draw)
    if made is None and schema.get("examples"):
        made = str(draw.choice(schema["examples"]))
    example = re.search(r"e\.g\. ([\w-]*\d[\w-]*)", str(schema.get("description", "")))
    if made is None and example is not None:
        made = _alike(example.group(1), draw)
    if made is None:
        made = (
            _identifier(world, path[1:], str(schema.get("description", "")))
            if is_id(name)
            else _text_by_name(name, str(schema.get("description", "")), path, world)
        )
    made = made.ljust(schema.get("minLength", 0), "x")
    return made[: schema["maxLength"]] if "maxLength" in schema else made


def _text_by_format(form: str, name: str, path: tuple[str, ...], world: World) -> str | None:
    draw = world.draw(*path[1:])
    spoken = words(name)
    day = _moment(world, draw)
    if form == "date-time" or (not form and spoken[-1:] in (("at",), ("time",), ("timestamp",), ("datetime",))):
        return day.isoformat() + "Z"
    if form == "date" or (not form and "date" in spoken):
        return day.date().isoformat()
    if form == "time":
        return day.time().isoformat()
    if form in ("uri", "url") or (not form and spoken[-1:] in (("url",), ("uri",), ("link",), ("href",))):
        return f"https://{world.noun}.example.org/{draw.getrandbits(24):06x}"
    if form == "uuid":
        bits = f"{draw.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"
    if form == "email":
        return draw.choice(values.EMAILS)
    if form == "ipv4":
        return f"192.0.2.{draw.randint(1, 254)}"
    return None


def _moment(world: World, draw: random.Random) -> datetime.datetime:
    """A time on the day that the call names; in the weeks after EPOCH where it names none."""
    days: list[datetime.datetime] = []
    for value in world.arguments.values():
        named = _DAY.match(value) if isinstance(value, str) else None
        if named is not None:
            with contextlib.suppress(ValueError):  # 2026-02-31 is a day only to the schema
                days.append(datetime.datetime.fromisoformat(named.group()))
    if days:
        span = (days[1] - days[0]).days if len(days) > 1 else 0
        day = days[0] + datetime.timedelta(days=draw.randint(0, max(0, span)))
        return day + datetime.timedelta(minutes=15 * draw.randint(24, 88))
    return EPOCH + datetime.timedelta(minutes=15 * draw.randint(0, 9000))


def _text_by_name(name: str, description: str, path: tuple[str, ...], world: World) -> str:
    draw = world.draw(*path[1:])
    spoken = words(name)
    sought = _sought(spoken, world)
    if sought is not None:
        return _found(sought, spoken[-1] == "title", draw)
    options = values.choices(spoken, description)
    if options:
        return draw.choice(options)
    if spoken[-1:] in (("name",), ("title",)):
        about = spoken[-2] if len(spoken) > 1 else world.noun
        return f"{draw.choice(WORDS).capitalize()} {about}"
    if spoken[-1:] and spoken[-1] in ("message", "confirmation", "summary", "description", "text", "content"):
        given = [str(value) for value in plain(world.arguments).values()]
        return f"{world.noun} {draw.choice(WORDS)}" + (f" for {given[0]}" if given else "")
    return f"{draw.choice(WORDS)} {spoken[-1] if spoken else world.noun}"


def _sought(spoken: tuple[str, ...], world: World) -> str | None:
    """What a search asks for by words, where a property names what was found."""
    if spoken[-1:] not in (("name",), ("title",)):
        return None
    for name, value in world.arguments.items():
        asked = words(name)
        if isinstance(value, str) and asked[-1:] in (("words",), ("query",), ("keywords",)) and len(value) < SHORT:
            return value
    return None


def _found(sought: str, is_title: bool, draw: random.Random) -> str:
    if is_title:
        return f"{draw.choice(('A Guide to', 'All About', 'The Book of', 'Notes on'))} {sought.title()}"
    return f"{sought[0].upper()}{sought[1:]}, {draw.choice(('small', 'standard', 'large', 'pack of 10', 'refill'))}"


def _identifier(world: World, path: tuple[str, ...], description: str = "") -> str:
    """A name that nothing else has, in the form that the document describes, if it does."""
    spoken = words(path[-1]) if path else ()
    return values.identifier(spoken[-2] if len(spoken) > 1 else world.noun, description, world.draw(*path))


def _alike(example: str, draw: random.Random) -> str:
    """Another name of the example's form: ``FR-204`` -> ``FR-731``."""
    return re.sub(
        r"\d+",
        lambda digits: str(draw.randint(10 ** (len(digits.group()) - 1), 10 ** len(digits.group()) - 1)),
        example,
    )


_PIECE = re.compile(r"\\[dws]|\[[^\]]+\]|\\.|[^\\\[\]{}()*+?|^$.]|\.")
_TIMES = re.compile(r"\{(\d+)(?:,(\d*))?\}|[*+?]")


def _matching(pattern: str, draw: random.Random) -> str | None:
    """A text for a pattern made of characters, classes and counts; None for a pattern with more in it than that."""
    rest, made = pattern.removeprefix("^").removesuffix("$"), ""
    while rest:
        piece = _PIECE.match(rest)
        if piece is None:
            return None
        rest = rest[piece.end() :]
        times = _TIMES.match(rest)
        rest = rest[times.end() :] if times else rest
        least = 1 if times is None or times.group() in "*+?" else int(times.group(1))
        made += "".join(draw.choice(_alphabet(piece.group())) for _ in range(least))
    return made if re.search(pattern, made) else None


def _alphabet(piece: str) -> str:
    known = {"\\d": "0123456789", "\\w": "abcdefghkmnprstuvwxyz", "\\s": " ", ".": "abcdefgh"}
    if piece in known:
        return known[piece]
    if piece.startswith("["):
        printable = [chr(code) for code in range(33, 127)]
        return "".join(one for one in printable if re.fullmatch(piece, one)) or "x"
    return piece[-1]
