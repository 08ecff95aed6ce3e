"""The model client against its limits: an endpoint's slots, the store's speed, the memory of a long stream.

One server on this machine answers every request after 200 ms, so 256 slots give at most 1,280 replies a second. Our
client asks it through everything a stage uses (store, claims, gate, retries); beside it, in the same run, a bare
AsyncOpenAI behind a semaphore and a pool of processes with blocking clients, as the authors' code asks. Then the same
client over kept replies, and over more records than it may hold.

    python -m bench.endpoint [--profile FILE] [throughput] [kept] [memory]
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from astra.llm import Client, Completion, ModelParams, Request, Settings, Transport
from astra.llm.meter import FREE, Meter, Purse
from astra.llm.openai import Address, OpenAITransport
from astra.llm.store import ReplyStore
from astra.llm.types import Budget
from astra.records import Message, Usage
from tests.openai_server import Serving

SLOTS, LATENCY_S = 256, 0.2
IDEAL = SLOTS / LATENCY_S  # replies a second
ASKED, ASKED_OF_PROCESSES, PROCESSES = 5_000, 800, 32
KEPT = 20_000
RECORDS, RECORD_CHARACTERS = 50_000, 8_192
MODEL = ModelParams(transport="openai", name="echo", temperature=0.7, max_tokens=256)
NO_BUDGET = Budget(stage_usd=None, run_usd=None)
TEXT = "Judge whether the plan below fits the request, and say why in one sentence. " * 25  # about 2 KB


class Figure(NamedTuple):
    what: str
    value: float
    unit: str
    limit: float

    def __str__(self) -> str:
        return f"{self.what:<52} {self.value:>9.0f} {self.unit:<12} {self.value / self.limit:>6.2f} of {self.limit:.0f}"


def requests(count: int, text: str = TEXT, kind: str = "") -> Iterator[Request]:
    """Different requests, made when they are taken."""
    for n in range(count):
        yield Request(model=MODEL, messages=(Message(role="user", content=f"{kind}{n}: {text}"),), seed=1)


def client_of(transport: Transport, folder: Path) -> Client:
    """A client as a stage has it, its replies in a folder."""
    settings = Settings(
        concurrency=SLOTS, attempts=3, timeout_s=60, deadline_s=120, max_wait_s=5, budget=NO_BUDGET, prices={}
    )
    return Client(transport, settings, Meter(FREE, Purse("bench", NO_BUDGET)), store=ReplyStore(folder))


def count(replies: Iterable[object]) -> int:
    """How many replies there were. Raises RuntimeError for a refusal: a benchmark of errors measures nothing."""
    n = 0
    for n, reply in enumerate(replies, 1):  # noqa: B007
        if isinstance(reply, Exception):
            raise RuntimeError(str(reply))
    return n


class AtOnce:
    """Replies without a server; where ``slow_every`` is set, one in so many takes a while and holds up the order."""

    def __init__(self, content: str, slow_every: int = 0) -> None:
        self.content = content
        self.slow_every = slow_every
        self.sent = 0

    async def send(self, request: Request) -> Completion:
        self.sent += 1
        await asyncio.sleep(0.1 if self.slow_every and self.sent % self.slow_every == 0 else 0)
        return Completion(self.content, "stop", Usage(calls=1, prompt_tokens=500, completion_tokens=40))


# ---------------------------------------------------------------- throughput


def ours(url: str, folder: Path, profile: Path | None) -> float:
    """Replies a second through our client."""
    transport = OpenAITransport(Address(url, "sk-bench-1"))
    client = client_of(transport, folder)
    watch = cProfile.Profile()
    with client.loop:
        count(client.stream(requests(SLOTS, kind="warm ")))
        if profile is not None:
            watch.enable()
        begun = time.perf_counter()
        asked = count(client.stream(requests(ASKED)))
        seconds = time.perf_counter() - begun
        if profile is not None:
            watch.disable()
            watch.dump_stats(profile)
        client.loop.run(transport.aclose())
    return asked / seconds


def bare_async(url: str) -> float:
    """Replies a second through AsyncOpenAI, a semaphore and gather."""
    import httpx2
    import openai

    async def all_of_them() -> float:
        limits = httpx2.Limits(max_connections=SLOTS, max_keepalive_connections=SLOTS)
        async with (
            httpx2.AsyncClient(limits=limits) as http,
            openai.AsyncOpenAI(base_url=url, api_key="k", http_client=http, max_retries=0, timeout=600) as client,
        ):
            slots = asyncio.Semaphore(SLOTS)

            async def ask(request: Request) -> str | None:
                async with slots:
                    reply = await client.chat.completions.create(
                        model=MODEL.name,
                        messages=[{"role": "user", "content": request.messages[0].content or ""}],
                        temperature=MODEL.temperature,
                        max_tokens=MODEL.max_tokens,
                        seed=1,
                    )
                return reply.choices[0].message.content

            await asyncio.gather(*(ask(one) for one in requests(SLOTS, kind="warm ")))
            begun = time.perf_counter()
            await asyncio.gather(*(ask(one) for one in requests(ASKED)))
            return ASKED / (time.perf_counter() - begun)

    return asyncio.run(all_of_them())


def _ask_blocking(url: str, texts: Sequence[str]) -> int:
    import openai

    with openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=600) as client:
        for text in texts:
            client.chat.completions.create(
                model=MODEL.name, messages=[{"role": "user", "content": text}], max_tokens=MODEL.max_tokens
            )
    return len(texts)


def blocking_processes(url: str) -> float:
    """Replies a second through processes with one blocking client each; starting them is not counted."""
    import openai  # noqa: F401  imported once, before the fork

    texts = [one.messages[0].content or "" for one in requests(ASKED_OF_PROCESSES)]
    shares = [texts[n::PROCESSES] for n in range(PROCESSES)]
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        pool.starmap(_ask_blocking, [(url, [TEXT])] * PROCESSES, chunksize=1)
        begun = time.perf_counter()
        asked = sum(pool.starmap(_ask_blocking, [(url, share) for share in shares], chunksize=1))
        return asked / (time.perf_counter() - begun)


def throughput(folder: Path, profile: Path | None) -> Iterator[Figure]:
    with Serving(Path(os.devnull), echo=True, latency_ms=LATENCY_S * 1000) as server:
        yield Figure(f"our client, {SLOTS} slots", ours(server.url, folder, profile), "replies/s", IDEAL)
        yield Figure(f"AsyncOpenAI, semaphore of {SLOTS}", bare_async(server.url), "replies/s", IDEAL)
        yield Figure(f"{PROCESSES} processes, blocking clients", blocking_processes(server.url), "replies/s", IDEAL)


# ---------------------------------------------------------------- kept replies and memory


def kept(folder: Path) -> Figure:
    """A rerun whose replies are all kept, per second of one core."""
    count(client_of(AtOnce("fine"), folder).stream(requests(KEPT)))
    client = client_of(AtOnce("must not be asked"), folder)
    begun = time.process_time()
    count(client.stream(requests(KEPT)))
    seconds = time.process_time() - begun
    if client.meter.cached != KEPT:
        raise RuntimeError(f"{KEPT - client.meter.cached} of {KEPT} replies were asked for again")
    return Figure(f"rerun over {KEPT} kept replies", KEPT / seconds, "replies/s", 5_000)


def streamed(folder: Path) -> None:
    """Stream the records through a client; for a process of its own."""
    text = "x" * RECORD_CHARACTERS
    asked = count(client_of(AtOnce("fine " * 40, slow_every=1000), folder).stream(requests(RECORDS, text)))
    if asked != RECORDS:
        raise RuntimeError(f"{asked} replies to {RECORDS} requests")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def memory(folder: Path) -> Figure:
    """Peak memory of a process that streams the records."""
    command = [
        sys.executable,
        "-c",
        f"from pathlib import Path; from bench.endpoint import streamed; streamed(Path({str(folder)!r}))",
    ]
    kilobytes = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Figure(f"peak memory, {RECORDS} records of 8 KB streamed", kilobytes / 1024, "MiB", 400)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.endpoint")
    parser.add_argument("--profile", type=Path, help="write a cProfile of our client's throughput here")
    parser.add_argument("what", nargs="*", help="throughput, kept, memory; all three where none is named")
    options = parser.parse_args()
    what = options.what or ["throughput", "kept", "memory"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "throughput" in what:
            for figure in throughput(folder / "throughput", options.profile):
                print(figure, flush=True)
        if "kept" in what:
            print(kept(folder / "kept"), flush=True)
        if "memory" in what:
            print(memory(folder / "memory"), flush=True)


if __name__ == "__main__":
    main()
