"""A double of a vLLM server: the same routes and the same shape of answers, with scripted replies."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeVLLM:
    """Serves on 127.0.0.1; ``reply(body)`` gives a completion's choice, a status, or raises to cut the connection."""

    def __init__(self, reply: Any, logprobs_mode: str = "processed_logprobs", device: str = "cuda") -> None:
        self.reply = reply
        self.info = {
            "vllm_config": {"model_config": {"logprobs_mode": logprobs_mode}, "device_config": {"device_type": device}}
        }
        self.asked: list[tuple[str, Any]] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                models = {"data": [{"id": "policy"}]}
                self.answer(200, models if self.path.startswith("/v1/models") else fake.info)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
                self.answer(*fake.handle(self.path, body))

            def answer(self, status: int, value: Any) -> None:
                data = b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def handle(self, path: str, body: Any) -> tuple[int, Any]:
        with self._lock:
            self.asked.append((path, body))
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            if path != "/v1/completions":
                return 200, None
            found = self.reply(body)
            return found if isinstance(found, tuple) else (200, {"choices": [found]})
        finally:
            with self._lock:
                self._now -= 1

    def __enter__(self) -> FakeVLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def choice(ids: list[int]) -> dict[str, Any]:
    """A completion's choice as vLLM gives it with return_token_ids and logprobs."""
    return {"token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}, "finish_reason": "stop"}
