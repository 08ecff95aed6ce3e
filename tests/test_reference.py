"""docs/reference says what the typed models say, and the pages of docs lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.import_closure import ROOT
from tests.reference import FOLDER, pages

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_reference_is_current():
    stored = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in (ROOT / FOLDER).glob("*.md")}
    assert stored == pages(), "run: python -m tests.reference"


def test_every_knob_is_explained():
    silent = [line for path, text in pages().items() if path.name != "records.md"
              for line in text.splitlines() if re.match(r"\| `[a-z_]+\.[\w.]+` \|", line) and line.endswith("|  |")]  # fmt: skip
    assert silent == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_links_of_a_page_lead_to_a_file_or_a_heading(page: Path):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in known, f"{page}: {target}"
