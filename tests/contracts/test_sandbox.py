"""Every sandbox backend: good calls, what the host takes for a result, and the machinery around the server.

What attacks it is in test_sandbox_attacks.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from astra.sandbox import (
    BACKENDS,
    CONDITIONS,
    Job,
    NotJson,
    Pool,
    SandboxUnavailable,
    Worker,
    open_pool,
    open_sandbox,
    probe,
    strict_json,
)
from astra.sandbox.docker import image
from astra.sandbox.landlock import PYTHON_OPTIONS, RUNNER
from astra.sandbox.link import ProcessLink, WorkerLost
from tests.contracts.sandboxes import EVERY, ROOT, SLOT, call, living, started


@pytest.fixture(scope="module", params=EVERY)
def sandbox(request):
    with started(request.param) as worker:
        yield worker


# ---------------------------------------------------------------- good calls


def test_a_call_returns_its_value_and_names_the_backend(sandbox):
    result = call(sandbox, "return {'result': given['x'] + 1, 'text': 'Zürich'}", x=1)
    assert (result.status, result.value) == ("ok", {"result": 2, "text": "Zürich"})
    assert result.backend in BACKENDS


def test_an_error_of_the_tool_is_a_tool_error_with_its_message(sandbox):
    result = call(sandbox, "raise ValueError('unknown airport: XYZ')")
    assert (result.status, result.error_type, result.error) == ("tool_error", "ValueError", "unknown airport: XYZ")
    assert call(sandbox, "return {}['Lyme']").error == "Lyme"
    assert sandbox.call("syntax error here", "f", {}).status == "tool_error"
    assert sandbox.call("x = 1", "f", {}).status == "tool_error"


def test_printed_text_is_kept_apart_from_the_result(sandbox):
    result = call(sandbox, "print('{\"value\": 1}')\nreturn 2")
    assert (result.value, result.printed) == (2, '{"value": 1}\n')


def test_a_job_makes_all_calls_in_one_process_in_order(sandbox):
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    if x == 2: raise ValueError('two')\n    return len(seen)\n"
    results = sandbox.run(Job(code, "f", ({"x": 1}, {"x": 2}, {"x": 3})))
    assert [(one.status, one.value) for one in results] == [("ok", 1), ("tool_error", None), ("ok", 3)]


def test_a_session_loads_once_and_keeps_no_state_between_calls(sandbox):
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)\n"
    with sandbox.session(code) as session:
        assert [session.call("f", {"x": x}).value for x in range(3)] == [1, 1, 1]
        assert sandbox.call(code, "f", {"x": 0}).value == 1  # ends the session; the next call loads again
        assert session.call("f", {"x": 9}).value == 1
    with sandbox.session("raise ValueError('no')") as broken:
        assert broken.call("f", {}).error == "no"
    with sandbox.session("def f():\n    import os\n    os._exit(0)\n") as leaving:
        assert [leaving.call("f", {}).status for _ in range(2)] == ["crash", "crash"]


def test_hash_order_random_numbers_and_clock_are_the_condition_s():
    code = (
        "import random, time, datetime\ndef f():\n    return [hash('a'), random.random(), datetime.date.today().year]\n"
    )
    with open_pool() as pool:
        first, second = pool.both([Job(code, "f", ({},))] * 2, [Job(code, "f", ({},))] * 2)
    (a,), (b,) = first[0], second[0]
    assert a.value[:2] == first[1][0].value[:2]
    assert all(x != y for x, y in zip(a.value, b.value, strict=True))
    assert b.value[2] - a.value[2] in (11, 12)


def test_a_pool_keeps_the_order_of_its_jobs():
    jobs = [Job("def f(x):\n    return x\n", "f", ({"x": x},)) for x in range(30)]
    with open_pool(workers=3) as pool:
        assert [one[0].value for one in pool.map(jobs)] == list(range(30))


# ---------------------------------------------------------------- what the host takes


@pytest.mark.parametrize("text", ["NaN", "1e999", '{"a": 1, "a": 2}', '"\\ud800"', "[" * 100_000, "{"])
def test_the_host_refuses_what_plain_json_lets_pass(text):
    with pytest.raises(NotJson):
        strict_json(text)


# ---------------------------------------------------------------- the machinery


def test_a_lost_worker_is_replaced_and_the_call_made_again(sandbox):
    call(sandbox, "return 1")
    for one in living(sandbox):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    assert call(sandbox, "return 2").value == 2


def test_a_server_s_end_ends_the_call_in_it(sandbox):
    call(sandbox, "return 1")
    frame = b'{"op": "call", "id": 0, "code": "while True: pass", "function": "f", "calls": [], '
    frame += b'"timeout_s": 60, "seed": 0, "clock_s": 0}'
    sandbox.link.write(len(frame).to_bytes(4, "big") + frame, time.monotonic() + 5)
    time.sleep(0.3)
    working = living(sandbox)
    sandbox.close()
    assert not _still(working, 10)


@pytest.mark.skipif(os.getuid() != 0, reason="counts processes by their user")
def test_a_host_that_is_killed_leaves_nothing_running(sandbox):
    code = "import sys, time\nfrom astra.sandbox import BACKENDS, CONDITIONS\n"
    code += f"worker = BACKENDS[{sandbox.backend!r}](CONDITIONS[0], {SLOT})\n"
    code += "print(worker.call('def f(): return 1', 'f', {}).status, flush=True)\n"
    code += "worker.call('def f():\\n while True: pass', 'f', {}, 3.0)\n"
    sandbox.close()
    before = living(sandbox)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout.readline() == "ok\n"
        time.sleep(0.2)
        host.kill()
    assert not _still(living(sandbox) - before, 10)


def _still(processes, limit_s):
    """Those that are still there after a while, zombies aside."""
    deadline = time.monotonic() + limit_s
    while processes and time.monotonic() < deadline:
        processes = {one for one in processes if Path(f"/proc/{one}/cmdline").exists() and _command(one)}
        time.sleep(0.05)
    return processes


def _command(process):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def test_many_calls_leave_nothing_behind(sandbox):
    def held():
        return sorted(os.listdir("/proc/self/fd")), living(sandbox)

    call(sandbox, "return 1")
    before = held()
    for body in ("return 1", "raise ValueError", "import os\nos._exit(1)", "return {1, 2}") * 50:
        call(sandbox, body)
    assert held() == before


def test_many_calls_need_no_more_memory(sandbox):
    def memory_kib():
        return sum(int(line.split()[1]) for one in living(sandbox) for line in _status(one) if line.startswith("VmRSS"))

    for _ in range(20):
        call(sandbox, "return 1")
    before = memory_kib()
    for _ in range(300):
        call(sandbox, "return 1")
    assert memory_kib() - before < 2048


def _status(process):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/status").read_text().splitlines()
    return []


def shell(script):
    """A worker whose server is a shell script."""
    return Worker("shell", lambda environment: ProcessLink(["/bin/sh", "-c", script], environment), CONDITIONS[0])


def test_a_server_that_cannot_live_is_unavailable_and_no_result():
    script = "printf '\\0\\0\\0\\016{\"ready\":true}'; sleep 0.2"
    with shell(script) as worker, pytest.raises(SandboxUnavailable, match="lost twice"):
        worker.call("def f(): return 1", "f", {})


def test_a_server_that_does_not_start_is_unavailable_with_what_it_said():
    script = "echo 'this kernel has no Landlock' >&2; exit 1"
    with shell(script) as worker, pytest.raises(SandboxUnavailable, match="no Landlock"):
        worker.call("def f(): return 1", "f", {})


def test_a_server_that_takes_no_request_is_lost_at_the_deadline():
    link = ProcessLink(["/bin/sleep", "60"], {})
    begun = time.monotonic()
    with pytest.raises(WorkerLost, match="takes no request"):
        link.write(b"x" * (1 << 20), begun + 0.3)
    link.close()
    assert time.monotonic() - begun < 5


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(SandboxUnavailable, match="docker, bwrap, landlock"):
        open_sandbox("subprocess")


def test_the_probe_of_a_working_backend_gives_no_reason(sandbox):
    assert probe(sandbox.backend) is None


# ---------------------------------------------------------------- which backend


def missing(conditions, slot):
    return shell("echo 'not on this machine' >&2; exit 1")


def unconfined(folder):
    """Starts servers that run code as this process could, without the filter: what must never be taken."""
    source, measure = RUNNER.read_text(), "    if not filter_.apply():\n        os._exit(97)\n"
    assert measure in source
    runner = folder / "runner.py"
    runner.write_text(source.replace(measure, ""))
    command = [sys.executable, *PYTHON_OPTIONS, str(runner)]
    return lambda conditions, slot: Worker("free", lambda given: ProcessLink(command, given), conditions)


@pytest.fixture
def backends(monkeypatch):
    """Sets what stands in BACKENDS."""

    def replace(**given):
        for name in list(BACKENDS):
            monkeypatch.delitem(BACKENDS, name)
        for name, start in given.items():
            monkeypatch.setitem(BACKENDS, name, start)

    return replace


def test_auto_takes_the_first_backend_that_passes_the_probe(backends, tmp_path):
    backends(docker=missing, bwrap=unconfined(tmp_path), landlock=BACKENDS["landlock"], never=missing)
    with open_pool() as pool:
        assert pool.backend == "landlock"


def test_code_is_refused_where_nothing_confines_it_and_every_reason_is_told(backends, tmp_path):
    backends(docker=missing, bwrap=unconfined(tmp_path))
    with pytest.raises(SandboxUnavailable, match="not on this machine.*bwrap: a probe was not confined.*open"):
        open_sandbox()


def test_a_backend_that_was_asked_for_is_not_replaced_by_another(backends):
    backends(docker=missing, landlock=BACKENDS["landlock"])
    with pytest.raises(SandboxUnavailable, match="not on this machine"):
        open_pool("docker")


def test_an_engine_that_does_not_answer_is_a_reason_and_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'none.sock'}")
    assert "no engine answers at unix://" in probe("docker")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    assert "sandbox docker: DockerException" in probe("docker")


@pytest.mark.docker
def test_an_image_of_another_runner_is_not_taken(monkeypatch, tmp_path):
    other = tmp_path / "runner.py"
    other.write_text("# another")
    with started("docker") as worker:
        assert worker.call("def f(): return 1", "f", {}).value == 1
        monkeypatch.setattr("astra.sandbox.docker.RUNNER", other)
        assert f"build {image()} with docker/build.sh" in probe("docker")


def test_bwrap_that_is_not_there_is_told_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install bubblewrap" in probe("bwrap")


def test_a_pool_whose_worker_is_lost_stops_with_the_reason():
    with Pool(missing, 2) as pool, pytest.raises(SandboxUnavailable, match="not on this machine"):
        pool.map([Job("def f(): return 1", "f", ({},))] * 4)


@pytest.mark.skipif(os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="drops to an ordinary user")
def test_the_runner_works_as_an_ordinary_user(tmp_path):
    runner = Path("/tmp") / f"astra_runner_{os.getpid()}.py"
    runner.write_text(RUNNER.read_text())
    runner.chmod(0o644)
    command = ["/usr/bin/python3", *PYTHON_OPTIONS, str(runner)]

    def start(environment):
        return ProcessLink(command, {**environment, "R_LANDLOCK": "yes"}, user=65534)

    try:
        with Worker("landlock", start, CONDITIONS[0]) as worker:
            assert call(worker, "import os\nreturn os.getuid()").value == 65534
            assert worker.ready["uid"] == 65534
            assert call(worker, "open('/etc/passwd')").error_type == "PermissionError"
            assert call(worker, "import os\nos.kill(os.getppid(), 9)").error_type == "PermissionError"
            assert call(worker, "import os\nopen(f'/proc/{os.getppid()}/mem')").status == "tool_error"
            number = 234 if os.uname().machine == "x86_64" else 131
            signalled = f"import ctypes, os\nreturn ctypes.CDLL(None).syscall({number}, os.getppid(), os.getppid(), 9)"
            assert call(worker, signalled).value == -1
            with worker.session("import os\nwhile True: os.fork()") as session:
                assert not session.call("f", {}, 0.5).ok
            assert call(worker, "return 1").value == 1
    finally:
        runner.unlink()
