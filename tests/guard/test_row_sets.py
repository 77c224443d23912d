"""Which sets of rows may be told about: checked by brute force over all small sets of rows."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.guard.row_sets import NOWHERE, RowClasses, RowSets, admit


def rank(matrix):
    """The rank in exact arithmetic."""
    rows = [[Fraction(int(x)) for x in row] for row in matrix]
    found = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for r in range(found + 1, len(rows)):
            if rows[r][column]:
                factor = rows[r][column] / rows[found][column]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[found], strict=True)]
        found += 1
    return found


def isolated(sets, floor):
    """Return a set of fewer than `floor` rows that a combination of the sets isolates, if any.

    Without the rows of such a set the remaining ones tell less: the rank drops.
    """
    columns = [codes == c for codes in sets.partitions for c in range(codes.max(initial=-1) + 1)]
    if not columns:
        return None
    matrix = np.stack(columns, axis=1).astype(int)
    full = rank(matrix)
    for size in range(1, floor):
        for some in combinations(range(sets.rows), size):
            if rank(np.delete(matrix, some, axis=0)) < full:
                return some
    return None


def codes(*sizes):
    return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def whole(classes, what="levels", ordered=False):
    return RowClasses(
        what, np.zeros(len(classes), np.int32), np.asarray(classes, np.int32), ordered
    )


def test_a_set_is_isolated_if_it_has_few_rows():
    assert RowSets(20, (codes(9, 11),)).exposed(10).tolist() == [True] * 9 + [False] * 11
    assert not RowSets(20, (codes(10, 10),)).exposed(10).any()


def test_two_large_sets_that_differ_in_one_row_isolate_it():
    first, second = np.full((2, 60), NOWHERE, np.int32)
    first[:30], second[:31] = 0, 0
    assert not RowSets(60, (first,)).exposed(10).any()
    assert np.flatnonzero(RowSets(60, (first, second)).exposed(10)).tolist() == [30]


def test_three_columns_can_isolate_what_no_two_do():
    # x = a + b - c is 1 in one row and 0 in all others; each two of them are far apart.
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 80))
    a[(a == 1) & (b == 1)] = 0
    c = a + b
    c[7] = 1 - c[7]
    pairs = [RowSets(80, tuple(np.int32(x) for x in two)) for two in ((a, b), (a, c), (b, c))]
    assert not any(pair.exposed(5).any() for pair in pairs)
    found = RowSets(80, tuple(np.int32(x) for x in (a, b, c)))
    assert found.exposed(5)[7]
    assert isolated(RowSets(80, found.partitions), 2) == (7,)


def test_no_floor_exposes_nobody():
    assert not RowSets(3, (codes(1, 1, 1),)).exposed(1).any()


def test_small_levels_are_told_together_and_with_the_next_if_they_are_too_few():
    assert admit(RowSets(45), [whole(codes(20, 3, 10, 12))], 10)[0].tolist() == [0, -1, -1, 3]


def test_a_level_is_told_in_both_parts_or_in_none():
    levels = whole(codes(40, 30, 30))
    levels.parts[:] = 0
    levels.parts[[*range(20), *range(40, 55), *range(70, 73)]] = 1  # 20, 15 and 3 rows
    groups = admit(RowSets(100), [levels], 10)[0]
    assert groups.tolist() == [0, -1, -1]  # the third is too small in part 1, the second helps


def test_a_small_bin_is_told_with_its_smaller_neighbour():
    groups = admit(RowSets(67), [whole(codes(20, 15, 2, 30), ordered=True)], 10)[0]
    assert groups.tolist() == [0, 1, 1, 2]


def test_what_was_told_before_counts():
    country = codes(100)
    city = whole(np.repeat([0, 1, 2], [50, 45, 5]))
    alone = admit(RowSets(100), [city], 10)[0]
    assert alone.tolist() == [0, -1, -1]
    first = np.full(100, NOWHERE, np.int32)
    first[:96] = 0  # 96 rows were told: of the rest, 4, nothing more may follow
    assert admit(RowSets(100, (first,)), [RowClasses("all", country, country)], 10) is None


tables = st.integers(12, 22).flatmap(
    lambda n: st.lists(
        st.tuples(
            st.booleans(),
            st.lists(st.integers(0, 4), min_size=n, max_size=n),
            st.lists(st.sampled_from([0, 0, 0, 1]), min_size=n, max_size=n),
        ),
        min_size=1,
        max_size=4,
    )
)


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(2, 3), st.booleans())
def test_whatever_is_admitted_isolates_no_few_rows(columns, floor, one_by_one):
    n = len(columns[0][1])
    parts = np.array(columns[0][2], np.int32)
    if min(np.bincount(parts, minlength=2)[1], 1) and np.bincount(parts)[-1] < floor:
        parts[:] = 0
    sets = RowSets(n, (parts,))
    candidates = [
        RowClasses(f"{i}", parts, np.array(classes, np.int32), ordered)
        for i, (ordered, classes, _) in enumerate(columns)
    ]
    if sets.exposed(floor).any():
        return
    for some in [[c] for c in candidates] if one_by_one else [candidates]:
        groups = admit(sets, some, floor)
        assert groups is not None
        for candidate, group in zip(some, groups, strict=True):
            told = np.where(group == NOWHERE, 99, group)[candidate.classes]
            sets += [np.unique(100 * parts + told, return_inverse=True)[1].astype(np.int32)]
    assert isolated(sets, floor) is None


@pytest.mark.parametrize("floor", [5, 10])
def test_leverages_are_those_of_the_hat_matrix(floor):
    rng = np.random.default_rng(1)
    partitions = tuple(rng.integers(-1, 4, 50).astype(np.int32) for _ in range(3))
    sets = RowSets(50, partitions)
    x = np.stack([c == k for c in partitions for k in range(4)], axis=1).astype(float)
    hat = x @ np.linalg.pinv(x)
    assert sets._leverages() == pytest.approx(np.diag(hat))
    assert sets._projection(7) == pytest.approx(hat[7])
    large = np.sort(np.abs(hat), axis=1)[:, -(floor - 1) :].sum(axis=1)
    expected = (np.diag(hat) >= 1 / (floor - 1)) & (large >= 1)
    assert sets.exposed(floor).tolist() == expected.tolist()
