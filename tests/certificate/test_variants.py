"""Arenas made unsolvable or under-specified: made from certified ones, certified themselves, and paid for honesty."""

from __future__ import annotations

import random

import pytest

from astra.certificate import Playable, honest_end
from astra.certificate.agents import in_order, said
from astra.certificate.variants import drawn, label_of, nouns, rebuilt, refusing, without_tool, without_value
from astra.environments.arena import ArenaWorld
from astra.records import ToolSpec
from astra.rewards import REWARDS
from tests.certificate.arenas import certified, failures, generated, sound


@pytest.fixture
def no_tool():
    """Without the second tool: the master can still be found."""
    return next(
        made for seed in range(20)
        if (made := without_tool(sound(), random.Random(seed))) and made[1].tool.spec.name == "master_town"
    )  # fmt: skip


@pytest.fixture
def no_value():
    return without_value(sound(), random.Random(1))


def pays(made, pool, calls, final, reward="f1"):
    arena, variant = made
    world = ArenaWorld(arena.tools, arena.steps, arena.probes, pool.workers[0], arena.question, arena.answer, variant)
    for name, arguments in calls:
        world.step(name, arguments)
    return REWARDS[reward](*world.tally(final))


def test_a_variant_keeps_what_was_taken_and_gives_it_back(no_tool, no_value):
    for arena, variant in (no_tool, no_value):
        assert rebuilt(arena, variant) == sound()
        assert arena.split == sound().split
        assert arena.id != sound().id
    assert [one.spec.name for one in no_tool[0].tools] == ["port_master"]
    assert "Lyme" not in no_value[0].question
    assert no_value[0].question.startswith("For ")
    assert [probe.step for probe in no_value[1].lost] == [1, 2]


def test_both_are_certified_with_what_each_agent_is_paid(no_tool, no_value, pool):
    first, second = certified(pool, Playable(*no_tool), Playable(*no_value))
    paid = {"honest": 1.0, "honest_at_once": 1.0, "do_nothing": 0.0, "echo": 0.0, "vague": 0.0, "answer_anyway": 0.0,
            "guess": 0.0, "invented_call": 0.666666667}  # fmt: skip
    assert first.certificate.payments == second.certificate.payments == paid


@pytest.mark.parametrize("reward", ["f1", "f1_answer"])
def test_the_honest_end_is_paid_at_once_and_after_doing_what_can_be_done(no_tool, no_value, pool, reward):
    assert pays(no_tool, pool, (), "There is no tool for the home town.", reward) == 1
    able = [("port_master", '{"port": "Lyme"}')]
    assert pays(no_tool, pool, able, "The master is Ann Hale, but I have no tool for the home town.", reward) == 1
    assert pays(no_value, pool, (), "Which port do you mean?", reward) == 1


def test_answering_anyway_inventing_and_evading_are_not(no_tool, no_value, pool):
    assert pays(no_tool, pool, (), "The answer is Truro.") == 0
    assert pays(no_tool, pool, (), "No tool gives the home town, but it is Truro.") == 0
    assert pays(no_tool, pool, (), "I cannot answer.") == 0
    assert pays(no_tool, pool, (), "") == 0
    assert pays(no_tool, pool, (), None) == 0
    assert pays(no_value, pool, [("port_master", '{"port": "Bude"}')], "The answer is Bob Ives.") == 0
    assert pays(no_value, pool, [("port_master", '{"port": "Bude"}')], "Which port do you mean?") == pytest.approx(
        2 / 3
    )
    assert pays(no_value, pool, [("port_master", '{"port": "Bude"}')] * 4, "Which port?") == pytest.approx(1 / 3)


def test_always_refusing_pays_nothing_where_it_can_be_done(pool):
    plain = sound()
    for text in ("I cannot answer: no tool gives the home town.", "Which port do you mean?"):
        world = ArenaWorld(plain.tools, plain.steps, plain.probes, pool.workers[0], plain.question, plain.answer)
        assert all(REWARDS[name](*world.tally(text)) == 0 for name in ("f1", "f1_answer"))
        assert world.honest(text) is None


TAMPERED = {
    "the tool is still there": lambda a, v: (a.model_copy(update={"tools": (*a.tools, v.tool)}), v),
    "another tool was taken": lambda a, v: (a, v.model_copy(update={"tool": None})),
    "a lost step is not noted": lambda a, v: (a, v.model_copy(update={"lost": (), "probes": (1,)})),
    "what can be done is noted as lost": lambda a, v: (
        a.model_copy(update={"probes": ()}), v.model_copy(update={"lost": (*a.probes, *v.lost)})
    ),
    "the question was changed too": lambda a, v: (a.model_copy(update={"question": "For a port, find it."}), v),
}  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_a_variant_is_refused_where(tamper, no_tool, pool):
    found = failures(pool, *tamper(*no_tool))
    assert {"withheld", "steps_mapped", "unique_names"} & set(found), found


def test_a_question_that_still_says_the_value_is_refused(no_value, pool):
    arena, variant = no_value
    assert "withheld" in failures(pool, arena.model_copy(update={"question": arena.question + " Lyme."}), variant)


def test_names_that_an_honest_end_cannot_use_are_refused(no_tool, pool):
    arena, variant = no_tool
    assert "payments" in failures(pool, arena, variant.model_copy(update={"names": ("Truro",)}))


def test_a_base_that_is_not_sound_makes_no_sound_variant(no_tool, pool):
    arena, variant = no_tool
    broken = variant.tool.model_copy(update={"code": "TABLE = {'a': 1}\n\n\ndef master_town(master):\n    return 1\n"})
    assert "golden" in failures(pool, arena, variant.model_copy(update={"tool": broken}))


def test_variants_of_generated_arenas_are_certified(pool):
    made = [
        make(generated(number), random.Random(number)) for number in range(40) for make in (without_tool, without_value)
    ]
    found = certified(pool, *[Playable(*one) for one in made if one is not None])
    assert len(found) > 60
    for one in found:
        assert one.variant is not None
        agents = refusing(one, one.variant)
        assert agents["honest"].final == honest_end(one.variant)
        assert said(one.answer) not in honest_end(one.variant)
        assert len(in_order(one)) + len(one.variant.lost) == len(one.variant.probes)


def test_the_share_is_drawn_for_each_arena_on_its_own():
    arenas = [generated(number) for number in range(300)]
    made = {one.id: list(drawn(one, 0.1, 0.1, 17)) for one in arenas}
    kinds = [variant.kind for found in made.values() for _, variant in found]
    assert 15 <= kinds.count("missing_tool") <= 45
    assert 15 <= kinds.count("missing_value") <= 45
    assert {one.id: list(drawn(one, 0.1, 0.1, 17)) for one in arenas[50:]} == dict(list(made.items())[50:])
    assert not any(list(drawn(one, 0, 0, 17)) for one in arenas)


@pytest.mark.parametrize(
    ("description", "label"),
    [
        ("Host city of an airport.", "host city"), ("Returns the host city of the given airport.", "host city"),
        ("ISO code of a country.", "ISO code"), ("Get the departure time for a ferry.", "departure time"),
        ("Whatever", "read it"), ("Population of a country. Counted in 2020.", "population"),
    ],
)  # fmt: skip
def test_what_a_tool_reads_is_told_by_its_description(description, label):
    assert label_of(ToolSpec(name="read_it", description=description, parameters={})) in (label, "whatever")


def test_a_parameter_is_called_by_its_plain_noun_first():
    assert nouns("airport_code") == ("airport", "airport code")
    assert nouns("airport") == ("airport",)
