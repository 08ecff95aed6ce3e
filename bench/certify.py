"""Certifying table arenas: seconds by phase, memory over time, and what one more knowledge table costs again.

    python -m bench.certify            # 2,000 arenas on two workers; at most 5 minutes is asked of two quiet cores
    python -m bench.certify 500

The second run certifies the same arenas with one table touched: those that do not hold it are kept. Memory is of this
process, after each tenth; flat means that the last is hardly above the first.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from astra.certificate import Failures, Kept, Playable, certify
from astra.sandbox import open_pool
from tests.certificate.arenas import generated

TOUCHED = "read_1_2"  # the table that is touched: a third hop of a second branch
LIMIT_S = 300.0


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def touched(one: Playable) -> Playable:
    """The arena with a row more in one table, where it has that table with texts in it."""
    texts = {probe.tool for probe in one.arena.probes if probe.expected.kind == "text"}
    tools = tuple(
        tool.model_copy(update={"code": tool.code.replace("TABLE = {", 'TABLE = {\n    "new": "Entry",', 1)})
        if tool.spec.name == TOUCHED and tool.spec.name in texts
        else tool
        for tool in one.arena.tools
    )
    return Playable(one.arena.model_copy(update={"tools": tools}))


def cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def main(count: int) -> None:
    started = time.perf_counter()
    arenas = [Playable(generated(number)) for number in range(count)]
    n_tools = sum(len(one.arena.tools) for one in arenas)
    print(f"made       {count} arenas, {n_tools} tools: {time.perf_counter() - started:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        first = certified(arenas, Path(folder))
        changed = [touched(one) for one in arenas]
        n_changed = sum(new.arena.tools != one.arena.tools for one, new in zip(arenas, changed, strict=True))
        started, kept = time.perf_counter(), Kept(Path(folder))
        with open_pool(workers=2) as pool:
            certify(changed, pool, kept)
        second = time.perf_counter() - started
        print(f"one table  {second:.1f} s ({second / first:.0%}): {n_changed} arenas hold it, {kept.n_used} were kept")


def certified(arenas: list[Playable], folder: Path) -> float:
    """The seconds that certifying takes, a tenth after the other; what it used by phase."""
    memory, refused, kept, own = [], 0, Kept(folder), cpu_s(resource.RUSAGE_SELF)
    started = time.perf_counter()
    with open_pool(workers=2) as pool:
        tenth = max(1, len(arenas) // 10)
        for start in range(0, len(arenas), tenth):
            outcomes = certify(arenas[start : start + tenth], pool, kept)
            refused += sum(isinstance(one, Failures) for one in outcomes)
            memory.append(resident_mib())
    took = time.perf_counter() - started
    print(
        f"certified  {took:.1f} s (limit {LIMIT_S:.0f} s for 2,000), {len(arenas) / took:.0f} arenas/s, {refused} refused"  # noqa: E501
    )
    print(f"  CPU      checks and agents {cpu_s(resource.RUSAGE_SELF) - own:.1f} s, "
          f"calls in the sandbox {cpu_s(resource.RUSAGE_CHILDREN):.1f} s")  # fmt: skip
    print("  memory   " + " ".join(f"{one:.0f}" for one in memory) + " MiB")
    return took


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
