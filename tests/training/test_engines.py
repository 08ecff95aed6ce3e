"""The engines beside their servers: what goes over the wire, and what happens when the machinery is not there."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from astra.training.engines import Serving, VLLMEngine, open_engine
from astra.training.engines.colocated import ColocatedEngine
from astra.training.engines.vllm import ADDRESS, Server
from astra.training.rollouts import EngineMissing, Sampling
from tests.training.tiny import new_chat, new_tiny
from tests.training.vllm_double import FakeVLLM, choice

END = 6
SERVING = Serving(place="server", sync="folder", exchange="/nowhere", concurrency=4, timeout_s=5, attempts=2,
                  memory_share=0.3, max_length=256, max_gap=0.2)  # fmt: skip


def engine_of(fake, concurrency=4, attempts=1, exchange=Path("/nowhere")) -> VLLMEngine:
    return VLLMEngine(Server(fake.root, 10, attempts), END, concurrency, "folder", exchange)


def sampling(**changes) -> Sampling:
    return Sampling(**{"temperature": 1.0, "max_new_tokens": 8, "max_response_tokens": 40, "seed": 3, **changes})


class Ferry:
    """HC-064: the first reply is ``fer ry <end>``, which a tokenizer would merge; the second ``ferry <end>``."""

    def __call__(self, body):
        return choice([1, 2, END] if len(body["prompt"]) == 2 else [3, END])


def tool_then_done(turns):
    return [[4, 5, END] if turn.ids == [1, 2, END] else "answered" for turn in turns]


def test_sampled_ids_are_carried_through_and_only_results_are_tokenised():
    with FakeVLLM(Ferry()) as fake:
        (played,) = engine_of(fake).play([[9, 9]], tool_then_done, sampling())
    assert played.ids == [1, 2, END, 4, 5, END, 3, END]
    assert played.mask == [1, 1, 1, 0, 0, 0, 1, 1]
    assert played.logprobs == [-0.5] * 3 + [0.0] * 3 + [-0.5] * 2
    assert played.stop == "answered"
    asked = [body for path, body in fake.asked if path == "/v1/completions"]
    assert [body["prompt"] for body in asked] == [[9, 9], [9, 9, 1, 2, END, 4, 5, END]]
    assert all(body["return_token_ids"] and body["model"] == "policy" for body in asked)


def test_a_reply_without_ids_is_refused_not_tokenised_again():
    told = pytest.raises(EngineMissing, match="never tokenised again")
    with FakeVLLM(lambda body: {"text": "ferry", "logprobs": {"token_logprobs": [-0.5]}}) as fake, told:
        engine_of(fake).play([[9, 9]], tool_then_done, sampling())


def test_a_cut_reply_ends_only_its_own_episode():
    with FakeVLLM(lambda body: choice([1] * 8) if body["prompt"][0] == 7 else Ferry()(body)) as fake:
        cut, whole = engine_of(fake).play([[7, 7], [9, 9]], tool_then_done, sampling())
    assert (cut.stop, len(cut.ids)) == ("truncated", 8)
    assert whole.stop == "answered"


def test_no_reply_is_asked_to_be_longer_than_the_room_that_is_left():
    with FakeVLLM(Ferry()) as fake:
        engine_of(fake).play([[9, 9]], tool_then_done, sampling(max_response_tokens=10))
    assert [body["max_tokens"] for path, body in fake.asked if path == "/v1/completions"] == [8, 4]


def test_results_that_do_not_fit_end_the_episode():
    with FakeVLLM(Ferry()) as fake:
        (played,) = engine_of(fake).play([[9, 9]], tool_then_done, sampling(max_response_tokens=6))
    assert (played.ids, played.stop) == ([1, 2, END], "truncated")


def test_episodes_are_played_side_by_side_and_come_out_in_order():
    def slow(body):
        time.sleep(0.05)
        return choice([body["prompt"][0], END])

    with FakeVLLM(slow) as fake:
        played = engine_of(fake, concurrency=8).play([[row, 0] for row in range(8)], lambda t: ["answered"], sampling())
    assert [one.ids[0] for one in played] == list(range(8))
    assert fake.most > 1


def test_a_request_that_fails_for_good_takes_its_episode_out_and_says_what_was_said():
    with FakeVLLM(lambda body: (503, {"error": "overloaded"}) if body["prompt"][0] == 7 else Ferry()(body)) as fake:
        lost, whole = engine_of(fake, attempts=2).play([[7, 7], [9, 9]], tool_then_done, sampling())
    assert lost.stop == "failed"
    assert "HTTP 503" in lost.failure
    assert "after 2 tries" in lost.failure
    assert whole.stop == "answered"


def test_a_request_that_works_the_second_time_loses_nothing():
    tries = []

    def flaky(body):
        tries.append(1)
        return (503, None) if len(tries) == 1 else choice([3, END])

    with FakeVLLM(flaky) as fake:
        (played,) = engine_of(fake, attempts=2).play([[9, 9]], tool_then_done, sampling())
    assert played.stop == "answered"


def test_what_the_server_refuses_is_a_fault_of_the_settings_not_a_lost_episode():
    told = pytest.raises(EngineMissing, match=r"maximum context length.*--max-model-len")
    with FakeVLLM(lambda body: (400, {"error": "maximum context length"})) as fake, told:
        engine_of(fake).play([[9, 9]], tool_then_done, sampling())


def test_without_an_address_nothing_is_played_and_the_message_says_how_to_start_a_server(monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    with pytest.raises(EngineMissing, match=r"needs a vLLM server.*api_server.*ASTRA_ROLLOUT_BASE_URL"):
        open_engine("vllm", SERVING, Path("models/sft"), SimpleNamespace(end=END, pad=0))


def test_an_address_where_nobody_listens_is_named(monkeypatch):
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9/v1")
    engine = open_engine("vllm", SERVING, Path("models/sft"), SimpleNamespace(end=END, pad=0))
    with pytest.raises(EngineMissing, match="http://127.0.0.1:9: no vLLM server answers there"):
        engine.play([[9, 9]], tool_then_done, sampling())


def test_another_temperature_needs_log_probabilities_after_it():
    told = pytest.raises(EngineMissing, match="--logprobs-mode processed_logprobs")
    with FakeVLLM(Ferry(), logprobs_mode="raw_logprobs") as fake, told:
        engine_of(fake).play([[9, 9]], tool_then_done, sampling(temperature=0.7))


def test_colocated_vllm_that_is_not_installed_is_named():
    with pytest.raises(EngineMissing, match="needs vLLM in this environment"):
        ColocatedEngine(END, 0.3, 256)


def trainer_with(model, device: str):
    accelerator = SimpleNamespace(
        is_main_process=True, device=torch.device(device), get_state_dict=lambda wrapped: wrapped.state_dict(),
        unwrap_model=lambda one: one,
    )  # fmt: skip
    return SimpleNamespace(
        accelerator=accelerator, model=model, model_wrapped=model, state=SimpleNamespace(global_step=4)
    )


def test_weights_go_through_the_folder_and_the_server_is_told_where(tmp_path):
    model = new_tiny(new_chat())
    found = {}

    with FakeVLLM(Ferry()) as fake:
        handle = fake.handle

        def looking(path, body):
            if path == "/collective_rpc":
                found["files"] = sorted(one.name for one in Path(body["kwargs"]["weights_path"]).iterdir())
            return handle(path, body)

        fake.handle = looking
        engine_of(fake, exchange=tmp_path).sync(trainer_with(model, "meta"))
    assert [path for path, _ in fake.asked] == ["/collective_rpc", "/reset_prefix_cache"]
    assert fake.asked[0][1]["method"] == "reload_weights"
    assert "model.safetensors" in found["files"]
    assert list(tmp_path.iterdir()) == []  # nothing is left in memory


@pytest.mark.parametrize(("trainer", "server"), [("cpu", "cuda"), ("meta", "cpu")])
def test_weights_are_not_brought_to_a_server_on_a_cpu_which_would_sample_wrongly(tmp_path, trainer, server):
    with (
        FakeVLLM(Ferry(), device=server) as fake,
        pytest.raises(EngineMissing, match="set rl.engine: hf|Set rl.engine"),
    ):
        engine_of(fake, exchange=tmp_path).sync(trainer_with(new_tiny(new_chat()), trainer))
