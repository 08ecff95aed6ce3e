"""Recordings: what a live server answered is answered again, without the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from astra.environments import EnvironmentUnavailable
from astra.environments.live import LiveCallFailed, LiveSessions
from astra.environments.recording import Mode, Recording, answered_live
from astra.live import CallResult, LiveConfig
from astra.stage import BadRecord

FAKE = str(Path(__file__).parents[1] / "fake_mcp_server.py")
CALLS = (("quote_fare", {"case": 0}), ("quote_fare", {"case": 1}), ("pid", {}), ("quote_fare", {"case": 2}))


def sessions(mode: str) -> LiveSessions:
    config = LiveConfig(name=mode, command="python", args=(FAKE, mode))
    return LiveSessions({"server-1": config}, start_timeout_s=20, call_timeout_s=10)


def answers(file: Path, mode: Mode, server: str = "plain", calls=CALLS) -> list[CallResult]:
    async def run() -> list[CallResult]:
        with sessions(server) as live, answered_live(live, mode, file) as who:
            return [await who.call("server-1", tool, json.dumps(arguments)) for tool, arguments in calls]

    return asyncio.run(run())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "recordings/live.jsonl"


def test_a_replay_answers_what_was_recorded_where_the_server_does_not_start(file):
    recorded = answers(file, "record")
    assert recorded[:2] == [CallResult("port closed on Sundays", True), CallResult('{"fare": 12.5}', False)]
    assert answers(file, "replay", server="dead_on_start") == recorded


def test_a_recorded_call_is_not_made_again(file):
    assert answers(file, "record")[2] == answers(file, "record")[2]  # the same process id
    assert answers(file, "live")[2] != answers(file, "live")[2]


def test_a_recording_has_the_same_bytes_whatever_the_order_of_the_calls(file):
    calls = [one for one in CALLS if one[0] != "pid"]
    answers(file, "record", calls=calls)
    first = file.read_bytes()
    file.unlink()
    for one in reversed(calls):
        answers(file, "record", calls=[one])
    assert file.read_bytes() == first
    answers(file, "record", calls=calls)
    assert file.read_bytes() == first


def test_a_call_that_was_not_recorded_stops_a_replay_with_the_remedy(file):
    answers(file, "record")
    with pytest.raises(
        EnvironmentUnavailable, match=r"4 answers, none to env\(\{\}\).*set trajectories.live to record"
    ):
        answers(file, "replay", calls=[("env", {})])


def test_another_version_of_a_server_has_no_answers_of_the_old_one(file):
    answers(file, "record")
    assert Recording(file).find("server-1", "pid", {}) is not None
    assert Recording(file).find("server-2", "pid", {}) is None


def test_a_server_that_dies_is_not_recorded_and_what_was_answered_before_is(file):
    recorded = answers(file, "record")[:1]
    with pytest.raises(LiveCallFailed):
        answers(file, "record", server="dead_on_call", calls=[CALLS[0], ("env", {})])
    assert len(Recording(file)) == 4
    assert answers(file, "replay", calls=CALLS[:1]) == recorded


def test_nothing_is_written_where_nothing_is_recorded(file):
    answers(file, "live")
    assert not file.exists()


def test_a_line_that_is_no_answer_is_named(file):
    file.parent.mkdir()
    file.write_text('{"server_id": "s", "tool": "pid", "arguments": {}, "text": 3, "is_error": false}\n')
    with pytest.raises(BadRecord, match=r"live.jsonl:1: not a LiveAnswer: text"):
        Recording(file)
