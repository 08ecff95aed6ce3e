"""The rule-based stand-in for a model that plays a tool's server: values from the result schema, one world per session.

Every value is a function of what it is about (tool noun, arguments, property), so that the same question has the same
answer in any order; what the session's history says of the same thing goes before that, so that a reading after a
writing sees it.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import random
import re
from dataclasses import dataclass
from typing import Any

CREATING = {"add", "book", "create", "file", "generate", "insert", "make", "new", "open", "order", "place", "post",
            "publish", "register", "reserve", "schedule", "send", "start", "submit", "upload"}  # fmt: skip
DELETING = {"cancel", "delete", "remove", "revoke", "unregister"}
VOLATILE = {"status", "state", "result", "success", "ok", "message", "updated_at", "total", "count"}

NAMES = ("Ana Ruiz", "Ben Okafor", "Chen Wei", "Dana Levi", "Emil Novak", "Fatima Noor", "Grace Kim", "Hugo Brandt")
CITIES = ("Lisbon", "Oslo", "Nairobi", "Kyoto", "Quito", "Tallinn", "Perth", "Montreal")
COUNTRIES = ("Portugal", "Norway", "Kenya", "Japan", "Ecuador", "Estonia", "Australia", "Canada")
WORDS = (
    "amber",
    "basalt",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "garnet",
    "harbor",
    "indigo",
    "juniper",
    "kestrel",
    "lumen",
)
TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("email", tuple(f"{name.lower().replace(' ', '.')}@example.org" for name in NAMES)),
    ("currency", ("EUR", "USD", "GBP", "JPY")),
    ("country", COUNTRIES),
    ("city", CITIES),
    ("timezone", ("Europe/Lisbon", "Europe/Oslo", "Africa/Nairobi", "Asia/Tokyo")),
    ("language", ("en", "fr", "pt", "ja")),
    ("address", tuple(f"{7 + 9 * n} {WORDS[n]} Street, {city}" for n, city in enumerate(CITIES))),
    ("phone", tuple(f"+1 555 01{n:02d}" for n in range(10, 90, 10))),
    ("status", ("confirmed", "active", "ok")),
    ("state", ("open", "active", "ready")),
    ("author", NAMES),
    ("user", NAMES),
    ("owner", NAMES),
    ("condition", ("clear", "light rain", "overcast", "windy")),
    ("unit", ("metric",)),
    ("color", ("blue", "green", "red")),
    ("version", ("1.4.2", "2.0.1", "3.7.0")),
    ("branch", ("main", "develop")),
)  # fmt: skip
RANGES: tuple[tuple[str, float, float], ...] = (
    ("lat", -60, 65), ("lon", -170, 175), ("lng", -170, 175), ("temp", -5, 32), ("humidity", 30, 95),
    ("percent", 1, 99),
    ("rating", 3, 5), ("score", 0, 1), ("rate", 0.5, 1.6), ("price", 12, 480), ("amount", 12, 480), ("cost", 12, 480),
    ("fare", 12, 480), ("total", 20, 900), ("balance", 100, 5000), ("distance", 2, 900), ("duration", 5, 180),
    ("minutes", 5, 180), ("hours", 1, 12), ("days", 1, 14), ("year", 2015, 2026), ("population", 20000, 4000000),
    ("count", 1, 9), ("stock", 1, 60), ("quantity", 1, 9), ("size", 100, 9000), ("page", 1, 1),
)  # fmt: skip
COUNTS = {"count", "total", "total_count", "totalCount", "total_results"}
EPOCH = datetime.datetime(2026, 3, 2, 8, 0)


@dataclass(frozen=True)
class World:
    """What is known when one call is answered."""

    about: str  # what the values are about: the thing that the arguments name
    noun: str
    arguments: dict[str, Any]
    known: dict[str, Any]  # properties that the history gives to the same thing
    created: tuple[dict[str, Any], ...]

    def draw(self, *path: str) -> random.Random:
        return random.Random(hashlib.sha256("\x00".join((self.about, *path)).encode()).hexdigest())


def emulate(shown: dict[str, Any]) -> dict[str, Any]:
    """The reply ``{"result": ...}`` or ``{"error": ...}`` to a call, from the prompt's input."""
    tool, arguments, history = shown["tool"], shown["arguments"], shown["history"]
    gone = _deleted(arguments, history)
    if gone is not None:
        return {"error": f"not found: {gone}"}
    world = _world(tool["name"], arguments, history)
    schema = tool.get("returns")
    if not schema:
        return {"result": _undocumented(tool["name"], world)}
    return {"result": _value(schema, schema, (tool["name"],), world)}


