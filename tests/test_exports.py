"""Each export is read by its consumer's own loader and is the conversation that went in, to the last letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from trl import SFTConfig, SFTTrainer

from astra.exports import __main__ as command
from astra.exports.__main__ import telling_first, write_rows
from astra.exports.formats import (
    BETWEEN_RESULTS,
    FORMS,
    Conversation,
    NotExportable,
    convert,
    same,
    taught,
    write_sharegpt,
    write_trl,
)
from astra.records import FunctionCall, Message, Scorecard, ToolCall, ToolSpec, Trajectory, Usage, Verdict
from astra.stage import write_records
from tests.test_decontamination import SETTING
from tests.training.tiny import CAPITAL, arena, new_chat, new_tiny

datasets.disable_progress_bars()


def spec(name: str, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return ToolSpec(name=name, description=f"{name} of «it».", parameters=schema)


TIDE = spec("tide_now", port={"type": "string", "enum": ["Lyme", "Hoorn"]})
FARE = spec(
    "fare",
    legs={"type": "array", "items": {"type": "object", "properties": {"km": {"type": "number", "minimum": 0}}}},
    note={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
)


def call(number: int, name: str, arguments: str) -> ToolCall:
    return ToolCall(id=f"call_{number}", function=FunctionCall(name=name, arguments=arguments))


def result(number: int, name: str, content: str, **more: Any) -> Message:
    return Message(role="tool", tool_call_id=f"call_{number}", name=name, content=content, **more)


RICH = (
    Message(role="system", content="Use the tools."),
    Message(role="user", content="Tide at Lyme, and the fare?"),
    Message(
        role="assistant",
        reasoning="Both at once.\n\nThen add.",
        content="I look up both.",
        tool_calls=(
            call(1, "tide_now", '{"port": "Lyme"}'),
            call(2, "fare", '{"legs": [{"km": 1.0}, {}], "note": null, "a": "<é> \\"x\\" & 日本"}'),
        ),
    ),
    result(1, "tide_now", '{"m": 4}', executed_by="emulator"),
    result(2, "fare", "timed out", is_error=True, fault="timeout", executed_by="emulator"),
    Message(role="assistant", tool_calls=(call(3, "fare", '{"legs":[]}'),)),
    result(3, "fare", "12"),
    Message(role="assistant", content="4 m, and 12."),
    Message(role="user", content="Thanks. Once more?"),
    Message(role="assistant", reasoning="No need.", content="It stays at 4 m."),
)
PLAIN = (Message(role="user", content="Hello"), Message(role="assistant", content="Hello to you."))
CONVERSATIONS = [
    Conversation("plain", PLAIN, ()),
    Conversation("rich", taught(RICH), (TIDE, FARE)),
    Conversation("one", taught(RICH[1:2] + RICH[5:8]), (FARE,)),
]


def exported(folder: Path, name: str, conversations: list[Conversation]) -> Path:
    form = FORMS[name]
    write_rows(folder, name, form, [convert(one, form) for one in conversations])
    return folder / form.file


def loaded(path: Path, cache: Path) -> list[dict[str, Any]]:
    """What a trainer gets to see: the file through ``datasets``."""
    kind = "parquet" if path.suffix == ".parquet" else "json"
    return list(datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=str(cache)))


@pytest.mark.parametrize("name", FORMS)
def test_what_the_consumer_s_loader_gives_is_the_conversation_that_went_in(name, tmp_path):
    rows = loaded(exported(tmp_path, name, CONVERSATIONS), tmp_path / "cache")
    again = {one.id: one for one in map(FORMS[name].read, rows)}
    assert set(again) == {one.id for one in CONVERSATIONS}
    for one in CONVERSATIONS:
        assert same(one, again[one.id]), one.id
        assert [tool.parameters for tool in again[one.id].tools] == [tool.parameters for tool in one.tools]


@pytest.mark.parametrize("name", FORMS)
def test_no_key_comes_back_that_did_not_go_in(name, tmp_path):
    """Columns that are padded with other rows' keys change what a template prints."""
    path = exported(tmp_path, name, CONVERSATIONS)
    rows = loaded(path, tmp_path / "cache")
    form = FORMS[name]
    wanted = telling_first([form.write(one) for one in CONVERSATIONS])
    if name == "parquet":
        wanted = [form.write(one) for one in CONVERSATIONS]
    assert [{key: value for key, value in row.items() if value is not None} for row in rows] == wanted


