"""What goes wrong with a live server.

LiveError
 ├ LiveConfigInvalid   a configuration or notes file is wrong: file, key, value, remedy
 ├ LiveServerDied      the process ended, or never started: exit code and last words
 │  └ LiveServerLost   an address does not answer, or refuses: where and why
 ├ LiveTimeout         it runs but did not answer in time
 └ LiveProtocolBroken  it answered something that is not MCP
None of the last four is ever a tool's answer: the machinery failed, not the call.
"""

from __future__ import annotations


class LiveError(Exception):
    """Something about a live server went wrong that is not a tool's answer."""


class LiveConfigInvalid(LiveError):
    """A configuration or notes file is wrong."""


class LiveServerDied(LiveError):
    """The server's process ended or could not be started."""

    def __init__(self, name: str, exit_code: int | None, stderr: str, what: str = "died") -> None:
        code = "" if exit_code is None else f" with exit code {exit_code}"
        super().__init__(f"MCP server {name} {what}{code}" + (f"; its last words: {stderr}" if stderr else ""))
        self.name, self.exit_code, self.stderr = name, exit_code, stderr


class LiveServerLost(LiveServerDied):
    """A server at an address cannot be reached, or refuses to talk."""

    def __init__(self, name: str, address: str, why: str) -> None:
        Exception.__init__(self, f"MCP server {name} at {address}: {why}")
        self.name, self.exit_code, self.stderr = name, None, why


class LiveTimeout(LiveError):
    """The server runs but did not answer in time."""

    def __init__(self, name: str, what: str, seconds: float, setting: str, heard: str = "") -> None:
        more = f"; it said: {heard}" if heard else ""
        super().__init__(f"MCP server {name} did not answer {what} in {seconds:g} s ({setting}){more}")
        self.name = name


class LiveProtocolBroken(LiveError):
    """The server answered something that is not MCP."""
