"""The chat completion in a response body, whatever a server put there instead."""

from __future__ import annotations

import datetime
import email.utils
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import ValidationError

from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.reply import clean_text
from astra.llm.types import Completion, Request, estimated_tokens
from astra.records import FunctionCall, ToolCall, Usage

SETTLED = {401, 402, 403, 404, 405, 407, 410}  # asking again does not help: key, credit, address or model name
AGAIN = {408, 409, 425, 429}
MOST_TOKENS = 20_000_000  # no window is that large
LONG_PROMPT = 1000  # estimated tokens from which a cut prompt is told from a coarse estimate
FILTERED = (
    "content_filter", "content filter", "contentfilter", "content_policy", "content policy",
    "content management policy", "responsibleaipolicy", "data_inspection", "datainspection", "content exists risk",
    "content_moderation", "input was flagged", "prompt was flagged",
)  # fmt: skip
OVERLONG = re.compile(
    r"context[ _](?:length|size|window|limit)|maximum context|maximum model length|exceed_context|"
    r"(?:prompt|input|request) is too long|max_new_tokens` must be|reduce the length|range of input length|"
    r"too many (?:input|prompt) tokens"
)
NO_CREDIT = ("insufficient_quota", "billing_", "credit balance is too low", "insufficient balance")
GRAMMAR_FAILED = re.compile(
    r"grammar|schema|response_format|\bregex|look-?(?:ahead|around)|generate parser"
)  # some servers call it a 500
UNSUPPORTED = re.compile(r"response_format|requested parameters")  # a gateway knows no server that takes them
CUT = {"length", "max_tokens", "max_length", "model_length", "max_output_tokens", "token_limit"}
BLOCKED = {"content_filter", "safety", "sensitive", "prohibited_content", "blocklist", "recitation"}
BROKEN_OFF = {"error", "abort", "aborted", "cancelled", "canceled", "insufficient_system_resource", "network_error"}
WORDS = (  # what the codes and types of error bodies say
    ("rate_limit", 429), ("too_many_requests", 429), ("resource_exhausted", 429), ("throttl", 429),
    ("overloaded", 503), ("unavailable", 503), ("server_error", 500), ("internal", 500),
    ("insufficient_quota", 402), ("billing", 402), ("api_key", 401), ("authentication", 401), ("unauthorized", 401),
    ("unauthenticated", 401), ("permission", 403), ("not_found", 404),
)  # fmt: skip


class BadRequest(Exception):
    """A 400 that says nothing of content or length."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def error_for(status: int, said: str, headers: Mapping[str, str], who: str) -> NoReturn:
    """Raise what an HTTP status (or the code in an error body) means.

    A server that fails over a grammar or a form of output fails over it each time, whatever number it gives that.
    """
    low = said.lower()
    if status not in AGAIN and status <= 500 and any(word in low for word in FILTERED):
        raise RequestRefused("filtered", said)
    if status == 413 or (status not in AGAIN | SETTLED and status <= 500 and OVERLONG.search(low)):
        raise RequestRefused("overlong", said)
    if status == 404 and UNSUPPORTED.search(low):
        raise BadRequest(f"status {status}: {said}")
    if status in SETTLED or any(word in low for word in NO_CREDIT):
        raise EndpointUnavailable(f"{who}: status {status}: {said}. Mend key, credit, address or model; dvc repro")
    if status in AGAIN:
        raise Transient(status, f"{who}: {said}", retry_after(headers))
    if status >= 500 and not (status == 501 or (status == 500 and GRAMMAR_FAILED.search(low))):
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
        until = until if until.tzinfo else until.replace(tzinfo=datetime.UTC)
        return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
    return None


def read_completion(text: str, request: Request, who: str = "the endpoint") -> Completion:
    """The completion in a 200 body. Raises what ``error_for`` raises, and Transient for a body that is none."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, list) and len(body) == 1:
        body = body[0]  # some gateways wrap their errors in a list
    if not isinstance(body, dict):
        raise _no_object(text, who)
    said = _error_in(body)
    if said is not None:
        error_for(_status(said), json.dumps(said, ensure_ascii=False)[:500], {}, f"{who}, in a body with status 200")
    try:
        return _read(body, request)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ValidationError) as error:
        raise Transient(200, f"no chat completion ({error}): {text[:100]!r}", becomes="bad_response") from None


def _no_object(text: str, who: str) -> Transient:
    """What a body that holds no JSON object means: a page stands where no API is, a stream was not asked for."""
    begun = text.lstrip()[:200]
    if begun.startswith("<"):
        return Transient(200, f"{who}: a page instead of JSON: {begun[:100]!r}; does the address lack its /v1 ?")
    if begun.startswith(("data:", "event:", ":")):
        hint = "set stream: false in the extra of this model, or at the server"
        return Transient(200, f"{who}: a stream of events instead of JSON: {begun[:100]!r}; {hint}")
    return Transient(200, f"no JSON object in the body: {begun[:100]!r}", becomes="empty_response")


