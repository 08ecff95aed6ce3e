"""The values of calls and the facts of what is said: which of them have a source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from astra.evidence.known import Known
from astra.evidence.reading import (
    ADDRESS,
    CLOCK,
    DATED,
    DATED_WORD,
    DOTTED_DAY,
    NAMED_DAY,
    PART,
    TOKEN,
    days,
    folded,
    readings,
)
from astra.records import ToolSpec
from astra.records.references import dereferenced

_NAMES = re.compile(r"(?:^|[^a-zA-Z])(?:id|no|nr|code|key)$|[a-z](?:Id|ID|No|Nr|Code|Key)$")  # numbers that only name
_COORDINATE = re.compile(r"(?:^|[^a-z])(?:lat|lon|lng|latitude|longitude)$", re.IGNORECASE)  # a place's, from knowledge
SMALL = 12  # whole numbers up to this are often said in words

_GERMAN = re.compile(r"\b(der|die|das|und|ist|nicht|ein|eine|für|mit|von|zu)\b")
_MARKUP = re.compile(r"^\s*([#|>*+-]|\d+[.)])\s|\*\*|```", re.MULTILINE)
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)(?<![\w\"'(.-])[A-Z][a-z][\w-]*(?<!-)", re.MULTILINE)

Fault = Literal["invented", "unsourced"]


# ---------------------------------------------------------------- the values of a call


class Given(NamedTuple):
    """A value in a call's arguments: where it stands and what its tool's document says of the place."""

    name: str
    value: Any
    schema: Mapping[str, Any]
    required: bool


def given(arguments: Any, tool: ToolSpec) -> Iterator[Given]:
    """The plain values of a call's arguments."""
    root = tool.parameters

    def walk(name: str, value: Any, schema: Mapping[str, Any], required: bool) -> Iterator[Given]:
        schema = dereferenced(schema, root)
        if isinstance(value, Mapping):
            needed = schema.get("required", ())
            parts = schema.get("properties", {})
            for key, one in value.items():
                where = f"{name}.{key}" if name else str(key)
                yield from walk(where, one, parts.get(key, {}), required and key in needed)
        elif isinstance(value, list):
            items = schema.get("items", {})
            for one in value:
                yield from walk(name, one, items if isinstance(items, Mapping) else {}, required)
        else:
            yield Given(name, value, schema, required)

    yield from walk("", arguments, root, True)


def source_fault(one: Given, known: Known) -> Fault | None:
    """``invented`` or ``unsourced``; None for a value that has a source, that is a decision, or that cannot be told."""
    value = one.value
    if value is None or isinstance(value, bool) or _is_listed(value, one.schema):
        return None
    if isinstance(value, int | float):
        return _number_fault(float(value), _decimals(json.dumps(value)), one, known)
    plain = folded(value).strip()
    if not plain or known.has_text(plain):
        return None
    if ADDRESS.fullmatch(value.strip()):
        return None if known.has_code(plain.rstrip("/")) else "invented"
    dated = DATED.fullmatch(value.strip())
    if dated:
        return _date_fault(dated, known)
    if re.fullmatch(r"[-+]?\d+(\.\d+)?", plain):
        fault = _number_fault(float(plain), _decimals(plain), one, known)
        return None if fault and known.has_code(plain) else fault
    clock = CLOCK.fullmatch(plain)
    if clock:
        return None if (int(clock[1]), int(clock[2])) in known.times else "unsourced"
    if not re.search(r"\s", plain) and re.search(r"\d", plain):
        return None if known.has_code(plain) else "invented"
    if re.search(r"\d", plain):
        has = known.has_code(plain) if not re.search(r"[^\W\d_]", plain) else not facts(plain, known).unsupported
        return None if has else "invented"
    return "unsourced" if one.required and not _has_words(value.strip(), one.schema, known) else None


def _is_listed(value: Any, schema: Mapping[str, Any]) -> bool:
    listed = schema.get("enum")
    return (isinstance(listed, list) and value in listed) or value == schema.get("default", schema.get("const", ...))


def _decimals(text: str) -> int:
    return len(text.partition(".")[2]) if "e" not in text.lower() else 0


