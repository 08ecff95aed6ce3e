"""Local weights asked like an endpoint: what they are shown, what is read back, and that a kept cache changes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import torch

from astra.benchmarks.models import Draw, Local
from astra.benchmarks.types import Ask, Reply, RunError
from astra.chat import ChatError
from astra.training.local_model import LocalModel, _drawn, _readable
from astra.training.policy import save_policy
from tests.training.tiny import CAPITAL, POPULATION, new_chat, new_tiny

TOOLS = [CAPITAL.spec.openai(), POPULATION.spec.openai()]
QUESTION = {"role": "user", "content": "What is the capital of country Spain?"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    chat = new_chat()
    path = tmp_path_factory.mktemp("model")
    save_policy(new_tiny(chat), chat, path)
    return path


def load(folder, **more: Any) -> LocalModel:
    how = {"transport": "local", "name": str(folder), "max_tokens": 12, "context": 4096} | more
    return LocalModel.load("m", Local.model_validate(how))


def replied(model: LocalModel, *messages: dict[str, Any], turn: int = 0, case: str = "c", **more: Any) -> Reply:
    draw = Draw(seed=1, benchmark="b", case=case, trial=0, turn=turn, **more)
    return asyncio.run(model.ask(Ask(messages=list(messages), tools=TOOLS), draw)).reply


def talk(n: int) -> list[dict[str, Any]]:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "country_capital", "arguments": '{"country": "Spain"}'},
    }
    turns = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"result": "Madrid"}'},
        {"role": "assistant", "content": "The answer is Madrid."},
        QUESTION,
    ]
    return [QUESTION, *(turns * 3)[:n]]


def test_a_conversation_that_grows_shrinks_or_changes_gets_the_reply_that_it_gets_alone(folder):
    kept = load(folder)
    for turn, n in enumerate((0, 2, 4, 8, 2, 6)):
        fresh = load(folder)
        assert replied(kept, *talk(n), turn=turn) == replied(fresh, *talk(n), turn=turn)
    assert list(kept._runs) == ["b:c:0"]


def test_runs_beside_each_other_do_not_mix(folder):
    kept = load(folder)
    for case in ("a", "b", "c", "d", "e", "a"):
        other = [{"role": "user", "content": f"What is the {case}?"}]
        assert replied(kept, *other, case=case) == replied(load(folder), *other, case=case)
    assert len(kept._runs) == 4  # and no more lie in memory


def test_only_what_is_new_is_computed(folder):
    model = load(folder)
    fed: list[int] = []
    forward = model._forward
    model._forward = lambda ids, cache: (fed.append(len(ids)), forward(ids, cache))[1]  # type: ignore[method-assign]
    replied(model, *talk(0))
    first = fed[0]
    fed.clear()
    replied(model, *talk(4), turn=1)
    assert fed[0] < first


def test_a_prompt_that_leaves_no_room_for_a_reply_is_the_model_s_failure(folder):
    model = load(folder, context=256, max_tokens=8)
    assert replied(model, *talk(0)).stop != "context"
    assert replied(model, *(talk(12) * 3)).stop == "context"
    assert model.usage()["calls"] == 1


def test_a_reply_without_its_end_is_cut_and_its_calls_are_not_read(folder):
    reply = replied(load(folder), *talk(0))
    assert (reply.stop, reply.tool_calls) == ("length", [])
    assert reply.content


def test_a_reply_that_ends_is_read_as_the_project_reads_calls(folder):
    model = load(folder)
    text = '<tool_call>\n{"name": "country_capital", "arguments": {"country": "Peru"}}\n</tool_call>'
    ids = [*model.chat.tokenizer(text, add_special_tokens=False)["input_ids"], model.chat.end]
    reply = model._reply(ids, n_calls=3)
    assert reply.stop == "tool_calls"
    assert (reply.tool_calls[0].id, reply.tool_calls[0].name) == ("call_4", "country_capital")
    assert json.loads(reply.tool_calls[0].arguments) == {"country": "Peru"}
    broken = model._reply(
        [*model.chat.tokenizer("<tool_call>{no}", add_special_tokens=False)["input_ids"], model.chat.end], 0
    )
    assert (broken.tool_calls[0].name, broken.tool_calls[0].arguments) == ("", "{no}")


def test_sampling_is_reproducible_and_differs_by_trial(folder):
    model = load(folder)
    hot = [replied(model, *talk(0), case=case, temperature=1.5) for case in "abab"]
    assert hot[:2] == hot[2:]
    assert hot[0] != hot[1]


def test_calls_without_an_object_of_arguments_are_shown_as_the_text_they_were(folder):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
    shown = _readable({"role": "assistant", "content": "Wait.", "tool_calls": [call]})
    assert (shown.content, shown.tool_calls) == ('Wait.\n{"a": ', ())
    assert replied(load(folder), QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, QUESTION)


def test_a_conversation_that_the_template_refuses_is_no_score(folder):
    model = load(folder)
    model.chat.tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(RunError, match="no system role"):
        replied(model, QUESTION)


def test_other_weights_are_another_model(folder, tmp_path):
    chat = new_chat()
    save_policy(new_tiny(chat, 1), chat, tmp_path / "model")
    one, other = load(folder).identity, load(tmp_path / "model").identity
    assert one["content"] != other["content"]
    assert one == load(folder).identity


def test_top_p_leaves_the_likeliest_alone():
    logits = torch.log(torch.tensor([0.6, 0.3, 0.1]))
    drawn = {_drawn(logits, 1.0, 0.5, torch.Generator().manual_seed(n)) for n in range(50)}
    assert drawn == {0}
    both = {_drawn(logits, 1.0, 0.7, torch.Generator().manual_seed(n)) for n in range(50)}
    assert both == {0, 1}
    assert _drawn(logits, 0.0, None, torch.Generator()) == 0


def test_a_model_that_is_none_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ChatError, match="cannot be loaded"):
        load(tmp_path)