def words(name: str) -> list[str]:
    """``getUser_id`` -> get, user, id."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def _verb(tool: str) -> str:
    return (words(tool) or [""])[0]


def _noun(tool: str) -> str:
    last = (words(tool) or ["item"])[-1]
    return last[:-1] if last.endswith("s") and len(last) > 3 else last


def _is_id(name: str) -> bool:
    return bool(words(name)) and words(name)[-1] in (
        "id",
        "ids",
        "key",
        "uuid",
        "no",
        "number",
        "ref",
        "reference",
        "code",
    )


def _scalars(value: Any) -> list[tuple[str, Any]]:
    """Every property with a plain value in a result, at any depth."""
    if isinstance(value, dict):
        found = [(key, one) for key, one in value.items() if isinstance(one, str | int | float)]
        return found + [pair for one in value.values() for pair in _scalars(one)]
    if isinstance(value, list):
        return [pair for one in value for pair in _scalars(one)]
    return []


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(inner for one in value.values() for inner in _objects(one))]
    if isinstance(value, list):
        return [inner for one in value for inner in _objects(one)]
    return []


def _deleted(arguments: dict[str, Any], history: list[dict[str, Any]]) -> str | None:
    """The id among the arguments that an earlier call took out of the world."""
    gone = {
        str(value)
        for earlier in history
        if "error" not in earlier and _verb(earlier["tool"]) in DELETING
        for name, value in earlier["arguments"].items()
        if _is_id(name)
    }
    return next((str(value) for name, value in arguments.items() if _is_id(name) and str(value) in gone), None)


def _world(tool: str, arguments: dict[str, Any], history: list[dict[str, Any]]) -> World:
    named = {name: value for name, value in arguments.items() if isinstance(value, str | int | float)}
    identity = {name: value for name, value in named.items() if _is_id(name)}
    about = sorted((words(name)[-1], str(value)) for name, value in named.items() if words(name))
    creating = _verb(tool) in CREATING
    turn = [str(len(history))] if creating else []
    known: dict[str, Any] = {}
    created: list[dict[str, Any]] = []
    for earlier in history:
        if "error" in earlier:
            continue
        objects = _objects(earlier["result"])
        if _verb(earlier["tool"]) in CREATING and objects:
            created.append({**_plain(earlier["arguments"]), **_plain(objects[0])})
        if identity and not (creating and _verb(earlier["tool"]) in CREATING):
            for thing in ({**earlier["arguments"], **(_plain(objects[0]) if objects else {})}, *objects):
                if any(str(value) in map(str, _plain(thing).values()) for value in identity.values()):
                    known.update(_plain(thing))
    if creating:  # what is made anew has names and states of its own; prices and places stay
        known = {name: value for name, value in known.items() if not _is_id(name)}
    return World(json.dumps([_noun(tool), about, turn]), _noun(tool), arguments, known, tuple(created))


def _plain(thing: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in thing.items() if isinstance(value, str | int | float)}


def _undocumented(tool: str, world: World) -> dict[str, Any]:
    """A plausible object where the document says nothing of the result."""
    given = _plain(world.arguments)
    if _verb(tool) in CREATING:
        return {"id": _identifier(world, ("id",)), **given, "status": "ok"}
    if _verb(tool) in DELETING:
        return {**given, "status": "done"}
    return {**given, **world.known, "name": f"{world.draw('name').choice(WORDS)} {world.noun}", "status": "ok"}


# ---------------------------------------------------------------- values by schema


def _value(schema: Any, root: dict[str, Any], path: tuple[str, ...], world: World) -> Any:
    schema = _resolved(schema, root, world.draw(*path, "which"))
    if "const" in schema:
        return schema["const"]
    name = path[-1]
    kind = _kind(schema)
    if len(path) > 1 and kind not in ("object", "array"):
        settled = _settled(name, schema, kind, path, world)
        if settled is not None:
            return settled
    draw = world.draw(*path[1:])
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if kind == "object":
        return _object(schema, root, path, world)
    if kind == "array":
        return _array(schema, root, path, world)
    if kind == "boolean":
        return draw.random() < 0.8 if not set(words(name)) & {"success", "ok", "confirmed"} else True
    if kind in ("integer", "number"):
        return _number(name, kind, schema, path, world)
    return None if kind == "null" else _text(name, schema, path, world)


def _resolved(schema: Any, root: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    for _ in range(8):
        if not isinstance(schema, dict):
            return {}
        if str(schema.get("$ref", "")).startswith("#/"):
            target: Any = root
            for part in schema["$ref"][2:].split("/"):
                target = target.get(part, {}) if isinstance(target, dict) else {}
            schema = target
        elif "allOf" in schema:
            parts = [_resolved(part, root, draw) for part in schema["allOf"]]
            merged: dict[str, Any] = {key: value for part in parts for key, value in part.items()}
            merged["properties"] = {k: v for part in [*parts, schema] for k, v in part.get("properties", {}).items()}
            merged["required"] = sorted({name for part in [*parts, schema] for name in part.get("required", [])})
            schema = {**{key: value for key, value in schema.items() if key != "allOf"}, **merged}
        elif "anyOf" in schema or "oneOf" in schema:
            options = [
                one for one in (schema.get("anyOf") or schema.get("oneOf") or ()) if one != {"type": "null"}
            ] or [{}]
            schema = options[0]
        else:
            return schema
    return {}


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        return "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _settled(name: str, schema: dict[str, Any], kind: str, path: tuple[str, ...], world: World) -> Any:
    """The value that the call or the session's history gives to a property, where its schema takes it."""
    top = not any(part.startswith("#") for part in path)
    given = world.arguments.get(name)
    if given is None and top and words(name) == ["id"]:
        own = [value for other, value in world.arguments.items() if words(other)[-1:] == ["id"]]
        given = own[0] if len(own) == 1 else None
    if (given is None and top and name not in VOLATILE) or (
        given is None and top and words(name)[-1:] in (["status"], ["state"])
    ):
        given = world.known.get(name)
    return given if given is not None and _fits(given, schema, kind) else None


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
    made = {name: _value(one, root, (*path, name), world) for name, one in properties.items()}
    if not properties and schema.get("additionalProperties") is not False:
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and extra:
            return {one: _value(extra, root, (*path, one), world) for one in ("first", "second")}
        return _plain(world.arguments)
    return _counted(made)


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
    least, most = schema.get("minItems", 0), schema.get("maxItems", 3)
    wanted = world.arguments.get("limit", world.arguments.get("max_results", 3))
    most = min(most, wanted) if isinstance(wanted, int) and wanted >= 1 else most
    count = max(least, min(most, world.draw(*path, "length").randint(1, 3)))
    items = schema.get("items", {})
    made = _remembered(_resolved(items, root, world.draw(*path)), world)[: max(count, 1)]
    return made + [_value(items, root, (*path, f"#{n}"), world) for n in range(len(made), count)]


