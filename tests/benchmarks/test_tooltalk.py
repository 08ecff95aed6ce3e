"""ToolTalk through a worker and the package's own executor, with scripted models."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from astra.benchmarks.process import open_worker
from astra.benchmarks.registry import BENCHMARKS
from astra.benchmarks.types import Ask, BenchmarkUnavailable, Reply
from astra.benchmarks.worker.tooltalk import MAX_REPLIES, word_overlap
from tests.benchmarks.scripted import BROKEN, Model, Script, bad_json, calls, misspelt, played, text, verdicts
from tests.benchmarks.wheels import environments

BENCHMARK = BENCHMARKS["tooltalk_full"]
FOLDERS = {"full": "tooltalk", "easy": "easy"}


@pytest.fixture(scope="module")
def worker():
    with open_worker(BENCHMARK, environments("tooltalk")) as opened:
        yield opened


def names(worker) -> list[str]:
    return [one.id for one in worker.cases()]


def conversation(case: str) -> dict[str, Any]:
    category, name = case.split("/")
    file = environments("tooltalk") / "tooltalk/tooltalk/data" / FOLDERS[category] / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))


def gold(case: str, at_once: bool = False, change: Callable[[Any], Any] = lambda arguments: arguments) -> Model:
    return Script(true_replies(case, at_once, change))


def true_replies(
    case: str, at_once: bool = False, change: Callable[[Any], Any] = lambda arguments: arguments
) -> list[Reply]:
    """The true calls of every turn, one by one or in one reply, and then what the script says."""
    replies: list[Reply] = []
    for turn in conversation(case)["conversation"]:
        if turn["role"] == "assistant":
            made = [(one["request"]["api_name"], one["request"]["parameters"]) for one in turn.get("apis", [])]
            told = [(name, change({k: v for k, v in given.items() if k != "session_token"})) for name, given in made]
            replies += [calls(*told)] if at_once and told else [calls(one) for one in told]
            replies.append(text(turn["text"]))
    return replies


def solved(found) -> int:
    return sum(one.scores["success"] == 1.0 for one in found.values())


def test_there_are_50_conversations_and_28_easy_ones_and_the_version_tells_how_texts_are_compared(worker):
    categories = [one.category for one in worker.cases()]
    assert (categories.count("full"), categories.count("easy")) == (50, 28)
    assert worker.version == "nvidia-tooltalk 26.3, texts by word overlap"


@pytest.mark.parametrize("at_once", [False, True])
def test_the_true_calls_succeed_in_all_conversations(worker, at_once):
    found = verdicts(worker, names(worker), lambda case: (gold(case, at_once), None))
    assert (len(found), solved(found)) == (78, 78)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_model_succeeds_in_none_and_is_no_error(worker, broken):
    chosen = names(worker)[::6]
    found = verdicts(worker, chosen, lambda case: (BROKEN[broken], None))
    assert solved(found) == 0


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_model_succeeds_in_no_conversation(worker, broken):
    found = verdicts(worker, names(worker), lambda case: (BROKEN[broken], None))
    assert (len(found), solved(found)) == (78, 0)


def test_wrong_arguments_succeed_only_where_the_true_calls_take_none(worker):
    found = verdicts(worker, names(worker), lambda case: (gold(case, change=misspelt), None))
    without = {
        case
        for case in found
        if not any(set(one["request"]["parameters"]) - {"session_token"} for one in true_calls(case))
    }
    assert {case for case, verdict in found.items() if verdict.scores["success"]} <= without
    assert len(without) <= 4


def true_calls(case: str) -> list[dict[str, Any]]:
    return [one for turn in conversation(case)["conversation"] for one in turn.get("apis", [])]


def test_a_right_call_beside_a_wrong_action_is_no_success(worker):
    case = "easy/AddAlarm-easy"
    agent = Script([calls(("AddAlarm", {"time": "18:30:00"}), ("AddAlarm", {"time": "07:00:00"})), text("Done.")])
    with worker.start(case) as run:
        verdict = played(run, agent)
    assert verdict.scores == {"success": 0.0}
    assert verdict.note == "1 of 1 calls, 1 bad actions"


def test_requests_hold_the_true_history_and_the_turns_own_calls(worker):
    case = "full/" + sorted(one.split("/")[1] for one in names(worker) if one.startswith("full/"))[0]
    with worker.start(case) as run:
        first = run.ask
        assert [one["role"] for one in first.messages] == ["system", "user"]
        assert len(first.tools) == 28
        assert all("required" not in one["function"] for one in first.tools)
        assert first.tools[0]["function"]["parameters"]["required"]
        run.reply(bad_json(first))
        assert [one["role"] for one in run.ask.messages] == ["system", "user", "assistant", "tool"]
        assert json.loads(run.ask.messages[-1]["content"]) == {
            "response": None,
            "exception": "Failed to parse API call",
        }
        run.reply(text("I'd rather not."))
        turns = conversation(case)["conversation"]
        said = [one["content"] for one in run.ask.messages if one["role"] == "assistant" and one["content"]]
        assert said == [turns[1]["text"]]


def test_a_model_that_never_stops_calling_ends_the_turn_not_the_worker(worker):
    def search(ask: Ask) -> Reply:
        return calls(("QueryUser", {"username": "nobody"}))

    with worker.start("easy/AddAlarm-easy") as run:
        verdict = played(run, search)
    assert verdict.n_steps == MAX_REPLIES
    assert verdict.scores == {"success": 0.0}


@pytest.mark.parametrize(
    "arguments",
    ['{"to": 5, "subject": null, "body": []}', '{"to": [[]], "subject": "x", "body": "y"}', '{"time": {"a": 1}}'],
)
def test_a_call_of_any_shape_is_compared_without_an_error(worker, arguments):
    tools = ("SendEmail", "AddAlarm", "SendMessage", "AddReminder", "QueryCalendar", "SearchInbox", "GetReminders")
    for case in names(worker)[:6]:
        with worker.start(case) as run:
            agent = Script([calls(*((one, arguments) for one in tools)), text("Done.")])
            assert played(run, agent).scores == {"success": 0.0}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Meet at noon", "meet at NOON!", 1.0),
        ("one two three four", "one two three five", 0.75),
        ("a", "b", 0.0),
        ("", "", 1.0),
        ("", "a", 0.0),
        (None, "a", 0.0),
        (["a"], "a", 0.0),
        ("…", "…", 1.0),
        ("…", "!", 0.0),
        ("very very good", "very good", 0.8),
    ],
)
def test_texts_are_compared_by_the_words_in_common(one, other, expected):
    assert word_overlap(one, other) == pytest.approx(expected)
    assert word_overlap(other, one) == pytest.approx(expected)


@pytest.mark.slow
def test_texts_are_compared_by_an_encoder_where_a_folder_with_one_is_named(tmp_path):
    from transformers import DistilBertConfig, DistilBertModel

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    DistilBertModel(
        DistilBertConfig(vocab_size=len(words), dim=16, n_heads=2, n_layers=1, hidden_dim=16)
    ).save_pretrained(tmp_path)
    benchmark = dataclasses.replace(BENCHMARK, options={"encoder": str(tmp_path)})
    with open_worker(benchmark, environments("tooltalk")) as opened:
        assert opened.version == f"nvidia-tooltalk 26.3, texts by DistilBERT in {tmp_path.name}"
        case = "easy/SendMessage-easy"
        with opened.start(case) as run:
            assert played(run, gold(case)).scores == {"success": 1.0}


def test_an_unknown_option_is_refused():
    benchmark = dataclasses.replace(BENCHMARK, options={"model": "x"})
    with pytest.raises(BenchmarkUnavailable, match="option encoder; got model"):
        open_worker(benchmark, environments("tooltalk"))
