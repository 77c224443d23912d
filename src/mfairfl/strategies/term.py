"""TERM: the average loss of the clients, tilted towards the worst-off.

T. Li, A. Beirami, M. Sanjabi, V. Smith: Tilted Empirical Risk Minimization. ICLR 2021.

Symbols: n_k of n rows at client k, p_k = n_k/n or 1/K; w_t server weights, L_k client k's mean
loss at w_t, g_k = w_t − w_k after local training, t ≥ 0 the tilt.

Update: w_{t+1} = w_t − Σ_k c_k g_k, c_k = p_k e^{t L_k} / Σ_j p_j e^{t L_j}: the weights of ∇L_k
in the gradient of (1/t) log Σ p_k e^{t L_k}. t = 0 is FedAvg; as t grows only the worst client
counts.

Deviations:
- The tilt is on clients, by their losses at the start of the round; rows within a client count
  alike. The paper smooths the weights over minibatches; measured losses need no smoothing.
- g_k is the result of local epochs with the project's shared recipe, not one stochastic gradient.
- Negative tilts, which ignore outliers, are refused: they would abandon the worst-off clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Summary, shares
from mfairfl.strategies.tilting import losses, tilted
from mfairfl.training.plan import Job, Report

__all__ = ["TERM"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TERM:
    """Averaging with weights that grow exponentially with the clients' losses.

    Parameters
    ----------
    t : float
        t ≥ 0; the larger, the more the worst-off clients count.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    t: float = field(default=5.0, metadata={"grid": (0.1, 1.0, 2.0, 5.0)})
    weights: Literal["size", "uniform"] = "size"

    card: ClassVar[Card] = Card(
        title="Clients count by exp of their loss",
        paper="Li et al. 2021",
        protects="clients",
    )

    def __post_init__(self) -> None:
        if not self.t >= 0:
            raise ConfigError(f"strategy.t must be at least 0, not {self.t}")

    def start(self, summary: Summary) -> State:
        """TERM remembers nothing."""
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
        """c_k ∝ p_k e^{t L_k} over those who reported."""
        del context, gram
        p = shares(measurements, reports, self.weights)
        c = tilted(p, self.t * losses(measurements, reports))
        tilt = {r.client: float(x) for r, x in zip(reports, c / p, strict=True)}
        return Step(coefficients=c, state=state, log={"tilt": tilt})
