"""The report's parts without a browser: chunks, yields, pictures, the summary, the stage."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import vl_convert
import yaml
from dvc_render.vega import VegaRenderer

from astra.report import charts, dag, views, yields
from astra.report.__main__ import main as report
from astra.report.chunks import CHARACTERS, ROWS, Column, Entry, Kind, Shelf, safe_json, script, shortened, spread
from astra.report.pages import inlined
from astra.report.reading import METRICS, STAGES, numbers, rows
from astra.report.summary import durations, summary
from astra.stage import StageError
from stages.report import main
from tests.import_closure import ROOT
from tests.report_run import HOSTILE, arenas, graphs, servers, write_run

LETTERS = Kind("letter", "Letters", (Column("words", "Words", "text"), Column("kind", "Kind", "facet"),
                                     Column("marks", "Marks", "tags"), Column("n", "N", "number")))  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(write_run(tmp_path, 6, 9))
    return tmp_path


def taken(text: str) -> tuple[str, object]:
    """What a chunk's script hands to the page: a name, and a text in the one comment of a function."""
    found = re.fullmatch(r'astra\.take\(("[^"\\]*"),function\(\)\{/\*(.*)\*/\}\);\n', text)
    assert found is not None
    assert "*/" not in found.group(2)
    return json.loads(found.group(1)), json.loads(found.group(2))


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize("value", [
    HOSTILE, "\ud800 alone", "\\' \\\\' \\u0027 '", {"__proto__": {"a": 1}, "constructor": None}, ["\x00\x7f\x85\ufeff"],
    "</SCRIPT\n>", "\r\n\u2028", {"</script>": "<!--"}, "x" * 50_000, "*/}); hacked(); (function(){/*", "**//", 10**30, 1e308, [[]], "\U0001f600",
])  # fmt: skip
def test_a_chunk_says_exactly_what_was_put_in_and_is_plain_ascii_without_markup(value):
    text = script("letter-list-0", safe_json(value))
    assert taken(text) == ("letter-list-0", value)
    assert text.isascii()
    assert not set(text[:-1]) & set("<>&\x00\x7f\r\n")


def test_a_number_that_json_lacks_is_refused():
    with pytest.raises(ValueError, match="Out of range"):
        safe_json(float("nan"))


def test_every_entry_is_found_again_by_its_place_and_its_id(tmp_path):
    shelf = Shelf(tmp_path, LETTERS)
    n = 2 * ROWS + 7
    for k in range(n):
        words = "w" * (CHARACTERS + 5 if k == 3 else 700)
        shelf.add(Entry(f"letter-{k}:\U0001f600", (words[:9], "ab"[k % 2], ["x", "y"][: k % 3], k), {"k": k, "words": words},
                        [safe_json({"name": f"t{k % 4}"})]))  # fmt: skip
    told = shelf.close()

    def chunk(name):
        return taken((tmp_path / f"{name}.js").read_text())[1]

    for k in (0, 2, 3, 4, ROWS - 1, ROWS, n - 1):
        assert chunk(f"letter-list-{k // ROWS}")[k % ROWS][0] == f"letter-{k}:\U0001f600"
        at = max(m for m, start in enumerate(told["starts"]) if start <= k)
        records = chunk(f"letter-records-{at}")
        record = records["records"][k - told["starts"][at]]
        assert record["k"] == k
        assert [records["tools"][m] for m in record["offered"]] == [{"name": f"t{k % 4}"}]
        places = dict(chunk(f"letter-places-{spread(f'letter-{k}:' + chr(0x1F600)) % told['places']}"))
        assert places[f"letter-{k}:\U0001f600"] == k
    assert told["n"] == n
    assert told["lists"] == 3
    assert dict(told["choices"]["kind"]) == {"a": ROWS + 4, "b": ROWS + 3}
    assert sum(dict(told["choices"]["marks"]).values()) == sum(k % 3 for k in range(n))
    assert max(len(file.read_bytes()) for file in tmp_path.iterdir()) < 2 * CHARACTERS


def test_a_kind_without_records_has_chunks_that_say_so(tmp_path):
    told = Shelf(tmp_path, LETTERS).close()
    assert (told["n"], told["lists"], told["starts"]) == (0, 0, [])
    assert taken((tmp_path / "letter-places-0.js").read_text())[1] == []


def test_a_long_text_is_shortened_on_one_line():
    assert shortened("a\n b\u2028c") == "a b c"
    assert len(shortened("word " * 10**6)) == 240
    assert shortened(None) == ""


def test_a_program_in_the_page_cannot_end_its_element():
    text = inlined("x = '</script><SCRIPT></sCript ><!--'; /</g; 1<2")
    assert "</script" not in text.lower()
    assert "<!--" not in text
    assert "/</g; 1<2" in text


# ---------------------------------------------------------------- views


