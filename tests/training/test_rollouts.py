"""Batched episodes: token in, token out (HC-064)."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from astra.training.engines.decoding import decode_without_copies, roomy_cache
from astra.training.engines.hf import HFEngine, _draw
from astra.training.rollouts import Sampling
from tests.training.tiny import new_chat, new_tiny

PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [14]]


@pytest.fixture(scope="module")
def engine() -> HFEngine:
    chat = new_chat()
    return HFEngine(new_tiny(chat).eval(), chat.end, chat.pad)


def once(turns):
    return ["answered" for _ in turns]


def greedy(**changes) -> Sampling:
    return Sampling(**{"temperature": 0.0, "max_new_tokens": 12, "max_response_tokens": 60, "seed": 1, **changes})


class Results:
    """Feeds two forced tokens after each of the first turns, and keeps what it was given."""

    def __init__(self, turns: int) -> None:
        self.left = {}
        self.turns = turns
        self.seen: list[tuple[int, list[int]]] = []

    def __call__(self, turns):
        answers = []
        for turn in turns:
            self.seen.append((turn.episode, list(turn.ids)))
            done = self.left.get(turn.episode, 0)
            self.left[turn.episode] = done + 1
            answers.append("answered" if done >= self.turns else [3, 4])
        return answers


class Ender:
    """A model that ends its turn whenever ``n`` sampled tokens stand behind the last forced or prompt token."""

    def __init__(self, model, end: int) -> None:
        self.model = model
        self.config = model.config
        self.set_attn_implementation = model.set_attn_implementation
        self.end = end
        self.steps = 0

    def parameters(self):
        return self.model.parameters()

    def __call__(self, **inputs):
        out = self.model(**inputs)
        self.steps += 1
        if self.steps % 4 == 0:
            out.logits[:, -1, self.end] = 1e4
        return out


def test_greedy_episodes_are_what_generate_gives_whatever_the_padding(engine):
    played = engine.play(PROMPTS, once, greedy())
    for prompt, one in zip(PROMPTS, played, strict=True):
        alone = engine.model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=engine.end, pad_token_id=engine.pad,
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        )[0, len(prompt) :].tolist()  # fmt: skip
        assert one.ids == alone


def check_log_probabilities(engine, prompt, one) -> None:
    """An episode's log-probabilities are those of one forward pass over all of it."""
    whole = torch.tensor([prompt + one.ids])
    logprobs = engine.model(whole).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
    for place, (token, sampled, logprob) in enumerate(zip(one.ids, one.mask, one.logprobs, strict=True)):
        if sampled and token != engine.end:  # the end is forced on by the double
            assert logprobs[place, token].item() == pytest.approx(logprob, abs=2e-4)
        if not sampled:
            assert logprob == 0.0


def test_log_probabilities_are_those_of_a_plain_forward_pass(engine):
    chatty = HFEngine(Ender(engine.model, engine.end), engine.end, engine.pad)
    results = Results(2)
    played = chatty.play(PROMPTS, results, greedy(temperature=1.0, seed=5))
    for prompt, one in zip(PROMPTS, played, strict=True):
        assert 0 in one.mask
        check_log_probabilities(engine, prompt, one)


def test_what_was_sampled_is_kept_and_results_are_marked_as_not_sampled(engine):
    chatty = HFEngine(Ender(engine.model, engine.end), engine.end, engine.pad)
    results = Results(1)
    played = chatty.play(PROMPTS[:1], results, greedy())
    (_, first), (_, second) = results.seen
    assert played[0].ids == [*first, 3, 4, *second]
    assert played[0].mask == [1] * len(first) + [0, 0] + [1] * len(second)
    assert played[0].stop == "answered"


def test_a_reply_that_is_cut_is_not_handed_over(engine):
    results = Results(0)
    played = engine.play(PROMPTS, results, greedy(max_new_tokens=2))
    cut = [one for one in played if engine.end not in one.ids]
    assert cut
    assert len(results.seen) == len(played) - len(cut)
    assert all(one.stop == "truncated" and len(one.ids) == 2 for one in cut)


