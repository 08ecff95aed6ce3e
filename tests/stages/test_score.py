"""score: seven dimensions, and a judge that fails is a reject, never a number."""

from __future__ import annotations

import asyncio
import json

import pytest

import stages.score as stage
from astra.judge import Judge
from astra.llm import TRANSPORTS, builtin_client
from astra.llm.builtin import BuiltinTransport
from astra.llm.errors import EndpointUnavailable
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, Message, Scorecard, Task, ToolCall, ToolSpec, Trajectory, Usage
from astra.stage import read_records, write_records
from tests.llm.clients import client_of

LLM = "llm: {concurrency: 4, attempts: 1, timeout_s: 60, deadline_s: 60, max_wait_s: 1, budget: {stage_usd: null, run_usd: null}, prices: {}}\n"
MODEL = ModelParams(transport="builtin", name="astra-rules-1", temperature=0, max_tokens=256)
ALL = ["QU", "QP", "TCU", "TCP", "TCS", "TC", "FA"]


def tool(name: str, description: str) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {name.split("_")[0]: {"type": "string"}},
        "required": [name.split("_")[0]],
    }
    return ToolSpec(name=name, description=description, parameters=schema)


TOOLS = (
    tool("airport_city", "Host city of an airport."),
    tool("city_country", "Home country of a city."),
    tool("city_population", "City population of a city."),
)
QUESTION = "For airport LHR, find the host city, then its home country."


def turn(number: int, said: str, name: str, argument: str) -> Message:
    call = FunctionCall(name=name, arguments=json.dumps({name.split("_")[0]: argument}))
    return Message(role="assistant", content=said, tool_calls=(ToolCall(id=f"c{number}", function=call),))


def result(number: int, text: str, error: bool = False) -> Message:
    return Message(role="tool", tool_call_id=f"c{number}", content=text, is_error=error, executed_by="sandbox")


def trajectory(*messages: Message, name: str = "t1") -> Trajectory:
    return Trajectory(
        id=name, task_id="task", server_ids=("s",), attempt=0, tools=TOOLS, stop="answered", model="m",
        messages=(Message(role="system", content="Be brief."), Message(role="user", content=QUESTION), *messages),
        usage=Usage(calls=1, prompt_tokens=1, completion_tokens=1),
    )  # fmt: skip


GOOD = (
    turn(1, "Next: host city of LHR.", "airport_city", "LHR"), result(1, '{"result": "London"}'),
    turn(2, "Next: home country of London.", "city_country", "London"), result(2, '{"result": "United Kingdom"}'),
    Message(role="assistant", content="The answer is United Kingdom."),
)  # fmt: skip


def judged(one: Trajectory, judge: Judge | None = None, question: str = QUESTION) -> Scorecard:
    judge = judge or Judge(builtin_client(), MODEL, 1, 1)
    _, outcome = next(iter(stage.score([one], {"task": question}, judge, ALL)))
    assert isinstance(outcome, Scorecard), outcome
    return outcome


def dimension(card: Scorecard, name: str) -> float:
    score = card.dimensions[name].score
    assert score is not None
    return score


def test_a_clean_conversation_gets_full_marks_on_all_seven():
    card = judged(trajectory(*GOOD))
    assert {name: dimension(card, name) for name in card.dimensions} == dict.fromkeys(ALL, 1.0)
    assert card.overall == 1.0


def test_a_failed_call_counts_nothing_in_tool_call_status():
    messages = (turn(1, "Next: host city of LHR.", "airport_city", "LHR"), result(1, "timed out", error=True), *GOOD)
    assert dimension(judged(trajectory(*messages)), "TCS") == pytest.approx(2 / 3)


def test_a_repeated_and_a_needless_call_are_not_concise():
    repeated = (
        *GOOD[:2],
        turn(3, "Next: host city of LHR.", "airport_city", "LHR"),
        result(3, '{"result": "London"}'),
        *GOOD[2:],
    )
    assert dimension(judged(trajectory(*repeated)), "TC") == pytest.approx(2 / 3)
    needless = (
        *GOOD[:2],
        turn(3, "Next: city population of London.", "city_population", "London"),
        result(3, '{"result": 9}'),
        *GOOD[2:],
    )
    assert dimension(judged(trajectory(*needless)), "TC") == pytest.approx(2 / 3)


