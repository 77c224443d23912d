"""How far a fairness multiplier steps: less where its gap went back and forth."""

from __future__ import annotations

import numpy as np

__all__ = ["adapted"]

_GROWTH = 1.2  # Rprop's factors are ½ and 1.2 (Riedmiller & Braun, 1993)


def adapted(gain: np.ndarray, gaps: np.ndarray, before: np.ndarray, shrink: float) -> np.ndarray:
    """Return each multiplier's gain: smaller where its gap changed sign, else larger, at most 1.

    A thresholded rate may jump when a price crosses a cliff; a fixed step then goes back and forth
    over it for ever.

    Examples
    --------
    >>> adapted(np.array([1.0, 0.5]), np.array([0.1, 0.1]), np.array([-0.1, 0.2]), 0.5).tolist()
    [0.5, 0.6]
    """
    return np.where(gaps * before < 0, gain * shrink, np.minimum(1.0, gain * _GROWTH))
