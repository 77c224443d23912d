"""The Gram matrix of client updates, and their weighted sum: the two times a server reads them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from mfairfl.errors import DataError

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
    # A tenth of a percent: whatever rounds so badly is not a Gram matrix.
    apart = np.abs(M - M.T) > 1e-3 * np.outer(length, length)
    _refuse("gram", M, apart, "a Gram matrix is symmetric")
    return M


def checked_goals(goals: ArrayLike | None, count: int) -> Floats:
    """Return the goals of all pairs, 0 where none are given."""
    if goals is None:
        return np.zeros((count, count))
    values = checked("goals", goals, (count, count))
    _refuse("goals", values, np.abs(values) > 1, "averages of cosines lie in [−1, 1]")
    return values


def checked_weights(weights: ArrayLike | None, count: int) -> Floats:
    """Return the weights of the clients, 1/K where none are given."""
    if weights is None:
        return np.full(count, 1 / count)
    values = checked("weights", weights, (count,))
    _refuse("weights", values, values < 0, "a weight is not negative")
    return values


def _refuse(name: str, array: Floats, wrong: NDArray[np.bool_], fix: str) -> None:
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        raise DataError(f"{name}[{', '.join(map(str, at))}] is {array[at]}; {fix}")


# Columns multiplied at once. Long enough for BLAS, short enough to stay in the cache and to keep
# the rounding of a float32 block small.
_BLOCK = 16384

Updates = Sequence[ArrayLike] | np.ndarray
Rows = list[np.ndarray] | np.ndarray


def gram_matrix(updates: Updates) -> NDArray[np.float64]:
    """Return M = G Gᵀ of the rows of `updates`.

    Blocks of columns are multiplied in the updates' own precision and added up in float64. For
    float32 updates the error of M_ij is at most 2¹⁴ · 2⁻²⁴ |g_i||g_j|, whatever the order of
    summation, and about 1e-6 |g_i||g_j| or less in practice. No updates give a (0, 0) matrix.

    Parameters
    ----------
    updates : array (K, m), or sequence of K arrays (m,)
        float32 stays float32; anything else is computed in float64. Only a block is copied.

    Examples
    --------
    >>> gram_matrix([[3.0, 4.0], [1.0, 0.0]]).tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    """
    rows = _rows(updates)
    if {row.dtype for row in rows} != {np.dtype(np.float32)}:
        return _product(rows, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        total = _product(rows, np.float32)
    # Squares of float32 numbers may leave its range at either end: below 1e-38 they lose digits
    # and end as 0, above 1e38 they are infinite.
    squares = np.diag(total)
    least = 1e-30 * len(rows[0])
    return total if ((least < squares) & (squares < np.inf)).all() else _product(rows, np.float64)


def weighted_sum(updates: Updates, coefficients: ArrayLike) -> NDArray[np.float64]:
    """Return Σ c_k g_k in float64, added in the order of the rows; no updates give no numbers.

    Number by number rather than by BLAS, whose order of summation is its own: a server's step must
    not depend on where its operands lie in memory.

    Examples
    --------
    >>> weighted_sum([[3.0, 4.0], [1.0, 0.0]], [0.5, 2.0]).tolist()
    [3.5, 2.0]
    """
    rows = _rows(updates)
    c = np.asarray(coefficients, dtype=np.float64)
    if c.shape != (len(rows),):
        raise DataError(f"coefficients of shape {c.shape} for {len(rows)} updates: give one each")
    total, scratch = np.zeros(_width(rows)), np.empty(_BLOCK)
    for part in _parts(_width(rows)):
        block = total[part]
        term = scratch[: len(block)]
        for coefficient, row in zip(c, rows, strict=True):
            np.copyto(term, row[part])
            term *= coefficient
            block += term
    return total


def _rows(updates: Updates) -> Rows:
    if isinstance(updates, np.ndarray) and updates.ndim == 2:
        return updates
    rows = [np.asarray(row) for row in updates]
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise DataError(f"updates of shapes {shapes}: give flat vectors of one length")
    return rows


def _width(rows: Rows) -> int:
    return len(rows[0]) if len(rows) else 0


def _parts(width: int) -> list[slice]:
    return [slice(at, min(at + _BLOCK, width)) for at in range(0, width, _BLOCK)]


def _blocks(rows: Rows, dtype: DTypeLike) -> Iterator[np.ndarray]:
    """Yield blocks of columns; a block that had to be copied is overwritten by the next."""
    parts = _parts(_width(rows))
    if isinstance(rows, np.ndarray) and rows.dtype == dtype:
        yield from (rows[:, part] for part in parts)
        return
    copy = np.empty(len(rows) * min(_BLOCK, _width(rows)), dtype=dtype)
    for part in parts:
        block = copy[: len(rows) * (part.stop - part.start)]
        np.concatenate([row[part] for row in rows], out=block)
        yield block.reshape(len(rows), -1)


def _product(rows: Rows, dtype: DTypeLike) -> NDArray[np.float64]:
    total = np.zeros((len(rows), len(rows)))
    for block in _blocks(rows, dtype):
        total += block @ block.T  # numpy sees the symmetry and calls BLAS's rank-k update
    return (total + total.T) / 2  # symmetric to the last bit with any BLAS
