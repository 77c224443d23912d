"""Which small cells a client hides (complementary suppression)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError

__all__ = ["hidden_cells"]


def hidden_cells(
    rows: NDArray[np.int64], names: Sequence[tuple[str, ...]], minimum: int
) -> NDArray[np.bool_]:
    """Return which (cell, label) entries of one client's (C, 2) table are hidden.

    A single hidden cell is the total minus the rest, so the smallest other cells are hidden with
    it until `minimum` rows, and so at least two cells, are; ties go by the cells' names, never by
    their order in a file.

    Examples
    --------
    >>> hidden_cells(np.array([[40, 3], [12, 30]]), [("F",), ("M",)], 10).tolist()
    [[False, True], [True, False]]
    """
    if minimum < 1:
        raise ConfigError(f"minimum = {minimum} rows a cell; use 1 (hide nothing) or more")
    hidden = np.zeros(rows.shape, dtype=bool)
    if rows.sum() < minimum:
        return ~hidden
    by_size = sorted(
        (int(rows[cell, label]), names[cell], label, cell)
        for cell, label in zip(*np.nonzero(rows), strict=True)
    )
    if by_size[0][0] >= minimum:
        return hidden
    total = 0
    for size, _, label, cell in by_size:
        if size >= minimum and total >= minimum:
            break
        hidden[cell, label] = True
        total += size
    return hidden
