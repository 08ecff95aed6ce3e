"""Rollout and update, beside TRL's own tool loop and beside the bare model.

Three things, all in one process on one torch thread, with the policy, limits and GRPO settings of params.yaml (sizes
apart). Needs models/sft and data/merge (dvc repro sft).

1. Tokens that the policy wrote and was updated on, a second of rollout and update: our loop and TRL's
   (``environment_factory``), run alternately from the same weights. Both get the same arenas, prompts of the same ids
   (this is checked), the same tools, the same number of rollouts, tokens a turn and tokens an episode. Tools are run
   the same way on both sides, by ``ArenaWorld`` in a sandbox, which answers a repeated call from memory.
   What differs: TRL says an unknown tool in other words; its limit counts turns with calls, ours calls; a batch's
   groups without spread are trained on by TRL with advantage 0, and masked by us; TRL scores every position of an
   update, and we on a CPU those that were written (``lm_head``); ours plays on a replica of the policy, as it must
   where ranks share the weights, and TRL on the policy itself.
2. The share of that time outside model calls (forward, backward, optimiser), by parts. A part's time is without that of
   the parts inside it, so they add up; the clock runs from the second update's beginning to the end of training.
   Checkpoints are not among them: none are written.
3. Episodes as RL plays them, and nothing but the forward passes over the same tokens with the same rows leaving at the
   same steps.

Rates are by the seconds of this process's CPU, so that a busy machine does not count; on an idle one those on the wall,
which are there too, differ from them only by what the sandbox is waited for.

    python -m bench.rollouts
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from transformers import DynamicCache, PreTrainedModel, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_template
from trl.trainer import grpo_trainer

from astra.chat import Chat
from astra.environments.arena import ArenaWorld
from astra.records import Arena, Section, ToolSpec
from astra.rewards import REWARDS
from astra.sandbox import Sandbox, open_sandbox
from astra.stage import load_params, read_records
from astra.training.distractors import Distractors, Mixing
from astra.training.engines import HFEngine, hf
from astra.training.episodes import Case, Episode, Limits, open_prompt, play_cases
from astra.training.filling import Fill, Filler, Filling, Scored, score
from astra.training.policy import load_policy
from astra.training.reinforcement import Player, Practice, Reinforcing, reinforce
from astra.training.rollouts import Played, Respond, Sampling
from astra.training.stream import deal

POLICY, ARENAS = "models/sft", "data/merge/arenas.jsonl"
GROUPS, UPDATES, RUNS = 4, 4, 3  # groups an update; updates a run, the first of which is not timed
MODEL_CALLS = ("forward of rollouts", "forward of updates", "backward", "optimiser")
EPISODES, REPEATS = 64, 3


class Setting(NamedTuple):
    """What both sides get."""

    chat: Chat
    cases: list[Case]
    limits: Limits
    grpo: Reinforcing
    sandbox: Sandbox

    @property
    def rows(self) -> int:
        return self.grpo.groups * self.grpo.group


class Found(NamedTuple):
    """One run. ``useful`` are the tokens of groups whose rewards differ: the others move nothing."""

    tokens: int
    useful: int
    wall: dict[str, float]
    cpu: dict[str, float]


# ---------------------------------------------------------------- the clock


class Watch:
    """Seconds by part, without those of the parts inside: on the wall, and of this process's CPU."""

    def __init__(self) -> None:
        self.wall: Counter[str] = Counter()
        self.cpu: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._open: list[str] = []
        self._since = (0.0, 0.0)

    def start(self) -> None:
        assert not self._open, self._open
        for one in (self.wall, self.cpu, self.tokens):
            one.clear()
        self._open = ["the trainer's loop"]
        self._since = _now()

    def stop(self) -> None:
        self._mark()
        assert len(self._open) == 1, self._open
        self._open = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def enter(self, name: str) -> None:
        if self._open:
            self._mark()
            self._open.append(name)

    def leave(self) -> None:
        if self._open:
            self._mark()
            self._open.pop()

    def around(self, owner: Any, **parts: str) -> None:
        """Have calls of these functions of a module, class or object timed as parts."""
        for name, part in parts.items():
            setattr(owner, name, self._timed(getattr(owner, name), part))

    def _timed(self, call: Callable[..., Any], part: str) -> Callable[..., Any]:
        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                return call(*args, **kwargs)

        return timed

    def _mark(self) -> None:
        wall, cpu = _now()
        if self._open:
            self.wall[self._open[-1]] += wall - self._since[0]
            self.cpu[self._open[-1]] += cpu - self._since[1]
        self._since = wall, cpu

    def found(self, tokens: int) -> Found:
        """What was seen between start and stop; ``tokens`` the policy wrote."""
        return Found(tokens, self.tokens["useful"], dict(self.wall), dict(self.cpu))


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def watch_model(watch: Watch, model: PreTrainedModel) -> None:
    """Have the forward passes timed: those with gradients are the update's."""

    def before(*_: Any) -> None:
        watch.enter("forward of updates" if torch.is_grad_enabled() else "forward of rollouts")

    def after(*_: Any) -> None:
        watch.leave()

    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)


