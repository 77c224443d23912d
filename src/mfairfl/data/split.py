"""Split a client's rows into train, validation and test, and train rows into folds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["hold_out", "split_rows"]


def split_rows(
    strata: npt.NDArray[np.int64], *, test: float, validation: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Split positions 0..n-1 into train, validation and test, alike in every stratum.

    Sizes of test and validation are the shares of n, rounded, spread over the strata by largest
    remainders. Train keeps at least one row of each stratum, so a single row stays in train.

    Examples
    --------
    >>> from mfairfl.randomness import stream
    >>> parts = split_rows(np.array([0] * 8 + [1] * 2), test=.2, validation=0, rng=stream(0))
    >>> [len(part) for part in parts]
    [8, 0, 2]
    """
    _, codes, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    n = len(strata)
    out = _apportion(int(np.floor(n * test + 0.5)), sizes)
    held = _apportion(int(np.floor(n * validation + 0.5)), sizes - out)
    # Shuffle, then bring each stratum together: the first of each go to test, then validation.
    shuffled = rng.permutation(n)
    order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    rank = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    to_test = rank < np.repeat(out, sizes)
    to_validation = ~to_test & (rank < np.repeat(out + held, sizes))
    to_train = ~to_test & ~to_validation
    return np.sort(order[to_train]), np.sort(order[to_validation]), np.sort(order[to_test])


def hold_out(
    strata: npt.NDArray[np.int64], *, fold: int, folds: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Split positions 0..n-1 into those kept and fold number `fold`, alike in every stratum.

    With the same stream, the folds 0 … folds − 1 are disjoint and cover every row.

    Examples
    --------
    >>> from mfairfl.randomness import stream
    >>> kept, held = hold_out(np.array([0] * 6 + [1] * 3), fold=0, folds=3, rng=stream(0))
    >>> len(kept), held.tolist()
    (6, [2, 4, 8])
    """
    shuffled = rng.permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    # Counted on from stratum to stratum: folds differ by one row at most, in all and in each.
    chosen = np.arange(len(strata)) % folds == fold
    return np.sort(order[~chosen]), np.sort(order[chosen])


def _apportion(seats: int, sizes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Spread `seats` over strata in proportion to size, leaving at least one row in each."""
    room = np.maximum(sizes - 1, 0)
    weights = np.where(room > 0, sizes, 0)
    seats = min(seats, int(room.sum()))
    quotas = seats * weights / max(int(weights.sum()), 1)
    given: npt.NDArray[np.intp] = np.minimum(np.floor(quotas).astype(np.intp), room)
    while (left := seats - int(given.sum())) > 0:
        # Ties go to the first stratum; a full one is passed over.
        rest = np.where(given < room, quotas - given, -np.inf)
        order = np.argsort(-rest, kind="stable")[:left]
        given[order[rest[order] > -np.inf]] += 1
    return given
