"""What an agent had been told at a point of a conversation, in the forms in which a value can be found again."""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from astra.evidence.reading import (
    MONTHS,
    NAMED_DAY,
    PART,
    PHONE,
    RELATIVE,
    TOKEN,
    WORDS,
    Day,
    days,
    folded,
    leaves,
    names,
    numbers,
    stands_in,
    times,
    totals,
)

MANY = 60  # of more known numbers than this, almost any number is a sum or difference of two
RATIOS = (7, 10, 12, 24, 60, 100, 1000, 3600, 1_000_000, 0.3048, 0.45359237, 1.609344, 2.54, 3.6)  # units, periods


@dataclass
class Known:
    """What has been said and returned so far, in the forms in which it can be found again."""

    text: str = ""
    parts: set[str] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)
    digits: set[str] = field(default_factory=set)
    days: set[Day] = field(default_factory=set)
    times: set[tuple[int, int]] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)
    months: set[int] = field(default_factory=set)
    relative: bool = False

    def copy(self) -> Known:
        """The same, to be added to."""
        return copy.deepcopy(self)

    def say(self, text: str) -> None:
        """Words of the user or the system message."""
        self.relative = self.relative or RELATIVE.search(text) is not None
        words = PART.findall(NAMED_DAY.sub(" ", text).lower())
        self.months.update(number for number, name in enumerate(MONTHS, 1) if name in words)
        self.take(text)

    def take(self, text: str) -> None:
        """Any text."""
        plain = folded(text)
        self.text += "\n" + plain
        self.parts.update(PART.findall(plain))
        self.numbers.update(numbers(plain))
        self.numbers.update(float(WORDS[word]) for word in PART.findall(plain) if word in WORDS)
        self.digits.update(re.sub(r"\D", "", found) for found in PHONE.findall(plain))
        self.days.update(days(text))
        self.times.update(times(text))
        for token in TOKEN.findall(plain):
            token = token.strip(".:!?")
            if len(token) > 2 and re.search(r"\d", token):
                self.codes.add(token)

    def take_value(self, value: Any) -> None:
        """A result or arguments, with what can be counted and added up in them."""
        for one in leaves(value):
            if isinstance(one, str):
                self.take(one)
            elif one is not None and not isinstance(one, bool):
                self.numbers.add(float(one))
                self.take(json.dumps(one))
        self.parts.update(PART.findall(" ".join(folded(name) for name in names(value))))
        self.numbers.update(totals(value))

    # -------------------------------------------------- is it there?

    def has_text(self, plain: str) -> bool:
        """Whether a folded text stands there, as no part of a longer word or number."""
        return stands_in(plain, self.text)

    def has_number(self, number: float, decimals: int = 0, rounded: bool = False) -> bool:
        """Whether a number was said or follows from one or two that were; ``rounded``: perhaps to its last digits."""
        if number in self.numbers or abs(number) in self.numbers:
            return True
        exact = 0.5 * 10**-decimals if decimals else 1e-9 * max(1.0, abs(number))
        zeros = len(str(int(number))) - len(str(int(number)).rstrip("0")) if rounded and not decimals else 0
        near = max(exact, 0.5 * 10**zeros) if rounded else exact
        if any(abs(one - number) <= near for one in self.numbers):
            return True
        if any(abs(other - number) <= exact for one in self.numbers for other in _converted(one)):
            return True
        near = near if zeros > 1 else exact
        return len(self.numbers) > MANY or any(
            abs(result - number) <= near for one in self.numbers for result in self._pairs(one)
        )

    def _pairs(self, one: float) -> Iterator[float]:
        for other in self.numbers:
            yield one + other
            yield one - other
            yield one * other
            if other:
                yield one / other

    def may_mean(self, day: Day) -> bool:
        """Whether a day may have been worked out from what was said."""
        return self.relative or day.month in self.months

    def has_day(self, day: Day) -> bool:
        return day in self.days or day._replace(year=None) in self.days or (
            day.year is None and any(one[1:] == day[1:] for one in self.days)
        )  # fmt: skip

    def has_code(self, plain: str) -> bool:
        """Whether an id or address was said, alone or as part of another, or has its digits from one that was."""
        if self.has_text(plain):
            return True
        digits = re.sub(r"\D", "", plain)
        if not re.search(r"[^\W\d_]", plain):
            return len(digits) > 5 and digits in self.digits
        left = plain
        for code in sorted((one for one in self.codes if one in plain), key=lambda one: (-len(one), one)):
            left = left.replace(code, " ") if stands_in(code, left) else left
        return left != plain and not re.search(r"\d", left)

    def has_word(self, word: str) -> bool:
        """Whether a word was said, perhaps in another form of it."""
        if word in self.parts or word in self.text:
            return True
        alike = [one for one in self.parts if one[:1] == word[:1] and abs(len(one) - len(word)) < 5]
        return bool(difflib.get_close_matches(word, alike, n=1, cutoff=0.75))


def _converted(number: float) -> Iterator[float]:
    """A number in other units."""
    for ratio in RATIOS:
        yield number * ratio
        yield number / ratio
    yield number * 9 / 5 + 32
    yield (number - 32) * 5 / 9
