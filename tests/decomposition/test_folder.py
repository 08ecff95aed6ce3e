"""What lies in the folder of knowledge is recognised, and what cannot be read says where and what to do."""

from __future__ import annotations

import json

import pytest

from astra.decomposition.draft import SourceError
from astra.decomposition.folder import read_folder
from astra.knowledge import Knowledge
from tests.decomposition.sources import ASTRA, HOTPOT, HOTPOT_COLUMNS, MUSIQUE, TWO_WIKI, folder

RIVERS = "name,mouth,length\nSeine,Le Havre,777\nOrne,Ouistreham,170\n"
TOWNS = "name,height\nLe Havre,3\nOuistreham,5\n"
TABLES = {
    "tables": {
        "river": {
            "source": "csv", "key": "name", "options": {"file": "rivers.csv"},
            "relations": {"river_mouth": {"column": "mouth", "label": "mouth", "joins": "town"},
                          "river_length": {"column": "length", "label": "length", "kind": "number", "unit": "km"}},
        },
        "town": {"source": "csv", "key": "name", "options": {"file": "towns.csv"},
                 "relations": {"town_height": {"column": "height", "label": "height", "kind": "number"}}},
    }
}  # fmt: skip


def test_csv_files_beside_their_description_are_tables_that_join(tmp_path):
    raw = read_folder(folder(tmp_path, rivers_yaml=TABLES, rivers_csv=RIVERS, towns_csv=TOWNS))
    assert raw.knowledge.value("river_mouth", "Seine") == "Le Havre"
    assert raw.knowledge.value("town_height", "Le Havre") == 3
    assert (raw.documents, raw.given) == ((), ())


def test_descriptions_of_a_folder_are_read_as_one(tmp_path):
    river, town = ({"tables": {name: TABLES["tables"][name]}} for name in ("river", "town"))
    place = folder(tmp_path, a_yaml=river, b_yml=town, rivers_csv=RIVERS, towns_csv=TOWNS)
    assert Knowledge.load(place).value("river_mouth", "Orne") == "Ouistreham"
    folder(tmp_path, c_yaml=town)
    with pytest.raises(SourceError, match=r"c.yaml: tables.town: .*b.yml has a table of that name"):
        read_folder(place)


def test_a_folder_without_descriptions_has_no_tables(tmp_path):
    assert Knowledge.load(folder(tmp_path, a_txt="x")).tables == ()


def test_documents_come_from_texts_and_rows_with_their_domain(tmp_path):
    place = folder(
        tmp_path,
        history__peru_md="# Peru\n\nLima is the capital.",
        notes_txt="Some text.",
        rows_jsonl=[{"id": "d1", "title": "T", "text": "One."}, {"contents": "Two.", "domain": "law"}],
        README_md="No knowledge.",
    )
    found = {one.title: (one.id.removeprefix(str(place)), one.domain) for one in read_folder(place).documents}
    assert found == {
        "Peru": ("/history/peru.md", "history"),
        "notes": ("/notes.txt", "notes"),
        "T": ("d1", "rows"),
        "": ("/rows.jsonl:2", "law"),
    }


@pytest.mark.parametrize(
    ("row", "has_steps", "documents"),
    [
        (HOTPOT, False, ["Ann Lee", "Bo Hay"]),
        (HOTPOT_COLUMNS, False, ["Blue"]),
        (TWO_WIKI, True, ["North", "Ann Lee", "South", "Bo Hay"]),
        (MUSIQUE, True, ["Green", "Gong"]),
        (ASTRA, True, []),
        ({"question": "Who?", "answer": "Ann"}, False, []),
        ({"question": "Who?", "answer": "Ann", "context": "Ann did."}, False, [""]),
        ({"question": "Who?", "answer": "Ann", "steps": [{"question": "Who then?", "answer": "Ann"}]}, True, []),
    ],
)
def test_a_given_question_is_known_by_its_keys(tmp_path, row, has_steps, documents):
    (given,) = read_folder(folder(tmp_path, qa_jsonl=[row])).given
    assert (given.steps is not None, [one.title for one in given.documents]) == (has_steps, documents)
    assert given.language == "en"


