"""Knowledge files: facts join, ambiguity is left out, and a malformed file says where and why."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from astra.knowledge import Knowledge, KnowledgeError
from tests.import_closure import ROOT

FILE = ROOT / "data/raw/knowledge/knowledge.yaml"


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load(FILE)


def test_the_committed_tables_hold_known_facts(knowledge):
    assert knowledge.value("country_capital", "France") == "Paris"
    assert knowledge.value("country_currency", "Japan") == "JPY"
    assert knowledge.value("element_number", "gold") == 79
    assert knowledge.value("currency_number", "EUR") == "978"


def test_every_value_that_joins_is_a_key_of_the_table_it_joins(knowledge):
    for name, relation in knowledge.relations.items():
        if relation.target:
            assert set(knowledge.facts(name).values()) <= set(knowledge.keys(relation.target)), name


def test_labels_and_descriptions_are_unique(knowledge):
    relations = knowledge.relations.values()
    assert len({relation.label for relation in relations}) == len(relations)
    assert len({relation.description for relation in relations}) == len(relations)


def test_every_relation_has_facts(knowledge):
    assert min(len(knowledge.facts(name)) for name in knowledge.relations) >= 50


def with_change(tmp_path: Path, change) -> Path:
    tree = yaml.safe_load(FILE.read_text())
    change(tree["tables"])
    path = tmp_path / "knowledge.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t["city"].update(source="geonames"), "tables.city.source: 'geonames', sources are: airportsdata"),
        (lambda t: t["city"].update(key="nom"), "tables.city: no column 'nom'; columns are: name, country"),
        (lambda t: t["city"]["options"].update(min_pop=3), "tables.city.options:"),
        (lambda t: t["city"]["relations"]["city_country"].update(joins="land"), "joins 'land', tables are: airport"),
        (lambda t: t["city"]["relations"]["city_country"].update(kind="text"), "give either joins (a table) or kind"),
        (lambda t: t["city"]["relations"]["city_country"].update(label="capital"), "label 'capital' is taken by"),
        (lambda t: t["city"].update(require=["x"]), "require: 'x' is none of its relations"),
        (lambda t: t["city"].update(colour=1), "tables.city.colour: Extra inputs are not permitted"),
        (lambda t: t["city"].pop("key"), "tables.city.key: Field required"),
    ],
)
def test_a_malformed_description_names_the_place_and_the_remedy(tmp_path, change, says):
    with pytest.raises(KnowledgeError) as error:
        Knowledge.load(with_change(tmp_path, change))
    assert says in str(error.value)


@pytest.mark.parametrize("text", ["tables: [", "", "tables: {}", "\x00"])
def test_a_file_that_is_no_description_is_refused(tmp_path, text):
    (tmp_path / "knowledge.yaml").write_text(text)
    with pytest.raises(KnowledgeError, match="knowledge.yaml"):
        Knowledge.load(tmp_path / "knowledge.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tables:\n  city: {}\n  city: {}\n", "knowledge.yaml:3:3: not valid YAML: the key 'city' stands twice"),
        ("tables: !!set {a, b}\n", "knowledge.yaml:1:9: not valid YAML"),
        ("tables: &a\n  city: *a\n", "an anchor contains itself"),
        ("? [a]\n: b\n", "a key must be a text"),
        ("tables:\n\tcity: 1\n", "knowledge.yaml:2:1: not valid YAML"),
        ("[]\n", "knowledge.yaml: the file: Input should be"),
    ],
)
def test_a_description_that_readers_would_disagree_about_is_refused_with_its_line(tmp_path, text, says):
    (tmp_path / "knowledge.yaml").write_text(text)
    with pytest.raises(KnowledgeError, match="mend that line|write its value out|shows its form") as error:
        Knowledge.load(tmp_path / "knowledge.yaml")
    assert says in str(error.value)


def test_a_table_of_ones_own_joins_and_leaves_ambiguous_keys_out(tmp_path):
    (tmp_path / "rivers.csv").write_text(
        "name,mouth,length_km,code\nNiger,Nowhere,4180,007\nSeine,Le Havre,777,12\nAvon,a,1,1\nAvon,b,2,2\n"
    )
    (tmp_path / "towns.csv").write_text("name,height_m\nLe Havre,3.5\n")
    (tmp_path / "k.yaml").write_text(
        yaml.safe_dump({"tables": {
            "river": {"source": "csv", "key": "name", "options": {"file": str(tmp_path / "rivers.csv")}, "relations": {
                "river_mouth": {"column": "mouth", "label": "mouth", "joins": "town"},
                "river_length": {"column": "length_km", "label": "length", "kind": "number"},
                "river_code": {"column": "code", "label": "code", "kind": "text"}}},
            "town": {"source": "csv", "key": "name", "options": {"file": str(tmp_path / "towns.csv")}, "relations": {
                "town_height": {"column": "height_m", "label": "height", "kind": "number"}}}}})
    )  # fmt: skip
    own = Knowledge.load(tmp_path / "k.yaml")
    assert own.keys("river") == ["Niger", "Seine"]
    assert own.facts("river_mouth") == {"Seine": "Le Havre"}
    assert own.value("river_length", "Seine") == 777
    assert own.value("river_code", "Niger") == "007"


def test_a_csv_row_of_another_length_is_named(tmp_path):
    (tmp_path / "r.csv").write_text("name,a\nx,1,2\n")
    (tmp_path / "k.yaml").write_text(
        yaml.safe_dump({"tables": {"r": {"source": "csv", "key": "name", "options": {"file": str(tmp_path / "r.csv")},
                                         "relations": {"r_a": {"column": "a", "label": "a", "kind": "text"}}}}})
    )  # fmt: skip
    with pytest.raises(KnowledgeError, match="another number of cells"):
        Knowledge.load(tmp_path / "k.yaml")


def river(tmp_path: Path, rows: bytes) -> Path:
    (tmp_path / "rivers.csv").write_bytes(rows)
    relation = {"column": "length", "label": "river length", "kind": "number"}
    table = {"source": "csv", "options": {"file": str(tmp_path / "rivers.csv")}, "key": "name"}
    path = tmp_path / "knowledge.yaml"
    path.write_text(yaml.safe_dump({"tables": {"river": {**table, "relations": {"river_length": relation}}}}))
    return path


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("name,length\nMe\u00e9,3\n".encode("latin-1"), "rivers.csv: after line"),
        (b"name,length\na," + b"9" * 200_000 + b"\n", "field larger than field limit"),
        (b"name,length\na,1\nb,1,2\n", "rivers.csv:3: a row has another number of cells"),
        (b"name,length\na,long\n", "relations.river_length: kind is number, a row has 'long'"),
        (b"name,length\na,nan\n", "relations.river_length: kind is number, a row has 'nan'"),
    ],
)
def test_a_csv_file_that_cannot_serve_says_where(tmp_path, rows, says):
    with pytest.raises(KnowledgeError) as caught:
        Knowledge.load(river(tmp_path, rows))
    assert says in str(caught.value)


def test_keys_are_text_and_a_byte_order_mark_is_no_part_of_a_column(tmp_path):
    loaded = Knowledge.load(river(tmp_path, "\ufeffname,length\n12,1\nabc,2\n".encode()))
    assert loaded.keys("river") == ["12", "abc"]