@pytest.mark.parametrize("name", ["trl", "sharegpt", "swift"])
def test_the_order_of_long_files_costs_nothing(name, tmp_path):
    """``datasets`` settles columns by the first 10 MB, where here no tool, call or thought is seen."""
    long = (Message(role="user", content="q" * 4000), Message(role="assistant", content="a" * 4000))
    many = [Conversation(f"plain-{number}", long, ()) for number in range(1600)]
    rows = loaded(exported(tmp_path, name, [*many, *CONVERSATIONS]), tmp_path / "cache")
    again = {one.id: one for one in map(FORMS[name].read, rows)}
    assert len(rows) == len(many) + len(CONVERSATIONS)
    assert all(same(one, again[one.id]) for one in [*many[:3], *CONVERSATIONS])


def test_rows_keep_their_order_but_for_those_that_show_the_columns():
    rows = [{"messages": [{"role": "u"}]}, {"messages": [{"role": "u"}, {"role": "t", "id": 1}]}, {"messages": [], "tools": "[]"}, {"messages": []}]  # fmt: skip
    assert telling_first(rows) == [rows[1], rows[2], rows[0], rows[3]]
    assert telling_first(rows[1:]) == [rows[2], rows[1], rows[3]]


def test_trl_gets_arguments_as_objects_with_their_order_and_letters(tmp_path):
    rows = loaded(exported(tmp_path, "trl", CONVERSATIONS), tmp_path / "cache")
    messages = next(row for row in rows if row["id"] == "rich")["messages"]
    arguments = messages[2]["tool_calls"][1]["function"]["arguments"]
    assert (
        json.dumps(arguments, ensure_ascii=False)
        == '{"legs": [{"km": 1.0}, {}], "note": null, "a": "<é> \\"x\\" & 日本"}'
    )
    assert messages[2]["reasoning_content"] == "Both at once.\n\nThen add."
    assert "reasoning_content" not in messages[7]
    assert "tool_calls" not in messages[7]


def test_trl_gives_tools_as_text_and_none_where_there_are_none():
    assert "tools" not in write_trl(CONVERSATIONS[0])
    assert json.loads(write_trl(CONVERSATIONS[1])["tools"]) == [TIDE.openai(), FARE.openai()]


def test_trl_s_trainer_makes_the_very_ids_and_masks_that_sft_trains_on(tmp_path):
    """From the exported file, through TRL's own trainer, with the tiny policy's tokenizer and template."""
    chat = new_chat()
    path = exported(tmp_path, "trl", CONVERSATIONS)
    dataset = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    config = SFTConfig(
        output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=2, use_cpu=True, bf16=False,
        gradient_checkpointing=False, assistant_only_loss=True, max_length=None, report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = SFTTrainer(new_tiny(chat), args=config, train_dataset=dataset, processing_class=chat.tokenizer)
    ours = {one.id: chat.encode([one.messages], [one.tools])[0] for one in CONVERSATIONS}
    for row, prepared in zip(dataset, trainer.train_dataset, strict=True):
        assert prepared["input_ids"] == ours[row["id"]].ids
        assert [int(label != -100) for label in prepared["labels"]] == ours[row["id"]].mask
    trainer.train()
    losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    assert losses == [] or losses[0] > 0


def test_parquet_keeps_arguments_as_the_text_that_the_model_wrote(tmp_path):
    frame = pd.read_parquet(exported(tmp_path, "parquet", CONVERSATIONS))
    assert list(frame.columns) == ["id", "messages", "tools"]
    calls = json.loads(frame["messages"][1])[5]["tool_calls"]
    assert calls[0]["function"]["arguments"] == '{"legs":[]}'
    assert json.loads(frame["tools"][1])[1]["function"]["parameters"] == FARE.parameters


def test_sharegpt_turns_alternate_as_llama_factory_wants_them(tmp_path):
    row = write_sharegpt(CONVERSATIONS[1])
    assert [turn["from"] for turn in row["conversations"]] == [
        "human", "function_call", "observation", "function_call", "observation", "gpt", "human", "gpt",
    ]  # fmt: skip
    assert row["system"] == "Use the tools."
    assert [tool["name"] for tool in json.loads(row["tools"])] == ["tide_now", "fare"]
    thought, _, calls = row["conversations"][1]["value"].partition("</think>")
    assert thought == "<think>\nBoth at once.\n\nThen add.\n\nI look up both.\n"
    assert [one["name"] for one in json.loads(calls)] == ["tide_now", "fare"]
    assert isinstance(json.loads(row["conversations"][3]["value"]), dict)
    assert row["conversations"][2]["value"] == f'{{"m": 4}}{BETWEEN_RESULTS}timed out'
    exported(tmp_path, "sharegpt", CONVERSATIONS)
    described = json.loads((tmp_path / "dataset_info.json").read_text(encoding="utf-8"))["astra"]
    assert (tmp_path / described["file_name"]).is_file()
    assert set(described["columns"].values()) <= set(row)
    assert {turn["from"] for turn in row["conversations"]} <= set(described["tags"].values())


def test_swift_has_a_message_for_every_call_and_every_result():
    row = FORMS["swift"].write(CONVERSATIONS[1])
    assert [said["role"] for said in row["messages"]] == [
        "system", "user", "assistant", "tool_call", "tool_call", "tool_response", "tool_response", "tool_call",
        "tool_response", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert json.loads(row["messages"][3]["content"]) == {"name": "tide_now", "arguments": {"port": "Lyme"}}
    assert row["messages"][2]["content"] == "<think>\nBoth at once.\n\nThen add.\n</think>\n\nI look up both."


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30)
SAID = WORDS.filter(lambda text: text.strip())


@st.composite
def conversations(draw) -> Conversation:
    messages = [Message(role="system", content=draw(SAID))] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message(role="user", content=draw(SAID)))
        for _ in range(draw(st.integers(0, 2))):
            arguments = st.dictionaries(WORDS, st.recursive(st.none() | st.booleans() | st.integers() | WORDS, st.lists, max_leaves=3), max_size=3)  # fmt: skip
            calls = [
                call(number := number + 1, "fare", json.dumps(draw(arguments))) for _ in range(draw(st.integers(1, 2)))
            ]
            messages.append(Message(role="assistant", reasoning=draw(WORDS) or None, content=draw(WORDS) or None, tool_calls=tuple(calls)))  # fmt: skip
            messages += [
                Message(role="tool", tool_call_id=one.id, name="fare", content=draw(WORDS) or None) for one in calls
            ]
        messages.append(Message(role="assistant", reasoning=draw(WORDS) or None, content=draw(SAID)))
    return Conversation("c", tuple(messages), (FARE,) if draw(st.booleans()) else ())


