"""Values as a server gives them: by the words of a property's name, and by what its document says it is."""

from __future__ import annotations

import random
import re
from functools import lru_cache

PEOPLE = (
    "Ana Ruiz", "Ben Okafor", "Chen Wei", "Dana Levi", "Emil Novak", "Fatima Noor", "Grace Kim", "Hugo Brandt",
    "Irena Kos", "Jamal Aziz", "Karin Holm", "Luca Serra",
)  # fmt: skip
EMAILS = tuple(f"{name.lower().replace(' ', '.')}@example.org" for name in PEOPLE)
CITIES = ("Lisbon", "Oslo", "Nairobi", "Kyoto", "Quito", "Tallinn", "Perth", "Montreal")
COUNTRIES = ("Portugal", "Norway", "Kenya", "Japan", "Ecuador", "Estonia", "Australia", "Canada")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
STREETS = ("Harbour Road", "Mill Lane", "Station Square", "Castle Hill", "River Walk", "Market Place", "North Quay")
PLACES = ("Harbour", "Northgate", "Old Mill", "Riverside", "Castle Hill", "Market Place", "West Bridge")

NAMED: dict[str, tuple[str, ...]] = {  # what things of a kind are called, by the kind
    "animal": ("Bella", "Milo", "Luna", "Rocky", "Nala", "Oscar", "Misty"),
    "article": ("Hex bolts M8", "Cable ties 200 mm", "Pallet wrap", "Work gloves", "Safety lamp", "Drill bits"),
    "artwork": ("Boats at Dusk", "Still Life with Pears", "The Glass Blower", "View of the Delta", "Two Sisters"),
    "course": ("Introduction to Statistics", "Modern History", "Organic Chemistry", "Linguistics I", "Ecology"),
    "dish": ("Lentil soup", "Spinach pie", "Pear tart", "Buckwheat salad", "Fennel stew"),
    "exhibition": ("Ships and Stars", "Bauhaus at Home", "Glass of Antiquity", "Maps of the North", "First Light"),
    "form": ("Medical history", "Consent to treatment", "Insurance details", "Allergy questionnaire"),
    "gauge": tuple(f"{place} gauge" for place in PLACES),
    "market": tuple(f"{place} market" for place in PLACES),
    "point": ("Corner Shop Levi", "Station Kiosk", "Garden Centre Holm", "Book Shop Serra", "Mill Lane Grocery"),
    "port": ("Lyme", "Aveiro", "Bergen", "Izola", "Kotor", "Oban", "Pula"),
    "recipe": ("Lentil soup", "Spinach pie", "Pear tart", "Buckwheat salad", "Fennel stew"),
    "repository": ("atlas", "harbour", "bakery", "field-notes"),
    "room": ("kitchen", "study", "attic", "living room"),
    "scene": ("evening", "film night", "wake up", "away"),
    "site": tuple(f"{place} site" for place in PLACES),
    "station": tuple(f"{place} station" for place in PLACES),
    "supplier": ("Brandt Fasteners", "Nordic Packing", "Levi Tools", "Okafor Supplies"),
    "work": ("Tidal Rivers", "The Bread Book", "A Chart of Stars", "Northern Myths", "How Bridges Stand"),
}
_HUMAN = frozenset({
    "adopter", "artist", "assignee", "author", "buyer", "client", "contact", "customer", "doctor", "driver", "family",
    "grower", "guest", "guide", "host", "lecturer", "member", "owner", "patient", "person", "picker", "reporter",
    "reader", "sender", "student", "teacher", "translator", "traveller", "user",
})  # fmt: skip

TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (  # the first that begins a word of the property's name
    ("email", EMAILS),
    ("currency", ("EUR", "USD", "GBP", "JPY")),
    ("country", COUNTRIES),
    ("city", CITIES),
    ("town", CITIES),
    ("place", CITIES),
    ("timezone", ("Europe/Lisbon", "Europe/Oslo", "Africa/Nairobi", "Asia/Tokyo")),
    ("language", ("en", "fr", "pt", "ja")),
    ("address", tuple(f"{7 + 9 * n} {STREETS[n % 7]}, {city}" for n, city in enumerate(CITIES))),
    ("street", STREETS),
    ("phone", tuple(f"+1 555 01{n:02d}" for n in range(10, 90, 10))),
    ("status", ("confirmed", "active", "ok")),
    ("state", ("open", "active", "ready")),
    ("condition", ("clear", "light rain", "overcast", "windy")),
    ("unit", ("metric",)),
    ("color", ("blue", "green", "red")),
    ("version", ("1.4.2", "2.0.1", "3.7.0")),
    ("branch", ("Central", "Harbour", "Northgate", "Riverside")),
    ("weekday", WEEKDAYS),
    ("day", WEEKDAYS),
    ("risk", ("none", "low", "moderate", "high", "severe")),
    ("priority", ("low", "normal", "high")),
    ("temper", ("calm", "playful", "shy with strangers", "good with children", "lively")),
    ("advice", (
        "Keep the windows closed in the morning.", "Stay indoors around noon.", "No precautions are needed.",
        "Take your medicine before going out.",
    )),
    ("substitute", ("chickpeas", "oat flour", "rapeseed oil", "apple sauce", "red lentils")),
    ("ingredient", ("lentils", "spinach", "onions", "olive oil", "flour", "pears")),
    ("produce", ("apples", "carrots", "goat cheese", "plums", "kale", "leeks")),
    ("aisle", ("A1", "A4", "B2", "C3", "D7")),
    ("hall", ("Hall 1", "Hall 2", "Hall 4", "East hall", "Upper gallery")),
    ("shelf", ("QB 12", "FIC NOV", "914.6 RUI", "CHI 3", "REF 20")),
    ("difference", ("+9.0h", "-5.0h", "+1.0h", "+3.5h")),
)  # fmt: skip
RANGES: tuple[tuple[str, float, float], ...] = (  # the first that begins a word of the property's name
    ("lat", -60, 65), ("lon", -170, 175), ("lng", -170, 175), ("temp", 14, 27), ("humidity", 35, 75),
    ("battery", 8, 100), ("percent", 1, 99), ("rating", 3, 5), ("score", 0, 1), ("rate", 0.1, 1.6),
    ("postage", 4, 24), ("fee", 2, 90), ("fare", 12, 180), ("refund", 8, 160), ("price", 2, 60), ("cost", 5, 240),
    ("gross", 60, 2900), ("open", 40, 900), ("total", 12, 190), ("amount", 20, 480), ("balance", 100, 5000),
    ("flood", 480, 820), ("level", 90, 460), ("forecast", 90, 460), ("flow", 4, 600), ("grains", 1, 320),
    ("river", 2, 280), ("energy", 160, 840), ("protein", 3, 44), ("power", 2, 1800), ("credits", 2, 10),
    ("distance", 60, 2400), ("duration", 5, 180), ("crossing", 25, 260), ("cooking", 10, 110), ("minutes", 5, 90),
    ("hours", 1, 12), ("lead", 2, 21), ("days", 1, 9), ("age", 1, 13), ("year", 2015, 2026),
    ("population", 20000, 4000000), ("waiting", 0, 7), ("queue", 1, 6), ("position", 1, 6), ("terms", 40, 900),
    ("items", 4, 28), ("difference", -4, 6), ("hand", 12, 240), ("left", 1, 40), ("docks", 0, 24), ("bikes", 0, 18),
    ("count", 1, 9), ("stock", 1, 60), ("quantity", 1, 9), ("size", 100, 9000), ("page", 1, 1),
)  # fmt: skip

_LENGTHS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8}
_LENGTH = re.compile(r"\b(two|three|four|five|six|eight) (letters|characters|digits)\b", re.IGNORECASE)
_LETTERS = {"letters": "ABCDEFGHKLMNPRSTVW", "characters": "ABCDEFGHKLMNPRST23456789", "digits": "123456789"}
_ALL_OF = re.compile(r"^(?:name|full name|short name|family name) of (?:the |an? )?(?P<noun>\w+)", re.IGNORECASE)


@lru_cache(maxsize=65536)
def choices(spoken: tuple[str, ...], description: str) -> tuple[str, ...]:
    """The texts that a property may have by its name's words and its document; empty where neither says."""
    noun = spoken[-2] if len(spoken) > 1 and spoken[-1] in ("name", "title") else ""
    document = _ALL_OF.match(description)
    for one in (noun, document["noun"].lower() if document else "", spoken[-1] if spoken else ""):
        if one in _HUMAN:
            return tuple(name.split()[1] for name in PEOPLE) if "family" in (one, noun) else PEOPLE
        if one in NAMED and (noun or document):
            return NAMED[one]
    if re.search(r"\bweekday and hour\b", description, re.IGNORECASE):
        return tuple(f"{day} {hour}:15" for day, hour in zip(WEEKDAYS[:5], (9, 11, 14, 10, 16), strict=True))
    if re.match(r"time (from|at|until) ", description, re.IGNORECASE):
        return ("09:30", "11:00", "15:30", "17:00")
    if re.match(r"number of the \w+ room", description, re.IGNORECASE):
        return ("2", "5", "11", "14")
    return next((texts for word, texts in TEXTS if any(one.startswith(word) for one in spoken)), ())


@lru_cache(maxsize=65536)
def span(spoken: tuple[str, ...]) -> tuple[float, float] | None:
    """Between what a number lies, by its name's words; None where they do not say."""
    return next(((low, high) for word, low, high in RANGES if any(one.startswith(word) for one in spoken)), None)


def identifier(about: str, description: str, draw: random.Random) -> str:
    """A name that hardly anything else has, in the form that the document describes, if it does."""
    form = _LENGTH.search(description)
    if form is not None:
        return "".join(draw.choice(_LETTERS[form.group(2).lower()]) for _ in range(_LENGTHS[form.group(1).lower()]))
    return f"{about[:4].upper()}-{draw.randint(1000, 9999)}"
