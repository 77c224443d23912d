"""Arrays handed to the geometry; what cannot be what it is called is refused in one line."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mfairfl.errors import DataError

__all__ = ["checked", "checked_goals", "checked_gram", "checked_weights"]

Floats = NDArray[np.float64]


def checked(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return finite float64 numbers of the given shape."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise DataError(f"{name}: shape {array.shape}; expected {shape}")
    _refuse(name, array, ~np.isfinite(array), "expected a finite number")
    return array


def checked_gram(gram: ArrayLike) -> Floats:
    """Return a symmetric matrix whose diagonal may hold squared lengths."""
    count = max(1, np.shape(gram)[0]) if np.ndim(gram) else 1
    M = checked("gram", gram, (count, count))
    negative = np.diag(np.diag(M) < 0)
    _refuse("gram", M, negative, "a squared length is not negative")
    length = np.sqrt(np.diag(M))
    # A tenth of a percent: whatever rounds so badly is no Gram matrix.
    apart = np.abs(M - M.T) > 1e-3 * np.outer(length, length)
    _refuse("gram", M, apart, "a Gram matrix is symmetric")
    return M


def checked_goals(goals: ArrayLike | None, count: int) -> Floats:
    """Return the goals of all pairs, 0 where none are given."""
    if goals is None:
        return np.zeros((count, count))
    found = checked("goals", goals, (count, count))
    _refuse("goals", found, np.abs(found) > 1, "averages of cosines lie in [−1, 1]")
    return found


def checked_weights(weights: ArrayLike | None, count: int) -> Floats:
    """Return the weights of the clients, 1/K where none are given."""
    if weights is None:
        return np.full(count, 1 / count)
    found = checked("weights", weights, (count,))
    _refuse("weights", found, found < 0, "a weight is not negative")
    return found


def _refuse(name: str, array: Floats, wrong: NDArray[np.bool_], fix: str) -> None:
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        raise DataError(f"{name}[{', '.join(map(str, at))}] is {array[at]}; {fix}")
