"""Samples from conversations: one a turn where a template drops thoughts, results shortened where that is safe (HC-051, HC-055)."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from astra.chat import Chat
from astra.chat.chat import spans_of
from astra.records import FunctionCall, Message, ToolCall
from astra.training.rows import write_rows
from astra.training.samples import drafts, fit, is_split, make
from astra.training.shortening import shorten
from tests.test_chat import TOOL, new_chat
from tests.test_hard_cases_chat import ONLY_LAST, TEMPLATES, THOUGHTFUL, encoded, tokenizer


def call(number: int, **arguments: object) -> ToolCall:
    return ToolCall(id=f"call_{number}", function=FunctionCall(name="airport_city", arguments=json.dumps(arguments)))


def result(number: int, content: str) -> Message:
    return Message(role="tool", tool_call_id=f"call_{number}", name="airport_city", content=content)


def qwen3(choice="auto") -> Chat:
    return Chat(tokenizer((TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8")), choice)


LOOP = (
    Message(role="user", content="tide?"),
    Message(role="assistant", reasoning="look it up", tool_calls=(call(1, airport="LHR"),)),
    result(1, "4"),
    Message(role="assistant", reasoning="got it", content="4 m"),
    Message(role="user", content="and fare?"),
    Message(role="assistant", reasoning="sum legs", content="12"),
)


# ---------------------------------------------------------------- HC-051: one sample a turn


def test_a_template_that_keeps_all_thoughts_gives_one_sample_a_conversation():
    for chat in (new_chat(), qwen3()):
        assert drafts(chat, LOOP, "auto") == [(None, LOOP)]
    assert len(drafts(new_chat(), LOOP, "always")) == 3


@pytest.mark.parametrize("chat", [Chat(tokenizer(ONLY_LAST)), qwen3("own")], ids=["only_last", "qwen3_as_it_ships"])
def test_a_template_that_drops_earlier_thoughts_gives_one_sample_a_turn(chat):
    """HC-051: each turn's thought is trained, in the text that the policy will see when it writes it."""
    run, _, kept = encoded(chat, [THOUGHTFUL])
    assert run.rejects == []
    assert [(row.id, row.parent, row.turn) for row, _ in kept] == [("row1:turn1", "row1", 1), ("row1:turn2", "row1", 2)]
    for (row, one), thought, answer in zip(kept, ("need tool", "sum legs"), ("4 m", "12"), strict=True):
        prompt = chat.prompt(row.messages[:-1], [TOOL])
        assert one.ids[: len(prompt)] == prompt
        assert one.mask == sorted(one.mask)
        (span,) = spans_of(one)
        assert (
            chat.text(span)
            == f"<think>\n{thought}\n</think>\n"
            + ("\n" if chat.carried.inner_reasoning else "")
            + f"{answer}<|im_end|>"
        )
    assert "need tool" not in chat.text(kept[1][1].ids)


def test_within_one_question_qwen3_as_it_ships_is_trained_turn_by_turn_with_the_thoughts_that_it_shows():
    chat = qwen3("own")
    run, _, kept = encoded(chat, [LOOP])
    assert run.rejects == []
    texts = [chat.text(one.ids) for _, one in kept]
    assert ["look it up" in text for text in texts] == [True, True, False]
    assert ["got it" in text for text in texts] == [False, True, False]
    trained = ["".join(chat.text(span) for span in spans_of(one)) for _, one in kept]
    assert [sum(thought in text for text in trained) for thought in ("look it up", "got it", "sum legs")] == [1, 1, 1]


def test_no_turn_is_trained_twice_and_all_are_trained():
    chat = new_chat()
    whole = spans_of(chat.encode([LOOP], [[TOOL]])[0])
    _, _, kept = encoded(chat, [LOOP], split="always")
    assert [spans_of(one) for _, one in kept] == [[span] for span in whole]


