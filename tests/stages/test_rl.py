"""RL as a script on tiny fixtures."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import torch

from astra.chat import Encoded
from astra.environments.arena import forget
from astra.records import Difficulty, Rollout
from astra.sandbox import SandboxUnavailable
from astra.stage import read_records, write_records
from astra.training import difficulty
from astra.training.control import control_rows
from astra.training.distractors import Distractors, Mixing
from astra.training.policy import load_policy
from stages import rl, sft
from tests.stages.training_run import MIXING, PARAMS, arenas, lay_out

RATES = {"arena-spain": 0.5, "arena-ghana": 0.0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with models/sft in it, of a policy that makes calls."""
    folder = tmp_path_factory.mktemp("rl")
    params = copy.deepcopy(PARAMS)
    params["sft"]["demonstrations"] |= {"count": 640, "missing_tool": 0.0, "reworded": False}
    lay_out(folder, params=params)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        sft.main()
    return folder


def run(folder, monkeypatch, **changes):
    params = copy.deepcopy(PARAMS)
    params["rl"] |= changes
    lay_out(folder, params=params)
    monkeypatch.chdir(folder)
    rl.main()
    return json.loads(Path("metrics/rl.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def done(trained):
    with pytest.MonkeyPatch.context() as monkeypatch:
        metrics = run(trained, monkeypatch)
    weights = {name: (trained / f"models/{name}/model.safetensors").read_bytes() for name in ("rl", "control")}
    return trained, metrics, weights


def test_every_episode_is_kept_with_its_terms(done):
    folder, metrics, _ = done
    rollouts = list(read_records(folder / "data/rl/rollouts.jsonl", Rollout))
    assert Counter(one.update for one in rollouts) == {0: 8, 1: 8}
    assert [one.sample for one in rollouts[:8]] == [0, 1, 2, 3] * 2
    assert {one.arena_id for one in rollouts} <= {"arena-spain", "arena-ghana"}  # training arenas only
    assert all(one.n_required == 2 for one in rollouts)
    assert any(one.n_calls for one in rollouts)
    assert metrics["updates"] == 2


def test_the_policy_has_moved_and_the_control_too_each_its_own_way(done):
    folder, metrics, _ = done
    names = ("sft", "rl", "control")
    weights = {name: load_policy(folder / f"models/{name}").get_input_embeddings().weight for name in names}
    assert not any(torch.equal(weights[one], weights[other]) for one in names for other in names if one < other)
    assert metrics["control_rows"] > 0


def test_the_curve_has_one_row_an_update(done):
    folder, _, _ = done
    curve = pd.read_csv(folder / "plots/rl.csv")
    assert list(curve["update"]) == [0, 1]
    assert {"reward", "recall", "precision", "calls", "zero_variance", "waiting"} <= set(curve.columns)
    assert curve.notna().all().all()


def test_a_second_run_gives_the_same_bytes(done, monkeypatch):
    folder, metrics, weights = done
    assert run(folder, monkeypatch) == metrics
    for name, before in weights.items():
        assert (folder / f"models/{name}/model.safetensors").read_bytes() == before


def test_an_unknown_reward_names_those_that_there_are(trained, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(trained, monkeypatch, reward="fame")
    assert stopped.value.code == 2
    assert "rl.reward: 'fame', rewards are: f1, recall, precision, f1_answer, cost, safety" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"micro_batch": 3}, "rl.grpo.micro_batch must divide"),
        ({"warmup_steps": 2}, "rl.grpo.warmup_steps: 2 of 2 updates"),
    ],
)
def test_a_batch_or_warm_up_that_does_not_fit_is_refused_before_anything_is_sampled(
    trained, monkeypatch, capsys, change, words
):
    with pytest.raises(SystemExit):
        run(trained, monkeypatch, grpo=PARAMS["rl"]["grpo"] | change)
    assert words in capsys.readouterr().err


def test_rewards_without_spread_stop_the_stage_where_padding_is_not_wanted(trained, monkeypatch, capsys):
    filling = PARAMS["rl"]["filling"] | {"delta": 0.9, "on_exhausted": "error"}
    with pytest.raises(SystemExit) as stopped:
        run(trained, monkeypatch, filling=filling)
    assert stopped.value.code == 2
    assert "rl.filling.delta" in capsys.readouterr().err


def test_the_stream_goes_round_all_arenas_with_other_tools_each_time():
    training = [one for one in arenas() if one.split == "train"]
    distractors = Distractors([tool for one in training for tool in one.tools], Mixing(**MIXING), 3)
    stream = rl.Stream(training, distractors, 3)
    cases = [next(stream) for _ in range(8)]
    assert all(
        {one.arena.id for one in cases[start : start + 2]} == {"arena-spain", "arena-ghana"} for start in range(0, 8, 2)
    )
    assert len({tuple(tool.spec.name for tool in one.tools) for one in cases}) > 2
    half = rl.Stream(training, distractors, 3)
    half.restore({"drawn": 3, "distractors": {}})
    assert [next(half) for _ in range(5)] == cases[3:]


