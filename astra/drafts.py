"""A request that is to be written, and the task in its writer's reply.

The writer says beside the request which values it states, and which tools it needs where that is not given, so that
what a rewriting keeps can be checked without asking anyone: its tools, every value, its language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from astra import wording
from astra.llm.reply import ReplyInvalid, parse_json
from astra.llm.structured import TEXT, TEXTS, object_schema
from astra.llm.types import Completion
from astra.records import Chain, Kind, Server, Stated, Task, ToolSpec, UserTurn, Voice, content_id
from astra.servers import pool


class Persona(NamedTuple):
    """Who asks, how, and why."""

    who: str
    style: str
    voice: Voice
    because: str


class Draft(NamedTuple):
    """A request that is to be written: the prompt, and what is known of the task before."""

    key: str
    prompt: str
    servers: tuple[Server, ...]
    chain: Chain | None
    augmentation: Literal["none", "diversity", "complexity", "persona"] = "none"
    kind: Kind = "plain"
    source: Task | None = None
    persona: Persona | None = None
    missing: str | Stated | None = None  # the tool, or the value
    sample: int = 0

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        wanted = self.chain.tools if self.chain else self.source.target_tools if self.source else ()
        return pool(self.servers, wanted)


class Refusal(NamedTuple):
    id: str
    reason: str
    detail: str


# ---------------------------------------------------------------- replies

VALUES = {"type": "array", "items": object_schema(tool=TEXT, parameter=TEXT, value=TEXT)}
TURNS = {"type": "array", "minItems": 1, "items": object_schema(says=TEXT, target_tools=TEXTS)}


def reply_schema(draft: Draft) -> dict[str, Any]:
    """The JSON Schema of a reply; a writer that is given no chain names the tools, too."""
    fields: dict[str, Any] = {"question": TEXT, "values": VALUES}
    if names_tools(draft):
        fields["target_tools"] = TEXTS
    if draft.kind == "later_tool":
        fields["later"] = TEXT
    elif draft.kind == "missing_value":
        fields["answer"] = TEXT
    elif draft.kind == "several_turns":
        fields["turns"] = TURNS
    return object_schema(**fields)


def names_tools(draft: Draft) -> bool:
    """Whether the writer says which tools the request needs."""
    if draft.kind != "plain":
        return draft.kind in ("missing_tool", "later_tool")
    return draft.source is not None or draft.chain is None


def read_task(draft: Draft, reply: Completion) -> Task | Refusal:
    """The task in a reply, not judged yet. Raises ReplyInvalid for a reply that may be asked for again."""
    value = parse_json(reply.content or "")
    question = _text(value, "question")
    assert isinstance(value, dict)
    named = _named_tools(draft, value) if names_tools(draft) else None
    known = draft.chain.tools if draft.chain else draft.source.target_tools if draft.source else named
    assert known is not None
    turns = _turns(draft, value, known)
    source = draft.source
    if source is not None:
        lost = _lost(draft, question, turns, _values(value), named)
        if lost is not None:
            return lost
    values = tuple(one for one in _values(value) if one.tool in known)
    lacking = _unstated(draft, question, values)
    if lacking is not None:
        return lacking
    unusual = () if draft.kind == "plain" else (draft.kind, [one.says for one in turns])
    return Task(
        id=content_id("task", *(one.id for one in draft.servers), question, known, *unusual),
        server_ids=tuple(one.id for one in draft.servers),
        chain_id=draft.chain.id if draft.chain else None,
        question=question, target_tools=tuple(known), origin="chain" if draft.chain else "server",
        augmentation=draft.augmentation, kind=draft.kind, missing=_missing(draft), turns=turns, values=values,
        parent=source.id if source else None,
        persona=draft.persona.who if draft.persona else None,
        voice=draft.persona.voice if draft.persona else None,
        quality={},
    )  # fmt: skip


def _text(value: Any, name: str) -> str:
    text = value.get(name) if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ReplyInvalid(f"no {name} in the reply")
    return " ".join(text.split())


def _named_tools(draft: Draft, value: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that the writer names. Raises ReplyInvalid for none and for those that no server has."""
    named = value.get("target_tools")
    if not isinstance(named, list) or not named or not all(isinstance(one, str) for one in named):
        raise ReplyInvalid("no target_tools in the reply")
    known = [tool.name for tool in draft.tools]
    unknown = set(named) - set(known)
    if unknown:
        where = ", ".join(one.name for one in draft.servers)
        raise ReplyInvalid(f"target_tools {sorted(unknown)} are not on {where}; its tools: {known}")
    return tuple(named)


