"""Long tool results cut in their middle, without the evidence of what the assistant says later.

A policy that is trained to state what it was never shown learns to invent. So everything of a result that a later turn
of the assistant takes up stays, with the text around it; and where a turn rests on a whole result (it counts, adds up,
compares, or says that something is not there) or on a number that is shown nowhere, nothing is cut.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from astra.records import Message

AROUND = 40  # characters kept on either side of what is taken up: the field's name, the rest of the row
OFTEN = 3  # a word that a result holds more often than this is kept where another one stands near, and the first time
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"\d+(?:[.,:/-]\d+)*|[{_CJK}]+|[^\W\d_{_CJK}]+")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_LISTED = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
_WHOLE = re.compile(
    r"\b(no|none|nothing|never|all|every|total|sum|average|mean|median|counts?|how many|number of|only|most|least"
    r"|best|worst|max|min|maximum|minimum|compare[ds]?|sort(ed)?|rank(ed)?|order(ed)? by|more than|less than"
    r"|(cheap|low|high|larg|small|bigg|long|short|fast|slow|lat|earli|new|old|near|clos|few|great|strong|deep|tall|young"
    r"|heavi|light|busi|hott|cold|warm|weak|simpl|rich|poor|wid|steep|brief)est)\b"
    r"|最|总|共|平均|多少|几个|没有|所有|全部|只有|均|无",
    re.IGNORECASE,
)


class Shortened(NamedTuple):
    """A conversation with some results cut, how many, and by how many characters."""

    messages: tuple[Message, ...]
    n_results: int
    n_characters: int


def shorten(messages: Sequence[Message], limit: int) -> Shortened | None:
    """The conversation with each tool result cut to about ``limit`` characters and what later turns take up of it.

    None where that would take away what a later turn rests on. Assistant, user and system messages stay as they are.
    """
    cut = list(messages)
    n_characters = 0
    for place, message in enumerate(messages):
        content = message.content or ""
        if message.role != "tool" or len(content) <= limit:
            continue
        shown = _cut(content, limit, _said(messages[place + 1 :]))
        if len(shown) < len(content):
            cut[place] = message.model_copy(update={"content": shown})
            n_characters += len(content) - len(shown)
    changed = [place for place, message in enumerate(cut) if message is not messages[place]]
    if any(_rests_on_whole(messages, place) or not _numbers_shown(cut, messages, place) for place in changed):
        return None
    return Shortened(tuple(cut), len(changed), n_characters)


def _said(later: Iterable[Message]) -> str:
    """All that the assistant thinks, says and asks for in these messages."""
    parts: list[str] = []
    for message in later:
        if message.role == "assistant":
            parts += [message.reasoning or "", message.content or ""]
            parts += [call.function.arguments for call in message.tool_calls]
    return "\n".join(parts)


def _cut(text: str, limit: int, said: str) -> str:
    """Head, tail and what is taken up, with marks that say how much is left out between."""
    kept = [_to_borders(text, *one) for one in _merged(_evidence(text, said))]
    half = max(0, limit - sum(stop - start for start, stop in kept)) // 2
    ends = (_to_borders(text, 0, half), _to_borders(text, len(text) - half, len(text)))
    kept = list(_merged(sorted([*kept, *ends])))
    shown, place = [], 0
    for start, stop in [*kept, (len(text), len(text))]:
        gap = text[place:start]
        mark = f" [... {len(gap)} characters left out ...] "
        shown.append(mark if len(gap) > 2 * len(mark) else gap)
        shown.append(text[start:stop])
        place = stop
    return "".join(shown)


def _evidence(text: str, said: str) -> list[tuple[int, int]]:
    """Where a result holds what is said later, with the text around."""
    words = set(_words(said))
    found = [(word, place) for word, place in _placed(text) if word in words]
    often = {word for word, n in Counter(word for word, _ in found).items() if n > OFTEN}
    rare = [place for word, place in found if word not in often]
    seen: set[str] = set()
    kept = []
    for word, place in found:
        if word not in often or word not in seen or _is_near(place, rare):
            kept.append((max(0, place - AROUND), min(len(text), place + len(word) + AROUND)))
        seen.add(word)
    return kept


def _is_near(place: int, others: Sequence[int]) -> bool:
    at = bisect_left(others, place)
    return any(abs(one - place) <= AROUND for one in others[max(0, at - 1) : at + 1])


def _placed(text: str) -> Iterator[tuple[str, int]]:
    """Words and numbers that could be taken up, folded, and their places; letter pairs where no space parts words."""
    for found in _WORD.finditer(text):
        word = found[0]
        if re.match(f"[{_CJK}]", word) and len(word) > 2:
            yield from ((word[place : place + 2], found.start() + place) for place in range(len(word) - 1))
        elif len(word) > 2 or not (word.isascii() and word.islower()):
            yield unicodedata.normalize("NFKC", word).casefold(), found.start()


def _words(text: str) -> Iterator[str]:
    return (word for word, _ in _placed(text))


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans in order, those that touch as one."""
    last: tuple[int, int] | None = None
    for start, stop in spans:
        if last and start <= last[1]:
            last = (last[0], max(last[1], stop))
        else:
            if last:
                yield last
            last = (start, stop)
    if last:
        yield last


def _to_borders(text: str, start: int, stop: int) -> tuple[int, int]:
    """A span made longer to where a word or number ends: half a number is another number."""
    inside = re.compile(r"[\w.,:/-]")
    for _ in range(AROUND):
        if 0 < start < len(text) and inside.match(text[start - 1]) and inside.match(text[start]):
            start -= 1
        if 0 < stop < len(text) and inside.match(text[stop - 1]) and inside.match(text[stop]):
            stop += 1
    return start, stop


def _rests_on_whole(messages: Sequence[Message], place: int) -> bool:
    """Whether what was asked, or is said after a result until the user speaks again, is about all that it holds."""
    asked = next((one.content or "" for one in reversed(messages[:place]) if one.role == "user"), "")
    return _WHOLE.search(asked) is not None or _WHOLE.search(_said(messages[place:])) is not None


def _numbers_shown(cut: Sequence[Message], messages: Sequence[Message], place: int) -> bool:
    """Whether each number that is said after a result stands in what is shown, or stood nowhere in the result either.

    A number that is shown nowhere was computed, perhaps from what would be cut away.
    """
    shown = {number for one in cut if one.role != "assistant" for number in _NUMBER.findall(one.content or "")}
    said = set(_NUMBER.findall(_LISTED.sub("", _said(messages[place:]))))
    return said <= shown
