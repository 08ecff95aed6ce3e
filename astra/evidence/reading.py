"""Reading numbers, days, times and addresses out of text, leniently: every reading that is possible."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any, NamedTuple

WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "dozen": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50, "sixty": 60, "ninety": 90, "hundred": 100,
}  # fmt: skip
SCALES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "bn": 1e9, "billion": 1e9}
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip

PART = re.compile(r"[^\W_]+")
ADDRESS = re.compile(r"https?://[^\s\"'<>)\]}]+|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]+)+", re.IGNORECASE)
TOKEN = re.compile(r"(?:(?<=\d),(?=\d)|[^\s\"'`,;()\[\]{}<>|*])+")
_NUMBER = re.compile(r"(?<![\w.,])[-−+]?[$€£¥]?(\d+(?:[.,'  ]\d+)*)\s?(%|k\b|thousand\b|m\b|million\b|bn\b|billion\b)?")
PHONE = re.compile(r"\+?\d[\d ()/.-]{4,}\d")
_ISO_DAY = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
DOTTED_DAY = re.compile(r"(?<![\d.])(\d{1,2})[./](\d{1,2})[./](\d{4})(?!\d)")
_MONTH = "|".join(f"{name}|{name[:3]}\\.?" for name in MONTHS)
NAMED_DAY = re.compile(
    rf"(?<!\w)(?:(\d{{1,2}})(?:st|nd|rd|th)?\.? (?:of )?({_MONTH})|({_MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?)"
    r"(?:,? (\d{4}))?(?!\w)",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?<![\d:])(\d{1,2})(?::(\d\d))(?::\d\d)?(?: ?([ap])\.?m\b)?|(?<![\d:])(\d{1,2}) ?([ap])\.?m\b")
CLOCK = re.compile(r"(\d{1,2}):(\d\d)(:\d\d)?")
DATED = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::\d\d(?:\.\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?")
DATED_WORD = re.compile(rf"(?<![\w-]){DATED.pattern}(?![\w-])")
RELATIVE = re.compile(
    r"\b(today|tonight|tomorrow|yesterday|weekend|(mon|tues|wednes|thurs|fri|satur|sun)days?)\b"
    r"|\b(next|this|last|coming|following|past|each|every|few|two|three|four|five|six|seven|ten|\d+) (\w+ )?"
    r"(days?|nights?|weeks?|months?|years?)\b"
    r"|\b(heute|morgen|gestern|(nächste|kommende|diese|letzte)[nrs]? \w+)\b"
    r"|\b((mon|diens|donners|frei|sams|sonn)tag|mittwoch)\b"
    r"|\b(hoy|mañana|ayer|semana|demain|aujourd|hier|semaine)|[今明昨后前][天日年]|[上下本这]个?[周月]",
    re.IGNORECASE,
)


def folded(text: str) -> str:
    """Text as it is compared: form and case do not count, nor do accents."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(one for one in plain if not unicodedata.combining(one))


def leaves(value: Any) -> Iterator[Any]:
    """The plain values in arguments or a result."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def parsed(text: str) -> Any:
    """The value of a JSON text; another text is itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class Day(NamedTuple):
    """A day of a year, or of any year where none was said."""

    year: int | None
    month: int
    day: int


def days(text: str) -> Iterator[Day]:
    """The days that a text names; where month and day may be meant either way round, both."""
    for found in _ISO_DAY.finditer(text):
        yield Day(int(found[1]), int(found[2]), int(found[3]))
    for found in DOTTED_DAY.finditer(text):
        yield Day(int(found[3]), int(found[2]), int(found[1]))
        yield Day(int(found[3]), int(found[1]), int(found[2]))
    for found in NAMED_DAY.finditer(text):
        name = (found[2] or found[3])[:3].lower()
        month = next(number for number, one in enumerate(MONTHS, 1) if one.startswith(name))
        yield Day(int(found[5]) if found[5] else None, month, int(found[1] or found[4]))


def times(text: str) -> Iterator[tuple[int, int]]:
    """The times of day that a text names, as hour and minute."""
    for found in _TIME.finditer(text.lower()):
        hour, half = int(found[1] or found[4]), found[3] or found[5]
        if half:
            hour = hour % 12 + (12 if half == "p" else 0)
        yield hour, int(found[2] or 0)


def numbers(text: str) -> Iterator[float]:
    """The numbers in a text; one that can be read in two ways (``1.234``) in both."""
    for found in _NUMBER.finditer(text):
        scale = SCALES.get(found[2] or "", 1.0)
        for number in readings(found[1]):
            yield number * scale
            if found[2] == "%":
                yield number / 100


def readings(digits: str) -> set[float]:
    """What digits with marks between them may mean."""
    plain = re.sub(r"['  ]", "", digits)
    found = set()
    for group, mark in ((",", "."), (".", ",")):
        whole, _, rest = plain.rpartition(mark) if plain.count(mark) == 1 else (plain, "", "")
        text = whole.replace(group, "") + (f".{rest}" if rest else "")
        if re.fullmatch(r"\d+(\.\d+)?", text):
            found.add(float(text))
    return found


def names(value: Any) -> Iterator[str]:
    """The names of all fields in a value."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield str(name)
            yield from names(one)
    elif isinstance(value, list):
        for one in value:
            yield from names(one)


def totals(value: Any) -> Iterator[float]:
    """Length of each list in a value, and sum and mean of the numbers that its items hold under one name."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from totals(one)
    elif isinstance(value, list):
        yield float(len(value))
        columns: dict[str, list[float]] = {}
        for item in value:
            for name, one in item.items() if isinstance(item, Mapping) else [("", item)]:
                if isinstance(one, int | float) and not isinstance(one, bool):
                    columns.setdefault(str(name), []).append(float(one))
        for column in columns.values():
            yield from (sum(column), fmean(column))
        for item in value:
            yield from totals(item)


def stands_in(plain: str, text: str) -> bool:
    """Whether a text stands in another, and in ASCII as no part of a longer word or number."""
    at = text.find(plain)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(plain) : at + len(plain) + 1]
        cut = (before.isalnum() and plain[0].isalnum()) or (after.isalnum() and plain[-1].isalnum())
        if not (cut and plain.isascii()):
            return True
        at = text.find(plain, at + 1)
    return False
