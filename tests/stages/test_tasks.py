"""tasks: written, augmented, judged; every threshold decides."""

from __future__ import annotations

import dataclasses
import json

import pytest

import stages.tasks as stage
from astra.judge import JudgeFailed
from astra.llm import TRANSPORTS, builtin_client
from astra.llm.builtin import BuiltinTransport
from astra.llm.errors import EndpointUnavailable, RequestRefused
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Task, Usage, Verdict
from astra.stage import read_records, write_records
from stages import chains, graph
from tests.llm.clients import client_of
from tests.stages.imitation import FERRY, LONELY, PARAMS, TABLES

MODEL = ModelParams(transport="builtin", name="r", temperature=0.0, max_tokens=256)
LEAST = stage.Thresholds(question_quality=0.7, scenario_realism=0.7, tool_necessity=0.7)
DRAFT = stage.Draft("d", "", FERRY, None)


def completion(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return Completion(text, "stop", Usage(calls=1, prompt_tokens=1, completion_tokens=1))


def task(question="Please find a route.", **more):
    fields = {
        "id": "task-1", "server_ids": (FERRY.id,), "chain_id": None, "question": question, "target_tools": ("find_routes",),
        "origin": "server", "augmentation": "none", "quality": {}, **more,
    }  # fmt: skip
    return Task.model_validate(fields)


UNUSABLE = (
    "Sure!",
    {"question": " ", "target_tools": ["find_routes"]},
    {"question": "Go.", "target_tools": "find_routes, list_sailings"},
    {"question": "Go.", "target_tools": ["find_routes list_sailings"]},
)


class Says:
    """A model that gives what stands next."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.requests = []

    async def send(self, request: Request) -> Completion:
        self.requests.append(request)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return completion(step)


def written(says, reasks=0):
    writer = stage.Teacher(client_of(says), MODEL, 1, reasks)
    return next(writer.write([DRAFT]))


@pytest.mark.parametrize("reply", UNUSABLE)
def test_a_reply_without_a_question_or_with_unknown_targets_is_a_reject_with_the_raw_text(reply):
    refused = written(Says(reply))
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "reply_invalid"
    assert "reply: " in refused.detail


@pytest.mark.parametrize("reply", UNUSABLE)
def test_such_a_reply_is_asked_for_once_more_with_what_was_wrong(reply):
    says = Says(reply, {"question": "Go.", "target_tools": ["find_routes"]})
    assert isinstance(written(says, reasks=1), Task)
    assert "cannot be used" in (says.requests[1].messages[-1].content or "")


def test_a_cut_reply_is_never_read_and_asked_for_with_twice_the_tokens():
    cut = dataclasses.replace(completion({"question": "Go.", "target_tools": ["find_routes"]}), finish_reason="length")

    class Cut(Says):
        async def send(self, request: Request) -> Completion:
            self.requests.append(request)
            return cut

    says = Cut()
    refused = written(says, reasks=1)
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "reply_truncated"
    assert [one.model.max_tokens for one in says.requests] == [MODEL.max_tokens, 2 * MODEL.max_tokens]


def test_a_refused_request_is_a_reject_and_never_a_question():
    refused = written(Says(RequestRefused("filtered", "policy")))
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "filtered"


def test_a_rewriting_that_changes_nothing_is_a_reject():
    draft = DRAFT._replace(source=task("Find it."), augmentation="diversity")
    refused = stage.read_task(draft, completion({"question": "Find  it."}))
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "unchanged"


def test_the_same_question_twice_on_a_server_is_a_duplicate():
    first, second, third = stage.without_duplicates([task(), task("please find a ROUTE."), task(server_ids=("other",))])
    assert isinstance(first, Task)
    assert isinstance(second, stage.Refusal)
    assert second.reason == "duplicate"
    assert isinstance(third, Task)


@pytest.mark.parametrize("low", stage.DIMENSIONS)
def test_each_dimension_alone_can_drop_a_task(low):
    outcomes = [Verdict(score=0.6 if name == low else 1.0, reason="r") for name in stage.DIMENSIONS]
    refused = stage.decided(task(), outcomes, LEAST)
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == f"low_{low}"


def test_a_dimension_that_was_not_judged_is_a_reject_and_not_a_number():
    outcomes = [Verdict(score=1, reason="r"), JudgeFailed("out_of_range", "90"), Verdict(score=1, reason="r")]
    refused = stage.decided(task(), outcomes, LEAST)
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "unjudged_scenario_realism"


def judged(question, targets=("find_routes",), server=FERRY):
    client = builtin_client()
    one = task(question, target_tools=targets, server_ids=(server.id,))
    row = stage.judge_all([one], {server.id: server}, stage.Judge(client, MODEL, 1, 0))[0]
    return {
        name: outcome.score for name, outcome in zip(stage.DIMENSIONS, row, strict=True) if isinstance(outcome, Verdict)
    }


GOOD = 'Please find routes from a port with from port "Lyme" and to port "Bath".'


@pytest.mark.parametrize(
    ("question", "targets", "low"),
    [
        (GOOD, ("find_routes",), None),
        (
            'Please call find_routes from a port with from port "Lyme" and to port "Bath".',
            ("find_routes",),
            "question_quality",
        ),
        (
            'Please find routes from a port with from port "<port>" and to port "Bath".',
            ("find_routes",),
            "question_quality",
        ),
        ("Please find routes from a port.", ("find_routes",), "question_quality"),
        ("Routes?", ("find_routes",), "question_quality"),
        (
            'Please find routes from a port with from port "Lyme" and to port "Lyme".',
            ("find_routes",),
            "scenario_realism",
        ),
        (
            'Please find routes from a port with from port "foo" and to port "Bath".',
            ("find_routes",),
            "scenario_realism",
        ),
        (GOOD, ("find_routes", "get_weather"), "tool_necessity"),
        (
            'Please tell a joke with from port "Lyme", to port "Bath" and sea "North".',
            ("get_weather",),
            "tool_necessity",
        ),
    ],
)
def test_the_built_in_judge_can_say_no(question, targets, low):
    scores = judged(question, targets)
    failing = {name for name, score in scores.items() if score < 0.7}
    assert low in failing if low else not failing


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    write_records("data/normalize/servers.jsonl", [FERRY, TABLES, LONELY])
    graph.main()
    chains.main()
    return tmp_path


def test_the_stage_gives_both_origins_and_all_augmentations_and_repeats_byte_for_byte(workspace):
    stage.main()
    tasks = list(read_records("data/tasks/tasks.jsonl", Task))
    assert {one.origin for one in tasks} == {"chain", "server"}
    assert {one.augmentation for one in tasks} == {"none", "diversity", "complexity", "persona"}
    assert {one.server_ids[0] for one in tasks} == {FERRY.id, TABLES.id, LONELY.id}
    ids = {one.id for one in tasks}
    assert len(ids) == len(tasks)
    for one in tasks:
        assert (one.parent is None) == (one.augmentation == "none")
        assert (one.persona is None) == (one.augmentation != "persona")
        assert not any(name in one.question for name in one.target_tools)
        assert one.quality.keys() == set(stage.DIMENSIONS)
    first = (workspace / "data/tasks/tasks.jsonl").read_bytes()
    stage.main()
    assert (workspace / "data/tasks/tasks.jsonl").read_bytes() == first


class Prose:
    """A judge that never gives a score."""

    async def send(self, request: Request) -> Completion:
        return completion("Looks excellent to me, 10/10.")


class Down:
    async def send(self, request: Request) -> Completion:
        raise EndpointUnavailable("judge m: status 402")


@pytest.mark.parametrize(("judge", "said"), [(Prose(), "100% of the judgements failed"), (Down(), "status 402")])
def test_a_judge_that_does_not_judge_stops_the_stage_and_writes_no_task(workspace, monkeypatch, capsys, judge, said):
    monkeypatch.setitem(TRANSPORTS, "builtin", lambda role, store: judge if role == "judge" else BuiltinTransport())
    with pytest.raises(SystemExit) as stopped:
        stage.main()
    assert stopped.value.code
    assert said in capsys.readouterr().err
    assert not (workspace / "data/tasks/tasks.jsonl").exists()
