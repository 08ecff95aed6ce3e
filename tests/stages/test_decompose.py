"""Questions over joined facts: the rules for what a model writes, and splits that share nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from astra.decomposition.draft import ComposeReply, Draft, Unsound
from astra.decomposition.judging import VerifyReply, quality, threshold
from astra.decomposition.params import Params, Percentile
from astra.decomposition.tables import Evidence, Hop, TableBrief, to_steps
from astra.records import Decomposition, Reject
from astra.splits import Heldout, of_steps
from astra.stage import read_records
from stages import decompose as stage
from tests.decomposition.sources import ASTRA, MUSIQUE, PARAMS, TWO_WIKI, folder
from tests.openai_server import Serving

ROOT = Path(__file__).resolve().parents[2]
BUILTIN = {"transport": "builtin", "name": "astra-rules-1", "max_tokens": 4096}
TREE = {
    "seed": 5,
    "llm": {"concurrency": 4, "attempts": 1, "timeout_s": 60, "deadline_s": 60, "max_wait_s": 1,
            "budget": {"stage_usd": None, "run_usd": None}, "prices": {}},
    "models": {"teacher": BUILTIN | {"temperature": 0.7}, "judge": BUILTIN | {"temperature": 0.0}},
    "decompose": PARAMS,
}  # fmt: skip
LARGE = {
    "questions": {"train": 900, "heldout": 80, "heldout_entities": 12, "heldout_tools": 12},
    "reserve": {"pairs": 0.25, "countries": 12, "elements": 6, "relations": 3},
    "same_relation": 0.2,
    "reasks": 0,
}


def run_in(root: Path, *flags: str, teacher: dict | None = None, **changes) -> Path:
    """Run the stage in a folder that has data/raw/knowledge; where its records are."""
    tree = TREE | {"decompose": PARAMS | changes}
    if teacher is not None:
        tree["models"] = {"teacher": tree["models"]["teacher"] | teacher, "judge": tree["models"]["judge"]}
    (root / "params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("ASTRA_CACHE", str(root / "cache"))
        stage.main(flags)
    return root / "data/decompose/decompositions.jsonl"


def knowledge_in(root: Path, **files) -> Path:
    """A run's root with these files as its knowledge."""
    (root / "data/raw").mkdir(parents=True, exist_ok=True)
    folder(root / "data/raw", **files)
    return root


def metrics(root: Path) -> dict:
    return json.loads((root / "metrics/decompose.json").read_text())


def rejects(root: Path) -> dict[str, str]:
    return {one.id: one.reason for one in read_records(root / "data/decompose/rejects.jsonl", Reject)}


