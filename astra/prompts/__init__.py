"""Prompts: one file each, ``<stage>/<name>.md``, with ``$name`` where a value goes (``$$`` is a dollar sign).

A prompt opens with its title line, ``# <Stage>: <what>``; structured input is JSON in the fenced block under
``## Input``, so that a hosted model and the built-in teacher read the same text.
"""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


class PromptError(Exception):
    """A prompt file is missing or wrong, or the values do not fit its names: a fault of ours, never of a record."""


@cache
def template(name: str) -> string.Template:
    """The prompt called ``<stage>/<name>``."""
    path = FOLDER / f"{name}.md"
    if not path.is_file():
        known = sorted(str(one.relative_to(FOLDER).with_suffix("")) for one in FOLDER.rglob("*.md"))
        raise PromptError(f"no prompt {name!r}; prompts are: {', '.join(known)}")
    found = string.Template(path.read_text(encoding="utf-8"))
    if not found.is_valid():
        raise PromptError(f"{path}: a $ that begins no name; write $$ for a dollar sign")
    return found


@cache
def variables(name: str) -> frozenset[str]:
    """The names that a prompt needs."""
    return frozenset(template(name).get_identifiers())


def render(name: str, **values: str) -> str:
    """The prompt with its values, in a single pass: what a value holds is never read as a name.

    Raises PromptError where a name has no value or a value has no name.
    """
    if values.keys() != variables(name):
        missing, unused = sorted(variables(name) - values.keys()), sorted(values.keys() - variables(name))
        raise PromptError(f"prompt {name}: missing {missing}, unused {unused}")
    return template(name).substitute(values)
