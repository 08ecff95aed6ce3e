"""A server of OpenAI chat completions on a loopback socket, answered by the built-in teacher, with faults on demand.

    python -m tests.openai_server --log requests.jsonl [--plan plan.json] [--latency-ms 50] [--slots 8]
        [--die-after 100] [--key KEY] [--lifetime-s 900] [--echo]

The first line of stdout is its address. A reply is a function of the request's body alone. It ends with its stdin where
that is a pipe, so with whoever started it, and in any case after its lifetime. HTTP is spoken by hand over asyncio: some
faults are beneath what a framework lets through, and the benchmark's client shares two cores with it.

The plan says which bodies meet which faults before they are answered rightly, drawn from the plan's seed and the body:
``{"seed": 1, "rate": 0.3, "faults": ["500", "reset"], "most": 2, "hang_s": 5, "response_formats": ["json_object"],
"echo_key": true}``. ``response_formats`` are all that the server takes; ``echo_key`` repeats the key in replies and errors.
``wrong_code`` is the share of the programs among its replies that are wrong (``tests/wrong_programs.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import email.utils
import functools
import hashlib
import http.client
import json
import os
import random
import socket
import stat
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from astra.llm.types import Completion, Request

ROOT = Path(__file__).resolve().parent.parent
MODEL = "astra-rules-1"  # listed; any name is answered
LIFETIME_S = 900.0
SETTLED = "/settled"
LONG_PROMPT_CHARACTERS = 4400  # a prompt that a client can tell from one that was cut
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests",
           500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable"}  # fmt: skip


# ---------------------------------------------------------------- HTTP


@dataclass(frozen=True)
class Asked:
    """One HTTP request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Handler(Protocol):
    def handle(self, connection: Connection, asked: Asked) -> None:
        """Answer now or later, through the connection."""


class Connection(asyncio.Protocol):
    """HTTP/1.1 with Content-Length, one request after the other, kept alive."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.received = bytearray()
        self.busy = False
        self.lost = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def _next(self) -> None:
        end = self.received.find(b"\r\n\r\n")
        if self.busy or end < 0:
            return
        first, *lines = bytes(self.received[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "transfer-encoding" in headers:
            self.reply(400, b"this server reads bodies with a Content-Length only", {"Connection": "close"})
            self.close()
            return
        total = end + 4 + int(headers.get("content-length", 0))
        if len(self.received) < total:
            return
        body = bytes(self.received[end + 4 : total])
        del self.received[:total]
        method, path, _ = first.split(" ")
        self.busy = True
        self.handler.handle(self, Asked(method, path, headers, body))

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def written(self) -> None:
        """The request is answered; the next one may be read."""
        self.busy = False
        self._next()

    def reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.write(response(status, body, headers))
        self.written()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """End the connection with an RST, as a proxy or a crash does."""
        assert self.transport is not None
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A response as bytes."""
    named = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} {REASONS[status]}\r\n{head}\r\n".encode("latin-1") + body


# ---------------------------------------------------------------- chat completions


class Malformed(Exception):
    """A body that is no chat completion request; the message says why."""