def test_every_kind_has_entries_that_fit_its_columns(run):
    from astra.report.reading import entries

    found = {kind: list(some) for kind, some in entries().items()}
    assert set(found) == {kind.name for kind in views.KINDS}
    columns = {kind.name: kind.columns for kind in views.KINDS}
    for kind, some in found.items():
        assert some, kind
        for entry in some:
            assert len(entry.row) == len(columns[kind])
            for column, value in zip(columns[kind], entry.row, strict=True):
                expected = {"number": (int, float, type(None)), "tags": list}.get(column.role, str)
                assert isinstance(value, expected), (kind, column, value)
    assert len({entry.id for entry in found["reject"]}) == 9


def test_an_edge_to_another_server_is_drawn_with_that_servers_name():
    server = next(servers())
    entry = views.graph(server, next(graphs()), {"server-000000000001": "City Bikes"})
    assert {"City Bikes/get_document", "find_client"} <= {box["label"] for box in entry.record["boxes"]}
    assert entry.row[-1] == 3


def test_an_arena_keeps_its_code_and_certificate():
    record = views.arena(next(arenas())).record
    assert record["code"][0]["code"].startswith("def find_client")
    assert record["certificate"]["checks"] == {"golden": True, "no_leak": False}


# ---------------------------------------------------------------- yields


OF_TWO_STAGES = {
    "normalize": {"in": 10, "out": 8, "rejected": 2, "rejects": {"too_few": 2}},
    "graph": {"in": 4, "out": 2, "rejected": 2, "rejects": {"no_edges": 2}},
    "merge": {"in": 5, "out": 5, "rejected": 0, "splits": {"train": 4, "heldout": 1}},
}


def test_the_yield_of_all_is_the_product_of_the_gates():
    table = {row["stage"]: row for row in yields.table(yields.gates(OF_TWO_STAGES, {}))}
    assert (table["normalize"]["yield"], table["graph"]["yield"]) == (0.8, 0.5)
    assert table["graph"]["of_all"] == 0.4
    assert table["rl"]["kept_apart"] == 1
    assert table["rl"]["rejected"] == 0


def test_of_sft_only_the_imitation_line_counts():
    found = {"score": {"in": 9, "out": 9, "rejected": 0}, "sft": {"in": 100, "out": 93, "rejected": 7, "imitation": 4}}
    gate = yields.gates(found, {"too_long": 5})[-1]
    assert (gate.stage, gate.n_in, gate.n_out, dict(gate.rejected)) == ("sft", 9, 4, {"too_long": 5})


def test_a_gate_to_which_nothing_came_took_nothing_away():
    assert yields.Gate("imitation", "graph", "servers", 0, 0, {}).share == 1
    assert [row["mark"] for row in yields.flow([yields.Gate("imitation", "graph", "servers", 0, 0, {})])].count(
        "text"
    ) == 1


def test_what_falls_and_what_passes_is_as_wide_as_what_came():
    points = [row for row in yields.flow(yields.gates(OF_TWO_STAGES, {})) if row["mark"] == "area"]
    for stage, came in (("normalize", 1.0), ("graph", 0.8)):
        mine = [row for row in points if row["stage"] == stage]
        first = {row["ribbon"]: row for row in reversed(mine)}
        fallen = sum(row["x2"] - row["x"] for row in first.values() if row["fate"] == "rejected")
        last = max((row for row in mine if row["fate"] == "passed"), key=lambda row: row["y"])
        assert fallen + last["x2"] == pytest.approx(came)


# ---------------------------------------------------------------- pictures


def test_the_pipeline_is_drawn_with_each_stage_after_those_that_feed_it():
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    one = dag.picture(dag.lines(pipeline, "report"))
    assert {"normalize", "merge", "sft", "rl", "eval"} <= set(one.spots)
    assert "report" not in one.spots
    assert all(one.spots[a][0] < one.spots[b][0] for a, b in one.lines)
    assert len(set(one.spots.values())) == len(one.spots)


