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

from dataclasses import dataclass

import numpy as np

from mfairfl.geometry.gram import Floats
from mfairfl.strategies import base
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, parameter
from mfairfl.training.plan import Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Tilted(Strategy):
    """An average in which a client counts by an exponent of its loss.

    Parameters
    ----------
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    weights: base.Weights = "size"

    def exponents(self, losses: Floats) -> Floats:
        """Return x_k of the clients' losses L_k."""
        raise NotImplementedError

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """c_k ∝ p_k e^{x_k} over the clients that reported."""
        p = round.shares(reports, self.weights)
        x = self.exponents(round.losses(reports))
        x = x - x.max()  # nothing overflows, and the sum is never 0
        raw = p * np.exp(x)
        c = raw / raw.sum() if x.any() else p  # p itself, to the bit, where all count alike
        return Step(c, log={"tilt": base.by_client(reports, c / p)})


@dataclass(frozen=True, slots=True, kw_only=True)
class TERM(Tilted):
    """Averaging with weights that grow exponentially with the clients' losses.

    Parameters
    ----------
    t : float
        t ≥ 0; the larger, the more the worst-off clients count.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    t: float = parameter(5.0, grid=(0.1, 1.0, 2.0, 5.0), least=0)

    card = Card(
        title="Clients count by exp of their loss",
        paper="Li et al. 2021",
        protects="clients",
    )

    def exponents(self, losses: Floats) -> Floats:
        """Return t L_k."""
        return self.t * losses