def _remembered(item: dict[str, Any], world: World) -> list[Any]:
    """Things that this session created and that fit a list's items."""
    required = item.get("required", list(item.get("properties", {})))
    if not (required and any(_is_id(name) for name in required)):
        return []
    properties = item.get("properties", {})
    fitting = [one for one in world.created if all(name in one for name in required)]
    return [{name: one[name] for name in properties if name in one} for one in fitting]


def _number(name: str, kind: str, schema: dict[str, Any], path: tuple[str, ...], world: World) -> int | float:
    spoken = set(words(name))
    low, high = next(
        ((low, high) for word, low, high in RANGES if any(one.startswith(word) for one in spoken)),
        (1000.0, 9999.0) if _is_id(name) else (1.0, 100.0),
    )
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
            if _is_id(name)
            else _text_by_name(name, path, world)
        )
    made = made.ljust(schema.get("minLength", 0), "x")
    return made[: schema["maxLength"]] if "maxLength" in schema else made


def _text_by_format(form: str, name: str, path: tuple[str, ...], world: World) -> str | None:
    draw = world.draw(*path[1:])
    spoken = words(name)
    day = _moment(world, draw)
    if form == "date-time" or (not form and spoken[-1:] in (["at"], ["time"], ["timestamp"], ["datetime"])):
        return day.isoformat() + "Z"
    if form == "date" or (not form and "date" in spoken):
        return day.date().isoformat()
    if form == "time":
        return day.time().isoformat()
    if form in ("uri", "url") or (not form and spoken[-1:] in (["url"], ["uri"], ["link"], ["href"])):
        return f"https://{world.noun}.example.org/{draw.getrandbits(24):06x}"
    if form == "uuid":
        bits = f"{draw.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"
    if form == "email":
        return draw.choice(dict(TEXTS)["email"])
    if form == "ipv4":
        return f"192.0.2.{draw.randint(1, 254)}"
    return None