def watch_trainer(watch: Watch, trainer: Any) -> None:
    """Have a trainer's part timed and its tokens counted."""
    watch_model(watch, trainer.model)
    watch.around(trainer.accelerator, backward="backward", clip_grad_norm_="optimiser")
    watch.around(trainer.optimizer, step="optimiser")
    counted = trainer.compute_loss

    def compute_loss(model: Any, inputs: dict[str, torch.Tensor], *rest: Any, **more: Any) -> Any:
        written = inputs["completion_mask"] * inputs["tool_mask"]  # (B, T)
        differs = inputs["advantages"].reshape(len(written), -1)[:, :1].abs() > 1e-3
        watch.tokens["written"] += int(written.sum())
        watch.tokens["useful"] += int((written * differs).sum())
        return counted(model, inputs, *rest, **more)

    trainer.compute_loss = compute_loss
    watch.around(
        trainer,
        compute_loss="loss",
        _tokenize_prompts="prompts and results",
        _get_tool_suffix_ids="prompts and results",
        _generate_single_turn="sampling",
        _calculate_rewards="rewards",
        _generate_and_score_completions="batch for TRL",
    )


class Clock(TrainerCallback):  # type: ignore[misc]
    """Starts the watch when the second update begins, and stops it when the last one has ended."""

    def __init__(self, watch: Watch, trainer: Any) -> None:
        self.watch = watch
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 1:
            watch_trainer(self.watch, self.trainer)
            self.watch.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.watch.stop()


# ---------------------------------------------------------------- ours


class Clocked(HFEngine):
    """The engine hf with a clock that it gives to the trainer."""

    def __init__(self, chat: Chat, watch: Watch) -> None:
        super().__init__(load_policy(POLICY).eval(), chat.end, chat.pad)
        self.watch = watch
        self.known: Any = None
        watch_model(watch, self.model)

    def sync(self, trainer: Any) -> None:
        if self.known is None:
            self.known = trainer
            trainer.add_callback(Clock(self.watch, trainer))
        with self.watch.part("weights"):
            super().sync(trainer)

    def play(self, prompts: Sequence[Sequence[int]], respond: Respond, sampling: Sampling) -> list[Played]:
        with self.watch.part("steps of episodes"):
            return super().play(prompts, respond, sampling)


class Listed:
    """Cases in their order."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        self.drawn = 0

    def __next__(self) -> Case:
        self.drawn += 1
        return self.cases[self.drawn - 1]

    def state(self) -> object:
        return self.drawn

    def restore(self, state: Any) -> None:
        self.drawn = state


def ours(setting: Setting, watch: Watch, seed: int) -> Found:
    """A run of our loop: every sampled group enters the update, as with filling off."""
    limits, sizes = setting.limits, setting.grpo
    engine = Clocked(setting.chat, watch)
    written: list[int] = []

    def play(update: int, rounds: int) -> Any:
        sampling = Sampling(sizes.temperature, limits.max_new_tokens, limits.max_response_tokens, 1000 * seed + update)

        def plays(cases: Sequence[Case]) -> list[Scored]:
            with watch.part("rewards"):
                episodes = play_cases(engine, setting.chat, cases, sampling, setting.sandbox, limits.max_calls)
                return [score(one, REWARDS["f1"]) for one in episodes]

        return plays

    def note(fill: Fill) -> dict[str, float]:
        written.append(sum(sum(one.episode.played.mask) for one in fill.episodes))
        return {}

    filler = Filler(Listed(setting.cases), sizes.groups, sizes.group, _as_they_come())
    player = Player(filler, play, note, Practice())
    with tempfile.TemporaryDirectory() as folder:
        reinforce(Path(POLICY), engine, setting.chat, player, sizes, limits.max_response_tokens, Path(folder), seed)
    return watch.found(sum(written[1:]))


def _as_they_come() -> Filling:
    return Filling(enabled=False, delta=0, max_rounds=1, on_exhausted="pad", max_age=0, max_waiting=0, max_failed=0)


# ---------------------------------------------------------------- TRL's


def environment(case: Case, sandbox: Sandbox) -> type:
    """A case as TRL takes it: a class whose methods are the tools."""

    def reset(self: Any, **_: Any) -> None:
        self._world = ArenaWorld.of(case.arena, case.tools, sandbox)

    return type("Environment", (), {"reset": reset} | {tool.spec.name: method(tool.spec) for tool in case.tools})


def method(spec: ToolSpec) -> Callable[..., str]:
    """A tool as a method, from which TRL derives the tool's document again. All of our tools take texts."""

    def call(self: Any, **arguments: Any) -> str:
        content: str = self._world.step(spec.name, json.dumps(arguments, ensure_ascii=False)).content
        return content

    properties = spec.parameters["properties"]
    words = "".join(f"\n    {name}: {schema.get('description', name)}" for name, schema in properties.items())
    fields: dict[str, Any] = {
        "__name__": spec.name,
        "__doc__": f"{spec.description}\n\nArgs:{words}",
        "__annotations__": dict.fromkeys(properties, str),
        "__signature__": inspect.Signature(
            [
                inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
                *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=str) for name in properties),
            ]
        ),
    }
    for name, value in fields.items():
        setattr(call, name, value)
    return call