def _number_fault(number: float, decimals: int, one: Given, known: Known) -> Fault | None:
    if not one.required or (number in known.numbers if _NAMES.search(one.name) else known.has_number(number, decimals)):
        return None
    is_likely = (number.is_integer() and abs(number) <= SMALL) or _COORDINATE.search(one.name)
    return "unsourced" if is_likely else "invented"


def _date_fault(found: re.Match[str], known: Known) -> Fault | None:
    day = next(days(found[1]))
    if not known.has_day(day):
        return None if known.may_mean(day) else "invented"
    if found[2] is None or (found[2], found[3]) in (("00", "00"), ("23", "59")):
        return None
    return None if (int(found[2]), int(found[3])) in known.times or known.relative else "unsourced"


def _has_words(value: str, schema: Mapping[str, Any], known: Known) -> bool:
    """Whether any word of a value was said or stands in its parameter's description, or none can be compared."""
    plain = folded(value)
    listed = set(PART.findall(folded(str(schema.get("description", "")))))
    words = [word for word in PART.findall(plain) if len(word) > 2 or not word.isascii()]
    if not words or (len(plain) < 5 and value.isupper()) or (len(plain) < 4 and value.islower()):
        return True  # codes such as DE or EUR stand for what was said in words
    if any(word.isascii() for word in words) != any(part.isascii() and part.isalpha() for part in known.parts):
        return True  # another script
    if not any(word.isascii() for word in words) and known.text.isascii():
        return True
    return any(word in listed or known.has_word(word) for word in words)


# ---------------------------------------------------------------- the facts of what is said


class Facts(NamedTuple):
    """The facts in a text, and those of them without a source."""

    n: int
    unsupported: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share that has a source; 1 of none."""
        return 1 - len(self.unsupported) / self.n if self.n else 1.0


def facts(text: str, known: Known) -> Facts:
    """The facts that a text states, each once, and those that stand nowhere."""
    found: dict[str, bool] = {}
    for fact, has in _facts(text, known):
        found.setdefault(fact, has)
    return Facts(len(found), tuple(fact for fact, has in found.items() if not has))


def _facts(text: str, known: Known) -> Iterator[tuple[str, bool]]:
    left = re.sub(r"^\s*\d+[.)]\s", "", text, flags=re.MULTILINE)

    def cut(pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        nonlocal left
        yield from (found := list(pattern.finditer(left)))
        for one in found:
            left = left.replace(one[0], " ", 1)

    for address in cut(ADDRESS):
        plain = address[0].rstrip(".,;:!?/")
        yield plain, known.has_code(folded(plain))
    for dated in cut(DATED_WORD):
        yield dated[0], known.has_text(folded(dated[0])) or _date_fault(_match(dated[0]), known) is None
    for pattern in (NAMED_DAY, DOTTED_DAY):
        for day in cut(pattern):
            yield day[0].strip(), any(known.has_day(one) or known.may_mean(one) for one in days(day[0]))
    if known.parts and not _GERMAN.search(text) and not _MARKUP.search(text):
        for name in _NAME.findall(left):
            plain = folded(name)
            yield name, all(known.has_word(part) for part in PART.findall(plain) if len(part) > 1)
    for token in TOKEN.findall(left):
        token = token.strip(".:!?*_")
        if re.search(r"\d", token):
            yield from _number_or_code(token, known)


def _match(text: str) -> re.Match[str]:
    found = DATED.fullmatch(text)
    assert found is not None
    return found


def _number_or_code(token: str, known: Known) -> Iterator[tuple[str, bool]]:
    clock = CLOCK.fullmatch(token)
    if clock:
        yield token, (int(clock[1]), int(clock[2])) in known.times or known.has_text(folded(token))
        return
    number = re.fullmatch(r"[-−+~≈]?[$€£¥]?(\d+(?:[.,']\d+)*)([a-zA-Z°%€$£¥²³/]*)", token)
    if number is None or (number[2] and known.has_text(folded(token))):
        yield token, known.has_code(folded(token))
        return
    values = readings(number[1])
    if all(value.is_integer() and value <= SMALL for value in values):
        return
    decimals = _decimals(number[1])
    yield token, known.has_code(folded(token)) or any(known.has_number(one, decimals, rounded=True) for one in values)
