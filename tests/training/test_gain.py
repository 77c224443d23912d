"""The gain of multipliers: hand-made steps, and what holds after any of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.training.plan import adapted_gain

gaps = st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=3, max_size=3)


def test_by_hand():
    # Same sign, changed sign, from nothing, to nothing; at most 1.
    gain = np.array([0.5, 0.5, 0.5, 0.5, 0.9])
    found = adapted_gain(
        gain,
        np.array([0.1, -0.1, 0.1, 0.0, 0.2]),
        np.array([0.3, 0.3, 0.0, -0.3, 0.1]),
        0.25,
    )
    np.testing.assert_allclose(found, [0.6, 0.125, 0.6, 0.6, 1.0], rtol=1e-15)
    assert gain.tolist() == [0.5, 0.5, 0.5, 0.5, 0.9]  # not changed in place


def test_without_shrinking_the_gain_stays_one():
    assert adapted_gain(np.ones(2), np.array([1, -1]), np.array([-1, 1]), 1.0).tolist() == [1, 1]


@given(st.lists(gaps, min_size=1, max_size=40), st.floats(0.01, 1))
def test_it_stays_above_zero_and_at_most_one(path, shrink):
    gain, before = np.ones(3), np.zeros(3)
    for step in path:
        now = np.array(step)
        after = adapted_gain(gain, now, before, shrink)
        assert (after > 0).all()
        assert (after <= 1).all()
        for j in range(3):
            turned = (now[j] > 0 > before[j]) or (now[j] < 0 < before[j])
            if turned and abs(now[j] * before[j]) > 0:
                assert after[j] == pytest.approx(shrink * gain[j], rel=1e-12)
            elif not turned:
                assert after[j] == pytest.approx(min(1.0, 1.2 * gain[j]), rel=1e-12)
        gain, before = after, now
