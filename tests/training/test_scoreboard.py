"""The tables of an evaluation, on literals."""

from __future__ import annotations

from astra.records import Sample
from astra.training.scoreboard import Kind, bars, chart, collected, counted, differences, table

KINDS = {"b": Kind(("accuracy", "progress"), frozenset({"accuracy"}), "accuracy")}


def sample(model: str, case: int, accuracy: float, trial: int = 0, mode: str = "greedy") -> Sample:
    scores = {"accuracy": accuracy, "progress": accuracy / 2}
    return Sample(model=model, benchmark="b", case=f"c{case}", trial=trial, mode=mode, scores=scores, messages=())  # type: ignore[arg-type]


def samples(model: str, *values: float) -> list[Sample]:
    return [sample(model, case, value) for case, value in enumerate(values)]


def test_a_share_has_wilson_s_interval_and_a_mean_the_bootstrap_s():
    found = table(collected(samples("m", *[0.0] * 10)), KINDS)["m"]["b"]["greedy"]
    assert found["accuracy"] == {"mean": 0.0, "low": 0.0, "high": 0.2775, "n": 10}
    assert found["progress"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 10}


def test_trials_are_averaged_within_their_case_and_give_pass_hat_k():
    trials = {0: (1, 1, 1, 1), 1: (1, 1, 0, 0), 2: (1, 0, 0, 0), 3: (0, 0, 0, 0)}
    rows = [sample("m", case, value, n) for case, values in trials.items() for n, value in enumerate(values)]
    found = table(collected(rows), KINDS)["m"]["b"]["greedy"]
    assert (found["accuracy"]["mean"], found["accuracy"]["n"], found["accuracy"]["trials"]) == (0.4375, 4, 4)
    # two of four right: 1 of 6 pairs; by hand (1 + 1/6 + 0 + 0) / 4
    assert found["pass^2"]["mean"] == round((1 + 1 / 6) / 4, 4)
    assert found["pass^3"]["mean"] == found["pass^4"]["mean"] == 0.25


def test_models_are_compared_on_the_cases_that_both_have():
    rows = samples("one", 1, 1, 1, 0) + samples("two", 0, 1, 0)
    found = differences(collected(rows), KINDS, [("one", "two"), ("one", "absent")])
    assert set(found) == {"one-two"}
    number = found["one-two"]["b"]["greedy"]["accuracy"]
    assert (number["mean"], number["n"], number["p"]) == (0.6667, 3, 0.5)
    assert "p" not in found["one-two"]["b"]["greedy"]["progress"]


def test_only_the_same_mode_is_compared():
    rows = samples("one", 1, 1) + [sample("two", case, 0.0, mode="sampled") for case in range(2)]
    assert differences(collected(rows), KINDS, [("one", "two")]) == {}


def test_errors_stand_beside_the_numbers_and_never_in_them():
    found = table(collected(samples("m", 1, 1)), KINDS)
    rows = bars(found, {("m", "b"): 3})
    assert set(rows["errors"]) == {3}
    assert set(rows["mean"]) == {1.0, 0.5}
    assert list(chart(rows, {"b": "accuracy"})["bar"]) == ["b, greedy, m"]
    assert counted([("m", "b", "endpoint_down")] * 2 + [("m", "b", "run_died")]) == {
        "m": {"b": {"endpoint_down": 2, "run_died": 1}}
    }


def test_a_model_of_which_every_case_broke_has_no_number():
    assert list(bars(table(collected([]), KINDS), {}).columns)[:4] == ["model", "benchmark", "mode", "measure"]
