"""Which language a question is in, by a light check: scripts for certain, Latin languages by their common words."""

from __future__ import annotations

from collections.abc import Sequence

from astra.decomposition.draft import Unsound
from astra.wording import FUNCTION_WORDS, language

# What ``wording.language`` finds in a text of a language that has a script of its own.
SCRIPTS: dict[str, frozenset[str]] = {
    "zh": frozenset({"cjk"}),
    "ja": frozenset({"japanese", "cjk"}),
    "ko": frozenset({"hangul"}),
    "ru": frozenset({"cyrillic"}),
    "uk": frozenset({"cyrillic"}),
    "ar": frozenset({"arabic"}),
    "he": frozenset({"hebrew"}),
    "el": frozenset({"greek"}),
    "hi": frozenset({"devanagari"}),
    "th": frozenset({"thai"}),
}
LANGUAGES = (*FUNCTION_WORDS, *SCRIPTS)


def detected(text: str) -> str:
    """The code of the language that a text seems to be in; English where nothing tells."""
    found = language(text)
    if found is None or found in FUNCTION_WORDS:
        return found or "en"
    return next(code for code, scripts in SCRIPTS.items() if found in scripts)


def is_in(text: str, code: str) -> bool:
    """Whether a text may be in a language: in its script, and in no other language of that script for certain."""
    found = language(text)
    if code in SCRIPTS:
        return found in SCRIPTS[code]
    return found is None or found == code


def check_language(texts: Sequence[str], code: str) -> None:
    """The question, first, and its sub-questions are in one language. Raises Unsound."""
    for text in texts:
        if not is_in(text, code):
            raise Unsound("wrong_language", f"{language(text) or 'unknown'}, not {code}: {text}"[:500])
