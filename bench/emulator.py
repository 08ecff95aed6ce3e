"""The emulated world at work: contradictions in conversations, share of failures, conversations a second.

Reads the trajectories of a run with plain rules of its own (nothing is shared with ``astra.environments.world``): the
same reading twice with no change between; an identifying argument that comes back changed; one object (same first
property, same value) with two values of a text. Then plays conversations with the built-in emulator and no agent, which
is what the world costs. The stage may take 20 ms a conversation on one core (50 a second).

    python -m bench.emulator [data/trajectories/trajectories.jsonl]
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from astra.environments.emulator import Emulator
from astra.llm import ModelParams, builtin_client
from astra.llm.builtin.samples import sample_value
from astra.records import FunctionCall, Message, Server, ToolCall, Trajectory
from astra.stage import read_records

SERVERS = "data/normalize/servers.jsonl"
TRAJECTORIES = "data/trajectories/trajectories.jsonl"
MODEL = ModelParams(transport="builtin", name="astra-rules-1", temperature=0.7, max_tokens=2048)
READS = re.compile(r"(get|list|find|search|check|read|look|show|view|forecast|quote|estimate|measure|suggest)(_|[A-Z])")
NAMES = re.compile(r"(^id|_id|Id|_no|_ref|_code)$")
N_PLAYED, N_CALLS = 200, 4
RATE = 0.2


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a result."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(one)


def contradictions(messages: Sequence[Message]) -> list[str]:
    """What cannot be true of the emulated world in one conversation, by rules stricter than they need be."""
    asked = {call.id: call for message in messages for call in message.tool_calls}
    read: dict[str, str] = {}
    told: dict[tuple[str, Any, str], str] = {}
    found = []
    for seen in messages:
        if seen.executed_by != "emulator" or seen.is_error or seen.fault is not None:
            continue
        call = asked[seen.tool_call_id or ""].function
        arguments, result = json.loads(call.arguments), json.loads(seen.content or "null")
        if not READS.match(call.name):
            read, told = {}, {}
        elif read.setdefault(f"{call.name} {call.arguments}", seen.content or "") != seen.content:
            found.append(f"{call.name}({call.arguments}): another answer with no change between")
        for name, value in arguments.items():
            if isinstance(result, dict) and NAMES.search(name) and result.get(name, value) != value:
                found.append(f"{call.name}: {name} {value!r} came back as {result[name]!r}")
        for one in objects(result):
            first = next(iter(one), "")
            if NAMES.search(first) and first not in arguments:
                texts = {name: value for name, value in one.items() if isinstance(value, str) and name not in arguments}
                found += [
                    f"{call.name}: {first} {one[first]!r}: {name} was {told[first, one[first], name]!r}, is {value!r}"
                    for name, value in texts.items()
                    if told.setdefault((first, one[first], name), value) != value
                ]
    return found


def report(file: str) -> None:
    """Contradictions and failures of a run's trajectories."""
    n, wrong, faults = 0, [], Counter[str | None]()
    for one in read_records(file, Trajectory):
        n += 1
        wrong += [f"{one.id}: {said}" for said in contradictions(one.messages)]
        faults.update(message.fault for message in one.messages if message.executed_by == "emulator")
    n_calls = faults.total()
    n_failed = n_calls - faults[None]
    wide = 1.96 * (RATE * (1 - RATE) / n_calls) ** 0.5
    print(f"{file}: {n} conversations, {n_calls} emulated calls, {len(wrong)} contradictions")
    print("\n".join(wrong[:10]))
    print(f"failures {n_failed / n_calls:.4f} (setting {RATE}: {RATE - wide:.4f} to {RATE + wide:.4f} in 95 of 100)")
    print(dict(sorted((kind, count) for kind, count in faults.items() if kind)))


async def play(server: Server, n: int) -> int:
    """One conversation of arbitrary calls; the number of calls that were answered."""
    draw = random.Random(n)
    world = Emulator(server, server.tools, builtin_client(), MODEL, seed=1, key=f"1:{n}:0", fault_rate=RATE, reasks=0)
    answered = 0
    for _ in range(N_CALLS):
        tool = draw.choice(server.tools)
        properties = tool.parameters.get("properties", {})
        arguments = {name: sample_value(name, properties[name], draw) for name in tool.parameters.get("required", [])}
        call = ToolCall(id="c", function=FunctionCall(name=tool.name, arguments=json.dumps(arguments)))
        answered += not (await world.call(call)).is_error
    return answered


def speed() -> None:
    """What the world alone costs."""
    servers = [one for one in read_records(SERVERS, Server) if one.source.format != "mcp_live"]
    start = time.process_time()
    answered = sum(asyncio.run(play(servers[n % len(servers)], n)) for n in range(N_PLAYED))
    took = time.process_time() - start
    print(f"{N_PLAYED} conversations of {N_CALLS} calls, {answered} answered: {N_PLAYED / took:.0f} a CPU second")


def main(arguments: Sequence[str] = ()) -> None:
    file = next(iter(arguments), TRAJECTORIES)
    if Path(file).is_file():
        report(file)
    else:
        print(f"{file}: no such file; dvc repro trajectories writes it")
    speed()


if __name__ == "__main__":
    main(sys.argv[1:])
