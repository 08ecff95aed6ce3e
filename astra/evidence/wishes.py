"""What a user wished for the form of an answer, as far as no judge is needed: length, form, language, unit.

Only plain wishes about the answer are read (``Keep the answer to two sentences``, ``reply in German``), outside of
quotations; whatever is said in other words is left to the judge. A check is silent where it cannot be sure: what may be
an abbreviation ends no sentence, a language has to be told from the words, a unit is looked for in each of its forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from astra import wording
from astra.evidence.reading import WORDS

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|«[^»]*»|“[^”]*”')
_NUMBER = r"(?P<n>\d+|a single|a|" + "|".join(WORDS) + ")"
_ANSWER = r"(?:answer|reply|respond|tell me)"  # not "write": that may be for a file
_ABOUT = rf"(?:{_ANSWER}|keep (?:it|this|the (?:answer|reply|summary))|give (?:me )?(?:it|the (?:answer|result|reply)))"
_LIMIT = r"(?: \w+){0,3}? (?:to|in|within|with)(?: at most| no more than| up to| under| fewer than| less than)? "
_SENTENCES = re.compile(rf"\b{_ABOUT}{_LIMIT}{_NUMBER} (?:short )?sentences?\b", re.IGNORECASE)
_WORDS = re.compile(rf"\b{_ABOUT}{_LIMIT}{_NUMBER} words\b", re.IGNORECASE)
_JSON = re.compile(rf"\b{_ABOUT}(?: \w+){{0,2}}? (?:in|as) (?:plain |valid )?JSON\b", re.IGNORECASE)
_LIST = re.compile(
    rf"\b{_ABOUT}(?: \w+){{0,2}}? (?:as a|in a|in) (?:bullet(?:ed)? |numbered )?(?:list|bullet points)\b", re.IGNORECASE
)
_LANGUAGES = {
    "English": "en", "German": "de", "French": "fr", "Spanish": "es", "Portuguese": "pt", "Italian": "it",
    "Dutch": "nl", "Polish": "pl", "Swedish": "sv", "Japanese": "japanese", "Korean": "hangul", "Russian": "cyrillic",
    "Chinese": "cjk", "Greek": "greek", "Arabic": "arabic", "Hebrew": "hebrew", "Hindi": "devanagari", "Thai": "thai",
}  # fmt: skip
_LANGUAGE = re.compile(rf"\b{_ANSWER}(?: me)?(?: \w+)?? in (?P<language>{'|'.join(_LANGUAGES)})\b", re.IGNORECASE)
_UNITS = {
    "kilometres?|kilometers?|km": r"\bkm\b|kilomet", "miles": r"\bmi\b|\bmiles?\b",
    "metres|meters": r"\d ?m\b|met(?:re|er)s?\b",
    "celsius": r"°? ?C\b|celsius|degrees", "fahrenheit": r"°? ?F\b|fahrenheit|degrees",
    "euros?|EUR": r"€|\bEUR|euro", "dollars|USD": r"\$|\bUSD|dollar", "pounds": r"£|\bGBP|pound|\blbs?\b",
    "kilograms?|kg": r"\bkg\b|kilo", "minutes": r"\bmin", "hours": r"\bh\b|\bhrs?\b|hour",
}  # fmt: skip
_UNIT = re.compile(
    rf"\b(?:{_ABOUT}|(?:give|state|show)(?: me)? (?:all|every|the) \w+)(?: \w+){{0,2}}? in "
    rf"(?P<unit>{'|'.join(_UNITS)})\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?P<word>\S+?)[.!?]+[\"')\]]*(?=\s+[\"'(\[]?[A-Z\d]|\s*$)")
_SHORT_FORMS = frozenset({
    "a.m", "approx", "art", "ca", "co", "dr", "e.g", "etc", "fig", "i.e", "inc", "jr", "ltd", "mr", "mrs", "ms", "no",
    "nr", "p.m", "prof", "sr", "st", "u.s", "vol", "vs",
})  # fmt: skip
_LIST_LINE = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s", re.MULTILINE)


class Wish(NamedTuple):
    """A wish for the form of answers, and what an answer has against it: None where it heeds it, or may."""

    said: str
    against: Callable[[str], str | None]


def wishes(texts: Iterable[str]) -> Iterator[Wish]:
    """What the user's words wish for the form of the answer."""
    for text in texts:
        own = _QUOTED.sub(' "" ', text)
        for find, make in _KINDS:
            found = find.search(own)
            if found is not None:
                yield Wish(found.group(), make(found))


def unheeded(texts: Iterable[str], answer: str) -> Iterator[str]:
    """What an answer has against the wishes in the user's words; a question back is no answer."""
    if not answer.strip() or answer.rstrip().endswith("?"):
        return
    for wish in wishes(texts):
        against = wish.against(answer)
        if against is not None:
            yield f"the user wished {' '.join(wish.said.split())!r}: {against}"


def _at_most(noun: str, count: Callable[[str], int]) -> Callable[[re.Match[str]], Callable[[str], str | None]]:
    def made(found: re.Match[str]) -> Callable[[str], str | None]:
        said = found["n"].lower()
        most = 1 if said in ("a", "a single") else int(WORDS.get(said, said))
        return lambda answer: f"the answer has {n} {noun}" if (n := count(answer)) > most else None

    return made


def n_sentences(text: str) -> int:
    """How many sentences a text surely has; what may be an abbreviation or a list's number ends none."""
    ends = 0
    for found in _SENTENCE_END.finditer(text):
        word = found["word"].lower().lstrip("(\"'")
        is_short = word in _SHORT_FORMS or len(word) == 1
        ends += not is_short or found.end() >= len(text.rstrip())
    open_end = bool(text.strip()) and text.rstrip()[-1] not in ".!?\"')]"
    return ends + (open_end and ends > 0)


def _as_json(_: re.Match[str]) -> Callable[[str], str | None]:
    def against(answer: str) -> str | None:
        fenced = re.fullmatch(r"\s*```(?:json)?\s*\n(.*?)\n?```\s*", answer, re.DOTALL)
        try:
            json.loads(fenced.group(1) if fenced else answer)
        except ValueError:
            return "the answer is no JSON"
        return None

    return against


def _as_list(_: re.Match[str]) -> Callable[[str], str | None]:
    return lambda answer: None if _LIST_LINE.search(answer) else "the answer is no list"


def _in_language(found: re.Match[str]) -> Callable[[str], str | None]:
    wanted = next(code for name, code in _LANGUAGES.items() if name.lower() == found["language"].lower())

    def against(answer: str) -> str | None:
        spoken = wording.language(answer)
        return f"the answer is in {spoken}" if spoken not in (None, wanted) else None

    return against


def _in_unit(found: re.Match[str]) -> Callable[[str], str | None]:
    said = found["unit"]
    forms = next(forms for names, forms in _UNITS.items() if re.fullmatch(names, said, re.IGNORECASE))

    def against(answer: str) -> str | None:
        if not re.search(r"\d", answer) or re.search(forms, answer, re.IGNORECASE):
            return None
        return f"no number of the answer is in {said}"

    return against


_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Callable[[str], str | None]]], ...] = (
    (_SENTENCES, _at_most("sentences", n_sentences)),
    (_WORDS, _at_most("words", lambda text: len(re.findall(r"\w[\w'.,-]*", text)))),
    (_JSON, _as_json),
    (_LIST, _as_list),
    (_LANGUAGE, _in_language),
    (_UNIT, _in_unit),
)
