"""Live MCP servers: what the standard ``mcpServers`` configuration names, opened, listed and called.

A server is a process of ours (``command``, over stdio) or stands at an address (``url``, over streamable HTTP). A
session lives and dies in one task of one thread of its own: entering and leaving it elsewhere is what breaks clients
(cancel scopes belong to a task). Callers are synchronous (``call_tool``) or await (``call``); several may call at once.

    with LiveServer(read_config("live.mcp.json")["time"], start_timeout_s=60, call_timeout_s=10) as server:
        text, is_error = server.call_tool("convert_time", {...})
"""

from astra.live.config import LiveConfig, Notes, notes_file, read_config, read_notes, server_config
from astra.live.errors import (
    LiveConfigInvalid,
    LiveError,
    LiveProtocolBroken,
    LiveServerDied,
    LiveServerLost,
    LiveTimeout,
)
from astra.live.session import CallResult, LiveServer, text_of

__all__ = [
    "CallResult",
    "LiveConfig",
    "LiveConfigInvalid",
    "LiveError",
    "LiveProtocolBroken",
    "LiveServer",
    "LiveServerDied",
    "LiveServerLost",
    "LiveTimeout",
    "Notes",
    "notes_file",
    "read_config",
    "read_notes",
    "server_config",
    "text_of",
]
