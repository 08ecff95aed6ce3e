"""Names that every chat endpoint takes, made from names that servers really use."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

LEGAL = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
LONGEST = 64
N_DIGITS = 8


def legal_names(wanted: Sequence[str]) -> list[str]:
    """One legal name for each distinct wanted name; the order of ``wanted`` has no influence.

    A legal name stays. Another becomes its own slug where no other name wants that, else the slug's beginning and a
    hash of the whole name, so that two long names which differ at the end stay two.
    """
    if len(set(wanted)) != len(wanted):
        raise ValueError("wanted names must differ")
    kept = {name for name in wanted if LEGAL.match(name)}
    slugs = Counter(slug(name) for name in wanted if name not in kept)
    return [name if name in kept else _renamed(name, slugs, kept) for name in wanted]


def _renamed(name: str, slugs: Counter[str], kept: set[str]) -> str:
    short = slug(name)
    if LEGAL.match(short) and slugs[short] == 1 and short not in kept:
        return short
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:N_DIGITS]
    return f"{short[: LONGEST - N_DIGITS - 1].rstrip('_-')}_{digits}".lstrip("_") if short else f"tool_{digits}"


def slug(name: str) -> str:
    """The name with each run of other characters as one underscore; may be empty or too long."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")
