"""Rollouts against their limit: episodes with real tools, and the bare forward passes that they cannot do without.

The same episodes are run twice in one process: as RL plays them (sampling, parsing, sandboxed tools, forced results),
and as nothing but the forward passes over the same tokens with the same rows leaving at the same steps. The ratio
says what the loop costs beside the model. Needs models/sft and data/merge (dvc repro sft).

    python -m bench.rollouts
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from transformers import DynamicCache, PreTrainedModel

from astra.chat import Chat
from astra.records import Arena
from astra.sandbox import open_sandbox
from astra.stage import read_records
from astra.training.engines import HFEngine
from astra.training.episodes import Case, Episode, play_cases
from astra.training.policy import load_policy
from astra.training.rollouts import Sampling

EPISODES, REPEATS, MAX_CALLS = 128, 3, 10
SAMPLING = Sampling(temperature=1.0, max_new_tokens=64, max_response_tokens=420, seed=1)


@torch.no_grad()
def forward_only(model: PreTrainedModel, pad: int, episodes: Sequence[Episode]) -> int:
    """The forward passes of these episodes, tokens given; the number of tokens fed."""
    width = max(len(one.prompt) for one in episodes)
    ids = torch.tensor([[pad] * (width - len(one.prompt)) + one.prompt for one in episodes])
    attention = (torch.arange(width) >= torch.tensor([[width - len(one.prompt)] for one in episodes])).long()
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache()
    live = list(range(len(episodes)))
    fed, step = 0, 0
    while True:
        model(input_ids=ids, attention_mask=attention, position_ids=positions, past_key_values=cache,
              use_cache=True, logits_to_keep=1)  # fmt: skip
        keep = [row for row, one in enumerate(live) if len(episodes[one].played.ids) > step + 1]
        if not keep:
            return fed
        if len(keep) < len(live):
            rows = torch.tensor(keep)
            cache.batch_select_indices(rows)
            attention, positions = attention[rows], positions[rows]
            live = [live[row] for row in keep]
        ids = torch.tensor([[episodes[one].played.ids[step]] for one in live])
        attention = torch.cat([attention, attention.new_ones(len(live), 1)], 1)
        positions = positions[:, -1:] + 1
        fed += len(live)
        step += 1


def timed(work: Callable[[], object]) -> float:
    """Median wall seconds over the repeats."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def main() -> None:
    torch.set_num_threads(1)
    chat, model = Chat.load("models/sft"), load_policy("models/sft").eval()
    arenas = [one for one in read_records("data/merge/arenas.jsonl", Arena) if one.split == "heldout"][:EPISODES]
    cases = [Case(one, one.tools) for one in arenas]
    engine = HFEngine(model, chat.end, chat.pad)
    with open_sandbox() as sandbox:

        def play() -> list[Episode]:
            return play_cases(engine, chat, cases, SAMPLING, sandbox, MAX_CALLS)

        episodes = play()  # also warms the tools' remembered results, as in training
        ours = timed(play)
    limit = timed(lambda: forward_only(model, chat.pad, episodes))
    tokens = sum(len(one.played.ids) for one in episodes)
    found = {
        "episodes": len(episodes),
        "tokens": tokens,
        "tokens_per_s": round(tokens / ours),
        "limit_tokens_per_s": round(tokens / limit),
        "of_limit": round(limit / ours, 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