def test_json_and_csv_files_hold_questions_too(tmp_path):
    steps = json.dumps([{"question": "Where is it?", "answer": "Lima"}]).replace('"', '""')
    place = folder(
        tmp_path,
        list_json=json.dumps([{"question": "Who?", "answer": "Ann"}]),
        data_json=json.dumps({"version": 1, "data": [{"question": "Where?", "answer": "Lima"}]}),
        rows_csv=f'question,answer,steps\nWhere then?,Lima,"{steps}"\n',
    )
    found = {one.question: one.steps and len(one.steps) for one in read_folder(place).given}
    assert found == {"Who?": None, "Where?": None, "Where then?": 1}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a_pdf", "x", "a.pdf: no source reads .pdf; there may lie: YAML files of tables, .txt"),
        ("a_txt", " \n", "a.txt: the document is empty"),
        ("a_jsonl", '{"text": "x"}\n{"text": \n', "a.jsonl:2: not JSON"),
        ("a_jsonl", "[1]\n", "a.jsonl:1: an object is needed here (got '[1]')"),
        ("a_jsonl", "\n", "a.jsonl: holds no rows"),
        ("a_jsonl", [{"name": "x"}], "a.jsonl:1: neither a document (text, contents, content, body) nor a question; its keys are: name"),
        ("a_jsonl", [{"text": "x"}, {"txt": "y"}], "a.jsonl:2: text: a text is needed here"),
        ("a_jsonl", [{"question": "Who?", "answer": ""}], "a.jsonl:1: answer: a question needs its answer"),
        ("a_jsonl", [{"question": 3, "answer": "x"}], "a.jsonl:1: question: a text is needed here (got '3')"),
        ("a_jsonl", [{"question": "Q?", "answer": "x", "steps": []}], "a.jsonl:1: steps: it is empty"),
        ("a_jsonl", [{"question": "Q?", "answer": "x", "steps": [{"question": "R?"}]}], "steps[0]: answer: a sub-question needs its answer"),
        ("a_jsonl", [{"question": "Q?", "answer": "x", "steps": [{"id": "one", "question": "R?", "answer": 1}]}], "steps[0]: id: Input should be a valid integer"),
        ("a_jsonl", [MUSIQUE | {"question_decomposition": [{"question": "#2 >> x", "answer": "y"}]}], "sub-question 1: question: it refers to a sub-question that does not stand before it"),
        ("a_jsonl", [TWO_WIKI | {"evidences": [["a", "b"]]}], "a.jsonl:1: evidences: triples [subject, relation, value]"),
        ("a_jsonl", [HOTPOT | {"context": [3]}], "a.jsonl:1: context: item 0 is no document"),
        ("a_csv", "river,length\nSeine,777\n", "A table needs an entry in knowledge.yaml"),
        ("a_csv", "question,answer\nWho?\n", "a.csv:2: a row has another number of cells"),
        ("a_yaml", "tables: [", "a.yaml:1:10: not valid YAML"),
        ("a_yaml", {"tables": {"t": {"source": "csv", "key": "k", "options": {"file": "no.csv"}, "relations": {}}}}, "no.csv: no such file"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_says_where_and_why(tmp_path, name, content, says):
    with pytest.raises(SourceError) as caught:
        read_folder(folder(tmp_path, **{name: content}))
    assert says in str(caught.value)


def test_bytes_that_are_no_utf_8_are_named(tmp_path):
    place = folder(tmp_path, a_txt="x")
    (place / "a.txt").write_bytes("Mé".encode("latin-1"))
    with pytest.raises(SourceError, match=r"a.txt: .*Save it as UTF-8"):
        read_folder(place)


def test_two_documents_or_questions_of_one_id_are_an_error(tmp_path):
    with pytest.raises(SourceError, match="two documents have the id 'd'"):
        read_folder(folder(tmp_path, a_jsonl=[{"id": "d", "text": "x"}, {"id": "d", "text": "y"}]))
    with pytest.raises(SourceError, match="two questions have the id 'q'"):
        read_folder(folder(tmp_path / "b", a_jsonl=[{"id": "q", "question": "Q?", "answer": "x"}] * 2))


def test_an_empty_or_missing_folder_says_what_to_put_there(tmp_path):
    with pytest.raises(SourceError, match="no such folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="holds no tables, texts or questions"):
        read_folder(tmp_path)


def test_two_things_of_one_id_are_both_named(tmp_path):
    row = {"id": "q", "question": "Q?", "answer": "x"}
    with pytest.raises(SourceError) as caught:
        read_folder(folder(tmp_path, a_jsonl=[row], b_jsonl=[{**row, "id": "p"}, row]))
    assert "b.jsonl:2: two questions have the id 'q'; the other is in " in str(caught.value)
    assert "a.jsonl:1. Give each an id of its own" in str(caught.value)


@pytest.mark.parametrize("mark", ["\u2028", "\u0085", "\x0c", "\x0b"])
def test_only_line_ends_separate_the_rows_of_a_csv_file(tmp_path, mark):
    raw = read_folder(folder(tmp_path, a_csv=f"question,answer\nWho is{mark}it?,Ann\nWhere?,Bude\n"))
    assert [one.answer for one in raw.given] == ["Ann", "Bude"]


def test_a_csv_column_twice_is_told_since_one_of_them_would_be_lost(tmp_path):
    with pytest.raises(SourceError, match=r"a\.csv:1: more than one column called question\."):
        read_folder(folder(tmp_path, a_csv="question,question,answer\na,b,c\n"))
