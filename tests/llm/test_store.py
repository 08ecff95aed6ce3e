"""Kept replies: what identifies one, claims between processes, where they lie, and how they travel."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from astra.llm.__main__ import main
from astra.llm.store import ReplyStore, StoreUnusable, read_reply, request_key, store_folder, written_reply
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, KeptReply, Message, ToolCall, ToolSpec, Usage
from astra.stage import read_records

MODEL = ModelParams(transport="openai", name="m", temperature=0.5, max_tokens=64)
ASKED = Request(model=MODEL, messages=(Message(role="user", content="x"),), seed=1)
CALL = ToolCall(id="c", function=FunctionCall(name="f", arguments='{"a": 1}'))
REPLY = Completion("fine \U0001f30a", "stop", Usage(calls=1, prompt_tokens=3, completion_tokens=2), (CALL,), "short")
KEY = request_key(ASKED)


@pytest.fixture
def store(tmp_path):
    opened = ReplyStore(tmp_path / "llm")
    yield opened
    opened.close()


def test_a_reply_comes_back_as_it_was_kept():
    assert read_reply(written_reply(REPLY)) == dataclasses.replace(REPLY, cached=True)


CHANGES: dict[str, Any] = {
    "messages": (Message(role="user", content="y"),), "tools": (ToolSpec(name="f", description="f", parameters={}),),
    "seed": 2, "sample": 1, "json_schema": {"type": "object"},
}  # fmt: skip
MODELS: dict[str, Any] = {"name": "n", "temperature": 0.6, "max_tokens": 65, "top_p": 0.9, "extra": {"top_k": 5}}


@pytest.mark.parametrize("field", CHANGES)
def test_everything_that_makes_a_reply_identifies_it(field):
    assert request_key(dataclasses.replace(ASKED, **{field: CHANGES[field]})) != KEY


@pytest.mark.parametrize("field", MODELS)
def test_so_does_everything_that_is_said_of_the_model(field):
    assert request_key(dataclasses.replace(ASKED, model=MODEL.model_copy(update={field: MODELS[field]}))) != KEY


def test_how_it_is_asked_does_not():
    assert request_key(dataclasses.replace(ASKED, renew=True)) == KEY
    changed = MODEL.model_copy(update={"transport": "builtin", "min_prompt_share": 0.1})
    assert request_key(dataclasses.replace(ASKED, model=changed)) == KEY


def test_a_lone_surrogate_has_a_key_too():
    assert request_key(dataclasses.replace(ASKED, messages=(Message(role="user", content="\udf0a"),))) != KEY


def test_only_one_of_two_stores_may_ask_until_the_reply_is_there(store):
    other = ReplyStore(store.folder)
    assert store.claim(KEY)
    assert not other.claim(KEY)
    store.put(KEY, REPLY)
    assert other.get(KEY) == dataclasses.replace(REPLY, cached=True)
    other.close()


def test_a_claim_that_was_given_up_is_free(store):
    other = ReplyStore(store.folder)
    store.claim(KEY)
    store.release(KEY)
    assert other.claim(KEY)
    other.close()


CLAIMS = """
import os, sys, time
from pathlib import Path
from astra.llm.store import ReplyStore
store = ReplyStore(Path(sys.argv[1]))
assert store.claim(sys.argv[2])
print("claimed", flush=True)
time.sleep(60)
"""


def test_the_claim_of_a_killed_process_is_free_at_once(store):
    holder = subprocess.Popen([sys.executable, "-c", CLAIMS, str(store.folder), KEY], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "claimed\n"
    assert not store.claim(KEY)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert store.claim(KEY)


WRITES = """
import sys
from pathlib import Path
from astra.llm.store import ReplyStore
from astra.llm.types import Completion
from astra.records import Usage
store = ReplyStore(Path(sys.argv[1]))
for n in range(300):
    store.claim(f"{n:064d}")
    store.put(f"{n:064d}", Completion(f"{n}", "stop", Usage(calls=1, prompt_tokens=1, completion_tokens=1)))
