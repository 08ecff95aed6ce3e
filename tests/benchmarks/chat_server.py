"""A small endpoint of chat completions in this process: answers by a function of the body, and counts what it was asked."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from astra.benchmarks.types import Reply

LONG = 4000  # bytes
Answering = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


def completion(reply: Reply) -> tuple[int, dict[str, Any]]:
    """A reply as a 200 and its body."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in reply.tool_calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": reply.stop}
    usage = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
    return 200, {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}


def too_long(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 400, {"error": {"message": "This model's maximum context length is 512 tokens", "code": 400}}


class ChatServer:
    """Listens while it is open; ``bodies`` are the requests, in the order in which they came."""

    def __init__(self, answer: Answering) -> None:
        self.bodies: list[dict[str, Any]] = []
        lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(404, {"error": "no list"})

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                body = json.loads(raw)
                with lock:
                    server.bodies.append(body)
                status, said = answer(body)
                if len(raw) > LONG:
                    said.pop("usage", None)  # the count of a short prompt would tell that a long one was cut
                self._send(status, said)

            def _send(self, status: int, said: dict[str, Any]) -> None:
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # a client that was killed

            def log_message(self, *_: Any) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                return  # a client that was killed

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def counts(self) -> Counter[str]:
        """How often each request was made."""
        return Counter(json.dumps(one, sort_keys=True) for one in self.bodies)

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
