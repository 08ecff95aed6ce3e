"""Typed comparison of an answer with what was expected: whole values by kind, never a substring.

``matches`` compares a value that a tool returned; ``in_text`` finds the answer that a final message claims and compares
that. Every decision names the rule it used. Rules:

- text: Unicode NFKC, case and runs of white space ignored, everything else exact; ``007`` is not ``7``.
- number: sign, value, scale (thousand, million, ``$50M``, 万, %) and unit. Units are converted by a fixed table only; a
  number without a unit fits an expected unit, since the question states it; a currency sign is ignored where no unit
  is expected. Tolerance is what the expected answer states (``decimals``), else float noise. ``1.234,5`` needs
  ``decimal_mark=","``.
- date: dates and times of day in unambiguous forms; ``03/04/2030`` is ambiguous and matches nothing.
- list: the same items in any order, each by its own kind.
- A final message that claims several different answers, hedges or denies matches nothing; nothing matches an empty
  answer.
"""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from astra.records import Answer

DecimalMark = Literal[".", ","]


class Comparison(NamedTuple):
    """Whether an answer is the expected one, and by which rule."""

    ok: bool
    rule: str

    def __bool__(self) -> bool:
        return self.ok


def is_empty(expected: Answer) -> bool:
    """An expected answer that says nothing: a fault of the data."""
    value = expected.value
    if isinstance(value, list):
        return not value or any(is_empty(item_of(one)) for one in value)
    return value is None or (isinstance(value, str) and not value.strip())


def item_of(value: Any) -> Answer:
    """One item of a list answer with the kind that its form shows."""
    if isinstance(value, bool):
        return Answer(kind="boolean", value=value)
    if isinstance(value, int | float):
        return Answer(kind="number", value=value)
    is_date = isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) is not None
    return Answer(kind="date" if is_date else "text", value=value)


def result_value(returned: Any) -> Any:
    """The value in a tool's result: ``{"result": value}`` holds it, anything else is it."""
    return returned["result"] if isinstance(returned, dict) and returned.keys() == {"result"} else returned


def matches(expected: Answer, got: Any, decimal_mark: DecimalMark = ".") -> Comparison:
    """Whether a value is the expected one."""
    if is_empty(expected):
        return Comparison(False, "empty_gold")
    if expected.kind == "list":
        return _list(expected, got, decimal_mark)
    if expected.kind == "number":
        return _number(expected, got, decimal_mark)
    if isinstance(got, bool) != (expected.kind == "boolean") and not isinstance(got, str):
        return Comparison(False, "other_type")
    if expected.kind == "boolean":
        return Comparison(_truth(got) is not None and _truth(got) == _truth(expected.value), "boolean")
    if not isinstance(got, str):
        return Comparison(False, "other_type")
    if expected.kind == "date":
        return _date(str(expected.value), got)
    return Comparison(folded(got) == folded(str(expected.value)), "text")


# Marks that mean the same in another font: apostrophes, hyphens and the minus sign.
_SAME_MARKS = str.maketrans(dict.fromkeys("‘’ʼ＇`´", "'") | dict.fromkeys("‐‑‒–—−﹣－", "-"))


def folded(text: str) -> str:
    """Text as it is compared."""
    if text.isascii():
        return " ".join(text.lower().replace("`", "'").split())
    return " ".join(unicodedata.normalize("NFKC", text).translate(_SAME_MARKS).casefold().split())


