"""A small MCP server that misbehaves as told: ``python fake_mcp_server.py MODE``. Plain JSON-RPC, so that it starts fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

FARE = {"type": "object", "properties": {"fare": {"type": "number"}}, "required": ["fare"]}
RESULTS = [
    {
        "isError": True,
        "content": [{"type": "text", "text": "port closed on Sundays"}],
        "structuredContent": {"error": {"code": "CLOSED"}},
    },
    {"isError": False, "content": [], "structuredContent": {"fare": 12.5}},
    {"isError": False, "content": [{"type": "text", "text": "Error: log line found"}]},
    {"isError": False, "content": [{"type": "text", "text": "fare is 12.5"}]},
    {"isError": False, "content": [], "structuredContent": {"fare": "much"}},
]
NOISE = ["Harbour server v2.1 starting", "[db] connected", '{"level":"info","msg":"ready"}', "\x1b[32mOK\x1b[0m"]


def tool(name: str, **more: object) -> dict:
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}, **more}


def send(message: dict) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: object) -> dict:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def listed(mode: str, cursor: str | None) -> dict:
    if mode == "endless":
        return {"tools": [tool("again")], "nextCursor": "more"}
    if mode == "pages" and cursor is None:
        return {"tools": [tool("first"), tool("second")], "nextCursor": "page2"}
    if mode == "pages":
        return {"tools": [tool("third")]}
    if mode == "bad_list":
        return {"tools": [{"name": "half"}]}
    return {"tools": [tool("pid"), tool("env"), tool("quote_fare", outputSchema=FARE)]}


def called(mode: str, name: str, arguments: dict) -> dict:
    if mode == "dead_on_call":
        sys.stderr.write("harbour master fell asleep")
        sys.stderr.flush()
        os._exit(9)
    if mode == "hangs_on_call" or name == "hang":
        time.sleep(600)
    if name == "pid":
        return text(str(os.getpid()))
    if name == "env":
        return text(dict(os.environ))
    if name == "spawn":
        return text(str(subprocess.Popen(["sleep", "600"]).pid))
    if name == "quote_fare":
        return RESULTS[arguments["case"]]
    return {}


def main() -> None:
    mode = sys.argv[1]
    if mode == "dead_on_start":
        sys.stderr.write(f"HARBOUR_KEY not set (token {os.environ.get('HARBOUR_TOKEN')})")
        sys.exit(3)
    if mode.startswith("slow"):
        time.sleep(float(mode.removeprefix("slow")))
    if mode in ("noise", "only_noise"):
        print("\n".join(NOISE), flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message["method"], message.get("params") or {}
        if "id" not in message or mode == "only_noise":
            continue
        if method == "initialize":
            about = {"name": "fake", "version": "1.2.3"}
            reply = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        elif method == "tools/list":
            reply = listed(mode, params.get("cursor"))
        else:
            reply = called(mode, params["name"], params.get("arguments") or {})
        if reply:
            send({"id": message["id"], "result": reply})
        else:
            send({"id": message["id"], "error": {"code": -32602, "message": f"Unknown tool: {params['name']}"}})


if __name__ == "__main__":
    main()
