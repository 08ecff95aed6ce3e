"""Any endpoint that speaks OpenAI chat completions: vLLM, SGLang, llama.cpp, Ollama, gateways, hosted ones.

Address and key come from the environment: OPENAI_BASE_URL and OPENAI_API_KEY, or ASTRA_<ROLE>_BASE_URL and
ASTRA_<ROLE>_API_KEY for one role. An address may carry a query (``?api-version=...``), as Azure's gateways want.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from astra.llm.completions import BadRequest, check_prompt, error_for, read_completion
from astra.llm.dialect import Dialect, suspect
from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.reply import clean_value
from astra.llm.types import Completion, Request

if TYPE_CHECKING:
    import openai

IN_A_ROW = 5  # bad requests or cut prompts one after the other: it is the set-up, not the record
REMEDY = {
    "prompt_truncated": "Raise the context size on the server",
    "bad_request": "Mend the server or models in params.yaml",
}


@dataclass(frozen=True)
class Address:
    """Where an endpoint is and its key; printing it never shows the key."""

    url: str
    key: str = field(repr=False)

    @classmethod
    def from_environment(cls, role: str) -> Address:
        """The endpoint that the environment names for a role. Raises EndpointUnavailable."""
        own = f"ASTRA_{role.upper()}"
        url = os.environ.get(f"{own}_BASE_URL") or os.environ.get("OPENAI_BASE_URL")
        key = os.environ.get(f"{own}_API_KEY") or os.environ.get("OPENAI_API_KEY")
        if not url or not key:
            raise EndpointUnavailable(
                f"models.{role}: transport openai needs OPENAI_BASE_URL and OPENAI_API_KEY in the environment, or "
                f"{own}_BASE_URL and {own}_API_KEY for this role (any text as the key of a server without keys). "
                "Export both, or set transport: builtin in params.yaml"
            )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise EndpointUnavailable(f"models.{role}: {url!r} is no http or https address; expected https://host/v1")
        return cls(url, key)

    @property
    def shown(self) -> str:
        """The address without a name, password or query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def without_key(self, text: str) -> str:
        """A text with the key blotted out: some servers repeat it. Words that could be ordinary text are left."""
        if self.key in text and len(self.key) >= 8 and not self.key.isalpha():
            return text.replace(self.key, "[key]")
        return text


@dataclass
class OpenAITransport:
    """One endpoint. It asks once per ``send``; the client repeats."""

    address: Address
    http_client: Any = None  # an httpx2.AsyncClient, for tests
    dialect: Dialect = field(default_factory=Dialect)
    remember: Callable[[Dialect], None] = lambda _: None
    settled: bool = False  # whether the dialect is known to work for structured output
    _plain_tools: set[tuple[str, ...]] = field(default_factory=set)
    _in_a_row: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _lock: asyncio.Lock | None = None
    _openai: openai.AsyncOpenAI | None = None

    async def send(self, request: Request) -> Completion:
        """One reply. Raises RequestRefused, EndpointUnavailable, or Transient where asking again may help."""
        client = self._client()
        assert self._lock is not None
        if request.json_schema is None or self.settled:
            return await self._negotiated(client, request)
        async with self._lock:  # the first finds out which structured output the server takes, the others wait for it
            if not self.settled:
                return await self._negotiated(client, request)
        return await self._negotiated(client, request)

    async def _negotiated(self, client: openai.AsyncOpenAI, request: Request) -> Completion:
        names = tuple(tool.name for tool in request.tools)
        dialect = dataclasses.replace(self.dialect, plain_tools=names in self._plain_tools)
        while True:
            try:
                completion = read_completion(await self._post(client, request, dialect), request)
                check_prompt(request, completion)
                break
            except BadRequest as refusal:
                plainer = dialect.plainer(request, refusal.detail)
                if plainer is None:
                    tool = f"; the tool it stumbles over may be {suspect(request.tools)}" if dialect.plain_tools else ""
                    self._refuse(request, "bad_request", refusal.detail + tool)
                dialect = plainer
            except Transient as failure:
                if failure.becomes == "prompt_truncated":
                    self._in_a_row += 1
                    self._stop_after_a_few(request, "prompt_truncated", failure.detail)
                raise
        self._in_a_row = 0
        self._settle(dialect, request, names)
        return completion

    def _settle(self, dialect: Dialect, request: Request, names: tuple[str, ...]) -> None:
        """Keep what worked; plain tool schemas are kept for these tools only, since the others may be fine."""
        if dialect.plain_tools:
            self._plain_tools.add(names)
        found = dataclasses.replace(dialect, plain_tools=False)
        newly = request.json_schema is not None and not self.settled
        if newly or found != self.dialect:
            self.settled = self.settled or newly
            self.dialect = found
            if self.settled:
                self.remember(found)

    def _refuse(self, request: Request, reason: str, detail: str) -> NoReturn:
        self._in_a_row += 1
        self._stop_after_a_few(request, reason, detail)
        raise RequestRefused(reason, detail)

    def _stop_after_a_few(self, request: Request, reason: str, detail: str) -> None:
        if self._in_a_row >= IN_A_ROW:
            raise EndpointUnavailable(
                f"{self._who(request)}: {self._in_a_row} requests in a row ended in {reason}: {detail}. "
                f"{REMEDY[reason]}, then: dvc repro"
            )

    async def _post(self, client: openai.AsyncOpenAI, request: Request, dialect: Dialect) -> str:
        """The reply's body. Raises BadRequest and what ``send`` raises."""
        import openai

        body = dialect.body(request)
        try:
            try:
                raw = await client.post("/chat/completions", body=body, cast_to=str)
            except UnicodeEncodeError:  # a lone surrogate, e.g. in a tool result that was cut within a character
                raw = await client.post("/chat/completions", body=clean_value(body), cast_to=str)
        except openai.APIStatusError as error:
            error_for(error.status_code, self._said(error), error.response.headers, self._who(request))
        except openai.APIConnectionError as error:
            detail = self.address.without_key(f"{error.message} {error.__cause__ or ''}".strip())
            raise Transient(None, f"{self.address.shown}: {detail}") from None
        return self.address.without_key(raw)

    def _who(self, request: Request) -> str:
        return f"{self.address.shown}, model {request.model.name}"

    def _said(self, error: openai.APIStatusError) -> str:
        body: Any = error.body
        text = json.dumps(body, ensure_ascii=False)[:500] if isinstance(body, dict) else error.message[:300]
        return self.address.without_key(" ".join(re.sub(r"<[^<>]*>", " ", text).split()))

    def _client(self) -> openai.AsyncOpenAI:
        """A connection pool of the running event loop."""
        import openai

        loop = asyncio.get_running_loop()
        if self._openai is None or self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
            parts = urlsplit(self.address.url)
            query = dict(parse_qsl(parts.query))
            self._openai = openai.AsyncOpenAI(
                base_url=urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")),
                api_key=self.address.key,
                default_query=query or None,
                default_headers={"api-key": self.address.key} if "api-version" in query else None,
                max_retries=0,
                timeout=None,  # the client above keeps the time
                http_client=self.http_client,
            )
        return self._openai

    async def aclose(self) -> None:
        """Close the connections."""
        if self._openai is not None and self.http_client is None:
            await self._openai.close()
