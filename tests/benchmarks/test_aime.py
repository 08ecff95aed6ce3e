"""AIME's problems and answers: where they come from, that they are whole, and how a text is read as an integer."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from astra.benchmarks.process import open_worker
from astra.benchmarks.registry import BENCHMARKS
from astra.benchmarks.types import BenchmarkUnavailable, Reply
from astra.benchmarks.worker.aime import MEMBER, ProblemsWrong, answered, problems
from tests.benchmarks.scripted import BROKEN, Script, mean, played, text, verdicts
from tests.benchmarks.wheels import ROOT, environments

SUMS = {"aime24": 8762, "aime25": 8344}


@pytest.fixture(scope="module")
def worker():
    with open_worker(BENCHMARKS["aime24"], environments("aime")) as opened:
        yield opened


@cache
def rows() -> list[dict]:
    lines = (environments("aime") / "aime" / MEMBER).read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["id"].startswith("aime")]


def own_rows(year: str = "aime24", count: int = 30) -> list[dict]:
    return [{"id": f"{year}-{n}", "problem": f"What is {n} plus one?", "answer": n + 1} for n in range(count)]


def written(file: Path, rows: list) -> Path:
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


def test_the_wheels_member_has_thirty_problems_a_year_and_its_known_answers(worker):
    assert Counter(one.category for one in worker.cases()) == {"aime24": 30, "aime25": 30}
    assert worker.version == "nemo-gym 0.4.0"
    found = problems(environments("aime") / "aime" / MEMBER)
    assert {year: sum(one.answer for one in found if one.year == year) for year in SUMS} == SUMS


def test_the_right_integer_scores_one_and_any_other_zero(worker):
    answers = {row["id"]: int(row["expected_answer"]) for row in rows()}
    names = [one.id for one in worker.cases()]
    right = verdicts(worker, names, lambda case: (Script([text(f"So it is \\boxed{{{answers[case]:03d}}}.")]), None))
    wrong = verdicts(worker, names, lambda case: (Script([text(f"So it is \\boxed{{{answers[case] + 1}}}.")]), None))
    assert (mean(right, "accuracy"), mean(wrong, "accuracy")) == (1.0, 0.0)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_model_is_wrong_and_no_error(worker, broken):
    names = [one.id for one in worker.cases()][::7]
    assert mean(verdicts(worker, names, lambda case: (BROKEN[broken], None)), "accuracy") == 0.0


def test_a_problem_is_one_user_message_without_tools(worker):
    row = rows()[0]
    with worker.start(row["id"]) as run:
        assert [one["role"] for one in run.ask.messages] == ["user"]
        assert row["question"] in run.ask.messages[0]["content"]
        assert "\\boxed{}" in run.ask.messages[0]["content"]
        assert run.ask.tools == []
        assert run.reply(Reply(content="Let me see", stop="length")) is None
        verdict = run.verdict()
    assert verdict.scores == {"accuracy": 0.0}
    assert verdict.note == "no integer (stop: length)"


def test_no_text_of_a_problem_is_in_the_repository():
    tracked = subprocess.run(["git", "grep", "-l", "-z", "-i", "-F", "-f", "-"], cwd=ROOT, capture_output=True, text=True,
        input="\n".join(" ".join(row["question"].split())[:48] for row in rows()))  # fmt: skip
    assert (tracked.returncode, tracked.stdout) == (1, "")


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (r"\boxed{42}", 42),
        (r"\boxed{7} is wrong, so \boxed{042}.", 42),
        (r"$\boxed{\textbf{(042)}}$", 42),
        (r"\boxed{m+n = 42}", 42),
        (r"\boxed{42 = m + n}", 42),
        (r"\boxed{42^\circ}", 42),
        (r"\boxed{42 \text{ cm}}", 42),
        (r"\boxed{\text{42}}", 42),
        (r"\boxed{ 42.0 }", 42),
        (r"\boxed{42\%}", 42),
        (r"\boxed{1,024}", 1024),
        (r"\boxed{\boxed{42}}", 42),
        (r"\boxed{42}, as asked in \boxed{}", 42),
        (r"\fbox {42}", 42),
        (r"a { brace, and \boxed{42}", 42),
        (r"\boxed{-42}", -42),
        (r"\boxed{\frac{84}{2}}", None),
        (r"\boxed{4 \text{ or } 2}", None),
        (r"\boxed{42, 43}", None),
        (r"\boxed{4 2}", None),
        (r"\boxed{4\text{.}2}", None),
        (r"\boxed{$42$ \text{units}}", 42),
        (r"\boxed{x}, so 42", None),
        (r"\boxed{" + "9" * 5000 + "}", None),
        (r"\boxed{٤٢}", None),
        (r"\boxed{42", 42),
        ("The answer is 42.", 42),
        ("The answer is **042**", 42),
        ("It is 42, I think", 42),
        ("42 and 3.14", 42),
        ("The answer is -42", -42),
        ("10-42", 42),
        ("I do not know.", None),
        ("", None),
        ("9" * 5000, None),
        ("\\boxed{" * 50_000, None),
    ],
)
def test_the_answer_is_the_last_box_else_the_last_integer(said, answer):
    assert answered(said) == answer


def test_a_file_of_the_users_is_taken_under_either_name_of_its_fields(tmp_path):
    file = written(tmp_path / "own.jsonl", [*own_rows(), {"id": "hmmt-3", "problem": "?", "answer": "x"}])
    benchmark = dataclasses.replace(BENCHMARKS["aime24"], environment="", options={"path": str(file)})
    with open_worker(benchmark, tmp_path) as opened:
        assert len(opened.cases()) == 30
        assert opened.version.startswith("file ")
        with opened.start("aime24-4") as run:
            assert played(run, Script([text("\\boxed{5}")])).scores == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (own_rows(count=29), "a year has 30"),
        ([], "none where a year has 30"),
        ([*own_rows()[:-1], own_rows()[0]], "'aime24-0' stands there 2 times"),
        ([*own_rows()[:-1], {**own_rows()[0], "id": "aime24-29"}], "stands there 2 times"),
        ([{**own_rows()[0], "answer": "1/2"}], ":1: '1/2' is no answer"),
        ([{"id": "aime24-0", "answer": 1}], ":1: no text"),
        ([[1]], "no JSON object"),
    ],
)
def test_a_file_that_does_not_hold_the_problems_is_refused_with_the_line(tmp_path, rows, said):
    with pytest.raises(ProblemsWrong, match=said):
        problems(written(tmp_path / "own.jsonl", rows))


def test_another_member_than_the_known_one_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("nemo_gym-0.4.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: nemo-gym\nVersion: 0.4.0\n")
        made.writestr(str(MEMBER), "\n".join(json.dumps(row) for row in own_rows()))
        made.extractall(tmp_path / "aime")
    with pytest.raises(BenchmarkUnavailable, match="its sha256 is"):
        open_worker(BENCHMARKS["aime24"], tmp_path)
