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
    "python list with the marks of llama 4": '<|python_start|>[tide(port="Lyme", note="a; b")]<|python_end|><|eot|>',
    "python in a fence, gemma": '```tool_code\ntide(port="Lyme", note="a; b")\n```',
    "python in tags, olmo": '<function_calls>\ntide(port="Lyme", note="a; b")\n</function_calls>',
    "deepseek 3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tide\n```json\n"
    f"{JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "deepseek 3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek 3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="tide">\n<｜DSML｜parameter name="port" string="true">Lyme'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="note" string="true">a; b</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜function_calls>",
    "minimax": '<minimax:tool_call>\n<invoke name="tide">\n<parameter name="port">Lyme</parameter>\n'
    '<parameter name="note">a; b</parameter>\n</invoke>\n</minimax:tool_call>',
    "glm": "<tool_call>tide\n<arg_key>port</arg_key>\n<arg_value>Lyme</arg_value>\n<arg_key>note</arg_key>\n"
    "<arg_value>a; b</arg_value>\n</tool_call>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.tide:0<|tool_call_argument_begin|>"
    f"{JSON}<|tool_call_end|><|tool_calls_section_end|>",
    "granite": f'<|tool_call|>[{{"name": "tide", "arguments": {JSON}}}]',
    "granite, a list in hermes tags": f'<tool_call>[{{"name": "tide", "arguments": {JSON}}}]</tool_call>',
    "hunyuan": f'<tool_calls>[{{"name": "tide", "arguments": {JSON}}}]</tool_calls>',
    "nemotron": f'<TOOLCALL>[{{"name": "tide", "arguments": {JSON}}}]</TOOLCALL>',
    "cohere": f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "tide", "parameters": {JSON}}}]<|END_ACTION|>',
    "internlm": f'<|action_start|><|plugin|>{{"name": "tide", "parameters": {JSON}}}<|action_end|>',
    "phi": f'functools[{{"name": "tide", "arguments": {JSON}}}]',
    "phi in tags": f'<|tool_call|>[{{"type": "function", "function": {{"name": "tide", "arguments": {JSON}}}}}]<|/tool_call|>',
    "harmony": f"<|channel|>commentary to=functions.tide <|constrain|>json<|message|>{JSON}<|call|>",
    "harmony, name before the channel": f"<|start|>assistant to=functions.tide<|channel|>commentary json<|message|>{JSON}",
    "harmony without its marks": f"assistantcommentary to=functions.tide json{JSON}",
    "json list": f'[{{"name": "tide", "arguments": {JSON}}}]',
    "json in a fence": f'```json\n{{"name": "tide", "arguments": {JSON}}}\n```',
    "json as in requests": f'{{"type": "function", "function": {{"name": "tide", "arguments": {JSON}}}}}',
    "json as in replies": f'{{"tool_calls": [{{"type": "function", "function": {{"name": "tide", "arguments": {JSON}}}}}]}}',
    "llama json with its end": f'{{"name": "tide", "parameters": {JSON}}}<|eot_id|>',
    "mistral name and json": f"[TOOL_CALLS]tide{JSON}</s>",
    "mistral parameters": f'[TOOL_CALLS][{{"name": "tide", "parameters": {JSON}}}]',
    "hermes, other names of the fields": f'<tool_call>{{"function": "tide", "args": {JSON}}}</tool_call>',
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
    "python lines": "<function_calls>\ntide()\nlog_note()\n</function_calls>",
    "qwen, two in one tag": '<tool_call>\n{"name": "tide", "arguments": {}}\n{"name": "log_note", "arguments": {}}\n</tool_call>',
    "json list": '[{"name": "tide", "arguments": {}}, {"name": "log_note", "arguments": {}}]',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide<｜tool▁sep｜>{}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>log_note"
    "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "glm without arguments": "<tool_call>tide\n</tool_call>\n<tool_call>log_note</tool_call>",
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
        "Models write <tool_call> tags around calls.", '{"answer": "use <tool_call>"}', 'Set to=Lyme in {"port": "Lyme"}.',
        '[{"name": "tide", "arguments": {}}, {"name": "Lyme", "arguments": {}}]', '[{"name": "tide"}]', "<|channel|>final<|message|>4 m",
        '```json\n{"name": "Lyme", "arguments": {}}\n```',
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
        "<tool_call>tide\n<arg_key>port</arg_key>\n<arg_value>Ly", "<tool_call>tid", '<function_calls><invoke name="tide"><param',
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide<｜tool▁sep｜>{"port": "Ly', '<|tool_call|>[{"name": "tide", "argu',
        '<|tool_call_begin|>functions.tide:0<|tool_call_argument_begin|>{"por', "<｜tool▁call▁begin｜>function<｜tool▁sep｜>ti",
        '<|channel|>commentary to=functions.tide <|constrain|>json<|message|>{"po',
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


@pytest.mark.parametrize("text", ["✿FUNCTION✿: tide\n✿ARGS✿: {}", "<|tool_use_x|>tide", "<｜function▁x｜>tide"])
def test_a_call_in_a_form_that_nobody_knows_is_no_answer(text):
    found = read(text)
    assert [call.function.name for call in found.tool_calls] == [""]
    assert found.content == ""
