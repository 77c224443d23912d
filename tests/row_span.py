"""The exact oracle behind the silo's floor: can sums over told sets isolate a few rows?

The silo's own test is a sufficient condition in floating point. This one is the definition, by
integer arithmetic and brute force, and only for small tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

_PRIME = 2_147_483_629  # below 2³¹: products of two remainders fit an int64


def indicators(partitions: Iterable[Sequence[int]]) -> np.ndarray:
    """Return a 0/1 row for each set of each partition; -1 is no set."""
    found = []
    for codes in partitions:
        held = np.asarray(codes, dtype=np.int64)
        found += [(held == code).astype(np.int64) for code in np.unique(held[held >= 0])]
    rows = len(found[0]) if found else 0
    return np.array(found, dtype=np.int64).reshape(len(found), rows)


def reduced(matrix: np.ndarray) -> np.ndarray:
    """Return the reduced row echelon form modulo a prime, without rows of zeros.

    It is the rank over the rationals unless the prime divides a determinant that decides it, for
    which a random matrix has a chance of 5e-10; the tests compare it with fractions.
    """
    left = matrix % _PRIME
    done = 0
    for column in range(left.shape[1]):
        places = np.flatnonzero(left[done:, column])
        if not len(places):
            continue
        pivot = done + int(places[0])
        left[[done, pivot]] = left[[pivot, done]]
        left[done] = left[done] * pow(int(left[done, column]), -1, _PRIME) % _PRIME
        others = np.flatnonzero(left[:, column])
        others = others[others != done]
        left[others] = (left[others] - left[others, column, None] * left[done]) % _PRIME
        done += 1
        if done == len(left):
            break
    return left[:done]


def rank(matrix: np.ndarray) -> int:
    """Return the rank of an integer matrix."""
    return len(reduced(matrix)) if matrix.size else 0


def min_support_below(partitions: Iterable[Sequence[int]], m: int) -> tuple[int, ...] | None:
    """Return rows, fewer than `m`, that some combination of the told sets is about alone.

    There is one on the rows T if and only if the sets, restricted to the other rows, have a lower
    rank. None if there is no such T.
    """
    sets = reduced(indicators(partitions))
    if not len(sets):
        return None
    rows = sets.shape[1]
    # Rows in the same sets are alike: one is as good as another, so many of each are enough.
    kinds: dict[bytes, list[int]] = {}
    for row in range(rows):
        if sets[:, row].any():
            kinds.setdefault(sets[:, row].tobytes(), []).append(row)
    # A combination that is not 0 on one row of a kind is not 0 on any: all of them must be in T.
    small = [kind for kind in kinds.values() if len(kind) < m]
    for count in range(1, m):
        for chosen in itertools.combinations(small, count):
            support = sorted(itertools.chain.from_iterable(chosen))
            if len(support) < m and rank(np.delete(sets, support, axis=1)) < len(sets):
                return tuple(support)
    return None
