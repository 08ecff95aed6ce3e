"""Adaptive batch filling with scripted rewards (paper section 3.4.2, HC-057)."""

from __future__ import annotations

from itertools import count

import pytest

from astra.training.filling import Filler, Filling, FillingExhausted, Scored, has_spread

SETTING = Filling(enabled=True, delta=0.05, max_rounds=4, on_exhausted="error", max_age=1)


class Script:
    """Plays groups of two with the scripted rewards, in order."""

    def __init__(self, *groups: tuple[float, float]) -> None:
        self.rewards = [reward for group in groups for reward in group]
        self.played: list[object] = []

    def __call__(self, cases):
        self.played += cases
        rewards, self.rewards = self.rewards[: len(cases)], self.rewards[len(cases) :]
        return [Scored(case, reward) for case, reward in zip(cases, rewards, strict=True)]


def filler(**changes) -> Filler:
    return Filler(iter(count()), 2, 2, SETTING.model_copy(update=changes))


def rewards(groups):
    return [tuple(one.reward for one in group) for group in groups]


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
    one.waiting.append((0, [Scored(9, 0.0), Scored(9, 1.0)]))
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


def test_switched_off_groups_are_taken_as_they_come():
    groups, report = filler(enabled=False).fill(0, Script((1, 1), (0, 0)))
    assert rewards(groups) == [(1, 1), (0, 0)]
    assert report.rounds == 1