def test_an_answer_without_a_source_is_not_faithful():
    made_up = (*GOOD[:-1], Message(role="assistant", content="The answer is 4711."))
    card = judged(trajectory(*made_up))
    assert dimension(card, "FA") <= 0.5
    assert "4711" in card.dimensions["FA"].reason


def test_a_conversation_without_calls_is_judged_on_what_applies():
    card = judged(trajectory(Message(role="assistant", content="The answer is France.")))
    assert set(card.dimensions) == {"QU", "QP", "FA"}
    assert card.overall < 0.1


def test_saying_that_no_tool_does_it_is_only_right_where_none_does():
    refusal = trajectory(Message(role="assistant", content="I cannot answer: no tool gives the currency."))
    beside_the_point = judged(refusal)
    right = judged(refusal, question="For airport LHR, find the host city, then its home country, then its currency.")
    assert dimension(beside_the_point, "QU") == 0.0
    assert dimension(right, "QU") == 1.0


class Flaky:
    """A judge that answers prose for some trajectories and by rule for the others."""

    def __init__(self, broken: set[str]) -> None:
        self.broken = broken
        self.inner = BuiltinTransport()

    async def send(self, request: Request) -> Completion:
        await asyncio.sleep(0)
        text = request.messages[0].content or ""
        if any(mark in text for mark in self.broken):
            return Completion(
                "I would say it is excellent, 10 out of 10.",
                "stop",
                Usage(calls=1, prompt_tokens=0, completion_tokens=0),
            )
        return await self.inner.send(request)


def test_a_judge_that_fails_is_a_reject_and_leaves_the_other_scores_as_they_are():
    other = (*GOOD[:-1], Message(role="assistant", content="The answer is United Kingdom. Yours, B."))
    both = [trajectory(*GOOD, name="a"), trajectory(*other, name="b")]
    judge = Judge(client_of(Flaky({"Yours, B."})), MODEL, 1, 1)
    first, second = (outcome for _, outcome in stage.score(both, {"task": QUESTION}, judge, ALL))
    assert first == judged(both[0])
    assert isinstance(second, stage.Unjudged)
    assert second.reason == "unjudged_qu"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = Task(
        id="task", server_ids=("s",), chain_id=None, question=QUESTION, target_tools=("airport_city",), origin="server",
        augmentation="none", quality={},
    )  # fmt: skip
    write_records("data/tasks/tasks.jsonl", [task])
    write_records("data/trajectories/trajectories.jsonl", [trajectory(*GOOD, name=f"t{n}") for n in range(4)])
    (tmp_path / "params.yaml").write_text(
        "seed: 1\nmodels: {judge: {transport: builtin, name: r, temperature: 0.0, max_tokens: 64}}\n"
        "score: {dimensions: [QU, QP, TCU, TCP, TCS, TC, FA], reasks: 0, votes: 1, max_unjudged: 0.1}\n" + LLM
    )
    return tmp_path


def test_the_stage_writes_a_scorecard_for_each_trajectory(workspace, capsys):
    stage.main()
    assert len(list(read_records("data/score/scorecards.jsonl", Scorecard))) == 4
    assert capsys.readouterr().err.startswith("score: 4 in, 4 out, 0 rejected")


def test_a_judge_that_fails_on_every_call_yields_no_scorecard_a_counted_reason_and_a_non_zero_exit(
    workspace, monkeypatch, capsys
):
    monkeypatch.setitem(TRANSPORTS, "builtin", lambda role, store: Flaky({""}))
    with pytest.raises(SystemExit) as stopped:
        stage.main()
    assert stopped.value.code
    said = capsys.readouterr().err
    assert "4 of 4 trajectories have no verdict (unjudged_qu 4)" in said
    assert "dvc repro score" in said
    assert not (workspace / "data/score/scorecards.jsonl").exists()
    assert not (workspace / "metrics/score.json").exists()
    assert (workspace / "data/score/rejects.jsonl").read_text().count("unjudged_qu") == 4


class Down:
    async def send(self, request: Request) -> Completion:
        raise EndpointUnavailable("model r: HTTP 402 after 6 attempts")


def test_a_judge_that_is_down_stops_the_stage(workspace, monkeypatch, capsys):
    monkeypatch.setitem(TRANSPORTS, "builtin", lambda role, store: Down())
    with pytest.raises(SystemExit) as stopped:
        stage.main()
    assert stopped.value.code
    assert "402" in capsys.readouterr().err
    assert not (workspace / "data/score/scorecards.jsonl").exists()
