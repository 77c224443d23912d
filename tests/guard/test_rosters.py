"""Which sums over silos tell one or two of them apart: against ranks by brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.guard.rosters import isolated_silos

NAMES = "abcdefgh"


def rank(rows):
    """Plain Gaussian elimination in fractions."""
    rows, found = [list(map(Fraction, row)) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        below = [i for i in range(found, len(rows)) if rows[i][column]]
        if not below:
            continue
        rows[found], rows[below[0]] = rows[below[0]], rows[found]
        for i in range(found + 1, len(rows)):
            times = rows[i][column] / rows[found][column]
            rows[i] = [a - times * b for a, b in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def tells_apart(rosters, few):
    """Whether a combination is 0 outside `few`, and not 0: outside them the rank is lower."""
    every = [[int(name in roster) for name in NAMES] for roster in rosters]
    outside = [[int(n in roster) for n in NAMES if n not in few] for roster in rosters]
    return rank(outside) < rank(every)


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=7))
@settings(max_examples=400, deadline=None)
def test_agrees_with_ranks_by_brute_force(rosters):
    found = isolated_silos(rosters)
    bad = [
        few for size in (1, 2) for few in combinations(NAMES, size) if tells_apart(rosters, few)
    ]
    assert bool(found) == bool(bad)
    if found:
        assert tells_apart(rosters, found)
        assert tells_apart(rosters, found[:1]) or len(found) == 2


@pytest.mark.parametrize(
    ("rosters", "found"),
    [
        (["abc"], ()),
        (["abc", "abc"], ()),
        (["ab"], ("a", "b")),
        (["abcd", "abc"], ("d",)),
        (["abcde", "abc"], ("d", "e")),
        (["abcdef", "abc"], ()),
        (["abc", "cde", "abde"], ("a", "b")),  # half of abc − cde + abde
        (["abc", "bcd", "cda", "dab"], ("a",)),  # any two of them differ by two
        (["abcd", "efgh"], ()),
        (["abcd", "cdef", "efab"], ("a", "b")),
    ],
)
def test_known_combinations(rosters, found):
    assert isolated_silos(rosters) == found
