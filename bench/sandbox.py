"""One tool call through the fork server, beside what it replaces and beside no protection at all.

The call: a function over a table of 20 rows, JSON back, the code run anew each time. Every way is timed in turns, round
after round, so that a busy machine slows all of them alike; medians of the rounds. Ways that can't be had here (no
engine, no bwrap) are left out; ``docker/engine.sh`` and ``docker/build.sh`` provide both where Debian packages are.

    python -m bench.sandbox
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from statistics import median

from astra.sandbox import BACKENDS, CONDITIONS, probe
from astra.sandbox.docker import image
from astra.sandbox.landlock import PYTHON_OPTIONS, interpreter

ROUNDS = 5
CALLS = {"docker_run_per_call": 4, "python_per_call": 30, "unprotected": 500}  # a round; 300 for the fork servers
ROWS = {f"City {number}": {"population": 1000 * number, "port": f"Port {number}"} for number in range(20)}
CODE = f"ROWS = {ROWS!r}\n\n\ndef look_up(city: str) -> dict:\n    return {{'result': ROWS[city]}}\n"
ARGUMENTS = {"city": "City 7"}
PROGRAM = f"import json\n{CODE}\nprint(json.dumps(look_up(**json.loads({json.dumps(ARGUMENTS)!r}))))"
EXPECTED = {"result": ROWS["City 7"]}

Way = Callable[[], object]


def unprotected() -> object:
    namespace: dict[str, Callable[..., object]] = {}
    exec(compile(CODE, "<tool>", "exec"), namespace)
    return json.loads(json.dumps(namespace["look_up"](**ARGUMENTS)))


def python_per_call() -> object:
    command = [interpreter(), *PYTHON_OPTIONS, "-c", PROGRAM]
    return json.loads(subprocess.run(command, capture_output=True, env={}, timeout=10, check=True).stdout)


@contextlib.contextmanager
def docker_run_per_call() -> Iterator[Way]:
    import docker

    client = docker.from_env()
    command = ["python3", *PYTHON_OPTIONS, "-c", PROGRAM]
    options = {"remove": True, "network_mode": "none", "read_only": True, "cap_drop": ["ALL"], "mem_limit": "512m"}
    try:
        yield lambda: json.loads(client.containers.run(image(), command, **options))
    finally:
        client.close()


@contextlib.contextmanager
def every_way() -> Iterator[dict[str, Way]]:
    """All that can be had here, by name; the fork server under each backend, and with the code loaded once."""
    ways: dict[str, Way] = {"unprotected": unprotected, "python_per_call": python_per_call}
    with contextlib.ExitStack() as stack:
        for name, start in BACKENDS.items():
            if probe(name) is not None:
                continue
            worker = stack.enter_context(start(CONDITIONS[0], 0))
            ways[name] = lambda worker=worker: worker.call(CODE, "look_up", ARGUMENTS).value
            holder = stack.enter_context(start(CONDITIONS[0], 1))
            session = stack.enter_context(holder.session(CODE))
            ways[f"{name}_session"] = lambda session=session: session.call("look_up", ARGUMENTS).value
        if "docker" in ways:
            ways["docker_run_per_call"] = stack.enter_context(docker_run_per_call())
        yield ways


def milliseconds(way: Way, calls: int) -> list[float]:
    found = []
    for _ in range(calls):
        start = time.perf_counter()
        value = way()
        found.append((time.perf_counter() - start) * 1e3)
        assert value == EXPECTED, value
    return found


def main() -> None:
    with every_way() as ways:
        for way in ways.values():
            way()
        rounds = [{name: milliseconds(way, CALLS.get(name, 300)) for name, way in ways.items()} for _ in range(ROUNDS)]
    found = {}
    for name in ways:
        times = sorted(one for each in rounds for one in each[name])
        found[name] = {
            "calls_per_s": round(median(1e3 * len(each[name]) / sum(each[name]) for each in rounds), 1),
            "p50_ms": round(times[len(times) // 2], 2),
            "p95_ms": round(times[int(len(times) * 0.95)], 2),
        }
    per_s = {name: one["calls_per_s"] for name, one in found.items()}
    ratios = {}
    for name in BACKENDS:
        for other in ("docker_run_per_call", "python_per_call"):
            if name in per_s and other in per_s:
                ratios[f"{name}_of_{other}"] = round(per_s[name] / per_s[other], 1)
    print(json.dumps({"ways": found, "times": ratios}, indent=1))


if __name__ == "__main__":
    main()
