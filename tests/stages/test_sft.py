"""SFT as a script on tiny fixtures: what is imitated, what is refused, what is written."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from astra.chat import Chat
from astra.training.policy import load_policy
from astra.training.rows import Row, set_apart
from stages import sft
from tests import benchmark_fixtures
from tests.stages.training_run import PARAMS, arenas, lay_out, scorecard, trajectory

OWN = "Which city governs Spain?"
INPUTS = {
    "data/trajectories/trajectories.jsonl": [
        trajectory(1, OWN, "Spain", "Madrid"),
        trajectory(2, "Where is the seat of Ghana?", "Ghana", "Accra"),  # low score
        trajectory(3, "Capital?", "Ghana", "Accra"),  # no scorecard
        trajectory(4, "Capital now?", "Ghana", "Accra", stop="max_turns"),
        trajectory(5, "Capital of Japan?", "Japan", "Tokyo"),  # a held-out fact
        trajectory(6, arenas()[2].question, "Spain", "Madrid"),  # a held-out question
        trajectory(7, "Which city? " * 200, "Spain", "Madrid"),  # too long
    ],
    "data/score/scorecards.jsonl": [scorecard(number, 0.3 if number == 2 else 0.9) for number in (1, 2, 4, 5, 6, 7)],
}


def run(folder, monkeypatch, inputs=None, **changes):
    params = copy.deepcopy(PARAMS)
    params["sft"] |= changes
    lay_out(folder, inputs, params)
    monkeypatch.chdir(folder)
    sft.main()
    rejects = [json.loads(line) for line in Path("data/sft/rejects.jsonl").read_text(encoding="utf-8").splitlines()]
    return json.loads(Path("metrics/sft.json").read_text(encoding="utf-8")), rejects


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sft")
    with pytest.MonkeyPatch.context() as monkeypatch:
        metrics, rejects = run(folder, monkeypatch, INPUTS)
    return folder, metrics, rejects


def test_every_input_is_a_row_or_a_reject_with_its_reason(done):
    _, metrics, rejects = done
    assert {reject["id"]: reject["reason"] for reject in rejects} == {
        "trajectory-2": "low_score",
        "trajectory-3": "not_scored",
        "trajectory-4": "unfinished",
        "trajectory-5": "heldout_fact",
        "trajectory-6": "heldout_question",
        "trajectory-7": "too_long",
    }
    assert (metrics["in"], metrics["out"], metrics["rejected"]) == (7 + 24, 1 + 24, 6)
    assert (metrics["imitation"], metrics["demonstrations"]) == (1, 24)


def test_rows_hold_token_arrays_with_their_masks(done):
    folder, _, _ = done
    rows = pd.read_parquet(folder / "data/sft/train.parquet")
    chat = Chat.load(folder / "models/sft")
    assert rows["id"].is_unique
    row = rows[rows["origin"] == "imitation"].iloc[0]
    trained = chat.text([token for token, flag in zip(row["input_ids"], row["mask"], strict=True) if flag])
    assert trained.startswith("I look it up.\n<tool_call>")
    assert trained.endswith("It is Madrid.<|im_end|>")


def test_nothing_held_out_is_in_any_training_text(done):
    folder, _, _ = done
    rows = pd.read_parquet(folder / "data/sft/train.parquet")
    chat = Chat.load(folder / "models/sft")
    text = "\n".join(chat.text(list(ids)) for ids in rows["input_ids"])
    assert not any(name in text for name in ("Japan", "Tokyo", "Peru", "Lima"))


def test_demonstrations_solve_refuse_and_meet_distractors(done):
    folder, _, _ = done
    rows = pd.read_parquet(folder / "data/sft/train.parquet")
    chat = Chat.load(folder / "models/sft")
    texts = [chat.text(list(ids)) for ids in rows["input_ids"][rows["origin"] == "demonstration"]]
    assert any("I cannot answer: no tool gives the " in text for text in texts)
    assert any("The answer is 3." in text for text in texts)
    assert any("element_symbol(" in text for text in texts)


def test_base_is_the_policy_before_and_sft_after_training(done):
    folder, metrics, _ = done
    base, after = load_policy(folder / "models/base"), load_policy(folder / "models/sft")
    assert not torch.equal(base.get_input_embeddings().weight, after.get_input_embeddings().weight)
    losses = pd.read_csv(folder / "plots/sft.csv")
    assert list(losses.columns) == ["step", "loss"]
    assert metrics["trained_tokens_a_row"]["min"] > 0


def test_the_same_inputs_give_the_same_bytes(done, tmp_path, monkeypatch):
    folder, metrics, _ = done
    again, _ = run(tmp_path, monkeypatch, INPUTS)
    assert again == metrics
    for name in (
        "models/sft/model.safetensors",
        "models/sft/tokenizer.json",
        "data/sft/train.parquet",
        "plots/sft.csv",
    ):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_the_paper_s_setting_imitates_trajectories_only(tmp_path, monkeypatch):
    metrics, _ = run(tmp_path, monkeypatch, INPUTS, demonstrations=PARAMS["sft"]["demonstrations"] | {"count": 0})
    assert (metrics["imitation"], metrics["demonstrations"]) == (1, 0)


def test_rows_that_are_all_too_long_stop_the_stage_and_name_the_key(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path, monkeypatch, INPUTS, max_length=64)
    assert stopped.value.code == 2
    assert "sft.max_length" in capsys.readouterr().err
    assert not (tmp_path / "models/sft").exists()


def against_tau2(site: Path, **changes) -> dict:
    return {
        **PARAMS["sft"]["decontamination"],
        "waived": [],
        "paths": {"tau2": str(benchmark_fixtures.tau2(site))},
        **changes,
    }


def test_a_row_that_a_benchmark_asks_too_is_a_reject_and_the_report_names_the_case(tmp_path, monkeypatch):
    planted = {**INPUTS, "data/trajectories/trajectories.jsonl": [
        trajectory(1, OWN, "Spain", "Madrid"),
        trajectory(2, f"Hello! {benchmark_fixtures.PARCEL.replace('You want', 'I want').upper()}", "Ghana", "Accra"),
    ]}  # fmt: skip
    metrics, rejects = run(tmp_path, monkeypatch, planted, decontamination=against_tau2(tmp_path / "site"))
    assert [(one["id"], one["reason"][:18]) for one in rejects] == [("trajectory-2", "benchmark_question")]
    assert metrics["decontamination"]["rows_hit"] == 1
    assert metrics["decontamination"]["fingerprinted"] == "tau2"
    report = json.loads((tmp_path / "data/sft/decontamination.json").read_text())
    assert report["hits"][0]["row_id"] == "trajectory-2"
    assert report["hits"][0]["benchmark"] == "tau2"


def test_without_the_benchmark_and_without_a_waiver_nothing_is_trained(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path, monkeypatch, INPUTS, decontamination={**PARAMS["sft"]["decontamination"], "waived": []})
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "tau2" in said
    assert "decontamination.waived" in said
    assert not (tmp_path / "models").exists()


def test_a_waiver_is_in_the_metrics(done):
    _, metrics, _ = done
    assert metrics["decontamination"]["waived"] == "tau2"
    assert metrics["decontamination"]["rows_checked"] == 0


def test_the_model_says_where_it_comes_from(done):
    folder, metrics, _ = done
    origin = json.loads((folder / "models/sft/provenance.json").read_text())
    assert origin["params"]["sft"]["min_score"] == 0.7
    assert set(origin["inputs"]) == {*list(INPUTS), "data/merge/arenas.jsonl", "models/base"}
    assert all(len(one) == 64 for one in (*origin["inputs"].values(), *origin["weights"].values(), origin["code"]))
    card = (folder / "models/sft/README.md").read_text()
    assert f"| final_loss | {metrics['final_loss']} |" in card


def test_attempts_at_one_question_are_on_one_side_of_the_heldout_rows():
    first, second = trajectory(1, OWN, "Spain", "Madrid"), trajectory(2, OWN, "Spain", "Madrid")
    others = [trajectory(number, f"Question {number}?", "Ghana", "Accra") for number in range(3, 60)]
    rows = [(Row(one.id, "imitation", one.messages, one.tools), None) for one in (first, second, *others)]
    for seed in range(8):
        learned, heldout = set_apart(rows, 0.4, seed)
        assert len(learned) + len(heldout) == len(rows)
        assert heldout
        sides = [{row.id for row, _ in side} for side in (learned, heldout)]
        assert any({first.id, second.id} <= side for side in sides)
    assert set_apart(rows, 0.0, 1) == (rows, [])
    assert set_apart(rows[:1], 0.49, 5)[0]
