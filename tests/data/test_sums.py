"""Exact sums, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.data.sums import NumericStatistics, _exact
from mfairfl.errors import DataError

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
USUAL = st.floats(min_value=-1e140, max_value=1e140)


def whole(parts):
    return sum(map(Fraction, parts), Fraction(0))


@given(st.lists(FLOATS, max_size=8))
def test_summation_ends_for_any_input(terms):
    """It gives the exact sum in few parts, or says in one line why there is none."""
    try:
        parts = _exact(terms)
    except DataError:
        assert not all(map(math.isfinite, terms)) or sum(map(abs, map(Fraction, terms))) > 2**1023
        return
    assert whole(parts) == whole(terms)
    assert len(parts) <= 40
    assert parts[:1] == ((math.fsum(terms),) if any(parts) else ())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(DataError, match="not all finite"):
        NumericStatistics(1, 0, (bad,), (1.0,)) + NumericStatistics()
    with pytest.raises(DataError, match=r"beyond what a float|not all finite"):
        NumericStatistics(1, 0, (1e308,), ()) + NumericStatistics(1, 0, (1e308, bad), ())


def test_a_sum_beyond_floats_is_refused():
    with pytest.raises(DataError, match="beyond what a float can hold"):
        NumericStatistics(1, 0, (1e308,), ()) + NumericStatistics(1, 0, (1e308,), ())


@given(st.lists(USUAL, max_size=20))
def test_the_sums_of_numbers_are_possible(numbers):
    found = NumericStatistics.of(np.array(numbers, dtype=np.float64))
    assert found.possible
    assert whole(found.total) == whole(numbers)


@pytest.mark.parametrize(
    "sums",
    [
        NumericStatistics(2, 0, (7.0,), (24.0,)),  # 3² + 4² = 25 is the least that makes 7
        NumericStatistics(2, 0, (), (-1.0,)),
        NumericStatistics(0, 5, (1.0,), (1.0,)),
        NumericStatistics(0, 5, (), (1.0,)),
    ],
)
def test_sums_that_no_numbers_have(sums):
    assert not sums.possible


@given(st.lists(FINITE, max_size=6), st.integers(0, 6))
def test_parts_do_not_depend_on_the_grouping(terms, cut):
    try:
        together = _exact(terms)
        apart = _exact((*_exact(terms[:cut]), *_exact(terms[cut:])))
    except DataError:
        return
    assert together == apart