def test_what_was_split_and_what_would_be_dropped_are_reported():
    run, _, _ = encoded(Chat(tokenizer(ONLY_LAST)), [THOUGHTFUL, THOUGHTFUL[:2]])
    assert run.metrics["split_conversations"] == 1
    assert run.metrics["reasoning"] == {"turns": 3, "dropped_if_whole": 1}


def test_a_conversation_whose_dropped_parts_are_none_is_not_split():
    bare = tuple(message.model_copy(update={"reasoning": None}) for message in THOUGHTFUL)
    assert not is_split(Chat(tokenizer(ONLY_LAST)), bare, "auto")


def test_a_turn_that_cannot_be_trained_takes_no_other_turn_with_it():
    chat = Chat(tokenizer(ONLY_LAST))
    long = (*THOUGHTFUL[:3], Message(role="assistant", reasoning="sum legs", content="12 " * 300))
    run, _, kept = encoded(chat, [long], max_length=200)
    assert [row.id for row, _ in kept] == ["row1:turn1"]
    assert [(name, reason) for name, reason, _ in run.rejects] == [("row1:turn2", "too_long")]


def test_a_template_that_drops_every_thought_trains_none_of_them_and_says_so():
    chat = Chat(tokenizer((TEMPLATES / "qwen2_5.jinja").read_text(encoding="utf-8")))
    run, _, kept = encoded(chat, [THOUGHTFUL])
    assert kept == []
    assert [reason for _, reason, _ in run.rejects] == ["reasoning_lost"] * 2


def test_parent_and_turn_are_in_the_rows_that_are_written(tmp_path):
    _, _, kept = encoded(new_chat(), [LOOP[:2]], split="always")
    write_rows(tmp_path / "rows.parquet", kept)
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert frame[["id", "parent", "turn"]].values.tolist() == [["row1:turn1", "row1", 1]]


# ---------------------------------------------------------------- HC-055: long results are shortened first

FLIGHTS = [{"flight": f"ZQ{number}", "gate": f"K{number}", "delay": number * 7} for number in range(100, 160)]
LONG = json.dumps({"airport": "LHR", "flights": FLIGHTS, "note": "end of list"})


def about(answer: str, question: str = "Which gate has flight ZQ131?", content: str = LONG) -> tuple[Message, ...]:
    return (
        Message(role="user", content=question),
        Message(role="assistant", tool_calls=(call(1, airport="LHR"),)),
        result(1, content),
        Message(role="assistant", content=answer),
    )


def test_a_long_result_is_cut_in_the_middle_and_says_by_how_much():
    cut = shorten(about("It is K131."), 300)
    assert cut is not None
    shown = cut.messages[2].content
    assert shown.startswith('{"airport": "LHR"')
    assert shown.endswith('"note": "end of list"}')
    lengths = [int(text.split()[0]) for text in shown.split("[... ")[1:]]
    marks = sum(len(f" [... {length} characters left out ...] ") for length in lengths)
    assert len(LONG) - sum(lengths) == len(shown) - marks
    assert cut.n_results == 1
    assert cut.n_characters == len(LONG) - len(shown)


def test_what_later_turns_take_up_stays_with_its_row():
    shown = shorten(about("It is K131."), 120).messages[2].content
    assert '"flight": "ZQ131", "gate": "K131", "delay": 917' in shown
    assert "K145" not in shown


def test_a_value_that_a_later_call_needs_stays():
    messages = (*about("x")[:3], Message(role="assistant", tool_calls=(call(2, airport="K152"),)), result(2, "ok"),
                Message(role="assistant", content="Done."))  # fmt: skip
    assert '"K152"' in shorten(messages, 120).messages[2].content


def test_a_value_that_a_thought_quotes_stays():
    messages = (*about("x")[:3], Message(role="assistant", reasoning="ZQ140 it is", content="Done."))
    assert '"ZQ140"' in shorten(messages, 120).messages[2].content


def test_words_without_spaces_between_them_are_found_too():
    text = "甲乙丙丁" * 100 + "登机口在东翼二层" + "戊己庚辛" * 100
    shown = shorten(about("请到东翼二层。", "在哪里登机?", text), 100).messages[2].content
    assert "东翼二层" in shown
    assert len(shown) < len(text) / 2


