"""Evidence: words of a document, verbatim and by their place, and whether they hold an answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from astra.answers import item_of, matches, quantity, says
from astra.decomposition.draft import QuoteReply, Unsound
from astra.records import Answer, Quote


class Document(NamedTuple):
    """A text of a corpus, or a stretch of one that begins at ``offset`` of the whole."""

    id: str
    title: str
    text: str
    domain: str
    offset: int = 0


def located(reply: QuoteReply, documents: Mapping[str, Document]) -> Quote:
    """The quotation with its place in the whole document. Raises Unsound where it does not stand there verbatim.

    A stated place is believed where the words stand there; else the words are looked for, since models count badly.
    Only runs of white space may differ, and what is kept are the document's own words.
    """
    document = documents.get(reply.document)
    if document is None:
        raise Unsound("unknown_document", f"{reply.document!r}; the documents are {sorted(documents)}")
    found = _place(reply, document.text, document.offset)
    if found is None:
        told = reply.quote if reply.quote is not None else f"{reply.start} to {reply.end}"
        raise Unsound("quote_not_verbatim", f"document {document.id} does not hold {told!r}"[:500])
    start, end = found
    return Quote(
        document=document.id,
        start=start + document.offset,
        end=end + document.offset,
        text=document.text[start:end],
    )


def _place(reply: QuoteReply, text: str, offset: int) -> tuple[int, int] | None:
    start, end = (None if place is None else place - offset for place in (reply.start, reply.end))
    stated = start is not None and end is not None and 0 <= start < end <= len(text)
    if reply.quote is None:
        return (start, end) if stated and start is not None and end is not None and text[start:end].strip() else None
    words = reply.quote.split()
    if not words:
        return None
    if stated and text[start:end] == reply.quote and start is not None and end is not None:
        return start, end
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return None if found is None else found.span()


# ---------------------------------------------------------------- does a text hold an answer


def holds(text: str, answer: Answer) -> bool:
    """Whether a text surely states an answer: whole words, the same quantity with its unit, the same day.

    Stricter than ``answers.mentions``, which looks for what might give an answer away. A truth value is never stated
    by a quotation: it is computed from answers that are.
    """
    if answer.kind == "list":
        return bool(answer.value) and all(holds(text, item_of(one)) for one in answer.value)
    if answer.kind == "number":
        return any(matches(answer, one) for one in _quantities(text, answer.unit is not None))
    if answer.kind == "date":
        return any(matches(answer, one) for one in _DAY.findall(_plain(text)))
    return answer.kind == "text" and says(str(answer.value), text)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY = re.compile(
    rf"\b\d{{4}}[-/]\d{{2}}[-/]\d{{2}}\b|\b\d{{1,2}}(?:st|nd|rd|th)?\.? {_MONTH} \d{{4}}\b"
    rf"|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.,])[-−+]?[$€£¥]?[-−]?\d(?:[\d.,]*\d)?")
_AFTER = re.compile(r"[^\s,;:!?()]*(?: [^\s,;:!?()]+){0,3}")
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_SMALL_NUMBERS = {word: number for number, word in enumerate(_SMALL.split())}


def _quantities(text: str, with_unit: bool) -> Iterator[str | int]:
    """Every number of a text with what follows it as far as that is a scale or a unit, as long as can be.

    Where no unit is expected the number counts alone, too: ``5 in total`` is no length. ``007`` is a code.
    """
    plain = _plain(text)
    for found in _NUMBER.finditer(plain):
        after = _AFTER.match(plain, found.end())
        if after is None or re.match(r"[-−+]?0\d", found.group()):
            continue
        readings = list(_readings(found.group(), after.group()))
        yield from readings[:1] if with_unit else readings
    yield from (_SMALL_NUMBERS[word] for word in re.findall(r"[a-z]+", plain.casefold()) if word in _SMALL_NUMBERS)


def _readings(number: str, after: str) -> Iterator[str]:
    """A number with all known words after it, then with fewer of them.

    ``1990s`` and ``4x`` are no numbers, and ``5 million`` is not 5.
    """
    alone, left = quantity(number), after
    while left:
        said = f"{number} {left.strip()}".rstrip(".")
        found = quantity(said)
        if found is not None:
            yield said
            if alone is None or found.value != alone.value:
                return
        left = left.rpartition(" ")[0]
    if not re.match(r"[A-Za-z]", after):
        yield number