def _error_in(body: dict[str, Any]) -> dict[str, Any] | None:
    """The error that a body states: as ``error``, of its choice, or in place of choices; None without one."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    for error in (body.get("error"), choice.get("error")):
        if isinstance(error, list):
            error = error[0] if error else None
        if error and (not isinstance(error, dict) or any(error.values())):
            return error if isinstance(error, dict) else {"message": str(error)}
    if choices:
        return None
    errors = body.get("errors")
    if errors:
        first = errors[0] if isinstance(errors, list) else errors
        return first if isinstance(first, dict) else {"message": str(first)}
    stated = body.keys() & {"message", "detail", "msg", "error_message", "error_code"}
    return (
        {name: body[name] for name in (*sorted(stated), "code", "status", "type") if name in body} if stated else None
    )


def _status(error: Mapping[str, Any]) -> int:
    """The HTTP status that an error body means; 500 where it names none."""
    values = [error.get(name) for name in ("code", "status", "type", "error_code")]
    for value in values:
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
            return value
    texts = [value.lower() for value in values if isinstance(value, str)]
    for word, status in WORDS:
        if any(word in text for text in texts):
            return status
    return 400 if any("invalid" in text or "bad_request" in text for text in texts) else 500


def _read(body: dict[str, Any], request: Request) -> Completion:
    """The completion in a body that states no error; whatever a body that is none makes of this, the caller catches."""
    choices = body.get("choices") or [{}]
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise Transient(200, "a reply without a message", becomes="empty_response")
    content, thought = _content(message.get("content"))
    asked = message.get("tool_calls") or []
    if not asked and message.get("function_call"):
        asked = [{"function": message["function_call"]}]  # the older name
    calls = tuple(_tool_call(n, call) for n, call in enumerate(asked))
    named = [message.get(name) for name in ("reasoning_content", "reasoning", "thinking")]
    thoughts = [clean_text(one) for one in named if isinstance(one, str) and one]  # other kinds describe, or repeat it
    reasoning = next(iter(thoughts), None) or thought
    usage, at_limit = read_usage(body.get("usage"), request, content, reasoning, calls)
    finish = _finish(choice.get("finish_reason"))
    return Completion(
        content=content,
        finish_reason="length" if at_limit and finish != "content_filter" else finish,
        usage=usage,
        tool_calls=calls,
        reasoning=reasoning,
        refusal=str(message["refusal"]) if message.get("refusal") else None,
    )


def _finish(value: Any) -> str:
    """The finish reason under the name that we look for. Raises Transient for a reply that broke off."""
    said = str(value or "stop")
    low = said.lower().replace("-", "_")
    if low in BROKEN_OFF:
        raise Transient(200, f"the reply broke off: finish_reason {said}", fault="server_error")
    if low in CUT:
        return "length"
    return "content_filter" if low in BLOCKED else said


def _content(value: Any) -> tuple[str | None, str | None]:
    """Text and thoughts; some gateways send text as a list of parts. Raises TypeError for parts of other kinds."""
    if isinstance(value, str | None):
        return (None if value is None else clean_text(value)), None
    if not isinstance(value, list):
        raise TypeError(f"content is {type(value).__name__}, not text")
    texts, thoughts = [], []
    for part in value:
        kind = part.get("type", "text")
        if kind in ("text", "output_text") and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind in ("thinking", "reasoning"):
            inner = part.get("thinking") or part.get("text") or ""
            thoughts.append(inner if isinstance(inner, str) else _content(inner)[0] or "")
        else:
            raise TypeError(f"content has a part of type {kind!r}, not text")
    return clean_text("".join(texts)), clean_text("".join(thoughts)) or None


def _tool_call(number: int, call: dict[str, Any]) -> ToolCall:
    function = call.get("function") or call
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str):
        raise TypeError(f"a tool call without a name: {str(call)[:100]}")
    arguments = {} if arguments is None else arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(
        id=str(call.get("id") or f"call_{number}"),
        function=FunctionCall(name=clean_text(name.strip()), arguments=clean_text(text)),
    )


def read_usage(
    value: Any, request: Request, content: str | None, reasoning: str | None, calls: tuple[ToolCall, ...]
) -> tuple[Usage, bool]:
    """Tokens as the server counted them, ours where its numbers cannot be; and whether the reply used up its tokens.

    Servers leave usage out, send texts or nonsense, and some count hidden reasoning beyond the limit: a count over the
    limit cannot be of this reply, so it says nothing about a cut.
    """
    reported = value if isinstance(value, dict) else {}
    stated = [
        reported.get("prompt_tokens", reported.get("input_tokens")),
        reported.get("completion_tokens", reported.get("output_tokens")),
    ]
    prompt, completion = (_count(value) for value in stated)
    if any(value is not None and _count(value) is None for value in stated):
        prompt = completion = None  # beside nonsense the other number is worth nothing either
    at_limit = completion == request.model.max_tokens
    if not prompt:
        prompt = prompt_tokens(request)
    if not completion or completion > request.model.max_tokens:
        written = [content or "", reasoning or "", *(part for call in calls for part in _parts(call))]
        completion = estimated_tokens("".join(written))
    return Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion), at_limit


def _parts(call: ToolCall) -> tuple[str, str]:
    return call.function.arguments, call.function.name


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def prompt_tokens(request: Request) -> int:
    """Our estimate of what a server reads of a request, its tools included, in tokens."""
    tools = [part for tool in request.tools for part in (tool.description, str(tool.parameters))]
    return estimated_tokens("".join([*(message.content or "" for message in request.messages), *tools]))


def check_prompt(request: Request, completion: Completion) -> None:
    """Raises Transient where the server plainly read less than it was sent: it dropped the front of the prompt."""
    estimate = prompt_tokens(request)
    seen = completion.usage.prompt_tokens
    if estimate >= LONG_PROMPT and seen < request.model.min_prompt_share * estimate:
        detail = f"the server read {seen} prompt tokens of about {estimate}; raise its context size"
        raise Transient(200, detail, becomes="prompt_truncated", attempts=2)
