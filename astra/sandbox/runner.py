"""Fork server for untrusted tool functions: the side of the sandbox that every backend starts, whatever is around it.

Started as ``python -s -P -S -B runner.py`` with an empty environment but for the R_* variables; standard library only,
Linux on x86_64 and aarch64, and never imported by the host. Requests and answers are frames on stdin and stdout: four
bytes of length (big-endian), then UTF-8 JSON; one answer a request.

    call    {op, id, code, function, calls, timeout_s, seed, clock_s}   a fresh child runs the code, then each call
    load    {op, id, code, timeout_s}                                   one holder runs the code once ...
    again   {op, id, function, calls, timeout_s, seed, clock_s}         ... and forks a child for these calls

``calls`` are keyword arguments, all made in one child in their order. A child is confined (user, Landlock, seccomp,
limits), answers over a pipe of its own, and is killed and reaped afterwards. The server runs no code but this file's.
"""

from __future__ import annotations

import _thread
import bisect  # noqa: F401  from here to the blank line: loaded before the fork, so that a tool's import costs nothing
import calendar  # noqa: F401
import collections  # noqa: F401
import contextlib
import copy  # noqa: F401
import ctypes
import dataclasses  # noqa: F401
import datetime
import decimal
import enum
import errno
import fractions  # noqa: F401
import functools  # noqa: F401
import gc
import hashlib  # noqa: F401
import heapq  # noqa: F401
import itertools  # noqa: F401
import json
import math
import operator  # noqa: F401
import os
import platform
import random
import re  # noqa: F401
import resource
import select
import signal
import socket
import statistics  # noqa: F401
import string  # noqa: F401
import struct
import sys
import textwrap  # noqa: F401
import time
import traceback  # noqa: F401
import typing  # noqa: F401
import uuid  # noqa: F401
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

# ---------------------------------------------------------------- seccomp

LIBC = ctypes.CDLL(None, use_errno=True)

# System calls that are denied with EPERM, as (x86_64, aarch64) numbers; None where the architecture lacks the call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes: look into them, signal them, change how they run (a thread of its own may be signalled, below)
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kill": (62, 129),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "setsid": (112, 157), "setpgid": (109, 154),
    # new processes and programs
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    # networks of every family, vsock and unix sockets too
    "socket": (41, 198),
    # state that outlives the call
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219),
    # metadata of files, which Landlock leaves open
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469), "flock": (73, 32),
    "truncate": (76, 45), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # what others do with files
    "inotify_add_watch": (254, 27), "fanotify_init": (300, 262),
    # kernel surface that no tool needs
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "bpf": (321, 280), "unshare": (272, 97),
    "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "mount_setattr": (442, 442), "personality": (135, 92), "init_module": (175, 105),
    "finit_module": (313, 273), "kexec_load": (246, 104), "quotactl": (179, 60), "syslog": (103, 116),
}  # fmt: skip
HOLDER_MAY = frozenset(("fork",))  # a session's holder forks a child per call


class Machine(NamedTuple):
    """What seccomp must know of an architecture."""

    audit: int
    column: int
    clone: int
    prlimit: int
    prctl: int
    tgkill: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0, clone=56, prlimit=302, prctl=157, tgkill=234),
    "aarch64": Machine(0xC00000B7, 1, clone=220, prlimit=261, prctl=167, tgkill=131),
}
CLONE_THREAD, CLONE_NEW_NAMESPACES = 0x10000, 0x7E020000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
OWN_PROCESS = 0x7FFFFFFF  # stands for the number of the process that applies the filter
LD, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, DENY = 0x7FFF0000, 0x80000000, 0x00050000
AT_NUMBER, AT_ARCH, AT_ARGUMENT_0 = 0, 4, 16


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """A seccomp filter, ready to be applied; ``holder`` may fork, a call may only start threads."""

    def __init__(self, holder: bool) -> None:
        instructions = list(_instructions(holder))
        code = b"".join(struct.pack("HBBI", *one) for one in instructions)
        self._own = [8 * place + 4 for place, one in enumerate(instructions) if one[3] == OWN_PROCESS]
        self._buffer = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(instructions), ctypes.cast(self._buffer, ctypes.c_void_p))

    def apply(self) -> bool:
        """Put it on this process for good."""
        for place in self._own:
            struct.pack_into("I", self._buffer, place, os.getpid())
        return bool(LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.byref(self._program), 0, 0) == 0)


