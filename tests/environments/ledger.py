"""A second opinion on an emulated issue tracker: plain books of what its answers said, kept by the meaning of its tools.

It shares nothing with the emulator's own check: it knows these tools, not names in general.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from astra.environments import Observation
from astra.records import Server, Source, ToolSpec

TEXT, WHOLE = {"type": "string"}, {"type": "integer", "minimum": 1, "maximum": 5}
STATUS = {"type": "string", "enum": ["open", "closed", "blocked"]}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


ISSUE = _object(
    ["id", "title", "status", "priority"], id=TEXT, title=TEXT, status=STATUS, priority=WHOLE, reporter=TEXT,
    created_at={"type": "string", "format": "date-time"},
)  # fmt: skip
COMMENT = _object(["comment_id", "issue_id", "body"], comment_id=TEXT, issue_id=TEXT, body=TEXT, author=TEXT)


def _tool(name: str, returns: dict[str, Any], required: list[str], **parameters: Any) -> ToolSpec:
    return ToolSpec(name=name, description=name, parameters=_object(required, **parameters), returns=returns)


TRACKER = Server(
    id="server-tracker", name="tracker", title="Tracker", description="Issues and comments.", domain="work",
    tools=(
        _tool("create_issue", ISSUE, ["title", "priority"], title=TEXT, priority=WHOLE),
        _tool("get_issue", ISSUE, ["issue_id"], issue_id=TEXT),
        _tool("update_issue", ISSUE, ["issue_id"], issue_id=TEXT, title=TEXT, status=STATUS, priority=WHOLE),
        _tool("delete_issue", _object(["issue_id"], issue_id=TEXT), ["issue_id"], issue_id=TEXT),
        _tool("list_issues", _object(["issues", "total"], issues={"type": "array", "items": ISSUE},
                                     total={"type": "integer"}), []),
        _tool("search_issues", {"type": "array", "items": ISSUE}, ["reporter"], reporter=TEXT),
        _tool("add_comment", COMMENT, ["issue_id", "body"], issue_id=TEXT, body=TEXT),
        _tool("list_comments", {"type": "array", "items": COMMENT}, ["issue_id"], issue_id=TEXT),
        _tool("get_comment", COMMENT, ["comment_id"], comment_id=TEXT),
    ),
    source=Source(format="mcp", uri="x", revision="y", licence="MIT"),
)  # fmt: skip


@dataclass
class Ledger:
    """What the client was told, and each thing that cannot be true of one world."""

    issues: dict[str, dict[str, Any]] = field(default_factory=dict)
    comments: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    before: dict[str, list[Any]] = field(default_factory=dict)  # earlier values, by issue and property
    cut: dict[str, str] = field(default_factory=dict)  # the part that came, by call
    wrong: list[str] = field(default_factory=list)

    def read(self, tool: str, arguments: dict[str, Any], seen: Observation) -> None:
        """Take one answer into the books."""
        call = json.dumps([tool, arguments], sort_keys=True)
        if seen.fault == "partial":
            self.cut[call] = seen.content.partition("Received: ")[2]
            return
        if seen.fault == "stale":
            self._out_of_date(json.loads(seen.content.partition("Received: ")[2]))
            return
        if seen.fault is not None:
            return
        if seen.is_error:
            self._denied(tool, arguments, seen.content)
            return
        if not seen.content.startswith(self.cut.get(call, "")):
            self.wrong.append(f"{call}: not what the cut answer began with")
        if tool.startswith(("create", "update", "delete", "add")):
            self.cut.clear()
        getattr(self, f"_{tool}")(arguments, json.loads(seen.content))

    def _denied(self, tool: str, arguments: dict[str, Any], error: str) -> None:
        if arguments.get("issue_id") not in self.deleted:
            self.wrong.append(f"{tool} {arguments}: {error}")

    def _out_of_date(self, answer: Any) -> None:
        for one in answer if isinstance(answer, list) else answer.get("issues", [answer]):
            for name, value in one.items():
                now = self.issues.get(one.get("id"), {}).get(name, value)
                if value != now and value not in self.before.get(f"{one['id']} {name}", []):
                    self.wrong.append(f"stale {one['id']}: {name} was never {value!r}")

    # ------------------------------------------------- one reader a tool

    def _create_issue(self, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        if answer["id"] in self.issues or answer["id"] in self.deleted:
            self.wrong.append(f"id {answer['id']} given out twice")
        self._equal(answer, arguments)
        self.issues[answer["id"]] = answer
        self.made.add(answer["id"])

    def _get_issue(self, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        if answer["id"] != arguments["issue_id"]:
            self.wrong.append(f"asked for {arguments['issue_id']}, got {answer['id']}")
        self._issue(answer)

    def _update_issue(self, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        changes = {name: value for name, value in arguments.items() if name != "issue_id"}
        self._equal(answer, {"id": arguments["issue_id"], **changes})
        known = self.issues.setdefault(arguments["issue_id"], {})
        for name, value in changes.items():
            if name in known and known[name] != value:
                self.before.setdefault(f"{answer['id']} {name}", []).append(known[name])
        known.update(changes)
        self._issue(answer)

    def _delete_issue(self, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        self.deleted.add(arguments["issue_id"])

    def _list_issues(self, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        listed = [one["id"] for one in answer["issues"]]
        if answer["total"] != len(listed):
            self.wrong.append(f"total {answer['total']} of {len(listed)}")
        for missing in self.made - self.deleted - set(listed):
            self.wrong.append(f"the list lacks {missing}")
        self._search_issues(arguments, answer["issues"])

    def _search_issues(self, arguments: dict[str, Any], answer: list[dict[str, Any]]) -> None:
        if len({one["id"] for one in answer}) != len(answer):
            self.wrong.append("an id twice in one list")
        for one in answer:
            self._equal(one, {name: value for name, value in arguments.items() if name in one})
            self._issue(one)

    def _add_comment(self, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        if answer["comment_id"] in self.comments:
            self.wrong.append(f"id {answer['comment_id']} given out twice")
        self._equal(answer, arguments)
        self.comments[answer["comment_id"]] = answer

    def _list_comments(self, arguments: dict[str, Any], answer: list[dict[str, Any]]) -> None:
        listed = {one["comment_id"] for one in answer}
        for one in self.comments.values():
            if one["issue_id"] == arguments["issue_id"] and one["comment_id"] not in listed:
                self.wrong.append(f"the list lacks {one['comment_id']}")
        for one in answer:
            self._comment(one)

    def _get_comment(self, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        self._equal(answer, arguments)
        self._comment(answer)

    # ------------------------------------------------- comparing

    def _issue(self, one: dict[str, Any]) -> None:
        if one["id"] in self.deleted:
            self.wrong.append(f"{one['id']} was deleted")
        self._equal(one, self.issues.get(one["id"], {}))
        self.issues[one["id"]] = {**self.issues.get(one["id"], {}), **one}

    def _comment(self, one: dict[str, Any]) -> None:
        self._equal(one, self.comments.get(one["comment_id"], {}))
        self.comments[one["comment_id"]] = {**self.comments.get(one["comment_id"], {}), **one}

    def _equal(self, answer: dict[str, Any], known: dict[str, Any]) -> None:
        for name, value in known.items():
            if name in answer and answer[name] != value:
                self.wrong.append(f"{name} is {value!r}, the answer says {answer[name]!r} in {answer}")
