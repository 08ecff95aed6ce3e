"""A repository folder with tiny inputs for sft, rl and eval, for the tests of these three stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml

from astra.records import (
    Arena,
    FunctionCall,
    Message,
    Record,
    Scorecard,
    ToolCall,
    Trajectory,
    Usage,
)
from astra.stage import write_records
from tests.training.tiny import CAPITAL, CURRENCY, SHAPE, SYMBOL, arena

torch.set_num_threads(1)  # two threads wait for each other longer than they compute here

LIMITS = {"max_calls": 4, "max_new_tokens": 40, "max_response_tokens": 160}
MIXING = {"mode": "banded", "per_band": 1, "high": 0.85, "low": 0.2, "encoder": "builtin"}
SCHEDULE = {
    "epochs": 1, "batch": 8, "micro_batch": 8, "optimiser": "muon", "lr": 0.01, "muon_lr": 0.02, "weight_decay": 0.0,
    "warmup_steps": 2, "decay": "linear", "decay_share": 0.4, "short_first": 0.0,
}  # fmt: skip
PARAMS: dict[str, Any] = {
    "seed": 3,
    "llm": {
        "concurrency": 4, "attempts": 2, "timeout_s": 20, "deadline_s": 40, "max_wait_s": 0.05,
        "budget": {"stage_usd": None, "run_usd": None}, "prices": {},
    },
    "policy": {"model": "builtin", "threads": 1, "shape": SHAPE.model_dump()},
    "launcher": {
        "sft": {"kind": "none", "processes": 1, "nodes": 1, "config": None},
        "rl": {"kind": "none", "processes": 1, "nodes": 1, "config": None},
    },
    "sft": {
        "min_score": 0.7,
        "max_length": 300,
        "max_untrainable": 0.9,
        "template": "auto",
        "split": "auto",
        "shorten_results_to": 120,
        "decontamination": {
            "benchmarks": ["tau2"], "waived": ["tau2"], "paths": {}, "environments": None, "fingerprints": None,
            "encoder": "builtin", "thresholds": {
                "ngrams": 0.5, "question": 0.65, "description": 0.7, "document": 0.6, "support": 0.45, "family": 4},
        },
        "demonstrations": {"count": 24, "slips": 0.3, "slip_rate": 0.5, "missing_tool": 0.2, "reworded": True},
        "distractors": MIXING,
        "packing": False,
        "lora": {"rank": 0, "alpha": 8},
        "checkpoints": {"every": 2, "keep": 2, "heldout": 0.0},
        "schedule": SCHEDULE,
    },
    "rl": {
        "start": "sft",
        "control": True,
        "reward": "f1",
        "unfinished": "zero",
        "engine": "hf",
        "vllm": {
            "place": "server", "sync": "folder", "exchange": "/dev/shm/astra-weights", "concurrency": 4, "timeout_s": 30,
            "attempts": 1, "memory_share": 0.3, "max_length": 512, "max_gap": 0.2,
        },
        "sandboxes": 1,
        "limits": LIMITS,
        "distractors": MIXING,
        "curriculum": {"mode": "none", "file": None},
        "filling": {"enabled": True, "delta": 0.0, "max_rounds": 1, "on_exhausted": "pad", "max_age": 1, "max_waiting": 8, "max_failed": 0.0},
        "grpo": {
            "updates": 2, "groups": 2, "group": 4, "micro_batch": 8, "lr": 0.0003, "warmup_steps": 0, "temperature": 1.0,
            "clip_low": 0.2, "clip_high": 0.28, "scale": "group", "checkpoint_every": 1,
        },
        "rollouts_every": 1,
    },
    "eval": {
        "workers": 1, "batch": 8, "temperature": 1.0, "limits": LIMITS, "distractors": MIXING,
        "models": {
            name: {"transport": "local", "name": f"models/{name}", "max_tokens": 16, "context": 4096}
            for name in ("base", "sft", "rl", "control")
        },
        "user": None,
        "pairs": [["sft", "base"], ["rl", "sft"], ["rl", "control"]],
        "benchmarks": {"arenas": {}},
        "max_errors": 0.0,
    },
}  # fmt: skip
DISTRACTING = ("Spain", "Ghana")


def arenas() -> list[Arena]:
    """Two training arenas, of which one brings tools of no use, and one of each held-out split."""
    spain = arena("Spain")
    return [
        spain.model_copy(update={"tools": (*spain.tools, CURRENCY, SYMBOL)}),
        arena("Ghana"),
        arena("Japan", "heldout"),
        arena("Peru", "heldout_entities"),
        arena("Japan", "heldout_tools").model_copy(update={"id": "arena-japan-tools"}),
    ]


def trajectory(number: int, question: str, country: str, city: str, stop: str = "answered") -> Trajectory:
    """A one-call conversation of the imitation line."""
    call = ToolCall(id="call_1", function=FunctionCall(name=CAPITAL.spec.name, arguments=f'{{"country": "{country}"}}'))
    return Trajectory(
        id=f"trajectory-{number}",
        task_id=f"task-{number}",
        server_ids=("server-1",),
        attempt=0,
        tools=(CAPITAL.spec,),
        messages=(
            Message(role="user", content=question),
            Message(role="assistant", content="I look it up.", tool_calls=(call,)),
            Message(role="tool", tool_call_id="call_1", name=CAPITAL.spec.name, content=f'{{"result": "{city}"}}'),
            Message(role="assistant", content=f"It is {city}."),
        ),
        stop=stop,  # type: ignore[arg-type]
        model="m",
        usage=Usage(calls=2, prompt_tokens=1, completion_tokens=1),
    )


def scorecard(number: int, overall: float) -> Scorecard:
    return Scorecard(id=f"scorecard-{number}", trajectory_id=f"trajectory-{number}", dimensions={}, overall=overall)


def lay_out(folder: Path, inputs: dict[str, list[Record]] | None = None, params: dict[str, Any] | None = None) -> None:
    """Write params.yaml and the inputs where the stages read them."""
    (folder / "params.yaml").write_text(yaml.safe_dump(params or PARAMS), encoding="utf-8")
    found: dict[str, list[Record]] = {
        "data/merge/arenas.jsonl": list(arenas()),
        "data/trajectories/trajectories.jsonl": [trajectory(1, "Which city governs Spain?", "Spain", "Madrid")],
        "data/score/scorecards.jsonl": [scorecard(1, 0.1)],  # demonstrations only, unless a test says otherwise
        **(inputs or {}),
    }
    for path, records in found.items():
        write_records(folder / path, records)