def _moment(world: World, draw: random.Random) -> datetime.datetime:
    """A time on the day that the call names; in the weeks after EPOCH where it names none."""
    for value in world.arguments.values():
        named = re.match(r"\d{4}-\d{2}-\d{2}", value) if isinstance(value, str) else None
        if named is not None:
            with contextlib.suppress(ValueError):  # 2026-02-31 is a day only to the schema
                start = datetime.datetime.fromisoformat(named.group())
                return start + datetime.timedelta(minutes=15 * draw.randint(24, 88))
    return EPOCH + datetime.timedelta(minutes=15 * draw.randint(0, 9000))


def _text_by_name(name: str, path: tuple[str, ...], world: World) -> str:
    draw = world.draw(*path[1:])
    spoken = words(name)
    for word, choices in TEXTS:
        if any(one.startswith(word) for one in spoken):
            return draw.choice(choices)
    if spoken[-1:] in (["name"], ["title"]):
        about = spoken[-2] if len(spoken) > 1 else world.noun
        return f"{draw.choice(WORDS).capitalize()} {about}"
    if spoken[-1:] in (["message"], ["confirmation"], ["summary"], ["description"], ["text"], ["content"]):
        given = [str(value) for value in _plain(world.arguments).values()]
        return f"{world.noun} {draw.choice(WORDS)}" + (f" for {given[0]}" if given else "")
    return f"{draw.choice(WORDS)}-{draw.randint(10, 99)}"


_LENGTHS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8}
_LENGTH = re.compile(r"\b(two|three|four|five|six|eight) (letters|characters|digits)\b")


def _identifier(world: World, path: tuple[str, ...], description: str = "") -> str:
    """A name that nothing else has, in the form that the document describes, if it does."""
    draw = world.draw(*path)
    form = _LENGTH.search(description)
    if form is not None:
        letters = {"letters": "ABCDEFGHKLMNPRSTVW", "characters": "ABCDEFGHKLMNPRST23456789", "digits": "123456789"}
        return "".join(draw.choice(letters[form.group(2)]) for _ in range(_LENGTHS[form.group(1)]))
    spoken = words(path[-1]) if path else []
    about = spoken[-2] if len(spoken) > 1 else world.noun
    return f"{about[:4].upper()}-{draw.randint(1000, 9999)}"


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
