"""A ferry server and a table server, small enough to read, for the stages from graph to tasks."""

from __future__ import annotations

from typing import Any

from astra.records import Server, Source, ToolSpec

SOURCE = Source(format="mcp", uri="x", revision="y", licence="MIT")
TEXT = {"type": "string"}


def tool(
    name: str, description: str, required: dict[str, Any], returns: dict[str, Any] | None, **optional: Any
) -> ToolSpec:
    properties = {**required, **optional}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    result = None if returns is None else {"type": "object", "properties": returns, "required": list(returns)}
    return ToolSpec(name=name, description=description, parameters=parameters, returns=result)


def listed(**item: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": item}}


FERRY = Server(
    id="server-ferry", name="ferry", title="Ferry", description="Sailings and bookings.", domain="transport", source=SOURCE,
    tools=(
        tool("find_routes", "Find routes from a port.", {"from_port": TEXT, "to_port": TEXT}, {"routes": listed(route_id=TEXT)}),
        tool("list_sailings", "List the sailings of a route.", {"route_id": TEXT}, {"sailings": listed(sailing_id=TEXT)}, limit={"type": "integer"}),
        tool("book_sailing", "Book a place on a sailing.", {"sailing_id": TEXT, "traveller": TEXT}, {"booking_ref": TEXT}),
        tool("cancel_booking", "Cancel a booking.", {"booking_ref": TEXT}, {"booking_ref": TEXT}),
        tool("get_weather", "Get the weather at sea.", {"sea": TEXT}, {"wind": {"type": "number"}}),
    ),
)  # fmt: skip


def look_up(name: str, label: str, table: str, target: str | None, *keys: str) -> ToolSpec:
    value = {"type": "string", **({"title": target, "examples": list(keys)} if target else {})}
    return tool(name, f"{label} of {'an' if table[0] in 'aeiou' else 'a'} {table}.", {table: TEXT}, {"result": value})


TABLES = Server(
    id="server-tables", name="tables", title="Tables", description="Facts.", domain="geography", source=SOURCE,
    tools=(
        look_up("airport_city", "Host city", "airport", "city", "London", "Oslo"),
        look_up("city_country", "Home country", "city", "country", "Norway", "Spain"),
        look_up("city_airport", "Local airport", "city", "airport", "LHR", "OSL"),
        look_up("country_currency", "Currency", "country", None),
    ),
)  # fmt: skip

LONELY = Server(
    id="server-lonely", name="lonely", title="Lonely", description="Two tools.", domain="misc", source=SOURCE,
    tools=(
        tool("ring_bell", "Ring the bell.", {"loudness": {"type": "integer"}}, {"rung": {"type": "boolean"}}),
        tool("draw_card", "Draw a card.", {"deck": TEXT}, {"card": TEXT}),
    ),
)  # fmt: skip

PARAMS = """
seed: 3
models:
  teacher: {transport: builtin, name: r, temperature: 0.7, max_tokens: 512}
  judge: {transport: builtin, name: r, temperature: 0.0, max_tokens: 256}
llm: {concurrency: 4, attempts: 1, timeout_s: 60, deadline_s: 60, max_wait_s: 1, budget: {stage_usd: null, run_usd: null}, prices: {}}
graph:
  samples: 2
  reasks: 0
  max_proposals: 10
  max_length: 4
  prior: {weights: {name: 0.6, format: 0.5, enum: 0.5, type: 0.1, similarity: 0.5}, min_score: 0.5, encoder: builtin}
  max_fed: 64
  cross_server: 0
chains: {min_length: 2, max_length: 4, coverage: 0.5, budget: 6, budget_of: {}, tries: 10, reasks: 0, votes: 3, back_translations: 2}
tasks:
  per_chain: 1
  per_server: 4
  per_server_of: {tables: 8}
  max_server_tools: 2
  augment: {diversity: 0.5, complexity: 0.5, persona: 0.5}
  kinds: {missing_tool: 0.3, missing_value: 0.5, later_tool: 0.3, several_turns: 0.5}
  likeness: {encoder: builtin, most: 0.95}
  min_quality: {question_quality: 0.7, scenario_realism: 0.7, tool_necessity: 0.7, verifiability: 0.7, stability: 0.7, kind_fit: 0.7}
  reasks: 0
  judge_reasks: 0
  max_unjudged: 0.1
"""
