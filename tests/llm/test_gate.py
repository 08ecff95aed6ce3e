"""The gate: fewer requests where the server pushes back, all of them again when it has room."""

from __future__ import annotations

import asyncio

from astra.llm.gate import Gate


async def passed(gate: Gate, latency_s: float = 0.0) -> None:
    await gate.enter()
    sent_at = asyncio.get_running_loop().time()
    await asyncio.sleep(latency_s)
    gate.succeeded(sent_at)
    gate.leave()


def test_a_push_back_takes_slots_away_once_per_round_and_successes_give_them_back():
    async def play() -> None:
        gate = Gate(100)
        sent_at = asyncio.get_running_loop().time()
        await asyncio.sleep(0.001)
        for _ in range(50):
            gate.pushed_back(sent_at, 0.0)
        assert int(gate.limit) == 70
        for _ in range(70):
            await passed(gate)
        assert int(gate.limit) == 70 or int(gate.limit) == 71
        for _ in range(4000):
            await passed(gate)
        assert gate.limit == 100

    asyncio.run(play())


def test_there_is_always_one_slot():
    async def play() -> float:
        gate = Gate(8)
        for _ in range(40):
            await asyncio.sleep(0.0001)
            gate.pushed_back(asyncio.get_running_loop().time(), 0.0)
        await passed(gate)
        return gate.limit

    assert asyncio.run(play()) >= 1


def test_a_pause_that_the_server_asks_for_holds_for_every_request():
    async def play() -> float:
        gate = Gate(4)
        loop = asyncio.get_running_loop()
        gate.pushed_back(loop.time(), 0.05)
        begun = loop.time()
        await asyncio.gather(*(passed(gate) for _ in range(8)))
        return loop.time() - begun

    assert asyncio.run(play()) >= 0.05


def test_never_more_than_the_limit_are_in_and_a_repeated_one_goes_first():
    async def play() -> None:
        gate, order, most = Gate(2), list[str](), 0

        async def one(name: str, again: bool) -> None:
            nonlocal most
            await gate.enter(again)
            order.append(name)
            most = max(most, gate.in_flight)
            await asyncio.sleep(0.001)
            gate.leave()

        jobs = [asyncio.ensure_future(one(str(n), False)) for n in range(6)]
        await asyncio.sleep(0)
        jobs.append(asyncio.ensure_future(one("again", True)))
        await asyncio.gather(*jobs)
        assert most == 2
        assert order.index("again") == 2

    asyncio.run(play())


def test_a_waiting_request_that_is_cancelled_takes_no_slot():
    async def play() -> int:
        gate = Gate(1)
        await gate.enter()
        waiting = [asyncio.ensure_future(gate.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        gate.leave()
        await waiting[1]
        gate.leave()
        await waiting[2]
        return gate.in_flight

    assert asyncio.run(play()) == 1


def test_latency_that_buys_no_throughput_takes_slots_away_and_latency_that_does_is_fine():
    async def play(per_slot: bool) -> float:
        gate = Gate(32)

        async def many(n: int, latency_s: float) -> None:
            await asyncio.gather(*(passed(gate, latency_s) for _ in range(n)))

        await many(128, 0.002)
        if per_slot:
            gate._best = (0.002, 100.0)  # few replies a second came out when it was quick
        await many(256, 0.02)
        return gate.least

    assert asyncio.run(play(per_slot=False)) < 32
    assert asyncio.run(play(per_slot=True)) == 32
