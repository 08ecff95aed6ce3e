"""Any endpoint that speaks OpenAI chat completions: vLLM, SGLang, llama.cpp, Ollama, gateways, hosted ones.

Address and key come from the environment: OPENAI_BASE_URL and OPENAI_API_KEY, or ASTRA_<ROLE>_BASE_URL and
ASTRA_<ROLE>_API_KEY for one role. An address may carry a query (``?api-version=...``), as Azure's gateways want.

Requests go over aiohttp: the pool of the openai package's own client looks through all connections for each request,
which at 256 connections costs many times the request itself (bench/endpoint.py measures it beside ours).
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from astra.llm.completions import BadRequest, check_prompt, error_for, read_completion
from astra.llm.dialect import Dialect, suspect
from astra.llm.errors import EndpointUnavailable, RequestRefused, Transient
from astra.llm.reply import clean_value
from astra.llm.types import Completion, Request

if TYPE_CHECKING:
    import aiohttp

CHECK_S = 10.0
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
        url = (os.environ.get(f"{own}_BASE_URL") or os.environ.get("OPENAI_BASE_URL") or "").strip()
        key = (os.environ.get(f"{own}_API_KEY") or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not url or not key:
            raise EndpointUnavailable(
                f"models.{role}: transport openai needs OPENAI_BASE_URL and OPENAI_API_KEY in the environment, or "
                f"{own}_BASE_URL and {own}_API_KEY for this role (any text as the key of a server without keys). "
                "Export both, or set transport: builtin in params.yaml"
            )
        if not key.isprintable():
            raise EndpointUnavailable(f"models.{role}: the key holds a control character; export it again without")
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is none, a bracket that is left open
            known = False
        if not known:
            raise EndpointUnavailable(
                f"models.{role}: {url.rpartition('@')[2]!r} is no http or https address; expected https://host/v1"
            )
        if "@" in parts.netloc:
            raise EndpointUnavailable(
                f"models.{role}: the address holds a name or password, which would stand beside the key; give the "
                "address without and put what the server wants into the key"
            )
        return cls(url, key)

    @property
    def headers(self) -> dict[str, str]:
        """What authorises a request; gateways with ``api-version`` want the key under a name of their own too."""
        bearer = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        return bearer | ({"api-key": self.key} if "api-version" in self.url else {})

    @property
    def chat_url(self) -> str:
        parts = urlsplit(self.url)
        path = self.path + "/chat/completions"
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    @property
    def path(self) -> str:
        """The path of the API, also where the whole address of the one call was given."""
        return urlsplit(self.url).path.rstrip("/").removesuffix("/chat/completions").rstrip("/")

    @property
    def proxy(self) -> str | None:
        """The proxy that the environment names for this address."""
        parts = urlsplit(self.url)
        if proxy_bypass(parts.hostname or ""):
            return None
        return getproxies().get(parts.scheme)

    @property
    def shown(self) -> str:
        """The address without a name, password or query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def without_key(self, text: str) -> str:
        """A text with the key blotted out: some servers repeat it. Words that could be ordinary text are left."""
        if len(self.key) < 8 or self.key.isalpha():
            return text
        return self._pattern.sub("[key]", text)

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The key as it is, and as JSON writers escape it: what is no letter or digit may stand behind a backslash or
        as its code.
        """
        letters = (
            re.escape(one) if one.isalnum() else rf"(?:\\?{re.escape(one)}|\\u(?i:{ord(one):04x}))" for one in self.key
        )
        return re.compile("".join(letters))


@dataclass
class OpenAITransport:
    """One endpoint. It asks once per ``send``; the client repeats."""

    address: Address
    session: Any = None  # an aiohttp.ClientSession of one's own, e.g. for tests
    dialect: Dialect = field(default_factory=Dialect)
    remember: Callable[[Dialect], None] = lambda _: None
    settled: bool = False  # whether the dialect is known to work for structured output
    _plain_tools: set[tuple[str, ...]] = field(default_factory=set)
    _in_a_row: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _lock: asyncio.Lock | None = None
    _open: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Completion:
        """One reply. Raises RequestRefused, EndpointUnavailable, or Transient where asking again may help."""
        session = self._session()
        assert self._lock is not None
        if request.json_schema is None or self.settled:
            return await self._negotiated(session, request)
        async with self._lock:  # the first finds out which structured output the server takes, the others wait for it
            if not self.settled:
                return await self._negotiated(session, request)
        return await self._negotiated(session, request)

    async def _negotiated(self, session: aiohttp.ClientSession, request: Request) -> Completion:
        names = tuple(tool.name for tool in request.tools)
        dialect = dataclasses.replace(self.dialect, plain_tools=names in self._plain_tools)
        while True:
            try:
                completion = read_completion(await self._post(session, request, dialect), request, self._who(request))
                check_prompt(request, completion)
                break
            except BadRequest as refusal:
                plainer = dialect.plainer(request, refusal.detail, guess=not self.settled)
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

    async def _post(self, session: aiohttp.ClientSession, request: Request, dialect: Dialect) -> str:
        """The reply's body. Raises BadRequest and what ``send`` raises."""
        import aiohttp

        try:
            async with session.post(
                self.address.chat_url, data=_encoded(dialect.body(request)), allow_redirects=False
            ) as response:
                status, headers, raw = response.status, response.headers, await response.read()
        except aiohttp.InvalidURL:
            raise EndpointUnavailable(f"{self.address.shown}: no address; expected https://host/v1") from None
        except (aiohttp.ClientError, OSError) as error:
            said = str(getattr(error, "message", "") or error)[:300]  # some texts name the address with its query
            detail = f"{self.address.shown}: {type(error).__name__}: {self.address.without_key(said)}"
            unknown = isinstance(error, aiohttp.ClientConnectorDNSError)  # a mistyped name does not come back
            raise Transient(None, detail, attempts=3 if unknown else None) from None
        text = self.address.without_key(_decoded(raw, headers, status))
        if 300 <= status < 400:
            moved = self.address.without_key(headers.get("location", "elsewhere").partition("?")[0])
            raise EndpointUnavailable(f"{self._who(request)}: moved to {moved}; name that address and repeat dvc repro")
        if not 200 <= status < 300:
            error_for(status, _said(text), headers, self._who(request))
        return text

    def _who(self, request: Request) -> str:
        return f"{self.address.shown}, model {request.model.name}"

    def _session(self) -> aiohttp.ClientSession:
        """Connections of the running event loop; as many as the client above has slots."""
        import aiohttp

        loop = asyncio.get_running_loop()
        if self._open is None or self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
            self._open = self.session or aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),  # the client above keeps the time
                headers=self.address.headers,
                proxy=self.address.proxy,
                trust_env=False,  # it looks up proxies, and a netrc file, again for every request
            )
        return self._open

    async def aclose(self) -> None:
        """Close the connections."""
        if self._open is not None and self.session is None:
            await self._open.close()

    def check(self, model: str) -> None:
        """Raises EndpointUnavailable where the endpoint's list of models says that nothing can come of it.

        A server without such a list, or that is not up yet, is left to the first request.
        """
        import openai

        parts = urlsplit(self.address.url)
        client = openai.OpenAI(
            base_url=urlunsplit((parts.scheme, parts.netloc, self.address.path, "", "")), api_key=self.address.key,
            default_query=dict(parse_qsl(parts.query)) or None, default_headers=self.address.headers, max_retries=0,
            timeout=CHECK_S,
        )  # fmt: skip
        try:
            with client:
                names = [str(one.id) for one in client.models.list()]
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            said = self.address.without_key(" ".join(str(error).split())[:300])
            raise EndpointUnavailable(
                f"{self.address.shown}: the key is not taken: {said}. Export the right one"
            ) from None
        except (openai.OpenAIError, ValueError, AttributeError, TypeError):
            return
        if names and not any(_is_same(model, name) for name in names):
            known = ", ".join(names[:20])
            raise EndpointUnavailable(
                f"{self.address.shown} has no model {model!r}; it has: {known}. Name one of them in params.yaml"
            )


def _is_same(model: str, listed: str) -> bool:
    """Whether a listed model is the one that is meant: servers list ``m:latest`` for m, gateways m for ``m:host``."""
    return model == listed or (
        model.partition(":")[0] == listed.partition(":")[0] and (":" in model) != (":" in listed)
    )


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate, e.g. in a tool result that was cut within a character
        return json.dumps(clean_value(body), ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(raw: bytes, headers: Mapping[str, str], status: int) -> str:
    """A body as text, in the encoding that it names; what is in no encoding becomes no data."""
    found = re.search(r"charset=[\s\"']*([\w.:-]+)", headers.get("content-type", ""), re.IGNORECASE)
    charset = found.group(1) if found and found.group(1).lower() not in ("utf8", "utf-8") else "utf-8-sig"
    try:
        return raw.decode(charset)
    except (LookupError, UnicodeError):
        if not 200 <= status < 300:
            return raw.decode("utf-8", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"a body that is not UTF-8 (byte {error.start}) and names no other encoding that fits"
        raise Transient(status, detail, becomes="bad_response") from None


def _said(text: str) -> str:
    """What an error body says, without its markup."""
    return " ".join(re.sub(r"<[^<>]*>", " ", text).split())[:500]
