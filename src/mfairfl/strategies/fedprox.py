"""FedProx: FedAvg with clients held near the server's weights while they train.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith: Federated Optimization in
Heterogeneous Networks. MLSys 2020.

Symbols: n_k of n rows at client k, w_t server weights, L_k client k's mean loss, μ ≥ 0 the pull.

Update: client k trains L_k(w) + (μ/2)|w − w_t|² from w_t, ends at w_k and sends g_k = w_t − w_k;
w_{t+1} = w_t − Σ_k (n_k/n) g_k. μ = 0 is FedAvg.

Deviations:
- The local optimiser is the project's shared recipe (AdamW, fresh each round), through which the
  pull's gradient μ(w − w_t) passes like any other; the paper uses SGD (`training.optimizer`).
- Everyone trains all local epochs: the paper's varying amounts of work model slow devices.
- The paper draws clients in proportion to their rows and averages uniformly; with all clients in
  every round the mean by size is its expectation. `weights = "uniform"` uses 1/K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Summary, shares
from mfairfl.training.plan import Job, Report

__all__ = ["FedProx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProx:
    """Federated averaging with a proximal term.

    Parameters
    ----------
    mu : float
        μ ≥ 0, the strength of the pull to the server's weights.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    mu: float = field(default=0.01, metadata={"grid": (0.001, 0.01, 0.1, 1.0)})
    weights: Literal["size", "uniform"] = "size"

    card: ClassVar[Card] = Card(
        title="Averaging with a proximal pull",
        paper="Li et al. 2020",
        protects="nothing",
    )

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ConfigError(f"strategy.mu must be at least 0, not {self.mu}")

    def start(self, summary: Summary) -> State:
        """FedProx remembers nothing."""
        del summary
        return {}

    def plan(
        self, state: State, context: Context, measurements: Sequence[Measurement]
    ) -> tuple[State, list[Job]]:
        """Every participant trains with the pull, from the server's weights."""
        del measurements
        pulled = replace(context.plan, proximal=self.mu)
        return state, context.jobs(pulled)

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
