"""A small MCP server that misbehaves as told: ``python fake_mcp_server.py MODE``. Plain JSON-RPC, so that it starts fast.

``python fake_mcp_server.py MODE http`` speaks streamable HTTP on a port of the loopback interface, which it prints first,
and ends when its stdin does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
    if mode == "dead_on_list":
        os._exit(9)
    if mode == "bad_list":
        return {"tools": "none today"}
    if mode == "bad_tools":
        odd = [{"name": "half"}, {"name": 7}, "text", {"name": "wrong", "inputSchema": {"type": "string"}}]
        return {
            "tools": [tool("first"), *odd, tool("second", inputSchema={"type": "object", "properties": {"a": True}})]
        }
    return {"tools": [tool("pid"), tool("env"), tool("quote_fare", outputSchema=FARE)]}


def called(mode: str, name: str, arguments: dict) -> dict:
    if mode == "dead_on_call" or (mode == "mortal" and name == "die"):
        sys.stderr.write("harbour master fell asleep")
        sys.stderr.flush()
        os._exit(9)
    if mode == "hangs_on_call" or name == "hang":
        time.sleep(600)
    if name == "pid":
        return text(str(os.getpid()))
    if name == "env":
        return text(dict(os.environ))
    if name == "letters":
        return text({variable: len(value) for variable, value in os.environ.items()})
    if name == "spawn":
        return text(str(subprocess.Popen(["sleep", "600"]).pid))
    if name == "quote_fare":
        return RESULTS[arguments["case"]]
    return {}


def answer(mode: str, message: dict) -> dict | None:
    """The reply to a request; nothing to a notification."""
    method, params = message["method"], message.get("params") or {}
    if "id" not in message:
        return None
    if method == "initialize":
        about = {"name": "fake", "version": "1.2.3"}
        reply = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        reply = listed(mode, params.get("cursor"))
    else:
        reply = called(mode, params["name"], params.get("arguments") or {})
    if reply:
        return {"id": message["id"], "result": reply}
    return {"id": message["id"], "error": {"code": -32602, "message": f"Unknown tool: {params['name']}"}}


class Handler(BaseHTTPRequestHandler):
    """One message a POST, answered as JSON; no stream for messages of the server's own."""

    protocol_version = "HTTP/1.1"
    mode = "plain"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        called = message.get("method") == "tools/call"
        if self.mode == "locked" and self.headers["Authorization"] != "Bearer open sesame":
            return self.reply(401, f"not with {self.headers['Authorization']}", "text/plain")
        if self.mode == "breaks" and called:
            return self.reply(502, "<html>bad gateway</html>", "text/html")
        if self.mode == "garbage" and called:
            return self.reply(200, "<html>welcome</html>", "application/json")
        found = answer(self.mode, message)
        if found is None:
            return self.reply(202, "", "application/json")
        status = 400 if "error" in found else 200
        return self.reply(status, json.dumps({"jsonrpc": "2.0", **found}), "application/json")

    def do_GET(self) -> None:
        self.reply(405, "", "text/plain")

    def do_DELETE(self) -> None:
        if self.mode == "clings":
            time.sleep(60)
        self.reply(200, "", "text/plain")

    def reply(self, status: int, text: str, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("Mcp-Session-Id", "session-1")
        self.end_headers()
        self.wfile.write(text.encode())


def serve(mode: str) -> None:
    Handler.mode = mode
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    mode = sys.argv[1]
    if sys.argv[2:] == ["http"]:
        serve(mode)
    if mode == "dead_on_start":
        sys.stderr.write(f"HARBOUR_KEY not set (token {os.environ.get('HARBOUR_TOKEN')})")
        sys.exit(3)
    if mode.startswith("slow"):
        time.sleep(float(mode.removeprefix("slow")))
    if mode in ("noise", "only_noise"):
        print("\n".join(NOISE), flush=True)
    for line in sys.stdin:
        found = None if mode == "only_noise" else answer(mode, json.loads(line))
        if found is not None:
            send(found)


if __name__ == "__main__":
    main()