@settings(max_examples=80, deadline=None)
@given(conversations(), st.sampled_from(sorted(FORMS)))
def test_any_conversation_reads_back_as_itself_or_is_refused(one, name):
    form = FORMS[name]
    marked = any(mark in str(one) for mark in ("think", "tool_response"))
    row = None if marked else convert(one, form)
    assert row is None or same(one, form.read(json.loads(json.dumps(row))))


@pytest.mark.parametrize(
    ("messages", "name", "reason"),
    [
        ((PLAIN[0], Message(role="assistant", tool_calls=(call(1, "fare", "[1]"),))), "trl", "bad_arguments"),
        ((PLAIN[0], Message(role="assistant", tool_calls=(call(1, "fare", "not json"),))), "swift", "bad_arguments"),
        ((PLAIN[0], Message(role="assistant", tool_calls=(call(1, "fare", "null"),))), "parquet", "bad_arguments"),
        ((PLAIN[0], *PLAIN), "sharegpt", "turns_do_not_alternate"),
        ((*PLAIN, PLAIN[0]), "sharegpt", "no_last_answer"),
        ((PLAIN[0], PLAIN[1].model_copy(update={"reasoning": "a </think> b"})), "sharegpt", "thought_holds_mark"),
        (
            (PLAIN[0], PLAIN[1].model_copy(update={"content": "<think>\nx\n</think>\n\ny"})),
            "swift",
            "not_the_same_again",
        ),
        (
            (PLAIN[0], RICH[5], result(3, "fare", f"a{BETWEEN_RESULTS}b"), PLAIN[1]),
            "sharegpt",
            "result_holds_mark",
        ),
    ],
)
def test_what_a_form_cannot_hold_is_refused_with_a_reason(messages, name, reason):
    with pytest.raises(NotExportable) as refused:
        convert(Conversation("c", tuple(messages), ()), FORMS[name])
    assert refused.value.reason == reason


# ---- the command


def trajectory(
    number: int, question: str, stop: str = "answered", arguments: str = '{"country": "Spain"}'
) -> Trajectory:
    messages = (
        Message(role="user", content=question),
        Message(role="assistant", content="I look it up.", tool_calls=(call(1, CAPITAL.spec.name, arguments),)),
        result(1, CAPITAL.spec.name, '{"result": "Madrid"}', executed_by="live"),
        Message(role="assistant", content="It is Madrid."),
    )
    return Trajectory(
        id=f"trajectory-{number}", task_id=f"task-{number}", server_ids=("s",), attempt=0, tools=(CAPITAL.spec,), messages=messages,
        stop=stop, model="m", usage=Usage(calls=2, prompt_tokens=1, completion_tokens=1),  # type: ignore[arg-type]
    )  # fmt: skip


