"""The prompt stream by difficulty, and the pass rates that it starts from."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from types import SimpleNamespace

import pytest

from astra.stage import StageError
from astra.training.curriculum import FLOOR, ByDifficulty, Curriculum, weight
from astra.training.difficulty import check_suits, main, measure, pass_rates, policy_id, read_difficulties
from astra.training.filling import Passed, RolloutsLost, Scored
from astra.training.stream import Stream
from tests.training.tiny import arena

TEMPLATE = arena("Spain")
RATES = {"never": 0.0, "seldom": 0.25, "half": 0.5, "mostly": 0.75, "always": 1.0}


class NoDistractors:
    """Draws nothing."""

    def __init__(self):
        self.drawn = Counter()

    def draw(self, tools, key, absent=None):
        self.drawn["asked"] += 1
        return []


def arenas(*names):
    return [TEMPLATE.model_copy(update={"id": name}) for name in names]


def stream(rates=RATES, seed=3, names=tuple(RATES)) -> ByDifficulty:
    return ByDifficulty(arenas(*names), NoDistractors(), seed, rates)


def drawn(one: Stream, count: int) -> list[str]:
    return [next(one).arena.id for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_passed_sometimes_comes_before_what_is_never_or_always_passed(seed):
    order = list(dict.fromkeys(drawn(stream(seed=seed), 200)))
    assert set(order[:3]) == {"seldom", "half", "mostly"}
    assert set(order[3:]) == {"never", "always"}


def test_arenas_come_up_in_proportion_to_how_much_their_groups_tell():
    found = Counter(drawn(stream(), 27_000))
    shares = {name: weight(rate) for name, rate in RATES.items()}
    assert shares == {"never": FLOOR, "seldom": 0.75, "half": 1.0, "mostly": 0.75, "always": FLOOR}
    for name, share in shares.items():
        assert found[name] == pytest.approx(27_000 * share / sum(shares.values()), abs=10)


def test_nothing_starves_and_nothing_comes_up_twice_in_a_row_by_luck():
    names = ("never", *(f"half-{number}" for number in range(20)))
    order = drawn(stream(dict.fromkeys(names, 0.5) | {"never": 0.0}, names=names), 3000)
    places = [place for place, name in enumerate(order) if name == "never"]
    turns = [after - before for before, after in zip([0, *places], places, strict=False)]
    assert max(turns) <= 20 * (2 / FLOOR) + 2
    assert all(len(set(order[at : at + 20])) >= 19 for at in range(len(order) - 20))


def test_an_unknown_arena_counts_as_one_that_is_passed_half_the_time():
    found = Counter(drawn(stream({"seldom": 0.25}, names=("seldom", "new")), 7000))
    assert found["new"] / found["seldom"] == pytest.approx(1 / 0.75, rel=0.01)


def test_rates_follow_the_policy_and_shares_follow_the_rates():
    one = stream()
    for _ in range(8):
        one.learn([Passed("half", 8, 8, 1.0), Passed("never", 8, 4, 0.5)])
    assert one.rates["half"] > 0.99
    assert one.rates["never"] == pytest.approx(0.5, abs=0.01)
    found = Counter(drawn(one, 1000))
    assert found["never"] > 5 * found["half"] > 0


def test_an_arena_that_becomes_worth_playing_does_not_wait_out_its_old_turn():
    one = stream()
    drawn(one, 4)
    left = one.due["never"] - one.now
    one.learn([Passed("never", 8, 4, 0.5), Passed("never", 8, 4, 0.5)])
    assert one.due["never"] - one.now == pytest.approx(left * FLOOR / weight(0.375))


def test_the_first_group_of_an_unknown_arena_is_its_rate():
    one = stream({}, names=("new",))
    one.learn([Passed("new", 4, 1, 0.3)])
    assert one.rates == {"new": 0.25}


def test_the_order_is_the_seeds_and_not_that_of_the_file():
    assert drawn(stream(), 50) == drawn(stream(), 50)
    assert drawn(stream(), 50) == drawn(stream(names=tuple(reversed(RATES))), 50)
    assert drawn(stream(), 50) != drawn(stream(seed=4), 50)


@pytest.mark.parametrize("before", [0, 1, 7, 40])
def test_a_stream_that_is_put_back_goes_on_as_if_nothing_had_been(before):
    one, other = stream(), stream()
    drawn(one, before)
    one.learn([Passed("half", 8, 7, 0.9), Passed("never", 8, 1, 0.1)])
    drawn(other, 3)
    other.learn([Passed("seldom", 8, 8, 1.0)])
    state = pickle.dumps(one.state())
    rest = [next(one) for _ in range(60)]
    one.learn([Passed("half", 8, 0, 0.0)])  # the state is a copy
    other.restore(pickle.loads(state))
    assert [next(other) for _ in range(60)] == rest
    assert other.drawn == before + 60


def test_each_time_an_arena_comes_up_it_is_another_turn():
    one = stream({}, names=("new",))
    orders = {tuple(tool.spec.name for tool in next(one).tools) for _ in range(20)}
    assert len(orders) == 2


def test_shuffled_rounds_take_no_notice_of_what_was_passed():
    one, other = (Stream(arenas(*RATES), NoDistractors(), 3) for _ in range(2))
    one.learn([Passed("half", 8, 8, 1.0)])
    assert drawn(one, 12) == drawn(other, 12)


def scripted(*rewards):
    """Plays whose episodes do all that is required where the reward is 1; None is a loss of the machinery."""
    left = list(rewards)

    def play(cases):
        found = []
        for case in cases:
            reward = left.pop(0)
            tally = SimpleNamespace(solved=2 if reward == 1 else 0, n_required=2)
            played = SimpleNamespace(failure="sandbox lost")
            found.append(Scored(SimpleNamespace(case=case, tally=tally, played=played), reward))
        return found

    return lambda key: play


def cases(*names):
    return [SimpleNamespace(arena=one) for one in arenas(*names)]


def test_a_pass_rate_is_of_the_rollouts_that_have_a_reward():
    plays = scripted(1, 0.5, 1, None, 0, 0, 0, 0, None, None, None, None)
    found = list(measure(cases("a", "b", "lost"), "policy-1", 4, 2, plays, max_failed=1.0))
    assert [(one.arena_id, one.n, one.n_passed, one.pass_rate, one.policy) for one in found] == [
        ("a", 3, 2, 0.6667, "policy-1"),
        ("b", 4, 0, 0.0, "policy-1"),
    ]
    assert pass_rates(found) == {"a": 2 / 3, "b": 0.0}


def test_more_lost_episodes_than_allowed_stop_the_measuring():
    with pytest.raises(RolloutsLost, match=r"lost 1 of 2 episodes.*sandbox lost"):
        list(measure(cases("a"), "policy-1", 2, 1, scripted(1, None), max_failed=0.2))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "sft"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def line(**changes):
    one = {"arena_id": "a", "update": 0, "n": 4, "n_passed": 1, "pass_rate": 0.25, "reward": 0.5, "policy": "p"}
    return json.dumps(one | changes)


def how(file) -> Curriculum:
    return Curriculum(mode="difficulty", file=str(file) if file else None)


def test_a_policys_name_is_its_weights_and_nothing_else(model):
    before = policy_id(model)
    (model / "README.md").write_text("new")
    assert policy_id(model) == before
    (model / "model.safetensors").write_bytes(b"others")
    assert policy_id(model) != before


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"\xff\xfe", ":1: not a PolicyDifficulty"),
        ((line() + "\n" + line(n_passed=5)).encode(), ":2: not a PolicyDifficulty.*n_passed 5 of n 4"),
        (json.dumps({"arena_id": "a"}).encode(), ":1: not a PolicyDifficulty: update: Field required"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_key_and_the_remedy(tmp_path, content, says):
    file = tmp_path / "rates.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StageError, match=rf"params.yaml: rl.curriculum.file: .*rates.jsonl.*{says}") as error:
        read_difficulties(how(file))
    assert "python -m astra.training.difficulty" in str(error.value)


def test_no_file_and_a_folder_are_refused_too(tmp_path):
    with pytest.raises(StageError, match="rl.curriculum.file: null, and rl.curriculum.mode difficulty needs"):
        read_difficulties(how(None))
    with pytest.raises(StageError, match="Is a directory"):
        read_difficulties(how(tmp_path))


def test_rates_of_another_policy_or_of_other_arenas_are_refused(tmp_path, model):
    file = tmp_path / "rates.jsonl"
    file.write_text(line(policy="policy-other"))
    with pytest.raises(StageError, match=rf"rates.jsonl: of policy-other, and .*sft is {policy_id(model)}. Measure it"):
        check_suits(how(file), read_difficulties(how(file)), model, {"a"})
    file.write_text(line(policy=policy_id(model)))
    check_suits(how(file), read_difficulties(how(file)), model, {"a"})
    with pytest.raises(StageError, match="1 records are of none of the training arenas"):
        check_suits(how(file), read_difficulties(how(file)), model, {"b"})
    file.write_text("")
    with pytest.raises(StageError, match="0 records are of none"):
        check_suits(how(file), read_difficulties(how(file)), model, {"a"})


def test_measuring_without_arenas_ends_with_one_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert "difficulty: data/merge/arenas.jsonl: no such file" in capsys.readouterr().err