# ---------------------------------------------------------------- the tables of the repository


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The stage run twice on few questions over the real tables: records and the bytes of both runs."""
    root = tmp_path_factory.mktemp("decompose")
    (root / "data/raw").mkdir(parents=True)
    (root / "data/raw/knowledge").symlink_to(ROOT / "data/raw/knowledge")
    both = [run_in(root, **LARGE).read_bytes() for _ in range(2)]
    return list(read_records(root / "data/decompose/decompositions.jsonl", Decomposition)), both, metrics(root)


def test_two_runs_with_one_seed_write_the_same_bytes(written):
    _, (first, second), _ = written
    assert first == second


def test_training_shares_no_question_fact_composition_entity_or_tool_with_what_is_held_out(written):
    records, _, _ = written
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
    records, _, _ = written
    assert len({(one.split, one.shape) for one in records}) == 16


def test_no_question_is_asked_twice(written):
    records, _, _ = written
    assert len({one.question for one in records}) == len(records)


def test_the_order_of_steps_is_the_order_of_dependencies_and_inner_steps_need_a_tool(written):
    records, _, _ = written
    for one in records:
        assert all(before < step.id for step in one.steps for before in step.depends_on)
        inner = {before for step in one.steps for before in step.depends_on}
        assert all(step.needs_tool for step in one.steps if step.id in inner)


def test_the_metrics_say_how_many_are_left_after_each_check(written):
    records, _, found = written
    left = found["left"]
    assert list(left)[:3] == ["briefs", "written", "graph"]
    assert list(left.values()) == sorted(left.values(), reverse=True)
    assert (left["briefs"], left["apart"]) == (found["in"], len(records))
    assert left["language"] < left["derivable"], "no question told its answer, so that check saw nothing"


def test_tables_of_ones_own_make_questions_with_computed_leaves(tmp_path):
    rivers = "name,mouth,length\n" + "".join(f"River {n},Town {n % 9},{100 + 7 * n}\n" for n in range(40))
    towns = "name,height,mayor\n" + "".join(f"Town {n},{3 + n * n},Person {n}\n" for n in range(9))
    tables = {
        "river": {"source": "csv", "key": "name", "options": {"file": "rivers.csv"}, "relations": {
            "river_mouth": {"column": "mouth", "label": "mouth", "joins": "town"},
            "river_length": {"column": "length", "label": "length", "kind": "number", "unit": "km"}}},
        "town": {"source": "csv", "key": "name", "options": {"file": "towns.csv"}, "relations": {
            "town_mayor": {"column": "mayor", "label": "mayor", "kind": "text"},
            "town_height": {"column": "height", "label": "height", "kind": "number"}}}}  # fmt: skip
    root = knowledge_in(tmp_path, rivers_yaml={"tables": tables}, rivers_csv=rivers, towns_csv=towns)
    questions = {"train": 60, "heldout": 0, "heldout_entities": 0, "heldout_tools": 0}
    changes = {"questions": questions, "same_relation": 1.0, "computed": 1.0}
    records = list(read_records(run_in(root, **changes), Decomposition))
    asked = {step.operation: one for one in records for step in one.steps if step.operation}
    assert asked.keys() == {"sum", "difference", "which_max", "which_min"}
    for operation, one in asked.items():
        first, second = (step.answer.value for step in one.steps if step.id in one.steps[-1].depends_on)
        subjects = [step.subject for step in one.steps if step.id in one.steps[-1].depends_on]
        larger = subjects[first < second]
        right = {"sum": first + second, "difference": abs(first - second), "which_max": larger,
                 "which_min": next(name for name in subjects if name != larger)}  # fmt: skip
        assert one.answer == one.steps[-1].answer
        assert one.answer.value == right[operation]
    assert {one.domain for one in records} == {"river", "town"}


def test_the_share_of_computed_leaves_moves_no_other_question(tmp_path):
    (tmp_path / "data/raw").mkdir(parents=True)
    (tmp_path / "data/raw/knowledge").symlink_to(ROOT / "data/raw/knowledge")
    questions = {"train": 150, "heldout": 0, "heldout_entities": 0, "heldout_tools": 0}
    plain, some = (
        list(read_records(run_in(tmp_path, **LARGE | {"questions": questions, "computed": share}), Decomposition))
        for share in (0, 1)
    )
    computed = [one for one in some if any(step.operation for step in one.steps)]
    assert computed
    assert {one.id for one in some} - {one.id for one in plain} == {one.id for one in computed}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reserve": {"pairs": 0.3, "countries": 2, "elements": 0, "relations": 1}}, "decompose.reserve.countries: 2, there are 2 entities of table river; reserve fewer"),
        ({"reserve": {"pairs": 0.3, "countries": 1, "elements": 0, "relations": 9}}, "decompose.reserve.relations: 9, there are 2 relations that join nothing"),
        ({}, "no table joins another; add joins to a relation"),
        ({"languages": {"zh": 1}}, "decompose.languages: zh: the built-in teacher (models.teacher.transport) writes English only"),
        ({"languages": {"xx": 1}}, "no check for xx; languages are: en, de"),
        ({"languages": {"en": 0}}, "every share is 0"),
        ({"min_quality": {"percentile": 101}}, "min_quality"),
    ],
)  # fmt: skip
def test_params_that_the_tables_or_the_teacher_cannot_serve_are_named(tmp_path, capsys, changes, says):
    table = {"source": "csv", "key": "name", "options": {"file": "r.csv"}, "relations": {
        "river_length": {"column": "length", "label": "length", "kind": "number"},
        "river_source": {"column": "source", "label": "source", "kind": "text"}}}  # fmt: skip
    root = knowledge_in(tmp_path, r_yaml={"tables": {"river": table}}, r_csv="name,length,source\na,1,x\nb,2,y\n")
    if "languages" in changes:
        changes = changes | {"shapes": PARAMS["shapes"] | {"multi_hop": 0, "parallel_multi_hop": 0}}
        changes |= {"questions": PARAMS["questions"] | {"train": 1}}
    with pytest.raises(SystemExit) as stop:
        run_in(root, **changes)
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


# ---------------------------------------------------------------- texts and given questions

TEXTS = {
    f"geo__t{n}_txt": f"# Place {n}\n\nThe capital of Land{n} is Town{n}. The founder of Town{n} was Person{n}.\n"
    for n in range(12)
}


def test_texts_need_an_endpoint_and_an_estimate_does_not(tmp_path, capsys):
    root = knowledge_in(tmp_path, **TEXTS)
    with pytest.raises(SystemExit) as stop:
        run_in(root)
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert "geo/t0.txt: a question is to be composed from this text; the built-in teacher cannot do that" in said
    assert "models.teacher" in said
    run_in(root, "--estimate")
    assert "teacher (astra-rules-1): 12 calls" in capsys.readouterr().err
    assert not (root / "data/decompose").exists()


def test_questions_without_sub_questions_need_an_endpoint_and_those_with_do_not(tmp_path, capsys):
    root = knowledge_in(tmp_path, qa_jsonl=[MUSIQUE, ASTRA, TWO_WIKI])
    found = {one.question: one for one in read_records(run_in(root, given={"heldout": 0}), Decomposition)}
    assert found.keys() == {MUSIQUE["question"], ASTRA["main_question"], TWO_WIKI["question"]}
    assert metrics(root)["sources"] == {"tables": 0, "texts": 0, "given": 3}
    assert metrics(root)["models"]["teacher"]["calls"] == 0
    knowledge_in(root, more_jsonl=[{"question": "Who was it?", "answer": "Ann"}])
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run_in(root)
    assert "more.jsonl:1: a question without sub-questions is to be divided" in capsys.readouterr().err


def test_an_endpoint_composes_from_texts_over_http_and_documents_keep_to_their_split(tmp_path, monkeypatch):
    root = knowledge_in(tmp_path, **TEXTS, qa_jsonl=[{"question": "What is the name of it?", "answer": "Ann"}])
    with Serving(tmp_path / "log.jsonl") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        path = run_in(root, teacher={"transport": "openai", "min_prompt_share": 0},
                      texts={"questions": 2, "joined": 0.5, "passage": 2000, "heldout": 0.4})  # fmt: skip
    records = list(read_records(path, Decomposition))
    assert {one.origin for one in records} == {"texts", "given"}
    assert {"single_hop", "multi_hop"} <= {one.shape for one in records}
    for one in records:
        for quote in (quote for step in one.steps for quote in step.evidence):
            assert (root / quote.document).exists() or (root / quote.document).read_text()
            assert (root / quote.document).read_text()[quote.start : quote.end] == quote.text
    heldout = Heldout.of(records)
    trained = [one for one in records if one.split == "train"]
    assert heldout.facts
    assert trained
    assert not [one.id for one in trained if heldout.conflict(one.question, of_steps(one.steps))]
    found = metrics(root)
    assert found["in"] == found["out"] + found["rejected"]


def test_given_questions_that_share_a_document_or_a_composition_are_not_trained_on_beside_held_out_ones(tmp_path):
    def row(n: int, album: str) -> dict:
        people = {
            "Who is the spouse of the": f"In case {n}, who is the spouse of the",
            "Steve Hillage": f"Man {n}",
            "Miquette Giraudy": f"Woman {n}",
            "Green": album,
            "2hop__1": f"q{n}",
        }
        text = json.dumps(MUSIQUE)
        for old, new in people.items():
            text = text.replace(old, new)
        return json.loads(text.replace("Hillage", f"Man {n}").replace('"Gong"', f'"Gong {n}"'))

    rows = [row(n, f"Album {n // 3}") for n in range(30)]
    root = knowledge_in(tmp_path, qa_jsonl=rows)
    records = list(read_records(run_in(root, given={"heldout": 0.3}), Decomposition))
    documents = {
        split: {
            quote.document for one in records if one.split == split for step in one.steps for quote in step.evidence
        }
        for split in ("train", "heldout")
    }
    assert documents["heldout"]
    assert documents["train"]
    assert not documents["train"] & documents["heldout"]
    assert set(rejects(root).values()) == {"heldout_document"}


def test_a_check_that_nothing_passes_is_counted_as_none_left(tmp_path):
    root = knowledge_in(tmp_path, qa_jsonl=[MUSIQUE | {"answer": "Someone Else"}])
    run_in(root)
    left = metrics(root)["left"]
    assert (left["evidence"], left["derivable"], left["language"], left["apart"]) == (1, 0, 0, 0)
    assert set(rejects(root).values()) == {"answer_not_derivable"}


def test_a_question_that_is_given_twice_is_kept_once(tmp_path):
    root = knowledge_in(tmp_path, qa_jsonl=[MUSIQUE, MUSIQUE | {"id": "again"}])
    assert len(list(read_records(run_in(root, given={"heldout": 0}), Decomposition))) == 1
    assert set(rejects(root).values()) == {"duplicate_question"}


def test_what_the_judge_finds_wanting_is_a_reject_and_the_threshold_may_be_a_percentile(tmp_path):
    loose = {"question": "Who was it?", "answer": "Ann", "steps": [
        {"id": 1, "question": "Who wrote it?", "answer": "Bo"},
        {"id": 2, "question": "Who was the friend?", "answer": "Ann", "depends_on": [1]}]}  # fmt: skip
    root = knowledge_in(tmp_path, qa_jsonl=[MUSIQUE, TWO_WIKI, loose])
    changes = {"given": {"heldout": 0}}
    assert len(list(read_records(run_in(root, **changes, min_quality=0.5), Decomposition))) == 3
    for least in (1.0, {"percentile": 90}, {"percentile": 40}):
        assert len(list(read_records(run_in(root, **changes, min_quality=least), Decomposition))) == 2
        assert list(rejects(root).values()) == ["low_quality"]
        assert metrics(root)["min_quality"] == 1.0
    assert len(list(read_records(run_in(root, **changes, min_quality={"percentile": 10}), Decomposition))) == 3


# ---------------------------------------------------------------- rules


@pytest.fixture
def evidence(knowledge):
    city, country = knowledge.relations["airport_city"], knowledge.relations["city_country"]
    return Evidence("train", "multi_hop", ((Hop(city, "LHR", "London"), Hop(country, "London", "UK")),))


@pytest.fixture(scope="module")
def knowledge():
    from astra.knowledge import Knowledge

    return Knowledge.load(ROOT / "data/raw/knowledge/knowledge.yaml")


def reply(asks="Which country?", gives="UK", **second):
    first = {"id": 1, "question": "Host city of LHR?", "answer": "London", "depends_on": [], "needs_tool": True,
             "relation": "airport_city", "subject": "LHR"}  # fmt: skip
    later = {**first, "id": 2, "question": "Home country of London?", "answer": "UK", "depends_on": [1],
             "relation": "city_country", "subject": "London", **second}  # fmt: skip
    return ComposeReply.model_validate({"question": asks, "answer": gives, "steps": [first, later]})


def reason(call):
    with pytest.raises(Unsound) as error:
        call()
    return error.value.reason


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"depends_on": [3]}, "dangling_dependency"),
        ({"depends_on": [2]}, "cyclic_dependency"),
        ({"id": 1, "depends_on": []}, "duplicate_step"),
        ({"answer": "France"}, "answer_not_derivable"),
        ({"subject": "Paris"}, "answer_not_derivable"),
        ({"needs_tool": False}, "fact_unused"),
    ],
)
def test_steps_that_do_not_follow_from_the_facts_are_unsound(evidence, change, expected):
    assert reason(lambda: to_steps(reply(**change), evidence)) == expected


def test_an_answer_that_the_tables_do_not_give_is_unsound(evidence):
    brief = TableBrief("evidence-0", evidence)
    assert isinstance(brief.draft(reply("Which country is LHR in?")), Draft)
    assert reason(lambda: brief.draft(reply("Which country is LHR in?", "France"))) == "answer_not_derivable"


def test_a_step_that_was_not_judged_or_judged_twice_is_no_score(evidence):
    verdict = {"dependency": 1, "atomicity": 1, "rationality": 1}
    steps = to_steps(reply(), evidence)
    for judged in ([1], [1, 1], [1, 2, 3], [2, 3], []):
        verdicts = {"steps": [verdict | {"id": number} for number in judged], "completeness": 1, "reason": ""}
        assert reason(lambda given=verdicts: quality(VerifyReply.model_validate(given), steps)) == "unjudged"


def test_qs_is_the_mean_of_the_four_checks_each_over_the_steps(evidence):
    verdicts = {"steps": [{"id": 1, "dependency": 1, "atomicity": 1, "rationality": 0},
                          {"id": 2, "dependency": 0, "atomicity": 1, "rationality": 0}],
                "completeness": 1, "reason": ""}  # fmt: skip
    found = quality(VerifyReply.model_validate(verdicts), to_steps(reply(), evidence))
    assert found == {"DC": 0.5, "SA": 1.0, "SR": 0.0, "TC": 1.0}


@pytest.mark.parametrize(
    ("percentile", "least"),
    [(0, 0.25), (10, 0.25), (25, 0.25), (26, 0.5), (50, 0.5), (75, 0.75), (90, 1.0), (100, 1.0)],
)
def test_a_percentile_is_the_smallest_quality_that_so_many_percent_do_not_exceed(percentile, least):
    assert threshold(Percentile(percentile=percentile), [1.0, 0.25, 0.75, 0.5]) == least
    assert threshold(Percentile(percentile=percentile), [1.0] * 5) == 1.0


def test_a_threshold_is_a_value_or_a_percentile():
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())["decompose"]
    assert Params.model_validate(tree).min_quality == 1.0
    assert Params.model_validate(tree | {"min_quality": {"percentile": 90}}).min_quality == Percentile(percentile=90)
    for wrong in (True, 1.5, -0.1, {"percentile": 90, "of": "x"}, {"quantile": 0.9}, "P90"):
        with pytest.raises(ValueError, match="min_quality"):
            Params.model_validate(tree | {"min_quality": wrong})
