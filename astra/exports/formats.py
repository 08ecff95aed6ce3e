"""One conversation in each trainer's form, and back; nothing may get lost on the way.

Tool schemas are JSON text in every form: as columns they would be padded with each other's keys. Where a form has no
place for something (a tool call's id, in ShareGPT and ms-swift), it stands in the column ``astra``, which those
trainers pass over; ``read`` puts it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from astra.records import FunctionCall, Message, Refused, ToolCall, ToolSpec

Row = dict[str, Any]
Said = dict[str, Any]
BETWEEN_RESULTS = "\n</tool_response>\n<tool_response>\n"  # how LLaMA-Factory itself joins results of parallel calls


class NotExportable(Refused):
    """A conversation that a form cannot hold; ``reason`` is short and stable."""


class Conversation(NamedTuple):
    """What is exported: messages and tools as a chat template takes them, tool-call arguments as the model's text."""

    id: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


def taught(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without what no form carries: who executed a call, faults, repairs."""
    return tuple(
        Message(
            role=one.role,
            content=one.content or None,
            reasoning=one.reasoning or None,
            tool_calls=one.tool_calls,
            tool_call_id=one.tool_call_id,
            name=one.name,
        )
        for one in messages
    )


# ---- TRL: messages and tools, arguments as objects


def write_trl(one: Conversation) -> Row:
    """OpenAI messages; arguments are objects, since most templates encode them. No key is null, tools are JSON text."""
    messages = [_openai(message) for message in one.messages]
    return {"id": one.id, "messages": messages, **_tools(one.tools)}


def read_trl(row: Row) -> Conversation:
    return Conversation(row["id"], tuple(_message(said) for said in row["messages"]), _specs(row.get("tools")))


def _openai(message: Message) -> Said:
    said = message.openai()
    for call in said.get("tool_calls", ()):
        call["function"]["arguments"] = _arguments(call["function"]["arguments"])
    return said


def _message(said: Said) -> Message:
    calls = tuple(
        ToolCall(
            id=call["id"],
            function=FunctionCall(name=call["function"]["name"], arguments=_text(call["function"]["arguments"])),
        )
        for call in said.get("tool_calls") or ()
    )
    return Message(
        role=said["role"],
        content=said["content"] or None,
        reasoning=said.get("reasoning_content"),
        tool_calls=calls,
        tool_call_id=said.get("tool_call_id"),
        name=said.get("name"),
    )


# ---- ShareGPT, as LLaMA-Factory reads it: turns that alternate, calls and results as JSON text


def write_sharegpt(one: Conversation) -> Row:
    """Turns from human, gpt, function_call and observation.

    LLaMA-Factory takes a call or a text in a turn, and a thought before either; a text beside a call becomes the end of
    the thought. Parallel calls are a list, their results one observation.
    """
    system, rest = _without_system(one.messages)
    turns: list[dict[str, str]] = []
    aside: list[Said] = []
    for group in _groups(rest):
        first = group[0]
        if first.role == "user":
            turns.append({"from": "human", "value": first.content or ""})
        elif first.role == "tool":
            turns.append({"from": "observation", "value": _joined(group)})
            aside.append({"names": [message.name for message in group]})
        elif first.tool_calls:
            thought = "\n\n".join(text for text in (first.reasoning, first.content) if text)
            turns.append({"from": "function_call", "value": _thinking(thought) + _calls(first.tool_calls)})
            aside.append({"ids": [call.id for call in first.tool_calls], "reasoning": len(first.reasoning or "")})
        else:
            turns.append({"from": "gpt", "value": _thinking(first.reasoning) + (first.content or "")})
    _must_alternate(one.id, [turn["from"] for turn in turns])
    tools = json.dumps([spec.openai()["function"] for spec in one.tools], ensure_ascii=False) if one.tools else ""
    return {"conversations": turns, "system": system, "tools": tools, "astra": _aside(one.id, aside)}


def read_sharegpt(row: Row) -> Conversation:
    name, kept = _opened(row["astra"])
    messages = [Message(role="system", content=row["system"])] if row["system"] else []
    ids: list[str] = []
    for turn in row["conversations"]:
        if turn["from"] == "human":
            messages.append(Message(role="user", content=turn["value"] or None))
        elif turn["from"] == "observation":
            names = next(kept)["names"]
            texts = turn["value"].split(BETWEEN_RESULTS)
            messages += [_result(*one) for one in zip(texts, ids, names, strict=True)]
        else:
            thought, text = _thought(turn["value"])
            if turn["from"] == "function_call":
                known = next(kept)
                ids = known["ids"]
                reasoning, content = thought[: known["reasoning"]], thought[known["reasoning"] :].removeprefix("\n\n")
                messages.append(_assistant(reasoning, content, json.loads(text), ids))
            else:
                messages.append(_assistant(thought, text, [], []))
    return Conversation(name, tuple(messages), _specs(row["tools"]))


def _must_alternate(name: str, turns: Sequence[str]) -> None:
    """LLaMA-Factory drops, with a warning, what does not alternate or does not end with the model."""
    for place, turn in enumerate(turns):
        if turn not in (("human", "observation"), ("gpt", "function_call"))[place % 2]:
            raise NotExportable("turns_do_not_alternate", f"{name}: turn {place} is {turn}")
    if len(turns) % 2 or not turns:
        raise NotExportable("no_last_answer", f"{name}: ends with {turns[-1] if turns else 'nothing'}")


def _joined(results: Sequence[Message]) -> str:
    texts = [message.content or "" for message in results]
    if any(BETWEEN_RESULTS in text for text in texts):
        raise NotExportable("result_holds_mark", "a tool's result holds the mark that stands between results")
    return BETWEEN_RESULTS.join(texts)


# ---- ms-swift: tool_call and tool_response messages


def write_swift(one: Conversation) -> Row:
    """Messages of ms-swift's agent form: every call and every result a message of its own, thoughts in the text."""
    messages: list[Said] = []
    aside: list[Said] = []
    for message in one.messages:
        if message.role == "tool":
            messages.append({"role": "tool_response", "content": message.content or ""})
            aside.append({"id": message.tool_call_id, "name": message.name})
            continue
        text = _thinking(message.reasoning) + (message.content or "")
        if text or not message.tool_calls:
            messages.append({"role": message.role, "content": text})
        for call in message.tool_calls:
            messages.append({"role": "tool_call", "content": _call(call)})
            aside.append({"id": call.id})
    tools = {"tools": json.dumps([spec.openai() for spec in one.tools], ensure_ascii=False)} if one.tools else {}
    return {"messages": messages, **tools, "astra": _aside(one.id, aside)}


def read_swift(row: Row) -> Conversation:
    name, kept = _opened(row["astra"])
    messages: list[Message] = []
    before = ""
    for said in row["messages"]:
        if said["role"] == "tool_response":
            known = next(kept)
            messages.append(_result(said["content"], known["id"], known["name"]))
        elif said["role"] == "tool_call":
            if before not in ("assistant", "tool_call"):
                messages.append(Message(role="assistant"))
            call = _assistant("", "", json.loads(said["content"]), [next(kept)["id"]]).tool_calls
            messages[-1] = messages[-1].model_copy(update={"tool_calls": messages[-1].tool_calls + call})
        elif said["role"] == "assistant":
            messages.append(_assistant(*_thought(said["content"]), [], []))
        else:
            messages.append(Message(role=said["role"], content=said["content"] or None))
        before = said["role"]
    return Conversation(name, tuple(messages), _specs(row.get("tools")))


# ---- Parquet: everything as JSON text


def write_parquet(one: Conversation) -> Row:
    """Messages (arguments as the model's own text) and tools as JSON text: columns of three strings."""
    messages = json.dumps([message.openai() for message in one.messages], ensure_ascii=False)
    return {
        "id": one.id,
        "messages": messages,
        "tools": json.dumps([spec.openai() for spec in one.tools], ensure_ascii=False),
    }


def read_parquet(row: Row) -> Conversation:
    return Conversation(row["id"], tuple(_message(said) for said in json.loads(row["messages"])), _specs(row["tools"]))


# ---- what they share


def _tools(specs: Sequence[ToolSpec]) -> Row:
    """The tools as JSON text; nothing at all where there are none, since some templates take [] for tools."""
    return {"tools": json.dumps([spec.openai() for spec in specs], ensure_ascii=False)} if specs else {}


def _specs(text: str | None) -> tuple[ToolSpec, ...]:
    documents = json.loads(text) if text else []
    return tuple(ToolSpec(**one.get("function", one)) for one in documents)


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise NotExportable("bad_arguments", f"arguments are not JSON: {text[:80]}") from None
    if not isinstance(value, dict):
        raise NotExportable("bad_arguments", f"arguments are not an object: {text[:80]}")
    return value


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _call(call: ToolCall) -> str:
    document = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
    return json.dumps(document, ensure_ascii=False)


def _calls(calls: Sequence[ToolCall]) -> str:
    texts = [_call(call) for call in calls]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _thinking(thought: str | None) -> str:
    """A thought as Qwen3 and its kin write it; LLaMA-Factory and ms-swift look for these marks."""
    if thought and "</think>" in thought:
        raise NotExportable("thought_holds_mark", "the reasoning holds </think>")
    return f"<think>\n{thought}\n</think>\n\n" if thought else ""


def _thought(text: str) -> tuple[str, str]:
    """The thought and what follows it."""
    if not text.startswith("<think>\n"):
        return "", text
    thought, _, rest = text.removeprefix("<think>\n").partition("\n</think>\n\n")
    return thought, rest


def _assistant(thought: str, text: str, calls: Any, ids: Sequence[str]) -> Message:
    documents = calls if isinstance(calls, list) else [calls]
    return Message(
        role="assistant",
        content=text or None,
        reasoning=thought or None,
        tool_calls=tuple(
            ToolCall(id=name, function=FunctionCall(name=one["name"], arguments=_text(one["arguments"])))
            for one, name in zip(documents, ids, strict=True)
        ),
    )


def _result(text: str, call_id: str | None, name: str | None) -> Message:
    return Message(role="tool", content=text or None, tool_call_id=call_id, name=name)


def _without_system(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    first = messages[0] if messages else None
    return (first.content or "", messages[1:]) if first and first.role == "system" else ("", messages)


def _groups(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Each message by itself, but following tool results together."""
    group: list[Message] = []
    for message in messages:
        if group and message.role != "tool":
            yield group
            group = []
        if message.role == "tool":
            group.append(message)
        else:
            yield [message]
    if group:
        yield group


def _aside(name: str, kept: Sequence[Said]) -> str:
    return json.dumps({"id": name, "kept": list(kept)}, ensure_ascii=False)


def _opened(text: str) -> tuple[str, Iterator[Said]]:
    aside = json.loads(text)
    return aside["id"], iter(aside["kept"])


@dataclass(frozen=True)
class Form:
    """How a trainer's rows are written and read back, and in which file."""

    file: str
    write: Callable[[Conversation], Row]
    read: Callable[[Row], Conversation]


FORMS: dict[str, Form] = {
    "trl": Form("train.jsonl", write_trl, read_trl),
    "sharegpt": Form("train.jsonl", write_sharegpt, read_sharegpt),
    "swift": Form("train.jsonl", write_swift, read_swift),
    "parquet": Form("train.parquet", write_parquet, read_parquet),
}


def convert(one: Conversation, form: Form) -> Row:
    """The row of a conversation, read back and compared. Raises NotExportable where it is not the same again."""
    row = form.write(one)
    again = form.read(row)
    if not same(one, again):
        raise NotExportable("not_the_same_again", f"{one.id}: reads back otherwise than it was written")
    return row


def same(one: Conversation, other: Conversation) -> bool:
    """Equal to the last letter; arguments are equal as JSON with their key order, spacing aside."""
    return _comparable(one) == _comparable(other)


def _comparable(one: Conversation) -> tuple[str, list[tuple[Any, ...]], list[str]]:
    messages = [(*_fields(message),) for message in one.messages]
    return one.id, messages, [json.dumps(spec.openai()) for spec in one.tools]


def _fields(message: Message) -> Iterator[Any]:
    yield from (message.role, message.content or "", message.reasoning or "", message.tool_call_id, message.name)
    for call in message.tool_calls:
        yield call.id, call.function.name, json.dumps(_arguments(call.function.arguments))
