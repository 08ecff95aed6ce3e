"""tasks: written, augmented, judged; every threshold decides."""

from __future__ import annotations

import dataclasses
import json

import pytest

import stages.tasks as stage
from astra.encoder import open_encoder
from astra.judge import JudgeFailed
from astra.likeness import without_duplicates, without_near_duplicates
from astra.llm import TRANSPORTS, builtin_client
from astra.llm.builtin import BuiltinTransport
from astra.llm.errors import EndpointUnavailable, RequestRefused
from astra.llm.reply import ReplyInvalid
from astra.llm.types import Completion, ModelParams, Request
from astra.records import Binding, Chain, Reject, Stated, Task, Usage, UserTurn, Verdict
from astra.rewriting import KINDS, read_personas
from astra.servers import pool
from astra.stage import StageError, read_records, write_records
from stages import chains, graph
from tests.llm.clients import client_of
from tests.stages.imitation import FERRY, LONELY, PARAMS, TABLES

MODEL = ModelParams(transport="builtin", name="r", temperature=0.0, max_tokens=256)
LEAST = stage.Thresholds(**dict.fromkeys([*stage.DIMENSIONS, stage.KIND_FIT], 0.7))
DRAFT = stage.Draft("d", "", (FERRY,), None)


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
    refused = stage.read_task(draft, completion({"question": "Find  it.", "target_tools": ["find_routes"]}))
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "unchanged"


def test_the_same_question_twice_on_a_server_is_a_duplicate():
    first, second, third = without_duplicates([task(), task("please find a ROUTE."), task(server_ids=("other",))])
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
    fine = Verdict(score=1, reason="r")
    outcomes = [fine, JudgeFailed("out_of_range", "90"), fine, fine, fine]
    refused = stage.decided(task(), outcomes, LEAST)
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "unjudged_scenario_realism"


def judged(question, targets=("find_routes",), server=FERRY, **more):
    client = builtin_client()
    one = task(question, target_tools=targets, server_ids=(server.id,), **more)
    (row,) = stage.judge_all([one], {server.id: server}, stage.Judge(client, MODEL, 1, 0))
    named = zip(stage.dimensions_of(one), row, strict=True)
    return {name: outcome.score for name, outcome in named if isinstance(outcome, Verdict)}


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
        ("Please find some nice routes from anywhere to Bath.", ("find_routes",), "verifiability"),
        ("Which routes from Lyme to Bath are there today?", ("find_routes",), "stability"),
    ],
)
def test_the_built_in_judge_can_say_no(question, targets, low):
    scores = judged(question, targets)
    failing = {name for name, score in scores.items() if score < 0.7}
    assert low in failing if low else not failing


# ---------------------------------------------------------------- what a rewriting keeps

LYME = Stated(tool="find_routes", parameter="from_port", value="Lyme")
BATH = Stated(tool="find_routes", parameter="to_port", value="Bath")
SOURCE = task("Please find the routes from Lyme to Bath for me.", values=(LYME, BATH))


def rewritten(question, values=(LYME, BATH), targets=("find_routes",), **more):
    fields = {"augmentation": "persona", **more}
    reply = {"question": question, "target_tools": targets, "values": [one.model_dump() for one in values]}
    return stage.read_task(DRAFT._replace(source=SOURCE, **fields), completion(reply))


def test_a_rewriting_that_keeps_tools_values_and_language_is_a_task():
    kept = rewritten("I am a cook and it is late. What are the routes from Lyme to Bath?")
    assert isinstance(kept, Task)
    assert (kept.parent, kept.target_tools, kept.values) == (SOURCE.id, ("find_routes",), (LYME, BATH))


