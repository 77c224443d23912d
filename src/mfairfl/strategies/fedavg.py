"""FedAvg: local training, then the size-weighted mean of the clients' models.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017.

Symbols: K clients, n_k rows at client k, n = Σ n_k, w_t server weights, w_k client k's weights
after E local epochs from w_t, g_k = w_t − w_k.

Update: w_{t+1} = Σ_k (n_k/n) w_k = w_t − Σ_k (n_k/n) g_k.

Deviations: the local optimiser is the project's shared recipe (AdamW, fresh each round), as for
every method; the paper uses SGD (`training.optimizer = "sgd"`). `weights = "uniform"` uses 1/K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Summary, shares
from mfairfl.training.plan import Job, Report

__all__ = ["FedAvg"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvg:
    """Size-weighted (or uniform) federated averaging.

    Parameters
    ----------
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    weights: Literal["size", "uniform"] = "size"

    card: ClassVar[Card] = Card(
        title="Federated averaging",
        paper="McMahan et al. 2017",
        protects="nothing",
    )

    def start(self, summary: Summary) -> State:
        """FedAvg remembers nothing."""
        del summary
        return {}

    def plan(
        self, state: State, context: Context, measurements: Sequence[Measurement]
    ) -> tuple[State, list[Job]]:
        """Every participant trains the plain plan from the server's weights."""
        del measurements
        return state, context.jobs()

    def combine(
        self,
        state: State,
        context: Context,
        measurements: Sequence[Measurement],
        reports: Sequence[Report],
        gram: NDArray[np.float64] | None,
    ) -> Step:
        """c_k = n_k/n over those who reported."""
        del context, gram
        return Step(coefficients=shares(measurements, reports, self.weights), state=state)
