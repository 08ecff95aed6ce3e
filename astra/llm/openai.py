"""Any endpoint that speaks OpenAI chat completions; address and key come from OPENAI_BASE_URL and OPENAI_API_KEY.

Servers differ in what they take. What one refuses with a 400 is asked for in the next plainer form, and what worked is
remembered: structured output as json_schema, json_object or not at all; the token limit under its newer name; tool
schemas without patterns and formats. When no form works, the server's own message is what the caller sees.
"""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import ValidationError

from astra.llm.cache import Cached
from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.types import Completion, Request, Transport
from astra.records import FunctionCall, ToolCall, Usage

if TYPE_CHECKING:
    import openai

TIMEOUT_S = 600.0
SETTLED = {401, 402, 403, 404}  # asking again does not help: key, credit, permission, address or model name
AGAIN = {408, 409, 425, 429}
IN_A_ROW = 5  # bad requests or cut prompts one after the other: it is the set-up, not the record
GRAMMAR = ("grammar", "schema", "pattern", "regex")
LONG_PROMPT = 1000  # estimated tokens from which a cut prompt is told from a coarse estimate
CUT_SHARE = 0.4  # reported prompt tokens under this share of the estimate: the server dropped the front


@dataclass
class OpenAITransport:
    """One endpoint. It asks once per ``send``; the client repeats."""

    base_url: str
    api_key: str
    http_client: Any = None  # an httpx2.AsyncClient, for tests
    forms: list[str] = field(default_factory=lambda: ["json_schema", "json_object", "none"])
    limit_name: str = "max_tokens"
    plain_schemas: bool = False
    _in_a_row: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _openai: openai.AsyncOpenAI | None = None

    @classmethod
    def from_environment(cls) -> Transport:
        """The endpoint that the environment names, with its replies cached. Raises EndpointUnavailable."""
        address, key = os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_API_KEY")
        if not address or not key:
            raise EndpointUnavailable(
                "models: transport openai needs OPENAI_BASE_URL and OPENAI_API_KEY in the environment (any text as "
                "the key of a server without keys). Export both, or set transport: builtin in params.yaml"
            )
        return Cached(cls(address, key), address)

    async def send(self, request: Request) -> Completion:
        """One reply. Raises RequestRefused, EndpointUnavailable, or Transient where asking again may help."""
        while True:
            try:
                completion = _completion(await self._post(request))
                self._check_prompt(request, completion)
            except BadRequest as refusal:
                if self._plainer(request, refusal.detail):
                    continue
                self._count(request, "bad_request", refusal.detail)
            self._in_a_row = 0
            return completion

    def _plainer(self, request: Request, said: str) -> bool:
        """Whether a plainer form of the request is left to try after a 400."""
        said = said.lower()
        if request.json_schema is not None and len(self.forms) > 1 and any(
            word in said for word in ("response_format", "json_schema", "json_object", "structured", "grammar", "type")
        ):  # fmt: skip
            self.forms = self.forms[1:]
            return True
        if self.limit_name == "max_tokens" and "max_completion_tokens" in said:
            self.limit_name = "max_completion_tokens"
            return True
        if request.tools and not self.plain_schemas and any(word in said for word in GRAMMAR):
            self.plain_schemas = True
            return True
        return False

    def _check_prompt(self, request: Request, completion: Completion) -> None:
        estimate = estimated_tokens(request)
        seen = completion.usage.prompt_tokens
        if estimate >= LONG_PROMPT and 0 < seen < CUT_SHARE * estimate:
            detail = f"the server read {seen} prompt tokens of about {estimate}; raise its context size"
            self._count(request, "prompt_truncated", detail)

    def _count(self, request: Request, reason: str, detail: str) -> NoReturn:
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW:
            raise EndpointUnavailable(
                f"{self.base_url}, model {request.model.name}: {self._in_a_row} requests in a row ended in {reason}: "
                f"{detail}. Mend the server or models in params.yaml, then: dvc repro"
            )
        raise RequestRefused(reason, detail)

    async def _post(self, request: Request) -> str:
        """The reply's body. Raises BadRequest and what ``send`` raises."""
        import openai

        try:
            raw = await self._client().chat.completions.with_raw_response.create(**self._body(request))
        except openai.APIStatusError as error:
            error_for(error.status_code, _said(error), error.response.headers, self._who(request))
        except openai.APIConnectionError as error:
            raise Transient(None, f"{self.base_url}: {error.message} {error.__cause__ or ''}".strip()) from None
        return str(raw.http_response.text)

    def _who(self, request: Request) -> str:
        return f"{self.base_url}, model {request.model.name}"

    def _client(self) -> openai.AsyncOpenAI:
        """A connection pool of the running event loop."""
        import openai

        loop = asyncio.get_running_loop()
        if self._openai is None or self._loop is not loop:
            self._loop = loop
            self._openai = openai.AsyncOpenAI(
                base_url=self.base_url,
                api_key=self.api_key,
                max_retries=0,
                timeout=TIMEOUT_S,
                http_client=self.http_client,
            )
        return self._openai

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model.name,
            "messages": [message.openai() for message in request.messages],
            "temperature": request.model.temperature,
            "seed": request.seed + request.sample,
            self.limit_name: request.model.max_tokens,
        }
        if request.tools:
            tools = [tool.openai() for tool in request.tools]
            body["tools"] = [_plain(tool) for tool in tools] if self.plain_schemas else tools
        if request.json_schema is not None and self.forms[0] == "json_schema":
            schema = {"name": "reply", "schema": request.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif request.json_schema is not None and self.forms[0] == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body


class BadRequest(Exception):
    """A 400 that says nothing of content or length."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def error_for(status: int, said: str, headers: Mapping[str, str], who: str) -> NoReturn:
    """Raise what an HTTP status (or the code in an error body) means."""
    low = said.lower()
    if "content_filter" in low or "content policy" in low:
        raise RequestRefused("filtered", said)
    if status == 413 or "context length" in low or "context_length" in low or "maximum context" in low:
        raise RequestRefused("overlong", said)
    if status in SETTLED:
        raise EndpointUnavailable(f"{who}: status {status}: {said}. Mend key, credit, address or model; dvc repro")
    if status in AGAIN or status >= 500:
        raise Transient(status, f"{who}: {said}", retry_after(headers))
    raise BadRequest(f"status {status}: {said}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from either of its two forms; None where it says nothing readable."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            return max(0.0, float(text) * unit_s)
        except ValueError:
            pass
        try:
            until = email.utils.parsedate_to_datetime(text)
        except ValueError:
            continue
        return max(0.0, (until - datetime.datetime.now(until.tzinfo)).total_seconds())
    return None


def _said(error: openai.APIStatusError) -> str:
    body: Any = error.body
    if isinstance(body, dict):
        return json.dumps(body, ensure_ascii=False)[:500]
    return " ".join(error.message.split())[:300]


def _completion(text: str) -> Completion:
    """The completion in a 200 body, which may hold an error or nothing instead."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise Transient(200, f"no JSON object in the body: {text[:100]!r}", becomes="empty_response")
    if body.get("error"):
        error = body["error"] if isinstance(body["error"], dict) else {"message": str(body["error"])}
        code = error.get("code")
        said = json.dumps(error, ensure_ascii=False)[:500]
        error_for(code if isinstance(code, int) else 500, said, {}, "a body with status 200")
    try:
        return _read(body)
    except (AttributeError, KeyError, IndexError, TypeError, ValidationError) as error:
        raise Transient(200, f"no chat completion ({error}): {text[:100]!r}", becomes="bad_response") from None


def _read(body: dict[str, Any]) -> Completion:
    """The completion in a body that states no error; whatever a body that is none makes of this, the caller catches."""
    choices = body.get("choices") or [{}]
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise Transient(200, "a reply without a message", becomes="empty_response")
    if choice.get("finish_reason") == "content_filter":
        raise RequestRefused("filtered", "finish_reason content_filter")
    if message.get("refusal"):
        raise RequestRefused("refused", str(message["refusal"])[:300])
    content = message.get("content")
    if not isinstance(content, str | None):
        raise TypeError(f"content is {type(content).__name__}, not text")
    usage = body.get("usage") or {}
    return Completion(
        content=content,
        finish_reason=choice.get("finish_reason") or "stop",
        usage=Usage(
            calls=1,
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
        ),
        tool_calls=tuple(_tool_call(n, call) for n, call in enumerate(message.get("tool_calls") or [])),
        reasoning=message.get("reasoning_content") or message.get("reasoning") or None,
    )


def _tool_call(number: int, call: dict[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(
        id=str(call.get("id") or f"call_{number}"),
        function=FunctionCall(name=str(function.get("name")), arguments=text),
    )


def estimated_tokens(request: Request) -> int:
    """About how many tokens the prompt has: four characters each."""
    messages = sum(len(message.content or "") for message in request.messages)
    return (messages + sum(len(json.dumps(tool.openai())) for tool in request.tools)) // 4


_DROPPED = {"pattern", "format", "maxLength", "minLength", "maxItems", "minItems"}


def _plain(value: Any, is_properties: bool = False) -> Any:
    """A schema without what some servers' grammar compilers refuse; property names stay, whatever they are."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _plain(one, is_properties=name == "properties" and not is_properties)
        for name, one in value.items()
        if is_properties or name not in _DROPPED
    }
