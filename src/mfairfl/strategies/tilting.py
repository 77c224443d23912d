"""Averages tilted by the clients' losses: what DRFL and TERM share.

c_k = p_k e^{x_k} / Σ_j p_j e^{x_j}, with an exponent x_k of each client's loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mfairfl.strategies.base import Gram, Round, State, Step, Strategy, Weights, by_client
from mfairfl.training.plan import Report

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tilted(Strategy):
    """An average in which a client counts by an exponent of its loss.

    Parameters
    ----------
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    weights: Weights = "size"

    def exponents(self, losses: Floats) -> Floats:
        """Return x_k of the clients' losses L_k."""
        raise NotImplementedError

    def combine(self, state: State, round: Round, reports: Sequence[Report], gram: Gram) -> Step:
        """c_k ∝ p_k e^{x_k} over those who reported."""
        p = round.shares(reports, self.weights)
        c = tilted(p, self.exponents(round.losses(reports)))
        return Step(c, log={"tilt": by_client(reports, c / p)})


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
