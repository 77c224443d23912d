"""The time left, on simulated clocks: right at an even pace, and without jumps at any other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.cli.pace import BURST, KNOWN_AFTER, KNOWN_STEPS, Pace


def told(periods, *, burst=1, apart=0.0):
    """Return (time, seconds told) after each period, in which `burst` units of work are done."""
    pace, now, found = Pace(burst * len(periods), 0.0), 0.0, []
    for period in periods:
        now += period
        for i in range(burst):
            pace.advance(1.0, now + i * apart)
        found.append((now, pace.left(now)))
    return found


def jumps(found):
    """Return by what share each told time differs from the one before it, counted down."""
    known = [(now, left) for now, left in found if left is not None]
    return [
        abs(after - max(0.0, before - (end - start))) / before
        for (start, before), (end, after) in pairwise(known)
        if before > 0
    ]


@pytest.mark.parametrize("burst", [1, 5])
@pytest.mark.parametrize("period", [0.05, 1.0, 60.0])
def test_an_even_pace_is_told_exactly(period, burst):
    found = told([period] * 200, burst=burst)
    for done, (_, left) in enumerate(found, 1):
        if left is not None:
            assert left == pytest.approx((200 - done) * period, abs=1e-6)
    assert found[-1][1] == pytest.approx(0, abs=1e-6)


def test_nothing_is_told_before_it_is_known():
    found = told([0.5] * 40)
    first = next(i for i, (_, left) in enumerate(found) if left is not None)
    assert found[first][0] >= KNOWN_AFTER
    slow = told([60.0] * 40)
    assert [left is None for _, left in slow[:KNOWN_STEPS]] == [True] * (KNOWN_STEPS - 1) + [False]


def test_between_two_messages_it_counts_down_and_not_below_0():
    pace = Pace(20, 0.0)
    for second in range(1, 11):
        pace.advance(1, second)
    assert [pace.left(now) for now in (10, 13, 20, 50)] == pytest.approx([10, 7, 0, 0])


def test_work_that_need_not_be_done_is_no_speed():
    pace = Pace(100, 0.0)
    pace.skip(80)  # finished before
    for second in range(1, 11):
        pace.advance(1, second)
    assert pace.left(10) == pytest.approx(10)


@pytest.mark.parametrize("burst", [1, 5])
@given(st.lists(st.floats(1.0, 2.0), min_size=30, max_size=200), st.floats(0.3, 30.0))
def test_a_speed_that_varies_by_two_never_makes_it_jump(burst, relative, period):
    found = told([part * period for part in relative], burst=burst, apart=0.001)
    steps = jumps(found)
    assert max(steps, default=0.0) <= 0.25
    # Every period lies between the two, so does what is left, or nearly.
    for done, (_, left) in enumerate(found, 1):
        rest = len(relative) - done
        if left is not None and rest >= 5:
            assert 0.7 * rest * period <= left <= 1.4 * rest * 2 * period


@pytest.mark.parametrize(
    "periods", [[1.0] * 150 + [2.0] * 150, [2.0] * 150 + [1.0] * 150], ids=["slower", "faster"]
)
def test_it_settles_on_a_new_speed(periods):
    found = told(periods)
    end = found[-1][0]
    assert max(jumps(found[:-3])) <= 0.25
    wrong = [abs(left / (end - now) - 1) for now, left in (found[150], found[285])]
    assert wrong[1] < 0.35 < 0.45 < wrong[0]


def test_a_pause_moves_it_by_a_fifth_at_most():
    found = told([1.0] * 60 + [25.0] + [1.0] * 100)
    assert max(jumps(found[:-5])) <= 0.2 + 1e-9


def test_a_burst_counts_as_one_step():
    pace = Pace(1000, 0.0)
    for second in range(1, 21):
        pace.advance(5, 2.0 * second)
    before = pace.left(40.0)
    told_in_burst = []
    for i in range(5):  # half as fast as before
        pace.advance(1, 44.0 + i * BURST / 10)
        told_in_burst.append(pace.left(44.0 + i * BURST / 10))
    assert max(told_in_burst) - min(told_in_burst) < 0.2 * before
