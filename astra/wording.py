"""What a rewriting must keep, and how varied texts are: language, stated values, distinct n-grams."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# Words of which nearly every sentence of a language has some, and one of another language few.
FUNCTION_WORDS: dict[str, str] = {
    "en": "the of and to is that with for what which please my you this from are have i",
    "de": "der die das und ist mit für bitte welche wie ich ein eine zu den von nicht auf",
    "fr": "le la les des et est avec pour quel quelle je un une du dans s'il veuillez vous",
    "es": "el la los las y es con para qué cuál por favor un una del que en mi quiero",
    "pt": "o os as e é com para qual por favor um uma do da que em meu quero não",
    "it": "il lo gli e è con per quale favore un una del della che in mio vorrei non di",
    "nl": "de het een en is met voor welke graag ik van dat niet op alsjeblieft hoe mijn",
    "pl": "i w z na do jest że jaki jaka proszę się nie dla od który mnie oraz",
    "sv": "och är med för vilken jag ett en av som inte på den det snälla hur min",
}
_KNOWN = {code: frozenset(said.split()) for code, said in FUNCTION_WORDS.items()}
SCRIPTS = ("HIRAGANA", "KATAKANA", "HANGUL", "CJK", "CYRILLIC", "ARABIC", "HEBREW", "GREEK", "DEVANAGARI", "THAI")
LEAST_SHARE = 0.2  # of the letters: a name in another script makes no other language
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|«[^»]*»|“[^”]*”|「[^」]*」')
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")


def language(text: str) -> str | None:
    """The language of a text, quotations apart: a code for Latin scripts, the script's name for others.

    None where the text does not tell: too short, or two languages as likely.
    """
    said = _QUOTED.sub(" ", text)
    letters = [letter for letter in said if letter.isalpha()]
    scripts = Counter(script for letter in letters if (script := _script(letter)) is not None)
    if scripts and scripts.total() >= LEAST_SHARE * len(letters):
        return "japanese" if scripts.keys() & {"hiragana", "katakana"} else scripts.most_common(1)[0][0]
    words = [word.casefold() for word in _WORD.findall(said)]
    hits = Counter({code: sum(word in known for word in words) for code, known in _KNOWN.items()})
    (first, most), (_, next_most) = hits.most_common(2)
    return first if most >= 2 and most > next_most else None


def _script(letter: str) -> str | None:
    name = unicodedata.name(letter, "")
    return next((script.lower() for script in SCRIPTS if name.startswith(script)), None)


def states(text: str, value: str) -> bool:
    """Whether a text holds a value as a whole word or words, whatever its case and spacing and escaped quotes."""
    plain = _plain(value)
    if not plain:
        return False
    begin = r"(?<![A-Za-z0-9])" if plain[0].isascii() and plain[0].isalnum() else ""
    end = r"(?![A-Za-z0-9])" if plain[-1].isascii() and plain[-1].isalnum() else ""
    return re.search(begin + re.escape(plain) + end, _plain(text)) is not None


def _plain(text: str) -> str:
    return " ".join(text.replace("\\", "").casefold().split())


def distinct(texts: Iterable[str], n: int) -> float:
    """The share of different n-grams among all n-grams of words (distinct-n); 0 without any."""
    grams: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = [word.casefold() for word in re.findall(r"\w+", text)]
        grams.update(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
    return round(len(grams) / grams.total(), 4) if grams else 0.0
