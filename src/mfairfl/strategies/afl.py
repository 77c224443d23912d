"""AFL: the model that is best for the worst mixture of clients.

M. Mohri, G. Sivek, A. T. Suresh: Agnostic Federated Learning. ICML 2019.

Symbols: K clients, λ on the simplex of client weights, λ_0 = 1/K; w_t server weights, L_k client
k's mean loss at w_t, g_k = w_t − w_k after local training, γ the step of λ.

Update, for min over w of max over λ of Σ λ_k L_k(w):
w_{t+1} = w_t − Σ_k λ_{t,k} g_k, then λ_{t+1} = the point of the simplex nearest to λ_t + γ L.

Deviations:
- g_k is the result of local epochs with the project's shared recipe; the paper's clients send one
  stochastic gradient.
- The paper's model is the mean of all iterates; its guarantee holds for that. Here the output rule
  decides: `last` by default, `average` for the mean of the second half of the rounds.
- Clients that did not report keep their λ; those that did share what they had, by λ among
  themselves (equally if they had nothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.geometry.min_norm import project_box_simplex
from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Summary
from mfairfl.strategies.tilting import losses
from mfairfl.training.plan import Job, Report

__all__ = ["AFL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AFL:
    """Averaging with weights that climb towards the worst mixture of clients.

    Parameters
    ----------
    gamma : float
        γ ≥ 0, the step of the clients' weights in a round.
    """

    gamma: float = field(default=1.0, metadata={"grid": (0.01, 0.1, 1.0)})

    card: ClassVar[Card] = Card(
        title="Best for the worst mix of clients",
        paper="Mohri et al. 2019",
        protects="clients",
    )

    def __post_init__(self) -> None:
        if not self.gamma >= 0:
            raise ConfigError(f"strategy.gamma must be at least 0, not {self.gamma}")

    def start(self, summary: Summary) -> State:
        """Every client with training rows starts with the same weight."""
        names = sorted(name for name, counts in summary.counts.items() if counts.sum() > 0)
        return {"clients": names, "mixture": np.full(len(names), 1 / len(names))}

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
        """Weigh those who reported by λ, then move λ."""
        del context, gram
        index = [state["clients"].index(report.client) for report in reports]
        mixture = state["mixture"].copy()
        mass = mixture[index].sum()
        present = mixture[index] / mass if mass > 0 else np.full(len(index), 1 / len(index))
        pushed = present + self.gamma * losses(measurements, reports)
        bounds = np.zeros(len(index)), np.ones(len(index))
        mixture[index] = mass * project_box_simplex(pushed - pushed.max(), *bounds)
        log = {"mixture": dict(zip(state["clients"], mixture.tolist(), strict=True))}
        return Step(coefficients=present, state={**state, "mixture": mixture}, log=log)
