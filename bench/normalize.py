"""normalize against its floor: a corpus of tool documents in every format, as files, on one core.

The corpus is generated from a seed: 2,000 servers with 20,000 tools, shared out over the formats, with references,
recursion, unions, foreign type names and copies under other names. The stage runs on it as it stands. The floor, in the
same process, is what any tool of this kind must do: parse the same files and check one JSON Schema per tool. Prints one
JSON line; ``of_floor`` is the stage's time in floors.

    python -m bench.normalize
"""

from __future__ import annotations

import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from astra.formats.parsing import parse
from astra.records import Server
from astra.stage import read_records
from stages.normalize import CONTRACT
from stages.normalize import main as normalize

SERVERS, TOOLS_PER_SERVER, SEED = 2000, 10, 17
SAMPLE = 20
# fmt: off
NOUNS = ["berth", "ferry", "parcel", "invoice", "recipe", "shelf", "museum", "garden", "sensor", "ticket", "wallet",
         "route", "crew", "lamp", "fare", "tide"]
VERBS = ["find", "list", "create", "cancel", "update", "quote", "track", "compare", "reserve", "measure", "close"]
# fmt: on
TYPES = ["string", "integer", "number", "boolean"]
PYTHON_TYPES = ["str", "int", "float", "bool", "dict", "tuple", "any", "Optional[str]"]
Make = Callable[[random.Random, int], Any]


def parameter(draw: random.Random, depth: int = 2) -> dict[str, Any]:
    """A parameter's schema as servers write them: mostly plain, sometimes nested, united or nullable."""
    kind = draw.random()
    about = {"description": f"The {draw.choice(NOUNS)} to {draw.choice(VERBS)}."}
    if depth and kind < 0.12:
        return {"type": "object", "properties": properties(draw, 3, depth - 1), "required": ["id"], **about}
    if depth and kind < 0.22:
        return {"type": "array", "items": parameter(draw, depth - 1), "maxItems": 20, **about}
    if kind < 0.30:
        return {"anyOf": [{"type": draw.choice(TYPES)}, {"type": "null"}], "default": None, **about}
    if kind < 0.40:
        return {"type": "string", "enum": draw.sample(NOUNS, 4), **about}
    return {"type": draw.choice(TYPES), **about}


def properties(draw: random.Random, most: int, depth: int = 2) -> dict[str, Any]:
    names = ["id", *draw.sample(NOUNS, draw.randint(1, most))]
    return {name: parameter(draw, depth) for name in names}


def arguments(draw: random.Random) -> dict[str, Any]:
    found = properties(draw, 5)
    schema = {"type": "object", "properties": found, "required": ["id"]}
    if draw.random() < 0.15:
        found["place"] = {"$ref": "#/$defs/Place", "description": "Where."}
        found["rule"] = {"$ref": "#/$defs/Rule"}
        place = {"type": "object", "properties": properties(draw, 3, 1)}
        parts = {"type": "array", "items": {"$ref": "#/$defs/Rule"}}
        rule = {"type": "object", "properties": {"op": {"enum": ["all", "any", 1]}, "parts": parts}}
        schema["$defs"] = {"Place": place, "Rule": rule}
    return schema


def named(draw: random.Random, index: int) -> dict[str, Any]:
    verb, noun = draw.choice(VERBS), draw.choice(NOUNS)
    return {
        "name": f"{verb}_{noun}.{index}",
        "description": f"{verb.title()} a {noun} by its id, variant {draw.random()}.",
    }


def tools(draw: random.Random) -> list[dict[str, Any]]:
    return [named(draw, index) for index in range(TOOLS_PER_SERVER)]


def mcp(draw: random.Random, number: int) -> Any:
    listed = [{**one, "inputSchema": arguments(draw), "outputSchema": arguments(draw)} for one in tools(draw)]
    return {"serverInfo": {"name": f"mcp-{number}"}, "tools": listed}


def openai(draw: random.Random, number: int) -> Any:
    def bfcl() -> dict[str, Any]:
        found = {noun: {"type": draw.choice(PYTHON_TYPES), "description": "It."} for noun in draw.sample(NOUNS, 5)}
        return {"type": "dict", "properties": found, "required": list(found)[:2]}

    functions = [{**one, "parameters": bfcl() if draw.random() < 0.5 else arguments(draw)} for one in tools(draw)]
    return {"name": f"functions-{number}", "functions": functions}


