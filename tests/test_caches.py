"""What is kept on users' disks is found by hashes of contents; these values must stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from astra.caches import digest_of
from astra.training import checkpoints, provenance
from astra.wheels import digest


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "models"
    (place / "deep" / "__pycache__").mkdir(parents=True)
    (place / "b.txt").write_bytes(b"two\n")
    (place / "a.bin").write_bytes(bytes(range(256)) * 5000)
    (place / "deep" / "c.txt").write_bytes(b"three")
    (place / "deep" / "__pycache__" / "x.pyc").write_bytes(b"x")
    return place


def test_a_journal_s_inputs_have_the_hash_that_they_always_had(folder):
    assert digest_of(folder, folder / "b.txt") == "49a7ac562537fd3570a9"


def test_an_unfinished_run_lies_where_it_always_lay(folder, monkeypatch):
    monkeypatch.setenv("ASTRA_CACHE", "/cache")
    found = checkpoints.run_folder("rl", {"a": 1.5, "b": ["é"]}, [folder, folder / "b.txt"])
    assert found == Path("/cache/rl/e41ded498998609bb35b")


def test_a_parent_has_the_hash_that_provenance_always_named(folder):
    assert provenance.digest(folder) == "4a552cd1970298fd89ff15c44aa6dc24e03e3e760bb2bfc8db64ae06b9fde61a"
    assert provenance.digest(folder / "b.txt") == "27dd8ed44a83ff94d557f9fd0412ed5a8cbca69ea04922d88c01184a07300a5a"


def test_wheels_are_unpacked_where_they_always_were(folder):
    assert digest([folder / "b.txt", folder / "a.bin"]) == "dc7e66ea9d6d3a0f4187"


def test_a_file_that_is_not_there_has_no_hash(folder):
    with pytest.raises(FileNotFoundError):
        digest_of(folder / "none")
