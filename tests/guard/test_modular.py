"""Numbers modulo 2^64: sums come out exactly, whatever the order and the sign."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import one_line
from mfairfl.data.sums import NumericStatistics
from mfairfl.errors import MessageError
from mfairfl.guard.modular import (
    LIMBS,
    UNIT,
    exact_sum,
    fixed_words,
    float_parts,
    from_fixed,
    from_whole,
    limbs_of,
    whole_words,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20))
def test_counts_add_up_bit_for_bit(numbers):
    words = sum((whole_words(np.array([n])) for n in numbers), np.zeros(1, np.uint64))
    assert from_whole(words).tolist() == [sum(numbers)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_fixed_point_sums_are_off_by_half_a_unit_each_at_most(numbers):
    words = sum((fixed_words(np.array([n]), 20) for n in numbers), np.zeros(1, np.uint64))
    exact = sum(map(Fraction, numbers), Fraction(0))
    assert abs(Fraction(float(from_fixed(words)[0])) - exact) <= Fraction(UNIT) * len(numbers) / 2


@given(st.lists(st.lists(FINITE, max_size=4), min_size=1, max_size=10))
def test_exact_sums_are_exact(silos):
    words = sum((limbs_of(parts) for parts in silos), np.zeros(LIMBS, np.uint64))
    assert exact_sum(words) == sum((Fraction(x) for parts in silos for x in parts), Fraction(0))


def test_exact_sums_of_as_many_silos_as_there_can_be_do_not_overflow():
    """The limbs of 2³¹ silos that all hold the same numbers, multiplied instead of added."""
    many = 2**31
    for x in (math.nextafter(math.inf, 0), -math.nextafter(math.inf, 0), -5e-324, 1.5):
        words = [int(limb) * many for limb in limbs_of([x]).tolist()]
        assert max(words) < 2**64
        assert exact_sum(np.array(words, np.uint64)) == Fraction(x) * many


def test_an_exact_sum_is_that_of_the_encoder_s_statistics():
    rng = np.random.default_rng(0)
    silos = [NumericStatistics.of(rng.normal(scale=10.0**k, size=30)) for k in (-60, 0, 60)]
    whole = silos[0] + silos[1] + silos[2]
    for name in ("total", "squares"):
        words = np.sum([limbs_of(getattr(one, name)) for one in silos], axis=0, dtype=np.uint64)
        assert float_parts(exact_sum(words)) == getattr(whole, name)  # bit for bit


@pytest.mark.parametrize("bad", [0.5, math.nan, math.inf, 1e300])
def test_what_is_no_count_is_not_masked(bad):
    with pytest.raises(MessageError) as caught:
        whole_words(np.array([1.0, bad]))
    assert one_line(caught) == "a count is not a whole number: it cannot be masked"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**32, -(2.0**40)])
def test_numbers_without_a_place_are_not_masked(bad):
    with pytest.raises(MessageError) as caught:
        fixed_words(np.array([1.0, bad]), 2)
    assert one_line(caught) == "a number is not finite, or too large to be masked"


def test_no_sum_of_fixed_point_numbers_wraps_around():
    for silos in (2, 3, 500):
        largest = np.nextafter(2.0**33 / silos, 0)
        for sign in (1, -1):
            words = fixed_words(np.array([sign * largest]), silos) * np.uint64(silos)
            assert from_fixed(words)[0] == pytest.approx(sign * largest * silos, rel=1e-9)
        with pytest.raises(MessageError, match="too large to be masked"):
            fixed_words(np.array([2.0**33 / silos]), silos)
