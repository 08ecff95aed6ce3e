"""The journal of finished cases: what a kill, a power cut and another process leave of it."""

from __future__ import annotations

from astra.benchmarks.journal import Journal
from astra.caches import digest_of


def test_what_was_added_is_there_for_the_next_process(tmp_path):
    first = Journal(tmp_path / "one.jsonl")
    first.add("a#0", {"scores": {"accuracy": 1.0}})
    first.add("ü#0", {"note": "ß\u2028"})
    assert Journal(first.file).kept == {"a#0": {"scores": {"accuracy": 1.0}}, "ü#0": {"note": "ß\u2028"}}
    assert first.get("b#0") is None


def test_a_line_that_was_cut_short_is_no_line_and_costs_no_other(tmp_path):
    journal = Journal(tmp_path / "one.jsonl")
    journal.add("a#0", 1)
    whole = journal.file.read_bytes()
    for cut in range(1, len(whole)):
        journal.file.write_bytes(whole + whole[:cut])
        again = Journal(journal.file)
        assert again.kept == {"a#0": 1}
        again.add("b#0", 2)
        assert Journal(journal.file).kept == {"a#0": 1, "b#0": 2}, cut


def test_zeros_and_foreign_lines_are_no_results(tmp_path):
    file = tmp_path / "one.jsonl"
    file.write_bytes(b"\0\0\0\n[1]\n{}\n3\n\xff\xfe\n" + b'{"key": "a#0", "value": 1}\n')
    assert Journal(file).kept == {"a#0": 1}


def test_two_processes_may_write_one_journal(tmp_path):
    one, other = Journal(tmp_path / "one.jsonl"), Journal(tmp_path / "one.jsonl")
    one.add("a#0", 1)
    other.add("b#0", 2)
    one.add("c#0", 3)
    assert Journal(one.file).kept == {"a#0": 1, "b#0": 2, "c#0": 3}


def test_anything_that_decides_a_result_is_another_journal(tmp_path, monkeypatch):
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path))
    settings = {"benchmark": "b", "seed": 1, "model": {"name": "m", "temperature": 0.0}}
    others = [settings | {"seed": 2}, settings | {"model": {"name": "m", "temperature": 0.6}}]
    files = [Journal.of(one).file for one in (settings, dict(reversed(settings.items())), *others)]
    assert files[0] == files[1]
    assert len(set(files)) == 3


def test_a_digest_is_of_names_and_contents_and_of_no_cache(tmp_path):
    folder = tmp_path / "model"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "a").write_text("1")
    before = digest_of(folder)
    (folder / "__pycache__" / "a.pyc").write_text("1")
    assert digest_of(folder) == before
    (folder / "a").write_text("2")
    changed = digest_of(folder)
    (folder / "a").rename(folder / "b")
    assert len({before, changed, digest_of(folder)}) == 3