@lru_cache(maxsize=16_384)
def words(text: str) -> str:
    """Text as whole words are looked for in it: folded, one space where anything but letters and digits stood."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded(text)).split())


def leaves(value: Any) -> Iterator[Any]:
    """The texts, numbers and truth values that a JSON value holds, at any depth; not the names of its fields."""
    if isinstance(value, dict):
        for one in value.values():
            yield from leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    elif value is not None:
        yield value


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"yes": True, "true": True, "no": False, "false": False}.get(folded(str(value)))


def _list(expected: Answer, got: Any, decimal_mark: DecimalMark) -> Comparison:
    if not isinstance(got, list) or len(got) != len(expected.value):
        return Comparison(False, "list_length")
    left = [item_of(one) for one in expected.value]
    for one in got:
        fitting = next((n for n, item in enumerate(left) if matches(item, one, decimal_mark)), None)
        if fitting is None:
            return Comparison(False, "list_items")
        del left[fitting]
    return Comparison(True, "list_items")


# ---------------------------------------------------------------- numbers

# unit -> (dimension, how many of the dimension's base it is)
UNITS: dict[str, tuple[str, float]] = {
    "mm": ("length", 0.001), "cm": ("length", 0.01), "m": ("length", 1), "km": ("length", 1000),
    "in": ("length", 0.0254), "ft": ("length", 0.3048), "feet": ("length", 0.3048), "mi": ("length", 1609.344),
    "mile": ("length", 1609.344), "miles": ("length", 1609.344), "nmi": ("length", 1852),
    "m2": ("area", 1), "km2": ("area", 1e6), "ha": ("area", 1e4), "sq km": ("area", 1e6),
    "mg": ("mass", 1e-6), "g": ("mass", 0.001), "kg": ("mass", 1), "t": ("mass", 1000), "lb": ("mass", 0.45359237),
    "u": ("atomic mass", 1), "da": ("atomic mass", 1), "g/cm3": ("density", 1000), "kg/m3": ("density", 1),
    "ms": ("time", 0.001), "s": ("time", 1), "min": ("time", 60), "h": ("time", 3600), "hours": ("time", 3600),
    "%": ("percent", 1), "percent": ("percent", 1),
    "$": ("dollar", 1), "usd": ("dollar", 1), "€": ("euro", 1), "eur": ("euro", 1), "£": ("pound", 1), "¥": ("yen", 1),
    "°c": ("temperature", 1),
}  # fmt: skip
# Other names of the same units, in the singular and the plural; "pounds" are of two kinds, so they are none.
_SPELLED = {
    "mm": "millimetre millimetres millimeter millimeters 毫米",
    "cm": "centimetre centimetres centimeter centimeters 厘米",
    "m": "metre metres meter meters 米", "km": "kilometre kilometres kilometer kilometers 公里 千米",
    "in": "inch inches", "ft": "foot", "m2": "sq_m square_metre square_metres square_meter square_meters 平方米",
    "km2": "sq._km square_kilometre square_kilometres square_kilometer square_kilometers 平方公里 平方千米",
    "ha": "hectare hectares 公顷",
    "mg": "milligram milligrams 毫克", "g": "gram grams 克", "kg": "kilogram kilograms 千克 公斤",
    "t": "tonne tonnes 吨", "ms": "millisecond milliseconds 毫秒", "s": "sec secs second seconds 秒",
    "min": "mins minute minutes 分钟", "h": "hr hrs hour 小时",
    "%": "per_cent", "$": "dollar dollars 美元", "€": "euro euros 欧元",
    "£": "英镑", "¥": "yen 日元", "°c": "摄氏度",
}  # fmt: skip
UNITS |= {name.replace("_", " "): UNITS[unit] for unit, names in _SPELLED.items() for name in names.split()}
CURRENCY_SIGNS = "$€£¥"
SCALES = {
    "hundred": 1e2,
    "thousand": 1e3,
    "k": 1e3,
    "million": 1e6,
    "mn": 1e6,
    "billion": 1e9,
    "bn": 1e9,
    "trillion": 1e12,
}
LETTERS = {"M": 1e6, "B": 1e9}  # capitals right behind the digits: "$50M"
COUNTED = {"万亿": 1e12, "千万": 1e7, "百万": 1e6, "亿": 1e8, "万": 1e4}  # no space stands behind them

_QUANTITY = re.compile(
    r"(?P<sign>[-−+]?)\s*(?P<currency>[$€£¥]?)\s*(?P<sign2>[-−]?)(?P<digits>\d[\d.,]*)(?P<exponent>e[-+]?\d+)?"
    r"(?:(?P<letter>(?-i:[MB]))\b|\s*(?P<scale>"
    + "|".join(SCALES)
    + r")\b|\s*(?P<counted>"
    + "|".join(COUNTED)
    + r"))?"
    r"\s*(?P<unit>[^\d\s].*)?",
    re.IGNORECASE,
)


class Quantity(NamedTuple):
    """A number with its unit, ``""`` for none."""

    value: float
    unit: str


def quantity(text: str, decimal_mark: DecimalMark = ".") -> Quantity | None:
    """The quantity that a text is; None where it is anything else, or more than that."""
    found = _QUANTITY.fullmatch(unicodedata.normalize("NFKC", text).strip().replace("US$", "$"))
    if found is None:
        return None
    digits = _digits(found["digits"], decimal_mark)
    unit = (found["unit"] or found["currency"] or "").strip().casefold()
    if digits is None or (unit and unit not in UNITS) or (found["unit"] and found["currency"]):
        return None
    scale = SCALES.get((found["scale"] or "").casefold(), 1) * LETTERS.get(found["letter"] or "", 1)
    value = float(digits + (found["exponent"] or "")) * scale * COUNTED.get(found["counted"] or "", 1)
    negative = found["sign"] in ("-", "−") or found["sign2"] in ("-", "−")
    return Quantity(-value if negative else value, unit) if math.isfinite(value) else None


def _digits(text: str, decimal_mark: DecimalMark) -> str | None:
    """Digits as Python reads them; None where the marks do not stand as they should."""
    group = "," if decimal_mark == "." else "."
    mark, comma = re.escape(decimal_mark), re.escape(group)
    if not re.fullmatch(rf"(\d+|\d{{1,3}}({comma}\d{{3}})+)({mark}\d+)?", text):
        return None
    return text.replace(group, "").replace(decimal_mark, ".")


def _number(expected: Answer, got: Any, decimal_mark: DecimalMark) -> Comparison:
    wanted = _as_quantity(expected.value, ".")
    if wanted is None:
        return Comparison(False, "gold_is_no_number")
    wanted = Quantity(wanted.value, (expected.unit or wanted.unit).casefold())
    found = _as_quantity(got, decimal_mark)
    if found is None:
        return Comparison(False, "no_number")
    value, rule = found.value, "number"
    if found.unit and found.unit != wanted.unit:
        if not wanted.unit and found.unit in CURRENCY_SIGNS:
            rule = "number_currency_sign_ignored"
        elif not wanted.unit or UNITS.get(found.unit, ("", 0))[0] != UNITS.get(wanted.unit, ("-", 0))[0]:
            return Comparison(False, "other_unit")
        else:
            value, rule = value * UNITS[found.unit][1] / UNITS[wanted.unit][1], "number_unit_converted"
    if expected.decimals is not None:
        within = abs(value - wanted.value) <= 0.5 * 10**-expected.decimals * (1 + 1e-9)
        return Comparison(within, f"{rule}_to_{expected.decimals}_decimals")
    return Comparison(math.isclose(value, wanted.value, rel_tol=1e-9, abs_tol=1e-12), rule)


def _as_quantity(value: Any, decimal_mark: DecimalMark) -> Quantity | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return None
        return Quantity(number, "") if math.isfinite(number) else None
    return quantity(value, decimal_mark) if isinstance(value, str) else None


# ---------------------------------------------------------------- dates and times

DATE_FORMS = ("%Y-%m-%d", "%Y/%m/%d", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%d. %B %Y")
TIME_FORMS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M%p", "%I %p", "%I%p")
AMBIGUOUS = re.compile(r"\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}")


def _date(expected: str, got: str) -> Comparison:
    if AMBIGUOUS.fullmatch(got.strip()) or AMBIGUOUS.fullmatch(expected.strip()):
        return Comparison(False, "ambiguous_date")
    wanted, found = _moment(expected), _moment(got)
    return Comparison(wanted is not None and wanted == found, "date")


def _moment(text: str) -> datetime.date | datetime.time | None:
    text = " ".join(re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", text.strip()).split())
    for forms in (DATE_FORMS, TIME_FORMS):
        for form in forms:
            try:
                found = datetime.datetime.strptime(text, form)
            except ValueError:
                continue
            return found.date() if forms is DATE_FORMS else found.time()
    return None


# ---------------------------------------------------------------- answers inside other text

# Scripts without spaces between words.
_NO_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")
_MENTIONED_NUMBER = re.compile(
    r"[-−]?\s?[$€£¥]?\s?\d[\d.,]*\d(?:e[-+]?\d+)?|[-−]?\s?[$€£¥]?\s?\d(?:e[-+]?\d+)?", re.IGNORECASE
)
_MENTIONED_DATE = re.compile(
    r"\d{4}[-/]\d\d?[-/]\d\d?|\d{1,2}(?:st|nd|rd|th)?\.? \w+ \d{4}|\w+ \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
    r"|\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]m\b)?",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\s?(?:" + "|".join(COUNTED) + ")")
N_TRAILING = 2  # words behind a number that can be its scale and unit
SHORT_CODE = 2  # letters: so short a code in capitals is looked for in capitals, since "in" and "is" are words


def mentions(expected: Answer, text: str) -> bool:
    """Whether a text says an answer somewhere: whole words, or a number, date or list of the same value.

    Truth values are said by no text. A list is said where all its items are.
    """
    if is_empty(expected) or expected.kind == "boolean":
        return False
    if expected.kind == "list":
        return all(mentions(item_of(one), text) for one in expected.value)
    if expected.kind == "number":
        return any(matches(expected, one) for one in _numbers_in(text))
    if expected.kind == "date" and any(matches(expected, one) for one in _MENTIONED_DATE.findall(_flat(text))):
        return True
    return says(str(expected.value), text)


def says(value: str, text: str) -> bool:
    """Whether a text holds another as whole words, whatever its case; very short codes in capitals as they stand."""
    if len(value) <= SHORT_CODE and value.isascii() and value.isupper():
        return re.search(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])", text) is not None
    wanted = words(value)
    if not wanted:  # nothing but marks
        return folded(value) in folded(text)
    if _NO_SPACES.search(wanted):
        return wanted.replace(" ", "") in words(text).replace(" ", "")
    return f" {wanted} " in f" {words(text)} "


def _flat(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _numbers_in(text: str) -> Iterator[str]:
    """Every number in a text, bare and with what may be its scale and unit. A hyphen inside a word is no sign."""
    text = _flat(text)
    for found in _MENTIONED_NUMBER.finditer(text):
        start = found.start()
        number = found[0] if start == 0 or not text[start - 1].isalnum() else found[0].lstrip("-− ")
        before = text[start - 1] if start else " "
        if found[0][0].isdigit() and before.isalpha() and not _NO_SPACES.match(before):
            continue  # the 2 of "alpha2"
        yield number.strip()
        rest = text[found.end() :]
        counted = _COUNTED.match(rest)
        if counted is not None:
            yield number.strip() + counted[0]
        behind = re.match(r"(\s?)(%|\S+)(?:\s(\S+))?", rest)
        for count in range(1, N_TRAILING + 1) if behind else ():
            trailing = " ".join(one for one in behind.groups()[1 : count + 1] if one)  # type: ignore[union-attr]
            yield f"{number}{behind[1]}{trailing}".strip(" .,;:?!")  # type: ignore[index]


# ---------------------------------------------------------------- final answers

_MARKER = re.compile(r"\b(?:final )?answer(?: is\b|:| =)\s*:?\s*", re.IGNORECASE)
_COPULA = re.compile(r"\s(?:is|are|was|were|=)\s|:\s")
_HEDGE = re.compile(
    r"\b(?:not|no|never|or|either|neither|nor|maybe|perhaps|possibly|cannot|can't|one of)\b|n't\b", re.I
)
_ENDING = re.compile(r"[\s.!]+$")
_SEPARATOR = re.compile(r", and |,? and |, |; ", re.IGNORECASE)


def in_text(expected: Answer, final_answer_text: str, decimal_mark: DecimalMark = ".") -> Comparison:
    """Whether a final message gives the expected answer, and no other.

    The answer is what stands after ``the answer is`` (or ``answer:``), else after the only ``is`` of a sentence that
    neither hedges nor denies, else the whole message.
    """
    if is_empty(expected):
        return Comparison(False, "empty_gold")
    rule = "no_answer"
    claims = list(_claims(final_answer_text))
    for claim in claims:
        found = _claimed(expected, claim, decimal_mark)
        if not found:
            return found
        rule = found.rule
    return Comparison(bool(claims), rule)


def _claims(text: str) -> Iterator[str]:
    """What a message gives as its answer; several where it says so several times."""
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    parts = _MARKER.split(text)
    if len(parts) > 1:
        if not _HEDGE.search(_last_sentence(parts[0])):
            yield from parts[1:]
        return
    copulas = list(_COPULA.finditer(text))
    if len(copulas) == 1 and not _HEDGE.search(text[: copulas[0].start()]):
        yield text[copulas[0].end() :]
    elif text:
        yield text


def _last_sentence(text: str) -> str:
    return re.split(r"[.!?]\s", text.strip())[-1]


def _claimed(expected: Answer, claim: str, decimal_mark: DecimalMark) -> Comparison:
    """Compare one claim: as it stands, so that ``U.S.`` keeps its stop, then without the end of its sentence."""
    found = _claim_as_given(expected, claim, decimal_mark)
    return found or _claim_as_given(expected, _ENDING.sub("", claim), decimal_mark)


def _claim_as_given(expected: Answer, claim: str, decimal_mark: DecimalMark) -> Comparison:
    claim = claim.strip().strip("*`\"'“”").strip()
    if expected.kind != "list":
        return matches(expected, claim, decimal_mark)
    items = tuple(item_of(one) for one in expected.value)
    return Comparison(_is_list_of(claim, items, decimal_mark), "list_items")


def _is_list_of(claim: str, items: tuple[Answer, ...], decimal_mark: DecimalMark) -> bool:
    """Whether a text is exactly these items, in any order, between separators; an item may hold a separator itself."""
    cuts = [(found.start(), found.end()) for found in _SEPARATOR.finditer(claim)] if len(items) > 1 else []
    for start, end in [*cuts, (len(claim), len(claim))]:
        for n, item in enumerate(items):
            if matches(item, claim[:start], decimal_mark):
                left = items[:n] + items[n + 1 :]
                if not left and end == len(claim):
                    return True
                if left and end < len(claim) and _is_list_of(claim[end:], left, decimal_mark):
                    return True
    return False