def _instructions(holder: bool) -> Iterable[tuple[int, int, int, int]]:
    name = platform.machine()
    if name not in MACHINES:
        raise SystemExit(f"no seccomp table for {name}; there is one for: {', '.join(MACHINES)}")
    machine = MACHINES[name]
    eperm, enosys = DENY | errno.EPERM, DENY | errno.ENOSYS
    yield from ((LD, 0, 0, AT_ARCH), (JEQ, 1, 0, machine.audit), (RET, 0, 0, KILL), (LD, 0, 0, AT_NUMBER))
    if name == "x86_64":
        yield from ((JGE, 0, 1, 0x40000000), (RET, 0, 0, KILL))  # the x32 calls
    yield from ((JEQ, 0, 1, 435), (RET, 0, 0, enosys))  # clone3 hides its flags: glibc falls back to clone
    yield from ((JEQ, 0, 4, machine.prlimit), (LD, 0, 0, AT_ARGUMENT_0), (JEQ, 0, 1, 0))  # on itself only
    yield from ((RET, 0, 0, ALLOW), (RET, 0, 0, eperm))
    yield from ((JEQ, 0, 4, machine.tgkill), (LD, 0, 0, AT_ARGUMENT_0), (JEQ, 0, 1, OWN_PROCESS))  # abort, raise
    yield from ((RET, 0, 0, ALLOW), (RET, 0, 0, eperm))
    # It must die with the server, so it may not take that back.
    yield from ((JEQ, 0, 4, machine.prctl), (LD, 0, 0, AT_ARGUMENT_0), (JEQ, 1, 0, PR_SET_PDEATHSIG))
    yield from ((RET, 0, 0, ALLOW), (RET, 0, 0, eperm))
    yield from ((JEQ, 0, 4, machine.clone), (LD, 0, 0, AT_ARGUMENT_0))
    yield (JSET, 1, 0, CLONE_NEW_NAMESPACES) if holder else (JSET, 0, 1, CLONE_THREAD)
    yield from ((RET, 0, 0, ALLOW), (RET, 0, 0, eperm))
    for call, numbers in DENIED.items():
        number = numbers[machine.column]
        if number is not None and not (holder and call in HOLDER_MAY):
            yield from ((JEQ, 0, 1, number), (RET, 0, 0, eperm))
    yield (RET, 0, 0, ALLOW)


# ---------------------------------------------------------------- Landlock and limits

READ_FILE, READ_FOLDER, WRITE_FILE = 1 << 2, 1 << 3, 1 << 1


def landlock_version() -> int:
    """The kernel's Landlock version; below 1 where there is none."""
    return int(LIBC.syscall(444, None, ctypes.c_size_t(0), 1))


def landlock_rules(readable: Iterable[str]) -> int:
    """A rule set that leaves these paths readable and nothing else, as a file descriptor."""
    version = landlock_version()
    if version < 1:
        raise SystemExit(
            "this kernel has no Landlock (Linux 5.13 or later, CONFIG_SECURITY_LANDLOCK, lsm=landlock,...)"
        )
    files = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    words = (files,) if version < 4 else (files, 3) if version < 6 else (files, 3, 3)  # files, TCP, signals and sockets
    attributes = struct.pack(f"={len(words)}Q", *words)
    rules = int(LIBC.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0))
    if rules < 0:
        raise SystemExit("landlock_create_ruleset failed")
    for path in readable:
        _allow(rules, path, READ_FILE | READ_FOLDER)
    _allow(rules, "/dev/null", READ_FILE | WRITE_FILE)
    return rules


