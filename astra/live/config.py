"""What the standard ``mcpServers`` configuration says of a server, and what we say of it beside the file."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from astra.live.errors import LiveConfigInvalid
from astra.records import Section
from astra.yaml_files import YamlInvalid, read_yaml

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
VARIABLE = re.compile(r"\$\{(\w+)\}")
STDIO = ("stdio",)
STREAMABLE_HTTP = ("http", "streamable-http", "streamable_http", "streamableHttp")


class LiveConfig(BaseModel):
    """One server of a ``mcpServers`` file: a command to start, or the address of one that runs.

    ``${NAME}`` in ``env``, ``url`` and ``headers`` stands for a variable of our own environment and is filled in only
    when a session opens, so that its value is in no record. ``python`` as a command is the interpreter that runs us.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    type: str | None = None
    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = Field(default=None, pattern=r"^(https?://|\$\{)")
    headers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_reached_in_one_way(self) -> LiveConfig:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either command (a process to start) or url (streamable HTTP)")
        allowed = STDIO if self.url is None else STREAMABLE_HTTP
        if self.type is not None and self.type not in allowed:
            raise ValueError(f"type must be one of {', '.join(allowed)}, not {self.type}")
        if self.url is not None and not VARIABLE.search(self.url):
            _check_address(self.url)
        return self

    @property
    def argv(self) -> tuple[str, ...]:
        assert self.command is not None
        command = sys.executable if self.command in ("python", "python3") else self.command
        return (command, *self.args)

    def environment(self) -> dict[str, str]:
        """All that the process sees: a path, a locale, and what the configuration names.

        Raises LiveConfigInvalid for a name that our own environment lacks, as do ``address`` and ``sent_headers``.
        """
        base = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        return base | {name: self._filled(value, "env") for name, value in self.env.items()}

    def address(self) -> str:
        """The endpoint to talk to; may hold a key."""
        url = self._filled(self.url or "", "url")
        try:
            _check_address(url)
        except ValueError as error:
            raise LiveConfigInvalid(self.public(f"MCP server {self.name}: {error}")) from None
        return url

    def sent_headers(self) -> dict[str, str]:
        """What goes with each request; may hold keys."""
        return {name: self._filled(value, "headers") for name, value in self.headers.items()}

    def public_address(self) -> str:
        """The endpoint as messages may show it: no user, no query, no secret."""
        parts = urlsplit(self.address())
        return self.public(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")

    def _filled(self, text: str, where: str) -> str:
        return VARIABLE.sub(lambda match: self._ours(match[1], where), text)

    def _ours(self, variable: str, where: str) -> str:
        if variable not in os.environ:
            raise LiveConfigInvalid(f"MCP server {self.name}: ${{{variable}}} in its {where} is not set: export it")
        return os.environ[variable]

    def secrets(self) -> tuple[str, ...]:
        """Values that no message may show, longest first."""
        named = {**self.env, **self.headers}
        variables = {one for text in (*named.values(), self.url or "") for one in VARIABLE.findall(text)}
        found = {self._ours(one, "env") for one in variables}
        for name, raw in named.items():
            if "${" in raw or SECRET_NAME.search(name):
                value = self._filled(raw, "env")
                found |= {value, value.rpartition(" ")[2]}  # the key of "Bearer KEY" too
        query = (self.url or "").partition("#")[0].partition("?")[2]
        found |= {part.partition("=")[2] for part in query.split("&") if SECRET_NAME.search(part.partition("=")[0])}
        return tuple(sorted(filter(None, found), key=len, reverse=True))

    def public(self, text: str) -> str:
        """The text without the configuration's secrets."""
        for secret in self.secrets():
            text = text.replace(secret, "***")
        return text

    def public_value(self, value: Any) -> Any:
        """A JSON value without the configuration's secrets in any of its texts."""
        if isinstance(value, str):
            return self.public(value)
        if isinstance(value, list):
            return [self.public_value(one) for one in value]
        return (
            {self.public(key): self.public_value(one) for key, one in value.items()}
            if isinstance(value, dict)
            else value
        )


def _check_address(url: str) -> None:
    """Raises ValueError for what no request can be sent to."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        shown = re.sub(r"//[^/]*@", "//", url.partition("?")[0])  # no user, no query: they may be keys
        raise ValueError(f"url must be an address such as https://example.org/mcp, not {shown!r}")


def server_config(name: str, entry: Any, where: str) -> LiveConfig:
    """One entry of ``mcpServers``. Raises LiveConfigInvalid."""
    try:
        return LiveConfig.model_validate({**entry, "name": name} if isinstance(entry, dict) else entry)
    except ValidationError as error:
        raise LiveConfigInvalid(f"{where}: mcpServers.{name}{_first(error)}") from None


def read_config(path: Path | str) -> dict[str, LiveConfig]:
    """The servers of a ``mcpServers`` file, by name. Raises LiveConfigInvalid on the first that is wrong."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise LiveConfigInvalid(f"{path}: {error}") from None
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise LiveConfigInvalid(f'{path}: expected {{"mcpServers": {{name: {{"command": ..., "args": [...]}}}}}}')
    return {name: server_config(name, entry, str(path)) for name, entry in servers.items()}


class Notes(Section):
    """What we say of a server beyond its document: an entry of ``<document>.notes.yaml``."""

    title: str | None = None
    description: str | None = None
    domain: str | None = None
    licence: str | None = None
    min_tools: int | None = Field(default=None, ge=1)
    min_tools_reason: str | None = None
    deterministic_tools: Literal["all"] | tuple[str, ...] = ()

    @model_validator(mode="after")
    def _a_lower_minimum_says_why(self) -> Notes:
        if self.min_tools is not None and not self.min_tools_reason:
            raise ValueError("min_tools needs min_tools_reason")
        return self

    def is_deterministic(self, tool: str) -> bool:
        """Whether equal calls of a tool (by its wire name) answer equal bytes on any day, in any checkout."""
        return self.deterministic_tools == "all" or tool in self.deterministic_tools


def notes_file(document: Path) -> Path:
    """``data/raw/tools/live.mcp.json`` -> ``data/raw/tools/live.notes.yaml``."""
    return document.with_name(document.name.partition(".")[0] + ".notes.yaml")


def read_notes(document: Path | str) -> dict[str, Notes]:
    """The notes beside a document, by server name; empty where there are none. Raises LiveConfigInvalid."""
    path = notes_file(Path(document))
    if not path.is_file():
        return {}
    try:
        tree = read_yaml(path)
    except YamlInvalid as error:
        raise LiveConfigInvalid(str(error)) from None
    except OSError as error:
        raise LiveConfigInvalid(f"{path}: {error.strerror}: make it readable") from None
    if not isinstance(tree, dict):
        got = "an empty file" if tree is None else repr(tree)[:80]
        raise LiveConfigInvalid(f"{path}: expected a mapping of server names to notes, got {got}: fill or remove it")
    found = {}
    for name, entry in tree.items():
        try:
            found[str(name)] = Notes.model_validate(entry)
        except ValidationError as error:
            known = ", ".join(Notes.model_fields)
            raise LiveConfigInvalid(f"{path}: {name}{_first(error)}. Known keys: {known}") from None
    return found


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = "".join(f".{part}" for part in first["loc"])
    met = "" if first["type"] == "value_error" else f" (got {str(first.get('input'))[:80]!r})"
    return f"{where}: {first['msg']}{met}"
