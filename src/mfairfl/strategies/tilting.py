"""Losses of the clients who reported, and weights tilted by an exponent each (DRFL, TERM)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mfairfl.strategies.base import Measurement
from mfairfl.training.plan import Report

__all__ = ["losses", "tilted"]

Floats = NDArray[np.float64]


def losses(measurements: Sequence[Measurement], reports: Sequence[Report]) -> Floats:
    """Return L_k(w_t) of the clients who reported."""
    known = {m.client: m.loss for m in measurements}
    return np.array([known[report.client] for report in reports])


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