def openapi(draw: random.Random, number: int) -> Any:
    paths: dict[str, Any] = {}
    for index, one in enumerate(tools(draw)):
        body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}}
        operation = {
            "operationId": one["name"],
            "summary": one["description"],
            "parameters": [{"name": "at", "in": "path", "schema": parameter(draw, 0)}],
            "requestBody": body,
            "responses": {"200": body},
        }
        paths[f"/things/{index}/{{at}}"] = {"post": operation}
    new = {"type": "object", "properties": properties(draw, 6), "required": ["id"]}
    return {
        "openapi": "3.0.3",
        "info": {"title": f"api {number}"},
        "paths": paths,
        "components": {"schemas": {"New": new}},
    }


def rapidapi(draw: random.Random, number: int) -> Any:
    def listed(n: int) -> list[dict[str, Any]]:
        kinds = ["STRING", "NUMBER", "BOOLEAN", "DATE (YYYY-MM-DD)", "ENUM"]
        return [
            {"name": noun, "type": draw.choice(kinds), "description": "It.", "default": "10"}
            for noun in draw.sample(NOUNS, n)
        ]

    apis = [
        {"api_name": one["name"], "api_description": one["description"], "required_parameters": listed(2),
         "optional_parameters": listed(3), "template_response": {"rows": [{"id": "str", "n": 1}]}}
        for one in tools(draw)
    ]  # fmt: skip
    return {"tool_name": f"Hub {number}", "category_name": "Logistics", "api_list": apis}


def release(draw: random.Random, number: int) -> Any:
    listed = [{**one, "parameters": arguments(draw)} for one in tools(draw)]
    group = {"server_name": f"released-{number}", "server_title": f"Released {number}", "domain": "Trade"}
    return {"base_info": {"group_info": group, "tool_list": listed}, "features": {}, "call_info": {"url": "http://x"}}


FORMATS: dict[str, tuple[str, Make]] = {
    "mcp": (".json", mcp),
    "openai": (".json", openai),
    "openapi": (".json", openapi),
    "openapi_yaml": (".yaml", openapi),
    "rapidapi": (".json", rapidapi),
    "release": (".jsonl", release),
}


def write_corpus(folder: Path, servers: int) -> int:
    """The documents; their bytes. Servers of the release share files of fifty, others have one each."""
    n_bytes = 0
    for number in range(servers):
        draw = random.Random(f"{SEED}:{number}")
        name = list(FORMATS)[number % len(FORMATS)]
        suffix, make = FORMATS[name]
        path = folder / f"{name}_{number // 300 if suffix == '.jsonl' else number}{suffix}"
        document = make(draw, number)
        text = yaml.dump(document, sort_keys=False) if suffix == ".yaml" else json.dumps(document) + "\n"
        with path.open("a") as out:
            n_bytes += out.write(text)
    return n_bytes


def floor(folder: Path, servers: list[Server]) -> float:
    """Seconds to parse every document and to check one schema per tool; a sample of the checks, scaled up."""
    start = time.perf_counter()
    for path in sorted(folder.iterdir()):
        parse(path)
    parsed = time.perf_counter()
    for server in servers[::SAMPLE]:
        for tool in server.tools:
            jsonschema.Draft202012Validator.check_schema(tool.parameters)
    return parsed - start + (time.perf_counter() - parsed) * len(servers) / len(servers[::SAMPLE])


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            Path("params.yaml").write_text((home / "params.yaml").read_text())
            folder = Path(CONTRACT.reads["tools"])
            folder.mkdir(parents=True)
            n_bytes = write_corpus(folder, SERVERS)
            start, start_cpu = time.perf_counter(), time.process_time()
            normalize()
            ours, ours_cpu = time.perf_counter() - start, time.process_time() - start_cpu
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            servers = list(read_records(CONTRACT.writes["servers"], Server))
            limit = floor(folder, servers)
        finally:
            os.chdir(home)
    n_tools = sum(len(server.tools) for server in servers)
    found = {
        "servers": len(servers),
        "tools": n_tools,
        "megabytes": round(n_bytes / 1e6, 1),
        "seconds": round(ours, 1),
        "cpu_seconds": round(ours_cpu, 1),
        "tools_per_s": round(n_tools / ours),
        "peak_mib": round(peak_mib),
        "floor_seconds": round(limit, 1),
        "of_floor": round(ours / limit, 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