@pytest.mark.parametrize(
    ("question", "values", "targets", "reason"),
    [
        ("What are the routes from Lyme?", (LYME, BATH), ("find_routes",), "lost_value"),
        ("What are the routes from Lyme to Bath?", (LYME,), ("find_routes",), "lost_value"),
        ("What are the routes from Lyme to Bathurst?", (LYME, BATH), ("find_routes",), "lost_value"),
        ("Welche Verbindungen sind es von Lyme und nach Bath für mich bitte?", (LYME, BATH), ("find_routes",), "other_language"),
        ("从 Lyme 到 Bath 有哪些航线？", (LYME, BATH), ("find_routes",), "other_language"),
        ("What are the routes from Lyme to Bath?", (LYME, BATH), ("find_routes", "get_weather"), "other_tools"),
        (SOURCE.question, (LYME, BATH), ("find_routes",), "unchanged"),
    ],
)  # fmt: skip
def test_a_rewriting_that_loses_a_value_its_tools_or_its_language_is_a_reject_with_the_reason(
    question, values, targets, reason
):
    refused = rewritten(question, values, targets)
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == reason


def test_only_diversity_may_put_other_values_in_the_place_of_the_source_s():
    oban = LYME.model_copy(update={"value": "Oban"})
    text = "What are the routes from Oban to Bath?"
    assert isinstance(rewritten(text, (oban, BATH), augmentation="diversity"), Task)
    assert isinstance(rewritten(text, (oban, BATH), augmentation="complexity"), stage.Refusal)


def test_a_request_that_does_not_state_what_its_chain_needs_of_the_user_is_a_reject():
    chain = Chain(
        id="chain-1", server_ids=(FERRY.id,), tools=("find_routes",), support=1.0, checks={},
        bindings=(Binding(step=0, parameter="from_port", origin="user"), Binding(step=0, parameter="to_port", origin="user")),
    )  # fmt: skip
    draft = DRAFT._replace(chain=chain)
    reply = {"question": "Find the routes from Lyme to Bath.", "values": [LYME.model_dump(), BATH.model_dump()]}
    assert isinstance(stage.read_task(draft, completion(reply)), Task)
    refused = stage.read_task(draft, completion({**reply, "values": [LYME.model_dump()]}))
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == "lost_value"


# ---------------------------------------------------------------- unusual kinds


def made_unusual(kind, reply, missing=None, source=SOURCE):
    draft = DRAFT._replace(source=source, kind=kind, missing=missing)
    return stage.read_task(draft, completion(reply))


VALUES = [LYME.model_dump(), BATH.model_dump()]


def test_a_left_out_value_is_given_by_the_user_s_next_turn():
    reply = {"question": "What are the routes to Bath?", "values": [BATH.model_dump()], "answer": "From Lyme."}
    made = made_unusual("missing_value", reply, LYME)
    assert isinstance(made, Task)
    assert made.missing == ("find_routes.from_port",)
    assert made.turns == (UserTurn(says="From Lyme.", gives="Lyme"),)


@pytest.mark.parametrize(
    ("question", "answer", "reason"),
    [
        ("What are the routes from Lyme to Bath?", "From Lyme.", "value_not_left_out"),
        ("What are the routes to Bath?", "From Oban.", "value_not_given"),
        ("What are the routes?", "From Lyme.", "lost_value"),
    ],
)
def test_a_value_that_is_not_left_out_or_never_given_is_a_reject(question, answer, reason):
    refused = made_unusual(
        "missing_value", {"question": question, "values": [BATH.model_dump()], "answer": answer}, LYME
    )
    assert isinstance(refused, stage.Refusal)
    assert refused.reason == reason


def test_a_tool_that_comes_later_is_brought_by_the_user_s_next_turn():
    reply = {
        "question": "Routes from Lyme to Bath, please?", "values": VALUES, "target_tools": ["find_routes"],
        "later": "It is there now.",
    }  # fmt: skip
    made = made_unusual("later_tool", reply, "find_routes")
    assert isinstance(made, Task)
    assert made.missing == ("find_routes",)
    assert made.turns == (UserTurn(says="It is there now.", brings=("find_routes",)),)


