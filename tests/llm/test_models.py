"""The models of a stage: budgets over stages, estimates, replay, and the replies that a run used."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from astra.llm import TRANSPORTS, EndpointUnavailable, Models, Request
from astra.llm.meter import others_usd
from astra.llm.models import is_replay
from astra.llm.store import ReplyStore, request_key
from astra.llm.types import Completion, ModelParams
from astra.records import KeptReply, Message, Usage
from tests.llm.clients import settings

MODEL = ModelParams(transport="openai", name="big", temperature=0, max_tokens=64)
PRICES = {"big": {"prompt": 1_000_000, "completion": 0}}
PROMPT = '# Chains: rebuild\n\n## Input\n\n```json\n{"request": "Find a port.", "server": {}, "tools": [{"name": "f", "description": "Find a port.", "parameters": {}}]}\n```\n'


@dataclass
class Named:
    name: str = "chains"


@dataclass
class StageRun:
    """A stage's run, without a stage."""

    settings: dict[str, Any]
    params: dict[str, Any] = field(default_factory=lambda: {"models.judge": MODEL, "models.teacher": MODEL})
    metrics: dict[str, Any] = field(default_factory=dict)
    usage: str = ""
    contract: Named = field(default_factory=Named)
    estimating: bool = False
    written: list[KeptReply] = field(default_factory=list)

    def write_replies(self, replies: Iterable[KeptReply]) -> None:
        self.written = list(replies)


class Endpoint:
    """Three prompt tokens a question."""

    def __init__(self) -> None:
        self.asked = 0

    async def send(self, request: Request) -> Completion:
        self.asked += 1
        return Completion("yes", "stop", Usage(calls=1, prompt_tokens=3, completion_tokens=1))


@pytest.fixture
def endpoint(monkeypatch, tmp_path):
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "llm"))
    monkeypatch.delenv("ASTRA_REPLAY", raising=False)
    monkeypatch.chdir(tmp_path)
    one = Endpoint()
    monkeypatch.setitem(TRANSPORTS, "openai", lambda role, store: one)
    return one


def request(text: str) -> Request:
    return Request(model=MODEL, messages=(Message(role="user", content=text),))


def run_of(**changes: Any) -> StageRun:
    return StageRun({"llm": settings(prices=PRICES, **changes)})


def play(run: StageRun, *texts: str) -> StageRun:
    with Models(run) as models:
        models.client("judge").ask_all(map(request, texts))
    return run


def test_what_was_used_asked_and_paid_stands_in_outputs_and_metrics(endpoint):
    play(run_of(), "a")
    run = play(run_of(), "a", "b", "a")
    assert endpoint.asked == 2
    assert [one.key for one in run.written] == sorted([request_key(request("a")), request_key(request("b"))])
    judge = run.metrics["models"]["judge"]
    assert (judge["calls"], judge["cached"], judge["cost_usd"]) == (3, 2, 9.0)
    assert run.usage == "3 calls (2 cached), 12 tokens, 9.00 USD"


def test_a_run_that_fails_writes_no_list_of_replies_and_keeps_them(endpoint):
    run = run_of()
    with pytest.raises(RuntimeError), Models(run) as models:
        models.client("judge").ask_all([request("a")])
        raise RuntimeError
    assert run.metrics == {}
    assert n_kept() == 1


def n_kept() -> int:
    store = ReplyStore()
    count = len(list(store.rows([request_key(request("a"))])))
    store.close()
    return count


def test_an_estimate_asks_nobody_keeps_nothing_and_knows_what_is_paid_already(endpoint):
    paid = request(PROMPT)
    with Models(run_of()) as models:
        models.client("judge").ask_all([paid])
    run = run_of(budget={"stage_usd": 0.1, "run_usd": 0.1})
    run.estimating = True
    with Models(run) as models:
        models.client("judge").ask_all([paid, request(PROMPT + " Again.")])
    assert endpoint.asked == 1
    assert "judge (big): 2 calls, 1 of them kept already" in run.usage
    store = ReplyStore()
    assert store.get(request_key(request(PROMPT + " Again."))) is None
    store.close()


def test_a_replay_takes_kept_replies_without_an_endpoint_and_a_miss_is_an_error_that_says_how(endpoint, monkeypatch):
    play(run_of(), "a")
    monkeypatch.setenv("ASTRA_REPLAY", "1")
    assert play(run_of(), "a").metrics["models"]["judge"]["cached"] == 1
    with pytest.raises(EndpointUnavailable, match=r"ASTRA_REPLAY is set.*big.*chains.*python -m astra\.llm import"):
        play(run_of(), "b")
    assert endpoint.asked == 1


@pytest.mark.parametrize(
    ("word", "replays"), [("", False), ("0", False), ("false", False), (" Off ", False), ("1", True), ("yes", True)]
)
def test_replay_is_off_where_the_variable_says_no(monkeypatch, word, replays):
    monkeypatch.setenv("ASTRA_REPLAY", word)
    assert is_replay() is replays


def test_the_budget_of_a_run_counts_what_other_stages_say_they_cost(endpoint, tmp_path):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "graph.json").write_text(json.dumps({"models": {"teacher": {"cost_usd": 4.0}}}))
    (tmp_path / "metrics" / "chains.json").write_text(json.dumps({"models": {"teacher": {"cost_usd": 99.0}}}))
    (tmp_path / "metrics" / "odd.json").write_text("[]")
    assert others_usd("chains") == 4.0
    with pytest.raises(EndpointUnavailable, match=r"run_usd 5 is spent.*other stages 4\.0"):
        play(run_of(concurrency=1, budget={"stage_usd": None, "run_usd": 5}), *map(str, range(9)))
    assert endpoint.asked == 1


def test_a_budget_without_a_price_is_refused_before_anything_is_asked(endpoint):
    run = StageRun({"llm": settings(budget={"stage_usd": 1, "run_usd": None})})
    with pytest.raises(EndpointUnavailable, match=r"llm\.prices: no price of 'big'"):
        play(run, "a")
    assert endpoint.asked == 0


def test_the_built_in_rules_need_no_store_and_no_price(tmp_path, monkeypatch):
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "llm"))
    run = StageRun({"llm": settings(budget={"stage_usd": 1, "run_usd": None})},
                   params={"models.judge": MODEL.model_copy(update={"transport": "builtin"})})  # fmt: skip
    play(run, PROMPT)
    assert run.metrics["models"]["judge"]["cost_usd"] == 0
    assert run.written == []
    assert not (tmp_path / "llm").exists()
