"""Questions over joined facts: the rules for what a model writes, and splits that share nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from astra.records import Decomposition
from astra.splits import Heldout, of_steps
from astra.stage import read_records
from stages.decompose import ComposeReply, Evidence, Hop, Unsound, VerifyReply, check, contains, quality, to_steps

ROOT = Path(__file__).resolve().parents[2]
PARAMS = """seed: 5
llm: {concurrency: 4, attempts: 1, timeout_s: 60, deadline_s: 60, max_wait_s: 1, budget: {stage_usd: null, run_usd: null}, prices: {}}
models:
  teacher: {transport: builtin, name: astra-rules-1, temperature: 0.7, max_tokens: 4096}
  judge: {transport: builtin, name: astra-rules-1, temperature: 0.0, max_tokens: 1024}
decompose:
  questions: {train: 900, heldout: 80, heldout_entities: 12, heldout_tools: 12}
  shapes: {single_hop: 0.25, parallel_single_hop: 0.25, multi_hop: 0.25, parallel_multi_hop: 0.25}
  max_hops: 3
  same_relation: 0.2
  reserve: {pairs: 0.25, countries: 12, elements: 6, relations: 3}
  reasks: 0
  min_quality: 1.0
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The stage run twice on few questions over the real tables: records and the bytes of both runs."""
    from stages import decompose as stage

    folder = tmp_path_factory.mktemp("decompose")
    (folder / "params.yaml").write_text(PARAMS)
    (folder / "data/raw").mkdir(parents=True)
    (folder / "data/raw/knowledge").symlink_to(ROOT / "data/raw/knowledge")
    path = folder / "data/decompose/decompositions.jsonl"
    both = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for _ in range(2):
            stage.main()
            both.append(path.read_bytes())
    return list(read_records(path, Decomposition)), both


def test_two_runs_with_one_seed_write_the_same_bytes(written):
    _, (first, second) = written
    assert first == second


def test_training_shares_no_question_fact_composition_entity_or_tool_with_what_is_held_out(written):
    records, _ = written
    heldout = Heldout.of(records)
    assert heldout.facts
    assert heldout.compositions
    assert [
        one.id for one in records if one.split == "train" and heldout.conflict(one.question, of_steps(one.steps))
    ] == []
    trained = [of_steps(one.steps) for one in records if one.split == "train"]
    for split, part in (("heldout_entities", "entities"), ("heldout_tools", "relations")):
        reserved = getattr(heldout, part)
        assert all(getattr(of_steps(one.steps), part) & reserved for one in records if one.split == split)
        assert not any(getattr(content, part) & reserved for content in trained)


def test_every_split_holds_every_shape(written):
    records, _ = written
    assert len({(one.split, one.shape) for one in records}) == 16


def test_no_question_is_asked_twice(written):
    records, _ = written
    assert len({one.question for one in records}) == len(records)


def test_the_order_of_steps_is_the_order_of_dependencies_and_inner_steps_need_a_tool(written):
    records, _ = written
    for one in records:
        assert all(before < step.id for step in one.steps for before in step.depends_on)
        inner = {before for step in one.steps for before in step.depends_on}
        assert all(step.needs_tool for step in one.steps if step.id in inner)


# ---------------------------------------------------------------- rules


@pytest.fixture
def evidence(knowledge):
    city, country = knowledge.relations["airport_city"], knowledge.relations["city_country"]
    return Evidence("train", "multi_hop", ((Hop(city, "LHR", "London"), Hop(country, "London", "UK")),))


@pytest.fixture(scope="module")
def knowledge():
    from astra.knowledge import Knowledge

    return Knowledge.load(ROOT / "data/raw/knowledge/knowledge.yaml")


def reply(**second):
    first = {"id": 1, "question": "Host city of LHR?", "answer": "London", "depends_on": [], "needs_tool": True,
             "relation": "airport_city", "subject": "LHR"}  # fmt: skip
    later = {**first, "id": 2, "question": "Home country of London?", "answer": "UK", "depends_on": [1],
             "relation": "city_country", "subject": "London", **second}  # fmt: skip
    return ComposeReply.model_validate({"question": "Which country?", "answer": "UK", "steps": [first, later]})


def reason(call):
    with pytest.raises(Unsound) as error:
        call()
    return error.value.reason


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"depends_on": [3]}, "bad_dependency"),
        ({"depends_on": [2]}, "bad_dependency"),
        ({"id": 5}, "bad_dependency"),
        ({"answer": "France"}, "answer_not_derivable"),
        ({"subject": "Paris"}, "answer_not_derivable"),
        ({"needs_tool": False}, "fact_unused"),
    ],
)
def test_steps_that_do_not_follow_from_the_facts_are_unsound(evidence, change, expected):
    assert reason(lambda: to_steps(reply(**change), evidence)) == expected


def test_an_answer_that_the_steps_do_not_give_or_that_the_question_tells_is_unsound(evidence):
    steps = to_steps(reply(), evidence)
    check("Which country is LHR in?", "UK", steps, evidence)
    assert reason(lambda: check("Which country is LHR in?", "France", steps, evidence)) == "answer_not_derivable"
    assert reason(lambda: check("Which country is London in?", "UK", steps, evidence)) == "answer_in_question"


def test_a_value_is_contained_as_whole_words_only():
    assert contains("Is it in the u.k.?", "U.K.")
    assert not contains("The Londoner", "London")


def test_a_step_that_was_not_judged_is_no_score(evidence):
    verdicts = VerifyReply.model_validate(
        {"steps": [{"id": 1, "dependency": 1, "atomicity": 1, "rationality": 1}], "completeness": 1, "reason": ""}
    )
    assert reason(lambda: quality(verdicts, to_steps(reply(), evidence))) == "unjudged"
