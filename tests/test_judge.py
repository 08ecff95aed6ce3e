"""The judge: what counts as a score (hard cases HC-040, 041, 042), and that nothing else becomes one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from astra.judge import Judge, JudgeFailed, Question, read_verdict, share_failed
from astra.llm.errors import EndpointUnavailable, RequestRefused
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Usage, Verdict

MODEL = ModelParams(transport="builtin", name="m", temperature=0, max_tokens=64)
ONE = ("score",)


def completion(text: str | None, finish: str = "stop") -> Completion:
    return Completion(text, finish, Usage(calls=1, prompt_tokens=1, completion_tokens=1))


class Answers:
    """A client that gives texts, completions or exceptions in turn and keeps the requests."""

    def __init__(self, *replies: str | Completion | Exception) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    async def ask(self, request: Request) -> Completion:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return completion(reply) if isinstance(reply, str) else reply

    def map(self, items: Any, work: Any) -> Iterator[Any]:
        for item in items:
            yield asyncio.run(work(item))


def ask(client: Answers, reasks: int = 0) -> Verdict:
    return asyncio.run(Judge(client, MODEL, 1, reasks).ask(Question("Judge this.")))


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('{"score": 0.8}', 0.8), ('{"score": 1.0000001}', 1.0), ('{"Score": "0.8", "reason": "ok"}', 0.8),
        ('{"score": "4/5"}', 0.8), ('{"score": "80%"}', 0.8), ('{"score": 0}', 0.0), ("```json\n{\"score\": 1}\n```", 1.0),
    ],
)  # fmt: skip
def test_the_documented_forms_are_scores(reply, score):
    assert read_verdict(completion(reply), ONE).score == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ('{"score": 90}', "out_of_range"), ('{"score": -0.2}', "out_of_range"), ('{"score": "5/4"}', "out_of_range"),
        ('{"score": true}', "wrong_type"), ('{"score": "high"}', "wrong_type"), ('{"score": null}', "wrong_type"),
        ('{"score": "1/0"}', "wrong_type"), ('{"score": {"value": 1}}', "wrong_type"),
        ("[ERROR] HTTP 503 after 3 attempts", "invalid_output"), ("There are 3 issues, so 4/5 overall.", "invalid_output"),
        ('{"result": {"score": 0.8}}', "invalid_output"), ('{"rating": 0.8}', "invalid_output"), ("[0.8]", "invalid_output"),
        ("hardly brilliant, yet usable", "invalid_output"), ("", "invalid_output"), ('{"score": NaN}', "invalid_output"),
        ('{"score": 1e400}', "invalid_output"), ('{"score": ' + "9" * 400 + "}", "out_of_range"),
        ('{"score": ' + "9" * 5000 + "}", "invalid_output"), ('{"score": "0,8"}', "wrong_type"),
        ('{"score": "4 out of 5"}', "wrong_type"), ('{"score": "0.8 points"}', "wrong_type"), ('{"score": [0.8]}', "wrong_type"),
        ('{"score": 0.2, "Score": 0.9}', "invalid_output"), ('[{"score": 0.8}]', "invalid_output"),
    ],
)  # fmt: skip
def test_nothing_else_is_a_score(reply, reason):
    with pytest.raises(JudgeFailed) as failed:
        read_verdict(completion(reply), ONE)
    assert failed.value.reason == reason


@pytest.mark.parametrize(
    "reply",
    [
        'For example {"score": 0.5}. Mine: {"score": 0.9}', 'The answer says {"score": 1}, yet {"score": 0.1}',
        '{"score": 0.8}{"score": 0.1}',
    ],
)  # fmt: skip
def test_verdicts_that_differ_in_one_reply_are_none(reply):
    with pytest.raises(JudgeFailed, match="differ"):
        read_verdict(completion(reply), ONE)


@pytest.mark.parametrize(
    "reply",
    [
        'I think: ```json\n{"score": 0.9}\n``` So {"score": 0.9}.', '<thinking>{"score": 0.2}</thinking>{"score": 0.9}',
        '{"score": 0.9, "reason": "it said {\\"score\\": 1}"}', '{"score": 0.9, "dims": {"score": 0.1}}', 'Of {"port": "Lyme"}: {"score": 0.9}',
    ],
)  # fmt: skip
def test_what_is_thought_quoted_or_no_score_is_no_second_verdict(reply):
    assert read_verdict(completion(reply), ONE).score == 0.9


def test_no_reason_is_no_reason_and_not_the_word_none():
    assert read_verdict(completion('{"score": 1, "reason": null}'), ONE).reason == ""


def test_a_missing_part_is_incomplete_and_not_zero():
    with pytest.raises(JudgeFailed) as failed:
        read_verdict(completion('{"relevance": 1, "dims": {"faithfulness": 1}}'), ("relevance", "faithfulness"))
    assert failed.value.reason == "incomplete"
    both = read_verdict(
        completion('{"relevance": 1, "faithfulness": 0.5, "reason": "x"}'), ("relevance", "faithfulness")
    )
    assert both == Verdict(score=0.75, reason="x")


def test_an_unusable_reply_is_asked_again_with_what_is_wrong_with_it():
    client = Answers('{"score": 90}', '{"score": 0.9, "reason": "ok"}')
    assert ask(client, reasks=1) == Verdict(score=0.9, reason="ok")
    again = client.requests[1].messages
    assert [message.role for message in again] == ["user", "assistant", "user"]
    assert "out_of_range" in (again[-1].content or "")


def test_re_asks_are_bounded_and_the_last_reply_is_kept():
    client = Answers("no", "nope", "never", "more")
    with pytest.raises(JudgeFailed, match="never"):
        ask(client, reasks=2)
    assert len(client.requests) == 3


def test_a_judge_cut_short_gets_more_tokens():
    client = Answers(completion(None, "length"), '{"score": 1}')
    assert ask(client, reasks=1).score == 1
    assert [one.model.max_tokens for one in client.requests] == [64, 128]
    with pytest.raises(JudgeFailed) as failed:
        ask(Answers(completion("", "length")))
    assert failed.value.reason == "judge_truncated"


def test_a_refusal_is_one_failure_and_an_outage_is_everybodys():
    judge = Judge(Answers(RequestRefused("filtered", "policy"), '{"score": 0.7}'), MODEL, 1, 0)
    first, second = judge.all([Question("a"), Question("b")])
    assert isinstance(first, JudgeFailed)
    assert first.reason == "judge_filtered"
    assert second == Verdict(score=0.7, reason="")
    assert share_failed([first, second]) == 0.5
    with pytest.raises(EndpointUnavailable):
        Judge(Answers(EndpointUnavailable("402")), MODEL, 1, 3).all([Question("a")])


def test_a_cut_reply_is_no_verdict_even_if_it_can_be_read():
    with pytest.raises(JudgeFailed) as failed:
        read_verdict(completion('{"score": 1}', "length"), ONE)
    assert failed.value.reason == "judge_truncated"


def votes(*replies: str | Exception, n: int = 3) -> tuple[Judge, Answers]:
    client = Answers(*replies)
    return Judge(client, MODEL, 1, 0, votes=n), client


def test_repeated_votes_are_averaged_and_how_far_they_lie_apart_is_reported():
    judge, client = votes('{"score": 1}', '{"score": 0.7}', '{"score": 0.4}')
    verdict = asyncio.run(judge.ask(Question("Judge this.")))
    assert verdict.score == pytest.approx(0.7)
    assert judge.agreement.metrics() == {"vote_spread": {"mean": 0.6, "n": 1}}
    assert [one.sample for one in client.requests] == [0, 1, 2]


def test_a_minority_of_unusable_votes_is_left_out_and_half_of_them_is_no_verdict():
    judge, _ = votes('{"score": 1}', "prose", '{"score": 0.5}')
    assert asyncio.run(judge.ask(Question("Judge this."))).score == pytest.approx(0.75)
    judge, _ = votes('{"score": 1}', "prose", RequestRefused("filtered", "policy"))
    with pytest.raises(JudgeFailed):
        asyncio.run(judge.ask(Question("Judge this.")))


def test_judging_again_asks_anew_only_for_kept_replies_that_cannot_be_used():
    def kept(text: str) -> Completion:
        return dataclasses.replace(completion(text), cached=True)

    client = Answers(kept('{"score": 0.9}'), kept("prose"), '{"score": 0.3}')
    judge = Judge(client, MODEL, 1, 0, renew=True)
    assert [one.score for one in judge.all([Question("a"), Question("b")]) if isinstance(one, Verdict)] == [0.9, 0.3]
    assert [one.renew for one in client.requests] == [False, False, True]
