"""Limits of a share, and tallies drawn anew: the random half of uncertainty."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm as normal

from mfairfl.fairness.rates import divide

__all__ = ["decided", "resampled", "smoothed", "wilson"]

Floats = NDArray[np.float64]


def wilson(successes: Any, trials: Any, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's lower and upper limits of a share; nan without trials.

    Examples
    --------
    >>> lower, upper = wilson(8, 10)
    >>> round(float(lower), 4), round(float(upper), 4)
    (0.4902, 0.9433)
    """
    z = float(normal.ppf(0.5 + level / 2.0))
    share, weight = divide(successes, trials), divide(z * z, trials)
    centre = (share + weight / 2.0) / (1.0 + weight)
    half = np.sqrt(share * (1.0 - share) * weight + (weight / 2.0) ** 2) / (1.0 + weight)
    # At 0 or all successes the limit is exactly 0 or 1; the subtraction rounds to 1e-17.
    lower = np.where(share == 0.0, 0.0, np.clip(centre - half, 0.0, 1.0))
    upper = np.where(share == 1.0, 1.0, np.clip(centre + half, 0.0, 1.0))
    return lower, upper


def smoothed(counts: NDArray[Any], sizes: NDArray[Any], pseudo: float) -> Floats:
    """Return counts[K, C, 2, 2] with the same rows and no rate of exactly 0 or 1.

    Parameters
    ----------
    counts
        The counts.
    sizes
        For each (client, cell, label), or broadcast to it, the rows of the smallest set that is
        compared and holds it. Each set gets at least `pseudo` rows, spread evenly over its rows.
    pseudo
        Number of added rows, half of them decided 1: z² as at the centre of Wilson's interval.

    Examples
    --------
    >>> smoothed(np.array([[[[4, 0], [1, 1]]]]), np.array([[[4, 2]]]), 1.0).tolist()
    [[[[3.6, 0.4], [1.0, 1.0]]]]
    """
    table = counts.astype(np.float64)
    rows = table.sum(axis=-1, keepdims=True)
    size = np.asarray(sizes, dtype=np.float64)[..., None]
    smooth: Floats = (table * size + 0.5 * pseudo * rows) / (size + pseudo)
    return smooth


def resampled(counts: Floats, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return (draws, K, C, 2, 2): each client's rows drawn anew from its own shares."""
    flat = counts.reshape(len(counts), math.prod(counts.shape[1:]))
    total = flat.sum(axis=1, keepdims=True)
    # A client without rows draws 0 rows whatever its shares; any valid shares do.
    shares = np.where(total > 0, flat / np.where(total > 0, total, 1.0), 1.0 / flat.shape[1])
    rows = np.rint(total[:, 0]).astype(np.int64)
    drawn = rng.multinomial(rows, shares, size=(draws, len(rows)))
    return drawn.reshape(draws, *counts.shape)


def decided(
    rows: NDArray[np.int64], rates: Floats, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return (draws, K, C, 2, 2) counts with decisions drawn at P(ŷ=1 | y) = rates[y]."""
    positives = rng.binomial(rows, rates, size=(draws, *rows.shape))
    return np.stack([rows - positives, positives], axis=-1)
