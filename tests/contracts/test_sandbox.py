"""Every sandbox backend: good calls, results as JSON, what a tool can do wrong, and attacks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from astra.sandbox import (
    BACKENDS,
    CONDITIONS,
    Job,
    NotJson,
    SandboxUnavailable,
    Worker,
    open_pool,
    open_sandbox,
    probe,
    strict_json,
)

RUNNER = Path("astra/sandbox/runner.py").resolve()


@pytest.fixture(scope="module", params=BACKENDS)
def sandbox(request):
    with BACKENDS[request.param](CONDITIONS[0], 0) as worker:
        yield worker


def run(sandbox, body, timeout_s=2.0, **arguments):
    """One call of ``f`` whose lines are given."""
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    return sandbox.call(f"def f(**given):\n{lines}\n", "f", arguments, timeout_s)


# ---------------------------------------------------------------- good calls


def test_a_call_returns_its_value_and_names_the_backend(sandbox):
    result = run(sandbox, "return {'result': given['x'] + 1, 'text': 'Zürich'}", x=1)
    assert (result.status, result.value) == ("ok", {"result": 2, "text": "Zürich"})
    assert result.backend in BACKENDS


def test_an_error_of_the_tool_is_a_tool_error_with_its_message(sandbox):
    result = run(sandbox, "raise ValueError('unknown airport: XYZ')")
    assert (result.status, result.error_type, result.error) == ("tool_error", "ValueError", "unknown airport: XYZ")
    assert run(sandbox, "return {}['Lyme']").error == "Lyme"
    assert sandbox.call("syntax error here", "f", {}).status == "tool_error"
    assert sandbox.call("x = 1", "f", {}).status == "tool_error"


def test_printed_text_is_kept_apart_from_the_result(sandbox):
    result = run(sandbox, "print('{\"value\": 1}')\nreturn 2")
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


# ---------------------------------------------------------------- results (HC-046)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{'Lyme', 'Bude'}", ["Bude", "Lyme"]),
        ("__import__('datetime').date(2030, 1, 2)", "2030-01-02"),
        ("__import__('decimal').Decimal('1.10')", "1.10"),
        ("10**400", 10**400),
        ("(1, (2,))", [1, [2]]),
        ("{1: 'a'}", {"1": "a"}),
    ],
)
def test_results_are_converted_as_documented(sandbox, expression, value):
    assert run(sandbox, f"return {expression}").value == value


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("{(1, 2): 'x'}", "tuple"),
        ("{1: 'a', '1': 'b'}", "twice"),
        ("b'\\xff'", "bytes"),
        ("object()", "object"),
        ("(lambda x: x.append(x) or x)([])", "contains itself"),
        ("10**5000", "int"),
    ],
)
def test_a_result_that_is_no_json_is_the_call_s_error_and_names_the_type(sandbox, expression, named):
    result = run(sandbox, f"return {expression}")
    assert (result.status, result.error_type) == ("bad_result", "not_serializable")
    assert named in result.error
    assert "0x" not in result.error


def test_nan_and_infinity_become_null_with_a_note(sandbox):
    result = run(sandbox, "return [float('nan'), 1.5, float('-inf')]")
    assert (result.value, result.notes) == ([None, 1.5, None], ("non_finite",))


@pytest.mark.parametrize("text", ["NaN", "1e999", '{"a": 1, "a": 2}', '"\\ud800"', "[" * 100_000, "{"])
def test_the_host_refuses_what_plain_json_lets_pass(text):
    with pytest.raises(NotJson):
        strict_json(text)


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
        "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')",
    ],
)
def test_a_call_that_does_not_end_is_a_timeout_soon_after_its_limit(sandbox, body):
    started = time.monotonic()
    assert run(sandbox, body, timeout_s=0.4).status == "timeout"
    assert time.monotonic() - started < 2.4


def test_a_thread_left_running_is_told(sandbox):
    body = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nreturn 12.5"
    assert run(sandbox, body).status == "leaked_process"


def test_floods_end_at_their_caps(sandbox):
    assert run(sandbox, "while True: print('tide ' * 800)").status == "output_limit"
    assert run(sandbox, "import sys\nwhile True: sys.stderr.write('tide ' * 800)").status == "output_limit"
    assert run(sandbox, "return 'x' * (2 << 20)").status == "result_limit"
    assert run(sandbox, "return len(bytearray(2 << 30))").error_type == "MemoryError"


# ---------------------------------------------------------------- attacks: each returns "open" if it succeeds

STOPPED = {
    "read_a_secret_file": "open('/etc/passwd').read()",
    "read_the_project": f"open({str(RUNNER)!r}).read()",
    "list_a_folder": "import os; os.listdir('/root')",
    "write_a_file": "open('/tmp/astra_attack', 'w').write('x')",
    "make_a_folder": "import os; os.mkdir('/var/tmp/astra_attack')",
    "change_a_file_s_mode": "import os; os.chmod('/dev/null', 0o666)",
    "read_the_server_s_environment": "import os; open(f'/proc/{os.getppid()}/environ').read()",
    "open_the_server_s_memory": "import os; open(f'/proc/{os.getppid()}/mem', 'rb')",
    "use_the_network": "import socket; socket.socket()",
    "use_vsock": "import socket; socket.socket(40, socket.SOCK_STREAM)",
    "start_a_program": "import subprocess; subprocess.run(['/bin/true'])",
    "fork": "import os; os.fork()",
    "kill_the_server": "import os; os.kill(os.getppid(), 9)",
    "kill_everything": "import os; os.kill(-1, 9)",
    "limit_the_server": "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "raise_its_own_limit": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "leave_its_process_group": "import os; os.setsid()",
    "become_root": "import os; os.setuid(0)" if os.getuid() == 0 else "raise PermissionError",
    "new_namespace": "import ctypes; l = ctypes.CDLL(None, use_errno=True)\n    if l.unshare(0x10000000): raise OSError",
    "trace_the_server": "import ctypes, os; l = ctypes.CDLL(None)\n    if l.ptrace(16, os.getppid(), 0, 0): raise OSError",
    "shared_memory": "import ctypes; l = ctypes.CDLL(None)\n    if l.shmget(7, 4096, 0o1666) == -1: raise OSError",
}


@pytest.mark.parametrize("attack", STOPPED.values(), ids=STOPPED)
def test_an_attack_is_refused(sandbox, attack):
    body = f"try:\n    {attack}\nexcept (OSError, ValueError) as error:\n    return 'refused'\nreturn 'open'"
    assert run(sandbox, body).value == "refused"
    assert not Path("/tmp/astra_attack").exists()


def test_a_tool_sees_no_environment_but_the_runner_s_own(sandbox, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with BACKENDS[sandbox.backend](CONDITIONS[0], 1) as fresh:
        names = run(fresh, "import os\nreturn sorted(os.environ)").value
    assert all(name.startswith(("R_", "PYTHON", "TZ", "LC_")) for name in names)


def test_a_made_up_result_on_any_descriptor_is_not_taken_for_a_frame(sandbox):
    body = """
