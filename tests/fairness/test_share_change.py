"""Intervals of a change, against Newcombe's published ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.fairness.uncertainty import share_change

# Newcombe 1998 (Statistics in Medicine 17, 873-890), table II, method 10: first minus second.
PUBLISHED = [
    ((56, 70), (48, 80), (0.0524, 0.3339)),
    ((9, 10), (3, 10), (0.1705, 0.8090)),
    ((6, 7), (2, 7), (0.0582, 0.8062)),
    ((5, 56), (0, 29), (-0.0381, 0.1926)),
    ((0, 10), (0, 20), (-0.1611, 0.2775)),
    ((0, 10), (0, 10), (-0.2775, 0.2775)),
    ((10, 10), (0, 20), (0.6791, 1.0)),
    ((10, 10), (0, 10), (0.6075, 1.0)),
]
counted = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(("first", "second", "limits"), PUBLISHED)
def test_published_intervals(first, second, limits):
    assert share_change(second, first) == pytest.approx(limits, abs=5e-5)


@given(before=counted, after=counted)
def test_the_change_is_inside_and_turning_round_turns_the_interval(before, after):
    low, high = share_change(before, after)
    change = after[0] / after[1] - before[0] / before[1]
    assert -1 <= low <= change <= high <= 1
    back = share_change(after, before)
    assert (back.lower, back.upper) == pytest.approx((-high, -low), abs=1e-12)


def test_without_rows_there_is_none():
    assert share_change((0, 0), (1, 2)) is None
    assert share_change((1, 2), (0, 0)) is None