store.close()
"""


def test_several_processes_write_at_once_and_lose_nothing(store):
    writers = [subprocess.Popen([sys.executable, "-c", WRITES, str(store.folder)]) for _ in range(4)]
    assert [one.wait() for one in writers] == [0] * 4
    assert [store.get(f"{n:064d}").content for n in range(300)] == [str(n) for n in range(300)]  # type: ignore[union-attr]


def test_what_a_server_takes_is_remembered(store):
    assert store.dialect("http://a") is None
    store.remember_dialect("http://a", {"form": "plain"})
    assert store.dialect("http://a") == {"form": "plain"}


def test_the_place_is_named_by_the_environment_or_lies_with_dvcs_root(monkeypatch, tmp_path):
    monkeypatch.delenv("ASTRA_CACHE", raising=False)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    assert store_folder() == Path(".cache/llm")
    monkeypatch.setenv("DVC_ROOT", "/repo")
    assert store_folder() == Path("/repo/.cache/llm")
    monkeypatch.setenv("ASTRA_CACHE", "/elsewhere")
    assert store_folder() == Path("/elsewhere")


def test_a_file_that_is_no_store_is_named_with_what_to_do(tmp_path):
    (tmp_path / "replies.sqlite").write_bytes(b"not a database at all, by any means" * 100)
    with pytest.raises(StoreUnusable, match=r"replies\.sqlite.*ASTRA_CACHE"):
        ReplyStore(tmp_path)


@pytest.mark.parametrize("row", ["{bad", "{}", "[1]"])
def test_a_kept_reply_that_is_damaged_is_named_and_not_used(store, row):
    store.put(KEY, REPLY)
    store._sql.execute("UPDATE replies SET reply = ?", (row,))
    with pytest.raises(StoreUnusable, match=f"{KEY[:16]} is damaged"):
        store.get(KEY)


def test_a_folder_in_which_no_lock_can_be_made_is_named(store):
    (store.folder / "owners").rmdir()
    with pytest.raises(StoreUnusable, match=r"cannot be locked.*ASTRA_CACHE"):
        store.claim(KEY)


def test_an_import_or_export_that_cannot_be_written_says_so(store, tmp_path):
    with pytest.raises(StoreUnusable, match="nowhere"):
        store.export(tmp_path / "nowhere" / "replies.jsonl")
    store._sql.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreUnusable, match="cannot be written"):
        store.add([(KEY, "{}")])


def test_a_reply_that_cannot_be_kept_is_an_error_and_not_used(store):
    lock = sqlite3.connect(store.file, timeout=0.1)
    lock.execute("BEGIN EXCLUSIVE")
    store._sql.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(StoreUnusable, match="cannot be written"):
        store.put(KEY, REPLY)
    lock.close()


@pytest.fixture
def exported(store, tmp_path, monkeypatch):
    store.put(KEY, REPLY)
    store.put("0" * 64, Completion("", "content_filter", REPLY.usage))
    monkeypatch.setenv("ASTRA_CACHE", str(store.folder))
    file = tmp_path / "replies.jsonl"
    main(["export", str(file)])
    return file


def test_exported_replies_are_sorted_records_and_come_in_again_unchanged(store, exported, tmp_path, monkeypatch):
    records = list(read_records(exported, KeptReply))
    assert [one.key for one in records] == sorted([KEY, "0" * 64])
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "new"))
    main(["import", str(exported)])
    main(["import", str(exported)])
    new = ReplyStore(tmp_path / "new")
    assert new.get(KEY) == store.get(KEY)
    assert new.get("0" * 64) == store.get("0" * 64)
    new.close()


def test_a_file_that_holds_no_replies_is_named_with_its_line_and_changes_nothing(
    exported, tmp_path, monkeypatch, capsys
):
    exported.write_text(exported.read_text() + json.dumps({"key": "x"}) + "\n")
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "new"))
    with pytest.raises(SystemExit):
        main(["import", str(exported)])
    assert f"{exported}:3" in capsys.readouterr().err
    new = ReplyStore(tmp_path / "new")
    assert new.get(KEY) is None
    new.close()
    with pytest.raises(SystemExit):
        main(["import", str(tmp_path / "none.jsonl")])
    assert "none.jsonl: No such file" in capsys.readouterr().err


def test_an_ended_store_leaves_no_owner_behind(tmp_path):
    store = ReplyStore(tmp_path)
    store.claim(KEY)
    assert len(os.listdir(tmp_path / "owners")) == 1
    store.close()
    assert os.listdir(tmp_path / "owners") == []
