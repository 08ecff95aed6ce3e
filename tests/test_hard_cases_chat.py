"""Cases from other projects' issues, on chat templates and training data: HC-050, HC-051, HC-052, HC-055.

Of HC-055, a loss that is exactly 0 or no number is in tests/training/test_imitation.py, and a stage whose rows are all too
long in tests/stages/test_sft.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import PreTrainedTokenizerFast

from astra.chat import Chat, ChatError, NotTrainable
from astra.records import Message
from astra.stage import StageError
from astra.training.rows import Row, summary
from stages import sft
from tests.stages.training_run import PARAMS
from tests.test_chat import TOOL, call, new_chat, result, trained_spans, turn

TEMPLATES = Path(trl.__file__).parent / "chat_templates"


def tokenizer(template: str) -> PreTrainedTokenizerFast:
    one = new_chat().tokenizer
    one.chat_template = template
    return one


def family(name: str) -> Chat:
    """The tests' tokenizer with the template of a hub family."""
    return Chat(tokenizer((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")))


def marked(assistant: str, other: str = "{{ m.content }}") -> str:
    """A template that marks what it prints of an assistant's message."""
    return (
        "{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}{% generation %}"
        + assistant
        + "<|im_end|>{% endgeneration %}{% else %}"
        + other
        + "<|im_end|>{% endif %}{% endfor %}"
    )


HELLO = (Message(role="user", content="hi"), Message(role="assistant", content="hello"))


class Rejecting:
    """What ``sft.encode`` needs of a run."""

    def __init__(self) -> None:
        self.rejects: list[tuple[str, str, str]] = []
        self.metrics: dict[str, Any] = {}
        self.n_in = 0

    def progress(self, items, total=None, unit="it"):
        return items

    def reject(self, record_id: str, reason: str, detail: str) -> None:
        self.rejects.append((record_id, reason, detail))


def encode(chat: Chat, *messages: Message, max_length: int = 1000, **changes):
    run, _, kept = encoded(chat, [messages], max_length=max_length, **changes)
    return kept, run.rejects


def encoded(chat: Chat, conversations, **changes):
    """The run, its params and what is kept of these conversations."""
    params = sft.Params.model_validate(PARAMS["sft"] | {"max_length": 1000} | changes)
    run = Rejecting()
    rows = [Row(f"row{number}", "imitation", tuple(one), (TOOL,)) for number, one in enumerate(conversations, 1)]
    run.n_in = len(rows)
    kept = sft.encode(run, chat, rows, params)  # type: ignore[arg-type]
    assert run.n_in == len(kept) + len(run.rejects)
    return run, params, kept


# ---- HC-050: an assistant mask of zeros


def test_a_template_without_generation_marks_gives_no_chat():
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    with pytest.raises(ChatError, match=r"gives no assistant mask: it has no {% generation %} marks.*m.role"):
        Chat(tokenizer(template))


def test_a_template_whose_marks_cover_nothing_trains_nothing_and_says_so():
    chat = Chat(
        tokenizer("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{% generation %}{% endgeneration %}")
    )
    with pytest.raises(StageError, match=r"gives no assistant mask: 0 of \d+ tokens of row1 are trained"):
        encode(chat, *HELLO)


def test_a_mask_over_everything_is_refused_too():
    chat = Chat(tokenizer("{% generation %}{% for m in messages %}{{ m.content }}{% endfor %}{% endgeneration %}"))
    with pytest.raises(StageError, match=r"gives no assistant mask: (\d+) of \1 tokens"):
        encode(chat, *HELLO)


def test_a_conversation_in_which_the_assistant_says_nothing_is_a_reject():
    _, rejects = encode(new_chat(), HELLO[0])
    assert rejects[0][1] == "no_loss_mask"


def test_the_share_of_rows_with_nothing_to_train_within_the_length_is_reported():
    late = (Message(role="user", content="tide? " * 300), HELLO[1])
    half = (*HELLO, *late)
    run, _, kept = encoded(new_chat(), [HELLO, late, half, HELLO], max_length=64)
    assert len(kept) == 2
    assert (run.metrics["zero_share"], run.metrics["overlong_share"]) == (0.25, 0.5)


def test_tool_and_user_tokens_are_never_trained():
    chat = new_chat()
    messages = (HELLO[0], turn(1, "Next.", (TOOL.name, '{"airport": "LHR"}')), result(1, "London"), HELLO[1])
    ((_, one),), _ = encode(chat, *messages)
    trained = "".join(chat.text(span) for span in trained_spans(one.ids, one.mask))
    assert "London" not in trained
    assert "hi<" not in trained
    assert trained.count("<|im_end|>") == 2


def test_the_counts_of_trained_tokens_are_reported():
    ((row, one),), _ = encode(new_chat(), *HELLO)
    numbers = summary([(row, one)], [{"step": 1, "loss": 1.0}])["trained_tokens_a_row"]
    assert numbers["min"] == numbers["max"] == sum(one.mask) > 0


# ---- HC-051: a template that drops earlier reasoning

THOUGHTFUL = (
    Message(role="user", content="tide?"),
    Message(role="assistant", reasoning="need tool", content="4 m"),
    Message(role="user", content="and fare?"),
    Message(role="assistant", reasoning="sum legs", content="12"),
)
ONLY_LAST = marked(
    "{% if m.reasoning_content and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments | tojson }}</tool_call>{% endfor %}"
)


def test_reasoning_that_a_template_drops_is_counted_and_the_row_is_a_reject():
    run, _, kept = encoded(Chat(tokenizer(ONLY_LAST)), [THOUGHTFUL], split="never")
    rejects = run.rejects
    assert run.metrics["reasoning"] == {"turns": 2, "dropped_if_whole": 1}
    assert kept == []
    assert rejects[0][1] == "reasoning_lost"
    assert "of 1 of 2 turns" in rejects[0][2]


def test_reasoning_only_where_the_template_keeps_it_is_trained():
    chat = Chat(tokenizer(ONLY_LAST))
    ((_, one),), rejects = encode(
        chat, THOUGHTFUL[0], THOUGHTFUL[1].model_copy(update={"reasoning": None}), *THOUGHTFUL[2:]
    )
    assert rejects == []
    assert "sum legs" in chat.text(one.ids)


@pytest.mark.parametrize(
    ("name", "lost"),
    [("qwen3", 0), ("qwen3_6", 0), ("glm4moe", 1), ("nemotron_3_nano", 1), ("qwen2_5", 2), ("qwen3_instruct_2507", 2)],
)
def test_hub_families_keep_all_reasoning_or_the_row_is_refused(name, lost):
    chat = family(name)
    kept, rejects = encode(chat, *THOUGHTFUL, split="never")
    assert [reason for _, reason, _ in rejects] == (["reasoning_lost"] if lost else [])
    assert all(f"of {lost} of 2 turns" in detail for *_, detail in rejects)
    assert all(thought in chat.text(one.ids) for _, one in kept for thought in ("need tool", "sum legs"))


def test_reasoning_before_a_call_in_the_last_turn_is_looked_for_by_itself():
    chat = Chat(tokenizer(ONLY_LAST))
    call_first = THOUGHTFUL[1].model_copy(
        update={"content": None, "tool_calls": (call(1, TOOL.name, '{"airport": "LHR"}'),)}
    )
    _, rejects = encode(chat, THOUGHTFUL[0], call_first, result(1, "4"), THOUGHTFUL[3], split="never")
    assert "of 1 of 2 turns" in rejects[0][2]


def test_what_rl_sampled_stands_in_the_whole_conversation_as_it_was_sampled():
    """Earlier turns, thoughts included, are never rendered in another form than the one that was sampled."""
    chat = new_chat()
    sampled = chat.tokenizer("<think>\nneed tool\n</think>\n4 m<|im_end|>").input_ids
    before = chat.prompt(THOUGHTFUL[:1], [TOOL])
    later = chat.prompt([THOUGHTFUL[0], chat.parse(sampled, 1), *THOUGHTFUL[2:3]], [TOOL])
    assert later[: len(before) + len(sampled)] == before + sampled


# ---- HC-052: arguments that are encoded twice

CALLING = marked("{% for c in m.tool_calls or [] %}ARGUMENTS{% endfor %}{{ m.content }}")
LYME = '{"port": "Lyme"}'


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{{ c.function.arguments | tojson }}", '{"port": "Lyme"}'),
        ("{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}", "port=Lyme;"),
        ("{{ c.function.arguments }}", '{"port": "Lyme"}'),
    ],
    ids=["tojson", "items", "raw"],
)
def test_arguments_are_rendered_as_the_template_means_them(template, wanted):
    chat = Chat(tokenizer(CALLING.replace("ARGUMENTS", f"<tool_call>{template}</tool_call>")))
    messages = [HELLO[0], turn(1, "", ("tide_now", LYME)), result(1, "4"), HELLO[1]]
    text = chat.text(chat.encode([messages], [[TOOL]])[0].ids)
    assert f"<tool_call>{wanted}</tool_call>" in text
    assert '\\"' not in text
    assert chat.text(chat.prompt(messages, [TOOL])).startswith(text[: text.index("</tool_call>")])


@pytest.mark.parametrize("template", ["{{ c.function.arguments | tojson }}", "{{ c.function.arguments }}"])
def test_key_order_numbers_and_letters_are_the_model_s(template):
    chat = Chat(tokenizer(CALLING.replace("ARGUMENTS", template)))
    arguments = '{"z": 1.0, "a": "<é> & \'日本\'", "n": 12345678901234567890}'
    text = chat.text(chat.encode([[HELLO[0], turn(1, "", ("f", arguments))]], [[TOOL]])[0].ids)
    assert arguments in text
    assert "&lt;" not in text


@pytest.mark.parametrize("arguments", ["null", "[1]", "not json"])
def test_arguments_that_are_no_object_make_the_row_a_reject_with_its_reason(arguments):
    kept, rejects = encode(new_chat(), HELLO[0], turn(1, "", ("tide_now", arguments)), result(1, "4"), HELLO[1])
    assert kept == []
    assert rejects[0][1] == "bad_arguments"


def test_one_number_with_a_point_stays_one_number_with_a_point():
    ((_, one),), _ = encode(new_chat(), HELLO[0], turn(1, "", ("tide_now", '{"n": 1.0}')), result(1, "4"), HELLO[1])
    assert '{"n": 1.0}' in new_chat().text(one.ids)


@pytest.mark.parametrize("name", ["phi3", "deepseek_r1_distill"])
def test_a_family_whose_template_leaves_calls_out_trains_no_conversation_with_calls(name):
    chat = family(name)
    with pytest.raises(NotTrainable) as refused:
        chat.encode([[HELLO[0], turn(1, "", ("tide_now", LYME)), result(1, "4"), HELLO[1]]], [[TOOL]])
    assert refused.value.reason == "calls_lost"
    assert chat.encode([HELLO], [[]])[0].ids


def test_a_conversation_that_the_template_refuses_is_a_reject_not_a_crash():
    chat = Chat(
        tokenizer(
            marked("{{ m.content }}", "{{ raise_exception('no system here') if m.role == 'system' else m.content }}")
        )
    )
    kept, rejects = encode(chat, Message(role="system", content="s"), *HELLO)
    assert kept == []
    assert rejects[0][1:] == ("template_refuses", "no system here")


# ---- HC-055: a cut that leaves nothing to train on


def test_a_row_is_never_cut_it_is_a_reject_that_says_how_long_it_is():
    messages = (Message(role="user", content="tide? " * 300), HELLO[1])
    kept, rejects = encode(new_chat(), *messages, max_length=64)
    assert kept == []
    assert rejects[0][1] == "too_long"
    assert "sft.max_length is 64" in rejects[0][2]


def test_a_second_span_that_does_not_fit_takes_the_whole_row_with_it():
    arguments = json.dumps({"airport": "LHR " * 40})
    messages = (HELLO[0], HELLO[1], HELLO[0], turn(1, "", (TOOL.name, arguments)))
    chat = new_chat()
    whole = chat.encode([messages], [[TOOL]])[0]
    inside = len(whole.ids) - 40
    assert encode(chat, *messages, max_length=inside)[0] == []
    ((_, one),), _ = encode(chat, *messages, max_length=len(whole.ids))
    assert one == whole