def test_no_number_or_word_is_cut_in_two():
    text = " ".join(f"{number}.25" for number in range(1000, 1400))
    for limit in range(100, 130):
        shown = shorten(about("It is there.", "What?", text), limit).messages[2].content
        assert set(shown.split(" [... ")[0].split()) <= set(text.split())
        assert set(shown.split(" ...] ")[-1].split()) <= set(text.split())


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ("There are 60 flights.", "How many flights are there?"),
        ("It is K131.", "How many flights are there?"),
        ("The average delay is 906.5.", "What is the delay?"),
        ("In sum, 54390 minutes.", "What is the delay?"),
        ("The cheapest is ZQ100.", "Which one?"),
        ("No flight to Rome.", "Is there one to Rome?"),
        ("All flights are late.", "Are they late?"),
        ("It takes 917.5 minutes.", "What is the delay?"),  # a number that stands nowhere: it was computed
        ("一共有航班。", "有几个航班?"),
    ],
)
def test_a_result_that_an_answer_rests_on_as_a_whole_is_never_cut(answer, question):
    assert shorten(about(answer, question), 200) is None


def test_the_longest_results_are_cut_first_and_no_other_message_is_touched():
    messages = (
        Message(role="system", content="Be brief. " * 20), Message(role="user", content="Where? " * 20),
        Message(role="assistant", content="Let me see. " * 20, tool_calls=(call(1, airport="LHR"), call(2, airport="OSL"))),
        result(1, LONG), result(2, "The city is Oslo. " * 8), Message(role="assistant", content="It is K131."),
    )  # fmt: skip
    cut = shorten(messages, 400)
    assert [place for place, one in enumerate(cut.messages) if one != messages[place]] == [3]


def test_a_conversation_is_shortened_as_little_as_makes_it_fit():
    chat = new_chat()
    sample = make(chat, None, about("It is K131."), [TOOL])
    length = len(sample.encoded.ids)
    fitted = fit(chat, sample, [TOOL], length - 200, 120)
    assert length - 400 < len(fitted.sample.encoded.ids) <= length - 200
    assert [chat.text(one) for one in spans_of(fitted.sample.encoded)] == [
        chat.text(one) for one in spans_of(sample.encoded)
    ]
    assert fit(chat, sample, [TOOL], 100, 120) is None
    assert fit(chat, sample, [TOOL], length - 200, 0) is None


def test_shortened_rows_are_kept_and_counted_and_the_rest_is_too_long():
    chat = new_chat()
    length = len(chat.encode([about("It is K131.")], [[TOOL]])[0].ids)
    rows = [about("It is K131."), about("There are 60 flights."), about("It is K131." * 400)]
    run, _, kept = encoded(chat, rows, max_length=length // 2)
    assert [row.id for row, _ in kept] == ["row1"]
    assert len(kept[0][1].ids) <= length // 2
    assert "characters left out" in chat.text(kept[0][1].ids)
    assert run.metrics["shortened"]["rows"] == run.metrics["shortened"]["results"] == 1
    assert run.metrics["shortened"]["characters"] > 500
    assert run.metrics["overlong_share"] == 1
    assert [reason for _, reason, _ in run.rejects] == ["too_long", "too_long"]


def test_a_second_turn_that_does_not_fit_leaves_the_first_one_where_turns_are_samples():
    """HC-055's variant: a row ends at a turn's border or is refused, never inside a call."""
    chat = new_chat()
    second = Message(role="assistant", tool_calls=(call(1, airport="LHR " * 40),))
    rows = [(*THOUGHTFUL[:3], second)]
    first = len(chat.encode([THOUGHTFUL[:2]], [[TOOL]])[0].ids)
    run, _, kept = encoded(chat, rows, max_length=max(64, first + 20), split="always")
    assert [row.id for row, _ in kept] == ["row1:turn1"]
    assert [name for name, *_ in run.rejects] == ["row1:turn2"]