def _allow(rules: int, path: str, access: int) -> None:
    try:
        there = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this machine
    granted = access if os.path.isdir(path) else access & ~READ_FOLDER
    if LIBC.syscall(445, rules, 1, struct.pack("=Qi", granted, there), 0):
        raise SystemExit(f"landlock_add_rule failed for {path}")
    os.close(there)


def undumpable() -> None:
    """No ptrace, and /proc/PID/{fd,mem,environ} closed to others of the same user."""
    LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Processes that lose their parent below this one become its children, so that they can be reaped."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def confine(filter_: Filter, rules: int | None, uid: int, parent: int) -> None:
    """Irrevocable. The order matters: user, what a change of user resets, no new privileges, Landlock, seccomp."""
    if uid and os.getuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    undumpable()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before it could be noticed
        os._exit(96)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if rules is not None and LIBC.syscall(446, rules, 0):
        os._exit(98)
    if not filter_.apply():
        os._exit(97)


def limit(memory_bytes: int, cpu_s: int) -> None:
    """No core dumps, no file growth, 32 descriptors, this much memory and processor time."""
    bounds = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_FSIZE, 0),
              (resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, cpu_s))  # fmt: skip
    for what, value in bounds:
        resource.setrlimit(what, (value, value))
    for what in (resource.RLIMIT_MSGQUEUE, resource.RLIMIT_MEMLOCK):
        with contextlib.suppress(OSError, ValueError):  # some kernels know neither; seccomp denies their calls anyway
            resource.setrlimit(what, (0, 0))


def limit_tasks(uid: int, more: int) -> None:
    """So many processes and threads of this user beyond those that it has now: a holder can fork, but not for long."""
    there = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it ended meanwhile
            there += len(os.listdir(f"/proc/{name}/task")) if os.stat(f"/proc/{name}").st_uid == uid else 0
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    bound = there + more if hard == resource.RLIM_INFINITY else min(there + more, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (bound, bound))


# ---------------------------------------------------------------- results as JSON


class Unfit(Exception):
    """A result that JSON cannot hold; the message names the type."""


class TooLarge(Exception):
    """A result of more than MAX_RESULT bytes, noticed before any of it is written."""


MAX_DEPTH, MAX_INT_BITS, MAX_TEXT = 100, 10_000, 2000


class Walk:
    """What is known of a result while it is walked: notes for the host, and how many bytes its JSON may still have."""

    def __init__(self) -> None:
        self.notes: set[str] = set()
        self.left = MAX_RESULT

    def count(self, value: Any) -> None:
        """Take off what the value's JSON has at least; nothing is copied. Raises TooLarge."""
        self.left -= len(value) + 2 if isinstance(value, str) else 1
        if isinstance(value, list | tuple | set | frozenset | dict):
            self.left -= 2 * len(value) - 1
        if self.left < 0:
            raise TooLarge


def plain(value: Any, walk: Walk, depth: int = 0) -> Any:
    """A result as JSON has it. Documented conversions, anything else is unfit.

    set -> list sorted by JSON text; tuple -> list; date, time -> ISO text; Decimal -> text; NaN and infinity -> null,
    noted as non_finite; int keys -> text, unless that makes two keys one. Whole numbers stay exact.
    """
    walk.count(value)
    if value is None or isinstance(value, bool | str):
        return value
    if depth > MAX_DEPTH:
        raise Unfit("nested too deep, or contains itself")
    if isinstance(value, enum.Enum):
        raise Unfit(type(value).__name__)
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise Unfit(f"int of {value.bit_length()} bits")
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        walk.notes.add("non_finite")
        return None
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [plain(one, walk, depth + 1) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(one, walk, depth + 1) for one in value), key=ENCODE)
    if isinstance(value, dict):
        return _plain_dict(value, walk, depth)
    raise Unfit(type(value).__name__)


