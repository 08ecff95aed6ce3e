"""The conversation loop: how replies are read, calls executed, and conversations ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from astra.agent import (
    Conversation,
    Limits,
    converse,
    offered,
)
from astra.environments import EnvironmentUnavailable, Observation
from astra.llm.arguments import ArgumentsCut, ArgumentsInvalid, decode_arguments
from astra.llm.reply import split_thought
from astra.llm.types import Completion
from astra.records import FunctionCall, Message, ToolCall, ToolSpec, Usage
from astra.user import Said

LIMITS = Limits(max_turns=6, max_tokens=64)
OPENING = (
    Message(role="system", content="Use the tools."),
    Message(role="user", content="How high is the tide at Lyme?"),
)
NOTE = {
    "type": "object",
    "properties": {"port": {"type": "string"}, "text": {"type": "string"}},
    "required": ["port", "text"],
}


def tool(name: str, parameters: dict[str, object] | None = None) -> ToolSpec:
    return ToolSpec(name=name, description=f"{name}.", parameters=parameters or {"type": "object", "properties": {}})


def call(name: str, arguments: str = "{}", call_id: str = "x") -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=arguments))


def reply(
    content: str | None = None,
    *calls: ToolCall,
    finish: str = "stop",
    tokens: int = 5,
    reasoning: str | None = None,
) -> Completion:
    usage = Usage(calls=1, prompt_tokens=10, completion_tokens=tokens)
    return Completion(content, finish, usage, tuple(calls), reasoning)


class Scripted:
    """A policy that says what it was given, and remembers what it was asked."""

    def __init__(self, replies: Sequence[Completion]) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[tuple[Message, ...], int, int]] = []
        self.offers: list[tuple[str, ...]] = []

    async def reply(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], sample: int, max_tokens: int
    ) -> Completion:
        self.asked.append((messages, sample, max_tokens))
        self.offers.append(tuple(one.name for one in tools))
        return self.replies.pop(0)


class Harbour:
    """An environment that echoes its calls."""

    def __init__(self, *tools: ToolSpec, broken: bool = False) -> None:
        self.tools = tools
        self.broken = broken
        self.calls: list[ToolCall] = []

    async def call(self, call: ToolCall) -> Observation:
        if self.broken:
            raise EnvironmentUnavailable("the server is gone")
        self.calls.append(call)
        return Observation(call.function.arguments, False, "emulator")


class Later:
    """A user who says these turns."""

    def __init__(self, *turns: Said) -> None:
        self.turns = list(turns)

    async def reply(self, messages: Sequence[Message]) -> Said | None:
        return self.turns.pop(0) if self.turns else None


def play(
    policy: Scripted, world: Harbour, *later: Said, offer: tuple[ToolSpec, ...] | None = None, limits: Limits = LIMITS
) -> Conversation:
    return asyncio.run(converse(policy, world, OPENING, limits, user=Later(*later) if later else None, offer=offer))


def test_calls_are_answered_in_order_until_a_final_answer_and_usage_is_counted() -> None:
    world = Harbour(tool("tide"), tool("wind"))
    end = play(Scripted([reply("Next.", call("tide", '{"a": 1}'), call("wind")), reply("4 m")]), world)
    assert [m.role for m in end.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [c.function.name for c in world.calls] == ["tide", "wind"]
    assert [c.id for c in end.messages[2].tool_calls] == [m.tool_call_id for m in end.messages[3:5]]
    assert (end.stop, end.detail, end.messages[-1].content) == ("answered", None, "4 m")
    assert end.usage == Usage(calls=2, prompt_tokens=20, completion_tokens=10)


def test_repeated_call_ids_of_a_model_become_unique() -> None:
    end = play(Scripted([reply(None, call("tide")), reply(None, call("tide")), reply("4 m")]), Harbour(tool("tide")))
    ids = [c.id for m in end.messages for c in m.tool_calls]
    assert len(set(ids)) == 2


def test_a_conversation_that_does_not_end_stops_at_max_turns() -> None:
    end = play(Scripted([reply(None, call("tide"))] * 6), Harbour(tool("tide")))
    assert (end.stop, len([m for m in end.messages if m.role == "assistant"])) == ("max_turns", 6)


def test_a_broken_environment_is_never_a_tool_result() -> None:
    with pytest.raises(EnvironmentUnavailable):
        play(Scripted([reply(None, call("tide"))]), Harbour(tool("tide"), broken=True))


# ------------------------------------------------------------------ HC-015, HC-020: cut and empty replies


def test_an_unclosed_thought_at_the_limit_is_asked_again_with_twice_the_tokens_then_ends_truncated() -> None:
    cut = reply("<think>I should look up the tide and then", finish="length")
    policy = Scripted([cut, cut])
    end = play(policy, Harbour(tool("tide")))
    assert (end.stop, end.detail, end.messages) == ("truncated", "truncated_reasoning", OPENING)
    assert [tokens for _, _, tokens in policy.asked] == [64, 128]


def test_a_thought_that_a_call_ends_is_reasoning_and_the_call_is_executed() -> None:
    world = Harbour(tool("tide_now"))
    end = play(Scripted([reply("<think>look it up", call("tide_now", '{"port":"Lyme"}')), reply("4 m")]), world)
    assert (end.messages[2].content, end.messages[2].reasoning) == ("", "look it up")
    assert len(world.calls) == 1


def test_an_answer_is_never_taken_from_the_thoughts() -> None:
    silent = reply(None, reasoning="It is 4 m.")
    policy = Scripted([silent, silent])
    end = play(policy, Harbour(tool("tide")))
    assert (end.stop, end.messages) == ("empty_answer", OPENING)
    assert len({sample for _, sample, _ in policy.asked}) == 2


def test_an_empty_reply_is_asked_again_once() -> None:
    end = play(Scripted([reply(""), reply("4 m", reasoning="short")]), Harbour(tool("tide")))
    assert (end.stop, end.messages[-1].content, end.messages[-1].reasoning) == ("answered", "4 m", "short")


@pytest.mark.parametrize("arguments", ['{"port": "Lyme", "text": "high water at', "{}"])
def test_a_call_cut_at_the_limit_is_neither_executed_nor_kept(arguments: str) -> None:
    world = Harbour(tool("log_note", NOTE))
    cut = reply(None, call("log_note", arguments), finish="tool_calls", tokens=64)
    end = play(Scripted([cut, reply(None, call("log_note", arguments), tokens=128)]), world)
    assert (end.stop, end.detail, end.messages, world.calls) == ("truncated", "truncated_call", OPENING, [])


def test_a_call_that_breaks_off_below_the_limit_is_cut_too() -> None:
    world = Harbour(tool("log_note", NOTE))
    whole = reply(None, call("log_note", '{"port": "Lyme", "text": "high"}'))
    end = play(Scripted([reply(None, call("log_note", '{"port": "Lyme", "te')), whole, reply("Noted.")]), world)
    assert end.stop == "answered"
    assert len(world.calls) == 1


# ------------------------------------------------------------------ HC-016: encodings of arguments

ENCODED = {
    "type": "object",
    "properties": {
        "fields": {"type": "object"},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "body": {"type": "string"},
        "code": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    "text", ['{"fields": {"qty": 3}}', '"{\\"fields\\": {\\"qty\\": 3}}"', '{"fields": "{\\"qty\\": 3}"}']
)
def test_once_and_twice_encoded_arguments_mean_the_same(text: str) -> None:
    assert decode_arguments(text, ENCODED).arguments == {"fields": {"qty": 3}}


def test_only_the_schema_decides_what_is_decoded_and_it_is_recorded() -> None:
    text = json.dumps({"fields": '{"qty": 3}', "ids": "[1, 2]", "body": '{"keep": "as text"}', "code": "00123"})
    decoded = decode_arguments(text, ENCODED)
    assert decoded.arguments == {"fields": {"qty": 3}, "ids": [1, 2], "body": '{"keep": "as text"}', "code": "00123"}
    assert decoded.repairs == ("fields: read from text", "ids: read from text")


def test_references_and_alternatives_of_a_schema_are_followed() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "c": {}},
        "$defs": {"n": {"type": "integer"}},
    }
    decoded = decode_arguments('{"a": "5", "b": "6", "c": "7"}', schema)
    assert decoded.arguments == {"a": 5, "b": 6, "c": "7"}


@pytest.mark.parametrize("text", ["", "  ", "null"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert decode_arguments(text, ENCODED).arguments == {}


@pytest.mark.parametrize(
    "text", ["[]", '"just text"', '{"fields": {"qty": 3}}{"x": 1}', '{"fields": NaN}', "port=Lyme"]
)
def test_what_is_no_object_goes_back_to_the_model_and_is_not_executed(text: str) -> None:
    world = Harbour(tool("put", ENCODED))
    end = play(Scripted([reply(None, call("put", text)), reply("I could not.")]), world)
    answer = end.messages[3]
    assert answer.is_error
    assert answer.executed_by == "agent"
    assert (answer.content or "").startswith("invalid arguments")
    assert world.calls == []


@pytest.mark.parametrize("text", ['{"a": "x', '{"a": ', '{"a": tr', '{"a": 1', "{", '["a"'])
def test_a_text_that_more_text_could_complete_is_cut(text: str) -> None:
    with pytest.raises(ArgumentsCut):
        decode_arguments(text, ENCODED)


def test_a_wrong_text_is_not_cut() -> None:
    with pytest.raises(ArgumentsInvalid) as caught:
        decode_arguments("{'a': 1}", ENCODED)
    assert not isinstance(caught.value, ArgumentsCut)


def test_saved_arguments_are_in_canonical_form() -> None:
    world = Harbour(tool("put", ENCODED))
    end = play(Scripted([reply(None, call("put", '{"ids":"[1,2]","body":"Zürich"}')), reply("Done.")]), world)
    assert end.messages[2].tool_calls[0].function.arguments == '{"ids": [1, 2], "body": "Zürich"}'
    assert end.messages[3].repairs == ("ids: read from text",)


# ------------------------------------------------------------------ HC-017: names that are not offered

PORTS = tuple(tool(name) for name in ("ferry__search_routes", "rail__search_routes", "tide__now"))


def test_an_unknown_tool_is_answered_with_the_names_that_are_offered_and_the_loop_goes_on() -> None:
    world = Harbour(*PORTS)
    wrong = [reply("", call("search_routes")), reply("", call("tide__next_week"))]
    end = play(Scripted([*wrong, reply("", call("functions.tide__now")), reply("4 m")]), world)
    errors = [m for m in end.messages if m.is_error]
    assert len(errors) == 2
    assert all("ferry__search_routes, rail__search_routes, tide__now" in (m.content or "") for m in errors)
    assert [c.function.name for c in world.calls] == ["tide__now"]
    assert end.messages[7].repairs == ("name: functions.tide__now",)
    assert end.stop == "answered"


def test_the_same_unknown_call_three_times_is_a_loop() -> None:
    end = play(Scripted([reply("", call("search_routes"))] * 3), Harbour(*PORTS))
    assert (end.stop, end.detail) == ("loop", "loop_unknown_tool")


def test_a_prefix_is_taken_off_only_where_a_tool_is_left() -> None:
    assert offered("functions.tide__now", PORTS) == PORTS[2]
    assert offered("functions.tide", PORTS) is None


def test_thoughts_are_told_from_text() -> None:
    assert split_thought("<think>a</think>b") == ("b", "a", False)
    assert split_thought("a</think>b") == ("b", "a", False)
    assert split_thought("plain") == ("plain", "", False)


# ------------------------------------------------------------------ arguments against the schema


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"port": "Lyme"}', "missing parameter: text"),
        ('{"port": 5, "text": "x"}', "invalid parameter port: 5 is not of type 'string'"),
    ],
)
def test_arguments_that_the_schema_does_not_take_come_back_with_what_is_wrong_and_no_tool_runs(
    arguments: str, said: str
) -> None:
    world = Harbour(tool("log_note", NOTE))
    right = reply(None, call("log_note", '{"port": "Lyme", "text": "high"}'))
    end = play(Scripted([reply(None, call("log_note", arguments)), right, reply("Noted.")]), world)
    answer = end.messages[3]
    assert (answer.content, answer.is_error, answer.executed_by, answer.name) == (said, True, "agent", "log_note")
    assert [json.loads(one.function.arguments) for one in world.calls] == [{"port": "Lyme", "text": "high"}]
    assert end.stop == "answered"


def test_of_several_calls_in_one_turn_a_wrong_one_does_not_keep_the_others_from_running() -> None:
    world = Harbour(tool("log_note", NOTE), tool("tide"))
    turn = reply("Both.", call("log_note", "{}"), call("tide", '{"a": 1}'), call("tide", '{"a": 2}'))
    end = play(Scripted([turn, reply("4 m")]), world)
    assert [(m.executed_by, m.is_error) for m in end.messages[3:6]] == [
        ("agent", True),
        ("emulator", False),
        ("emulator", False),
    ]
    assert [m.tool_call_id for m in end.messages[3:6]] == [one.id for one in end.messages[2].tool_calls]


# ------------------------------------------------------------------ several user turns


def test_after_an_answer_the_user_may_go_on_and_each_turn_is_answered() -> None:
    replies = [reply(None, call("tide")), reply("4 m"), reply(None, call("wind")), reply("West")]
    end = play(Scripted(replies), Harbour(tool("tide"), tool("wind")), Said("And the wind?"))
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"]
    assert [m.role for m in end.messages] == roles
    assert (end.stop, end.messages[-1].content) == ("answered", "West")


def test_a_tool_is_offered_from_the_turn_that_brings_it_and_unknown_before() -> None:
    tide, wind = tool("tide"), tool("wind")
    policy = Scripted([reply(None, call("wind")), reply("No tool."), reply(None, call("wind")), reply("West")])
    world = Harbour(tide, wind)
    end = play(policy, world, Said("It is there.", (wind,)), offer=(tide,))
    assert policy.offers == [("tide",), ("tide",), ("tide", "wind"), ("tide", "wind")]
    assert "unknown tool: wind. The tools are: tide" in (end.messages[3].content or "")
    assert [one.function.name for one in world.calls] == ["wind"]
    assert [(one.message, one.tools) for one in end.late] == [(5, (wind,))]
    assert end.messages[5].role == "user"


def test_the_limit_of_turns_counts_over_the_whole_conversation() -> None:
    end = play(Scripted([reply("4 m")] * 6), Harbour(tool("tide")), *[Said("And now?")] * 9)
    assert (end.stop, len([m for m in end.messages if m.role == "assistant"])) == ("max_turns", 6)


def test_a_conversation_ends_at_its_limit_of_tokens() -> None:
    limits = Limits(max_turns=6, max_tokens=64, max_conversation_tokens=15)
    long, short = reply(None, call("tide"), tokens=5), reply(None, call("tide"), tokens=4)
    end = play(Scripted([short, long, short]), Harbour(tool("tide")), limits=limits)
    assert (end.stop, end.detail, end.usage.calls) == ("max_tokens", "max_tokens", 2)
    assert end.messages[-1].role == "tool"
