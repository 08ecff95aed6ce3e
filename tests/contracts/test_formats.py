"""What every reader of tool documents promises."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astra.formats import READERS, UnknownFormat, format_of
from astra.formats.names import LEGAL
from astra.formats.parsing import parse
from tests.formats.documents import DOCUMENTS

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = [
    path
    for path in sorted((ROOT / "data/raw/tools").iterdir())
    if ".notes." not in path.name and path.name != "live.mcp.json"
]
ALL = {**DOCUMENTS, **{path.name: parse(path) for path in COMMITTED}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "object", "string"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "type", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def read(document, uri="folder/case.json"):
    return list(READERS[format_of(document)].servers(document, uri, 2))


def test_every_reader_has_a_document_here():
    assert DOCUMENTS.keys() == READERS.keys()


@pytest.mark.parametrize("name", ALL)
def test_no_two_readers_claim_one_document(name):
    claims = [key for key, reader in READERS.items() if reader.recognises(ALL[name])]
    assert len(claims) == 1
    assert claims[0] == name or f".{claims[0]}." in name


@pytest.mark.parametrize("name", ALL)
def test_a_document_gives_servers_with_unique_legal_names_and_valid_schemas(name):
    for server in read(ALL[name]):
        assert LEGAL.match(server.name)
        assert server.domain
        assert server.licence or name in ("rapidapi", "astra")
        assert server.problems == ()
        assert len({tool.name for tool in server.tools}) == len(server.tools) > 0
        for tool in server.tools:
            assert LEGAL.match(tool.name)
            assert tool.parameters["type"] == "object"
            assert not tool.parameters.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "const"}
            for schema in filter(None, (tool.parameters, tool.returns)):
                jsonschema.Draft202012Validator.check_schema(schema)
                assert "$ref" not in json.dumps(schema)


@pytest.mark.parametrize("name", ALL)
def test_reading_changes_nothing_in_the_document_and_gives_the_same_every_time(name):
    before = copy.deepcopy(ALL[name])
    assert read(ALL[name]) == read(ALL[name])
    assert before == ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_what_a_reader_made_read_again_is_the_same(name):
    for server in read(ALL[name]):
        tools = [
            {
                "name": one.name,
                "description": one.description,
                "inputSchema": one.parameters,
                "outputSchema": one.returns,
            }
            for one in server.tools
        ]
        again = read({"tools": tools})[0].tools
        dump = [one.model_dump(mode="json", exclude={"wire_name", "notes"}) for one in server.tools]
        assert json.dumps([one.model_dump(mode="json", exclude={"wire_name", "notes"}) for one in again]) == json.dumps(
            dump
        )


@pytest.mark.parametrize("name", [path.name for path in COMMITTED])
def test_the_committed_documents_describe_every_tool_and_parameter(name):
    for server in read(ALL[name]):
        assert len(server.tools) >= 6
        for tool in server.tools:
            assert tool.description.endswith(".")
            assert tool.returns
            assert tool.notes == ()
            for parameter in tool.parameters["properties"].values():
                assert parameter["description"]


@pytest.mark.parametrize("name", [path.name for path in COMMITTED])
def test_the_committed_tools_chain_what_one_returns_fills_a_required_parameter_of_another(name):
    def fields(schema):
        for key, one in schema.get("properties", {}).items():
            yield key, one.get("type"), one.get("format")
            yield from fields(one.get("items", {}))

    (server,) = read(ALL[name])
    given = {tool.name: set(fields(tool.returns)) for tool in server.tools}
    wanted = {
        tool.name: {spot for spot in fields(tool.parameters) if spot[0] in tool.parameters["required"]}
        for tool in server.tools
    }
    linked = {(a, b) for a in given for b in wanted if a != b and given[a] & wanted[b]}
    fed = {b for _, b in linked}
    assert len(fed) >= len(server.tools) - 4
    assert len(linked) >= len(server.tools) - 2


def spots(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from spots(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from spots(one, (*path, index))


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), junk=JSON)
def test_a_document_with_junk_in_any_place_gives_servers_or_problems_but_no_exception(name, data, junk):
    document = copy.deepcopy(DOCUMENTS[name])
    *way, last = data.draw(st.sampled_from([spot for spot in spots(document) if spot]))
    here = document
    for step in way:
        here = here[step]
    here[last] = junk
    try:
        servers = read(document)
    except UnknownFormat:
        return
    for server in servers:
        for tool in server.tools:
            jsonschema.Draft202012Validator.check_schema(tool.parameters)


@given(JSON)
def test_no_reader_claims_or_chokes_on_other_json(document):
    with pytest.raises(UnknownFormat, match="readers: mcp, openai, openapi, rapidapi, astra"):
        format_of(document)
