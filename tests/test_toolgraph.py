"""toolgraph: what can fill what, across servers too; walks that cover; drawings that other programs read."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from astra.records import Edge, Link, ToolGraph
from astra.toolgraph import across, drawing, evidence, values, walks
from tests.stages.imitation import FERRY, LONELY, TABLES, TEXT, listed, tool

WEIGHTS = evidence.Weights(name=0.6, format=0.5, enum=0.5, type=0.1, similarity=0.5)
PRIOR = evidence.Prior(weights=WEIGHTS, min_score=0.5, encoder="builtin")


class Shared:
    """Texts as alike as the words that they share."""

    def __init__(self):
        self.places = {}

    def encode(self, texts):
        vectors = np.zeros((len(texts), 256), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, self.places.setdefault(word, len(self.places))] = 1
        return vectors / np.maximum(1, np.linalg.norm(vectors, axis=1, keepdims=True))


def links(source, target, prior=PRIOR):
    takers = evidence.Takers([evidence.signature(target)], prior, Shared())
    return takers.fed_by(evidence.signature(source), 1).get(0, ())


def via(source, target):
    return [(link.output, link.parameter) for link in links(source, target)]


def named(name):
    return next(one for one in (*FERRY.tools, *TABLES.tools) if one.name == name)


# ---------------------------------------------------------------- evidence


def test_a_value_fills_a_parameter_of_the_same_name_however_deep_it_lies():
    (link,) = links(named("find_routes"), named("list_sailings"))
    assert (link.output, link.parameter) == ("routes[].route_id", "route_id")
    assert link.evidence["name"] == 0.6
    assert link.score == pytest.approx(sum(link.evidence.values()))


def test_a_title_names_what_a_result_is_a_key_of():
    assert via(named("airport_city"), named("city_country")) == [("result", "city")]
    assert via(named("city_country"), named("city_airport")) == []


def test_a_type_alone_and_a_generic_name_alone_are_no_evidence():
    writer = tool("write_text", "Write.", {"title": TEXT, "date": TEXT}, {"date": TEXT, "title": TEXT})
    assert via(writer, tool("open_door", "Open.", {"title": TEXT, "house": TEXT}, None)) == []


def test_an_id_of_the_same_thing_is_evidence_and_of_another_thing_is_not():
    make = tool("create_issue", "Create.", {"text": TEXT}, {"id": TEXT})
    assert via(make, tool("close_issue", "Close.", {"issue_id": TEXT}, None)) == [("id", "issue_id")]
    assert via(make, tool("close_issue", "Close.", {"id": TEXT}, None)) == [("id", "id")]
    assert via(make, tool("close_door", "Close.", {"door_id": TEXT}, None)) == []


def test_a_part_of_a_name_counts_less_than_the_whole():
    gives = tool("find_slot", "Find.", {}, {"slot_id": TEXT})
    (link,) = links(gives, tool("reserve", "Reserve.", {"entry_slot_id": TEXT}, None))
    assert link.evidence["name"] == pytest.approx(0.48)


def test_a_format_and_an_enumeration_are_evidence():
    mail, kinds = {"type": "string", "format": "email"}, {"type": "string", "enum": ["a", "b"]}
    gives = tool("find_person", "Find.", {}, {"people": listed(contact=mail, sort_of=kinds)})
    found = links(gives, tool("invite", "Invite.", {"guest": mail, "variety": kinds}, None))
    assert [(link.parameter, link.evidence) for link in found] == [
        ("guest", {"format": 0.5, "type": 0.1}), ("variety", {"enum": 0.5, "type": 0.1}),
    ]  # fmt: skip


def test_descriptions_that_say_the_same_are_evidence_where_names_differ():
    said = {"description": "the five letter code of the harbour where the ferry lands"}
    gives = tool("find_harbour", "Find.", {}, {"landing": TEXT | said})
    (link,) = links(gives, tool("sail", "Sail.", {"destination": TEXT | said}, None))
    assert link.evidence.keys() == {"type", "similarity"}
    assert via(gives, tool("sail", "Sail.", {"destination": TEXT | {"description": "how it smells"}}, None)) == []


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"type": "integer"}, {"type": "boolean"}),
        ({"type": "string"}, {"type": "object"}),
        ({"type": "string"}, {"const": "x"}),
        ({"type": "string", "format": "email"}, {"type": "string", "format": "uuid"}),
        ({"enum": ["a", "b"]}, {"enum": ["c", "d"]}),
    ],
)
def test_what_contradicts_is_no_link_whatever_else_agrees(given, taken):
    gives = tool("get_berth", "Get.", {}, {"berth": given})
    assert via(gives, tool("use_berth", "Use.", {"berth": taken}, None)) == []


def test_an_integer_fills_a_number_and_null_is_no_type_of_its_own():
    gives = tool("get_berth", "Get.", {}, {"berth": {"type": ["integer", "null"]}})
    assert via(gives, tool("use_berth", "Use.", {"berth": {"anyOf": [{"type": "null"}, {"type": "number"}]}}, None))


def test_a_list_is_filled_with_single_values():
    gives = tool("find_berths", "Find.", {}, {"berths": {"type": "array", "items": TEXT}})
    takes = tool("close_berths", "Close.", {"berth": {"type": "array", "items": TEXT}}, None)
    assert via(gives, takes) == [("berths[]", "berth")]


def test_the_threshold_decides_what_is_a_link():
    strict = PRIOR.model_copy(update={"min_score": 0.75})
    gives, takes = tool("a", "A.", {}, {"berth": TEXT}), tool("b", "B.", {"berth": {}}, None)
    assert links(gives, takes)
    assert not links(tool("a", "A.", {}, {"berth": {}}), takes, strict.model_copy(update={"min_score": 1.5}))


def test_a_tool_feeds_those_that_it_fills_best_and_the_others_are_counted():
    weak = tool("weak", "W.", {"entry_slot_id": TEXT}, None)
    strong = [tool(f"strong_{n}", "S.", {"slot_id": TEXT}, None) for n in range(2)]
    takers = evidence.Takers([evidence.signature(one) for one in (weak, *strong)], PRIOR, Shared())
    source = evidence.signature(tool("find_slot", "Find.", {}, {"slot_id": TEXT}))
    assert list(takers.fed_by(source, 2)) == [1, 2]
    assert takers.n_cut == 1
    assert list(takers.fed_by(source, 3)) == [0, 1, 2]


def test_a_remembering_encoder_gives_what_the_encoder_gives():
    plain, remembering = Shared(), evidence.Remembering(Shared(), most=3)
    for some in (["a b", "c", "a b"], ["c", "d", "e e"], ["a b", "f", "g", "h", "i"]):
        assert np.array_equal(plain.encode(some), remembering.encode(some))


# ---------------------------------------------------------------- across servers


def city_servers(count, tools_each=2):
    """Servers whose tools all return and all require a city, for a purpose of their own."""
    purposes = ["sail boats", "bake bread", "paint walls", "mend roofs"]
    servers = []
    for n in range(count):
        purpose = purposes[n % len(purposes)]
        tools = tuple(
            tool(f"plan_{n}_{m}", f"Where to {purpose} today.", {"city": TEXT}, {"city": TEXT})
            for m in range(tools_each)
        )
        servers.append(
            FERRY.model_copy(update={"id": f"server-{n}", "name": f"s{n}", "title": purpose, "tools": tools})
        )
    return servers


def crossings(servers, most):
    signatures = [[evidence.signature(one) for one in server.tools] for server in servers]
    return list(across.crossings(servers, signatures, PRIOR, Shared(), most))


def test_a_tool_feeds_a_bounded_number_of_tools_of_other_servers():
    servers = city_servers(40)
    found = crossings(servers, 3)
    per_source = {}
    for one in found:
        assert one.source.server != one.target.server
        per_source.setdefault((one.source.server, one.source.signature.tool.name), []).append(one.target)
    assert {len(targets) for targets in per_source.values()} == {3}


def test_of_many_tools_that_take_a_value_those_for_a_like_purpose_are_found():
    servers = city_servers(40)
    alike = [servers[one.source.server].title == servers[one.target.server].title for one in crossings(servers, 3)]
    assert sum(alike) / len(alike) > 0.9


class Counting(Shared):
    """Knows how many texts it was given."""

    n_texts = 0

    def encode(self, texts):
        self.n_texts += len(texts)
        return super().encode(texts)


def test_the_work_across_servers_grows_with_the_tools_and_not_with_the_pairs():
    def texts_for(count):
        servers, encoder = city_servers(count), Counting()
        signatures = [[evidence.signature(one) for one in server.tools] for server in servers]
        list(across.crossings(servers, signatures, PRIOR, encoder, 3))
        return encoder.n_texts

    assert texts_for(80) <= 2.1 * texts_for(40)


def test_an_identifier_of_one_server_means_nothing_to_another():
    gives = FERRY.model_copy(update={"id": "a", "tools": (tool("open_slot", "Open.", {}, {"slot_id": TEXT}),)})
    takes = FERRY.model_copy(update={"id": "b", "tools": (tool("use_slot", "Use.", {"slot_id": TEXT}, None),)})
    assert crossings([gives, takes], 3) == []


# ---------------------------------------------------------------- walks


def edge_of(source, target, votes=1, far=None):
    link = Link(output="x", parameter="y", evidence={"name": 0.6})
    return Edge(source=source, target=target, via=(link,), votes_for=votes, votes=9, target_server_id=far)


def graph_of(server_id, *edges):
    return ToolGraph(id=f"g-{server_id}", server_id=server_id, edges=tuple(edge_of(*edge) for edge in edges))


def network(*graphs, servers=()):
    return walks.Network(graphs, servers)


REACH = walks.Reach(min_length=2, max_length=4, tries=10, coverage=0.5)
DENSE = [(f"t{n}", f"t{m}") for n in range(12) for m in range(12) if n != m]


def test_walks_follow_edges_never_return_to_a_tool_and_differ():
    net = network(graph_of("s", *DENSE))
    found = net.walks("s", 40, REACH, random.Random(1))
    assert len({walk.nodes for walk in found}) == len(found) == 40
    for walk in found:
        assert 2 <= len(walk.nodes) <= 4
        assert len(set(walk.tools)) == len(walk.tools)
        assert all(net.edge(a, b) for a, b in pairwise(walk.nodes))
        assert 0 < walk.support <= 1


def test_a_heavier_edge_is_walked_more_often_where_coverage_is_off():
    net = network(graph_of("s", ("a", "b", 8), ("a", "c", 0)))
    start = walks.Node("s", "a")
    ends = [net.walk(start, 2, 0.0, random.Random(n))[1].tool for n in range(300)]
    assert 0.86 < ends.count("b") / 300 < 0.98


def test_steered_walks_cover_more_edges_than_weighted_ones_at_the_same_cost():
    weighted = [(a, b, 40 if (a, b) in DENSE[:6] else 1) for a, b in DENSE]

    def covered(share):
        net = network(graph_of("s", *weighted))
        found = net.walks("s", 60, REACH._replace(coverage=share), random.Random(3))
        assert len(found) == 60
        return net.coverage(walk.nodes for walk in found)["edges"]

    assert covered(1.0) > covered(0.5) > covered(0.0)
    assert covered(1.0) > 0.85


def test_with_a_budget_of_as_many_walks_every_tool_and_edge_is_covered():
    net = network(graph_of("s", *[(f"t{n}", f"t{(n + step) % 9}") for n in range(9) for step in (1, 2, 3)]))
    found = net.walks("s", 27, REACH._replace(coverage=1.0), random.Random(1))
    assert net.coverage(walk.nodes for walk in found) == {"tools": 1.0, "edges": 1.0}


def test_steering_gives_up_no_part_of_the_budget():
    net = network(graph_of("s", ("lone", "end"), *DENSE))
    assert len(net.walks("s", 100, REACH._replace(coverage=1.0), random.Random(1))) == 100


def test_a_server_with_fewer_walks_than_its_budget_ends():
    net = network(graph_of("s", ("a", "b")))
    assert [walk.tools for walk in net.walks("s", 50, REACH, random.Random(1))] == [("a", "b")]
    assert net.walks("elsewhere", 50, REACH, random.Random(1)) == []


def test_a_walk_crosses_over_only_where_every_name_keeps_one_meaning():
    here = FERRY.model_copy(update={"id": "a", "tools": tuple(tool(n, "X.", {}, None) for n in ("one", "two"))})
    there = FERRY.model_copy(update={"id": "b", "tools": tuple(tool(n, "X.", {}, None) for n in ("three", "one"))})
    graphs = (graph_of("a", ("one", "three", 1, "b"), ("two", "three", 1, "b")), graph_of("b", ("three", "one")))
    net = network(*graphs, servers=(here, there))
    found = net.walks("a", 9, REACH, random.Random(1))
    assert [(walk.tools, walk.server_ids) for walk in found] == [(("two", "three"), ("a", "b"))]


def test_the_same_seed_walks_the_same_way():
    first, second = (network(graph_of("s", *DENSE)).walks("s", 30, REACH, random.Random(5)) for _ in range(2))
    assert first == second


# ---------------------------------------------------------------- drawings

SERVERS = {one.id: one for one in (FERRY, TABLES, LONELY)}
ODD = FERRY.model_copy(update={"id": "odd", "name": 'a<b>&"c"\x0b', "title": "\x00 <&>", "domain": "d\ufffe"})


def test_other_programs_read_the_graphml_with_all_evidence():
    graphs = [graph_of(FERRY.id, ("find_routes", "list_sailings", 3), ("get_weather", "airport_city", 0, TABLES.id))]
    net = nx.parse_graphml("".join(drawing.graphml(graphs, SERVERS)))
    assert net.nodes[f"{TABLES.id}/airport_city"] == {"tool": "airport_city", "server": "tables", "domain": "geography"}
    edge = net.edges[f"{FERRY.id}/find_routes", f"{FERRY.id}/list_sailings"]
    assert edge == {"weight": 3.6, "votes_for": 3, "votes": 9, "prior": 0.6, "via": "x -> y", "name": 0.6}
    assert isinstance(edge["weight"], float)
    assert isinstance(edge["votes"], int)


def test_no_name_breaks_the_documents():
    servers = {**SERVERS, "odd": ODD}
    graph = graph_of("odd", ("find_routes", "list_sailings"), ("book_sailing", "find_routes", 0, FERRY.id))
    nx.parse_graphml("".join(drawing.graphml([graph], servers)))
    ElementTree.fromstring(drawing.svg(graph, servers))


def test_a_picture_has_each_tool_and_edge_once_and_the_same_bytes_again():
    graph = graph_of("s", *DENSE)
    servers = {"s": FERRY.model_copy(update={"id": "s"})}
    picture = drawing.svg(graph, servers)
    root = ElementTree.fromstring(picture)
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{name}rect")) == 12
    assert len(root.findall(f"{name}path")) == len(DENSE)
    assert drawing.svg(graph, servers) == picture


def test_tools_stand_after_those_that_feed_them():
    ends = [("c", "d"), ("a", "b"), ("b", "c"), ("d", "b"), ("a", "d")]
    assert drawing.layers(ends)[0] == ["a"]
    assert drawing.ordered([("b", "c"), ("a", "b")]) == ["a", "b", "c"]


def test_of_a_very_dense_graph_the_heaviest_edges_are_drawn_and_the_picture_says_so():
    graph = graph_of(FERRY.id, ("find_routes", "list_sailings", 1), ("list_sailings", "book_sailing", 9), ("a", "b", 5))
    picture = drawing.svg(graph, SERVERS, most=2)
    assert "2 of 3 edges" in picture
    assert "find_routes" not in picture


def test_words_and_nouns_are_read_from_names():
    assert values.words("createdAt") == "created at"
    assert values.noun_of(named("list_sailings")) == "sailing"
