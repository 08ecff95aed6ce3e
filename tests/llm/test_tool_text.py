"""Tool calls in text: every form that models write, what is no call, and what was cut."""

from __future__ import annotations

import json

import pytest

from astra.llm.tool_text import with_calls
from astra.llm.types import Completion, ModelParams, Request
from astra.records import FunctionCall, Message, ToolCall, ToolSpec, Usage

MODEL = ModelParams(transport="openai", name="m", temperature=0, max_tokens=64)
TOOLS = tuple(ToolSpec(name=name, description=name, parameters={"type": "object"}) for name in ("tide", "log_note"))
ASKED = Request(model=MODEL, messages=(Message(role="user", content="x"),), tools=TOOLS)
ARGUMENTS = {"port": "Lyme", "note": "a; b"}


def read(
    text: str | None, asked: Request = ASKED, finish: str = "stop", calls: tuple[ToolCall, ...] = ()
) -> Completion:
    usage = Usage(calls=1, prompt_tokens=1, completion_tokens=1)
    return with_calls(Completion(text, finish, usage, calls), asked)


def called(found: Completion) -> list[tuple[str, object]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in found.tool_calls]


JSON = json.dumps(ARGUMENTS)
FORMS = {
    "hermes": f'<tool_call>\n{{"name": "tide", "arguments": {JSON}}}\n</tool_call>',
    "hermes, closing tag taken as a stop word": f'<tool_call>\n{{"name": "tide", "arguments": {JSON}}}\n',
    "hermes, arguments as text": f'<tool_call>{{"name": "tide", "arguments": {json.dumps(JSON)}}}</tool_call>',
    "qwen coder": "<tool_call>\n<function=tide>\n<parameter=port>\nLyme\n</parameter>\n<parameter=note>\na; b\n</parameter>\n"
    "</function>\n</tool_call>",
    "llama function tag": f"<function=tide>{JSON}</function>",
    "llama json": f'{{"name": "tide", "parameters": {JSON}}}',
    "llama json with its tag": f'<|python_tag|>{{"name": "tide", "parameters": {JSON}}}<|eom_id|>',
    "mistral list": f'[TOOL_CALLS] [{{"name": "tide", "arguments": {JSON}}}]',
    "mistral names": f"[TOOL_CALLS]tide[ARGS]{JSON}",
    "mistral names with ids": f"[TOOL_CALLS]tide[CALL_ID]a1b2c3d4e[ARGS]{JSON}",
    "python list": '[tide(port="Lyme", note="a; b")]',
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_the_same_call(form):
    found = read(FORMS[form])
    assert called(found) == [("tide", ARGUMENTS)]
    assert found.finish_reason == "tool_calls"
    assert found.content == ""


TWO = {
    "hermes": '<tool_call>{"name": "tide", "arguments": {}}</tool_call>\n<tool_call>{"name": "log_note", "arguments": {}}</tool_call>',
    "llama": '{"name": "tide", "parameters": {}}; {"name": "log_note", "parameters": {}}',
    "mistral": '[TOOL_CALLS][{"name": "tide", "arguments": {}}, {"name": "log_note", "arguments": {}}]',
    "mistral names": "[TOOL_CALLS]tide[ARGS]{}[TOOL_CALLS]log_note[ARGS]{}",
    "python": "[tide(), log_note()]",
}


@pytest.mark.parametrize("form", TWO)
def test_several_calls_keep_their_order_and_have_ids_of_their_own(form):
    found = read(TWO[form])
    assert [name for name, _ in called(found)] == ["tide", "log_note"]
    assert len({call.id for call in found.tool_calls}) == 2


def test_text_around_a_call_stays_text_and_thoughts_become_reasoning():
    found = read(f"<think>look</think>Let me see.\n{FORMS['hermes']}")
    assert (found.content, found.reasoning) == ("Let me see.", "look")


@pytest.mark.parametrize(
    "text",
    [
        "The tide is 4 m.", "", None, '{"tide": 4}', '{"name": "Lyme", "parameters": {"a": 1}}', '{"name": "tide"}', "[1, 2]",
        "[print(1)]", "[tide(port=open('x'))]", "[__import__('os').system(a='x')]", '["tide"]', "{cut",
        "<think>I could write <tool_call>{\"name\": \"tide\", \"arguments\": {}}</tool_call></think>No.",
        "<think>still thinking <tool_call>{\"name\": \"tide\", \"arguments\": {}}</tool_call>",
    ],
)  # fmt: skip
def test_what_is_no_call_stays_as_it_is(text):
    found = read(text)
    assert found.tool_calls == ()
    assert (found.content, found.finish_reason) == (text, "stop")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "log_note", "arguments": {"port": "Lyme", "text": "high water at',
        "<tool_call><function=tide><parameter=port>Ly", "[TOOL_CALLS][{\"name\": \"tide\", \"arg", "[TOOL_CALLS]tide[ARGS]{\"po",
        '<|python_tag|>{"name": "tide", "parameters": {"po', "<tool_call>",
    ],
)  # fmt: skip
def test_a_call_that_breaks_off_is_a_cut_reply_and_no_call(text):
    found = read(text)
    assert found.tool_calls == ()
    assert found.finish_reason == "length"


def test_a_call_at_the_limit_of_tokens_stays_marked_as_cut():
    assert read(FORMS["hermes"], finish="length").finish_reason == "length"


def test_calls_that_the_server_read_and_requests_without_tools_are_left_alone():
    own = ToolCall(id="a", function=FunctionCall(name="tide", arguments="{}"))
    assert read(FORMS["hermes"], calls=(own,)).tool_calls == (own,)
    assert read(FORMS["hermes"], Request(model=MODEL, messages=ASKED.messages)).tool_calls == ()


def test_a_call_of_an_unknown_tool_or_in_bad_json_reaches_the_loop_which_answers_it():
    assert read('<tool_call>{"name": "nope", "arguments": {}}</tool_call>').tool_calls[0].function.name == "nope"
    bad = read('<tool_call>{"name": tide}</tool_call>')
    assert bad.tool_calls[0].function.name == ""
