"""Back-translation by rules: what is told in other words is found again, unless two tools are about the same."""

from __future__ import annotations

import random

from astra.llm.builtin.retelling import describe, rebuild
from tests.stages.imitation import FERRY, TABLES

TOOLS = [tool.model_dump() for tool in FERRY.tools]


def told(chain: list[str], seed: int, tools: list[dict] | None = None) -> str:
    shown = {"tools": tools or TOOLS, "chain": chain, "bindings": []}
    return str(describe(shown, random.Random(seed))["request"])


def found(request: str, tools: list[dict] | None = None) -> list[str]:
    return list(rebuild({"tools": tools or TOOLS, "request": request}, random.Random(0))["chain"])


CHAIN = ["find_routes", "list_sailings", "book_sailing"]


def test_a_chain_is_told_in_more_ways_than_its_documents():
    tellings = {told(CHAIN, seed) for seed in range(30)}
    assert len(tellings) > 10
    assert all("find_routes" not in one for one in tellings)


def test_most_tellings_of_a_clear_chain_give_it_back():
    back = [found(told(CHAIN, seed)) == CHAIN for seed in range(40)]
    assert sum(back) >= 30


def test_tools_about_the_same_are_not_told_apart():
    twins = [*TOOLS, {**TOOLS[2], "name": "reserve_sailing"}]
    back = [found(told(["list_sailings", "reserve_sailing"], seed, twins), twins) for seed in range(20)]
    assert ["list_sailings", "reserve_sailing"] not in back


def test_look_ups_come_back_from_their_labels():
    tables = [tool.model_dump() for tool in TABLES.tools]
    chain = ["airport_city", "city_country", "country_currency"]
    back = [found(told(chain, seed, tables), tables) == chain for seed in range(20)]
    assert sum(back) >= 14


def test_another_request_gives_other_tools():
    assert found("I would like this done: cancel a booking.") == ["cancel_booking"]
    assert found("I would like this done: paint the fence.") == []
