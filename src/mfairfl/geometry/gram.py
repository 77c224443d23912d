"""The Gram matrix of client updates: all a server rule needs to know about directions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import DataError

__all__ = ["gram_matrix"]

_BLOCK = 1 << 16


def gram_matrix(updates: Sequence[np.ndarray] | np.ndarray) -> NDArray[np.float64]:
    """Return M = G Gᵀ of the rows of `updates`, accumulated in float64 block by block.

    Only a block of columns is ever held in double precision. No updates give a (0, 0) matrix.

    Examples
    --------
    >>> gram_matrix([[3.0, 4.0], [1.0, 0.0]]).tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    """
    rows = [np.asarray(row) for row in updates]
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise DataError(f"updates of shapes {shapes}: give flat vectors of one length")
    total = np.zeros((len(rows), len(rows)))
    width = len(rows[0]) if rows else 0
    for at in range(0, width, _BLOCK):
        block = np.stack([row[at : at + _BLOCK] for row in rows]).astype(np.float64)
        total += block @ block.T
    return (total + total.T) / 2