def rewarded(environments: Sequence[Any], completions: Sequence[list[dict[str, Any]]], **_: Any) -> list[float]:
    """The reward of ours, of what TRL played."""
    finals = [one[-1]["content"] if not one[-1].get("tool_calls") else None for one in completions]
    return [REWARDS["f1"](*one._world.tally(final)) for one, final in zip(environments, finals, strict=True)]


def theirs(setting: Setting, watch: Watch, seed: int) -> Found:
    """A run of TRL's own tool loop."""
    chat = trl_chat()
    kinds = {one.arena.id: environment(one, setting.sandbox) for one in setting.cases}
    check_prompts(chat, setting.cases, kinds)
    rows = [
        {"prompt": [{"role": "user", "content": one.arena.question}], "environment": one.arena.id}
        for one in setting.cases
    ]
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            load_policy(POLICY),
            reward_funcs=rewarded,
            args=trl_config(setting, folder, seed),
            train_dataset=Dataset.from_list(rows),
            processing_class=chat.tokenizer,
            environment_factory=kinds,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(Clock(watch, trainer))
        trainer.train()
    return watch.found(watch.tokens["written"])


def trl_chat() -> Chat:
    """The policy's chat with what TRL's loop asks for: how calls are read, and a template that it takes for safe.

    TRL wants the ids of a conversation to begin with those of a shorter one to the last. In ours the newline behind a
    turn's end token is one token with the opening of the next turn, so it is left out where nothing follows; what
    follows an end token is the same.
    """
    chat = Chat.load(POLICY)
    newline = "{%- endgeneration -%}\n{{- '\\n' -}}"
    assert chat.tokenizer.chat_template.count(newline) == 1, "the tiny template has changed"
    chat.tokenizer.chat_template = chat.tokenizer.chat_template.replace(
        newline, "{%- endgeneration -%}\n{{- '' if loop.last else '\\n' -}}"
    )
    chat.tokenizer.response_template = qwen3_template  # Hermes calls, which the tiny policy writes too
    return chat


def trl_config(setting: Setting, folder: str, seed: int) -> GRPOConfig:
    """What reinforce sets, and TRL's own names for the limits."""
    how, limits = setting.grpo, setting.limits
    return GRPOConfig(
        output_dir=folder,
        max_steps=how.updates,
        per_device_train_batch_size=how.micro_batch,
        gradient_accumulation_steps=setting.rows // how.micro_batch,
        num_generations=how.group,
        max_completion_length=limits.max_response_tokens,
        generation_kwargs={"max_new_tokens": limits.max_new_tokens},
        max_tool_calling_iterations=limits.max_calls,
        shuffle_dataset=False,
        temperature=how.temperature,
        learning_rate=how.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=how.warmup_steps,
        beta=0.0,
        loss_type="dapo",
        scale_rewards=how.scale,
        epsilon=how.clip_low,
        epsilon_high=how.clip_high,
        weight_decay=0.0,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        seed=seed,
    )


def check_prompts(chat: Chat, cases: Sequence[Case], kinds: dict[str, type]) -> None:
    """That both loops open a case with the same ids."""
    for case in cases:
        tools = [getattr(kinds[case.arena.id](), tool.spec.name) for tool in case.tools]
        messages = [{"role": "user", "content": case.arena.question}]
        ids = chat.tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, return_dict=False)
        assert ids == open_prompt(chat, case), f"{case.arena.id}: TRL opens it with other ids"


# ---------------------------------------------------------------- the bare model


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


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of this process's CPU."""
    start = time.process_time()
    work()
    return time.process_time() - start