def _plain_dict(value: dict[Any, Any], walk: Walk, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in value.items():
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise Unfit(f"dict with a key of type {type(key).__name__}")
        name = str(key)
        walk.count(name)
        if name in found:
            raise Unfit(f"dict with the key {name!r} twice, as text and as number")
        found[name] = plain(one, walk, depth + 1)
    return found


ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode

# ---------------------------------------------------------------- the child: untrusted code


def shift_clock(seconds: int) -> None:
    """Another date for whoever asks ``time`` or ``datetime``: shows results that depend on it. No security measure."""
    now, now_ns, real, real_date = time.time, time.time_ns, datetime.datetime, datetime.date

    class ShiftedDate(real_date):  # type: ignore[misc, valid-type]
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now() + seconds)

    class ShiftedDatetime(real):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(now() + seconds, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(now() + seconds, datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now() + seconds)

    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + seconds * 10**9
    for name in ("localtime", "gmtime", "ctime"):
        read = getattr(time, name)
        setattr(time, name, lambda at=None, read=read: read(time.time() if at is None else at))
    datetime.datetime, datetime.date = ShiftedDatetime, ShiftedDate  # type: ignore[misc]


class Pipes(NamedTuple):
    """The writing ends that a child gets: its result, and what it prints."""

    result: int
    printed: int


def run_child(
    request: dict[str, Any], pipes: Pipes, namespace: dict[str, Any] | None, server: Server, parent: int
) -> NoReturn:
    """Make the calls of a request in this process, which ends with it. ``namespace`` None: run the code first."""
    # Bound before the code can replace them in their modules.
    leave, write, pack, encode, count = os._exit, os.write, struct.pack, ENCODE, _thread._count
    streams = sys.stdout, sys.stderr
    try:
        os.dup2(server.null, 0)
        os.dup2(pipes.printed, 1)
        os.dup2(pipes.printed, 2)
        if pipes.result != RESULT_FD:
            os.dup2(pipes.result, RESULT_FD)
        rules = server.rules or RESULT_FD
        os.closerange(RESULT_FD + 1, rules)
        os.closerange(rules + 1, 64)
        limit(server.memory_bytes, int(request["timeout_s"]) + 1)
        confine(server.for_calls, server.rules, server.uid, parent)
        if server.rules is not None:
            os.close(server.rules)
        random.seed(request["seed"])
        if request["clock_s"]:
            shift_clock(request["clock_s"])
        started = note_processes()
        answer = {"outcomes": outcomes(request, namespace), "threads": count(), "processes": started}
        for stream in streams:
            with contextlib.suppress(BaseException):
                stream.flush()
        try:
            frame = encode(answer).encode()
        except MemoryError:
            frame = encode({**answer, "outcomes": [{"too_large": True}] * len(request["calls"])}).encode()
        frame = pack(">I", len(frame)) + frame
        while frame:
            frame = frame[write(RESULT_FD, frame) :]
        leave(0)
    except BaseException:
        leave(99)


RESULT_FD = 3
PROCESS_EVENTS = frozenset(
    ("os.fork", "os.forkpty", "os.exec", "os.spawn", "os.posix_spawn", "os.system", "subprocess.Popen")
)


def note_processes() -> list[str]:
    """The ways in which code tries to start processes from now on. A verdict on the tool; what stops it is seccomp."""
    tried: list[str] = []

    def note(event: str, _: Any) -> None:
        if event in PROCESS_EVENTS and event not in tried:
            tried.append(event)

    sys.addaudithook(note)
    return tried


def outcomes(request: dict[str, Any], namespace: dict[str, Any] | None) -> list[dict[str, Any]]:
    """One outcome a call; a single one where the code itself fails."""
    if namespace is None:
        namespace = {"__name__": "tool"}
        try:
            exec(compile(request["code"], "<tool>", "exec"), namespace)
        except BaseException as error:
            return [{"load": failure(error)}]
    return [outcome(namespace, request["function"], arguments) for arguments in request["calls"]]


def outcome(namespace: dict[str, Any], function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What one call gave: a value, an error of the tool, or a value that JSON cannot hold."""
    try:
        value = namespace[function](**arguments)
    except BaseException as error:
        return {"error": failure(error)}
    walk = Walk()
    try:
        return {"value": plain(value, walk), "notes": sorted(walk.notes)}
    except Unfit as error:
        return {"unfit": str(error)[:MAX_TEXT]}
    except (TooLarge, MemoryError):
        return {"too_large": True}
    except BaseException as error:  # a foreign class that only poses as a number or a list
        return {"unfit": type(error).__name__[:MAX_TEXT]}


def failure(error: BaseException) -> dict[str, str]:
    """Type and message; a KeyError's message is its key, without the quotes that Python adds."""
    said = error.args[0] if isinstance(error, KeyError) and error.args else error
    return {"type": type(error).__name__[:MAX_TEXT], "message": str(said)[:MAX_TEXT]}


# ---------------------------------------------------------------- the server: trusted


def read_exactly(fd: int, count: int) -> bytes | None:
    found = bytearray()
    while len(found) < count:
        part = os.read(fd, count - len(found))
        if not part:
            return None
        found += part
    return bytes(found)


class Collected(NamedTuple):
    """What came out of a child: why it was stopped (None: it answered or ended), its frame, what it printed."""

    stopped: str | None
    frame: bytes
    printed: bytes


def collect(result: int, printed: int, timeout_s: float) -> Collected:
    """Read both pipes, with caps and a deadline, until the frame is whole or the child is gone."""
    deadline = time.monotonic() + timeout_s
    frame, text = bytearray(), bytearray()
    need: int | None = None
    stopped: str | None = None
    poll = select.poll()
    poll.register(result, select.POLLIN)
    poll.register(printed, select.POLLIN)
    done = False
    while not done and stopped is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            stopped = "timeout"
            break
        for fd, _ in poll.poll(left_s * 1000 + 1):
            part = os.read(fd, 65536)
            if not part:
                poll.unregister(fd)
                done = done or fd == result
            elif fd == printed:
                text += part
                stopped = "output_limit" if len(text) > MAX_PRINTED else stopped
            else:
                frame += part
                if need is None and len(frame) >= 4:
                    need = 4 + struct.unpack(">I", frame[:4])[0]
                if max(len(frame), need or 0) > MAX_RESULT:
                    stopped = "result_limit"
                done = need is not None and len(frame) >= need
    if stopped is None:
        os.set_blocking(printed, False)
        with contextlib.suppress(BlockingIOError):
            text += os.read(printed, MAX_PRINTED)
    whole = need is not None and len(frame) >= need
    return Collected(stopped, bytes(frame[4:need]) if whole else b"", bytes(text[:MAX_PRINTED]))


def said_of(channel: socket.socket, timeout_s: float) -> bytes:
    """The frame in which a holder says how its code loaded: null, or what went wrong; empty where it ended before.

    Raises TimeoutError. The end of the channel is not awaited: what the code started may hold it open.
    """
    deadline, said, need = time.monotonic() + timeout_s, b"", 4
    while len(said) < need:
        channel.settimeout(max(0.001, deadline - time.monotonic()))
        part = channel.recv(need - len(said))
        if not part:
            return b""
        said += part
        if len(said) == 4:
            need += min(struct.unpack(">I", said)[0], MAX_LOADED)
    return said[4:]


class Ended(NamedTuple):
    """How a reaped child ended."""

    status: int
    usage: resource.struct_rusage


def reap(pid: int) -> Ended | None:
    """Kill and reap a child and all that it left behind."""
    ended: Ended | None = None
    while True:
        try:
            if os.getpid() == 1:
                os.kill(-1, signal.SIGKILL)  # all of this PID namespace but PID 1
            else:
                os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            one, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return ended
        if one == pid:
            ended = Ended(status, usage)


def answer_of(got: Collected, ended: Ended | None) -> dict[str, Any]:
    """The answer to the host; the child's frame goes on as it came, to be decoded there."""
    answer: dict[str, Any] = {"printed": got.printed.decode("utf-8", "replace")}
    if ended is not None:
        answer["cpu_ms"] = round((ended.usage.ru_utime + ended.usage.ru_stime) * 1e3, 2)
        answer["memory_mib"] = ended.usage.ru_maxrss >> 10
    if got.stopped is not None:
        return {**answer, "status": got.stopped}
    if got.frame:
        try:
            return {**answer, "status": "answered", "raw": got.frame.decode("utf-8")}
        except UnicodeDecodeError:
            return {**answer, "status": "bad_result"}
    how = ""
    if ended is not None and os.WIFSIGNALED(ended.status):
        how = f"signal {os.WTERMSIG(ended.status)}"
    elif ended is not None:
        how = f"exit {os.WEXITSTATUS(ended.status)}"
    return {**answer, "status": "crash", "how": how}


class Holder(NamedTuple):
    """The process that holds the loaded code of a session, and the way to ask it for children."""

    pid: int
    channel: socket.socket


MAX_PRINTED = 64 << 10
MAX_RESULT = 1 << 20
MAX_LOADED = 16 * MAX_TEXT  # of what a holder says of its code; escapes make text longer
HOLDER_CPU_S = 60  # a fork costs about a millisecond, and the host ends a server after 20,000 requests
HOLDER_TASKS = 16  # processes and threads of a session beside those that its user has already


class Server:
    """Answers one request after another until the host closes stdin."""

    def __init__(self, memory_bytes: int, uid: int, use_landlock: bool) -> None:
        self.pid = os.getpid()
        self.memory_bytes = memory_bytes
        self.uid = uid
        self.incoming, self.outgoing = os.dup(0), os.dup(1)
        self.null = os.open("/dev/null", os.O_RDWR)
        self.for_calls, self.for_holders = Filter(holder=False), Filter(holder=True)
        folders = [sys.prefix + "/lib", sys.base_prefix + "/lib", "/usr/lib", "/lib", "/usr/share/zoneinfo"]
        self.rules = landlock_rules([*folders, "/dev/urandom"]) if use_landlock else None
        self.holder: Holder | None = None
        for fd in (0, 1, 2):
            os.dup2(self.null, fd)
        os.chdir("/")
        os.umask(0o077)
        undumpable()
        adopt_orphans()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would let a child interrupt PID 1

    def serve(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        version = landlock_version() if self.rules is not None else 0
        self._send({"ready": True, "uid": os.getuid(), "python": platform.python_version(), "landlock": version})
        answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "call": self.call, "load": self.load, "again": self.again,
        }  # fmt: skip
        while True:
            head = read_exactly(self.incoming, 4)
            body = None if head is None else read_exactly(self.incoming, struct.unpack(">I", head)[0])
            if body is None:
                break
            request = json.loads(body)
            try:
                answer = answers[request["op"]](request)
            except OSError as error:
                answer = {"status": "infra_error", "how": str(error)}
            self._send({**answer, "id": request["id"]})
        self.drop_holder()

    def _send(self, answer: dict[str, Any]) -> None:
        body = ENCODE(answer).encode()
        frame = struct.pack(">I", len(body)) + body
        while frame:
            frame = frame[os.write(self.outgoing, frame) :]

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """A fresh child, the code run anew."""
        self.drop_holder()  # reaping takes every child: one or the other
        result, result_end = os.pipe()
        printed, printed_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(self.incoming)
            os.close(self.outgoing)
            run_child(request, Pipes(result_end, printed_end), None, self, self.pid)
        os.close(result_end)
        os.close(printed_end)
        try:
            got = collect(result, printed, request["timeout_s"])
        finally:
            os.close(result)
            os.close(printed)
        return answer_of(got, reap(pid))

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start a holder that runs the code once."""
        self.drop_holder()
        here, there = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            here.close()
            os.close(self.incoming)
            os.close(self.outgoing)
            self._hold(request["code"], there)
        there.close()
        self.holder = Holder(pid, here)
        try:
            said = said_of(here, request["timeout_s"])
        except TimeoutError:
            self.drop_holder()
            return {"status": "timeout"}
        if said == b"null":
            return {"status": "loaded"}
        self.drop_holder()
        return {"status": "load_error", "raw": said.decode("utf-8", "replace")} if said else {"status": "crash"}

    def _hold(self, code: str, channel: socket.socket) -> NoReturn:
        """The holder's life: run the code, then fork a child for every request. Untrusted code runs here."""
        leave, encode, fork, own = os._exit, ENCODE, os.fork, os.getpid()
        try:
            limit(self.memory_bytes, HOLDER_CPU_S)
            limit_tasks(self.uid or os.getuid(), HOLDER_TASKS)
            confine(self.for_holders, self.rules, self.uid, self.pid)
            namespace: dict[str, Any] = {"__name__": "tool"}
            started = note_processes()
            said: dict[str, Any] | None = None
            try:
                exec(compile(code, "<tool>", "exec"), namespace)
            except BaseException as error:
                said = failure(error)
            if started or _thread._count():
                said = {"processes": started, "threads": _thread._count()}
            frame = encode(said).encode()
            channel.sendall(struct.pack(">I", len(frame)) + frame)
            if said is not None:
                leave(1)
            gc.freeze()
            while True:
                head, pipes, _, _ = socket.recv_fds(channel, 4, 2)
                if not head:
                    leave(0)
                body = read_exactly(channel.fileno(), struct.unpack(">I", head)[0])
                pid = fork()
                if pid == 0:
                    channel.close()
                    run_child(json.loads(body or b""), Pipes(*pipes), namespace, self, own)
                for fd in pipes:
                    os.close(fd)
                os.waitpid(pid, 0)
                channel.sendall(b"d")
        except BaseException:
            leave(99)

    def again(self, request: dict[str, Any]) -> dict[str, Any]:
        """A child of the holder; a holder that does not come back clean is dropped and the host is told."""
        if self.holder is None:
            return {"status": "no_session"}
        channel = self.holder.channel
        result, result_end = os.pipe()
        printed, printed_end = os.pipe()
        try:
            try:
                body = ENCODE(request).encode()
                channel.settimeout(request["timeout_s"])
                socket.send_fds(channel, [struct.pack(">I", len(body))], [result_end, printed_end])
                channel.sendall(body)
            finally:
                os.close(result_end)
                os.close(printed_end)
            got = collect(result, printed, request["timeout_s"])
        except OSError:
            got = Collected("session_lost", b"", b"")
        finally:
            os.close(result)
            os.close(printed)
        answer = answer_of(got, None)
        try:
            channel.settimeout(0.5)
            clean = got.stopped is None and channel.recv(1) == b"d"
        except OSError:
            clean = False
        if not clean:
            self.drop_holder()
            answer["session"] = "lost"
        return answer

    def drop_holder(self) -> None:
        if self.holder is not None:
            self.holder.channel.close()
            reap(self.holder.pid)
            self.holder = None


def main() -> None:
    get = os.environ.get
    landlock = get("R_LANDLOCK", "no")
    use_landlock = landlock == "yes" or (landlock == "if_there" and landlock_version() >= 1)
    Server(int(get("R_MEMORY_MIB", "512")) << 20, int(get("R_UID", "0")), use_landlock).serve()


if __name__ == "__main__":
    main()