def test_the_control_sees_as_many_tokens_as_rl_cost():
    rows = pd.DataFrame([{"input_ids": [1] * 10, "mask": [0] * 5 + [1] * 5}] * 3)
    found = control_rows(rows, 45, 0)
    assert len(found) == 5  # the first multiple of 10 that reaches 45
    assert found[0] == Encoded([1] * 10, [0] * 5 + [1] * 5)


def test_without_a_decontamination_report_nothing_is_trained(trained, tmp_path, monkeypatch, capsys):
    lay_out(tmp_path)
    shutil.copytree(trained / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        rl.main()
    assert stopped.value.code == 2
    assert "data/sft/decontamination.json" in capsys.readouterr().err


def test_how_hard_each_arena_was_is_stored_beside_the_rollouts(done):
    folder, _, _ = done
    found = list(read_records(folder / "data/rl/difficulty.jsonl", Difficulty))
    rollouts = list(read_records(folder / "data/rl/rollouts.jsonl", Rollout))
    assert [(one.update, one.n) for one in found] == [(0, 4), (0, 4), (1, 4), (1, 4)]
    for one, start in zip(found, range(0, 16, 4), strict=True):
        group = rollouts[start : start + 4]
        assert {rollout.arena_id for rollout in group} == {one.arena_id}
        assert one.n_passed == sum(rollout.solved == rollout.n_required for rollout in group)
        assert one.pass_rate == one.n_passed / 4


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bytes(done, monkeypatch):
    folder, metrics, weights = done
    lay_out(folder)  # another test's params are another run
    monkeypatch.chdir(folder)
    child = os.fork()
    if not child:
        note = rl.noting

        def noting(params, place):
            def killed(fill):
                if fill.update == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                return note(params, place)(fill)

            return killed

        rl.noting = noting
        rl.main()
        os._exit(1)  # never reached
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    (checkpoint,) = Path(".cache/rl").glob("*/checkpoint-1/practice.pickle")
    assert run(folder, monkeypatch) == metrics
    assert (folder / "models/rl/model.safetensors").read_bytes() == weights["rl"]
    assert not checkpoint.parent.parent.exists()  # a run that is done leaves no checkpoints


def test_a_measured_curriculum_decides_what_is_practised_and_learns_from_it(trained, monkeypatch, capsys):
    lay_out(trained)
    monkeypatch.chdir(trained)
    file = "data/difficulty/sft.jsonl"
    assert difficulty.main(["--rollouts", "2", "--out", file]) == 0
    found = list(read_records(file, difficulty.PolicyDifficulty))
    assert {one.arena_id for one in found} == {"arena-spain", "arena-ghana"}
    assert {(one.n, one.policy) for one in found} == {(2, difficulty.policy_id(trained / "models/sft"))}
    spain, ghana = ({"arena_id": name, "pass_rate": rate, "n_passed": int(2 * rate)} for name, rate in RATES.items())
    write_records(file, [found[0].model_copy(update=one) for one in (spain, ghana)])
    metrics = run(trained, monkeypatch, curriculum={"mode": "difficulty", "file": file})
    assert metrics["curriculum"] == {"known": 2, "unknown": 0, "flat": 1}
    played = [one.arena_id for one in read_records("data/rl/difficulty.jsonl", Difficulty)]
    assert played == ["arena-spain"] * 4  # ghana, never passed, waits ten times as long
    write_records(file, [one.model_copy(update={"policy": "policy-other"}) for one in found])
    with pytest.raises(SystemExit) as stopped:
        run(trained, monkeypatch, curriculum={"mode": "difficulty", "file": file})
    assert stopped.value.code == 2
    assert f"rl.curriculum.file: {file}: of policy-other" in capsys.readouterr().err


def test_lost_episodes_are_rejects_and_no_rewards(trained, monkeypatch):
    class Failing:
        """A sandbox that is gone for one tool."""

        def __init__(self, worker):
            self.worker = worker

        def call(self, code, function, arguments, timeout_s=2.0):
            if function == "city_population":
                raise SandboxUnavailable("the machine is full")
            return self.worker.call(code, function, arguments, timeout_s)

    real = rl.sandboxes

    @contextmanager
    def sandboxes(count):
        with real(count) as worker:
            yield Failing(worker)

    monkeypatch.setattr(rl, "sandboxes", sandboxes)
    forget()
    metrics = run(trained, monkeypatch, filling=PARAMS["rl"]["filling"] | {"max_failed": 0.99})
    assert metrics["episodes_failed"] == metrics["rejects"]["machinery_failed"] > 0
    assert metrics["in"] == metrics["out"] + metrics["rejected"] == 16
    with pytest.raises(SystemExit) as stopped:
        run(trained, monkeypatch)  # max_failed 0
    assert stopped.value.code == 3
