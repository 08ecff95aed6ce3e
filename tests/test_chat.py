"""Messages <-> ids and mask: the built-in format, and a hub family through the same functions (HC-050 to HC-055, HC-064)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trl
from hypothesis import given, settings
from hypothesis import strategies as st

from astra.chat import BUILTIN_PHRASES, Chat, ChatError, NotTrainable, build_tokenizer
from astra.records import FunctionCall, Message, ToolCall, ToolSpec
from tests.training.tiny import trained_spans

TOOL = ToolSpec(
    name="airport_city",
    description="Host city of an airport.",
    parameters={"type": "object", "properties": {"airport": {"type": "string"}}, "required": ["airport"]},
)
OTHER = TOOL.model_copy(update={"name": "city_country", "description": "Home country of a city."})
NAMES = {TOOL.name, OTHER.name, TOOL.description, "host city", "LHR", "London", "New York"}


def new_chat() -> Chat:
    texts = ["For airport , find the , then its ", "What is the  of the "] * 5
    return Chat(build_tokenizer(texts, NAMES, BUILTIN_PHRASES, 300))


@pytest.fixture(scope="module")
def chat() -> Chat:
    return new_chat()


def call(number: int, name: str, arguments: str) -> ToolCall:
    return ToolCall(id=f"call_{number}", function=FunctionCall(name=name, arguments=arguments))


def turn(number: int, thought: str, *calls: tuple[str, str]) -> Message:
    return Message(
        role="assistant",
        content=thought or None,
        tool_calls=tuple(call(number + place, *one) for place, one in enumerate(calls)),
    )


def result(number: int, text: str) -> Message:
    return Message(role="tool", tool_call_id=f"call_{number}", name="airport_city", content=text)


CONVERSATION = (
    Message(role="user", content="What is the host city of airport LHR?"),
    turn(1, "Next: host city of LHR.", ("airport_city", '{"airport": "LHR"}')),
    result(1, '{"result": "London"}'),
    turn(2, "", ("airport_city", '{"airport": "LHR"}'), ("city_country", '{"airport": "Zürich \\"ZRH\\""}')),
    result(2, '{"result": 25}'),
    result(3, "unknown airport: Zürich"),
    Message(role="assistant", content="The answer is London and 25."),
)


def test_the_loss_covers_what_the_assistant_wrote_and_nothing_else(chat):
    one = chat.encode([CONVERSATION], [[TOOL]])[0]
    trained = chat.text([token for token, flag in zip(one.ids, one.mask, strict=True) if flag])
    assert trained == (
        'Next: host city of LHR.\n<tool_call>\n{"name": "airport_city", "arguments": {"airport": "LHR"}}\n</tool_call><|im_end|>'
        '<tool_call>\n{"name": "airport_city", "arguments": {"airport": "LHR"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "city_country", "arguments": {"airport": "Zürich \\"ZRH\\""}}\n</tool_call><|im_end|>'
        "The answer is London and 25.<|im_end|>"
    )


def test_tools_are_one_line_signatures(chat):
    text = chat.text(chat.prompt(CONVERSATION[:1], [TOOL, OTHER]))
    assert text.startswith(
        "<|im_start|>system\nairport_city(airport): Host city of an airport.\n"
        "city_country(airport): Home country of a city.<|im_end|>\n<|im_start|>user\n"
    )


def test_without_tools_there_is_no_system_turn(chat):
    assert chat.text(chat.prompt(CONVERSATION[:1], [])).startswith("<|im_start|>user\n")


def test_prompt_replies_and_results_make_the_same_ids_as_the_whole_conversation(chat):
    whole = chat.encode([CONVERSATION], [[TOOL]])[0]
    ids, mask = chat.prompt(CONVERSATION[:1], [TOOL]), []
    mask = [0] * len(ids)
    spans = trained_spans(whole.ids, whole.mask)
    for reply, after in zip(
        spans, [('{"result": "London"}',), ('{"result": 25}', "unknown airport: Zürich"), ()], strict=True
    ):
        results = list(chat.results(after)) if after else []
        ids += reply + results
        mask += [1] * len(reply) + [0] * len(results)
    assert ids == whole.ids[: len(ids)]
    assert mask == whole.mask[: len(mask)]
    assert chat.text(whole.ids[len(ids) :]) == "\n"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="<|>"), max_size=12),
            st.text(st.characters(codec="utf-8", exclude_characters="<|>"), max_size=12),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_longer_conversation_begins_with_the_ids_of_the_shorter_one(pairs):
    chat = SHARED
    messages = [Message(role="user", content="q")]
    for number, (thought, text) in enumerate(pairs, 1):
        before = chat.prompt(messages, [TOOL])
        messages += [turn(number, thought, ("airport_city", '{"airport": "LHR"}')), result(number, text)]
        assert chat.prompt(messages, [TOOL])[: len(before)] == before


SHARED = new_chat()


def test_a_reply_reads_back_as_the_message_that_was_rendered(chat):
    whole = chat.encode([CONVERSATION], [[TOOL]])[0]
    spans = trained_spans(whole.ids, whole.mask)
    for span, message, first in zip(spans, [CONVERSATION[1], CONVERSATION[3], CONVERSATION[6]], [1, 2, 4], strict=True):
        assert chat.parse(span, first) == message


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        '{"name": "f"',
        '{"arguments": {}}',
        '["f"]',
        '{"name": 3, "arguments": {}}',
        '{"name": "f", "arguments": [1]}',
    ],
)
def test_a_malformed_call_is_a_call_of_no_tool_not_a_crash(chat, text):
    ids = chat.tokenizer(f"thought\n<tool_call>\n{text}\n</tool_call>").input_ids
    message = chat.parse([*ids, chat.end], 1)
    assert message.tool_calls[0].function == FunctionCall(name="", arguments=text)
    assert message.content == "thought"


def test_a_call_that_is_not_closed_still_counts(chat):
    message = chat.parse(chat.tokenizer('<tool_call>\n{"name": "f", "arguments": {}}').input_ids, 5)
    assert message.tool_calls == (call(5, "f", "{}"),)


def test_earlier_reasoning_is_kept_and_trained(chat):
    messages = [
        Message(role="user", content="tide?"),
        Message(role="assistant", reasoning="need tool", content="4 m"),
        Message(role="user", content="and fare?"),
        Message(role="assistant", reasoning="sum legs", content="12"),
    ]
    one = chat.encode([messages], [[]])[0]
    assert chat.text(one.ids).count("<think>") == 2
    span = trained_spans(one.ids, one.mask)[0]
    assert chat.parse(span, 1) == messages[1]


@pytest.mark.parametrize("arguments", ["null", "[1]", "not json", '"text"', ""])
def test_arguments_that_are_no_object_are_no_training_sample(chat, arguments):
    with pytest.raises(NotTrainable) as failure:
        chat.encode([[Message(role="user", content="q"), turn(1, "", ("f", arguments))]], [[TOOL]])
    assert failure.value.reason == "bad_arguments"


def test_arguments_are_written_as_an_object_with_their_own_order_and_letters(chat):
    one = chat.encode([[Message(role="user", content="q"), turn(1, "", ("f", '{"z": 1.0, "a": "<é>"}'))]], [[TOOL]])[0]
    assert '"arguments": {"z": 1.0, "a": "<é>"}' in chat.text(one.ids)


def test_names_and_marks_are_single_tokens_and_only_as_whole_words(chat):
    size = lambda text: len(chat.tokenizer(text).input_ids)  # noqa: E731
    assert size("airport_city") == size("New York") == size("<tool_call>") == 1
    assert size("LHRX") > 1


def test_a_saved_chat_gives_the_same_ids(chat, tmp_path):
    chat.save(tmp_path)
    again = Chat.load(tmp_path)
    assert again.encode([CONVERSATION], [[TOOL]]) == chat.encode([CONVERSATION], [[TOOL]])


def test_a_name_with_accents_is_read_back_as_it_was_written():
    texts = [f"the mayor of {city}" for city in ("Córdoba", "Thāne", "Ürümqi", "Kyōto", "Huế", "Rome")]
    chat = Chat(build_tokenizer(texts, ["Córdoba", "Thāne", "Ürümqi", "Kyōto", "Huế", "Rome"], BUILTIN_PHRASES, 300))
    for text in texts:
        ids = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert chat.text(ids) == text


def test_two_builds_from_the_same_texts_are_the_same_tokenizer():
    assert new_chat().tokenizer.get_vocab() == new_chat().tokenizer.get_vocab()


def test_a_template_without_generation_marks_is_refused(chat):
    other = new_chat().tokenizer
    other.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    with pytest.raises(ChatError, match="generation"):
        Chat(other)


def test_a_template_that_rewrites_earlier_turns_is_refused():
    other = new_chat().tokenizer
    other.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ 'x' * loop.revindex }}<|im_end|>"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(ChatError, match="prefix"):
        Chat(other).results(("r",))


def test_a_hub_family_goes_through_the_training_variant_that_trl_knows():
    tokenizer = new_chat().tokenizer
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    chat = Chat(tokenizer)
    one = chat.encode([CONVERSATION], [[TOOL]])[0]
    spans = trained_spans(one.ids, one.mask)
    assert [span[-1] for span in spans] == [chat.end] * 3  # not the line break that this family's template marks too
    assert [chat.parse(span, 1).tool_calls for span in spans[:1]] == [CONVERSATION[1].tool_calls]
    ids = chat.prompt(CONVERSATION[:1], [TOOL]) + spans[0] + list(chat.results(('{"result": "London"}',)))
    assert one.ids[: len(ids)] == ids