def scorecard(number: int, overall: float) -> Scorecard:
    verdict = Verdict(score=overall, reason="r")
    return Scorecard(
        id=f"scorecard-{number}", trajectory_id=f"trajectory-{number}", dimensions={"QU": verdict}, overall=overall
    )


def lay_out(folder: Path, monkeypatch, **changes: Any) -> None:
    monkeypatch.chdir(folder)
    waived = SETTING | {"waived": SETTING["benchmarks"]}
    sft = {"min_score": 0.7, "decontamination": waived | changes}
    Path("params.yaml").write_text(yaml.safe_dump({"sft": sft}), encoding="utf-8")
    write_records(
        "data/trajectories/trajectories.jsonl",
        [
            trajectory(1, "Which city governs Spain?"),
            trajectory(2, "Where is the seat of Spain?"),
            trajectory(3, "Capital?"),
            trajectory(4, "Capital now?", stop="max_turns"),
            trajectory(5, arena("Peru").question),
            trajectory(6, "Broken?", arguments="not json"),
        ],
    )
    write_records(
        "data/score/scorecards.jsonl", [scorecard(number, 0.6 if number == 2 else 0.9) for number in (1, 2, 4, 5, 6)]
    )
    write_records("data/merge/arenas.jsonl", [arena("Ghana"), arena("Peru", "heldout")])


def reasons(folder: str) -> dict[str, str]:
    lines = (Path(folder) / "rejects.jsonl").read_text(encoding="utf-8").splitlines()
    return {reject["id"][-1]: reject["reason"] for reject in map(json.loads, lines)}


@pytest.mark.parametrize("name", FORMS)
def test_the_command_writes_what_sft_would_imitate_and_says_why_not_the_rest(name, tmp_path, monkeypatch, capsys):
    lay_out(tmp_path, monkeypatch)
    assert command.main(["--format", name, "--out", "out"]) == 0
    assert reasons("out") == {
        "2": "low_score", "3": "not_scored", "4": "unfinished", "5": "heldout_question", "6": "bad_arguments",
    }  # fmt: skip
    manifest = json.loads(Path("out/export.json").read_text(encoding="utf-8"))
    assert (manifest["in"], manifest["out"], manifest["rejected"]) == (6, 1, 5)
    assert manifest["decontamination"]["n_waived"] == len(SETTING["benchmarks"])
    assert "6 in, 1 out, 5 rejected" in capsys.readouterr().err
    rows = loaded(Path("out") / manifest["file"], tmp_path / "cache")
    assert FORMS[name].read(rows[0]).messages == taught(trajectory(1, "Which city governs Spain?").messages)


def test_the_score_and_the_held_out_rule_can_be_set_on_the_command_line(tmp_path, monkeypatch):
    lay_out(tmp_path, monkeypatch)
    assert command.main(["--format", "trl", "--out", "out", "--min-score", "0.5", "--arenas", "none"]) == 0
    assert reasons("out") == {"3": "not_scored", "4": "unfinished", "6": "bad_arguments"}
    assert json.loads(Path("out/export.json").read_text(encoding="utf-8"))["heldout_checked"] is False


def test_a_benchmark_s_question_is_not_exported(tmp_path, monkeypatch):
    from tests.benchmark_fixtures import bfcl, said

    site = bfcl(tmp_path / "site")
    entry = {"id": "simple_1", "question": [said("GOVERNS SPAIN, WHICH CITY?")]}
    with (site / "bfcl_eval/data/BFCL_v9_simple.json").open("a", encoding="utf-8") as out:
        out.write(json.dumps(entry) + "\n")
    lay_out(tmp_path, monkeypatch, paths={"bfcl": str(site)})
    assert command.main(["--format", "trl", "--out", "out", "--min-score", "0.5"]) == 0
    assert reasons("out")["1"] == "benchmark_question_whole"
    assert (
        json.loads(Path("out/decontamination.json").read_text(encoding="utf-8"))["hits"][0]["case_id"]
        == "simple_1:turn 0"
    )


def test_nothing_is_exported_that_was_compared_with_nothing_and_not_waived(tmp_path, monkeypatch, capsys):
    lay_out(tmp_path, monkeypatch, waived=[])
    assert command.main(["--format", "trl", "--out", "out"]) == 2
    assert "not compared with bfcl" in capsys.readouterr().err
    assert not Path("out").exists()


def test_an_export_of_nothing_is_an_error_that_counts_the_reasons(tmp_path, monkeypatch, capsys):
    lay_out(tmp_path, monkeypatch)
    assert command.main(["--format", "trl", "--out", "out", "--min-score", "0.95"]) == 2
    assert "none of 6 trajectories can be exported (low_score 5, not_scored 1)" in capsys.readouterr().err
