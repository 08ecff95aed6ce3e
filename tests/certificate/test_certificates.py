"""Certificates: what sound arenas get, what the file alone repeats, and what any change of it breaks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from astra.certificate import Kept, Playable, artifact, certify, seal, verify
from astra.certificate.checks import CHECKS
from astra.certificate.variants import without_tool, without_value
from astra.records import Answer
from astra.stage import write_records
from tests.certificate.arenas import certified, failures, generated, master_tool, sound, step
from tests.import_closure import ROOT

N_GOOD = 200


def test_two_hundred_sound_arenas_all_pass_and_every_eighth_is_verified_in_a_fresh_process(pool, tmp_path):
    arenas = [generated(number) for number in range(N_GOOD)]
    found = certified(pool, *arenas)
    assert len(found) == N_GOOD
    assert {one.answer.kind for one in arenas} == {"text", "number", "date", "list"}
    write_records(tmp_path / "arenas.jsonl", found[::8])
    done = subprocess.run(
        [sys.executable, "-m", "stages.merge", "--verify", str(tmp_path / "arenas.jsonl")],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (
        0, f"merge: {tmp_path}/arenas.jsonl: {N_GOOD // 8} arenas, 0 certificates wrong",
    )  # fmt: skip


def test_a_certificate_says_what_was_shown_of_which_bytes_on_what_and_what_each_agent_is_paid(pool):
    (arena,) = certified(pool, sound())
    given = arena.certificate
    assert given.artifact == artifact(Playable(sound()))
    assert given.checks == dict.fromkeys(("documents_valid", *CHECKS, "payments"), True)
    assert given.backend == pool.backend
    assert given.seal == seal(given)
    # 2 sub-tasks; one call made three times solves one: p = 1/3, r = 1/2; 8 calls of everything solve both: p = 1/4
    assert given.payments == {
        "golden": 1.0, "do_nothing": 0.0, "echo": 0.0, "answer_only": 0.0, "from_question": 0.0, "refuse": 0.0,
        "repeat_one": 0.4, "enumerate": 0.4, "call_ahead": 0.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def written(pool):
    import random

    plain = sound()
    variants = [Playable(*make(plain, random.Random(1))) for make in (without_tool, without_value)]
    return [json.loads(one.model_dump_json()) for one in certified(pool, plain, *variants)]


def places(value, path=()):
    """The path of every leaf and of every list and object."""
    yield path
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, (*path, key))


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + ("x" if value[-1:] != "x" else "y")
    if isinstance(value, list):
        return value[:-1] if value else ["x"]
    if isinstance(value, dict):
        return dict(list(value.items())[:-1]) if value else {"x": 1}
    return "x"


TOLD = (
    "the certificate is of other bytes",
    "the certificate does not say what was shown",
    "the line is not the text of its record",
)


def test_a_change_of_any_field_of_any_arena_breaks_its_certificate(written, pool, tmp_path):
    from astra.certificate.certifying import _not_repeated, playable
    from astra.records import Arena

    n_tried = 0
    for record in written:
        mutants = []
        for path in places(record):
            if not path:
                continue
            copy = json.loads(json.dumps(record))
            inner = copy
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = changed(inner[path[-1]])
            try:
                mutant = Arena.model_validate_json(json.dumps(copy))
            except ValueError:
                continue  # not even an arena
            line = json.dumps(copy, ensure_ascii=False).encode()
            mutants.append((path, mutant, line))
        # Other bytes are told by their hash alone; what has the same hash is shown again.
        same = [one for one in mutants if artifact(playable(one[1])) == record["certificate"]["artifact"]]
        outcomes = certify([playable(mutant) for _, mutant, _ in same], pool)
        for (path, mutant, line), outcome in zip(same, outcomes, strict=True):
            assert _not_repeated(mutant, outcome, line) in TOLD, path
            if path[0] != "certificate":  # a default that was left out: the record is the same, its text is not
                assert mutant.model_dump(mode="json") == record
        n_tried += len(mutants)
    assert n_tried > 250


@pytest.mark.parametrize(
    "tamper",
    [
        lambda line: line.replace('"question": ', '"question":  ', 1),
        lambda line: line.replace("é", "\\u00e9") if "é" in line else line.replace("port", "\\u0070ort", 1),
        lambda line: line.replace('"split": "train"', '"split": "heldout"', 1),
        lambda line: line.replace('"golden": true', '"golden": false', 1),
        lambda line: line.replace('"backend": "', '"backend": "x', 1),
        lambda line: line.replace('"domain": "port"', '"domain": "air", "domain": "port"', 1),
        lambda line: "{" + line[1:].replace('"id"', ' "id"', 1),
        lambda line: json.dumps(dict(reversed(json.loads(line).items())), ensure_ascii=False),
        lambda line: line + "\r",
    ],
    ids=[
        "a space",
        "an escape",
        "another split",
        "a check",
        "the backend",
        "a field twice",
        "a space in front",
        "another order",
        "another line end",
    ],
)
def test_a_changed_byte_of_the_written_line_is_told(tamper, written, tmp_path):
    line = json.dumps(written[0], ensure_ascii=False)
    path = tmp_path / "arenas.jsonl"
    path.write_text(line + "\n")
    assert verify(path, "auto", 2) == (1, [])
    path.write_text(tamper(line) + "\n")
    assert tamper(line) != line
    n_shown, wrong = verify(path, "auto", 2)
    assert (n_shown, len(wrong)) == (1, 1)


# ---------------------------------------------------------------- kept certificates


class CountingPool:
    """A pool that notes how many jobs it is given."""

    def __init__(self, pool):
        self.pool, self.backend, self.n_jobs = pool, pool.backend, 0

    def both(self, first, second):
        self.n_jobs += len(first) + len(second)
        return self.pool.both(first, second)

    def map(self, jobs):
        self.n_jobs += len(jobs)
        return self.pool.map(jobs)


def test_only_arenas_that_changed_are_tried_again(pool, tmp_path):
    arenas = [Playable(generated(number)) for number in range(5)]
    first = certify(arenas, pool, Kept(tmp_path))
    counting = CountingPool(pool)
    kept = Kept(tmp_path)
    assert certify(arenas, counting, kept) == first
    assert (counting.n_jobs, kept.n_used) == (0, 5)
    touched = Playable(arenas[0].arena.model_copy(update={"question": arenas[0].arena.question + " Thanks."}))
    certify([touched, *arenas[1:]], counting, Kept(tmp_path))
    assert counting.n_jobs == 3 * len(touched.arena.tools)


def test_a_kept_certificate_counts_only_for_its_own_bytes_backend_and_code(pool, tmp_path, monkeypatch):
    (one,) = certify([Playable(sound())], pool, Kept(tmp_path))
    name = artifact(Playable(sound()))
    assert Kept(tmp_path).get([name], pool.backend) == {name: one}
    assert Kept(tmp_path).get([name], "other") == {}
    assert Kept(tmp_path).get(["0" * 64], pool.backend) == {}
    kept = Kept(tmp_path)
    kept._sql.execute(
        "UPDATE kept SET certificate = ?", (one.model_copy(update={"artifact": "0" * 64}).model_dump_json(),)
    )
    assert Kept(tmp_path).get([name], pool.backend) == {}
    kept._sql.execute("UPDATE kept SET certificate = 'nonsense'")
    assert Kept(tmp_path).get([name], pool.backend) == {}
    kept.put([one])
    monkeypatch.setattr("astra.certificate.cache.code_version", lambda: "other code")
    assert Kept(tmp_path).get([name], pool.backend) == {}


def test_a_refusal_is_not_kept_and_a_broken_file_is_an_empty_one(pool, tmp_path):
    bad = sound(question="Is it Truro?")
    (tmp_path / "certificates.sqlite").write_text("this is no database, and long enough to be looked at" * 50)
    for _ in range(2):
        certify([Playable(bad)], pool, Kept(tmp_path))
        assert certify([Playable(sound())], pool, Kept(tmp_path))[0].artifact == artifact(Playable(sound()))
    assert "question_silent" in failures(pool, bad)


def test_one_call_that_answers_two_steps_is_paid_as_one_call(pool):
    twin = step(2, "And who is it of port Lyme?", sound().steps[0].answer)
    probes = (sound().probes[0], sound().probes[0].model_copy(update={"step": 2}))
    both = step(3, "Both.", Answer(kind="list", value=["Ann Hale", "Ann Hale"]), 1, 2, needs_tool=False)
    arena = sound(steps=(sound().steps[0], twin, both), probes=probes, answer=both.answer,
                  tools=(master_tool(serves=(1, 2)),), shape="parallel_single_hop")  # fmt: skip
    assert failures(pool, arena) == {}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("arenas.jsonl", "", "arenas.jsonl: it holds no arenas, so nothing was shown"),
        ("arenas.jsonl", '{"id": "environment-', "arenas.jsonl:1: not a Arena"),
        ("other.jsonl", "", "arenas.jsonl: no such file"),
    ],
)
def test_a_file_that_shows_nothing_is_no_verified_file(name, content, says, tmp_path):
    (tmp_path / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "stages.merge", "--verify", str(tmp_path / "arenas.jsonl")],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
