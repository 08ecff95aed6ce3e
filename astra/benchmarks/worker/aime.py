r"""AIME 2024 and 2025, thirty problems each: one question, one text, one integer from 0 to 999.

The problems are the MAA's and in no file of ours. They come from one member of the wheel ``nemo-gym`` (no code of that
package is loaded), or from a JSON Lines file of the user's with ``id`` (``aime24-0``, ``aime25-0``, ...), ``problem``
or ``question``, and ``answer`` or ``expected_answer``. The member's hash is checked; a user's file must hold thirty
problems of a year and nothing twice.

The answer is the last ``\boxed{}`` that holds something, else the last integer of the text. A box that holds no
integer is a wrong answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from astra.benchmarks.types import Ask, Bench, CaseInfo, Playing, Reply, Verdict
from astra.benchmarks.worker.packages import require

MEMBER = Path("resources_servers/ns_tools/data/compmath_test.jsonl")
MEMBER_SHA256 = "496d343eae2968cf9b7c19ee00a3c7e37fa45ba2621df6a3488fe79717c4732b"
YEARS = ("aime24", "aime25")
N_PROBLEMS = 30
PROMPT = "Solve this problem. Think step by step, and put the final answer, an integer, in \\boxed{{}}.\n\n{problem}"


class Problem(NamedTuple):
    """One problem and its answer."""

    id: str
    text: str
    answer: int

    @property
    def year(self) -> str:
        return self.id.split("-")[0]


class ProblemsWrong(Exception):
    """The file does not hold the problems."""


def bench(folder: Path, options: Mapping[str, Any]) -> Bench:
    """Option: ``path``, a file with the problems; without it the wheel's."""
    if unknown := sorted(set(options) - {"path"}):
        raise ValueError(f"aime has the option path; got {', '.join(unknown)}")
    if options.get("path"):
        file = Path(options["path"])
        version = f"file {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    else:
        version, file = require(folder, "nemo-gym", "0.4.0"), folder / MEMBER
        if (found := hashlib.sha256(file.read_bytes()).hexdigest()) != MEMBER_SHA256:
            raise ProblemsWrong(f"{file}: its sha256 is {found}, not {MEMBER_SHA256}")
    return Aime(version, problems(file))


def problems(file: Path) -> list[Problem]:
    """The problems of both years, or of the one that the file has. Raises ProblemsWrong, with the line."""
    read = [
        _problem(_row(line, f"{file}:{number}"), f"{file}:{number}")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if line.strip()
    ]
    found = [one for one in read if one is not None]
    counts = Counter(one.year for one in found)
    if not counts or set(counts.values()) != {N_PROBLEMS}:
        raise ProblemsWrong(
            f"{file}: {dict(counts) or 'none'} where a year has {N_PROBLEMS} problems, ids aime24-0 ..."
        )
    for what in ("id", "text"):
        [(value, count)] = Counter(getattr(one, what) for one in found).most_common(1)
        if count > 1:
            raise ProblemsWrong(f"{file}: {what} {value[:60]!r} stands there {count} times")
    return sorted(found, key=lambda one: (one.year, int(one.id.split("-")[1])))


def _row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ProblemsWrong(f"{place}: no JSON: {error}") from None
    if not isinstance(row, dict):
        raise ProblemsWrong(f"{place}: {line[:60]!r} is no JSON object")
    return row


def _problem(row: Mapping[str, Any], place: str) -> Problem | None:
    """A row as a problem; None for one of another contest."""
    if not re.fullmatch(r"aime2[45]-[0-9]{1,2}", str(row.get("id"))):
        return None
    text = row.get("problem", row.get("question"))
    answer = str(row.get("answer", row.get("expected_answer")))
    if not isinstance(text, str) or not text.strip():
        raise ProblemsWrong(f"{place}: no text under problem or question")
    if not re.fullmatch("[0-9]{1,3}", answer):
        raise ProblemsWrong(f"{place}: {answer!r} is no answer: an integer from 0 to 999")
    return Problem(row["id"], text, int(answer))


class Aime:
    """Implements ``Bench``."""

    def __init__(self, version: str, problems: list[Problem]) -> None:
        self.version = version
        self._problems = {one.id: one for one in problems}

    def cases(self) -> list[CaseInfo]:
        return [CaseInfo(id=one.id, category=one.year) for one in self._problems.values()]

    def start(self, case: str, trial: int) -> Playing:
        return Asked(self._problems[case])


class Asked:
    """One problem, asked once. Implements ``Playing``."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._reply: Reply | None = None

    def turn(self) -> Ask | None:
        if self._reply is not None:
            return None
        return Ask(messages=[{"role": "user", "content": PROMPT.format(problem=self._problem.text)}])

    def take(self, reply: Reply) -> None:
        self._reply = reply

    def verdict(self) -> Verdict:
        if self._reply is None:
            return Verdict(scores={"accuracy": 0.0}, note="stopped before the reply")
        said = answered(self._reply.content or "")
        right = said == self._problem.answer
        ending = "" if self._reply.stop == "stop" else f" (stop: {self._reply.stop})"
        note = "" if right else f"{'no integer' if said is None else 'wrong'}{ending}"
        return Verdict(scores={"accuracy": float(right)}, note=note, n_steps=1)


def answered(text: str) -> int | None:
    """The integer that a text gives as its answer."""
    boxes = [box for box in _boxes(text) if box.strip()]
    if boxes:
        return _integer(boxes[-1])
    numbers = re.findall(r"(?:(?<![\w)\]}])-)?(?<![0-9.])[0-9][0-9,]*(?:\.[0-9]+)?", text)
    whole = [one.rstrip(",") for one in numbers if "." not in one]
    return _integer(whole[-1]) if whole else None


def _boxes(text: str) -> list[str]:
    r"""What stands in each ``\boxed{}`` whose braces close, in the order in which they begin."""
    found: dict[int, str] = {}
    opened: list[tuple[int, bool]] = []
    for brace in re.finditer(r"\\(?:boxed|fbox)\s*\{|\\[{}]|[{}]", text):
        if brace[0].endswith("{") and brace[0] != r"\{":
            opened.append((brace.end(), brace[0] != "{"))
        elif brace[0] == "}" and opened:
            start, boxed = opened.pop()
            if boxed:
                found[start] = text[start : brace.start()]
    return [found[start] for start in sorted(found)]


def _integer(box: str) -> int | None:
    r"""The integer that a box says, whatever dresses it: ``x = \mathbf{042}^\circ`` and ``42 \text{ cm}`` are 42."""
    said = [one for one in map(_bare, box.split("=")) if one]
    return int(said[-1].split(".")[0]) if said else None


def _bare(text: str) -> str:
    """The digits of an integer without their dress; empty where that is not all that there is."""
    text = re.sub(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s*\{([^{}]*)\}", _digits_kept, text)
    text = re.sub(r"\^\{?\\circ\}?|\\[,;:!% ]|\\(?:left|right|displaystyle)\b|\\?\$|[{}()]", " ", text).strip()
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}\b)", "", text)
    return text if re.fullmatch(r"[+-]?[0-9]{1,12}(?:\.0*)?", text) else ""


def _digits_kept(words: re.Match[str]) -> str:
    return f" {words[1]} " if re.search("[0-9]", words[1]) else " "