CHAIN = task("Find the routes from Lyme to Bath and the sailings.", target_tools=("find_routes", "list_sailings"))


@pytest.mark.parametrize(
    "turns", [[], [{"says": "And?", "target_tools": ["find_routes"]}], [{"says": "And?", "target_tools": []}],
              [{"says": "All.", "target_tools": ["find_routes", "list_sailings"]}]]
)  # fmt: skip
def test_turns_that_do_not_share_the_tools_out_in_order_are_asked_for_again(turns):
    with pytest.raises(ReplyInvalid):
        made_unusual("several_turns", {"question": "Find the routes.", "values": [], "turns": turns}, source=CHAIN)


def test_several_turns_hold_the_tools_that_each_of_them_needs():
    turns = [{"says": "And the sailings of the first?", "target_tools": ["list_sailings"]}]
    made = made_unusual("several_turns", {"question": "Find the routes.", "values": [], "turns": turns}, source=CHAIN)
    assert isinstance(made, Task)
    assert made.target_tools == ("find_routes", "list_sailings")
    assert made.turns[0].target_tools == ("list_sailings",)


ROUTE = 'Please find routes from a port with from port "Lyme" and to port "Bath"'
GONE = 'Please find routes from a port with to port "Bath".'
GIVEN = UserTurn(says='Here it is: from port "Lyme".', gives="Lyme")
SAILINGS = UserTurn(
    says="Thanks. Now use that result to list the sailings of a route.", target_tools=("list_sailings",)
)
WEATHER = UserTurn(says='Good. Now get the weather at sea with sea "North".', target_tools=("get_weather",))


@pytest.mark.parametrize(
    ("kind", "question", "targets", "missing", "turns", "fits"),
    [
        ("missing_tool", f"{ROUTE}.", ("find_routes",), ("find_routes",), (), True),
        ("missing_tool", f"{ROUTE}.", ("find_routes",), ("get_weather",), (), False),
        ("later_tool", f"{ROUTE}.", ("find_routes",), ("find_routes",), (UserTurn(says="It is there."),), True),
        ("missing_value", GONE, ("find_routes",), ("find_routes.from_port",), (GIVEN,), True),
        ("missing_value", f"{ROUTE}.", ("find_routes",), ("find_routes.from_port",), (GIVEN,), False),
        ("missing_value", GONE, ("find_routes",), ("find_routes.from_port",), (UserTurn(says="Hm."),), False),
        ("several_turns", f"{ROUTE}.", ("find_routes", "list_sailings"), (), (SAILINGS,), True),
        ("several_turns", f"{ROUTE}.", ("find_routes", "get_weather"), (), (WEATHER,), False),
    ],
)  # fmt: skip
def test_the_built_in_judge_tells_whether_a_task_is_of_its_kind(kind, question, targets, missing, turns, fits):
    scores = judged(question, targets, kind=kind, missing=missing, turns=turns)
    assert (scores["kind_fit"] >= 0.7) is fits
    if fits:
        assert min(scores.values()) >= 0.7


def test_a_plain_task_is_not_asked_for_its_kind():
    assert stage.KIND_FIT not in judged(f"{ROUTE}.")


# ---------------------------------------------------------------- likeness and variety


def test_a_task_that_says_nearly_the_same_for_the_same_tools_is_a_near_duplicate():
    first = task('I need you to find routes from a port with from port "Lyme" and to port "Bath".')
    second = task('Please find routes from a port with from port "Lyme" and to port "Bath".', id="task-2")
    other_tools = task(second.question, id="task-3", target_tools=("get_weather",))
    other_kind = task(second.question, id="task-4", kind="missing_tool", missing=("find_routes",))
    far = task("What sails from Oban at dawn?", id="task-5")
    every = [first, second, other_tools, other_kind, far]
    usual = [f"I need you to please do job {n} with a port" for n in range(30)]
    encoder = open_encoder("builtin", [*usual, *(one.question for one in every)])
    sifted = list(without_near_duplicates(every, encoder, 0.9))
    assert [one.reason for one in sifted if isinstance(one, stage.Refusal)] == ["near_duplicate"]
    assert isinstance(sifted[1], stage.Refusal)
    assert first.id in sifted[1].detail