def test_an_episode_stops_at_its_token_budget(engine):
    chatty = HFEngine(Ender(engine.model, engine.end), engine.end, engine.pad)
    played = chatty.play(PROMPTS[:1], Results(100), greedy(max_response_tokens=15))
    assert len(played[0].ids) <= 15
    assert played[0].stop == "truncated"


def test_the_same_seed_gives_the_same_episodes_and_another_seed_others(engine):
    def play(seed):
        return [one.ids for one in engine.play(PROMPTS, once, greedy(temperature=1.0, seed=seed))]

    assert play(3) == play(3)
    assert play(3) != play(4)


def test_sampled_tokens_follow_the_distribution():
    logits = torch.tensor([0.5, 0.3, 0.2, 0.0]).log().repeat(20_000, 1)
    tokens, logprobs = _draw(logits, 1.0, torch.Generator().manual_seed(0))
    shares = torch.bincount(torch.tensor(tokens), minlength=4) / len(tokens)
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.3, 0.2, 0.0]), atol=0.015, rtol=0)
    assert logprobs[0] == pytest.approx(float(logits[0, tokens[0]]), abs=1e-6)


def test_a_temperature_sharpens_and_its_log_probabilities_with_it():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().repeat(20_000, 1)
    tokens, logprobs = _draw(logits, 0.5, torch.Generator().manual_seed(0))
    assert tokens.count(0) / len(tokens) == pytest.approx(0.25 / 0.38, abs=0.015)
    assert logprobs[tokens.index(0)] == pytest.approx(math.log(0.25 / 0.38), abs=1e-5)


class Reader(Ender):
    """A model that never ends a turn of its own and keeps how many rows each pass had."""

    def __init__(self, model, end: int) -> None:
        super().__init__(model, end)
        self.widths: list[tuple[int, int]] = []

    def __call__(self, **inputs):
        self.widths.append(tuple(inputs["input_ids"].shape))
        return super().__call__(**inputs)


def test_prompts_of_a_group_are_read_once_and_its_episodes_still_differ(engine):
    reader = Reader(engine.model, engine.end)
    grouped = [PROMPTS[0]] * 4 + [PROMPTS[1]] * 4
    played = HFEngine(reader, engine.end, engine.pad).play(grouped, Results(1), greedy(temperature=1.0, seed=2))
    assert reader.widths[0][0] == 2
    assert reader.widths[1] == (8, 1)
    assert len({tuple(one.ids) for one in played[:4]}) > 1
    for prompt, one in zip(grouped, played, strict=True):
        check_log_probabilities(engine, prompt, one)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_decoding_without_copies_gives_the_logits_of_transformers_own_cache(kv_heads):
    config = Qwen3Config(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
                         num_key_value_heads=kv_heads, intermediate_size=32, tie_word_embeddings=True)  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval()
    ids = torch.randint(0, 64, (3, 150))
    padding = torch.ones_like(ids)
    padding[1, :7] = 0
    kept, seen = torch.tensor([2, 1]), []
    for setting in (lambda _: DynamicCache, lambda policy: decode_without_copies(policy) and roomy_cache):
        cache, logits = setting(model)(), []
        with torch.no_grad():
            for at in [*range(5, 150)]:
                rows = torch.arange(3) if at < 60 else kept
                if at == 60:
                    cache.batch_select_indices(kept)
                fed = ids[rows, :5] if at == 5 else ids[rows, at - 1 : at]
                mask = padding[rows, :at]
                positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -fed.shape[1] :]
                out = model(input_ids=fed, attention_mask=mask, position_ids=positions, past_key_values=cache)
                logits.append(out.logits[:, -1])
        seen.append(logits)
    for plain, ours in zip(*seen, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)


def test_a_model_with_layers_of_another_kind_keeps_its_own_cache():
    config = Qwen3Config(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
                         num_key_value_heads=2, intermediate_size=32, use_sliding_window=True, sliding_window=8,
                         max_window_layers=1)  # fmt: skip
    model = Qwen3ForCausalLM(config)
    assert not decode_without_copies(model)
    assert model.config._attn_implementation == "sdpa"