import os, struct
said = b'{"outcomes": [{"value": 42, "notes": []}], "threads": 0}'
for fd in (0, 1, 2, *range(4, 64)):
    try: os.write(fd, struct.pack('>I', len(said)) + said)
    except OSError: pass
os._exit(0)
"""
    assert run(sandbox, body).status == "crash"
    assert run(sandbox, "import os\nos.write(3, b'\\0\\0\\0\\x02{}')\nos._exit(0)").status == "bad_result"


def test_leaving_early_is_a_crash_and_exiting_an_error(sandbox):
    assert run(sandbox, "import os\nos._exit(0)").status == "crash"
    assert run(sandbox, "import sys\nsys.exit(0)").status == "tool_error"
    assert run(sandbox, "import ctypes\nctypes.string_at(0)").status == "crash"


def test_patched_builtins_harm_no_later_call(sandbox):
    run(sandbox, "import builtins, json\nbuiltins.len = lambda x: 0\njson.JSONEncoder.encode = None\nreturn 1")
    assert run(sandbox, "return len('abc')").value == 3


def test_no_process_outlives_its_call(sandbox):
    pid = run(sandbox, "import os\nreturn os.getpid()").value
    assert not Path(f"/proc/{pid}").exists()


# ---------------------------------------------------------------- the machinery


def test_a_lost_worker_is_replaced_and_the_call_made_again(sandbox):
    run(sandbox, "return 1")
    os.kill(sandbox._process.pid, signal.SIGKILL)
    assert run(sandbox, "return 2").value == 2


def test_a_server_that_cannot_live_is_unavailable_and_no_result():
    command = ["/bin/sh", "-c", "printf '\\0\\0\\0\\016{\"ready\":true}'; sleep 0.2"]
    with (
        Worker("short-lived", command, {}, CONDITIONS[0]) as worker,
        pytest.raises(SandboxUnavailable, match="lost twice"),
    ):
        worker.call("def f(): return 1", "f", {})


def test_a_runner_without_landlock_says_so_and_runs_nothing():
    command = ["/bin/sh", "-c", "echo 'this kernel has no Landlock' >&2; exit 1"]
    with (
        Worker("landlock", command, {}, CONDITIONS[0]) as worker,
        pytest.raises(SandboxUnavailable, match="no Landlock"),
    ):
        worker.call("def f(): return 1", "f", {})


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(SandboxUnavailable, match="landlock"):
        open_sandbox("subprocess")


def test_the_probe_of_a_working_backend_gives_no_reason(sandbox):
    assert probe(sandbox.backend) is None


@pytest.mark.skipif(os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="drops to an ordinary user")
def test_the_runner_works_as_an_ordinary_user(tmp_path):
    runner = Path("/tmp") / f"astra_runner_{os.getpid()}.py"
    runner.write_text(RUNNER.read_text())
    runner.chmod(0o644)
    drop = "import os,sys;os.setgroups([]);os.setresgid(*[65534]*3);os.setresuid(*[65534]*3);os.execv(sys.argv[1],sys.argv[1:])"
    command = ["/usr/bin/python3", "-c", drop, "/usr/bin/python3", "-s", "-P", "-S", "-B", str(runner)]
    try:
        with Worker("landlock", command, {"R_LANDLOCK": "1"}, CONDITIONS[0]) as worker:
            assert run(worker, "import os\nreturn os.getuid()").value == 65534
            assert worker.ready["uid"] == 65534
            assert run(worker, "open('/etc/passwd')").error_type == "PermissionError"
            assert run(worker, "import os\nos.kill(os.getppid(), 9)").error_type == "PermissionError"
            assert run(worker, "import os\nopen(f'/proc/{os.getppid()}/mem')").status == "tool_error"
    finally:
        runner.unlink()
