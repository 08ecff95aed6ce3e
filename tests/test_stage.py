"""The stage runtime: what comes in is validated, what goes out appears whole, bad input names its place."""

from __future__ import annotations

import io
import json
import os
import sys
import time

import pytest
import yaml
from pydantic import Field

from astra.records import Reject, Section, Task
from astra.stage import BadParams, BadRecord, Contract, Run, StageError, load_params, read_records, write_records
from tests.terminal import Terminal


class Params(Section):
    rate: float = Field(ge=0, le=1)
    count: int = Field(ge=1)


CONTRACT = Contract(
    name="demo",
    reads={"things": "in.jsonl"},
    writes={"others": "data/demo/out.jsonl"},
    params={"seed": int, "demo": Params},
)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("seed: 3\ndemo: {rate: 0.5, count: 2}\n")
    write_records("in.jsonl", [Reject(id=f"r{n}", reason="kept", detail="é") for n in range(3)])
    return tmp_path


def run_demo() -> None:
    with Run(CONTRACT) as run:
        things = run.read("things", Reject)
        run.n_in = len(things)
        run.reject(things[0].id, "too_small", "n is 0")
        run.n_out = run.write("others", things[1:])
        run.metrics["extra"] = 1


def test_a_run_writes_records_rejects_and_metrics_and_says_so_in_one_line(workspace, capsys):
    run_demo()
    assert len(list(read_records("data/demo/out.jsonl", Reject))) == 2
    assert [reject.reason for reject in read_records("data/demo/rejects.jsonl", Reject)] == ["too_small"]
    assert json.loads((workspace / "metrics/demo.json").read_text()) == {
        "in": 3, "out": 2, "rejected": 1, "rejects": {"too_small": 1}, "extra": 1,
    }  # fmt: skip
    assert capsys.readouterr().err.startswith("demo: 3 in, 2 out, 1 rejected (too_small 1), ")


def test_a_stage_that_loses_a_record_does_not_close(workspace):
    with pytest.raises(AssertionError, match="lost records: 3 in, 0 out, 0 rejected"), Run(CONTRACT) as run:
        run.n_in = 3
    assert not (workspace / "metrics/demo.json").exists()


def test_a_stage_that_fails_writes_neither_metrics_nor_rejects(workspace):
    with pytest.raises(RuntimeError), Run(CONTRACT) as run:
        run.reject("r0", "odd", "")
        raise RuntimeError("machine stopped")
    assert not (workspace / "data/demo").exists()


def test_a_stage_error_is_one_message_and_exit_code_2(workspace, capsys):
    with pytest.raises(SystemExit) as exit_info, Run(CONTRACT):
        raise StageError("in.jsonl: nothing usable")
    assert exit_info.value.code == 2
    assert capsys.readouterr().err == "demo: in.jsonl: nothing usable\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"id": "x", "reason": "a"}', "in.jsonl:2: not a Reject: detail: Field required"),
        (b'{"id": "x", "reason": "a", "detail": "", "more": 1}', "more: Extra inputs are not permitted"),
        (b'{"id": "x", "reason"', "in.jsonl:2: not a Reject: the line: Invalid JSON"),
        (b"\xff\xfe", "in.jsonl:2: not a Reject"),
        (b"", "in.jsonl:2: not a Reject"),
    ],
)
def test_a_broken_line_is_named_by_file_line_and_field(workspace, line, says):
    good = (workspace / "in.jsonl").read_bytes().splitlines()
    (workspace / "in.jsonl").write_bytes(good[0] + b"\n" + line + b"\n" + good[1] + b"\n")
    with pytest.raises(BadRecord) as error:
        list(read_records("in.jsonl", Reject))
    assert says in str(error.value)


