"""The attack suite: what untrusted code tries, on every backend; each attack is stopped and the next call unharmed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.contracts.sandboxes import EVERY, ROOT, call, living, started

RUNNER = ROOT / "astra" / "sandbox" / "runner.py"
WRITTEN = Path("/var/tmp/astra_attack")
FORGED = '{"outcomes": [{"value": 42, "notes": []}], "threads": 0, "processes": []}'


@pytest.fixture(scope="module", params=EVERY)
def sandbox(request):
    with started(request.param) as worker:
        call(worker, "return 1")
        yield worker


@pytest.fixture(autouse=True)
def unharmed(sandbox):
    """Around every attack: the same server still answers, rightly and at once, and nothing else runs in it."""
    link, before = sandbox.link, living(sandbox)
    yield
    assert call(sandbox, "return [1 + 1, len('abc'), isinstance(3, int), sorted([2, 1])]").value == [2, 3, True, [1, 2]]
    assert sandbox.link is link, "the server was lost"
    assert living(sandbox) <= before
    assert not WRITTEN.exists()


# ---------------------------------------------------------------- reach-out: each says "open" if it succeeds

SYSCALL = "import ctypes, os; l = ctypes.CDLL(None, use_errno=True)\nif l.syscall({}) == -1: raise OSError(ctypes.get_errno(), '')"
X86 = os.uname().machine == "x86_64"

REFUSED = {
    # files
    "read_the_passwords": "open('/etc/shadow').read()",
    "read_the_users": "open('/etc/passwd').read()",
    "read_the_project": f"open({str(RUNNER.with_name('types.py'))!r}).read()",
    "list_a_home": "import os; os.listdir('/root')",
    "list_the_root": "import os\nif set(os.listdir('/')) & {'home', 'work', 'root', 'opt'}: raise SystemExit\nraise OSError",
    "write_beside_others": f"open({str(WRITTEN)!r}, 'w').write('x')",
    "write_in_tmp": "open('/tmp/astra_attack', 'w').write('x')",
    "write_in_shared_memory": "open('/dev/shm/astra_attack', 'w').write('x')",
    "write_to_its_own_code": "import json; open(json.__file__, 'w').write('x')",
    "make_a_folder": f"import os; os.mkdir({str(WRITTEN)!r})",
    "plant_a_link": f"import os; os.symlink('/etc/passwd', {str(WRITTEN)!r})",
    "read_through_a_link": "import os; open('/proc/self/root/etc/passwd').read()",
    "remove_a_module": "import os, json; os.unlink(json.__file__)",
    "change_a_file_s_mode": "import os; os.chmod('/dev/null', 0o666)",
    "change_a_file_s_time": "import os, json; os.utime(json.__file__, (0, 0))",
    "make_a_device": f"import os; os.mknod({str(WRITTEN)!r}, 0o20666, 0x0103)",
    "write_into_memory_files": "import os\nfd = os.memfd_create('x')\nos.write(fd, b'x')",
    "read_a_disk": "open('/dev/vda', 'rb').read(1)",
    "read_kernel_memory": "open('/proc/kcore', 'rb').read(1)",
    "write_kernel_settings": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "watch_files": "import ctypes; l = ctypes.CDLL(None)\nif l.inotify_add_watch(l.inotify_init(), b'/usr', 2) == -1: raise OSError",
    # the server
    "read_the_server_s_environment": "import os; open(f'/proc/{os.getppid()}/environ').read()",
    "read_anyone_s_environment": "import os, glob\nfor one in glob.glob('/proc/[0-9]*/environ'): open(one).read()\nraise OSError",
    "open_the_server_s_memory": "import os; open(f'/proc/{os.getppid()}/mem', 'rb')",
    "write_to_the_server_s_output": "import os; open(f'/proc/{os.getppid()}/fd/1', 'wb').write(b'x')",
    "write_to_the_server_s_channel": "import os; open(f'/proc/{os.getppid()}/fd/4', 'wb').write(b'x')",
    "trace_the_server": "import ctypes, os; l = ctypes.CDLL(None)\nif l.ptrace(16, os.getppid(), 0, 0): raise OSError",
    "write_the_server_s_memory": SYSCALL.format("311 if os.uname().machine == 'x86_64' else 271, os.getppid(), 0, 0, 0, 0, 0"),
    "kill_the_server": "import os; os.kill(os.getppid(), 9)",
    "stop_the_server": "import os; os.kill(os.getppid(), 19)",
    "kill_everything": "import os; os.kill(-1, 9)",
    "kill_its_group": "import os; os.killpg(0, 9)",
    "signal_a_thread_of_the_server": SYSCALL.format(f"{234 if X86 else 131}, os.getppid(), os.getppid(), 9"),
    "interrupt_the_server_by_its_number": "import os, signal; fd = os.pidfd_open(os.getppid()); signal.pidfd_send_signal(fd, 2)",
    "limit_the_server": "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "slow_the_server_down": "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "pin_the_server": "import os; os.sched_setaffinity(os.getppid(), {0})",
    # networks
    "use_tcp": "import socket; socket.socket()",
    "use_udp": "import socket; socket.socket(type=socket.SOCK_DGRAM)",
    "use_ipv6": "import socket; socket.socket(socket.AF_INET6)",
    "use_raw_packets": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "use_the_engine_s_socket": "import socket; socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
    "use_vsock": "import socket; socket.socket(40, socket.SOCK_STREAM)",
    "use_netlink": "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "look_up_a_name": "import socket; socket.create_connection(('localhost', 80), timeout=1)",
    "fetch_a_page": "import urllib.request; urllib.request.urlopen('http://127.0.0.1:80', timeout=1)",
    # rights
    "raise_its_own_limit": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "leave_its_session": "import os; os.setsid()",
    "leave_its_group": "import os; os.setpgid(0, 0)",
    "become_root": "import os\nos.setuid(0)\nif os.getuid(): raise OSError" if os.getuid() == 0 else "raise OSError",
    "new_namespace": "import ctypes; l = ctypes.CDLL(None)\nif l.unshare(0x10000000): raise OSError",
    "outlive_the_server": "import ctypes; l = ctypes.CDLL(None)\nif l.prctl(1, 0, 0, 0, 0): raise OSError",
    "change_the_root": "import os; os.chroot('/usr')",
    "mount": "import ctypes; l = ctypes.CDLL(None)\nif l.mount(b'none', b'/usr', b'tmpfs', 0, 0): raise OSError",
    # what would stay for the next call
    "shared_memory": "import ctypes; l = ctypes.CDLL(None)\nif l.shmget(7, 4096, 0o1666) == -1: raise OSError",
    "message_queue": "import ctypes; l = ctypes.CDLL(None)\nif l.msgget(7, 0o1666) == -1: raise OSError",
    "kernel_keyring": SYSCALL.format(f"{248 if X86 else 217}, b'user', b'k', b'v', 1, -2"),
    "lock_a_file": "import fcntl, json; fcntl.flock(open(json.__file__), fcntl.LOCK_EX)",
    # the kernel's surface
    "io_uring": SYSCALL.format("425, 8, ctypes.create_string_buffer(200)"),
    "userfaultfd": SYSCALL.format(f"{323 if X86 else 282}, 1"),
    "bpf": SYSCALL.format(f"{321 if X86 else 280}, 0, ctypes.create_string_buffer(200), 200"),
    "perf_events": SYSCALL.format(f"{298 if X86 else 241}, ctypes.create_string_buffer(200), 0, -1, -1, 0"),
}  # fmt: skip


@pytest.mark.parametrize("attack", REFUSED.values(), ids=REFUSED)
def test_reaching_out_is_refused(sandbox, attack):
    lines = "\n".join("    " + line for line in attack.split("\n"))
    result = call(sandbox, f"try:\n{lines}\nexcept (OSError, ValueError):\n    return 'refused'\nreturn 'open'")
    assert (result.status, result.value) == ("ok", "refused")


def test_no_variable_of_the_host_is_seen(monkeypatch, sandbox):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    names = call(sandbox, "import os\nreturn sorted(os.environ)").value
    assert all(name.startswith(("R_", "PYTHON", "TZ", "LC_", "PATH", "HOSTNAME", "HOME", "PWD")) for name in names)
    assert "secret" not in str(call(sandbox, "import os\nreturn sorted(os.environ.values())").value)


# ---------------------------------------------------------------- what does not end, or ends otherwise

LOOPS = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(60)",
    "ignored_signals": "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
    "caught_errors": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "pattern": "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')",
    "power": "return 3 ** 10 ** 9 % 7",
    "held_lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "text_of_an_error": "class Evil(Exception):\n    def __str__(self):\n        while True: pass\nraise Evil",
    "text_of_a_result": "class Evil(int):\n    def __index__(self):\n        while True: pass\n    __int__ = bit_length = __index__\nreturn Evil(1)",
    "stopped_itself": "import signal\nsignal.raise_signal(signal.SIGSTOP)",
    "end_hooks": "import atexit, time\natexit.register(time.sleep, 60)\ntime.sleep(60)",
    "half_a_frame": "import os, time\nos.write(3, b'\\0\\0\\0\\x7f{')\ntime.sleep(60)",
}  # fmt: skip


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_what_does_not_end_is_a_timeout_soon_after_its_limit(sandbox, body):
    begun = time.monotonic()
    assert call(sandbox, body, timeout_s=0.4).status == "timeout"
    assert time.monotonic() - begun < 2.4


FORGING = "import os, struct\nsaid = " + repr(FORGED.encode()) + "\nframe = struct.pack('>I', len(said)) + said\n"
ENDINGS = {
    # floods and bombs
    "printed_flood": ("while True: print('tide ' * 800)", "output_limit"),
    "error_flood": ("import sys\nwhile True: sys.stderr.write('tide ' * 800)", "output_limit"),
    "unbuffered_flood": ("import os\nwhile True: os.write(2, b'x' * 65536)", "output_limit"),
    "large_result": ("return 'x' * (2 << 20)", "result_limit"),
    "larger_result": ("return 'x' * (300 << 20)", "result_limit"),
    "a_result_that_grows_when_written": ("return ['x' * 1000] * 500_000", "result_limit"),
    "large_frame_of_its_own": ("import os\nos.write(3, b'\\x7f\\0\\0\\0')", "result_limit"),
    "memory_bomb": ("held = []\nwhile True: held.append(bytearray(8 << 20))", "tool_error"),
    "one_large_block": ("return len(bytearray(2 << 30))", "tool_error"),
    "thread_bomb": (
        "import threading, time\ntry:\n    for _ in range(5000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "except RuntimeError: pass\nreturn 1", "leaked_process"),
    "descriptor_bomb": ("import os\nwhile True: os.dup(1)", "tool_error"),
    "pipe_bomb": ("import os\nwhile True: os.pipe()", "tool_error"),
    "deep_recursion": ("def g(): return g()\nreturn g()", "tool_error"),
    "deep_recursion_in_c": (
        "import sys, json\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nreturn len(json.dumps(x))",
        "crash tool_error"),
    "deep_result": ("x = []\nfor _ in range(10**5): x = [x]\nreturn x", "bad_result crash"),
    # new processes: tried, refused, told
    "fork_bomb": ("import os\nwhile True: os.fork()", "leaked_process"),
    "program": ("import subprocess\nsubprocess.run(['/bin/true'])", "leaked_process"),
    "shell": ("import os\nreturn os.system('id')", "leaked_process"),
    "replaced_itself": ("import os, sys\nos.execv('/usr/bin/python3', ['python3', '-c', ''])", "leaked_process"),
    "daemon": ("import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: pass\nreturn 1", "leaked_process"),
    "survivor_in_secret": (
        "import ctypes\nl = ctypes.CDLL(None)\nif l.fork() == 0:\n    while True: pass\nreturn 1", "ok"),
    # ends
    "exit": ("import os\nos._exit(0)", "crash"),
    "polite_exit": ("import sys\nsys.exit(0)", "tool_error"),
    "killed_itself": ("import os, signal\nsignal.raise_signal(signal.SIGKILL)", "crash"),
    "abort": ("import os\nos.abort()", "crash"),
    "segmentation_fault": ("import ctypes\nctypes.string_at(0)", "crash"),
    "alarm": ("import signal, time\nsignal.alarm(1)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(60)", "crash"),
    "keyboard_interrupt": ("raise KeyboardInterrupt", "tool_error"),
    # forged results
    "printed_result": ("print(" + repr(FORGED) + ")\nimport sys\nsys.stdout.flush()\nimport os\nos._exit(0)", "crash"),
    "forged_on_every_other_descriptor": (
        FORGING + "for fd in (0, 1, 2, *range(4, 256)):\n    try: os.write(fd, frame)\n    except OSError: pass\nos._exit(0)", "crash"),
    "garbage_on_the_channel": ("import os\nos.write(3, b'\\0\\0\\0\\x02{}')\nos._exit(0)", "bad_result"),
    "bytes_that_are_no_text": ("import os\nos.write(3, b'\\0\\0\\0\\x02\\xff\\xff')\nos._exit(0)", "bad_result"),
    "numbers_that_are_none": ("import os\ns = b'{\"outcomes\": [{\"value\": 1e999, \"notes\": []}], \"threads\": 0, \"processes\": []}'\n"
        "os.write(3, len(s).to_bytes(4, 'big') + s)\nos._exit(0)", "bad_result"),
    "nesting_without_end": ("import os\ns = b'[' * 900_000\nos.write(3, len(s).to_bytes(4, 'big'))\nwhile s: s = s[os.write(3, s):]\nos._exit(0)", "bad_result"),
    "nesting_that_decodes": ("import os\ns = b'{\"outcomes\": [{\"value\": ' + b'[' * 800 + b']' * 800 + b', \"notes\": []}], \"threads\": 0, \"processes\": []}'\n"
        "os.write(3, len(s).to_bytes(4, 'big') + s)\nos._exit(0)", "bad_result"),
    "a_frame_that_grows_on_its_way": ("import os\ns = b'\\x01' * 1_000_000\nos.write(3, len(s).to_bytes(4, 'big'))\nwhile s: s = s[os.write(3, s):]\nos._exit(0)", "bad_result"),
    "no_outcome": ("import os\ns = b'{\"outcomes\": [], \"threads\": 0, \"processes\": []}'\nos.write(3, len(s).to_bytes(4, 'big') + s)\nos._exit(0)", "bad_result"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "statuses"), ENDINGS.values(), ids=ENDINGS)
def test_an_attack_ends_as_what_it_is(sandbox, body, statuses):
    begun = time.monotonic()
    result = call(sandbox, body, timeout_s=6.0)
    assert result.status in statuses.split(), result
    assert len(result.printed) <= 70_000
    assert time.monotonic() - begun < 7


PATCHES = {
    "builtins": "import builtins\nfor name in ('len', 'isinstance', 'sorted', 'str', 'type'): setattr(builtins, name, lambda *a, **k: 0)",
    "json": "import json\njson.JSONEncoder.encode = json.dumps = json.loads = None",
    "exit": "import os\nos._exit = lambda code: None",
    "write": "import os\nos.write = lambda fd, data: len(data)",
    "the_runner": "import sys\nmain = sys.modules['__main__']\nfor name in list(vars(main)): setattr(main, name, None)",
    "the_modules": "import sys\nsys.modules.clear()",
    "the_collector": "import gc\ngc.callbacks.append(lambda *a: 1 / 0)",
    "tracing": "import sys\nsys.settrace(lambda *a: 1 / 0)\nsys.setprofile(lambda *a: 1 / 0)",
}  # fmt: skip


@pytest.mark.parametrize("body", PATCHES.values(), ids=PATCHES)
def test_patched_parts_harm_no_one_else(sandbox, body):
    assert call(sandbox, body + "\nreturn 1").status in ("ok", "tool_error", "bad_result", "crash", "timeout")


# ---------------------------------------------------------------- sessions: the same code, loaded once

LOADED = {
    "loop": ("while True: pass", "timeout"),
    "fork_bomb": ("import os\nwhile True: os.fork()", "timeout tool_error leaked_process crash"),
    "daemon": ("import os, time\nif os.fork() == 0: time.sleep(60)", "leaked_process"),
    "thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()", "leaked_process"),
    "kill_everything": ("import os\nos.kill(-1, 9)", "tool_error"),
    "kill_the_server": ("import os\nos.kill(os.getppid(), 9)", "tool_error"),
    "network": ("import socket\nsocket.socket()", "tool_error"),
    "program": ("import os\nos.execv('/usr/bin/python3', ['python3'])", "leaked_process"),
    "exit": ("import os\nos._exit(0)", "crash"),
    "forged_channel": ("import os\nfor fd in range(64):\n    try: os.write(fd, b'loaded')\n    except OSError: pass\nos._exit(0)", "crash bad_result"),
    "endless_error": ("raise ValueError('\\u0001' * 10**6)", "tool_error"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "statuses"), LOADED.values(), ids=LOADED)
def test_code_that_attacks_while_it_is_loaded_is_stopped_too(sandbox, code, statuses):
    with sandbox.session(f"{code}\ndef f(): return 1\n") as session:
        assert session.call("f", {}, 0.5).status in statuses.split()


def test_a_call_of_a_session_is_confined_as_any_other(sandbox):
    code = "def f(what):\n    exec(what)\n    return 'open'\n"
    with sandbox.session(code) as session:
        for attack in ("open('/etc/passwd')", "import os; os.kill(os.getppid(), 9)", "import socket; socket.socket()"):
            assert session.call("f", {"what": attack}).status == "tool_error"
        assert session.call("f", {"what": "import os; os.fork()"}).status == "leaked_process"
        assert session.call("f", {"what": "while True: pass"}, 0.4).status == "timeout"
        assert session.call("f", {"what": "1"}).value == "open"
