"""The bench worker: what its runs may do, and what becomes of the others when one of them misbehaves."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from astra.benchmarks import process
from astra.benchmarks.process import Limits, Run, Worker, open_worker
from astra.benchmarks.registry import BENCHMARKS, Benchmark
from astra.benchmarks.types import BenchmarkUnavailable, HarnessError, Reply, RunLost
from astra.benchmarks.worker.confinement import available
from tests.benchmarks import rogue

LIMITS = Limits(timeout_s=1.5, memory_mib=1024, cpu_s=30)
needs_landlock = pytest.mark.skipif(available() != "landlock", reason="this kernel has no Landlock")


def rogue_benchmark(options: Mapping[str, Any] | None = None) -> Benchmark:
    return Benchmark("rogue", "tests.benchmarks.rogue", "rogue", options=options or {})


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with open_worker(rogue_benchmark(), tmp_path_factory.mktemp("environments"), LIMITS) as one:
        yield one


def finished(run: Run) -> str:
    """Play to the end: what the run told last."""
    told = ""
    for number in range(9):
        if run.ask is None:
            break
        told = str(run.ask.messages[-1]["content"])
        run.reply(Reply(content=str(number)))
    return told


def told_by(worker: Worker, case: str) -> str:
    """What a case tells after the first reply."""
    with worker.start(case) as run:
        ask = run.reply(Reply(content="go"))
        assert ask is not None
        return str(ask.messages[-1]["content"])


def test_a_run_is_asked_replied_to_and_judged(worker):
    with worker.start("polite", trial=2) as run:
        assert run.ask is not None
        assert run.ask.messages == [{"role": "user", "content": "polite 2"}]
        finished(run)
        assert run.ask is None
        assert run.verdict().scores == {"accuracy": 1.0}
    assert worker.version == "rogue 1"


def test_cases_come_in_an_order_that_stays(worker):
    assert [one.id for one in worker.cases()] == [*rogue.ACTS, "no_start", "no_verdict", "not_a_number"]


def test_a_run_stopped_before_its_end_has_a_verdict(worker):
    with worker.start("polite") as run:
        run.reply(Reply(content="a"))
        assert run.verdict().note == "a"


def test_a_reply_to_nothing_is_refused(worker):
    with worker.start("polite") as run:
        finished(run)
        with pytest.raises(ValueError, match="case is over"):
            run.reply(Reply(content="more"))


def test_a_closed_run_takes_nothing_more(worker):
    run = worker.start("polite")
    run.verdict()
    with pytest.raises(ValueError, match="closed"):
        run.verdict()


def test_an_unknown_case_is_named(worker):
    with pytest.raises(KeyError, match="no case 'none_such'"):
        worker.start("none_such")


# ---------------------------------------------------------------- errors of one run


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("raise_error", "raise_error: RuntimeError: the package is broken (rogue.py:"),
        ("exit_interpreter", "exit_interpreter: SystemExit: 3"),
        ("take_memory", "take_memory: MemoryError"),
    ],
)
def test_what_the_package_raises_is_an_error_of_that_run_and_no_score(worker, case, said):
    with worker.start("polite") as other:
        with pytest.raises(HarnessError) as error:
            told_by(worker, case)
        assert said in error.value.detail
        assert error.value.reason == "harness_error"
        finished(other)
        assert other.verdict().scores == {"accuracy": 1.0}


@pytest.mark.parametrize("case", ["no_verdict", "not_a_number"])
def test_a_verdict_that_is_none_is_an_error(worker, case):
    run = worker.start(case)
    with pytest.raises(HarnessError):
        run.verdict()


def test_a_case_that_can_not_be_started_is_an_error(worker):
    with pytest.raises(HarnessError, match="it cannot be started"):
        worker.start("no_start")


@pytest.mark.parametrize("case", ["hang", "spin"])
def test_a_call_that_does_not_end_is_lost_in_its_time_and_delays_no_other_run(worker, case):
    begun = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(told_by, worker, case)
        time.sleep(0.3)
        n_starts, before = worker.n_starts, time.monotonic()
        with worker.start("polite") as other:
            finished(other)
            assert other.verdict().scores == {"accuracy": 1.0}
        assert time.monotonic() - before < LIMITS.timeout_s
        with pytest.raises(RunLost, match="no answer within") as error:
            hanging.result()
    assert error.value.reason == "run_hung"
    assert time.monotonic() - begun < 4 * LIMITS.timeout_s
    assert worker.n_starts == n_starts


@pytest.mark.parametrize(("case", "how"), [("exit_at_once", "exit status 7"), ("crash", "signal 11")])
def test_a_run_that_dies_each_time_is_lost_and_the_worker_stays(worker, case, how):
    n_starts = worker.n_starts
    with pytest.raises(RunLost, match=how) as error:
        told_by(worker, case)
    assert error.value.reason == "run_died"
    assert worker.n_starts == n_starts


def test_a_reply_longer_than_the_worker_takes_is_an_error_of_its_run(worker, monkeypatch):
    monkeypatch.setattr(process, "MAX_LINE", 10_000)
    n_starts = worker.n_starts
    with worker.start("polite") as run, pytest.raises(HarnessError, match="more than the worker takes"):
        run.reply(Reply(content="x" * 10_000))
    assert worker.n_starts == n_starts


# ---------------------------------------------------------------- the worker's process


def test_a_worker_killed_in_the_middle_is_started_anew_and_no_reply_is_asked_for_twice(worker):
    asked = []
    with worker.start("polite") as run, worker.start("folder") as other:
        for number in range(3):
            assert run.ask is not None
            asked.append(len(run.ask.messages))
            if number == 1:
                other.reply(Reply(content="x"))
                os.kill(worker.link()._process.pid, signal.SIGKILL)
            run.reply(Reply(content=f"reply {number}"))
        assert run.verdict().note == "reply 0reply 1reply 2"
    assert asked == [1, 3, 4]


def test_a_worker_that_says_nothing_any_more_is_replaced(tmp_path):
    with open_worker(rogue_benchmark(), tmp_path, LIMITS) as worker, worker.start("polite") as run:
        worker.link().timeout_s = 1.0
        os.kill(worker.link()._process.pid, signal.SIGSTOP)
        run.reply(Reply(content="a"))
        assert run.verdict().note == "a"
        assert worker.n_starts == 2


def test_a_run_that_can_not_be_repeated_is_lost_with_its_worker(worker):
    with worker.start("random") as run:
        run.reply(Reply(content="a"))
        os.kill(worker.link()._process.pid, signal.SIGKILL)
        with pytest.raises(RunLost, match="run_diverged"):
            run.reply(Reply(content="b"))


def test_the_runs_end_with_the_worker(tmp_path):
    with open_worker(rogue_benchmark(), tmp_path, LIMITS) as worker:
        run = worker.start("folder")
        ask = run.reply(Reply(content="x"))
        assert ask is not None
        folder = Path(str(ask.messages[-1]["content"]))
        assert folder.is_dir()
        pid = worker.link()._process.pid
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_two_workers_at_once_are_apart(worker, tmp_path):
    with open_worker(rogue_benchmark(), tmp_path, LIMITS) as second:
        assert told_by(worker, "folder") != told_by(second, "folder")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"broken": True}, "ImportError: No module named 'what_it_needs'"),
        ({"ends": True}, "its process ended"),
        ({"writes_garbage": True}, "it said what is no answer: b'garbage'"),
    ],
)
def test_a_worker_that_does_not_start_says_why(tmp_path, options, said):
    with pytest.raises(BenchmarkUnavailable, match="rogue: ") as error:
        open_worker(rogue_benchmark(options), tmp_path)
    assert said in str(error.value)


def test_a_package_that_is_not_there_is_named_with_the_remedy(tmp_path):
    with pytest.raises(BenchmarkUnavailable, match=r"bfcl is not there. .*bench_env.packages.*dvc repro bench_env"):
        open_worker(BENCHMARKS["bfcl_v4_multi_turn_base"], tmp_path)


@pytest.mark.parametrize(("name", "version"), [("bfcl_eval", "2020.1.1"), ("something_else", "2026.3.23")])
def test_a_package_of_another_version_is_refused(tmp_path, name, version):
    about = tmp_path / "bfcl" / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    with pytest.raises(BenchmarkUnavailable, match=f"{version}; needed is bfcl-eval 2026.3.23.*dvc repro bench_env"):
        open_worker(BENCHMARKS["bfcl_v4_multi_turn_base"], tmp_path)


# ---------------------------------------------------------------- what a run may do


@needs_landlock
def test_a_run_writes_nothing_reads_only_code_and_reaches_nobody(worker):
    assert worker.confinement == "landlock"
    before = Path(rogue.__file__).read_bytes()
    assert told_by(worker, "reach_out").split() == ["denied"] * rogue.N_REACHED
    assert Path(rogue.__file__).read_bytes() == before


def test_a_worker_inherits_no_key_and_no_address(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("HTTP_PROXY", "http://nowhere")
    with open_worker(rogue_benchmark(), tmp_path, LIMITS) as worker:
        names = told_by(worker, "environment").split()
    assert not {"OPENAI_API_KEY", "HTTP_PROXY"} & set(names)
    assert {"HOME", "TMPDIR", "PYTHONHASHSEED"} <= set(names)


@pytest.mark.parametrize("case", ["print_much", "write_to_all_descriptors"])
def test_what_the_package_writes_never_gets_between_the_answers(worker, case):
    n_starts = worker.n_starts
    with worker.start("polite") as other:
        with contextlib.suppress(RunLost):  # it may break its own answers, and no one else's
            told_by(worker, case)
        finished(other)
        assert other.verdict().scores == {"accuracy": 1.0}
    assert worker.n_starts == n_starts


def test_a_run_leaves_nothing_behind_for_the_next(worker):
    assert [told_by(worker, "leave_mark") for _ in range(3)] == ["1", "1", "1"]


def test_half_a_surrogate_pair_becomes_a_character_that_files_take(worker):
    assert told_by(worker, "half_a_pair") == "\ufffd"


def test_many_threads_play_many_runs_of_one_worker(worker):
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda n: finished(worker.start("polite", trial=n)), range(40)))
    assert len(told) == 40
