"""Values that a user might give for a parameter, from its schema, its description and its name."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Mapping
from typing import Any

import jsonschema

from astra.llm.builtin.phrases import words
from astra.llm.builtin.values import identifier

FIRST_DAY = datetime.date(2026, 4, 1)
PEOPLE = ("Ines Duarte", "Milan Horvat", "Aisha Bello", "Tomas Lindqvist", "Priya Nair", "Joao Mendes", "Lena Fischer",
          "Kofi Asante", "Yuki Tanaka", "Marta Kowalska", "Owen Byrne", "Sara Haddad")  # fmt: skip
TOWNS = ("Lyme", "Aveiro", "Bergen", "Ghent", "Izola", "Kotor", "Malmo", "Narva", "Oban", "Pula", "Rennes", "Siena")
LISTS: tuple[tuple[str, tuple[str, ...]], ...] = (  # the first whose word is in the parameter's name
    ("language", ("English", "Portuguese", "French", "Polish", "Japanese", "Dutch")),
    ("email", tuple(f"{name.split()[0].lower()}@example.org" for name in PEOPLE)),
    ("timezone", ("Europe/Lisbon", "Asia/Tokyo", "America/Toronto", "Africa/Nairobi", "Australia/Perth")),
    ("branch name", ("fix-login", "feature/export", "release-2", "docs-update", "spike-cache")),
    ("branch type", ("local", "remote", "all")),
    ("branch", ("main", "develop")),
    ("repo path", ("/srv/repos/harbour", "/srv/repos/atlas", "/home/ines/notes", "/srv/repos/bakery")),
    ("path", ("docs/guide.md", "src/main.py", "data/table.csv")),
    ("files", ("README.md", "src/main.py", "docs/guide.md", "tests/test_main.py")),
    ("revision", ("HEAD", "HEAD~1", "main", "v1.2.0")),
    ("target", ("main", "develop", "HEAD~2", "v1.2.0")),
    ("message", ("Mend the login form", "Add the export page", "Update the guide", "Remove dead code")),
    ("phone", ("+351 210 555 014", "+47 22 55 50 17", "+44 1632 960 001", "+32 9 555 01 22")),
    ("post code", ("1200-109", "5003", "9000", "DT7 3JF", "10115")),
    ("term", ("autumn 2026", "spring 2027")),
    ("subject", ("chemistry", "history", "statistics", "linguistics", "biology")),
    ("district", ("Old Harbour", "Northgate", "Mill Quarter", "Riverside", "Castle Hill")),
    ("ingredient", ("lentils", "spinach", "buckwheat", "pears", "chickpeas", "fennel")),
    ("plant", ("birch", "hazel", "mugwort", "timothy grass", "alder")),
    ("theme", ("seafaring", "Bauhaus", "ancient glass", "photography", "maps")),
    ("river", ("Elbe", "Douro", "Shannon", "Vistula", "Meuse")),
    ("article", ("hex bolts", "cable ties", "pallet wrap", "work gloves", "safety lamps")),
    ("purpose", ("garden design", "website upkeep", "roof repair", "translation of a manual")),
    ("damage", ("the box is crushed on one side", "the parcel never arrived", "the glass inside is broken")),
    ("reason", ("yearly check", "a rash on the arm", "pain in the knee")),
    ("risk", ("low", "moderate", "high")),
    ("room", ("kitchen", "study", "attic", "living room")),
    ("words", ("tidal rivers", "bread baking", "star charts", "northern myths", "bridge building")),
    ("port", TOWNS), ("town", TOWNS), ("city", TOWNS), ("place", TOWNS), ("location", TOWNS), ("destination", TOWNS),
    ("country", ("Portugal", "Norway", "Japan", "Kenya", "Canada")),
    ("client", ("Weaver & Sons", "Studio Norte", "Green Acre Farm", "Lindqvist Boats")),
    ("family", tuple(name.split()[1] for name in PEOPLE)),
    ("recipient", PEOPLE), ("traveller", PEOPLE), ("picker", PEOPLE), ("student", PEOPLE), ("adopter", PEOPLE),
    ("person", PEOPLE), ("author", PEOPLE), ("user", PEOPLE), ("owner", PEOPLE), ("name", PEOPLE),
    ("query", ("tidal rivers", "bread baking", "star charts", "northern myths")),
    ("title", ("Minutes of the spring meeting", "Plan for the summer", "Notes on the survey")),
    ("currency", ("EUR", "NOK", "JPY", "CAD")),
    ("url", ("https://example.org/a", "https://example.org/b")),
)  # fmt: skip
RANGES: tuple[tuple[str, float, float], ...] = (
    ("percent", 10, 90), ("level cm", 150, 600), ("level", 1, 3), ("hours", 6, 72), ("weeks", 1, 4), ("days", 1, 14),
    ("passengers", 1, 6), ("visitors", 2, 12), ("portions", 2, 8), ("words", 400, 9000), ("pieces", 5, 80),
    ("weight", 0.5, 12), ("kilograms", 0.5, 5), ("amount", 20, 400), ("net", 80, 2400), ("target c", 17, 24),
    ("age", 1, 9), ("limit", 2, 8), ("count", 2, 10), ("lines", 1, 8), ("minutes", 10, 90), ("year", 2019, 2026),
    ("price", 20, 300), ("lat", -40, 60), ("lon", -90, 120),
)  # fmt: skip
_EXAMPLE = re.compile(r"\be\.g\.,? ?[\"'`]?([A-Za-z0-9][\w/:.-]*[\w])")


def sample_value(name: str, schema: Mapping[str, Any], rng: random.Random) -> Any:
    """A value that the schema takes; None where no rule finds one."""
    value = _draw(name, schema, rng)
    if value is None or not jsonschema.Draft202012Validator(dict(schema)).is_valid(value):
        value = _shaped(schema, rng)
    return value


def _shaped(schema: Mapping[str, Any], rng: random.Random) -> Any:
    """A last try: something the schema itself shows."""
    shown = [*schema.get("examples", []), *([schema["default"]] if schema.get("default") is not None else [])]
    fitting = [one for one in shown if jsonschema.Draft202012Validator(dict(schema)).is_valid(one)]
    return rng.choice(fitting) if fitting else None


def _draw(name: str, schema: Mapping[str, Any], rng: random.Random) -> Any:
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return rng.choice(schema["enum"])
    if schema.get("examples"):
        return rng.choice(schema["examples"])
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _draw(name, next((one for one in options if one.get("type") != "null"), {}), rng)
    kinds = schema.get("type", "string")
    kind = kinds if isinstance(kinds, str) else next((one for one in kinds if one != "null"), "string")
    if kind in ("integer", "number"):
        return _number(name, schema, rng, whole=kind == "integer")
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        items = [_draw(name, schema.get("items", {}), rng) for _ in range(max(schema.get("minItems", 1), 2))]
        if None in items:
            return None
        return list(dict.fromkeys(items)) if all(isinstance(one, str) for one in items) else items
    if kind == "object":
        wanted = schema.get("required", [])
        made = {one: _draw(one, schema["properties"].get(one, {}), rng) for one in wanted} if wanted else None
        return None if made is None or None in made.values() else made
    return _text(name, schema, rng)


def _number(name: str, schema: Mapping[str, Any], rng: random.Random, whole: bool) -> int | float:
    spoken = words(name)
    low, high = next(((low, high) for word, low, high in RANGES if word in spoken), (1, 20))
    low, high = max(low, schema.get("minimum", low)), min(high, schema.get("maximum", high))
    if low > high:
        low = high = schema.get("minimum", high)
    least = int(-(-low // 1))
    return rng.randint(least, max(least, int(high))) if whole else round(rng.uniform(low, high), 1)


def _text(name: str, schema: Mapping[str, Any], rng: random.Random) -> str:
    spoken, form = words(name), schema.get("format")
    day = FIRST_DAY + datetime.timedelta(days=rng.randint(0, 200))
    if form == "date" and "birth" in spoken:
        return (day - datetime.timedelta(days=rng.randint(8000, 26000))).isoformat()
    if form == "date" or (form is None and spoken.split()[-1] in ("date", "day")):
        return day.isoformat()
    if form == "date-time":
        return f"{day.isoformat()}T{rng.randint(7, 20):02d}:{rng.choice(('00', '15', '30', '45'))}:00Z"
    if form == "time" or (form is None and spoken.split()[-1] == "time"):
        return f"{rng.randint(7, 20):02d}:{rng.choice(('00', '15', '30', '45'))}"
    shown = _EXAMPLE.search(str(schema.get("description", "")))
    if shown:
        return re.sub(r"(?<!\d)20\d\d(?!\d)|\d", lambda found: _other(found.group(), rng), shown.group(1))
    if spoken.split()[-1] in ("id", "no", "code", "ref", "number", "key", "card") and "post code" not in spoken:
        return identifier((spoken.split()[:-1] or ["item"])[-1], str(schema.get("description", "")), rng)
    for word, choices in LISTS:
        if re.search(rf"\b{word}", spoken):
            return rng.choice(choices)
    return rng.choice(("blue", "north", "spring", "quiet", "amber")) + " " + spoken.split()[-1]


def _other(digits: str, rng: random.Random) -> str:
    """Another digit; a year stays."""
    return digits if len(digits) == 4 else str(rng.randint(1, 9))
