"""What names of tools, parameters and properties say: whether a tool reads or changes, and what a value identifies.

Rules over words, so they hold for tools that nobody has seen. Doubt counts as changing, and as no identifier: then
nothing is held against a server's answer.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

READING_VERBS = frozenset({
    "analyze", "browse", "calculate", "check", "compare", "compute", "convert", "count", "describe", "detect",
    "download", "estimate", "explain", "export", "fetch", "find", "forecast", "geocode", "get", "inspect", "list",
    "look", "lookup", "measure", "predict", "preview", "query", "quote", "read", "recommend", "resolve", "search",
    "show", "suggest", "summarize", "track", "translate", "validate", "verify", "view",
})  # fmt: skip
UPDATING_VERBS = frozenset({"change", "edit", "modify", "patch", "rename", "set", "update"})
DELETING_VERBS = frozenset({"delete", "destroy", "drop", "erase", "purge", "remove", "unregister"})
RESTORING_VERBS = frozenset({"recover", "restore", "undelete"})
TRANSFORMING_VERBS = frozenset({"convert", "format", "normalize", "summarize", "transform", "translate"})
WRITING_WORDS = frozenset({
    *UPDATING_VERBS, *DELETING_VERBS, *RESTORING_VERBS, "add", "book", "create", "insert", "make",
    "order", "place", "post", "register", "reserve", "save", "send", "start", "submit", "write",
})  # fmt: skip

ID_WORDS = frozenset({"guid", "id", "isbn", "key", "no", "number", "code", "ref", "reference", "sku", "uuid"})
BARE_IDS = frozenset({"guid", "id", "uuid"})
LOOSE_IDS = frozenset({"code", "key", "no", "number"})
CLASSES = frozenset({  # a loose id of these is shared by many things: a country code, a page number
    "access", "api", "area", "calling", "color", "colour", "country", "currency", "dial", "discount", "error",
    "exit", "fax", "house", "language", "line", "mobile", "page", "phone", "pin", "post", "postal", "promo",
    "response", "room", "row", "seat", "state", "status", "telephone", "type", "unlock", "version", "zip",
})  # fmt: skip
PREPOSITIONS = frozenset({"at", "by", "for", "from", "in", "of", "on", "to", "via", "with"})
LEADING = frozenset({"new", "updated"})
PRESENTATION = frozenset({
    "asc", "count", "cursor", "desc", "direction", "fields", "limit", "maxresults", "offset", "order", "page",
    "pagesize", "perpage", "size", "sort", "sortby", "skip", "take", "top", "verbose", "maxitems", "max",
})  # fmt: skip


@lru_cache(maxsize=65536)
def words(name: str) -> tuple[str, ...]:
    """``getUser_id`` -> get, user, id."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name))


def singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def verb(tool: str) -> str:
    """The first word of a tool's name."""
    return next(iter(words(tool)), "")


@lru_cache(maxsize=65536)
def reads_only(tool: str) -> bool:
    """Whether a name says that the tool only reads: its first word is a reading verb, and no other verb contradicts."""
    spoken = words(tool)
    if not spoken or spoken[0] not in READING_VERBS:
        return False
    if spoken[0] == "check" and spoken[1:2] in (("in",), ("out",)):
        return False
    joined = [after for before, after in pairwise(spoken) if before in ("and", "or")]
    return not WRITING_WORDS & set(joined)


@lru_cache(maxsize=65536)
def noun(tool: str) -> str:
    """What a tool is about: ``find_farm_markets_for_user`` -> market; empty where its name is a verb alone."""
    spoken = words(tool)[1:]
    until = next((n for n, word in enumerate(spoken) if word in PREPOSITIONS and n), len(spoken))
    return singular(spoken[until - 1]) if until else ""


@lru_cache(maxsize=65536)
def identifies(name: str) -> str | None:
    """The kind of thing that a value of this name identifies; empty for a bare ``id``, None for no identifier."""
    spoken = words(name)
    last = "id" if spoken[-1:] == ("ids",) else next(iter(spoken[-1:]), "")
    if last not in ID_WORDS:
        return None
    if len(spoken) == 1:
        return "" if last in BARE_IDS else None
    kind = singular(spoken[-2])
    shared = last in LOOSE_IDS and kind in CLASSES
    return None if shared or kind in LEADING else kind


@lru_cache(maxsize=65536)
def attribute(name: str, kind: str) -> str:
    """A property's name apart from the thing it belongs to: ``new_title`` and ``issueTitle`` of an issue are title."""
    spoken = list(words(name))
    while len(spoken) > 1 and (spoken[0] in LEADING or singular(spoken[0]) == kind):
        spoken = spoken[1:]
    return "_".join(spoken) or name


@lru_cache(maxsize=65536)
def presents(name: str) -> bool:
    """Whether a parameter only says how much is shown, and in which order."""
    spoken = words(name)
    return "".join(spoken) in PRESENTATION or spoken[-1:] in (("limit",), ("offset",), ("cursor",))