def read_request(body: Any) -> Request:
    """The request in a chat completion body. Raises Malformed."""
    from pydantic import ValidationError

    from astra.llm.types import ModelParams, Request
    from astra.records import Message, ToolCall, ToolSpec

    try:
        messages = tuple(
            Message(
                role=one["role"],
                content=one.get("content"),
                reasoning=one.get("reasoning_content"),
                tool_calls=tuple(ToolCall.model_validate(call) for call in one.get("tool_calls") or ()),
                tool_call_id=one.get("tool_call_id"),
                name=one.get("name"),
            )
            for one in body["messages"]
        )
        functions = [one["function"] for one in body.get("tools") or ()]
        model = ModelParams(
            transport="openai", name=body["model"], temperature=body.get("temperature", 1.0), top_p=body.get("top_p"),
            max_tokens=body.get("max_tokens") or body.get("max_completion_tokens") or 4096,
        )  # fmt: skip
        tools = tuple(
            ToolSpec(name=one["name"], description=one.get("description", ""), parameters=one.get("parameters", {}))
            for one in functions
        )
        return Request(model=model, messages=messages, tools=tools, seed=int(body.get("seed") or 0))
    except (ValidationError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(f"not a chat completion request: {type(error).__name__}: {error}") from None


def written_completion(completion: Completion, model: str, digest: str) -> dict[str, Any]:
    """A completion in OpenAI form."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.content}
    if completion.reasoning is not None:
        message["reasoning_content"] = completion.reasoning
    if completion.tool_calls:
        message["tool_calls"] = [call.model_dump() for call in completion.tool_calls]
    usage = completion.usage
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": completion.finish_reason, "logprobs": None}],
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
    }


def error_body(message: str, kind: str = "server_error", code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def json_text(body: Any, plan: Plan) -> str:
    """A body as text. A server that repeats the key also escapes slashes, as PHP does."""
    text = json.dumps(body)
    return text.replace("/", "\\/") if plan.echo_key else text


def digest_of(body: Any) -> str:
    """The sha256 of a JSON body, whatever its spacing and order."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------- faults


@dataclass(frozen=True)
class Plan:
    """Which faults requests meet before they are answered."""

    seed: int = 0
    rate: float = 0.0
    faults: tuple[str, ...] = ()
    most: int = 1  # faults of one body
    hang_s: float = 5.0
    response_formats: tuple[str, ...] | None = None
    echo_key: bool = False
    wrong_code: float = 0.0

    @classmethod
    def read(cls, file: Path) -> Plan:
        plain = json.loads(file.read_text(encoding="utf-8"))
        for name in ("faults", "response_formats"):
            if plain.get(name) is not None:
                plain[name] = tuple(plain[name])
        plan = cls(**plain)
        unknown = set(plan.faults) - set(FAULTS)
        if unknown:
            raise SystemExit(f"{file}: no fault is called {sorted(unknown)[0]}; there are: {', '.join(FAULTS)}")
        return plan

    def fault(self, digest: str, attempt: int) -> str | None:
        """The fault that the numbered attempt (from 0) at a body meets."""
        rng = random.Random(f"{self.seed}:{digest}")
        if not self.faults or rng.random() >= self.rate:
            return None
        drawn = rng.sample(self.faults, rng.randint(1, min(self.most, len(self.faults))))
        return drawn[attempt] if attempt < len(drawn) else None


@dataclass
class Exchange:
    """One request that is being answered."""

    connection: Connection
    asked: Asked
    plan: Plan
    digest: str
    body: dict[str, Any]
    request: Request
    right: dict[str, Any]
    status: int | None = None

    def send(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        if self.plan.echo_key and isinstance(body, dict) and "error" in body:
            body["error"]["message"] += f" ({self.asked.headers.get('authorization')})"
        data = body if isinstance(body, str) else json_text(body, self.plan)
        self.connection.write(response(status, data.encode(), headers))

    def usage(self, value: Any) -> dict[str, Any]:
        """The right reply with another usage."""
        return {**self.right, "usage": value}


Fault = Callable[[Exchange], Awaitable[None]]
FAULTS: dict[str, Fault] = {}
RIGHT = {"usage_missing", "usage_nonsense"}  # faults whose reply is right


def fault(name: str) -> Callable[[Fault], Fault]:
    def named(work: Fault) -> Fault:
        FAULTS[name] = work
        return work

    return named


@fault("429_seconds")
async def _429_seconds(exchange: Exchange) -> None:
    exchange.send(429, error_body("Too many requests", "rate_limit_error"), {"Retry-After": "1"})


@fault("429_date")
async def _429_date(exchange: Exchange) -> None:
    until = email.utils.formatdate(time.time() + 1, usegmt=True)
    exchange.send(429, error_body("Too many requests", "rate_limit_error"), {"Retry-After": until})


@fault("500")
async def _500(exchange: Exchange) -> None:
    exchange.send(500, error_body("CUDA error: an illegal memory access was encountered"))


@fault("502_html")
async def _502_html(exchange: Exchange) -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1>nginx</body></html>"
    exchange.send(502, page, {"Content-Type": "text/html"})


@fault("503_no_header")
async def _503_no_header(exchange: Exchange) -> None:
    exchange.send(503, error_body("The server is overloaded"))


@fault("200_error_body")
async def _200_error_body(exchange: Exchange) -> None:
    exchange.send(200, error_body("Provider returned error", code=502))


@fault("cut_body")
async def _cut_body(exchange: Exchange) -> None:
    whole = response(200, json.dumps(exchange.right).encode())
    exchange.connection.write(whole[: len(whole) - len(json.dumps(exchange.right)) // 2])
    exchange.connection.close()


@fault("hang")
async def _hang(exchange: Exchange) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(exchange.connection.lost), exchange.plan.hang_s)
    exchange.connection.close()


@fault("reset")
async def _reset(exchange: Exchange) -> None:
    exchange.connection.reset()


@fault("empty_choices")
async def _empty_choices(exchange: Exchange) -> None:
    exchange.send(200, {**exchange.right, "choices": []})


@fault("no_response_format")
async def _no_response_format(exchange: Exchange) -> None:
    _refuse_format(exchange, "text")


@fault("prompt_truncated")
async def _prompt_truncated(exchange: Exchange) -> None:
    choice = exchange.right["choices"][0]
    message = {"role": "assistant", "content": _wrong(choice["message"].get("content") or "")}
    usage = {"prompt_tokens": 64, "completion_tokens": 16, "total_tokens": 80}
    exchange.send(200, {**exchange.usage(usage), "choices": [{**choice, "message": message, "finish_reason": "stop"}]})


@fault("usage_missing")
async def _usage_missing(exchange: Exchange) -> None:
    without = {name: value for name, value in exchange.right.items() if name != "usage"}
    exchange.send(200, without if int(exchange.digest[:2], 16) % 2 else exchange.usage(None))


@fault("usage_nonsense")
async def _usage_nonsense(exchange: Exchange) -> None:
    beyond = 10 * exchange.request.model.max_tokens
    kinds: list[Any] = [
        {"prompt_tokens": "many", "completion_tokens": "12", "total_tokens": None},
        {"prompt_tokens": -3, "completion_tokens": -1, "total_tokens": -4},
        {"prompt_tokens": 0, "completion_tokens": beyond, "total_tokens": beyond},
        [1, 2, 3],
    ]
    exchange.send(200, exchange.usage(kinds[int(exchange.digest[:2], 16) % len(kinds)]))


def _refuse_format(exchange: Exchange, *taken: str) -> None:
    said = f"response_format.type must be one of: {', '.join(taken)}"
    exchange.send(400, error_body(said, "invalid_request_error"))


def _fits(name: str | None, exchange: Exchange) -> bool:
    """Whether a fault makes sense for a request; one that does not is left out."""
    if name == "no_response_format":
        return "response_format" in exchange.body
    if name == "prompt_truncated":
        read = sum(len(message.content or "") for message in exchange.request.messages)
        return read > LONG_PROMPT_CHARACTERS
    return name is not None


def _wrong(content: str) -> str:
    """A reply of the same form that says something else."""
    try:
        return json.dumps(_turned(json.loads(content)))
    except ValueError:
        return "All of that is done."


def _turned(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return 1 - value
    if isinstance(value, list):
        return [_turned(one) for one in reversed(value)]
    if isinstance(value, dict):
        return {name: _turned(one) for name, one in value.items()}
    return value


# ---------------------------------------------------------------- handlers


class Echo:
    """A fixed small reply after the latency, as cheaply as it goes."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.loop = asyncio.get_running_loop()
        message = {"role": "assistant", "content": '{"score": 1.0, "reason": "Echo."}'}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 100, "completion_tokens": 8, "total_tokens": 108}
        plain = {"id": "chatcmpl-echo", "object": "chat.completion", "created": 0, "model": "echo", "choices": choices}
        self.reply = response(200, json.dumps({**plain, "usage": usage}).encode())

    def handle(self, connection: Connection, asked: Asked) -> None:
        self.loop.call_later(self.latency_s, self._answer, connection)

    def _answer(self, connection: Connection) -> None:
        connection.write(self.reply)
        connection.written()


@dataclass
class Teacher:
    """The built-in teacher's replies, with the plan's faults before them, and a line in the log for each request."""

    plan: Plan
    log: IO[str]
    latency_s: float = 0.0
    slots: int | None = None
    die_after: int | None = None
    key: str | None = None
    in_flight: int = 0
    answered: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def handle(self, connection: Connection, asked: Asked) -> None:
        task = asyncio.ensure_future(self._handle(connection, asked))
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        task.result()

    async def _handle(self, connection: Connection, asked: Asked) -> None:
        if asked.path == SETTLED:  # whatever was written before this request was read is in the log by now
            connection.reply(200, b"{}")
        elif self.key is not None and asked.headers.get("authorization") != f"Bearer {self.key}":
            self._error(connection, asked, 401, "Incorrect API key provided", "key")
        elif (asked.method, asked.path) == ("GET", "/v1/models"):
            connection.reply(200, json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())
        elif (asked.method, asked.path) != ("POST", "/v1/chat/completions"):
            self._error(connection, asked, 404, f"no {asked.method} {asked.path} here", "path")
        else:
            self.in_flight += 1
            try:
                await self._complete(connection, asked)
            finally:
                self.in_flight -= 1

    async def _complete(self, connection: Connection, asked: Asked) -> None:
        arrived, in_flight = time.time(), self.in_flight
        try:
            body = json.loads(asked.body)
            request = read_request(body)
        except (ValueError, Malformed) as error:
            self._error(connection, asked, 400, str(error), "malformed")
            return
        if self.slots is not None and in_flight > self.slots:
            self._error(connection, asked, 429, f"all {self.slots} slots are taken", "slots")
            return
        await asyncio.sleep(self.latency_s)
        exchange = Exchange(connection, asked, self.plan, digest_of(body), body, request, {})
        name = await self._answer(exchange)
        if exchange.status is not None and connection.lost.done():
            name = "client_gone"
        whole = exchange.status == 200 and (name is None or name in RIGHT)
        self._note(Entry(exchange.digest, arrived, time.time(), exchange.status, name, whole, in_flight))
        connection.written()
        self.answered += whole
        if self.die_after is not None and self.answered >= self.die_after:
            os._exit(1)

    async def _answer(self, exchange: Exchange) -> str | None:
        """Answer rightly or with a fault; the fault's name."""
        from astra.llm.builtin import BuiltinTransport
        from astra.llm.errors import RequestRefused

        form = exchange.body.get("response_format", {}).get("type")
        taken = self.plan.response_formats
        if form is not None and taken is not None and form not in taken:
            _refuse_format(exchange, *taken)
            return "response_format"
        try:
            completion = await BuiltinTransport().send(exchange.request)
        except RequestRefused as refusal:
            exchange.send(400, error_body(refusal.detail, "invalid_request_error"))
            return "refused"
        if self.plan.wrong_code:
            completion = _with_wrong_code(completion, exchange)
        completion = _with_tools_read(completion, exchange.request)
        exchange.right = written_completion(completion, exchange.request.model.name, exchange.digest)
        if self.plan.echo_key:
            _repeat_key(exchange.right["choices"][0]["message"], exchange.asked.headers.get("authorization", ""))
        name = self.plan.fault(exchange.digest, self.attempts[exchange.digest])
        self.attempts[exchange.digest] += 1
        if name is not None and _fits(name, exchange):
            await FAULTS[name](exchange)
            return name
        exchange.send(200, exchange.right)
        return None

    def _error(self, connection: Connection, asked: Asked, status: int, message: str, name: str) -> None:
        if self.plan.echo_key:
            message += f" (Authorization was {asked.headers.get('authorization')})"
        headers = {"Retry-After": "1"} if status == 429 else None
        kind = "rate_limit_error" if status == 429 else "invalid_request_error"
        now = time.time()
        self._note(Entry(hashlib.sha256(asked.body).hexdigest(), now, now, status, name, False, self.in_flight))
        connection.reply(status, json_text(error_body(message, kind), self.plan).encode(), headers)

    def _note(self, entry: Entry) -> None:
        self.log.write(json.dumps(dataclasses.asdict(entry)) + "\n")
        self.log.flush()


def _with_tools_read(completion: Completion, request: Request) -> Completion:
    """The completion with the tools among the tokens that were read; the rules count the messages only.

    Counted as a client estimates it, so that a reply without usage leads to the same record.
    """
    from astra.llm.completions import prompt_tokens

    read = prompt_tokens(request)
    return dataclasses.replace(completion, usage=completion.usage.model_copy(update={"prompt_tokens": read}))


def _with_wrong_code(completion: Completion, exchange: Exchange) -> Completion:
    """The completion; its program is wrong for the plan's share of the bodies."""
    from astra.llm.builtin import _read
    from tests.wrong_programs import wrong_reply

    rng = random.Random(f"code:{exchange.plan.seed}:{exchange.digest}")
    said = completion.content or ""
    if not said.startswith("```python") or rng.random() >= exchange.plan.wrong_code:
        return completion
    _, shown = _read(exchange.request)
    return dataclasses.replace(completion, content=wrong_reply(said, json.loads(shown), rng))


def _repeat_key(message: dict[str, Any], authorization: str) -> None:
    """Say the key in the reasoning and, where it is prose, in the text."""
    message["reasoning_content"] = f"I was called with {authorization}."
    content = message["content"] or ""
    if not content.startswith(("{", "[")):
        message["content"] = f"{content} ({authorization})".strip()


# ---------------------------------------------------------------- the process


@dataclass(frozen=True)
class Entry:
    """One request in the log. ``answered``: the right reply was written whole. Times are of the wall clock."""

    digest: str
    arrived: float
    written: float
    status: int | None
    fault: str | None
    answered: bool
    in_flight: int


def read_log(file: Path) -> list[Entry]:
    """The requests so far, in the order in which they ended."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [Entry(**json.loads(line)) for line in lines]


class Serving:
    """A server process, started with the given options of the command line; it ends with this block."""

    def __init__(self, log: Path, plan: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.log = log
        self.plan = plan
        self.options = options
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Serving:
        command = [sys.executable, "-m", "tests.openai_server", "--log", str(self.log)]
        if self.plan is not None:
            file = self.log.with_suffix(".plan.json")
            file.write_text(json.dumps(self.plan), encoding="utf-8")
            command += ["--plan", str(file)]
        for name, value in self.options.items():
            option = f"--{name.replace('_', '-')}"
            command += [option] if value is True else [option, str(value)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"{' '.join(command)} ended with {self.process.wait()} before it had an address")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.communicate()

    def entries(self) -> list[Entry]:
        """The requests so far; none is missing whose answer a client has seen."""
        with contextlib.suppress(OSError, http.client.HTTPException):  # it may have died
            place = urlsplit(self.url)
            assert place.hostname is not None
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
            with contextlib.closing(connection):
                connection.request("GET", SETTLED)
                connection.getresponse().read()
        return read_log(self.log)

    def answered(self) -> Counter[str]:
        """How often each body was answered rightly and whole."""
        return answers(self.entries())


def answers(entries: Iterable[Entry]) -> Counter[str]:
    """How often each body was answered rightly and whole."""
    return Counter(one.digest for one in entries if one.answered)


async def _until_stdin_ends() -> None:
    """Returns when the other end of stdin is gone; never where stdin is no pipe."""
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        await asyncio.get_running_loop().create_future()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def serve(options: argparse.Namespace) -> None:
    """Listen until stdin ends or the lifetime is over."""
    with contextlib.ExitStack() as opened:
        handler: Handler
        if options.echo:
            handler = Echo(options.latency_ms / 1000)
        else:
            import astra.llm.builtin  # noqa: F401  before the address is known, so that no request waits for it

            log = opened.enter_context(options.log.open("a", encoding="utf-8"))
            plan = Plan.read(options.plan) if options.plan else Plan()
            handler = Teacher(plan, log, options.latency_ms / 1000, options.slots, options.die_after, options.key)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(functools.partial(Connection, handler), "127.0.0.1", 0, backlog=1024)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_until_stdin_ends(), options.lifetime_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.openai_server")
    parser.add_argument("--log", type=Path, default=Path(os.devnull))
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--die-after", type=int)
    parser.add_argument("--key")
    parser.add_argument("--lifetime-s", type=float, default=LIFETIME_S)
    parser.add_argument("--echo", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
