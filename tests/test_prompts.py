"""Prompts: strict rendering in one pass, and every prompt file in the form that both kinds of teacher read."""

from __future__ import annotations

import re

import pytest

from astra.prompts import FOLDER, PromptError, render, variables

NAMES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.md"))


def test_a_value_is_never_read_as_a_name():
    assert "$input and $$" in render("graph/propose", input="$input and $$")


@pytest.mark.parametrize("values", [{}, {"input": "x", "other": "y"}, {"inputs": "x"}])
def test_missing_and_unused_names_are_errors(values):
    with pytest.raises(PromptError, match="missing|unused"):
        render("graph/propose", **values)


def test_an_unknown_prompt_names_the_known_ones():
    with pytest.raises(PromptError, match="graph/propose"):
        render("graph/nothing")


SPOKEN = {name for name in NAMES if name.startswith("trajectories/system")} | {"trajectories/new_tools"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SPOKEN])
def test_a_prompt_opens_with_its_title_and_shows_its_input_fenced(name):
    text = render(name, **dict.fromkeys(variables(name), '{"a": 1}'))
    assert re.match(r"# [A-Z][a-z]+: \S", text)
    assert '## Input\n\n```json\n{"a": 1}\n```\n' in text
