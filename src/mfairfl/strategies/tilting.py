"""Weights tilted by an exponent each (DRFL, TERM)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["tilted"]

Floats = NDArray[np.float64]


def tilted(p: Floats, exponents: Floats) -> Floats:
    """Return p_k e^{x_k} / Σ_j p_j e^{x_j}; p itself, to the bit, where all exponents are equal.

    The largest exponent is subtracted first, so nothing overflows and the sum is never 0.

    Examples
    --------
    >>> tilted(np.array([0.5, 0.5]), np.array([1000.0, 1000.0 + np.log(3)])).round(12).tolist()
    [0.25, 0.75]
    """
    below = exponents - exponents.max()
    if not below.any():
        return p
    raw = p * np.exp(below)
    return np.asarray(raw / raw.sum())
