"""The chat completion in a response body, whatever a server put there instead."""

from __future__ import annotations

import datetime
import email.utils
import json
from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import ValidationError

from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.reply import clean_text
from astra.llm.types import Completion, Request, estimated_tokens
from astra.records import FunctionCall, ToolCall, Usage

SETTLED = {401, 402, 403, 404}  # asking again does not help: key, credit, permission, address or model name
AGAIN = {408, 409, 425, 429}
LONG_PROMPT = 1000  # estimated tokens from which a cut prompt is told from a coarse estimate


class BadRequest(Exception):
    """A 400 that says nothing of content or length."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def error_for(status: int, said: str, headers: Mapping[str, str], who: str) -> NoReturn:
    """Raise what an HTTP status (or the code in an error body) means."""
    low = said.lower()
    if "content_filter" in low or "content policy" in low or "content management policy" in low:
        raise RequestRefused("filtered", said)
    if status == 413 or "context length" in low or "context_length" in low or "maximum context" in low:
        raise RequestRefused("overlong", said)
    if status in SETTLED or "insufficient_quota" in low:
        raise EndpointUnavailable(f"{who}: status {status}: {said}. Mend key, credit, address or model; dvc repro")
    if status in AGAIN:
        raise Transient(status, f"{who}: {said}", retry_after(headers))
    if status >= 500:
        raise Transient(status, f"{who}: {said}", retry_after(headers), fault="server_error")
    raise BadRequest(f"status {status}: {said}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from either of its two forms; None where it says nothing readable."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) * unit_s
        except ValueError:
            pass
        else:
            if seconds == seconds:  # NaN says nothing
                return max(0.0, seconds)
        try:
            until = email.utils.parsedate_to_datetime(text)
        except ValueError:
            continue
        return max(0.0, (until - datetime.datetime.now(until.tzinfo)).total_seconds())
    return None


def read_completion(text: str, request: Request) -> Completion:
    """The completion in a 200 body. Raises what ``error_for`` raises, and Transient for a body that is none."""
    try:
        body = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Transient(200, f"no JSON object in the body: {text[:100]!r}", becomes="empty_response")
    if body.get("error"):
        error = body["error"] if isinstance(body["error"], dict) else {"message": str(body["error"])}
        said = json.dumps(error, ensure_ascii=False)[:500]
        error_for(_status(error), said, {}, "a body with status 200")
    try:
        return _read(body, request)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ValidationError) as error:
        raise Transient(200, f"no chat completion ({error}): {text[:100]!r}", becomes="bad_response") from None


def _status(error: Mapping[str, Any]) -> int:
    """The HTTP status that an error body means; 500 where it names none."""
    for name in ("code", "status", "type"):
        value = error.get(name)
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
            return value
        if isinstance(value, str) and "rate_limit" in value:
            return 429
        if isinstance(value, str) and "invalid_request" in value:
            return 400
    return 500


def _read(body: dict[str, Any], request: Request) -> Completion:
    """The completion in a body that states no error; whatever a body that is none makes of this, the caller catches."""
    choices = body.get("choices") or [{}]
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise Transient(200, "a reply without a message", becomes="empty_response")
    content = message.get("content")
    if not isinstance(content, str | None):
        raise TypeError(f"content is {type(content).__name__}, not text")
    content = None if content is None else clean_text(content)
    calls = tuple(_tool_call(n, call) for n, call in enumerate(message.get("tool_calls") or []))
    reasoning = message.get("reasoning_content") or message.get("reasoning") or None
    if not isinstance(reasoning, str | None):
        raise TypeError(f"reasoning is {type(reasoning).__name__}, not text")
    reasoning = None if reasoning is None else clean_text(reasoning)
    usage, at_limit = read_usage(body.get("usage"), request, content, reasoning, calls)
    finish = str(choice.get("finish_reason") or "stop")
    return Completion(
        content=content,
        finish_reason="length" if at_limit and finish != "content_filter" else finish,
        usage=usage,
        tool_calls=calls,
        reasoning=reasoning,
        refusal=str(message["refusal"]) if message.get("refusal") else None,
    )


def _tool_call(number: int, call: dict[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(
        id=str(call.get("id") or f"call_{number}"),
        function=FunctionCall(name=clean_text(str(function.get("name"))), arguments=clean_text(text)),
    )


def read_usage(
    value: Any, request: Request, content: str | None, reasoning: str | None, calls: tuple[ToolCall, ...]
) -> tuple[Usage, bool]:
    """Tokens as the server counted them, ours where its numbers cannot be; and whether the reply used up its tokens.

    Servers leave usage out, send texts or nonsense, and some count hidden reasoning beyond the limit: a count over the
    limit cannot be of this reply, so it says nothing about a cut.
    """
    reported = value if isinstance(value, dict) else {}
    prompt, completion = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    at_limit = completion == request.model.max_tokens
    if not prompt:
        prompt = prompt_tokens(request)
    if completion is None or completion > request.model.max_tokens:
        written = [content or "", reasoning or "", *(part for call in calls for part in _parts(call))]
        completion = estimated_tokens("".join(written))
    return Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion), at_limit


def _parts(call: ToolCall) -> tuple[str, str]:
    return call.function.arguments, call.function.name


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def prompt_tokens(request: Request) -> int:
    """Our estimate of a request's messages, in tokens."""
    return estimated_tokens("".join(message.content or "" for message in request.messages))


def check_prompt(request: Request, completion: Completion) -> None:
    """Raises Transient where the server plainly read less than it was sent: it dropped the front of the prompt."""
    tools = sum(len(str(tool.parameters)) + len(tool.description) for tool in request.tools) // 4
    estimate = prompt_tokens(request) + tools
    seen = completion.usage.prompt_tokens
    if estimate >= LONG_PROMPT and seen < request.model.min_prompt_share * estimate:
        detail = f"the server read {seen} prompt tokens of about {estimate}; raise its context size"
        raise Transient(200, detail, becomes="prompt_truncated", attempts=2)
