"""The oracle on examples worked out by hand, and against plain fractions."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from row_span import indicators, min_support_below, rank


def coded(*sizes):
    """A partition of so many rows each."""
    return np.repeat(np.arange(len(sizes)), sizes)


def test_one_partition_is_as_safe_as_its_smallest_set():
    assert min_support_below([coded(4, 5, 6)], 4) is None
    assert min_support_below([coded(4, 3, 6)], 4) == (4, 5, 6)
    assert min_support_below([], 4) is None
    assert min_support_below([[-1] * 9], 4) is None


def test_a_country_less_its_cities_is_who_lives_in_none():
    country = [0] * 10 + [1] * 6
    city = [0] * 5 + [1] * 4 + [-1] + [2] * 6
    assert min_support_below([country], 4) is None
    assert min_support_below([city], 4) is None
    assert min_support_below([country, city], 2) == (9,)


def test_two_columns_whose_sets_differ_in_one_row():
    first, second = coded(6, 6), coded(7, 5)
    assert min_support_below([first, second], 4) == (6,)
    # Neither is a partition of all: nothing else tells that the sets nest.
    assert min_support_below([[0] * 6 + [-1] * 6, [0] * 7 + [-1] * 5], 2) == (6,)


def test_independent_columns_of_large_overlaps_are_safe():
    a, b = np.repeat([0, 1], 8), np.tile(np.repeat([0, 1], 4), 2)
    assert min_support_below([a, b], 5) is None


def test_three_columns_like_a_parity():
    """Any two of the columns are safe; all three tell one combination apart."""
    cells = [cell for cell in itertools.product([0, 1], repeat=3) if sum(cell) % 2 == 0]
    columns = list(np.repeat(cells, 2, axis=0).T)
    for two in itertools.combinations(columns, 2):
        assert min_support_below(two, 3) is None
    # The rows with a 1 in each column are twice all rows that are not 0, 0, 0.
    assert min_support_below(columns, 3) == (0, 1)
    full = np.repeat(list(itertools.product([0, 1], repeat=3)), 2, axis=0)
    assert min_support_below(list(full.T), 4) is None


def test_a_support_of_several_kinds_is_found():
    """Two rows in different sets that only a difference of totals singles out together."""
    everyone, most = [0] * 12, [0] * 5 + [-1] + [0] * 5 + [-1]
    halves = coded(6, 6)
    assert min_support_below([everyone, most], 3) == (5, 11)
    assert min_support_below([everyone, most], 2) is None
    assert min_support_below([halves, most], 3) == (5, 11)


def plainly(partitions, m):
    """The definition with fractions, every T of fewer than m rows."""
    sets = indicators(partitions)
    whole = fraction_rank(sets)
    rows = sets.shape[1]
    return any(
        fraction_rank(np.delete(sets, chosen, axis=1)) < whole
        for count in range(1, m)
        for chosen in itertools.combinations(range(rows), count)
    )


def fraction_rank(matrix):
    left = [[Fraction(int(x)) for x in row] for row in matrix]
    done = 0
    for column in range(matrix.shape[1]):
        pivot = next((i for i in range(done, len(left)) if left[i][column]), None)
        if pivot is None:
            continue
        left[done], left[pivot] = left[pivot], left[done]
        for i in range(done + 1, len(left)):
            factor = left[i][column] / left[done][column]
            left[i] = [a - factor * b for a, b in zip(left[i], left[done], strict=True)]
        done += 1
    return done


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(4, 9).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-1, 2), min_size=n, max_size=n), min_size=1, max_size=4
        )
    ),
    st.sampled_from([2, 3, 4]),
)
def test_it_agrees_with_the_definition(partitions, m):
    found = min_support_below(partitions, m)
    sets = indicators(partitions)
    assert (found is not None) == (bool(sets.size) and plainly(partitions, m))
    assert rank(sets) == (fraction_rank(sets) if sets.size else 0)


@pytest.mark.parametrize("m", [2, 3])
def test_the_rows_that_it_names_are_isolated(m):
    rng = np.random.default_rng(m)
    named = 0
    for _ in range(40):
        partitions = rng.integers(-1, 3, (3, 14))
        found = min_support_below(partitions, m)
        if found is not None:
            named += 1
            sets = indicators(partitions)
            assert rank(np.delete(sets, found, axis=1)) < rank(sets)
            assert len(found) < m
    assert named