def test_a_missing_input_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(BadRecord, match="dvc repro"):
        list(read_records(tmp_path / "none.jsonl", Reject))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rate": 2}, "demo.rate: Input should be less than or equal to 1 (got 2)"),
        ({"rate": "high"}, "demo.rate: Input should be a valid number"),
        ({"ratte": 1}, "demo.ratte: unknown key. Known keys of demo: rate, count"),
        ({"count": None}, "demo.count: Input should be a valid integer"),
    ],
)
def test_a_wrong_parameter_is_named_with_key_value_and_what_is_allowed(workspace, change, says):
    tree = {"seed": 3, "demo": {"rate": 0.5, "count": 2, **change}}
    (workspace / "params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(BadParams) as error:
        load_params(CONTRACT.params)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("demo: {rate: 1, count: 1}", "seed: missing"),
        ("seed: yes\ndemo: {rate: 1, count: 1}", "seed: expected int, got True"),
        ("seed: [", "not valid YAML"),
        ("", "seed: missing"),
    ],
)
def test_a_params_file_that_cannot_serve_says_why(workspace, text, says):
    (workspace / "params.yaml").write_text(text)
    with pytest.raises(BadParams) as error:
        load_params(CONTRACT.params)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed: 2026-13-45\ndemo: {rate: 1, count: 1}", "seed: expected int, got '2026-13-45'"),
        ("seed: 2026-01-05\ndemo: {rate: 1, count: 1}", "seed: expected int, got '2026-01-05'"),
        ("seed: 1\ndemo: !!set {a, b}", "params.yaml:2:7: not valid YAML: could not determine a constructor"),
        ("seed: 1\ndemo: !!python/name:os.system x", "params.yaml:2:7: not valid YAML"),
        ("seed: !!int x\n", "params.yaml:1:7: not valid YAML: int: invalid literal"),
        ("seed: !!timestamp x\n", "params.yaml:1:7: not valid YAML"),
        ("seed: !!binary x\n", "params.yaml:1:7: not valid YAML"),
        ("seed: 1\nseed: 2\n", "params.yaml:2:1: not valid YAML: the key 'seed' stands twice in one mapping (got 'seed: 2')"),
        ("seed: 1\ndemo: {rate: 1, rate: 0.5}", "the key 'rate' stands twice"),
        ("seed: 1\ndemo:\n\trate: 1", "params.yaml:3:1: not valid YAML"),
        ("seed: 1\ndemo: &loop {rate: *loop}", "an anchor contains itself"),
        ("seed: 1\ndemo: &loop [*loop]", "an anchor contains itself"),
        ("seed: 1\n? [a, b]\n: 2", "a key must be a text"),
        ("- seed", "expected a mapping of sections, got"),
        ("seed", "expected a mapping of sections, got 'seed'"),
        ("a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]", "too many values"),
        ("seed: " + "[" * 3000, "not valid YAML"),
    ],
)  # fmt: skip
def test_yaml_that_readers_would_disagree_about_is_named_by_file_line_and_value(workspace, text, says):
    (workspace / "params.yaml").write_text(text)
    with pytest.raises(BadParams) as error:
        load_params(CONTRACT.params)
    assert says in str(error.value)
    assert str(error.value).startswith("params.yaml")


def test_a_byte_order_mark_and_shared_anchors_are_fine(workspace):
    text = "\ufeffseed: 3\nshared: &shared {rate: 0.5}\ndemo: {<<: *shared, count: 2}\n"
    (workspace / "params.yaml").write_text(text, encoding="utf-8")
    assert load_params(CONTRACT.params)["demo"].rate == 0.5


def test_a_number_that_dvc_writes_without_a_point_is_still_a_number(workspace):
    (workspace / "params.yaml").write_text("seed: 1\ndemo: {rate: 1e-05, count: 2}\n")
    assert load_params(CONTRACT.params)["demo"].rate == 1e-05


def test_an_output_appears_whole_or_not_at_all(tmp_path):
    def breaks():
        yield Reject(id="a", reason="b", detail="")
        raise OSError("disk full")

    target = tmp_path / "out.jsonl"
    target.write_text("before\n")
    with pytest.raises(OSError, match="disk full"):
        write_records(target, breaks())
    assert target.read_text() == "before\n"


def test_a_number_that_is_not_json_is_refused_on_write(tmp_path):
    from astra.records import Answer, Record

    class Holder(Record):
        answer: Answer

    with pytest.raises(ValueError, match="Out of range float"):
        write_records(tmp_path / "x.jsonl", [Holder(answer=Answer(kind="number", value=float("inf")))])
    assert os.listdir(tmp_path) == []