SPECS = {
    "flow": lambda: charts.flows(yields.flow(yields.gates(OF_TWO_STAGES, {})))[0][1],
    "benchmarks": lambda: charts.benchmarks(
        [{"benchmark": "b", "measure": "f1", "mode": mode, "model": "sft", "mean": 0.5, "low": 0.4, "high": 0.6, "n": 9}
         for mode in ("greedy", "sampled")]
    )[0][1],
    "curve": lambda: charts.curve([{"step": 1, "loss": 2.0}, {"step": 2, "loss": None}], "step", ("loss", "none"), "loss"),
    "histogram": lambda: charts.histogram({"low": 3, "high": 1}, "tools", charts.BANDS),
    "study": lambda: charts.studies(
        [{"curve": "f1", "measure": "recall", "update": k, "mean": 0.5, "low": None, "high": None, "seeds": 1}
         for k in range(3)], ("recall",)
    )[0][1],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_every_picture_is_valid_vega_lite(name):
    assert "<path" in vl_convert.vegalite_to_svg({**SPECS[name](), "width": 300})


@pytest.mark.parametrize(("template", "x", "y", "shown"), [
    ("flow", "x", "what", ["normalize: 10 tools → 8", "−2 no_edges"]),
    ("intervals", "mean", "bar", ["heldout, greedy, sft"]),
    ("band", "update", "mean", ["recall", "f1"]),
])  # fmt: skip
def test_what_dvc_plots_draws_with_our_templates_shows_numbers_that_a_csv_holds_as_text(template, x, y, shown):
    data = {
        "flow": yields.flow(yields.gates(OF_TWO_STAGES, {})),
        "intervals": [{"bar": "heldout, greedy, sft", "mean": 0.5, "low": 0.4, "high": 0.6, "n": 9}],
        "band": [
            {"curve": "f1", "measure": "recall", "update": k, "mean": k, "low": k - 1, "high": k + 1} for k in (9, 10)
        ],
    }[template]

    def drawn(told) -> str:
        points = [{**{key: told(value) for key, value in row.items()}, "rev": "workspace"} for row in data]
        renderer = VegaRenderer(points, "p", template=template, template_dir=str(ROOT / ".dvc" / "plots"), x=x, y=y)
        return vl_convert.vegalite_to_svg(renderer.get_filled_template())

    svg = drawn(str)
    assert svg == drawn(lambda value: value)
    for words in shown:
        assert words in svg
    assert "NaN" not in svg


# ---------------------------------------------------------------- the stage and the commands


def test_the_stage_writes_pages_plots_and_metrics(run):
    main()
    n = json.loads((run / "metrics/report.json").read_text())
    assert n["in"] == n["out"] == 6 + 9 + 2 + 1 + 1 + 2 + 1 + 2
    page = (run / "reports/index.html").read_text(encoding="utf-8")
    assert "not run: arm precision" in page
    assert "-0.125" in page
    assert [row["stage"] for row in rows("plots/yield.csv")][:2] == ["normalize", "graph"]
    assert [row["tools"] for row in rows("plots/bands.csv")] == [1, 2, 3, 4]
    with open("plots/flow.csv", encoding="utf-8", newline="") as file:
        assert {row["mark"] for row in csv.DictReader(file)} == {"area", "text"}


def test_two_runs_write_the_same_bytes(run):
    def written() -> dict[str, bytes]:
        assert report([]) == 0
        return {file.name: file.read_bytes() for file in sorted((run / "reports").rglob("*.*")) if file.is_file()}

    first = written()
    (run / "reports/data/left-over.js").write_text("old")
    assert written() == first


def test_a_missing_input_stops_the_stage_and_names_it(run, capsys):
    Path("data/tasks/tasks.jsonl").unlink()
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "data/tasks/tasks.jsonl: no such file. Run the stage that writes it" in capsys.readouterr().err


def test_half_a_run_has_a_report_too(run):
    for stage in STAGES[2:]:
        Path(METRICS[stage]).unlink()
        shutil.rmtree(f"data/{stage}", ignore_errors=True)
    shutil.rmtree("plots")
    assert report([]) == 0
    page = (run / "reports/index.html").read_text(encoding="utf-8")
    assert "not run" in page
    assert "Nothing was trained yet." in page


def test_where_nothing_ran_it_is_said_what_to_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert report([]) == 2
    assert "Run: dvc repro" in capsys.readouterr().err


def test_broken_metrics_are_named(run):
    Path(METRICS["chains"]).write_text("{")
    with pytest.raises(StageError, match=r"metrics/chains.json: not JSON: .* dvc repro -f metrics/chains.json"):
        numbers()


def test_the_summary_has_a_line_for_each_stage_and_the_results(run):
    text = summary(numbers(), {}, Path("reports"))
    assert re.search(r"^chains +10 +1 +9 +10 +0\.25 +voted_down 6, not_given_back 3$", text, re.MULTILINE)
    assert "in all: 20 calls (8 kept), 2,100 tokens, 0.50 USD" in text
    assert "heldout, greedy: f1  base 0.000 [0.000, 0.000]  sft 0.500 [0.400, 0.600]" in text
    assert "time" not in text.splitlines()[0]


def test_the_time_of_a_stage_is_what_lies_between_its_end_and_the_one_before():
    assert durations({"graph": 130.0, "normalize": 110.0, "eval": 50.0}, 100.0) == {"normalize": 10.0, "graph": 20.0}


def test_a_stage_that_did_not_run_has_no_time(run):
    text = summary(numbers(), {"chains": 75.0}, Path("reports"))
    assert re.search(r"^chains .* 1 min 15 s ", text, re.MULTILINE)
    assert re.search(r"^tasks .* not run", text, re.MULTILINE)
    assert "1 min 15 s for 1 stages" in text