def test_a_chain_s_shape_says_which_step_uses_which():
    links = ((1, 0), (2, 0), (2, 1))
    bindings = tuple(Binding(step=n, parameter=f"p{m}", origin="result", from_step=m, output="x") for n, m in links)
    chain = Chain(id="c", server_ids=("s",), tools=("a", "b", "c"), bindings=bindings, support=1.0, checks={})
    assert stage.shape(chain) == "3: 0>1 0>2 1>2"


def test_a_task_over_two_servers_shows_both_and_leaves_out_names_that_clash():
    clash = TABLES.tools[0].model_copy(update={"name": "get_weather"})
    both = (FERRY, TABLES.model_copy(update={"tools": (*TABLES.tools, clash)}))
    names = [tool.name for tool in pool(both, ("find_routes", "airport_city"))]
    assert "get_weather" not in names
    assert {"find_routes", "airport_city"} <= set(names)
    chain = Chain(
        id="chain-x", server_ids=(both[0].id, both[1].id), tools=("find_routes", "airport_city"), support=1.0,
        bindings=(), checks={},
    )  # fmt: skip
    draft = next(stage.chain_drafts([chain], {one.id: one for one in both}, 1))
    assert "Ferry and Tables" in draft.prompt
    made = stage.read_task(draft, completion({"question": "Find both.", "values": []}))
    assert isinstance(made, Task)
    assert made.server_ids == chain.server_ids
    assert "airport_city" in stage.judged_input(made, both)


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
    assert {one.kind for one in tasks} == {"plain", *KINDS}
    assert {one.server_ids[0] for one in tasks} == {FERRY.id, TABLES.id, LONELY.id}
    ids = {one.id for one in tasks}
    assert len(ids) == len(tasks)
    for one in tasks:
        assert (one.parent is None) == (one.augmentation == "none" and one.kind == "plain")
        assert (one.persona is None) == (one.voice is None) == (one.augmentation != "persona")
        assert not any(name in one.question for name in one.target_tools)
        assert one.quality.keys() == set(stage.dimensions_of(one))
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


def test_a_stage_that_stops_for_its_judge_leaves_what_was_refused_with_the_reasons(workspace, monkeypatch):
    monkeypatch.setitem(TRANSPORTS, "builtin", lambda role, store: Prose() if role == "judge" else BuiltinTransport())
    with pytest.raises(SystemExit):
        stage.main()
    reasons = {one.reason for one in read_records("data/tasks/rejects.jsonl", Reject)}
    assert "unjudged_question_quality" in reasons


def test_the_committed_personas_are_read():
    assert len({one.who for one in read_personas()}) >= 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "(got 'None')"),
        ("who: a pilot\n", "expected a list"),
        ("- a pilot\n", "(got the entry 'a pilot')"),
        ("- {who: a pilot, style: terse, voice: loud, because: night}\n", "'voice': 'loud'"),
        ("- {who: a pilot, style: terse, voice: brief}\n", "because"),
        ("- {who: a pilot, style: off, voice: brief, because: night}\n", "'style': False"),
        ("- {who: a pilot, style: [terse], voice: brief, because: night}\n", "['terse']"),
        ("- {who: a, who: b, style: terse, voice: brief, because: night}\n", "personas.yaml:1:12: not valid YAML"),
        ("- {who: a pilot\n", "personas.yaml:2:1: not valid YAML"),
    ],
)
def test_a_personas_file_that_cannot_be_used_is_named_with_its_place(tmp_path, text, says):
    (tmp_path / "personas.yaml").write_text(text)
    with pytest.raises(StageError, match="personas.yaml") as error:
        read_personas(tmp_path / "personas.yaml")
    assert says in str(error.value)