def test_a_params_file_that_is_not_utf8_says_so(workspace):
    (workspace / "params.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadParams, match="not valid YAML"):
        load_params(CONTRACT.params)


def test_an_infinite_parameter_is_out_of_range():
    class Pause(Section):
        seconds: float = Field(gt=0)

    with pytest.raises(ValueError, match="finite"):
        Pause(seconds=float("inf"))


def test_an_input_folder_that_is_not_there_is_never_taken_for_a_hub_id(workspace, capsys):
    with pytest.raises(SystemExit) as stopped, Run(CONTRACT) as run:
        run.need_folders("things")
    assert stopped.value.code == 2
    assert "in.jsonl: no such folder" in capsys.readouterr().err


def test_an_empty_input_stops_the_stage_and_points_at_the_rejects(workspace, capsys):
    (workspace / "in.jsonl").write_text("")
    with pytest.raises(SystemExit) as stopped:
        run_demo()
    assert stopped.value.code == 2
    assert "in.jsonl: holds no records" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_one_message(workspace, capsys):
    (workspace / "data").write_text("a file where a folder should be")
    with pytest.raises(SystemExit) as stopped:
        run_demo()
    assert stopped.value.code == 2
    assert "data" in capsys.readouterr().err


def test_an_interrupted_stage_says_so_without_a_traceback(workspace, capsys):
    with pytest.raises(SystemExit) as stopped, Run(CONTRACT):
        raise KeyboardInterrupt
    assert stopped.value.code == 130
    assert capsys.readouterr().err.startswith("demo: interrupted")


@pytest.mark.parametrize("value", ["true", "{rate: 0.5, count: false}"])
def test_true_is_no_number(workspace, value):
    text = f"seed: 3\ndemo: {value}\n" if value[0] == "{" else f"seed: 3\ndemo: {{rate: {value}, count: 2}}\n"
    (workspace / "params.yaml").write_text(text)
    with pytest.raises(BadParams, match=r"demo\.(rate|count).*true and false are no values"):
        load_params(CONTRACT.params)


def test_a_repeated_id_is_named_with_both_of_its_lines(workspace):
    task = {"id": "task-1", "server_ids": ["s"], "chain_id": None, "question": "q", "target_tools": ["t"], "origin": "server",
            "augmentation": "none", "quality": {}}  # fmt: skip
    (workspace / "tasks.jsonl").write_text("\n".join(json.dumps(one) for one in (task, {**task, "id": "b"}, task)))
    with pytest.raises(BadRecord, match=r"tasks\.jsonl:3: id 'task-1' is that of line 1 too"):
        list(read_records("tasks.jsonl", Task))


def test_a_flag_that_a_stage_does_not_know_is_refused(workspace):
    with pytest.raises(SystemExit), Run(CONTRACT, ("--estimate",)):
        pass


ASKING = Contract(
    name="demo",
    reads={},
    writes={"others": "data/demo/out.jsonl"},
    params={"models.judge": dict},
    settings={"demo": Params},
)


def test_an_estimate_reads_and_counts_and_writes_nothing(workspace, capsys):
    (workspace / "params.yaml").write_text("models: {judge: {}}\ndemo: {rate: 0.5, count: 2}\n")
    with Run(ASKING, ("--estimate",)) as run:
        assert run.settings["demo"].count == 2
        run.n_in = 1
        run.n_out = run.write("others", [Reject(id="a", reason="b", detail="c")])
        run.write_replies([])
        run.usage = "3 calls"
    assert not (workspace / "data").exists()
    assert not (workspace / "metrics").exists()
    assert capsys.readouterr().err == "3 calls\n"


@pytest.mark.parametrize(("stderr", "shown"), [(Terminal, True), (io.StringIO, False)])
def test_a_bar_shows_what_asking_has_cost_on_a_terminal_only(monkeypatch, tmp_path, stderr, shown):
    monkeypatch.setattr(sys, "stderr", stderr())
    run, asked = Run(CONTRACT), iter(range(1, 99))
    run.spent = lambda: f"{next(asked)} calls, 0.41 USD"
    slowly = (time.sleep(0.12) or one for one in "abc")  # a bar is drawn every tenth of a second at most
    assert list(run.progress(slowly, total=3, unit="task")) == list("abc")
    assert ("calls, 0.41 USD" in sys.stderr.getvalue()) is shown