def beside_forward(setting: Setting, arenas: Sequence[Arena]) -> dict[str, float]:
    """Episodes with the arenas' own tools, and their forward passes alone."""
    chat, model, limits = setting.chat, load_policy(POLICY).eval(), setting.limits
    sampling = Sampling(setting.grpo.temperature, limits.max_new_tokens, limits.max_response_tokens, seed=1)
    cases = [Case(one, one.tools) for one in arenas if one.split == "heldout"][:EPISODES]
    engine = HFEngine(model, chat.end, chat.pad)

    def play() -> list[Episode]:
        return play_cases(engine, chat, cases, sampling, setting.sandbox, limits.max_calls)

    episodes = play()  # also warms the tools' remembered results, as in training
    pairs = [(seconds_of(play), seconds_of(lambda: forward_only(model, chat.pad, episodes))) for _ in range(REPEATS)]
    tokens = sum(len(one.played.ids) for one in episodes)
    return {
        "episodes": len(episodes),
        "tokens": tokens,
        "tokens_per_s": round(tokens / median(whole for whole, _ in pairs)),
        "limit_tokens_per_s": round(tokens / median(limit for _, limit in pairs)),
        "of_limit": round(median(limit / whole for whole, limit in pairs), 3),
    }


# ---------------------------------------------------------------- figures


def setting_of(arenas: Sequence[Arena], sandbox: Sandbox) -> Setting:
    """The run's params at the bench's sizes; a case's tools are in the order in which TRL lists methods."""
    kinds: dict[str, type[Section]] = {"rl.limits": Limits, "rl.grpo": Reinforcing, "rl.distractors": Mixing}
    found: dict[str, Any] = load_params(kinds)
    seed = load_params({"seed": int})["seed"]
    grpo = found["rl.grpo"].model_copy(
        update={"updates": UPDATES, "groups": GROUPS, "micro_batch": GROUPS * found["rl.grpo"].group}
        | {"checkpoint_every": 0}
    )
    training = [one for one in arenas if one.split == "train"]
    distractors = Distractors([tool for one in training for tool in one.tools], found["rl.distractors"], seed)
    dealt = [deal(one, 0, distractors, seed) for one in training[: UPDATES * GROUPS]]
    cases = [Case(one.arena, tuple(sorted(one.tools, key=lambda tool: tool.spec.name))) for one in dealt]
    return Setting(Chat.load(POLICY), cases, found["rl.limits"], grpo, sandbox)


def figures(runs: Sequence[Found]) -> dict[str, Any]:
    """A side's figures over its runs; rates and parts by the CPU's seconds."""
    cpu, wall = total(one.cpu for one in runs), total(one.wall for one in runs)
    tokens, useful = sum(one.tokens for one in runs), sum(one.useful for one in runs)
    return {
        "tokens": tokens,
        "useful": useful,
        "tokens_per_s": round(tokens / cpu.total(), 1),
        "useful_tokens_per_s": round(useful / cpu.total(), 1),
        "outside_model_calls": {"cpu": outside(cpu), "wall": outside(wall)},
        "parts": {name: round(value / cpu.total(), 4) for name, value in cpu.most_common()},
        "cpu_s": round(cpu.total(), 1),
        "wall_s": round(wall.total(), 1),
        "sandbox_wall_s": round(wall["sandbox"], 1),
    }


def total(parts: Iterable[dict[str, float]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in parts:
        found.update(one)
    return found


def outside(parts: Counter[str]) -> float:
    """The share that is no model call."""
    return round(1 - sum(parts[name] for name in MODEL_CALLS) / parts.total(), 4)


def beside(mine: Sequence[Found], other: Sequence[Found]) -> dict[str, Any]:
    """Ours to TRL's, run by run: tokens a second by the CPU and by the wall."""

    def ratios(clock: str) -> list[float]:
        rates = [[one.tokens / sum(getattr(one, clock).values()) for one in side] for side in (mine, other)]
        return [round(one / two, 2) for one, two in zip(*rates, strict=True)]

    cpu, wall = ratios("cpu"), ratios("wall")
    return {"cpu": round(median(cpu), 2), "wall": round(median(wall), 2), "cpu_runs": cpu, "wall_runs": wall}


def main() -> None:
    torch.set_num_threads(1)
    arenas = list(read_records(ARENAS, Arena))
    watch = Watch()
    with open_sandbox() as sandbox:
        setting = setting_of(arenas, sandbox)
        bare = beside_forward(setting, arenas)
        watch.around(sandbox, call="sandbox")
        watch.around(ArenaWorld, turn="tools", step="tools")
        watch.around(setting.chat, parse="parsing", prompt="prompts and results", results="prompts and results")
        watch.around(hf, _draw="drawing of tokens")
        watch.around(grpo_trainer, parse_response="parsing")
        mine, other = [], []
        for seed in range(RUNS):
            mine.append(ours(setting, watch, seed))
            other.append(theirs(setting, watch, seed))
    found = {"ours": figures(mine), "trl": figures(other), "ours_to_trl": beside(mine, other), "beside_forward": bare}
    print(json.dumps(found | {"load": os.getloadavg()[0]}, indent=1))


if __name__ == "__main__":
    main()