def _values(value: Mapping[str, Any]) -> tuple[Stated, ...]:
    """The values that the writer says to have stated. Raises ReplyInvalid."""
    listed = value.get("values", [])
    try:
        return tuple(Stated.model_validate(one) for one in listed)
    except (TypeError, ValueError):
        raise ReplyInvalid('values are no list of {"tool", "parameter", "value"}, each a text') from None


def _turns(draft: Draft, value: Mapping[str, Any], targets: Sequence[str]) -> tuple[UserTurn, ...]:
    """What the user says later, by the draft's kind. Raises ReplyInvalid."""
    if draft.kind == "later_tool":
        assert isinstance(draft.missing, str)
        return (UserTurn(says=_text(value, "later"), brings=(draft.missing,)),)
    if draft.kind == "missing_value":
        assert isinstance(draft.missing, Stated)
        return (UserTurn(says=_text(value, "answer"), gives=draft.missing.value),)
    if draft.kind != "several_turns":
        return ()
    listed = value.get("turns")
    if not isinstance(listed, list) or not listed:
        raise ReplyInvalid("no turns in the reply")
    turns = [UserTurn(says=_text(one, "says"), target_tools=_names(one)) for one in listed]
    later = [name for turn in turns for name in turn.target_tools]
    if not all(turn.target_tools for turn in turns) or not 0 < len(later) < len(targets):
        raise ReplyInvalid("the request and each turn must need tools")
    if later != list(targets[-len(later) :]):
        raise ReplyInvalid(f"the turns need {later}, but the tools are {list(targets)}, in this order")
    return tuple(turns)


def _names(turn: Mapping[str, Any]) -> tuple[str, ...]:
    names = turn.get("target_tools")
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ReplyInvalid("a turn has no target_tools")
    return tuple(names)


def _missing(draft: Draft) -> tuple[str, ...]:
    if isinstance(draft.missing, Stated):
        return (f"{draft.missing.tool}.{draft.missing.parameter}",)
    return (draft.missing,) if draft.missing else ()


# ---------------------------------------------------------------- what a rewriting keeps


def _lost(
    draft: Draft, question: str, turns: Sequence[UserTurn], values: Sequence[Stated], named: Sequence[str] | None
) -> Refusal | None:
    """What a rewriting lost of its source: its tools, a value, the language; None where all is kept."""
    source = draft.source
    assert source is not None
    if question == source.question:
        return Refusal(draft.key, "unchanged", question[:200])
    if named is not None and tuple(dict.fromkeys(named)) != tuple(dict.fromkeys(source.target_tools)):
        return Refusal(draft.key, "other_tools", f"needs {list(named)}, not {list(source.target_tools)}: {question}")
    before, after = wording.language(source.question), wording.language(question)
    if before is not None and after is not None and before != after:
        return Refusal(draft.key, "other_language", f"{before} became {after}: {question}")
    said = " ".join([question, *(turn.says for turn in turns)])
    if isinstance(draft.missing, Stated):
        if wording.states(question, draft.missing.value):
            return Refusal(draft.key, "value_not_left_out", f"{draft.missing.value!r} stands in: {question}")
        if not wording.states(turns[0].says, draft.missing.value):
            return Refusal(draft.key, "value_not_given", f"{draft.missing.value!r} is not in: {turns[0].says}")
    found = {(one.tool, one.parameter): one.value for one in values}
    for one in source.values:
        is_left_out = isinstance(draft.missing, Stated) and one.value == draft.missing.value
        now = found.get((one.tool, one.parameter), one.value if is_left_out else "")
        may_change = draft.augmentation == "diversity" or draft.kind in ("missing_tool", "later_tool")
        if not wording.states(said, now) or (now != one.value and not may_change):
            return Refusal(draft.key, "lost_value", f"{one.tool}.{one.parameter} {one.value!r} is not in: {said}")
    return None


def _unstated(draft: Draft, question: str, values: Sequence[Stated]) -> Refusal | None:
    """A value that the writer lists and the request does not state, or that a chain needs and nobody lists."""
    if draft.source is not None:
        return None
    for one in values:
        if not wording.states(question, one.value):
            return Refusal(draft.key, "lost_value", f"{one.tool}.{one.parameter} {one.value!r} is not in: {question}")
    listed = {(one.tool, one.parameter) for one in values}
    for binding in draft.chain.bindings if draft.chain else ():
        tool = draft.chain.tools[binding.step] if draft.chain else ""
        if binding.origin == "user" and (tool, binding.parameter) not in listed:
            return Refusal(draft.key, "lost_value", f"no value for {tool}.{binding.parameter} in: {question}")
    return None
