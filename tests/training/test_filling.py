"""Adaptive batch filling with scripted rewards (paper section 3.4.2, HC-057)."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from astra.training.filling import (
    Filler,
    Filling,
    FillingExhausted,
    RolloutsLost,
    Scored,
    counts,
    has_spread,
    score,
)

SETTING = Filling(
    enabled=True, delta=0.05, max_rounds=4, on_exhausted="error", max_age=1, max_waiting=8, max_failed=0.2
)


class Script:
    """Plays groups of two with the scripted rewards, in order."""

    def __init__(self, *groups: tuple[float, float]) -> None:
        self.rewards = [reward for group in groups for reward in group]
        self.played: list[object] = []

    def __call__(self, cases):
        self.played += cases
        rewards, self.rewards = self.rewards[: len(cases)], self.rewards[len(cases) :]
        return [scored(reward) for reward in rewards]


def scored(reward: float | None, stop: str = "answered") -> Scored:
    played = SimpleNamespace(failure="" if reward is not None else "sandbox lost")
    return Scored(SimpleNamespace(stop=stop if reward is not None else "failed", played=played), reward)


class Numbers:
    """Cases are their numbers."""

    def __init__(self) -> None:
        self.next = 0

    def __next__(self):
        self.next += 1
        return self.next - 1

    def state(self):
        return self.next

    def restore(self, state):
        self.next = state


def filler(**changes) -> Filler:
    return Filler(Numbers(), 2, 2, SETTING.model_copy(update=changes))


def rewards(groups):
    return [tuple(one.reward for one in chosen.group) for chosen in groups]


@pytest.mark.parametrize(
    ("group", "tells"),
    [([0.30000000000000004, 0.3, 0.3, 0.3], False), ([0, 0, 0, 0], False), ([1, 1, 1, 1], False), ([1, 0, 0, 0], True)],
)
def test_float_noise_is_no_spread(group, tells):
    assert has_spread(group, 0.0) is tells


def test_a_group_counts_only_above_delta():
    assert has_spread([0.0, 0.2], 0.05)
    assert not has_spread([0.0, 0.1], 0.05)  # population standard deviation 0.05: must exceed


def test_sampling_goes_on_until_the_batch_is_full():
    one = filler()
    script = Script((1, 1), (0, 1), (0, 0), (1, 0))
    groups, report = one.fill(0, script)
    assert rewards(groups) == [(0, 1), (1, 0)]
    assert (report.rounds, report.sampled, report.without_spread, report.waiting) == (2, 4, 2, 0)
    assert script.played == [0, 0, 1, 1, 2, 2, 3, 3]


def test_left_over_groups_wait_for_the_next_update_first_in_first_out():
    one = filler()
    one.fill(0, Script((0, 1), (1, 1), (0, 0.5), (0, 0.7)))
    groups, report = one.fill(1, Script((0, 0.9), (0, 0.8)))
    assert rewards(groups) == [(0, 0.7), (0, 0.9)]
    assert report.ages == [1, 0]
    assert report.waiting == 1


def test_a_batch_that_waits_already_needs_no_sampling():
    one = filler()
    one.fill(0, Script((0, 1), (1, 1), (0, 0.5), (0, 0.7)))
    one.waiting.append((0, [scored(0.0), scored(1.0)]))
    _, report = one.fill(1, Script())
    assert report.rounds == 0


def test_groups_that_waited_too_long_are_dropped_and_counted():
    one = filler(max_age=0)
    one.fill(0, Script((0, 1), (1, 1), (0, 0.5), (0, 0.7)))
    _, report = one.fill(1, Script((0, 1), (0, 1)))
    assert report.expired == 1
    assert report.ages == [0, 0]


def test_no_spread_after_the_last_round_stops_loudly_and_says_what_was_seen():
    with pytest.raises(FillingExhausted, match=r"0 of 2 groups .* after 4 rounds \(8 groups, mean reward 0.500\)"):
        filler().fill(0, Script(*[(0.5, 0.5)] * 8))


def test_padding_completes_the_batch_with_groups_that_teach_nothing_and_counts_them():
    groups, report = filler(on_exhausted="pad").fill(0, Script((0, 1), *[(0.5, 0.5)] * 7))
    assert rewards(groups) == [(0, 1), (0.5, 0.5)]
    assert report.padded == 1


def test_switched_off_groups_are_taken_as_they_come_and_only_those_that_differ_count():
    groups, report = filler(enabled=False).fill(0, Script((1, 0.99), (0, 0)))
    assert rewards(groups) == [(1, 0.99), (0, 0)]
    assert [one.counts for one in groups] == [True, False]  # delta is filling's: off, only float noise is no spread
    assert report.rounds == 1


def test_switched_off_a_batch_in_which_nothing_differs_is_skipped_and_counted():
    groups, report = filler(enabled=False).fill(0, Script((1, 1), (0, 0)))
    assert [one.counts for one in groups] == [False, False]
    assert (report.skipped, report.rounds, report.without_spread) == (1, 1, 2)


def test_a_batch_of_padding_alone_is_skipped_and_counted():
    groups, report = filler(on_exhausted="pad").fill(0, Script(*[(0.5, 0.5)] * 8))
    assert [one.counts for one in groups] == [False, False]
    assert (report.skipped, report.padded) == (1, 2)


def test_padding_does_not_count_so_that_it_is_no_part_of_the_loss():
    groups, _ = filler(on_exhausted="pad").fill(0, Script((0, 1), *[(0.5, 0.5)] * 7))
    assert [one.counts for one in groups] == [True, False]


@pytest.mark.parametrize(
    ("group", "counted"),
    [
        ([1, None, 0, 0], True),  # HC-057: the one without a reward is left out
        ([1, None, 1, 1], False),
        ([1, None, None, None], False),  # one reward is no group
        ([None, None, None, None], False),
    ],
)
def test_an_episode_without_a_reward_is_no_part_of_its_groups_spread(group, counted):
    assert counts([scored(one) for one in group], 0.0) is counted


def test_a_group_in_which_everything_was_cut_cannot_be_trained_on():
    assert not counts([scored(0.0, "truncated"), scored(1.0, "truncated")], 0.0)
    assert counts([scored(0.0, "truncated"), scored(1.0)], 0.0)


def test_lost_episodes_are_counted_and_too_many_stop_the_stage():
    _, report = filler(max_failed=0.5).fill(0, Script((0, 1), (0, None), (0, 1), (0, 1)))
    assert report.failed == 1
    with pytest.raises(RolloutsLost, match=r"lost 1 of 4 episodes.*sandbox lost"):
        filler().fill(0, Script((0, 1), (0, None)))


def test_more_left_over_groups_than_may_wait_are_dropped_the_oldest_first_and_counted():
    one = filler(max_waiting=1, max_age=3)
    one.waiting.extend([(0, [scored(0), scored(value)]) for value in (0.5, 0.6, 0.7, 0.8, 0.9)])
    groups, report = one.fill(1, Script())
    assert rewards(groups) == [(0, 0.5), (0, 0.6)]
    assert report.dropped == 2
    assert [group[1].reward for _, group in one.waiting] == [0.9]


def test_a_filler_that_is_put_back_goes_on_as_if_nothing_had_happened():
    script = [(0, 1), (0.2, 0.9), (0, 0.5), (0, 0.7), (0, 0), (0, 0.9)]
    one = filler()
    one.fill(0, Script(*script[:2]))
    one.waiting.append((0, [scored(0), scored(0.4)]))
    state = pickle.dumps(one.state())
    expected, _ = one.fill(1, Script(*script[2:4]))
    other = filler()
    other.restore(pickle.loads(state))
    found, _ = other.fill(1, Script(*script[2:4]))
    assert rewards(found) == rewards(expected)
    assert (other.stream.next, len(other.waiting)) == (one.stream.next, len(one.waiting))


@pytest.mark.parametrize(
    ("stop", "unfinished", "worth"),
    [("answered", "zero", 0.75), ("max_turns", "zero", 0.75), ("truncated", "zero", 0.0), ("truncated", "scored", 0.75),
     ("failed", "zero", None)],
)  # fmt: skip
def test_an_episode_that_was_cut_is_worth_nothing_or_its_calls_and_a_failed_one_has_no_reward(stop, unfinished, worth):
    episode = SimpleNamespace(stop=stop, failed=stop == "failed", tally=(3, 4))
    assert score(episode, lambda solved, required: solved / required, unfinished).reward == worth


def test_finished_episodes_gain_where_those_beside_them_are_cut():
    group = [
        score(SimpleNamespace(stop=stop, failed=False, tally=(1.0,)), lambda worth: worth, "zero")
        for stop in ("answered", "truncated")
    ]
    assert counts(group, 0.05)
    assert group[0].reward > group[1].reward
