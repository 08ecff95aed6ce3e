"""Cases of the area generated-code-sandbox that the sandbox itself answers, on every backend.

HC-044, HC-046, HC-047; HC-049, code in replies, is in tests/stages/test_envsynth.py.
"""

from __future__ import annotations

import json
import resource
import time

import pytest

from astra.sandbox import Job
from tests.contracts.sandboxes import EVERY, call, living, started


@pytest.fixture(scope="module", params=EVERY)
def sandbox(request):
    with started(request.param) as worker:
        call(worker, "return 1")
        yield worker


# ---------------------------------------------------------------- HC-044: what a tool leaves running

LEAVING = {
    "background_program": (
        "import subprocess, sys\ndef quote(port: str) -> dict:\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'])\n    return {'fare': 12.5}\n",
        "leaked_process",
    ),
    "background_program_whose_failure_is_hidden": (
        "import subprocess, sys\ndef quote(port: str) -> dict:\n"
        "    try: subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'])\n"
        "    except OSError: pass\n    return {'fare': 12.5}\n",
        "leaked_process",
    ),
    "double_fork": (
        "import os, time\ndef quote(port: str) -> dict:\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0: time.sleep(120)\n        os._exit(0)\n    return {'fare': 12.5}\n",
        "leaked_process",
    ),
    "thread_without_end": (
        "import threading, time\ndef quote(port: str) -> dict:\n"
        "    threading.Thread(target=time.sleep, args=(120,)).start()\n    return {'fare': 12.5}\n",
        "leaked_process",
    ),
    "ignored_sigterm": (
        "import signal\ndef quote(port: str) -> dict:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    while True: pass\n",
        "timeout",
    ),
    "loop": ("def quote(port: str) -> dict:\n    while True: pass\n", "timeout"),
}


@pytest.mark.parametrize(("code", "status"), LEAVING.values(), ids=LEAVING)
def test_a_tool_that_leaves_something_running_ends_in_time_and_is_told(sandbox, code, status):
    before, begun = living(sandbox), time.monotonic()
    assert sandbox.call(code, "quote", {"port": "Lyme"}, 1.0).status == status
    assert time.monotonic() - begun < 1.0 + 2.0
    assert living(sandbox) <= before
    with sandbox.session(code) as session:
        assert session.call("quote", {"port": "Lyme"}, 1.0).status == status


def test_a_thread_that_has_ended_is_no_leak(sandbox):
    body = "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n    return list(pool.map(abs, [-1, 2]))"
    assert call(sandbox, body).value == [1, 2]


# ---------------------------------------------------------------- HC-046: results as JSON


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{'Lyme', 'Bude'}", ["Bude", "Lyme"]),
        ("__import__('datetime').date(2030, 1, 2)", "2030-01-02"),
        ("__import__('datetime').datetime(2030, 1, 2, 3, 4)", "2030-01-02T03:04:00"),
        ("__import__('decimal').Decimal('1.10')", "1.10"),
        ("10**400", 10**400),
        ("(1, (2,))", [1, [2]]),
        ("{1: 'a'}", {"1": "a"}),
    ],
)
def test_results_are_converted_as_documented(sandbox, expression, value):
    assert call(sandbox, f"return {expression}").value == value


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("{(1, 2): 'x'}", "tuple"),
        ("{1: 'a', '1': 'b'}", "twice"),
        ("b'\\xff'", "bytes"),
        ("object()", "object"),
        ("(lambda x: x.append(x) or x)([])", "contains itself"),
        ("(lambda x: x.update(a=x) or x)({})", "contains itself"),
        ("10**5000", "int"),
        ("1j", "complex"),
        ("(x for x in 'ab')", "generator"),
        ("{float('nan'): 1}", "float"),
    ],
)
def test_a_result_that_is_no_json_is_the_call_s_error_and_names_the_type(sandbox, expression, named):
    result = call(sandbox, f"return {expression}")
    assert (result.status, result.error_type) == ("bad_result", "not_serializable")
    assert named in result.error
    assert "0x" not in result.error


def test_nan_and_infinity_become_null_with_a_note(sandbox):
    result = call(sandbox, "return [float('nan'), 1.5, float('-inf')]")
    assert (result.value, result.notes) == ([None, 1.5, None], ("non_finite",))
    json.dumps(result.value, allow_nan=False)


def test_one_bad_result_spares_the_others_of_its_job(sandbox):
    code = "def f(x):\n    return {'a': object(), 'b': 'y' * (2 << 20), 'c': 3}[x]\n"
    results = sandbox.run(Job(code, "f", ({"x": "a"}, {"x": "b"}, {"x": "c"})))
    assert [(one.status, one.value) for one in results] == [("bad_result", None), ("result_limit", None), ("ok", 3)]


# ---------------------------------------------------------------- HC-047: floods

FLOOD = "import sys\ndef f(n: int = 0) -> int:\n    i = 0\n    while i < 10**6:\n        print(i, 'tide ' * 800{})\n        i += 1\n    return 7\n"


def host_mib():
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("to", ["", ", file=sys.stderr"], ids=["stdout", "stderr"])
def test_a_flood_of_text_ends_at_its_cap_with_a_mark_and_without_memory_of_the_host(sandbox, to):
    before = host_mib()
    result = sandbox.call(FLOOD.format(to), "f", {}, 5.0)
    assert result.status == "output_limit"
    assert result.printed.startswith("0 tide tide ")
    assert result.printed.endswith("[cut: more than 64 KiB were printed]")
    assert len(result.printed) < 66_000
    assert host_mib() - before < 4


@pytest.mark.parametrize(
    ("body", "status", "error_type"),
    [
        ("return 'x' * (1 << 30)", "tool_error", "MemoryError"),  # never comes to be: 512 MiB is all there is
        ("return 'x' * (400 << 20)", "result_limit", ""),
        ("return ['x' * (300 << 20)]", "result_limit", ""),
        ("return {'x' * (2 << 20): 1}", "result_limit", ""),
        ("return list(range(1_000_000))", "result_limit", ""),
        ("return ['x' * 1000] * 10_000", "result_limit", ""),
    ],
)
def test_a_flood_of_results_is_a_limit_and_no_crash(sandbox, body, status, error_type):
    before = host_mib()
    result = call(sandbox, body, 5.0)
    assert (result.status, result.error_type) == (status, error_type)
    assert host_mib() - before < 8


def test_a_result_up_to_the_cap_is_taken(sandbox):
    assert len(call(sandbox, "return 'x' * 1_000_000").value) == 1_000_000
    assert len(call(sandbox, "return [[0, 1]] * 100_000", 5.0).value) == 100_000


def test_no_file_takes_a_flood(sandbox):
    body = "for folder in ('/', '/tmp', '/var/tmp', '/dev/shm', '.'):\n"
    body += (
        "    try: open(folder + '/flood', 'wb').write(b'x' * 4096)\n    except OSError: continue\n    return folder\n"
    )
    assert call(sandbox, body + "return None").value is None
    assert call(sandbox, "import tempfile\ntempfile.TemporaryFile().write(b'x')").error_type in (
        "FileNotFoundError",
        "PermissionError",
    )
